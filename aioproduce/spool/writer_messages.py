"""What passes between the loop and a spool's writer: batches to append, positions to move, and what was dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce.spool.disk import Buffer


class QueueIsFullError(Exception):
    """An append found no room in time."""


@final
@dataclass(slots=True)
class Append:
    """A batch to append.

    Attributes:
        topic: The topic.
        buffers: The sealed batch in pieces. They do not change until the append is answered.
        size: Its bytes.
        deadline: When it fails if there is no room, on `time.monotonic()`.
        answer: Called in the loop with the append itself, when `offset` or `error` is set.
        at_least: The least offset that its first record gets.
        told: How many refusals of the topic the sender knew of; None if it never submits a batch again.
        offset: The first record's offset.
        end_offset: The offset behind the last.
        first_timestamp: The first record's time, in milliseconds since the epoch; set with `offset`.
        has_waited: Whether it found the queue full.
        is_taken: Whether the writer writes it, or has written it.
        is_cancelled: Whether it need not be written any more; it is not answered if it was not taken before.
        error: Why it is not in the log. `PossiblyStoredError`: it may be.
        refusals: How many refusals of the topic there are with this one; set with such an `error`.
    """

    topic: str
    buffers: Sequence[Buffer]
    size: int
    deadline: float
    answer: Callable[[Append], None]
    at_least: int = -1
    told: int | None = None
    offset: int = -1
    end_offset: int = -1
    first_timestamp: int = 0
    has_waited: bool = False
    is_taken: bool = False
    is_cancelled: bool = False
    error: Exception | None = field(default=None)
    refusals: int = 0

    @property
    def may_be_in_log(self) -> bool:
        """Whether it is in the log for all that is known: it is, or a sync has failed behind it."""
        return self.error is None or self.offset < 0 <= self.end_offset

    def forget(self) -> None:
        """Keep nothing alive: nobody is answered, and the bytes are not needed."""
        self.buffers, self.answer = (), _nobody_asks


@final
@dataclass(slots=True)
class Settle:
    """A position to move.

    Attributes:
        topic: The topic.
        position: Everything before it is settled.
        answer: Called in the loop with the error, or None.
        is_settled: Whether any record was settled; else nobody used the offsets before the position.
    """

    topic: str
    position: int
    answer: Callable[[OSError | None], None]
    is_settled: bool = True


@final
@dataclass(frozen=True, slots=True)
class Dropped:
    """Records that were dropped.

    Attributes:
        topic: The topic.
        first_offset: The first offset.
        end_offset: The offset behind the last; between them may be offsets that nobody used.
        record_count: The number of records.
        size: The bytes of their file.
        reason: Why, as a clause.
    """

    topic: str
    first_offset: int
    end_offset: int
    record_count: int
    size: int
    reason: str


def _nobody_asks(_: Append) -> None:
    pass
