"""What waits in a queue, and how a spooled producer is: plain values, and the arithmetic behind them.

`measuring` makes them. They know no clock, file or loop: times and rates are arguments.

Invariants:

1. A number that nobody knows is `None`. A number that is partly a guess has a flag that says so.
2. Times until the queue is empty are those of the present rates. A queue that does not shrink has none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TopicBacklog(NamedTuple):
    """What a topic has in the queue.

    Attributes:
        stored_bytes: Bytes on disk, in files that are not removed yet.
        forwarded: Records that were acknowledged since the start.
        blocked_by: Why the topic cannot be sent to at present, or None.
        records: Records that have no outcome yet. Those that an earlier process left are counted when they are
            read; until then they are estimated by their bytes, and None before the first of them was read.
        is_estimate: Whether `records` and `bytes_waiting` contain bytes of an earlier process that are not read
            yet: `bytes_waiting` is at most too large then.
        bytes_waiting: Bytes of these records on disk.
        oldest_at: The first waiting record's time, in seconds since the epoch: when it was sent, or the
            `timestamp=` of its `send()`. None if nothing waits, or if the record is not read yet.
        oldest_age: Seconds since then, 0 or more; None as `oldest_at`.
        dropped: Records that were dropped since the start, because the queue was full or they were too old.
    """

    stored_bytes: int
    forwarded: int
    blocked_by: BaseException | None
    records: int | None = 0
    is_estimate: bool = False
    bytes_waiting: int = 0
    oldest_at: float | None = None
    oldest_age: float | None = None
    dropped: int = 0


def combined(backlogs: Iterable[TopicBacklog]) -> TopicBacklog:
    """Return the sum of backlogs: of topics, or of one topic's queues. The oldest record is that of all."""
    every = list(backlogs)
    counts = [each.records for each in every if each.records is not None]
    return TopicBacklog(
        stored_bytes=sum(each.stored_bytes for each in every),
        forwarded=sum(each.forwarded for each in every),
        blocked_by=next((each.blocked_by for each in every if each.blocked_by is not None), None),
        records=sum(counts) if len(counts) == len(every) else None,
        is_estimate=any(each.is_estimate for each in every),
        bytes_waiting=sum(each.bytes_waiting for each in every),
        oldest_at=min((each.oldest_at for each in every if each.oldest_at is not None), default=None),
        oldest_age=max((each.oldest_age for each in every if each.oldest_age is not None), default=None),
        dropped=sum(each.dropped for each in every),
    )


class SpoolState(Enum):
    """How a spooled producer is, the worst first."""

    CLOSED = "closed"
    """It is not started, or closed."""
    FAILED = "failed"
    """The disk refused the latest records, or a part of the producer has ended by a bug."""
    FULL = "full"
    """The queue has no room for the next record."""
    WAITING = "waiting"
    """Records wait, and none was acknowledged lately: the cluster is away, or their topics are blocked."""
    FORWARDING = "forwarding"
    """Records wait, and are being forwarded."""
    EMPTY = "empty"
    """Nothing waits."""


@final
@dataclass(frozen=True, slots=True)
class SpoolHealth:
    """How a spooled producer is.

    Attributes:
        state: In one word.
        backlog_bytes: Bytes of the records that have no outcome yet.
        backlog_records: These records; None until it is known what an earlier process left.
        is_estimate: Whether both contain what an earlier process left and nobody has read yet.
        oldest_age: Seconds since the first waiting record's time; None if nothing waits or it is not read yet.
        forwarding_rate: Records per second that were acknowledged lately, over 10 to 15 s.
        storing_rate: Records per second that were put into the queue lately, over the same time.
        drain_seconds: When the queue is empty at these rates, in seconds; 0 if it is. None if it does not
            shrink, or if the number of records is not known.
        blocked_topics: The topics that cannot be sent to at present, in order.
        dead_letters: Records that were put to the dead letters since the start.
        quarantined_bytes: Damaged bytes that were ever found, and that nobody has removed.
        free_bytes: Bytes that the file system has free; None if the directory cannot be asked.
        full_ratio: The bytes of all files of the queue, divided by `max_bytes`.
        failure: Why the state is FAILED, in words.
    """

    state: SpoolState
    backlog_bytes: int
    backlog_records: int | None
    is_estimate: bool
    oldest_age: float | None
    forwarding_rate: float
    storing_rate: float
    drain_seconds: float | None
    blocked_topics: tuple[str, ...]
    dead_letters: int
    quarantined_bytes: int
    free_bytes: int | None
    full_ratio: float
    failure: str | None = None

    @property
    def takes_records(self) -> bool:
        """Whether a record can be put into the queue now, as far as anybody can know."""
        return self.state not in (SpoolState.CLOSED, SpoolState.FAILED, SpoolState.FULL)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for `json.dumps()`."""
        return {**asdict(self), "state": self.state.value}


def drain_seconds(records: int | None, forwarding_rate: float, storing_rate: float) -> float | None:
    """Return when the queue is empty at the present rates.

    Args:
        records: Records that wait; None if that is not known.
        forwarding_rate: Records per second that leave the queue.
        storing_rate: Records per second that come.

    Returns:
        Seconds; 0 for an empty queue. None if the queue does not shrink, or for an unknown number of records.
    """
    if records is None:
        return None
    if records <= 0:
        return 0.0
    shrinking = forwarding_rate - storing_rate
    return records / shrinking if shrinking > 0 else None


def state_of(
    *, is_open: bool, has_failed: bool, is_full: bool, backlog: TopicBacklog, rate: float
) -> SpoolState:
    """Return the state in one word.

    Args:
        is_open: Whether the producer is started and not closed.
        has_failed: Whether the disk, or a part, has failed.
        is_full: Whether a record found no room, and none became free since then.
        backlog: The backlog of all topics.
        rate: Records per second that were acknowledged lately.
    """
    if not is_open:
        return SpoolState.CLOSED
    if has_failed:
        return SpoolState.FAILED
    if is_full:
        return SpoolState.FULL
    if not backlog.bytes_waiting and not backlog.records:
        return SpoolState.EMPTY
    return SpoolState.FORWARDING if rate > 0 else SpoolState.WAITING


def blocked_topics(backlogs: Mapping[str, TopicBacklog]) -> tuple[str, ...]:
    """Return the topics that cannot be sent to at present, in order."""
    return tuple(sorted(topic for topic, each in backlogs.items() if each.blocked_by is not None))
