"""A batch in direct mode: it is under way to the cluster and to the disk, and the first of them ends its `send()`.

| | the disk has it | the disk refused it | the disk has not answered |
|---|---|---|---|
| the cluster acknowledged it | stored | stored | stored, and it is not written any more |
| the cluster has not answered | stored | wait for the cluster | wait for both |
| the cluster failed | stored | the disk's error | wait for the disk |

"Stored" is what the sending producer is told. It is told once; what comes later changes nothing for it.

Invariants:

1. The writer gets a copy of the bytes: the sending producer may use its buffer again as soon as it is told.
2. The sending producer is told in a turn of the loop of its own: it may run the waiting task at once, which cannot
   be done from within a forwarder's task.
3. An error says that the record may be stored, since the cluster may have it. So nobody sends it again, with
   another id.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, final

from aioproduce.spool.topic_log import PossiblyStoredError
from aioproduce.spool.writer_messages import Append

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class DirectAppend:
    """One batch.

    Args:
        append: The batch, with its offsets. From now on its buffers are empty.
        on_turn: Calls back once the running callback of the loop has ended.

    Attributes:
        write: What the writer gets in its place, with a copy of the bytes in one piece.
        end_offset: The offset behind its last record.
        waits_for_disk: Whether the disk has not answered.
        disk_has_answered: Called when it has, before the sending producer is told.
        is_written: Whether the disk has it.
    """

    __slots__ = (
        "_append",
        "_error",
        "_has_failed",
        "_is_answered",
        "_on_turn",
        "disk_has_answered",
        "end_offset",
        "is_written",
        "waits_for_disk",
        "write",
    )

    def __init__(self, append: Append, on_turn: Callable[[Callable[[], None]], None]) -> None:
        self.end_offset: int = append.end_offset
        self.write: Append = replace(
            append,
            buffers=(b"".join(append.buffers),),
            answer=self._has_answered,
            told=None,
            offset=-1,
            end_offset=-1,
        )
        append.buffers = ()
        self.is_written: bool = False
        self.waits_for_disk: bool = True
        self.disk_has_answered: Callable[[], None] = _nobody_asks
        self._append = append
        self._on_turn = on_turn
        self._is_answered = False
        self._has_failed = False
        self._error: Exception | None = None

    def _has_answered(self, write: Append) -> None:
        """Accept the answer of the disk."""
        self.waits_for_disk = False
        self.disk_has_answered()
        write.forget()
        if write.error is None:
            assert write.offset == self._append.offset  # the ids that the cluster got have it
            self.is_written = True
            self._answer(None)
            return
        self._error = PossiblyStoredError(
            f"the disk refused it, and the cluster did not acknowledge it: {write.error}"
        )
        self._error.__cause__ = write.error
        if self._has_failed:
            self._answer(self._error)

    def acknowledged(self) -> None:
        """Accept the acknowledgement of the cluster."""
        self._answer(None)

    def failed(self) -> None:
        """Accept that the cluster did not take it: what is on disk is sent again."""
        self._has_failed = True
        if self._error is not None:
            self._answer(self._error)

    def _answer(self, error: Exception | None) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._append.error = error
            if error is not None and self.write.may_be_in_log:
                self._append.offset = -1  # so it is announced: it may be read together with the one before it
            self._on_turn(partial(self._append.answer, self._append))


def _nobody_asks() -> None:
    pass
