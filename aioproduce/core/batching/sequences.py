"""The idempotent protocol: producer id, epoch, and a sequence number for every batch (KIP-98, KIP-360).

Called by the RecordAccumulator (may this batch go, with which sequence) and the Sender (the broker's answers). The
TransactionManager sets the producer id and epochs of a transactional producer.

Invariants:

1. Sequences of one partition ascend without gaps within one producer id and epoch; a new epoch starts at 0.
2. A retried batch keeps its sequence, and only the first of a partition's unanswered batches is retried, so
   the broker can tell a repetition from a new batch.
3. Sequences are rewritten only if it is certain that none of the batches concerned was written: the broker
   reported the gap before them. A batch that fails with others behind it, or whose fate is unknown, makes its
   partition *unresolved* instead: the partition gets no new sequence until every batch in flight was answered.
   (Java rewrites in more cases and can duplicate a batch whose answer was lost.)
4. Until a partition has acknowledged a batch under the producer id and epoch, it has one batch in flight at a
   time. A broker that does not know the producer accepts any sequence (KIP-360), so it could refuse the first
   batch, accept the second, and report the first's repetition as a gap: then 3 would not hold. Within a transaction
   of version 2 brokers accept only sequence 0 as the first (KIP-890), so batches need not wait there. A topic
   that was deleted and made again has acknowledged nothing: it has another id (KIP-516).
5. A partition has at most as many unanswered batches as a broker remembers of a producer (5), over all
   connections: the broker would report the repetition of an older batch as a gap.
6. A partition moves to a new epoch only when nothing of it is in flight under the old one.
7. If the epoch cannot grow any more (32767), the producer gets a new producer id; the rewriting waits for it.
8. Within a transaction nothing is rewritten: where that would be necessary, the transaction can only be aborted.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdAndEpoch
from aioproduce.core.state_table import StateTable
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from uuid import UUID

    from aioproduce.core.batching.produce_transaction import ProduceTransaction
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.records import TopicPartition

MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1
_REMEMBERED_BATCHES: Final = 5
"""Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""


def next_sequence(sequence: int, records: int) -> int:
    """Return the sequence `records` after `sequence`: 0 follows 2^31 - 1."""
    return (sequence + records) & MAX_SEQUENCE


def is_later(sequence: int, other: int) -> bool:
    """Return whether a sequence is later than another, across the wrap-around."""
    return sequence != other and ((sequence - other) & MAX_SEQUENCE) < 2**30


class SequencesState(Enum):
    """The state of the producer id."""

    UNINITIALIZED = auto()
    """There is no producer id, and no request for one."""
    INITIALIZING = auto()
    """InitProducerId is in flight."""
    READY = auto()
    """There is a producer id."""
    FATAL = auto()
    """There will be no producer id; every record fails."""


# An attribute of an Enum costs a call.
_UNINITIALIZED: Final = SequencesState.UNINITIALIZED
_READY: Final = SequencesState.READY

_Event: TypeAlias = Literal["asked", "given", "not given", "refused for good", "epochs used up"]

PRODUCER_ID_STATES: Final[StateTable[SequencesState, _Event]] = StateTable(
    "the producer id",
    {
        SequencesState.UNINITIALIZED: {
            "asked": SequencesState.INITIALIZING,
            "refused for good": SequencesState.FATAL,
        },
        SequencesState.INITIALIZING: {
            "given": SequencesState.READY,
            "not given": SequencesState.UNINITIALIZED,
            "refused for good": SequencesState.FATAL,
        },
        SequencesState.READY: {
            "epochs used up": SequencesState.UNINITIALIZED,
            "refused for good": SequencesState.FATAL,
        },
        SequencesState.FATAL: {},
    },
)


class _PartitionSequences:
    """The protocol's state of one partition.

    Attributes:
        in_flight: Batches that have a sequence and no final answer, in the order of their sequences, including
            those that wait for a retry.
        next: The sequence of the next new batch.
        last_acked: The last acknowledged record's sequence; `NO_SEQUENCE` if none is acknowledged.
        acked_topic_id: The id of the topic that acknowledged it; `None` from brokers older than 2.8.
        unresolved_until: The sequence after a batch whose fate is unknown; `None` if there is no such batch.
    """

    __slots__ = ("acked_topic_id", "in_flight", "last_acked", "next", "producer", "unresolved_until")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER_ID
        self.next = 0
        self.last_acked = NO_SEQUENCE
        self.acked_topic_id: UUID | None = None
        self.in_flight: list[ProducerBatch] = []
        self.unresolved_until: int | None = None

    def start_at_beginning(self, producer: ProducerIdAndEpoch) -> None:
        self.producer = producer
        self.next = 0
        self.last_acked = NO_SEQUENCE
        self.unresolved_until = None
        for batch in self.in_flight:
            batch.set_sequence(producer, self.next)
            self.next = next_sequence(self.next, batch.record_count)

    def has_acked_in(self, topic_id: UUID | None) -> bool:
        if self.last_acked == NO_SEQUENCE:
            return False
        # Comparing two ids costs a call, and the metadata keep an id as long as it is the same.
        return self.acked_topic_id is topic_id or self.acked_topic_id == topic_id

    def has_acked_beyond(self, batch: ProducerBatch) -> bool:
        # A leader that lost the producer's state (an unclean election) accepts any first sequence, so a later batch
        # may be in its log. A new epoch would put this batch behind that one. So this batch is retried until its
        # delivery time-out, as in Java.
        return self.last_acked != NO_SEQUENCE and is_later(self.last_acked, batch.base_sequence)

    def follows_acked(self, sequence: int) -> bool:
        if self.last_acked == NO_SEQUENCE:
            return sequence == 0
        return sequence == next_sequence(self.last_acked, 1)


