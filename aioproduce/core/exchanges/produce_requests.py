"""Produce requests: to whom, with which batches, in which version.

The way back, of answers and of losses, is `produce_completion`.

Invariants:

1. A broker gets a request only over a connection that takes one now: nothing is queued behind a connection.
2. Where order is kept by muting, a partition is muted before its batch is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.candidates import BrokerLoads
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.effects import Buffer
    from aioproduce.metrics import ProducerMetrics

_LAST_VERSION_BY_NAME: Final = 12
"""From version 13 on topics are named by their ids alone."""


@final
class ProduceRequests:
    """Drains the accumulator into requests.

    Args:
        config: The settings.
        accumulator: Gives the batches of each broker.
        metadata: Where each broker is.
        connections: Ways to the brokers.
        loads: Hears which brokers were drained, and which keep their batches waiting.
        metrics: Hears of the batches sent.
        keeps_order_by_muting: Whether a partition has one batch in flight at most.
    """

    __slots__ = (
        "_accumulator",
        "_config",
        "_connections",
        "_keeps_order_by_muting",
        "_loads",
        "_metadata",
        "_metrics",
    )

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        metadata: ClusterMetadata,
        connections: BrokerConnections,
        loads: BrokerLoads,
        metrics: ProducerMetrics,
        *,
        keeps_order_by_muting: bool,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._metadata = metadata
        self._connections = connections
        self._loads = loads
        self._metrics = metrics
        self._keeps_order_by_muting = keeps_order_by_muting

    def send_ready(self, now: float) -> None:
        """One request to each broker that has batches waiting, and room for it."""
        loads = self._loads
        nodes = self._accumulator.readiness.ready.nodes
        loads.pass_time(nodes, now)
        for node in list(nodes):
            address = self._metadata.broker(node)
            if address is None:
                self._metadata.request_update(now)
                continue
            connection = self._connections.ensure(address, now)
            if connection is None or not connection.can_send(now):
                loads.blocked(node, now)
                continue
            loads.drained(node)
            batches = self._accumulator.drain(node, now)
            if batches:
                self._send(connection, batches, now)

    def _send(self, connection: BrokerConnection, batches: Sequence[ProducerBatch], now: float) -> None:
        config = self._config

        def encode(version: int, correlation_id: int) -> Sequence[Buffer]:
            return encode_produce(
                version,
                correlation_id,
                config.client_id,
                acks=config.acks,
                timeout=config.request_timeout,
                batches=batches,
            )

        if self._keeps_order_by_muting:
            for batch in batches:
                self._accumulator.mute(batch.topic_partition)
        has_ids = all(batch.topic_id is not None for batch in batches)
        connection.send(
            ApiKey.PRODUCE,
            encode,
            batches,
            now,
            timeout=config.request_timeout,
            expects_response=config.acks != 0,
            max_version=None if has_ids else _LAST_VERSION_BY_NAME,
        )
        self._metrics.batches.sent(batches, now)
