"""Decides where a landing begins, or why it must not, from checkpoint and lake, before any row moves.

Used by the job `land`. Pure functions over values: no file and no Spark here.

Invariants:

1. A planned batch is repeated exactly: nothing that decides where its rows go may have changed.
2. An offset in the lake is never landed again by another query, and no offset between the lake's and the next
   landed one is skipped, unless the user asks for `latest`.
3. Two live queries do not land the same topic into one lake; a query lands a topic from the moment that it has
   planned a batch with it.
4. Spark uses the result as long as it has planned no batch, and ignores it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from aioproduce.spark.checkpoint import format_offsets, parse_offsets
from aioproduce.spark.errors import CheckpointError, OptionError
from aioproduce.spark.lake import held_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioproduce.spark.checkpoint import Checkpoint
    from aioproduce.spark.lake import CheckpointNote, Lander, Offsets

_EARLIEST: Final = -2
"""Spark's value for the first existing offset in a list of offsets; -1 is the last."""


class Start(StrEnum):
    """Where a new checkpoint begins, unless offsets in JSON are given."""

    LAKE = "lake"
    """After the lake's offsets; for topics that are not in the lake, from the first offset on."""
    EARLIEST = "earliest"
    """From the first offset of each partition: for a lake that has none of the topics."""
    LATEST = "latest"
    """From now on."""


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The state before a landing begins.

    Attributes:
        checkpoint: The query's checkpoint; `None` if it is new.
        note: The checkpoint's description; `None` if there is none.
        landers: The queries that ever landed into this lake.
        alive: The ids of those whose checkpoint still exists.
        planned: The end of such a query's last planned batch, which may not be landed yet; by the query's id.
    """

    checkpoint: Checkpoint | None
    note: CheckpointNote | None
    landers: Sequence[Lander]
    alive: Collection[str]
    planned: Mapping[str, Offsets] = field(default_factory=dict)

    @property
    def is_begun(self) -> bool:
        """Whether the checkpoint has planned a batch, so that Spark continues from there in any case."""
        return self.checkpoint is not None and self.checkpoint.planned >= 0

    @property
    def others(self) -> list[Lander]:
        """The landers other than the checkpoint's own query."""
        own = None if self.checkpoint is None else self.checkpoint.query_id
        return [lander for lander in self.landers if lander.query_id != own]

    def topics_of(self, lander: Lander) -> set[str]:
        """Return the topics that a query has landed and, if it is alive, has planned to land."""
        return {*lander.offsets, *self.planned.get(lander.query_id, {})}


def check_checkpoint(found: Found, wanted: CheckpointNote, path: str, topics: Collection[str]) -> None:
    """Check that an existing checkpoint can continue with the current request.

    Args:
        found: The state.
        wanted: What to land.
        path: The checkpoint's path.
        topics: The names of all topics to land, including those of a pattern.

    Raises:
        CheckpointError: If it belongs to another lake or was not created by `land`, or if its next batch would
            differ.
    """
    if found.checkpoint is None:
        return
    note = found.note
    if note is None:
        raise CheckpointError(
            f"the checkpoint {path} was not created by `land`: name another one (--checkpoint)", path=path
        )
    if note.lake != wanted.lake:
        raise CheckpointError(
            f"the checkpoint {path} is for another lake, or this one was emptied since: to land into this one, name"
            " another --checkpoint",
            path=path,
        )
    was = f"--{'topic-pattern' if note.is_pattern else 'topics'} {','.join(note.topics)}"
    was += f" --audit-topic {note.audit_topic or 'none'}"
    if note != wanted and found.checkpoint.has_unfinished:
        raise CheckpointError(
            f"micro-batch {found.checkpoint.planned} of {path} was begun with {was}, and must be finished "
            "with the same options: run once with these, then with the new ones",
            path=path,
        )
    _check_progress(found, found.checkpoint, path)
    _check_added(found, found.checkpoint, topics, path)
    gone = [] if note.is_pattern or wanted.is_pattern else [t for t in note.topics if t not in wanted.topics]
    if gone:
        raise CheckpointError(
            f"the checkpoint {path} also lands {', '.join(gone)}, and a topic cannot be removed from it: name"
            f" {'it' if len(gone) == 1 else 'them'}, too, or begin a new lake",
            path=path,
        )


def _reach(found: Found, checkpoint: Checkpoint) -> Offsets:
    """Return the offsets that a checkpoint's query has reached; for topics only in its planned batch, its end."""
    own = next((lander for lander in found.landers if lander.query_id == checkpoint.query_id), None)
    return {**found.planned.get(checkpoint.query_id, {}), **(own.offsets if own is not None else {})}