class Sequences:
    """The sequences of all partitions, and the meaning of the broker's answers for them.

    Attributes:
        transaction: The open transaction of a transactional producer, which sets it; `None` otherwise.
    """

    __slots__ = (
        "_partitions",
        "_producer",
        "_state",
        "_to_rewrite",
        "_unresolved",
        "transaction",
    )

    def __init__(self) -> None:
        self._state = SequencesState.UNINITIALIZED
        self._producer = NO_PRODUCER_ID
        self._partitions: dict[TopicPartition, _PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, None] = {}
        self._to_rewrite: dict[TopicPartition, None] = {}
        self.transaction: ProduceTransaction | None = None

    # -- producer id ---

    @property
    def state(self) -> SequencesState:
        """The state of the producer id."""
        return self._state

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch for new batches."""
        return self._producer

    @property
    def needs_producer_id(self) -> bool:
        """Whether InitProducerId should be sent."""
        return self._state is _UNINITIALIZED

    @property
    def is_ready(self) -> bool:
        """Whether batches can be sent."""
        return self._state is _READY

    @property
    def is_at_rest(self) -> bool:
        """Whether there is a producer id, and nothing for `settle_sequences()` to do."""
        return self.is_ready and not self._unresolved and not self._to_rewrite

    def init_begun(self) -> None:
        """Note that InitProducerId was sent."""
        self._move("asked")

    def init_succeeded(self, producer_id: int, epoch: int) -> None:
        """Accept the producer id that the broker gave."""
        self._move("given")
        self._producer = ProducerIdAndEpoch(producer_id, epoch)
        self._rewrite()

    def init_failed(self, *, is_fatal: bool) -> None:
        """Note that the broker gave no producer id, for now or for good."""
        self._move("refused for good" if is_fatal else "not given")

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Start every partition at 0: a transaction has ended, or there is a producer id for the first one."""
        if self._state is not SequencesState.READY:
            self._move("given")
        self._producer = producer
        self._partitions.clear()
        self._unresolved.clear()
        self._to_rewrite.clear()

    def lose_id(self) -> None:
        """Drop a producer id that is unusable, or has an unusable epoch: nothing is sent until there is another."""
        self._move("epochs used up")

    @property
    def wants_new_epoch(self) -> bool:
        """Whether sequences need a rewrite: a transaction with such a gap can only be aborted."""
        return bool(self._to_rewrite)

    def _move(self, event: _Event) -> None:
        self._state = PRODUCER_ID_STATES.after(self._state, event)

    # -- sending ---

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether this batch, the first of its partition's queue, may be sent now.

        Its `topic_id` is that of the topic that it would go to.
        """
        if self._state is not _READY:
            return False
        transaction = self.transaction
        if transaction is not None and not transaction.admits(batch.topic_partition):
            return False
        partition = self._partition(batch.topic_partition)
        if batch.has_sequence:
            return partition.in_flight[0] is batch
        if partition.in_flight:
            if partition.producer != self._producer:
                return False
            if not partition.has_acked_in(batch.topic_id) and not (
                transaction is not None and transaction.has_checked_beginnings
            ):
                return False
        return partition.unresolved_until is None and len(partition.in_flight) < _REMEMBERED_BATCHES

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Give a batch the next sequence of its partition, unless it has one."""
        if batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        if partition.producer != self._producer:
            if partition.in_flight:
                raise RuntimeError("a partition changes its epoch only when nothing of it is in flight")
            partition.start_at_beginning(self._producer)
        batch.set_sequence(self._producer, partition.next)
        partition.next = next_sequence(partition.next, batch.record_count)
        partition.in_flight.append(batch)

    def is_before(self, batch: ProducerBatch, other: ProducerBatch) -> bool:
        """Return whether a batch comes before another of its partition; both have sequences."""
        in_flight = self._partition(batch.topic_partition).in_flight
        return in_flight.index(batch) < in_flight.index(other)

    def replace_by_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which get its place and its sequences."""
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        sequence = batch.base_sequence
        for part in parts:
            part.set_sequence(batch.producer, sequence)
            sequence = next_sequence(sequence, part.record_count)
        place = partition.in_flight.index(batch)
        partition.in_flight[place : place + 1] = parts

    # -- answers ---

    def batch_succeeded(self, batch: ProducerBatch) -> None:
        """Note that the broker has a batch. If it was abandoned, the late answer still counts in its own epoch."""
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        self._remove(partition, batch)
        if batch.producer != partition.producer:
            return  # its epoch is over: its sequences mean nothing any more
        if batch.sequence_has_been_reset:
            # It was written under its old sequence, and the rewritten sequence stays unused: a gap.
            self._request_rewrite(batch.topic_partition)
            return
        last = next_sequence(batch.base_sequence, batch.record_count - 1)
        if partition.last_acked == NO_SEQUENCE or is_later(last, partition.last_acked):
            partition.last_acked = last
            partition.acked_topic_id = batch.topic_id

    def batch_failed(self, batch: ProducerBatch) -> None:
        """Note that a batch failed: by an error, by its time-out, or because its retries are used up."""
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        self._remove(partition, batch)
        if self._state is SequencesState.FATAL or batch.producer != partition.producer:
            return
        if batch.possibly_written or partition.in_flight:
            after = next_sequence(batch.base_sequence, batch.record_count)
            if partition.unresolved_until is None or is_later(after, partition.unresolved_until):
                partition.unresolved_until = after
            self._unresolved[batch.topic_partition] = None
        else:
            # It is not in the log, and there is no batch behind it: a new epoch closes the gap.
            self._request_rewrite(batch.topic_partition)

    def may_retry(self, batch: ProducerBatch, code: int, log_start_offset: int) -> bool:
        """Return whether an error calls for another attempt; request an epoch bump if the attempt needs one."""
        partition = self._partition(batch.topic_partition)
        # If it is not the first, batches before it may be in the log: it is decided when it has become the first.
        is_first = bool(partition.in_flight) and partition.in_flight[0] is batch
        if code == codes.UNKNOWN_PRODUCER_ID:
            # The broker forgot this producer. It is safe to start again, unless that was arranged already, or the
            # start of the log is unknown (-1), which the next answer will contain.
            if is_first and log_start_offset != -1 and not batch.sequence_has_been_reset:
                self._request_rewrite(batch.topic_partition)
            return True
        if code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # If the first one were in the log, the broker would recognise the repetition (invariant 5). As it is
            # not, no batch behind it is. Batches before it have failed, or are lost.
            if is_first and not batch.sequence_has_been_reset and not partition.has_acked_beyond(batch):
                self._request_rewrite(batch.topic_partition)
            # Otherwise a batch before it is being retried, or its sequence was rewritten meanwhile.
            return True
        return codes.is_retriable(code)

    def _remove(self, partition: _PartitionSequences, batch: ProducerBatch) -> None:
        # An abandoned batch with a late answer was removed before.
        if batch in partition.in_flight:
            partition.in_flight.remove(batch)

    # -- epochs ---

    def _request_rewrite(self, topic_partition: TopicPartition) -> None:
        self._to_rewrite[topic_partition] = None

    def settle_sequences(self) -> list[TopicPartition]:
        """Resolve the unresolved partitions if possible, and bump the epoch if a rewrite was requested.

        Returns:
            The partitions that may have become sendable.
        """
        changed: list[TopicPartition] = []
        if not self._unresolved and not self._to_rewrite:
            return changed
        for topic_partition in list(self._unresolved):
            partition = self._partition(topic_partition)
            if partition.unresolved_until is None:
                del self._unresolved[topic_partition]
            elif not partition.in_flight:
                # If later batches succeeded, the batch of unknown fate did, too; if not, start again.
                if partition.follows_acked(partition.next):
                    partition.unresolved_until = None
                else:
                    self._request_rewrite(topic_partition)
                del self._unresolved[topic_partition]
                changed.append(topic_partition)
        if self._to_rewrite and self._state is SequencesState.READY and self.transaction is None:
            changed.extend(self._to_rewrite)
            if self._producer.epoch >= MAX_EPOCH:
                self._producer = NO_PRODUCER_ID
                self._move("epochs used up")
            else:
                self._producer = ProducerIdAndEpoch(self._producer.producer_id, self._producer.epoch + 1)
                self._rewrite()
        return changed

    def _rewrite(self) -> None:
        for topic_partition in self._to_rewrite:
            self._partition(topic_partition).start_at_beginning(self._producer)
        self._to_rewrite.clear()

    def _partition(self, topic_partition: TopicPartition) -> _PartitionSequences:
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = self._partitions[topic_partition] = _PartitionSequences()
        return partition
