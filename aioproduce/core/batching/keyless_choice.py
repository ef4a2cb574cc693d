"""Where the keyless records of one topic go: a rule of `aioproduce.partitioners`, set to work.

Made by `partitioning`; called by the topic's queues. What is decided is left with the topic's `TopicAppender`.

Invariant: a choice is made only in `choose()`, and the appender knows it from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from aioproduce._native.topic_appender import NO_PARTITION

if TYPE_CHECKING:
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.core.batching.candidates import Candidates
    from aioproduce.core.cluster.metadata_views import TopicView
    from aioproduce.partitioners import TopicView as Row

_LINE: Final = 256
"""How many turns are drawn ahead: drawing one costs a microsecond, the way out of the compiled code three."""


class KeylessChoice(Protocol):
    """Where the keyless records of a topic go."""

    @property
    def partition(self) -> int:
        """The present choice; `NO_PARTITION` where there is none."""

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """Account for what was appended since the last call, and choose.

        Args:
            view: The topic's partitions.
            can_switch: Whether no batch of the present choice takes more records.
        """

    def partitions_changed(self) -> None:
        """The topic has other partitions, or others of them have a leader, or another one."""


class StickyRule(Protocol):
    """`UniformSticky` and `StickyPerBatch`."""

    @property
    def bytes_left(self) -> int:
        """How many bytes may still go to the present choice before it changes in any case."""

    def peek(self, view: Row) -> int:
        """The partition that the next record goes to."""

    def leave(self) -> None:
        """The present choice is none any more."""

    def on_appended(self, partition: int, appended: int, view: Row, *, can_switch: bool = True) -> None:
        """Count bytes, and perhaps choose another partition."""


class TurnRule(Protocol):
    """`RoundRobin` and `UniformRandom`."""

    def next(self, view: Row) -> int:
        """The next partition."""

    def give_back(self, count: int) -> None:
        """The last `count` of them were not used."""


@final
class StickyChoice:
    """All to one partition, for as long as a sticky rule says, and as it has a leader while others have.

    Java keeps to a partition that has lost its leader for another `batch.size` bytes: to a producer that sends
    little that is many records, which wait, and may run out of time.
    """

    __slots__ = ("_appender", "_candidates", "_is_in_doubt", "_partition", "_rule")

    def __init__(self, appender: TopicAppender, rule: StickyRule, candidates: Candidates) -> None:
        self._appender = appender
        self._rule = rule
        self._candidates = candidates
        self._partition = NO_PARTITION
        self._is_in_doubt = False

    @property
    def partition(self) -> int:
        """As `KeylessChoice` has it."""
        return self._partition

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """As `KeylessChoice` has it."""
        row = self._candidates.of(view)
        if self._partition != NO_PARTITION:
            appended = self._appender.take_sticky_bytes()
            self._rule.on_appended(self._partition, appended, row, can_switch=can_switch)
            if self._is_in_doubt and view.available and self._partition not in view.available:
                self._rule.leave()
        self._is_in_doubt = False
        self._partition = self._rule.peek(row)
        self._appender.set_sticky(self._partition, self._rule.bytes_left)
        return self._partition

    def partitions_changed(self) -> None:
        """The present choice may have lost its leader: the next record asks."""
        self._candidates.forget()
        if not self._is_in_doubt and self._partition != NO_PARTITION:
            self._is_in_doubt = True
            self._appender.end_share()


@final
class LineChoice:
    """Each to the next in a line, which is drawn some way ahead."""

    __slots__ = ("_appender", "_candidates", "_rule")

    def __init__(self, appender: TopicAppender, rule: TurnRule, candidates: Candidates) -> None:
        self._appender = appender
        self._rule = rule
        self._candidates = candidates
        appender.set_line([])

    @property
    def partition(self) -> int:
        """Whose turn it is."""
        return self._appender.next_keyless()

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """As `KeylessChoice` has it; nothing changes while a turn is not taken."""
        del can_switch
        if self.partition == NO_PARTITION:
            row = self._candidates.of(view)
            self._appender.set_line([self._rule.next(row) for _ in range(_LINE)])
        return self.partition

    def partitions_changed(self) -> None:
        """Some of those in the line may have lost their leader.

        Every answer about the topic comes by here. Turns that were drawn and not taken are to be drawn again:
        without them a producer that sends little would begin with the same partitions after each answer.
        """
        self._candidates.forget()
        self._rule.give_back(self._appender.turns_left)
        self._appender.set_line([])
