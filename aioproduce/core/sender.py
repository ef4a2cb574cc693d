"""The producer without its event loop: facts go in, effects come out, `now` is an argument.

Called by a driver, which reports what happened on the sockets and carries out the effects, and by the Producer,
which appends records and asks for flush and close.

    facts:    connection_made, receive_data, connection_lost, writable, compressed, compression_failed, offloaded,
              handle_timer
    requests: accumulator.append, metadata_requests.await_topic, begin_flush, begin_close, abort
    effects:  next_effect(now) -> Connect | Send | Close | Compress | Offload | None, and next_timer() -> instant or
              None

What is asked of brokers is asked by exchanges (`core.exchanges.exchange`), of which the Sender holds a list: it
passes facts, steps, time and the end on to them, and does not know what they are about.

Invariants:

1. After any fact or request, `next_effect(now)` until it gives None brings the core to rest: nothing more can
   be done before the next fact or `next_timer()`.
2. Everything that waits (for a topic, for memory, for a flush) is woken by what it waits for, by `abort()` and
   by close; nothing waits on the core without a bound that the waiter keeps.
3. A batch drained from the accumulator is in flight on exactly one connection until that connection's answer
   or loss.
4. Nothing here imports a loop, a clock, a socket or a random source.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias, final

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
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_audit import MarkSource
    from aioproduce.core.cluster.broker_connections import Lost
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
    """No more records come in; those accepted are being sent."""
    CLOSED = auto()
    """Every future is settled; connections may still be on their way down."""


_Event: TypeAlias = Literal["closing", "finished", "died"]

SENDER_STATES: StateTable[SenderState, _Event] = StateTable(
    "the sender",
    {
        SenderState.RUNNING: {"closing": SenderState.CLOSING, "died": SenderState.CLOSED},
        SenderState.CLOSING: {"finished": SenderState.CLOSED, "died": SenderState.CLOSED},
        SenderState.CLOSED: {"died": SenderState.CLOSED},
    },
)


@final
class Sender:
    """Owns the pool, the accumulator, the metadata and the connections, and makes them work together.

    Args:
        config: The settings.
        codec: The compression, or `None`.
        runtime: What deliveries need of the driver.
        random: Jitter, and the choice among equals.
        metrics: What happens is recorded there.
        now: The current instant.
        telemetry: What the cluster is pushed, if it asks for metrics; `None` where it shall not be.
        audit: Makes the marks of an audited producer, and the clock that they tell; `None` for one that is not.
        marks: The same with the audit of another Sender, whose marks this one publishes: a transactional one
            cannot, as its records are aborted with its transactions.
        security: How connections are encrypted, and how they log in; `None`: neither.
        wall: The wall clock in seconds since the epoch, by which credentials expire; needed where there are some.
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
        self._state = SenderState.RUNNING
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._has_work = True
        retry = ExponentialBackoff(config.retry_backoff, config.retry_backoff_max, random=random.random)
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.metadata = make_cluster_metadata(config, retry, now)
        self.connections = make_broker_connections(config, random, metrics, self._bounded_log, security, wall)
        self.sequences = Sequences() if config.enable_idempotence else None
        self._compression = None if codec is None else BatchCompression(codec)
        self.partitioning = make_partitioning(config, self.metadata, random.randrange)
        is_transactional = config.transactional_id is not None
        source = None if audit is None else audit[0]
        self.audit: RecordAudit | None = None
        if source is not None:
            self.audit = RecordAudit(source.producer_id, is_transactional=is_transactional)
        self.accumulator = RecordAccumulator(
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
        self.metadata_requests = MetadataRequests(
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
        """In the order of steps, and of the end.

        The last mark comes when all records are settled, the last push to the cluster after it.
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

    # -- what the Producer asks ---

    @property
    def has_work(self) -> bool:
        """Whether `next_effect()` has something to look at: the driver shall be woken."""
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
        """Whether everything is settled, every connection is gone, and no thread reads a batch."""
        return (
            self._state is SenderState.CLOSED
            and len(self.connections) == 0
            and (self._compression is None or not self._compression.in_progress)
        )

    @property
    def is_accepting(self) -> bool:
        """Whether records may be appended."""
        return self._state is SenderState.RUNNING

    @property
    def settled(self) -> deque[BatchResult]:
        """Results whose delivery callbacks the driver shall run, in order."""
        return self._completion.settled

    def memory_exhausted(self, now: float) -> None:
        """Someone waits for memory: what lingers goes."""
        self.accumulator.readiness.memory_exhausted(now)

    def begin_flush(self, notify: Callable[[], None], now: float) -> None:
        """Send all that is accepted without lingering; `notify` is called when it is settled."""
        self._flushes.append((self.accumulator.begin_flush(now), notify))
        self._check_flushes()

    def begin_close(self, now: float) -> None:
        """Take no more records; send what is there, then close the connections."""
        if self._state is not SenderState.RUNNING:
            return
        self._move("closing")
        for exchange in self._exchanges:
            exchange.begin_close(now)
        self._has_work = True

    def abort(self, now: float, make_error: Callable[[ProducerBatch], DeliveryError] | None = None) -> None:
        """Fail what is not settled, now, and drop the connections.

        Args:
            now: The current instant.
            make_error: Why, for each batch; a `ForcedCloseError` by default.
        """
        self.begin_close(now)
        if self._state is SenderState.CLOSING:
            if self._compression is not None:
                self._compression.stop()
            self._completion.fail_all(make_error or self._completion.forced_close, now)
            self._finish_close(now)
        self._check_flushes()

    def die(self, cause: BaseException, now: float) -> None:
        """The task that drove this core ended by a bug: settle everything without trusting the core's state."""
        self._move("died")
        self._completion.sender_died(cause, now)
        for exchange in self._exchanges:
            exchange.wake_all()
        flushes, self._flushes = self._flushes, deque()
        for _, notify in flushes:
            notify()
        self.pool.write_off()

    # -- facts ---

    def connection_made(self, connection_id: int, now: float) -> None:
        """The transport is there."""
        self.connections.connection_made(connection_id, now)
        self._has_work = True

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Bytes came from a broker."""
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
        if not is_routine or self._awaits_room:
            self._has_work = True

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """A transport is gone, or an attempt to open one failed."""
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
        """A transport holds none of our bytes any more."""
        requests = self.connections.writable(connection_id, now)
        for request in requests:
            if request.asker is not None:
                request.asker.answered(None, now)
        if requests or self._awaits_room:
            self._has_work = True

    @property
    def _awaits_room(self) -> bool:
        """Whether more room on a connection is of use: if not, acknowledgements leave nothing to be looked at."""
        if self._state is not SenderState.RUNNING:
            return True
        # Not any(): it is asked with each answer, and a generator costs more than the looks.
        for exchange in self._exchanges:  # noqa: SIM110
            if exchange.awaits_connection:
                return True
        return False

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """What a `Compress` effect asked for; no thread reads the batch's own bytes any more."""
        self.accumulator.compressed(batch, records, now)
        self._has_work = True

    def compression_failed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        """What a `Compress` effect asked for cannot be done, and no thread reads the batch any more."""
        if not batch.is_settled and self._compression is not None:
            self._completion.compression_failed(batch, self._compression.codec.name, error, now)
            self._check_flushes()
        self.accumulator.compression_failed(batch, now)
        self._has_work = True

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """What an `Offload` effect asked for has ended, with a result or an exception."""
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
        """The next instant at which `handle_timer()` has something to do."""
        if self._state is SenderState.CLOSED:
            return None  # the sockets alone are waited for
        first = inf
        for at in (self.accumulator.next_timer(), self.connections.next_timer()):
            if at is not None and at < first:
                first = at
        for exchange in self._exchanges:
            if exchange.timer_at < first:
                first = exchange.timer_at
        return None if first == inf else first

    def next_effect(self, now: float) -> Effect | Offload | Compress[ProducerBatch] | None:
        """What the driver shall do next; None when the core is at rest."""
        effects, compression = self.connections.effects, self._compression
        offloads = self.connections.offloads.effects
        while True:
            if compression is not None and compression.effects:
                # First of all: it goes on elsewhere while this thread sends.
                return compression.effects.popleft()
            if effects:
                return effects.popleft()
            if offloads:
                return offloads.popleft()
            if not self.has_work:
                return None
            self._advance(now)

    def _advance(self, now: float) -> None:
        self._has_work = False
        if self._state is SenderState.CLOSED:
            # Nobody asks any more.
            self.accumulator.readiness.has_news = self.metadata_requests.has_news = False
            if self.transactions is not None:
                self.transactions.has_news = False
            return
        for exchange in self._exchanges:
            exchange.advance(now)
        if self._flushes:
            self._check_flushes()
        if self._state is SenderState.CLOSING and all(exchange.finish(now) for exchange in self._exchanges):
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
        """Address -> what went wrong there last, for every broker that is known and cannot be reached."""
        errors: dict[str, str] = {}
        for broker in self.metadata.brokers:
            error = self.connections.last_error(broker.node_id)
            if error is not None:
                errors[f"{broker.host}:{broker.port}"] = error
        return errors
