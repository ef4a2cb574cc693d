"""Partition choice for the keyless records of one topic, by a rule of `aioproduce.partitioners`.

Made by `partitioning`; called by the topic's queues.

Invariant: only `choose()` makes a choice, and it passes the choice to the topic's `TopicAppender`.
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
"""How many turns are drawn ahead. Drawing one costs a microsecond; leaving the compiled code costs three."""


class KeylessChoice(Protocol):
    """Partition choice for the keyless records of a topic."""

    @property
    def partition(self) -> int:
        """The chosen partition; `NO_PARTITION` if there is none."""

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """Count the bytes appended since the last call, and choose a partition.

        Args:
            view: The topic's partitions.
            can_switch: Whether no batch of the chosen partition accepts more records.
        """

    def partitions_changed(self) -> None:
        """Handle a change of the topic's partitions or of their leaders."""


class StickyRule(Protocol):
    """The interface of `UniformSticky` and `StickyPerBatch`."""

    @property
    def bytes_left(self) -> int:
        """How many bytes may still go to the chosen partition before it must change."""

    def peek(self, view: Row) -> int:
        """Return the partition of the next record."""

    def leave(self) -> None:
        """Drop the present choice."""

    def on_appended(self, partition: int, appended: int, view: Row, *, can_switch: bool = True) -> None:
        """Count the appended bytes, and perhaps choose another partition."""


class TurnRule(Protocol):
    """The interface of `RoundRobin` and `UniformRandom`."""

    def next(self, view: Row) -> int:
        """Return the next partition."""

    def give_back(self, count: int) -> None:
        """Put back the last `count` partitions, which were not used."""


@final
class StickyChoice:
    """One partition for all keyless records, until the sticky rule chooses another or it loses its leader.

    It stays without a leader only if no partition has one. Java stays for another `batch.size` bytes. For a
    producer that sends little, these are many records, which wait and may expire.
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
        """See `KeylessChoice`."""
        return self._partition

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """Choose; see `KeylessChoice`."""
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
        """Check at the next record whether the chosen partition still has a leader."""
        self._candidates.forget()
        if not self._is_in_doubt and self._partition != NO_PARTITION:
            self._is_in_doubt = True
            self._appender.end_share()


@final
class LineChoice:
    """A new partition for each record, from a line that is drawn ahead."""

    __slots__ = ("_appender", "_candidates", "_rule")

    def __init__(self, appender: TopicAppender, rule: TurnRule, candidates: Candidates) -> None:
        self._appender = appender
        self._rule = rule
        self._candidates = candidates
        appender.set_line([])

    @property
    def partition(self) -> int:
        """The partition whose turn it is."""
        return self._appender.next_keyless()

    def choose(self, view: TopicView, *, can_switch: bool) -> int:
        """Choose; see `KeylessChoice`. Nothing changes until the present turn is used."""
        del can_switch
        if self.partition == NO_PARTITION:
            row = self._candidates.of(view)
            self._appender.set_line([self._rule.next(row) for _ in range(_LINE)])
        return self.partition

    def partitions_changed(self) -> None:
        """Empty the line: some of its partitions may have lost their leader.

        Each metadata answer about the topic calls this. Unused turns go back to the rule. Otherwise a producer
        that sends little would begin with the same partitions after each answer.
        """
        self._candidates.forget()
        self._rule.give_back(self._appender.turns_left)
        self._appender.set_line([])
