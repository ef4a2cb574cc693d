"""Construction of a producer's connections from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce.core.cluster.broker_connections import BrokerConnections
from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.offloads import Offloads
from aioproduce.core.retry import ExponentialBackoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.retry import Random
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.security import Security


def make_broker_connections(
    config: ProducerConfig,
    random: Random,
    metrics: ProducerMetrics,
    log: BoundedLog,
    security: Security | None = None,
    wall: Callable[[], float] | None = None,
) -> BrokerConnections:
    """Return an empty `BrokerConnections`, configured from the settings."""
    offloads = Offloads()
    login = None
    if security is not None and security.sasl is not None:
        assert wall is not None, "credentials expire by the wall clock"
        login = Login(security.sasl, offloads, wall, random.random, log)
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
        security=security,
        login=login,
        offloads=offloads,
        jitter=random.random,
    )
