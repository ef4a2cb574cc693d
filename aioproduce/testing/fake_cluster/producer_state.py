"""Idempotence per partition: which sequence number a producer may send next.

Used by `log` on every append with a producer id. It follows `ProducerStateManager`, `ProducerStateEntry` and
`ProducerAppendInfo` of Apache Kafka 4.3 (their behaviour was read from the published jar).

Invariants:
1. For each producer id the last `WINDOW` batches are kept. A batch with the epoch, first and last sequence of one
   of them is a duplicate: it is acknowledged with the original offset and not appended again.
2. DUPLICATE_SEQUENCE_NUMBER is never answered: brokers since Kafka 2.x answer OUT_OF_ORDER_SEQUENCE_NUMBER for a
   batch that is older than the window or overlaps it partly, like for any other gap.
3. An older epoch is INVALID_PRODUCER_EPOCH. A newer one must start at sequence 0, and clears the window.
4. A producer that is unknown to this partition (never seen, expired, or lost in a truncation) may start at any
   sequence (KIP-360): UNKNOWN_PRODUCER_ID is never answered. In a transaction of version 2 it starts at 0.
5. The sequence after 2^31-1 is 0.
6. A marker with a newer epoch clears the window, and one with the same epoch keeps it. From `transaction.version` 2
   on a marker has a newer epoch, unless it repeats one that was written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.failures import SequenceError
from aioproduce.testing.fake_cluster.record_batch import MAX_SEQUENCE
from aioproduce.testing.fake_cluster.transaction_states import EPOCH_BUMP, MAX_EPOCH

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.control_batch import Marker
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
    """One partition's knowledge of one producer.

    Attributes:
        timestamp: The time of its last batch or marker, in milliseconds since the epoch.
        coordinator_epoch: The epoch in its last marker; -1 without one.
        is_open: Whether it has an open transaction here.
    """

    epoch: int
    timestamp: int = -1
    coordinator_epoch: int = -1
    is_open: bool = False
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended with this epoch; -1 if none was."""
        return self.batches[-1].last_sequence if self.batches else -1


@final
@dataclass(slots=True)
class _Verification:
    """Records that the coordinator was asked about a producer's transaction; kept until the next append."""

    epoch: int
    lowest_sequence: int
    is_bumping: bool


@final
class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_entries", "_verifications")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._verifications: dict[int, _Verification] = {}

    @property
    def entries(self) -> dict[int, ProducerEntry]:
        """All entries, by producer id."""
        return self._entries

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of `producer_id`."""
        return self._entries.get(producer_id)

    def needs_verification(self, producer_id: int, epoch: int, sequence: int, version: int) -> bool:
        """Return whether the coordinator has to be asked before a transactional batch is appended (KIP-890).

        Raises:
            SequenceError: INVALID_PRODUCER_EPOCH, if the epoch is an older one.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise SequenceError(
                ErrorCode.invalid_producer_epoch,
                f"Epoch of producer {producer_id} is {epoch}: the last seen epoch is {entry.epoch}",
            )
        if entry is not None and entry.is_open and entry.epoch == epoch:
            return False
        verification = self._verifications.setdefault(
            producer_id, _Verification(epoch, sequence, version >= EPOCH_BUMP)
        )
        if epoch > verification.epoch or (
            epoch == verification.epoch and sequence < verification.lowest_sequence
        ):
            verification.epoch, verification.lowest_sequence = epoch, sequence
        return True

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the batch of the window that `header` repeats, if any."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in entry.batches if batch[:2] == wanted), None)

    def check(self, header: BatchHeader) -> None:
        """Raise `SequenceError` unless `header`, which is not a duplicate, may be appended now."""
        entry = self._entries.get(header.producer_id)
        described = (
            f"producer {header.producer_id}, epoch {header.producer_epoch}, seq {header.base_sequence}"
        )
        if entry is not None and header.producer_epoch < entry.epoch:
            raise SequenceError(
                ErrorCode.invalid_producer_epoch, f"{described}: the last seen epoch is {entry.epoch}"
            )
        verification = self._verifications.get(header.producer_id)
        if verification is not None:
            is_unknown = entry is None or not entry.batches
            if header.base_sequence > (
                0 if verification.is_bumping and is_unknown else verification.lowest_sequence
            ):
                raise SequenceError(
                    ErrorCode.out_of_order_sequence_number, f"{described}: an earlier one was not appended"
                )
        if entry is None:
            return
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise SequenceError(
                    ErrorCode.out_of_order_sequence_number, f"{described}: a new epoch must start at 0"
                )
            return
        expected = (entry.last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise SequenceError(ErrorCode.out_of_order_sequence_number, f"{described}: expected {expected}")
        if entry.is_open and not header.is_transactional:
            raise SequenceError(ErrorCode.invalid_txn_state, f"{described}: a transaction is open")

    def check_marker(self, marker: Marker) -> None:
        """Check that a marker may be appended now.

        Raises:
            SequenceError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED, if it may not.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        is_repeated = marker.epoch == entry.epoch and (not entry.is_open or marker.epoch > MAX_EPOCH)
        is_old = marker.epoch < entry.epoch
        if is_old or (marker.version >= EPOCH_BUMP and marker.epoch == entry.epoch and not is_repeated):
            raise SequenceError(
                ErrorCode.invalid_producer_epoch,
                f"A marker of producer {marker.producer_id} has epoch {marker.epoch}; the last is {entry.epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise SequenceError(
                ErrorCode.transaction_coordinator_fenced,
                f"Coordinator epoch {marker.coordinator_epoch} is behind {entry.coordinator_epoch}",
            )

    def append(self, header: BatchHeader, base_offset: int) -> None:
        """Record a batch that was appended at `base_offset`."""
        entry = self._entry_at(header.producer_id, header.producer_epoch)
        entry.timestamp = header.max_timestamp
        entry.batches.append(
            AppendedBatch(header.base_sequence, header.last_sequence, base_offset, header.max_timestamp)
        )
        if header.is_transactional:
            entry.is_open = True
            self._verifications.pop(header.producer_id, None)

    def append_marker(self, marker: Marker, timestamp: int) -> None:
        """Record a marker: the producer's transaction has ended here."""
        entry = self._entry_at(marker.producer_id, marker.epoch)
        entry.timestamp, entry.coordinator_epoch, entry.is_open = timestamp, marker.coordinator_epoch, False
        verification = self._verifications.get(marker.producer_id)
        if verification is not None and not (verification.is_bumping and verification.epoch == marker.epoch):
            del self._verifications[marker.producer_id]

    def begin(self, producer_id: int, epoch: int) -> None:
        """Record that a transaction is open without a batch: for a group's offsets."""
        self._entry_at(producer_id, epoch).is_open = True
        self._verifications.pop(producer_id, None)

    def _entry_at(self, producer_id: int, epoch: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(epoch)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        return entry

    def expire(self, producer_id: int, oldest_ms: int) -> None:
        """Forget a producer whose last batch is older than this. Kafka checks only every ten minutes."""
        entry = self._entries.get(producer_id)
        if entry is not None and entry.timestamp < oldest_ms and not entry.is_open:
            del self._entries[producer_id]

    def forget(self, producer_id: int | None = None) -> None:
        """Forget one producer, or all, as `producer.id.expiration.ms` does (retention does not, in Kafka 4)."""
        if producer_id is None:
            self._entries.clear()
            self._verifications.clear()
        else:
            self._entries.pop(producer_id, None)
            self._verifications.pop(producer_id, None)
