"""The transactions in a partition's log: the open ones, the last stable offset, and the aborted ones.

Called by `log` at each append and marker, and by `fetch` for readers with isolation level read_committed. It
follows `ProducerStateManager` and `TransactionIndex` of Apache Kafka 4.3.

Invariants:
1. The last stable offset is at most the high watermark, the first offset of every open transaction, and the first
   offset of every transaction whose marker is not committed yet.
2. Readers get an aborted transaction if it has records between the reader's offset and the end of the data that the
   reader gets.
"""

from __future__ import annotations

from typing import NamedTuple, final


@final
class EndedTransaction(NamedTuple):
    """A transaction whose marker is in this partition.

    Attributes:
        last_offset: The offset of the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@final
class TransactionLog:
    """The transactions in one partition.

    Attributes:
        open: The first offset of each open transaction, by producer id.
        aborted: The aborted ones, in the order of their markers.
        markers: The number of markers written.
    """

    __slots__ = ("_uncommitted", "aborted", "markers", "open")

    def __init__(self) -> None:
        self.markers: int = 0
        self.open: dict[int, int] = {}
        self.aborted: list[EndedTransaction] = []
        self._uncommitted: list[EndedTransaction] = []

    def begin(self, producer_id: int, offset: int) -> None:
        """Note a transactional batch: its first one opens the transaction."""
        self.open.setdefault(producer_id, offset)

    def end(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """Note a marker; there may be no open transaction."""
        self.markers += 1
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        ended = EndedTransaction(producer_id, first, offset)
        self._uncommitted.append(ended)
        if not is_commit:
            self.aborted.append(ended)

    def last_stable_offset(self, high_watermark: int, start_offset: int) -> int:
        """Return the offset where read_committed readers stop."""
        if self._uncommitted:
            self._uncommitted = [each for each in self._uncommitted if each.last_offset >= high_watermark]
        unstable = min(
            min(self.open.values(), default=high_watermark),
            min((each.first_offset for each in self._uncommitted), default=high_watermark),
        )
        return min(high_watermark, max(unstable, start_offset))

    def aborted_between(self, offset: int, end: int) -> list[EndedTransaction]:
        """Return the aborted transactions with records in the range that a reader gets."""
        return [each for each in self.aborted if each.last_offset >= offset and each.first_offset < end]

    def forget(self) -> None:
        """Forget everything; `log` reads its batches again."""
        self.open.clear()
        self.aborted.clear()
        self._uncommitted.clear()
        self.markers = 0
