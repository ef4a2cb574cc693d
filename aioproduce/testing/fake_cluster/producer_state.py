"""Idempotence per partition: which sequence a producer may send next.

Called by `log` on every append with a producer id. It follows `ProducerStateManager`, `ProducerStateEntry`
and `ProducerAppendInfo` of Apache Kafka 4.3 (their behaviour was read from the published jar), for producers
without transactions.

Invariants:
1. Per producer id the last `WINDOW` batches are remembered. A batch with the epoch, first and last sequence
   of one of them is a duplicate: it is acknowledged with the original offset and not appended again.
2. DUPLICATE_SEQUENCE_NUMBER is never answered: brokers since Kafka 2.x call a batch that is older than the
   window, or that overlaps it in part, OUT_OF_ORDER_SEQUENCE_NUMBER like any other gap.
3. An older epoch is INVALID_PRODUCER_EPOCH. A newer one must start at sequence 0, and forgets the window.
4. A producer that this partition does not know (never seen, expired, or lost in a truncation) may start at
   any sequence (KIP-360): UNKNOWN_PRODUCER_ID is never answered.
5. The sequence after 2^31-1 is 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.failures import SequenceError
from aioproduce.testing.fake_cluster.record_batch import MAX_SEQUENCE

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.record_batch import BatchHeader

# Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN, and the reason why max.in.flight may not exceed it.
WINDOW: Final = 5


class AppendedBatch(NamedTuple):
    """A batch in the window of its producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@final
@dataclass(slots=True)
class ProducerEntry:
    """What one partition knows about one producer."""

    epoch: int
    batches: deque[AppendedBatch]

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended with this epoch."""
        return self.batches[-1].last_sequence


@final
class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known about `producer_id`."""
        return self._entries.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch of the window that `header` repeats, if it does."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in entry.batches if batch[:2] == wanted), None)

    def check(self, header: BatchHeader) -> None:
        """Raise `SequenceError` unless `header`, which is no duplicate, may be appended now."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        described = (
            f"producer {header.producer_id}, epoch {header.producer_epoch}, seq {header.base_sequence}"
        )
        if header.producer_epoch < entry.epoch:
            raise SequenceError(
                ErrorCode.invalid_producer_epoch, f"{described}: the last seen epoch is {entry.epoch}"
            )
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise SequenceError(
                    ErrorCode.out_of_order_sequence_number, f"{described}: a new epoch must start at 0"
                )
            return
        expected = (entry.last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise SequenceError(ErrorCode.out_of_order_sequence_number, f"{described}: expected {expected}")

    def append(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that was appended at `base_offset`."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = ProducerEntry(header.producer_epoch, deque(maxlen=WINDOW))
            self._entries[header.producer_id] = entry
        entry.batches.append(
            AppendedBatch(header.base_sequence, header.last_sequence, base_offset, header.max_timestamp)
        )

    def expire(self, producer_id: int, oldest_ms: int) -> None:
        """Forget a producer whose last batch is older than this. Kafka looks every ten minutes only."""
        entry = self._entries.get(producer_id)
        if entry is not None and entry.batches[-1].timestamp < oldest_ms:
            del self._entries[producer_id]

    def forget(self, producer_id: int | None = None) -> None:
        """Forget one producer, or all, as `producer.id.expiration.ms` does (retention does not, in Kafka 4)."""
        if producer_id is None:
            self._entries.clear()
        else:
            self._entries.pop(producer_id, None)