def _check_added(found: Found, checkpoint: Checkpoint, topics: Collection[str], path: str) -> None:
    """Check that no topic is added to a checkpoint that another query has landed into the lake.

    Spark begins such a topic at its first offset in any case, so all of its records in the lake would be landed
    again.
    """
    if not found.is_begun:
        return
    added = set(topics) - set(_reach(found, checkpoint))
    for other in found.others:
        if both := sorted(added & found.topics_of(other)):
            raise CheckpointError(
                f"{', '.join(both)} is new to the checkpoint {path}, which would land all of it, but was "
                f"already landed into this lake with the checkpoint {other.checkpoint}: land it with that "
                "one or, if that is deleted, with a new one of its own (--checkpoint); if it is the topic "
                "of the marks, use `--audit-topic none`",
                path=other.checkpoint,
            )


def _check_progress(found: Found, checkpoint: Checkpoint, path: str) -> None:
    """Check that no query has continued from this checkpoint's position, not even its own from another copy."""
    own = next((lander for lander in found.landers if lander.query_id == checkpoint.query_id), None)
    if own is not None and own.batch > checkpoint.planned:
        raise CheckpointError(
            f"the checkpoint {path} is older than the lake, which has its batches up to {own.batch}, not"
            f" {checkpoint.planned} (restored from a copy?): delete it, and a new one continues after the lake's"
            " records",
            path=path,
        )
    mine = _reach(found, checkpoint)
    for other in found.others:
        ahead = [
            topic
            # Its planned batch counts, because it is landed as soon as the query is started.
            for reached in (other.offsets, found.planned.get(other.query_id, {}))
            for topic in mine
            for number, offset in reached.get(topic, {}).items()
            if offset > mine[topic].get(number, offset)
        ]
        if ahead:
            raise CheckpointError(
                f"{ahead[0]} was landed further into this lake by another query, with the checkpoint"
                f" {other.checkpoint}: continue with that one",
                path=path,
            )


def starting_offsets(
    found: Found,
    choice: str,
    partitions: Mapping[str, Collection[int]],
    path: str,
) -> str:
    """Return the value of Spark's option `startingOffsets`, which Spark uses until it has planned a batch.

    Args:
        found: The state.
        choice: The user's choice: one of `Start`, or offsets in Spark's JSON.
        partitions: The topics and their current partitions.
        path: The checkpoint's path.

    Raises:
        CheckpointError: If another live query lands a topic into this lake, or if offsets would be landed twice.
        OptionError: If the choice is neither a name nor offsets.
    """
    given = _given(choice)
    if found.is_begun:
        return str(Start.EARLIEST)
    for lander in found.others:
        common = sorted(found.topics_of(lander) & set(partitions))
        if lander.query_id in found.alive and common:
            raise CheckpointError(
                f"{', '.join(common)} is landed into this lake with the checkpoint {lander.checkpoint}: "
                "continue with that (--checkpoint) or, if it is never to be used again, delete it, and "
                f"this one continues after the lake's records with the new checkpoint {path}; if it is only "
                "the topic of the marks, use `--audit-topic none`",
                path=lander.checkpoint,
            )
    held = held_offsets(list(found.landers))
    held = {topic: held[topic] for topic in partitions if topic in held}
    if choice == Start.LATEST or (choice == Start.EARLIEST and not held):
        return choice
    if choice in (Start.LAKE, Start.EARLIEST):
        if choice == Start.EARLIEST:
            raise _twice(held, path)
        return format_offsets(_continued(held, partitions)) if held else str(Start.EARLIEST)
    assert given is not None
    for topic, numbers in held.items():
        for number, offset in numbers.items():
            wish = given.get(topic, {}).get(number, offset)
            if wish != -1 and wish < offset:
                raise _twice({topic: {number: offset}}, path)
    return format_offsets(given)


def _given(choice: str) -> Offsets | None:
    if choice in list(Start):
        return None
    try:
        return parse_offsets(choice)
    except CheckpointError as error:
        raise OptionError(
            f'--starting-offsets must be {", ".join(Start)}, or offsets as {{"orders":{{"0":17,"1":-2}}}}',
            option="--starting-offsets",
        ) from error


def _continued(held: Offsets, partitions: Mapping[str, Collection[int]]) -> Offsets:
    return {
        topic: {number: held.get(topic, {}).get(number, _EARLIEST) for number in numbers}
        for topic, numbers in partitions.items()
    }


def _twice(held: Offsets, path: str) -> CheckpointError:
    return CheckpointError(
        f"offsets in this lake would be landed again; it must continue with {format_offsets(held)}: use"
        " --starting-offsets lake",
        path=path,
    )
