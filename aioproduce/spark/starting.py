"""Where a landing begins, or why it must not: decided before any row moves, from what checkpoint and lake say.

Called by the job `land`. Pure functions over values: no file and no Spark here.

Invariants:

1. A batch that was planned is done again as it was: nothing that decides where its rows go may have changed.
2. No offset that a lake holds is landed into it again by another query, and none between what it holds and what is
   landed next is left out, unless the user says `latest`.
3. Two queries that both live do not land the same topic into one lake; a query lands a topic from the moment that
   a batch with it is planned.
4. Spark heeds what is told here as long as it has planned no batch, and nothing of it from then on.
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
"""How Spark says "the first offset there is" in a list of offsets; -1 is the last."""


class Start(StrEnum):
    """Where a new checkpoint begins, besides offsets in JSON."""

    LAKE = "lake"
    """After what the lake holds; what it holds nothing of from its first offset on."""
    EARLIEST = "earliest"
    """From the first offset of each partition: for a lake that holds none of the topics."""
    LATEST = "latest"
    """From now on."""


@final
@dataclass(frozen=True, slots=True)
class Found:
    """What there is before a landing begins.

    Attributes:
        checkpoint: The query's checkpoint; `None` where it is new.
        note: What that says it is for; `None` where there is none.
        landers: The queries that ever landed into this lake.
        alive: Those among their ids whose checkpoint is still where it was.
        planned: Where the last planned batch of such a query ends, which may not be landed yet; by the query's id.
    """

    checkpoint: Checkpoint | None
    note: CheckpointNote | None
    landers: Sequence[Lander]
    alive: Collection[str]
    planned: Mapping[str, Offsets] = field(default_factory=dict)

    @property
    def is_begun(self) -> bool:
        """Whether the checkpoint has planned a batch, so that Spark goes on from there, whatever it is told."""
        return self.checkpoint is not None and self.checkpoint.planned >= 0

    @property
    def others(self) -> list[Lander]:
        """The landers that are not the checkpoint's own query."""
        own = None if self.checkpoint is None else self.checkpoint.query_id
        return [lander for lander in self.landers if lander.query_id != own]

    def topics_of(self, lander: Lander) -> set[str]:
        """What a query has landed, and, where it lives, is about to land."""
        return {*lander.offsets, *self.planned.get(lander.query_id, {})}


def check_checkpoint(found: Found, wanted: CheckpointNote, path: str, topics: Collection[str]) -> None:
    """See that a checkpoint that is there can go on with what is wanted now.

    Args:
        found: What there is.
        wanted: What is to be landed.
        path: The checkpoint's.
        topics: The names of all topics that are to be landed, those of a pattern too.

    Raises:
        CheckpointError: it is another lake's, not one of `land`, or its next batch would go elsewhere.
    """
    if found.checkpoint is None:
        return
    note = found.note
    if note is None:
        raise CheckpointError(
            f"the checkpoint {path} was not made by `land`: name another one (--checkpoint)", path=path
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
            f"micro-batch {found.checkpoint.planned} of {path} was begun with {was}, and has to be ended just so:"
            " run once with these, then with the new ones",
            path=path,
        )
    _check_progress(found, found.checkpoint, path)
    _check_added(found, found.checkpoint, topics, path)
    gone = [] if note.is_pattern or wanted.is_pattern else [t for t in note.topics if t not in wanted.topics]
    if gone:
        raise CheckpointError(
            f"the checkpoint {path} also lands {', '.join(gone)}, and a topic cannot be taken away from it: name"
            f" {'it' if len(gone) == 1 else 'them'} too, or begin a new lake",
            path=path,
        )


def _reach(found: Found, checkpoint: Checkpoint) -> Offsets:
    """Where a checkpoint's own query has come to; of topics in its planned batch alone, where that ends."""
    own = next((lander for lander in found.landers if lander.query_id == checkpoint.query_id), None)
    return {**found.planned.get(checkpoint.query_id, {}), **(own.offsets if own is not None else {})}


