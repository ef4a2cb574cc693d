"""The producer without its event loop: facts go in, effects come out, `now` is an argument.

Called by a driver, which reports what happened on the sockets and carries out the effects, and by the Producer,
which appends records and asks for flush and close.

    facts:    connection_made, receive_data, connection_lost, writable, compressed, compression_failed, handle_timer
    requests: accumulator.append, metadata_requests.await_topic, begin_flush, begin_close, abort
    effects:  next_effect(now) -> Connect | Send | Close | Compress | None, and next_timer() -> instant | None

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
from typing import TYPE_CHECKING, final

from aioproduce.core.batching.batch_compression import BatchCompression
from aioproduce.core.batching.buffer_pool import BufferPool
from aioproduce.core.batching.partitioning import make_partitioning
from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.record_audit import RecordAudit
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.cluster.broker_connection import LossCause
from aioproduce.core.exchanges.audit_marks import AuditMarks
from aioproduce.core.exchanges.metadata_requests import MetadataRequests
from aioproduce.core.exchanges.produce_completion import ProduceCompletion
from aioproduce.core.exchanges.produce_requests import ProduceRequests
from aioproduce.core.exchanges.producer_id_requests import ProducerIdRequests
from aioproduce.core.exchanges.telemetry import Telemetry
from aioproduce.core.parts import make_broker_connections, make_cluster_metadata
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.wire.messages import (
    GetTelemetrySubscriptionsResponse,
    InitProducerIdResponse,
    MetadataResponse,
    ProduceResponse,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import BatchResult
    from aioproduce.compression import Codec
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_audit import MarkSource
    from aioproduce.core.cluster.in_flight_request import Completed
    from aioproduce.core.effects import Compress, Effect
    from aioproduce.core.exchanges.telemetry import PayloadSource
    from aioproduce.core.parts import Random
    from aioproduce.errors import DeliveryError
    from aioproduce.metrics import ProducerMetrics

_log = logging.getLogger("aioproduce.sender")


class _Request(Enum):
    """The context of requests that carry no batches."""

    METADATA = auto()
    INIT_PRODUCER_ID = auto()
    TELEMETRY = auto()


class SenderState(Enum):
    """Whether the core still sends."""

    RUNNING = auto()
    CLOSING = auto()
    """No more records come in; those accepted are being sent."""
    CLOSED = auto()
    """Every future is settled; connections may still be on their way down."""


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
    """

    __slots__ = (
        "_bounded_log",
        "_completion",
        "_compression",
        "_flushes",
        "_has_work",
        "_marks",
        "_metrics",
        "_produce_requests",
        "_producer_id_requests",
        "_state",
        "accumulator",
        "connections",
        "metadata",
        "metadata_requests",
        "partitioning",
        "pool",
        "sequences",
        "telemetry",
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
    ) -> None:
        self._metrics = metrics
        retry = ExponentialBackoff(config.retry_backoff, config.retry_backoff_max, random=random.random)
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.metadata = make_cluster_metadata(config, retry, now)
        self.sequences = Sequences() if config.enable_idempotence else None
        self._compression = None if codec is None else BatchCompression(codec)
        self.partitioning = make_partitioning(config, self.metadata, random.randrange)
        source = None if audit is None else audit[0]
        record_audit = None if source is None else RecordAudit(source.producer_id)
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
            audit=record_audit,
            audit_topic=None if source is None else source.topic,
        )
        self.connections = make_broker_connections(config, random, metrics)
        self._completion = ProduceCompletion(config, self.accumulator, self.metadata, self.sequences, metrics)
        self._produce_requests = ProduceRequests(
            config,
            self.accumulator,
            self.metadata,
            self.connections,
            self.partitioning.loads,
            metrics,
            keeps_order_by_muting=self._completion.keeps_order_by_muting,
        )
        self._bounded_log = BoundedLog(_log)
        self._state = SenderState.RUNNING
        self.metadata_requests = MetadataRequests(
            config, self.metadata, self.accumulator, self.connections, self._bounded_log
        )
        self._producer_id_requests = self._make_producer_id_requests(config, retry)
        self.telemetry = None if telemetry is None else self._make_telemetry(config, telemetry, random)
        self._marks: AuditMarks | None = None
        if audit is not None and record_audit is not None:
            self._marks = self._make_marks(*audit, record_audit, config, now)
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._has_work = True

    def _make_telemetry(self, config: ProducerConfig, source: PayloadSource, random: Random) -> Telemetry:
        return Telemetry(config, source, self.metadata, self.connections, random.random, self._bounded_log)

    def _make_marks(
        self,
        source: MarkSource,
        wall_ms: Callable[[], int],
        audit: RecordAudit,
        config: ProducerConfig,
        now: float,
    ) -> AuditMarks:
        audit.watch(lambda: self.accumulator.incomplete)
        source.begin(audit)
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

    def _make_producer_id_requests(
        self, config: ProducerConfig, retry: ExponentialBackoff
    ) -> ProducerIdRequests | None:
        if self.sequences is None:
            return None
        return ProducerIdRequests(
            config,
            self.sequences,
            self.metadata,
            self.accumulator,
            self.connections,
            self._completion,
            retry,
            self._bounded_log,
        )

    # -- what the Producer asks ---

    @property
    def has_work(self) -> bool:
        """Whether `next_effect()` has something to look at: the driver shall be woken."""
        return (
            self._has_work
            or self.accumulator.readiness.has_news
            or self.metadata_requests.has_news
            or bool(self.connections.effects)
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
        self._state = SenderState.CLOSING
        self.metadata_requests.wake_all()
        self.pool.close()
        self.accumulator.readiness.begin_close(now)
        if self.telemetry is not None:
            self.telemetry.begin_close(now)
        if self._marks is not None:
            self._marks.begin_close(now)
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
        self._state = SenderState.CLOSED
        for batch in self.accumulator.incomplete:
            if not batch.result.is_done:
                self._metrics.batches.ended(batch, now, is_failed=True)
                batch.result.fail(self._completion.sender_died(batch, cause), batch.record_count)
                if batch.result.has_callbacks:
                    self.settled.append(batch.result)
        self.metadata_requests.wake_all()
        if self.telemetry is not None:
            self.telemetry.wake_all()
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
            if not self._handle_answer(connection_id, completed, now):
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
            if lost.cause is LossCause.CLOSED_AT_REST:
                self._bounded_log.info(("closed", lost.connection.node_id), now, "%s", lost.reason)
            else:
                self._bounded_log.warning(
                    ("lost", lost.connection.node_id), now, "lost the connection: %s", lost.reason
                )
            # A broker that goes away is the commonest reason for a leader to move.
            self.metadata.request_update(now)
            if self.metadata.version == 0:
                self.metadata_requests.tell_of_failure()
        for request in lost.requests:
            if request.context is _Request.METADATA:
                self.metadata.update_failed(now)
            elif request.context is _Request.INIT_PRODUCER_ID:
                assert self._producer_id_requests is not None
                self._producer_id_requests.failed(None, now)
            elif request.context is _Request.TELEMETRY:
                assert self.telemetry is not None
                self.telemetry.failed(now)
            else:
                self._completion.unanswered(
                    _batches_of(request.context),
                    lost.reason,
                    timed_out=lost.cause is LossCause.REQUEST_TIMEOUT,
                    now=now,
                )
        self._check_flushes()
        self._has_work = True

    def writable(self, connection_id: int, now: float) -> None:
        """A transport holds none of our bytes any more."""
        requests = self.connections.writable(connection_id, now)
        for request in requests:
            self._completion.written(_batches_of(request.context), now)
        if requests:
            self._check_flushes()
        if requests or self._awaits_room:
            self._has_work = True

    @property
    def _awaits_room(self) -> bool:
        """Whether more room on a connection is of use: if not, acknowledgements leave nothing to be looked at."""
        return (
            bool(self.accumulator.readiness.ready)
            or self.metadata_requests.awaits_connection
            or (self.sequences is not None and not self.sequences.is_at_rest)
            or (self.telemetry is not None and self.telemetry.awaits_connection)
            or self._state is not SenderState.RUNNING
        )

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """What a `Compress` effect asked for; no thread reads the batch's own bytes any more."""
        self.accumulator.compressed(batch, records, now)
        self._has_work = True

    def compression_failed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        """What a `Compress` effect asked for cannot be done, and no thread reads the batch any more."""
        if not batch.is_settled:
            self._fail_uncompressed(batch, error, now)
        self.accumulator.compression_failed(batch, now)
        self._has_work = True

    def _fail_uncompressed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        assert self._compression is not None
        self._completion.compression_failed(batch, self._compression.codec.name, error, now)
        self._check_flushes()

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        timer = self.next_timer()
        if timer is None or timer > now:
            return
        self._completion.expire(now)
        self.accumulator.readiness.handle_timer(now)
        self.connections.handle_timer(now)
        for requests in (self._producer_id_requests, self.telemetry):
            if requests is not None and requests.timer_at is not None and requests.timer_at <= now:
                requests.timer_at = None
        self._check_flushes()
        self._has_work = True

    # -- effects ---

    def next_timer(self) -> float | None:
        """The next instant at which `handle_timer()` has something to do."""
        if self._state is SenderState.CLOSED:
            return None  # the sockets alone are waited for
        first = self.accumulator.next_timer()
        requests, telemetry = self._producer_id_requests, self.telemetry
        for at in (
            self.connections.next_timer(),
            self.metadata_requests.timer_at,
            None if requests is None else requests.timer_at,
            None if telemetry is None else telemetry.timer_at,
            None if self._marks is None else self._marks.timer_at,
        ):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def next_effect(self, now: float) -> Effect | Compress[ProducerBatch] | None:
        """What the driver shall do next; None when the core is at rest."""
        effects = self.connections.effects
        compression = self._compression
        if compression is not None and compression.effects:
            # First of all: it goes on elsewhere while this thread sends.
            return compression.effects.popleft()
        if not effects and self.has_work:
            self._advance(now)
            if compression is not None and compression.effects:
                return compression.effects.popleft()
        return effects.popleft() if effects else None

    def _advance(self, now: float) -> None:
        self._has_work = False
        self.accumulator.readiness.has_news = False
        if self._state is SenderState.CLOSED:
            self.metadata_requests.has_news = False  # nobody asks any more
            return
        if self.sequences is not None:
            for topic_partition in self.sequences.settle_sequences():
                self.accumulator.unblock(topic_partition, now)
        if self._marks is not None and self._marks.timer_at <= now:
            self._marks.advance(now)
        self.metadata_requests.advance(now, _Request.METADATA)
        if self._producer_id_requests is not None:
            self._producer_id_requests.advance(now, _Request.INIT_PRODUCER_ID)
        if self.sequences is None or self.sequences.is_ready:
            self._produce_requests.send_ready(now)
        if self._compression is not None:
            while self._compression.failures:
                self._fail_uncompressed(*self._compression.failures.popleft(), now)
        telemetry = self.telemetry
        if (
            telemetry is not None
            and telemetry.due_at <= now
            and telemetry.unoffered_at != self.connections.negotiations
        ):
            telemetry.advance(now, _Request.TELEMETRY)
        if (
            self._state is SenderState.CLOSING
            and not self.accumulator.has_incomplete
            and (self._marks is None or self._finish_marks(self._marks, now))
            and (telemetry is None or telemetry.finish(now, _Request.TELEMETRY))
        ):
            self._finish_close(now)

    def _finish_marks(self, marks: AuditMarks, now: float) -> bool:
        """All records are settled: send the last mark; says whether that is over."""
        if marks.finish(now):
            return True
        # This step has passed both already: the mark may be queued, or its topic be asked for, only now.
        self.metadata_requests.advance(now, _Request.METADATA)
        if self.sequences is None or self.sequences.is_ready:
            self._produce_requests.send_ready(now)
        return False

    def _finish_close(self, now: float) -> None:
        self._state = SenderState.CLOSED
        self.connections.close_all("the producer is closing", now)
        self._check_flushes()

    def _check_flushes(self) -> None:
        if not self._flushes:
            return
        oldest = self.accumulator.oldest_incomplete_id
        while self._flushes and self._flushes[0][0] <= oldest:
            self._flushes.popleft()[1]()

    # -- answers ---

    def _handle_answer(self, connection_id: int, completed: Completed, now: float) -> bool:
        """Take an answer in; says whether it was what is expected: every batch acknowledged."""
        response = completed.response
        self._metrics.throttled(response.throttle, now)
        if isinstance(response, ProduceResponse):
            batches = _batches_of(completed.request.context)
            return self._completion.answered(batches, response, lambda: self._peer_of(connection_id), now)
        if isinstance(response, MetadataResponse):
            self.metadata_requests.answered(response, now)
        elif isinstance(response, InitProducerIdResponse):
            assert self._producer_id_requests is not None
            self._producer_id_requests.answered(response, now)
        elif isinstance(response, GetTelemetrySubscriptionsResponse):
            assert self.telemetry is not None
            self.telemetry.subscribed(response, now)
        elif isinstance(response, PushTelemetryResponse):
            assert self.telemetry is not None
            self.telemetry.pushed(response, now)
        else:
            raise TypeError(f"no request of ours is answered by {type(response).__name__}")
        return False

    def _peer_of(self, connection_id: int) -> str:
        connection = self.connections.connection_by_id(connection_id)
        return "the broker" if connection is None else connection.peer

    def connection_errors(self) -> dict[str, str]:
        """Address -> what went wrong there last, for every broker that is known and cannot be reached."""
        errors: dict[str, str] = {}
        for broker in self.metadata.brokers:
            error = self.connections.last_error(broker.node_id)
            if error is not None:
                errors[f"{broker.host}:{broker.port}"] = error
        return errors


def _batches_of(context: object) -> Sequence[ProducerBatch]:
    assert isinstance(context, list)
    return context
