"""Direct mode of one topic: which new batches go ahead of the log, and what becomes of those that have.

Invariants:

1. Offsets are given here, in the order in which batches arrive; the writer keeps them.
2. A batch goes ahead only if each one before it was read from the log, has gone ahead, or is in no log. One that is
   written and not answered is none of these.
3. After a failure of the cluster nothing has gone ahead: what is on disk is sent again from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, final

from aioproduce.spool.batch_head import read_sealed
from aioproduce.spool.direct_append import DirectAppend

if TYPE_CHECKING:
    from aioproduce.drivers.base import Driver
    from aioproduce.spool.writer import SpoolWriter
    from aioproduce.spool.writer_messages import Append


@final
class DirectMode:
    """The batches of one topic that are under way to the cluster and to the disk.

    Args:
        next_offset: The offset of the next record.
        driver: The loop's side.
        writer: Writes the log.

    Attributes:
        goes_to: The offset behind the last batch that has gone ahead; 0 after a failure.
    """

    __slots__ = ("_at_disk", "_batches", "_driver", "_next_offset", "_writer", "goes_to")

    def __init__(self, next_offset: int, driver: Driver, writer: SpoolWriter) -> None:
        self._next_offset = next_offset
        self._driver = driver
        self._writer = writer
        self._batches: deque[DirectAppend] = deque()
        self._at_disk = 0  # batches that go by the log, and are not answered
        self.goes_to: int = 0

    def begin(self, append: Append, *, may_go_ahead: bool) -> DirectAppend | None:
        """Give a new batch its offset; return it as one that goes ahead, or None if it goes by the log.

        Args:
            append: The batch.
            may_go_ahead: Whether everything that the log has was read, and the cluster takes records.
        """
        base = append.at_least = self._next_offset
        end = self._next_offset = base + read_sealed(append.buffers[0])[1]
        if self._at_disk or not may_go_ahead:
            self._at_disk += 1
            append.answer = partial(self._disk_has_answered, append.answer)
            return None
        append.offset, append.end_offset = base, end
        direct = DirectAppend(append, self._driver.on_turn)
        self._batches.append(direct)
        self.goes_to = end
        return direct

    def _disk_has_answered(self, answer: Callable[[Append], None], append: Append) -> None:
        self._at_disk -= 1
        answer(append)

    def settled(self, end_offset: int) -> bool:
        """End the `send()` of a settled batch, if it has gone ahead; return whether the disk has it.

        Args:
            end_offset: The offset behind the batch.
        """
        if not self._batches or self._batches[0].end_offset > end_offset:
            return True
        direct = self._batches.popleft()
        if direct.waits_for_disk:
            self._writer.cancel(direct.write)
        direct.acknowledged()
        return direct.is_written

    def dropped(self, end_offset: int) -> None:
        """Leave what was dropped from the log to the disk, which has stored or refused it."""
        while self._batches and self._batches[0].end_offset <= end_offset:
            self._batches.popleft().failed()

    def failed(self) -> None:
        """Leave everything to the disk."""
        self.goes_to = 0
        while self._batches:
            direct = self._batches.popleft()
            if direct.waits_for_disk:
                self._at_disk += 1
                direct.disk_has_answered = self._left_has_answered
            direct.failed()

    def _left_has_answered(self) -> None:
        self._at_disk -= 1