def _check_added(found: Found, checkpoint: Checkpoint, topics: Collection[str], path: str) -> None:
    """See that no topic comes to a checkpoint that the lake already has from another query.

    Spark begins such a topic with its first offset, whatever it is told: all that the lake has of it would come
    once more.
    """
    if not found.is_begun:
        return
    added = set(topics) - set(_reach(found, checkpoint))
    for other in found.others:
        if both := sorted(added & found.topics_of(other)):
            raise CheckpointError(
                f"{', '.join(both)} is new to the checkpoint {path}, which would land all of it, and was landed"
                f" into this lake with the checkpoint {other.checkpoint}: land it with that one, or, if that is"
                " deleted, with a new one of its own (--checkpoint); if it is the topic of the marks, say"
                " `--audit-topic none`",
                path=other.checkpoint,
            )


def _check_progress(found: Found, checkpoint: Checkpoint, path: str) -> None:
    """See that nobody has gone on from where this checkpoint stands, not even itself in another life."""
    own = next((lander for lander in found.landers if lander.query_id == checkpoint.query_id), None)
    if own is not None and own.batch > checkpoint.planned:
        raise CheckpointError(
            f"the checkpoint {path} is older than the lake, which has its batches up to {own.batch}, not"
            f" {checkpoint.planned} (restored from a copy?): delete it, and a new one goes on after what the lake"
            " holds",
            path=path,
        )
    mine = _reach(found, checkpoint)
    for other in found.others:
        ahead = [
            topic
            # What it has planned counts: it will land that as soon as it is started.
            for reached in (other.offsets, found.planned.get(other.query_id, {}))
            for topic in mine
            for number, offset in reached.get(topic, {}).items()
            if offset > mine[topic].get(number, offset)
        ]
        if ahead:
            raise CheckpointError(
                f"{ahead[0]} was landed further into this lake by another query, with the checkpoint"
                f" {other.checkpoint}: go on with that one",
                path=path,
            )


def starting_offsets(
    found: Found,
    choice: str,
    partitions: Mapping[str, Collection[int]],
    path: str,
) -> str:
    """What Spark's option `startingOffsets` is to say; Spark heeds it until it has planned a batch.

    Args:
        found: What there is.
        choice: What the user says: one of `Start`, or offsets in Spark's JSON.
        partitions: The topics and their partitions, as the cluster has them now.
        path: The checkpoint's.

    Raises:
        CheckpointError: another query that lives lands a topic into this lake, or offsets would come twice.
        OptionError: the choice is neither a name nor offsets.
    """
    given = _given(choice)
    if found.is_begun:
        return str(Start.EARLIEST)
    for lander in found.others:
        common = sorted(found.topics_of(lander) & set(partitions))
        if lander.query_id in found.alive and common:
            raise CheckpointError(
                f"{', '.join(common)} is landed into this lake with the checkpoint {lander.checkpoint}: go on with"
                " that (--checkpoint), or, if it is never to be used again, delete it, and this goes on from what"
                f" the lake holds with the new checkpoint {path}; if it is the topic of the marks alone, say"
                " `--audit-topic none`",
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
            f'--starting-offsets takes {", ".join(Start)}, or offsets as {{"orders":{{"0":17,"1":-2}}}}',
            option="--starting-offsets",
        ) from error


def _continued(held: Offsets, partitions: Mapping[str, Collection[int]]) -> Offsets:
    return {
        topic: {number: held.get(topic, {}).get(number, _EARLIEST) for number in numbers}
        for topic, numbers in partitions.items()
    }


def _twice(held: Offsets, path: str) -> CheckpointError:
    return CheckpointError(
        f"offsets that this lake holds would be landed once more; it is to go on with {format_offsets(held)}: use"
        " --starting-offsets lake",
        path=path,
    )
