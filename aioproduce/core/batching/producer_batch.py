"""One batch of records on its way to one partition, from the first append to its outcome.

Called by the RecordAccumulator (appends, queueing), BatchCompression, Sequences and the Sender (outcome).

Invariants:

1. A batch is in exactly one `BatchState`; `BATCH_STATES` is the table of transitions.
2. Its memory is released when it enters DONE and not before: no bytes of a batch that is COMPRESSING, IN_FLIGHT or
   ABANDONED are reused or rewritten, even if its futures have failed (KAFKA-19012).
3. Its futures are settled once: on the way to ABANDONED or DONE, whichever comes first.
4. `possibly_written` never changes back to False: once an answer was lost, a later definite error proves nothing.
5. The deadline counts from the creation of the batch: retries and splits do not prolong it.
"""

from __future__ import annotations

from enum import Enum, auto
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, final

from aioproduce._native.delivery import BatchResult, make_delivery
from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, RecordBatchBuffer, record_size_upper_bound
from aioproduce.core.state_table import StateTable

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.compression import Codec
    from aioproduce.core.batching.record_audit import RecordAudit
    from aioproduce.core.effects import Buffer
    from aioproduce.records import Header, TopicPartition

NO_SEQUENCE: Final = -1


class Lease(Protocol):
    """Memory that a batch holds; released once."""

    def release(self) -> None:
        """Release the memory."""


class ProducerIdAndEpoch(NamedTuple):
    """The writer in the idempotent protocol (KIP-98): a producer id and its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID: Final = ProducerIdAndEpoch(-1, -1)


class BatchState(Enum):
    """The state of a batch."""

    if not TYPE_CHECKING:
        # Enum's own hash is a call of Python code, and every transition looks its state up. Type checkers keep
        # Enum's.
        __hash__ = object.__hash__

    QUEUED = auto()
    """In its partition's queue: open for appends, waiting to be sent, or backing off before a retry."""
    COMPRESSING = auto()
    """In its partition's queue, and another thread reads its bytes."""
    IN_FLIGHT = auto()
    """Passed to a connection; no answer yet."""
    ABANDONED = auto()
    """Its futures have failed, but its bytes may still be on the wire, or be read by another thread."""
    DONE = auto()
    """Settled, and its memory released."""


_Event: TypeAlias = Literal[
    "compression begun", "compression over", "sent", "retried", "answered", "given up", "split", "bytes free"
]

BATCH_STATES: Final[StateTable[BatchState, _Event]] = StateTable(
    "the batch",
    {
        BatchState.QUEUED: {
            "compression begun": BatchState.COMPRESSING,
            "sent": BatchState.IN_FLIGHT,
            "given up": BatchState.DONE,
        },
        BatchState.COMPRESSING: {"compression over": BatchState.QUEUED, "given up": BatchState.ABANDONED},
        BatchState.IN_FLIGHT: {
            "retried": BatchState.QUEUED,
            "answered": BatchState.DONE,
            "split": BatchState.DONE,
            "given up": BatchState.ABANDONED,
        },
        BatchState.ABANDONED: {"bytes free": BatchState.DONE},
        BatchState.DONE: {},
    },
)


_QUEUED: Final = BatchState.QUEUED  # an attribute of an Enum costs a call
_AFTER: Final = BATCH_STATES.moves
"""The same table: each batch looks it up several times, without a call."""


@final
class _SharedLease:
    """The lease of a batch that was split, released when the last part is done."""

    __slots__ = ("_holders", "_lease")

    def __init__(self, lease: Lease, holders: int) -> None:
        self._lease = lease
        self._holders = holders

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._lease.release()


