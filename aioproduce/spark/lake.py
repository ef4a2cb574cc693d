"""What a lake knows about the queries that land into it, beside its data.

    <lake>/_land/lake.json               the lake's own id: a checkpoint says which lake it is for
    <lake>/_land/queries/<query id>.json how far a query has come: its last complete batch, and where that ends
    <checkpoint>/aioproduce-land.json    which lake this checkpoint is for, and what it lands
    <checkpoint>/aioproduce-land.lock    held by the process that lands with it

Written by `landing` after each batch and before Spark commits it. So a lake can say by itself which offsets it
holds, and a lost checkpoint loses nothing: a new one goes on from there (`starting`).

Invariants:

1. A batch whose number is at most its query's `batch` here is complete: all its directories are in place.
2. A batch with a higher number is complete or not: the query that it belongs to does it again. Without that query
   it is removed (`remove_incomplete`).
3. One small file per query, replaced: nothing grows with the number of batches.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.spark.checkpoint import format_offsets, parse_offsets
from aioproduce.spark.errors import LayoutError
from aioproduce.spark.files import join
from aioproduce.spark.layout import PARTITION_COLUMNS, STATE_DIRECTORY, LandedBatch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioproduce.spark.files import Files

VERSION: Final = 1
"""Of these files; what is newer is refused."""

NOTE_NAME: Final = "aioproduce-land.json"
LOCK_NAME: Final = "aioproduce-land.lock"

STAGING_PREFIX: Final = ".spark-staging-"
"""Spark's own, of a write that replaces partitions; a random name follows."""

# What is between that and a batch's directory: Hadoop's committer's names, and the lake's.
_STAGED: Final = ("_temporary", "task_", "attempt_", "table=", "topic=", "date=", "hour=")

Offsets = dict[str, dict[int, int]]


@final
@dataclass(frozen=True, slots=True)
class Lander:
    """A query that lands into a lake.

    Attributes:
        query_id: Its id.
        checkpoint: Where its checkpoint was, an absolute path.
        batch: Its last complete micro-batch; -1 before the first.
        offsets: Where that ends, by topic and partition.
    """

    query_id: str
    checkpoint: str
    batch: int
    offsets: Offsets


@final
@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """What a checkpoint of `land` says about itself.

    Attributes:
        lake: The id of the lake.
        topics: What is landed: names in order, or one pattern.
        is_pattern: Whether it is one.
        audit_topic: Whose records are marks, or `None`.
    """

    lake: str
    topics: tuple[str, ...]
    is_pattern: bool
    audit_topic: str | None


def lake_id(lake: str, files: Files) -> str:
    """A lake's id; a lake without one, a new one, is given it.

    Raises:
        LayoutError: the file that tells it is not one of ours.
    """
    path = join(lake, STATE_DIRECTORY, "lake.json")
    read = _read(path, files)
    if read is None:
        read = {"version": VERSION, "id": uuid.uuid4().hex}
        files.replace(path, json.dumps(read))
    return str(read["id"])


def landers_of(lake: str, files: Files) -> list[Lander]:
    """The queries that ever landed into a lake.

    Raises:
        LayoutError: what is written about one cannot be read.
    """
    folder = join(lake, STATE_DIRECTORY, "queries")
    found = []
    for name in files.names(folder):
        if name.startswith(".") or not name.endswith(".json"):
            continue
        path = join(folder, name)
        read = _read(path, files)
        if read is not None:
            offsets = parse_offsets(json.dumps(read["offsets"]), path)
            found.append(Lander(read["query_id"], read["checkpoint"], int(read["batch"]), offsets))
    return found


def write_lander(lake: str, lander: Lander, files: Files) -> None:
    """Say how far a query has come."""
    offsets = json.loads(format_offsets(lander.offsets))
    told = {"version": VERSION, **asdict(lander), "offsets": offsets}
    path = join(lake, STATE_DIRECTORY, "queries", f"{lander.query_id}.json")
    files.replace(path, json.dumps(told, separators=(",", ":")))


def held_offsets(landers: list[Lander]) -> Offsets:
    """The next offset of each partition that a lake has not: the highest that any query came to."""
    held: Offsets = {}
    for lander in landers:
        for topic, partitions in lander.offsets.items():
            mine = held.setdefault(topic, {})
            for number, offset in partitions.items():
                mine[number] = max(offset, mine.get(number, 0))
    return held


def read_note(checkpoint: str, files: Files) -> CheckpointNote | None:
    """What a checkpoint says about itself; `None` where it was not made by `land`, or not at all.

    Raises:
        LayoutError: it cannot be read.
    """
    read = _read(join(checkpoint, NOTE_NAME), files)
    if read is None:
        return None
    return CheckpointNote(read["lake"], tuple(read["topics"]), bool(read["is_pattern"]), read["audit_topic"])


def write_note(checkpoint: str, note: CheckpointNote, files: Files) -> None:
    """Say in a checkpoint what it is for."""
    files.replace(join(checkpoint, NOTE_NAME), json.dumps({"version": VERSION, **asdict(note)}))


def remove_incomplete(lake: str, complete: Mapping[str, int], files: Files) -> list[str]:
    """Remove what queries that are gone have left half done: batches above their last complete one.

    Args:
        lake: The lake.
        complete: The last complete batch of each such query, by its id.
        files: Its file system.

    Returns:
        The directories that were removed, relative to the lake.
    """
    removed = []
    for path in _batch_directories(lake, files):
        landed = LandedBatch.parse(path.rpartition("/batch=")[2])
        if landed is not None and landed.number > complete.get(landed.query_id, landed.number):
            files.delete(join(lake, path))
            removed.append(path)
    return removed


def remove_staging(lake: str, queries: Collection[str], files: Files) -> list[str]:
    """Remove what some queries' batches had written out of sight when they were killed: Spark never does.

    Of each such directory one batch below it tells whose it is; where there is none, it is left.

    Args:
        lake: The lake.
        queries: The ids of queries of which none is running.
        files: Its file system.

    Returns:
        The directories that were removed, relative to the lake.
    """
    removed = []
    for name in files.names(lake):
        if name.startswith(STAGING_PREFIX):
            landed = _staged(join(lake, name), files)
            if landed is not None and landed.query_id in queries:
                files.delete(join(lake, name))
                removed.append(name)
    return removed


def _staged(path: str, files: Files) -> LandedBatch | None:
    """A batch that is somewhere below: of a task that writes, of one that is done, or of all of them."""
    for name in files.names(path):
        if name.startswith("batch="):
            found = LandedBatch.parse(name.removeprefix("batch="))
        elif name.startswith(_STAGED) or name.isdecimal():
            found = _staged(join(path, name), files)
        else:
            continue
        if found is not None:
            return found
    return None


def _batch_directories(lake: str, files: Files) -> list[str]:
    """Each directory `batch=...` of a lake, relative to it."""
    paths = [""]
    for level in PARTITION_COLUMNS:
        paths = [
            f"{path}/{name}" if path else name
            for path in paths
            for name in files.names(join(lake, path))
            if name.startswith(f"{level}=")
        ]
    return paths


def _read(path: str, files: Files) -> dict[str, Any] | None:
    text = files.read(path)
    if text is None:
        return None
    try:
        read: dict[str, Any] = json.loads(text)
        version = int(read["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutError(
            f"{path} is not what aioproduce wrote: restore it, or ask who changed it", path=path
        ) from error
    if version > VERSION:
        raise LayoutError(f"{path} is of a newer aioproduce (version {version}): update this one", path=path)
    return read
