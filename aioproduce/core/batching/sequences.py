"""The idempotent protocol: producer id, epoch, and a sequence number for every batch (KIP-98, KIP-360).

Called by the RecordAccumulator (may this batch go, with which sequence) and the Sender (what the broker said). The
producer id and epochs of a transactional producer come from its TransactionManager.

Invariants:

1. Sequences of one partition ascend without gaps within one producer id and epoch; a new epoch starts at 0.
2. A retried batch keeps its sequence, and only the first of a partition's unanswered batches is retried, so
   the broker can tell a repetition from a new batch.
3. Sequences are rewritten only where it is certain that none of the batches concerned was written: the broker
   reported the gap before them. A batch that is given up with others behind it, or whose fate is unknown,
   makes its partition *unresolved* instead: no new sequence is given out there until every batch in flight
   was answered. (Java rewrites in more cases and can duplicate a batch whose answer was lost.)
4. Until a partition has acknowledged a batch under the producer id and epoch, one batch of it is on its way at
   a time. A broker that does not know the producer takes any sequence (KIP-360), so it could refuse the first
   batch, take the second, and call the first's repetition a gap: then 3 would not hold. Within a transaction of
   version 2 brokers accept sequence 0 alone as the first (KIP-890), so batches need not wait there.
5. No more batches of a partition are unanswered than a broker remembers of a producer (5), over whatever
   connections they went: the repetition of an older one would be called a gap.
6. A partition moves to a new epoch only when nothing of it is in flight under the old one.
7. An epoch that cannot grow any more (32767) is exchanged for a new producer id; the rewriting waits for that id.
8. Within a transaction nothing is rewritten: where it would be, the transaction can only be aborted.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdAndEpoch
from aioproduce.core.state_table import StateTable
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from aioproduce.core.batching.produce_transaction import ProduceTransaction
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.records import TopicPartition

MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1
_REMEMBERED_BATCHES: Final = 5
"""Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""


def next_sequence(sequence: int, records: int) -> int:
    """The sequence `records` after `sequence`: 0 follows 2^31 - 1."""
    return (sequence + records) & MAX_SEQUENCE


def is_later(sequence: int, other: int) -> bool:
    """Whether a sequence lies ahead of another, across the wrap-around."""
    return sequence != other and ((sequence - other) & MAX_SEQUENCE) < 2**30


class SequencesState(Enum):
    """What is known of the producer id."""

    UNINITIALIZED = auto()
    """None, and none is asked for."""
    INITIALIZING = auto()
    """InitProducerId is on its way."""
    READY = auto()
    """There is one."""
    FATAL = auto()
    """There will be none; every record fails."""


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


@final
class _PartitionSequences:
    """The protocol's state of one partition.

    Attributes:
        in_flight: Batches that have a sequence and no final answer, in the order of their sequences; those
            that wait for a retry are among them.
        next: The sequence of the next new batch.
        last_acked: The last acknowledged record's sequence; `NO_SEQUENCE` when none.
        unresolved_until: The sequence after a batch whose fate is unknown; `None` when there is none.
    """

    __slots__ = ("in_flight", "last_acked", "next", "producer", "unresolved_until")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER_ID
        self.next = 0
        self.last_acked = NO_SEQUENCE
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

    def has_acked_beyond(self, batch: ProducerBatch) -> bool:
        # A leader that lost the producer's state (an unclean election) takes any first sequence, so a later batch
        # may be in its log. A new epoch would put this batch behind that one. So this batch is retried until its
        # delivery time-out, as in Java.
        return self.last_acked != NO_SEQUENCE and is_later(self.last_acked, batch.base_sequence)

    def follows_acked(self, sequence: int) -> bool:
        if self.last_acked == NO_SEQUENCE:
            return sequence == 0
        return sequence == next_sequence(self.last_acked, 1)