@cython.freelist(16384)
@cython.cclass
class ProducerBatch:
    """Records for one partition, their memory, and the result that their futures share.

    Attributes:
        topic_partition: Its destination; `topic` and `partition` are the parts of it.
        batch_id: Ascending in the order of creation; parts of a split batch keep the original's id.
        created_at: When it was opened.
        closed_at: When it was full, or its linger ends; later only if that is not known.
        first_sent_at: When it was first passed to a connection; infinity before.
        first_failed_at: When an attempt first failed; infinity before.
        deadline: When its futures fail at the latest (`delivery.timeout.ms` after `created_at`).
        attempts: How many times it was passed to a connection.
        retry_at: The earliest instant of the next attempt.
        sent_leader_epoch: The leader epoch known when it was last sent; a newer one ends its back-off (KIP-951).
        last_error: The error of the latest failed attempt, in words.
        last_code: Kafka's code of that error.
        topic_id: The topic's id when it was last sent, for Produce v13 (KIP-516).
        buffers: The bytes to send, once sealed.
        size: Bytes of `buffers`, once sealed; `records.size` is the size written so far.
        sequence_has_been_reset: Whether its sequence was rewritten since it was last sent.
        ahead: The batch in front of it in its partition's queue; `BatchQueue` sets it.
        behind: The batch behind it there; `BatchQueue` sets it.
        audit: Numbers its records and accepts its outcome; `None` if its records are not numbered.
    """

    __slots__ = (
        "_codec_id",
        "_compressed",
        "_lease",
        "_origin",
        "_sealed_for",
        "_sealed_sequence",
        "ahead",
        "attempts",
        "audit",
        "base_sequence",
        "batch_id",
        "behind",
        "buffers",
        "closed_at",
        "created_at",
        "deadline",
        "first_failed_at",
        "first_sent_at",
        "is_open",
        "last_code",
        "last_error",
        "partition",
        "possibly_written",
        "producer",
        "records",
        "result",
        "retry_at",
        "sent_leader_epoch",
        "sequence_has_been_reset",
        "size",
        "state",
        "topic",
        "topic_id",
        "topic_partition",
    )

    closed_at: float
    first_failed_at: float
    first_sent_at: float
    partition: int
    topic: str

    def __init__(
        self,
        topic_partition: TopicPartition,
        lease: Lease,
        buffer: bytearray,
        runtime: DeliveryRuntime,
        *,
        batch_id: int,
        created_at: float,
        deadline: float,
    ) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.topic, self.partition = topic_partition
        self.records: RecordBatchBuffer = RecordBatchBuffer(buffer)
        self.result: BatchResult = BatchResult(self.topic, self.partition, runtime)
        self.batch_id: int = batch_id
        self.created_at: float = created_at
        self.deadline: float = deadline
        self.closed_at = self.first_sent_at = self.first_failed_at = inf
        self.state: BatchState = _QUEUED
        self.is_open: bool = True
        # Not `self`: with a cycle, only the garbage collector could free batches, and it pauses the loop.
        self._origin: ProducerBatch | None = None
        self.attempts: int = 0
        self.retry_at: float = 0.0
        self.sent_leader_epoch: int = -1
        self.possibly_written: bool = False
        self.last_error: str | None = None
        self.last_code: int | None = None
        self.producer: ProducerIdAndEpoch = NO_PRODUCER_ID
        self.base_sequence: int = NO_SEQUENCE
        self.sequence_has_been_reset: bool = False
        self.audit: RecordAudit | None = None
        self.ahead: ProducerBatch | None = None
        self.behind: ProducerBatch | None = None
        self.topic_id: uuid.UUID | None = None
        self.buffers: Sequence[Buffer] = ()
        self.size: int = RECORD_BATCH_OVERHEAD
        self._lease = lease
        self._codec_id = 0
        self._compressed: bytes | None = None
        # Whose sequence the sealed bytes have; `None` before they are sealed.
        self._sealed_for: ProducerIdAndEpoch | None = None
        self._sealed_sequence = NO_SEQUENCE

    @property
    def origin(self) -> ProducerBatch:
        """The batch that was split into this one and others; this one if it is no part."""
        return self if self._origin is None else self._origin

    @property
    def record_count(self) -> int:
        """How many records it holds."""
        return self.records.record_count

    @property
    def has_sequence(self) -> bool:
        """Whether it has a sequence number of the idempotent protocol."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def is_compressed(self) -> bool:
        """Whether it is compressed; that happens once in its life."""
        return self._compressed is not None

    @property
    def is_in_queue(self) -> bool:
        """Whether it is in its partition's queue."""
        return self.state is BatchState.QUEUED or self.state is BatchState.COMPRESSING

    @property
    def is_settled(self) -> bool:
        """Whether its futures have their outcome."""
        return self.state is BatchState.ABANDONED or self.state is BatchState.DONE

    def try_append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
    ) -> DeliveryFuture | None:
        """Append one record.

        Returns:
            The record's future, or `None` if the batch is closed for appends or has no room.
        """
        if not self.is_open:
            return None
        if self.audit is None:
            index = self.records.try_append(timestamp, key, value, headers)
        else:
            index = self.audit.numbers.append(self.records, timestamp, key, value, headers)
        if index < 0:
            return None
        return make_delivery(
            self.result,
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def close_for_appends(self) -> None:
        """Accept no more records."""
        self.is_open = False

    def set_sequence(self, producer: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Set its producer id, epoch and sequence of the idempotent protocol.

        A batch on the wire keeps its bytes; the next attempt seals it again. If the broker acknowledges the old
        bytes, the new sequence stays unused (`Sequences.batch_succeeded()`).
        """
        self.sequence_has_been_reset = self.has_sequence
        self.producer = producer
        self.base_sequence = base_sequence

    def compress(self, codec: Codec) -> None:
        """Compress its records in this thread."""
        self.begin_compression()
        try:
            compressed = codec.compress(self.records.records_view())
        except BaseException:
            self.cancel_compression()
            raise
        self.end_compression(compressed, codec.id)

    def begin_compression(self) -> memoryview:
        """Close it, and return its records for compression, maybe in another thread."""
        self._move("compression begun")
        self.is_open = False
        return self.records.records_view()

    def end_compression(self, compressed: bytes, codec_id: int) -> None:
        """Set the compressed records; no thread reads the original records any more."""
        self._move("compression over")
        self._compressed = compressed
        self._codec_id = codec_id

    def cancel_compression(self) -> None:
        """End the compression without a result; no thread reads the records any more."""
        self._move("compression over")

    def begin_attempt(self, is_transactional: bool = False) -> None:
        """Seal it for the wire, compressed or not, and mark it in flight."""
        self._move("sent")
        self.is_open = False
        if self._sealed_for is not self.producer or self._sealed_sequence != self.base_sequence:
            self.buffers, self.size = self.records.seal(
                self.producer.producer_id,
                self.producer.epoch,
                self.base_sequence,
                self._codec_id,
                self._compressed,
                is_transactional,
            )
            self._sealed_for = self.producer
            self._sealed_sequence = self.base_sequence
        self.attempts += 1
        self.sequence_has_been_reset = False

    def requeue(self, retry_at: float) -> None:
        """Move it back to the queue after a retriable error."""
        self._move("retried")
        self.retry_at = retry_at

    def succeed(self, base_offset: int, log_append_time: int, log_start_offset: int = -1) -> None:
        """Settle the futures of an acknowledged batch and release the memory."""
        self._move("answered")
        try:
            if self.audit is not None:
                self.audit.batch_succeeded(self.topic, self.record_count)
            self.result.succeed(base_offset, log_append_time, log_start_offset)
        finally:
            self._release()

    def fail(self, error: BaseException, record_errors: dict[int, BaseException] | None = None) -> None:
        """Settle the futures with an error. Memory in use is released in `release_abandoned()`, other now."""
        self._move("given up")
        self.is_open = False
        try:
            self._fail(error, record_errors)
        finally:
            if self.state is not BatchState.ABANDONED:
                self._release()

    def answer_failed(
        self, error: BaseException, record_errors: dict[int, BaseException] | None = None
    ) -> None:
        """Settle the futures with the error that the broker answered, and release the memory."""
        self._move("answered")
        try:
            self._fail(error, record_errors)
        finally:
            self._release()

    def _fail(self, error: BaseException, record_errors: dict[int, BaseException] | None) -> None:
        if self.audit is not None:
            self.audit.batch_failed(self.records)
        self.result.fail(error, self.record_count, record_errors)

    def release_abandoned(self) -> None:
        """Release an abandoned batch's memory: it was answered, its connection was lost, or a thread is done."""
        self._move("bytes free")
        self._release()

    def split(self) -> list[ProducerBatch]:
        """Halve a batch that the broker found too large (KIP-126).

        Java splits by `batch.size`, which does not help if the broker's limit is lower; halves always converge.
        The parts are copies. They are charged to the lease of the original, which is released when the last part
        is done. A wait for pool memory would deadlock here: the original holds it.

        Returns:
            The parts in order, without sequences.
        """
        records = list(self.records.iter_records())
        if len(records) < 2:
            raise RuntimeError(f"a batch of {len(records)} records cannot be split")
        sizes = [record_size_upper_bound(key, value, headers) for _, key, value, headers in records]
        cut = _cut_in_half(sizes)
        lease = _SharedLease(self._lease, 2)
        self._move("split")
        parts: list[ProducerBatch] = []
        for start, stop in ((0, cut), (cut, len(records))):
            part = ProducerBatch(
                self.topic_partition,
                lease,
                bytearray(RECORD_BATCH_OVERHEAD + sum(sizes[start:stop])),
                self.result.runtime,
                batch_id=self.batch_id,
                created_at=self.created_at,
                deadline=self.deadline,
            )
            part._origin = self.origin
            part.audit = self.audit
            # The answer was definite and a split is no retry, so the attempt does not count against `retries`.
            part.attempts = self.attempts - 1
            part.closed_at, part.first_sent_at = self.closed_at, self.first_sent_at
            part.first_failed_at = self.first_failed_at
            part.possibly_written = self.possibly_written
            for timestamp, key, value, headers in records[start:stop]:
                if part.records.try_append(timestamp, key, value, headers) < 0:
                    raise RuntimeError("a record did not fit into the part that was sized for it")
            part.close_for_appends()
            parts.append(part)
        self.result.split([(0, parts[0].result), (cut, parts[1].result)])
        self._drop_bytes()
        return parts

    def _move(self, event: _Event) -> None:
        try:
            self.state = _AFTER[self.state][event]
        except KeyError:
            BATCH_STATES.refuse(self.state, event, self.topic_partition)

    def _release(self) -> None:
        self._drop_bytes()
        self._lease.release()

    def _drop_bytes(self) -> None:
        self.buffers = ()
        self._compressed = None
        self.records.release()


def _cut_in_half(sizes: list[int]) -> int:
    """Return the index that cuts the sizes into the most equal halves; at least one size on either side."""
    total = sum(sizes)
    differences = [abs(2 * before - total) for before in accumulate(sizes[:-1])]
    return differences.index(min(differences)) + 1
