"""What of a partition's log is decided: open transactions, the last stable offset, and what was aborted.

Called by `log` at each append and marker, by `fetch` for readers with isolation level read_committed. It follows
`ProducerStateManager` and `TransactionIndex` of Apache Kafka 4.3.

Invariants:
1. The last stable offset is at most the high watermark, the first offset of every open transaction, and the first
   offset of every transaction whose marker is not committed yet.
2. An aborted transaction is told to a reader when it has records between the reader's offset and the end of what
   the reader is given.
"""

from __future__ import annotations

from typing import NamedTuple, final


@final
class EndedTransaction(NamedTuple):
    """A transaction that has its marker here.

    Attributes:
        last_offset: That of the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


@final
class TransactionLog:
    """The transactions in one partition.

    Attributes:
        open: The first offset of each open transaction, by producer id.
        aborted: Those that were aborted, in the order of their markers.
        markers: How many markers were written.
    """

    __slots__ = ("_uncommitted", "aborted", "markers", "open")

    def __init__(self) -> None:
        self.markers: int = 0
        self.open: dict[int, int] = {}
        self.aborted: list[EndedTransaction] = []
        self._uncommitted: list[EndedTransaction] = []

    def begin(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended: its transaction is open from its first one on."""
        self.open.setdefault(producer_id, offset)

    def end(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """A marker was appended; it may find no open transaction."""
        self.markers += 1
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        ended = EndedTransaction(producer_id, first, offset)
        self._uncommitted.append(ended)
        if not is_commit:
            self.aborted.append(ended)

    def last_stable_offset(self, high_watermark: int, start_offset: int) -> int:
        """Where readers of what is committed stop."""
        if self._uncommitted:
            self._uncommitted = [each for each in self._uncommitted if each.last_offset >= high_watermark]
        unstable = min(
            min(self.open.values(), default=high_watermark),
            min((each.first_offset for each in self._uncommitted), default=high_watermark),
        )
        return min(high_watermark, max(unstable, start_offset))

    def aborted_between(self, offset: int, end: int) -> list[EndedTransaction]:
        """Those with records in a range that a reader is given."""
        return [each for each in self.aborted if each.last_offset >= offset and each.first_offset < end]

    def forget(self) -> None:
        """Forget everything; `log` reads its batches again."""
        self.open.clear()
        self.aborted.clear()
        self._uncommitted.clear()
        self.markers = 0
