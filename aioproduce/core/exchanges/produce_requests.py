"""Produce requests: the broker, the batches and the version of each.

`produce_completion` decides what an answer, a loss or a time-out means for a batch.

Invariants:

1. A request is made only if a connection accepts it now: nothing is queued behind a connection.
2. If muting keeps the order, a partition is muted before its batch is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce.core.cluster.connection_states import LossCause
from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.wire.api import ApiKey
from aioproduce.wire.produce import encode_produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.batch_compression import BatchCompression
    from aioproduce.core.batching.candidates import BrokerLoads
    from aioproduce.core.batching.produce_transaction import ProduceTransaction
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.ready_queues import ReadyQueues
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.effects import Buffer
    from aioproduce.core.exchanges.produce_completion import ProduceCompletion
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.wire.messages import ProduceResponse

_PRODUCE: Final = ApiKey.PRODUCE  # an attribute of an Enum costs a call
_LAST_VERSION_BY_NAME: Final = 12
"""From version 13 on, topics are identified by their ids alone."""


class ProduceRequests(Exchange):
    """The exchange that drains the accumulator into Produce requests.

    Args:
        config: The settings.
        accumulator: The source of each broker's batches.
        sequences: The idempotent protocol's state: nothing is sent without a producer id. `None` without it.
        compression: Batches that could not be compressed for a request fail; `None` without compression.
        metadata: The brokers' addresses.
        connections: The connections to the brokers.
        loads: Counts which brokers were drained, and which keep their batches waiting.
        metrics: Counts the batches sent.
        completion: Decides the outcome of batches.
        transaction: The transaction of a transactional producer, which limits when and in which version to send.
    """

    __slots__ = (
        "_accumulator",
        "_acks",
        "_client_id",
        "_completion",
        "_compression",
        "_connections",
        "_loads",
        "_metadata",
        "_metrics",
        "_sequences",
        "_timeout",
        "_transaction",
        "_transactional_id",
    )

    awaits_connection: bool

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        sequences: Sequences | None,
        compression: BatchCompression | None,
        metadata: ClusterMetadata,
        connections: BrokerConnections,
        loads: BrokerLoads,
        metrics: ProducerMetrics,
        completion: ProduceCompletion,
        transaction: ProduceTransaction | None = None,
    ) -> None:
        super().__init__()
        self._transaction = transaction
        self._client_id = config.client_id
        self._transactional_id = config.transactional_id
        self._acks = config.acks
        self._timeout = config.request_timeout
        self._accumulator = accumulator
        self._sequences = sequences
        self._compression = compression
        self._metadata = metadata
        self._connections = connections
        self._loads = loads
        self._metrics = metrics.batches
        self._completion = completion

    # -- steps ---

    def advance(self, now: float) -> None:
        """Send one request to each broker with waiting batches whose connection accepts it."""
        readiness = self._accumulator.readiness
        readiness.has_news = False
        if (self._sequences is None or self._sequences.is_ready) and (
            self._transaction is None or self._transaction.lets_send(now)
        ):
            self._send_ready(readiness.ready, now)
        self.awaits_connection = bool(readiness.ready)
        compression = self._compression
        if compression is not None:
            while compression.failures:
                batch, error = compression.failures.popleft()
                self._completion.compression_failed(batch, compression.codec.name, error, now)

    def _send_ready(self, ready: ReadyQueues, now: float) -> None:
        loads, nodes = self._loads, ready.nodes
        loads.pass_time(nodes, now)
        for node in list(nodes):
            address = self._metadata.broker(node)
            assert address is not None, "every leader has an address"
            connection = self._connections.ensure(address, now)
            if connection is None or not connection.can_send(now):
                loads.blocked(node, now)
                continue
            loads.drained(node)
            batches = self._accumulator.drain(node, now)
            if batches:
                self._send(connection, batches, now)

    def _send(self, connection: BrokerConnection, batches: list[ProducerBatch], now: float) -> None:
        transaction = self._transaction
        max_version: int | None = None
        for batch in batches:
            if batch.topic_id is None:
                max_version = _LAST_VERSION_BY_NAME
        if transaction is not None:
            max_version = transaction.max_produce_version(max_version)
            transaction.produced(now)

        if self._completion.keeps_order_by_muting:
            for batch in batches:
                self._accumulator.mute(batch.topic_partition)
        sent = _Sent(self, connection, batches)
        connection.send(_PRODUCE, sent.encode, sent, now, None, self._acks != 0, max_version)
        metrics, count = self._metrics, 0
        for batch in batches:
            records = batch.records
            count += records.record_count
            metrics.batch_sent(
                batch.topic,
                records.record_count,
                records.size,
                records.largest_record,
                batch.size,
                now - batch.created_at,
                now,
            )
        metrics.request_sent(count, now)

    # -- time: `timer_at` stays at infinity, because the Sender reads the accumulator's own timer ---

    def handle_timer(self, now: float) -> None:
        """Fail expired batches; make batches ready whose linger or back-off is over."""
        self._completion.expire(now)
        self._accumulator.readiness.handle_timer(now)

    # -- the end ---

    def begin_close(self, now: float) -> None:
        """Accept no more records, and send the accepted ones without lingering."""
        self._accumulator.begin_close(now)

    def finish(self, now: float) -> bool:
        """Return whether every record has its outcome."""
        return not self._accumulator.has_incomplete


class _Sent:
    """One request, which passes its answer or loss on for its batches."""

    __slots__ = ("_batches", "_connection", "_requests")

    def __init__(
        self, requests: ProduceRequests, connection: BrokerConnection, batches: list[ProducerBatch]
    ) -> None:
        self._requests = requests
        self._connection = connection
        self._batches = batches

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        requests = self._requests
        return encode_produce(
            version,
            correlation_id,
            requests._client_id,
            requests._acks,
            requests._timeout,
            self._batches,
            requests._transactional_id,
        )

    def answered(self, response: ProduceResponse | None, now: float) -> bool:
        if response is None:
            self._requests._completion.written(self._batches, now)
            return False
        return self._requests._completion.answered(self._batches, response, self._connection, now)

    def lost(self, loss: Lost, now: float) -> None:
        is_timeout = loss.cause is LossCause.REQUEST_TIMEOUT
        self._requests._completion.unanswered(self._batches, loss.reason, timed_out=is_timeout, now=now)