@final
class Sequences:
    """Gives sequences out and decides what the broker's answers mean for them.

    Attributes:
        transaction: The open one of a transactional producer, which sets it; `None` for others.
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
        """What is known of the producer id."""
        return self._state

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch for new batches."""
        return self._producer

    @property
    def needs_producer_id(self) -> bool:
        """Whether InitProducerId should be sent."""
        return self._state is SequencesState.UNINITIALIZED

    @property
    def is_ready(self) -> bool:
        """Whether batches can be sent."""
        return self._state is SequencesState.READY

    @property
    def is_at_rest(self) -> bool:
        """Whether there is a producer id, and nothing for `settle_sequences()` to look at."""
        return self.is_ready and not self._unresolved and not self._to_rewrite

    def init_begun(self) -> None:
        """InitProducerId was sent."""
        self._move("asked")

    def init_succeeded(self, producer_id: int, epoch: int) -> None:
        """The broker gave a producer id."""
        self._move("given")
        self._producer = ProducerIdAndEpoch(producer_id, epoch)
        self._rewrite()

    def init_failed(self, *, is_fatal: bool) -> None:
        """The broker gave none, for now or for good."""
        self._move("refused for good" if is_fatal else "not given")

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """A transaction has ended, or there is a producer id for the first one: every partition begins at 0."""
        if self._state is not SequencesState.READY:
            self._move("given")
        self._producer = producer
        self._partitions.clear()
        self._unresolved.clear()
        self._to_rewrite.clear()

    def lose_id(self) -> None:
        """The producer id, or its epoch, is of no use any more: nothing is sent before there is another."""
        self._move("epochs used up")

    @property
    def wants_new_epoch(self) -> bool:
        """Whether sequences would have to be rewritten: a transaction with such a gap can only be aborted."""
        return bool(self._to_rewrite)

    def _move(self, event: _Event) -> None:
        self._state = PRODUCER_ID_STATES.after(self._state, event)

    # -- sending ---

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the first of its partition's queue, may be sent now."""
        if self._state is not SequencesState.READY:
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
            if partition.last_acked == NO_SEQUENCE and not (
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
        """Whether a batch comes before another of its partition; both have sequences."""
        in_flight = self._partition(batch.topic_partition).in_flight
        return in_flight.index(batch) < in_flight.index(other)

    def replace_by_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split: its parts take its place and its sequences."""
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
        """The broker has the batch, which may be abandoned: a late acknowledgement counts in its own epoch."""
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        self._remove(partition, batch)
        if batch.producer != partition.producer:
            return  # of an epoch that is over: its sequences mean nothing any more
        if batch.sequence_has_been_reset:
            # Written under the sequence that it was sent with, while the rewritten one stays unused: a gap.
            self._request_rewrite(batch.topic_partition)
            return
        last = next_sequence(batch.base_sequence, batch.record_count - 1)
        if partition.last_acked == NO_SEQUENCE or is_later(last, partition.last_acked):
            partition.last_acked = last

    def batch_failed(self, batch: ProducerBatch) -> None:
        """The batch is given up: by its error, its time-out, or because its retries are used up."""
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
        """Whether an error calls for another attempt; requests an epoch bump where that needs one."""
        partition = self._partition(batch.topic_partition)
        # Of a batch further behind, what lies before it may be in the log: it is asked again when it is the first.
        is_first = bool(partition.in_flight) and partition.in_flight[0] is batch
        if code == codes.UNKNOWN_PRODUCER_ID:
            # The broker forgot this producer. It is safe to start anew unless that was already arranged, or
            # it is not sure where its log begins (-1) and the next answer will tell.
            if is_first and log_start_offset != -1 and not batch.sequence_has_been_reset:
                self._request_rewrite(batch.topic_partition)
            return True
        if code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Were the first one in the log, the broker would know it for a repetition (invariant 5); without it
            # there is none behind it. What lies before it was given up, or is lost.
            if is_first and not batch.sequence_has_been_reset and not partition.has_acked_beyond(batch):
                self._request_rewrite(batch.topic_partition)
            # Otherwise one before it is being retried, or its sequence was rewritten meanwhile.
            return True
        return codes.is_retriable(code)

    def _remove(self, partition: _PartitionSequences, batch: ProducerBatch) -> None:
        # An abandoned batch that is answered late was removed before.
        if batch in partition.in_flight:
            partition.in_flight.remove(batch)

    # -- epochs ---

    def _request_rewrite(self, topic_partition: TopicPartition) -> None:
        self._to_rewrite[topic_partition] = None

    def settle_sequences(self) -> list[TopicPartition]:
        """Resolve what can be resolved and bump the epoch where that is called for.

        Returns:
            The partitions that may have become sendable.
        """
        changed: list[TopicPartition] = []
        for topic_partition in list(self._unresolved):
            partition = self._partition(topic_partition)
            if partition.unresolved_until is None:
                del self._unresolved[topic_partition]
            elif not partition.in_flight:
                # If later batches succeeded, so did the one of unknown fate; if not, start anew.
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
