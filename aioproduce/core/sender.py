"""The producer without its event loop: facts go in, effects come out, `now` is an argument.

Called by a driver, which reports facts of the sockets and executes the effects, and by the Producer, which appends
records and asks for flush and close.

    facts:    connection_made, receive_data, connection_lost, writable, compressed, compression_failed, offloaded,
              handle_timer
    requests: accumulator.append, metadata_requests.await_topic, begin_flush, begin_close, abort
    effects:  next_effect(now) -> Connect | Send | Close | Compress | Offload | None, and next_timer() -> instant or
              None

Exchanges (`core.exchanges.exchange`) send all requests to brokers. The Sender holds a list of them, passes facts,
steps, time and the end on to them, and does not know their subjects.

Invariants:

1. After any fact or request, the driver calls `next_effect(now)` until it returns None. Then the core is at rest:
   it can do nothing more before the next fact or `next_timer()`.
2. Every waiter (for a topic, for memory, for a flush) is woken by the event that it waits for, by `abort()` and
   by close. The core bounds no wait; each waiter keeps its own bound.
3. A batch drained from the accumulator is in flight on exactly one connection until that connection's answer
   or loss.
4. Nothing here imports a loop, a clock, a socket or a random source.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproduce.core.batching.batch_compression import BatchCompression
from aioproduce.core.batching.buffer_pool import BufferPool
from aioproduce.core.batching.partitioning import make_partitioning
from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.record_audit import RecordAudit
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.cluster.cluster_metadata import make_cluster_metadata
from aioproduce.core.cluster.connection_states import LossCause
from aioproduce.core.cluster.making_connections import make_broker_connections
from aioproduce.core.exchanges.audit_marks import AuditMarks
from aioproduce.core.exchanges.metadata_requests import MetadataRequests
from aioproduce.core.exchanges.produce_completion import ProduceCompletion
from aioproduce.core.exchanges.produce_requests import ProduceRequests
from aioproduce.core.exchanges.producer_id_requests import ProducerIdRequests
from aioproduce.core.exchanges.telemetry import Telemetry
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.core.state_table import StateTable
from aioproduce.core.transactions.step_requests import StepRequests
from aioproduce.core.transactions.transaction_manager import TransactionManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import BatchResult
    from aioproduce.compression import Codec
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.partitioning import Partitioning
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_audit import MarkSource
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.effects import Compress, Effect, Offload
    from aioproduce.core.exchanges.exchange import Exchange
    from aioproduce.core.exchanges.telemetry import PayloadSource
    from aioproduce.core.retry import Random
    from aioproduce.errors import DeliveryError
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.security import Security

_log = logging.getLogger("aioproduce.sender")


class SenderState(Enum):
    """Whether the core still sends."""

    RUNNING = auto()
    CLOSING = auto()
    """No more records are accepted; the accepted ones are being sent."""
    CLOSED = auto()
    """Every future is settled; connections may still be closing."""


_Event: TypeAlias = Literal["closing", "finished", "died"]

SENDER_STATES: StateTable[SenderState, _Event] = StateTable(
    "the sender",
    {
        SenderState.RUNNING: {"closing": SenderState.CLOSING, "died": SenderState.CLOSED},
        SenderState.CLOSING: {"finished": SenderState.CLOSED, "died": SenderState.CLOSED},
        SenderState.CLOSED: {"died": SenderState.CLOSED},
    },
)

# An attribute of an Enum costs a call.
_RUNNING: Final = SenderState.RUNNING
_CLOSING: Final = SenderState.CLOSING
_CLOSED: Final = SenderState.CLOSED


class Sender:
    """The owner of the pool, the accumulator, the metadata and the connections, which makes them work together.

    Args:
        config: The settings.
        codec: The compression, or `None`.
        runtime: The driver's services for deliveries.
        random: The source of jitter, and of choices among equals.
        metrics: The metrics to record.
        now: The current instant.
        telemetry: The source of metrics to push if the cluster asks for them; `None` pushes none.
        audit: The source of an audited producer's marks, and their wall clock; `None` without audit.
        marks: The same, and the audit of another Sender, whose marks this one publishes. A transactional Sender
            cannot publish its own, as they would be aborted with its transactions.
        security: How connections are encrypted, and how they log in; `None`: neither.
        wall: The wall clock in seconds since the epoch, for the expiry of credentials; needed if there are any.
    """

    __slots__ = (
        "_bounded_log",
        "_completion",
        "_compression",
        "_exchanges",
        "_flushes",
        "_has_work",
        "_metrics",
        "_state",
        "accumulator",
        "audit",
        "connections",
        "metadata",
        "metadata_requests",
        "partitioning",
        "pool",
        "sequences",
        "telemetry",
        "transactions",
    )

    connections: BrokerConnections
    telemetry: Telemetry | None

    def __init__(
        self,
        config: ProducerConfig,
        *,
        codec: Codec | None,
        runtime: DeliveryRuntime,
        random: Random,
        metrics: ProducerMetrics,
        now: float,
        telemetry: PayloadSource | None = None,
        audit: tuple[MarkSource, Callable[[], int]] | None = None,
        marks: tuple[MarkSource, Callable[[], int], RecordAudit] | None = None,
        security: Security | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._metrics = metrics
        self._bounded_log = BoundedLog(_log)
        self._state = _RUNNING
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._has_work = True
        retry = ExponentialBackoff(config.retry_backoff, config.retry_backoff_max, random=random.random)
        self.pool: BufferPool = BufferPool(config.buffer_memory, config.batch_size)
        self.metadata: ClusterMetadata = make_cluster_metadata(config, retry, now)
        self.connections = make_broker_connections(config, random, metrics, self._bounded_log, security, wall)
        self.sequences: Sequences | None = Sequences() if config.enable_idempotence else None
        self._compression = None if codec is None else BatchCompression(codec)
        self.partitioning: Partitioning = make_partitioning(config, self.metadata, random.randrange)
        is_transactional = config.transactional_id is not None
        source = None if audit is None else audit[0]
        self.audit: RecordAudit | None = None
        if source is not None:
            self.audit = RecordAudit(source.producer_id, is_transactional=is_transactional)
        self.accumulator: RecordAccumulator = RecordAccumulator(
            pool=self.pool,
            metadata=self.metadata,
            sequences=self.sequences,
            runtime=runtime,
            compression=self._compression,
            batch_size=config.batch_size,
            linger=config.linger,
            delivery_timeout=config.delivery_timeout,
            max_request_size=config.max_request_size,
            backoff=retry,
            partitioning=self.partitioning,
            audit=self.audit,
            audit_topic=None if source is None else source.topic,
            is_transactional=is_transactional,
        )
        self._completion = self._produce_completion(config, metrics)
        self.metadata_requests: MetadataRequests = MetadataRequests(
            config.client_id, self.metadata, self.accumulator, self.connections, self._bounded_log
        )
        self.telemetry = None if telemetry is None else self._telemetry(config, telemetry, random)
        self.transactions: TransactionManager | None = None
        if config.transactional_id is not None and self.sequences is not None:
            self.transactions = self._transaction_manager(config, self.sequences, retry, random)
        if audit is not None and self.audit is not None:
            self.audit.watch(lambda: self.accumulator.incomplete)
            audit[0].begin(self.audit)
            if not is_transactional:
                marks = (*audit, self.audit)
        self._exchanges = self._in_order(
            config, retry, None if marks is None else self._audit_marks(*marks, config, now)
        )

    def _in_order(
        self, config: ProducerConfig, retry: ExponentialBackoff, marks: Exchange | None
    ) -> list[Exchange]:
        """Return the exchanges in the order of their steps and of their end.

        The last mark follows when all records are settled, and the last telemetry push follows the mark.
        """
        exchanges: list[Exchange] = [self.metadata_requests]
        if self.transactions is not None:
            exchanges.append(self.transactions)
        elif self.sequences is not None:
            exchanges.append(self._producer_id_requests(config, self.sequences, retry))
        exchanges.append(self._produce_requests(config))
        return exchanges + [each for each in (marks, self.telemetry) if each is not None]

    def _produce_completion(self, config: ProducerConfig, metrics: ProducerMetrics) -> ProduceCompletion:
        return ProduceCompletion(
            config, self.accumulator, self.metadata, self.sequences, metrics, self.connection_errors
        )

    def _telemetry(self, config: ProducerConfig, source: PayloadSource, random: Random) -> Telemetry:
        return Telemetry(config, source, self.metadata, self.connections, random.random, self._bounded_log)

    def _producer_id_requests(
        self, config: ProducerConfig, sequences: Sequences, retry: ExponentialBackoff
    ) -> Exchange:
        return ProducerIdRequests(
            config.client_id,
            sequences,
            self.metadata,
            self.accumulator,
            self.connections,
            self._completion,
            retry,
            self._bounded_log,
        )

    def _transaction_manager(
        self, config: ProducerConfig, sequences: Sequences, retry: ExponentialBackoff, random: Random
    ) -> TransactionManager:
        requests = StepRequests(
            self.connections, self.metadata, retry, random.random, config.max_block, self._bounded_log
        )
        return TransactionManager(
            config, sequences, self.accumulator, self._completion, requests, self.connections.features
        )

    def _produce_requests(self, config: ProducerConfig) -> Exchange:
        return ProduceRequests(
            config,
            self.accumulator,
            self.sequences,
            self._compression,
            self.metadata,
            self.connections,
            self.partitioning.loads,
            self._metrics,
            self._completion,
            None if self.transactions is None else self.transactions.records,
        )

    def _audit_marks(
        self,
        source: MarkSource,
        wall_ms: Callable[[], int],
        audit: RecordAudit,
        config: ProducerConfig,
        now: float,
    ) -> Exchange:
        return AuditMarks(
            source,
            audit,
            wall_ms=wall_ms,
            metadata=self.metadata,
            requests=self.metadata_requests,
            accumulator=self.accumulator,
            now=now,
            most=config.max_request_size,
        )

    # -- requests of the Producer ---

    @property
    def has_work(self) -> bool:
        """Whether `next_effect()` has work: then the driver must be woken."""
        return self._is_due()

    def _is_due(self) -> bool:
        return (
            self._has_work
            or self.accumulator.readiness.has_news
            or self.metadata_requests.has_news
            or (self.transactions is not None and self.transactions.has_news)
            or bool(self.connections.effects)
            or bool(self.connections.offloads.effects)
            or (self._compression is not None and bool(self._compression.effects))
        )

    @property
    def is_closed(self) -> bool:
        """Whether everything is settled, every connection has ended, and no thread reads a batch."""
        return (
            self._state is _CLOSED
            and len(self.connections) == 0
            and (self._compression is None or not self._compression.in_progress)
        )

    @property
    def is_accepting(self) -> bool:
        """Whether records may be appended."""
        return self._state is _RUNNING

    @property
    def settled(self) -> deque[BatchResult]:
        """Results whose delivery callbacks the driver must run, in order."""
        return self._completion.settled

    def memory_exhausted(self, now: float) -> None:
        """Send lingering batches: a `send()` waits for memory."""
        self.accumulator.readiness.memory_exhausted(now)

    def begin_flush(self, notify: Callable[[], None], now: float) -> None:
        """Send all accepted records without lingering; `notify` is called when they are settled."""
        self._flushes.append((self.accumulator.begin_flush(now), notify))
        self._check_flushes()

    def begin_close(self, now: float) -> None:
        """Accept no more records; send the accepted ones, then close the connections."""
        if self._state is not _RUNNING:
            return
        self._move("closing")
        for exchange in self._exchanges:
            exchange.begin_close(now)
        self._has_work = True

    def abort(self, now: float, make_error: Callable[[ProducerBatch], DeliveryError] | None = None) -> None:
        """Fail all records that are not settled, now, and drop the connections.

        Args:
            now: The current instant.
            make_error: Returns the error of each batch; a `ForcedCloseError` by default.
        """
        self.begin_close(now)
        if self._state is _CLOSING:
            if self._compression is not None:
                self._compression.stop()
            self._completion.fail_all(make_error or self._completion.errors.forced_close, now)
            self._finish_close(now)
        self._check_flushes()

    def die(self, cause: BaseException, why: str, now: float) -> None:
        """Settle all, and trust no state: the task that drove this core ended, by a bug or with its loop.

        Args:
            cause: The error that ended it.
            why: The cause in words, for the errors of the records.
            now: The current instant.
        """
        self._move("died")
        self._completion.sender_died(cause, why, now)
        for exchange in self._exchanges:
            exchange.wake_all()
        flushes, self._flushes = self._flushes, deque()
        for _, notify in flushes:
            notify()
        self.pool.write_off()

    # -- facts ---

    def connection_made(self, connection_id: int, now: float) -> None:
        """Handle an opened transport."""
        self.connections.connection_made(connection_id, now)
        self._has_work = True

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Handle bytes from a broker."""
        answers = self.connections.receive_data(connection_id, data, now)
        is_routine = bool(answers)
        for completed in answers:
            self._metrics.throttled(completed.response.throttle, now)
            asker = completed.request.asker
            if asker is not None and not asker.answered(completed.response, now):
                is_routine = False
        if self.connections.fatal_error is not None:
            self.metadata_requests.wake_all()
        self._check_flushes()
        if not is_routine or self._awaits_room():
            self._has_work = True

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """Handle a lost transport, or a failed attempt to open one."""
        lost = self.connections.connection_lost(connection_id, error, now)
        if lost is None:
            return
        if lost.cause not in (LossCause.IDLE, LossCause.REQUESTED):
            self._tell_of_loss(lost, now)
            self.metadata_requests.broker_lost(now)
        for request in lost.requests:
            if request.asker is not None:
                request.asker.lost(lost, now)
        self._check_flushes()
        self._has_work = True

    def _tell_of_loss(self, lost: Lost, now: float) -> None:
        node_id = lost.connection.node_id
        if lost.cause is LossCause.CLOSED_AT_REST:
            self._bounded_log.info(("closed", node_id), now, "%s", lost.reason)
        else:
            self._bounded_log.warning(("lost", node_id), now, "%s", lost.reason)

    def writable(self, connection_id: int, now: float) -> None:
        """Handle that a transport holds none of the core's bytes any more."""
        requests = self.connections.writable(connection_id, now)
        for request in requests:
            if request.asker is not None:
                request.asker.answered(None, now)
        if requests or self._awaits_room():
            self._has_work = True

    def _awaits_room(self) -> bool:
        """Whether room on a connection is useful: if not, acknowledgements need no step."""
        if self._state is not _RUNNING:
            return True
        # Not any(): this runs for each answer, and a generator costs more than this loop.
        for exchange in self._exchanges:  # noqa: SIM110
            if exchange.awaits_connection:
                return True
        return False

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """Accept the result of a `Compress` effect; no thread reads the batch's own bytes any more."""
        self.accumulator.compressed(batch, records, now)
        self._has_work = True

    def compression_failed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        """Handle the failure of a `Compress` effect; no thread reads the batch any more."""
        if not batch.is_settled and self._compression is not None:
            self._completion.compression_failed(batch, self._compression.codec.name, error, now)
            self._check_flushes()
        self.accumulator.compression_failed(batch, now)
        self._has_work = True

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """Accept the result or the exception of an `Offload` effect."""
        self.connections.offloaded(ticket, outcome, now)
        self._has_work = True

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        timer = self.next_timer()
        if timer is None or timer > now:
            return
        for exchange in self._exchanges:
            exchange.handle_timer(now)
        self.connections.handle_timer(now)
        self._check_flushes()
        self._has_work = True

    # -- effects ---

    def next_timer(self) -> float | None:
        """Return the next instant at which `handle_timer()` has work."""
        if self._state is _CLOSED:
            return None  # the core waits only for the sockets
        first = inf
        for at in (self.accumulator.next_timer(), self.connections.next_timer()):
            if at is not None and at < first:
                first = at
        for exchange in self._exchanges:
            if exchange.timer_at < first:
                first = exchange.timer_at
        return None if first == inf else first

    def next_effect(self, now: float) -> Effect | Offload | Compress[ProducerBatch] | None:
        """Return the driver's next effect; None when the core is at rest."""
        effects, compression = self.connections.effects, self._compression
        offloads = self.connections.offloads.effects
        while True:
            if compression is not None and compression.effects:
                # Before all others: another thread works on it while this one sends.
                return compression.effects.popleft()
            if effects:
                return effects.popleft()
            if offloads:
                return offloads.popleft()
            if not self._is_due():
                return None
            self._advance(now)

    def _advance(self, now: float) -> None:
        self._has_work = False
        if self._state is _CLOSED:
            # No exchange sends any more.
            self.accumulator.readiness.has_news = self.metadata_requests.has_news = False
            if self.transactions is not None:
                self.transactions.has_news = False
            return
        for exchange in self._exchanges:
            exchange.advance(now)
        if self._flushes:
            self._check_flushes()
        if self._state is _CLOSING and all(exchange.finish(now) for exchange in self._exchanges):
            self._finish_close(now)

    def _finish_close(self, now: float) -> None:
        self._move("finished")
        if self.transactions is not None:
            self.transactions.closed()
        self.connections.close_all("the producer is closing", now)
        self._check_flushes()

    def _check_flushes(self) -> None:
        if not self._flushes:
            return
        oldest = self.accumulator.oldest_incomplete_id
        while self._flushes and self._flushes[0][0] <= oldest:
            self._flushes.popleft()[1]()

    def _move(self, event: _Event) -> None:
        self._state = SENDER_STATES.after(self._state, event)

    def connection_errors(self) -> dict[str, str]:
        """Return the address and the last error of every known broker that cannot be reached."""
        errors: dict[str, str] = {}
        for broker in self.metadata.brokers:
            error = self.connections.last_error(broker.node_id)
            if error is not None:
                errors[f"{broker.host}:{broker.port}"] = error
        return errors
