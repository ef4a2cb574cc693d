"""What the core is made of, as the settings have it: parts that take many of them, made in one place.

Used by the Sender alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproduce.core.cluster.broker_connections import BrokerConnections
from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
from aioproduce.core.retry import ExponentialBackoff

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.metrics import ProducerMetrics


class Random(Protocol):
    """A source of randomness, as `random.Random` is one."""

    def random(self) -> float:
        """One of [0, 1)."""

    def randrange(self, stop: int, /) -> int:
        """One of 0 to stop - 1."""


def make_cluster_metadata(config: ProducerConfig, retry: ExponentialBackoff, now: float) -> ClusterMetadata:
    """What is known of the cluster, to begin with: its bootstrap servers."""
    return ClusterMetadata(
        bootstrap=config.bootstrap_servers,
        max_age=config.metadata_max_age,
        max_idle=config.metadata_max_idle,
        backoff=retry,
        recovery_strategy=config.metadata_recovery_strategy,
        rebootstrap_trigger=config.metadata_rebootstrap_trigger,
        now=now,
    )


def make_broker_connections(
    config: ProducerConfig, random: Random, metrics: ProducerMetrics
) -> BrokerConnections:
    """No connection yet, and how each is made."""
    return BrokerConnections(
        client_id=config.client_id,
        max_in_flight=config.max_in_flight,
        request_timeout=config.request_timeout,
        connections_max_idle=config.connections_max_idle,
        setup_backoff=ExponentialBackoff(
            config.socket_connection_setup_timeout,
            config.socket_connection_setup_timeout_max,
            random=random.random,
        ),
        reconnect_backoff=ExponentialBackoff(
            config.reconnect_backoff, config.reconnect_backoff_max, random=random.random
        ),
        random=random.randrange,
        metrics=metrics,
    )
