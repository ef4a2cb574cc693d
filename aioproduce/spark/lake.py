"""What a lake records about the queries that land into it, in addition to its data.

    <lake>/_land/lake.json               the lake's own id: a checkpoint names its lake
    <lake>/_land/queries/<query id>.json a query's progress: its last complete batch, and where that ends
    <checkpoint>/aioproduce-land.json    this checkpoint's lake, and what it lands
    <checkpoint>/aioproduce-land.lock    held by the process that lands with it

Written by `landing` after each batch and before Spark commits it. So a lake itself knows which offsets it has, and
a lost checkpoint loses nothing: a new one continues from there (`starting`).

Invariants:

1. A batch whose number is at most its query's `batch` here is complete: all its directories are in place.
2. A batch with a higher number may be incomplete: its query repeats it. If that query is gone, the batch is removed
   (`remove_incomplete`).
3. Each query has one small file that is replaced: nothing grows with the number of batches.
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
"""The version of these files; newer ones are refused."""

NOTE_NAME: Final = "aioproduce-land.json"
LOCK_NAME: Final = "aioproduce-land.lock"

STAGING_PREFIX: Final = ".spark-staging-"
"""Spark's own prefix, for a write that replaces partitions; a random name follows."""

# The levels between that and a batch's directory: the names of Hadoop's committer and of the lake.
_STAGED: Final = ("_temporary", "task_", "attempt_", "table=", "topic=", "date=", "hour=")

Offsets = dict[str, dict[int, int]]


@final
@dataclass(frozen=True, slots=True)
class Lander:
    """A query that lands into a lake.

    Attributes:
        query_id: Its id.
        checkpoint: The absolute path of its checkpoint.
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
    """The description that `land` puts into a checkpoint.

    Attributes:
        lake: The id of the lake.
        topics: What is landed: names in order, or one pattern.
        is_pattern: Whether it is a pattern.
        audit_topic: The topic with the marks, or `None`.
    """

    lake: str
    topics: tuple[str, ...]
    is_pattern: bool
    audit_topic: str | None


def lake_id(lake: str, files: Files) -> str:
    """Return a lake's id; create one if it has none.

    Raises:
        LayoutError: If the file with the id is not one of ours.
    """
    path = join(lake, STATE_DIRECTORY, "lake.json")
    read = _read(path, files)
    if read is None:
        read = {"version": VERSION, "id": uuid.uuid4().hex}
        files.replace(path, json.dumps(read))
    return str(read["id"])


def landers_of(lake: str, files: Files) -> list[Lander]:
    """Return the queries that ever landed into a lake.

    Raises:
        LayoutError: If the file of one cannot be read.
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
    """Record a query's progress."""
    offsets = json.loads(format_offsets(lander.offsets))
    told = {"version": VERSION, **asdict(lander), "offsets": offsets}
    path = join(lake, STATE_DIRECTORY, "queries", f"{lander.query_id}.json")
    files.replace(path, json.dumps(told, separators=(",", ":")))


def held_offsets(landers: list[Lander]) -> Offsets:
    """Return the next offset of each partition that a lake lacks: the highest that any query reached."""
    held: Offsets = {}
    for lander in landers:
        for topic, partitions in lander.offsets.items():
            mine = held.setdefault(topic, {})
            for number, offset in partitions.items():
                mine[number] = max(offset, mine.get(number, 0))
    return held


def read_note(checkpoint: str, files: Files) -> CheckpointNote | None:
    """Return a checkpoint's description; `None` if it was not created by `land`, or does not exist.

    Raises:
        LayoutError: If it cannot be read.
    """
    read = _read(join(checkpoint, NOTE_NAME), files)
    if read is None:
        return None
    return CheckpointNote(read["lake"], tuple(read["topics"]), bool(read["is_pattern"]), read["audit_topic"])


def write_note(checkpoint: str, note: CheckpointNote, files: Files) -> None:
    """Write a checkpoint's description."""
    files.replace(join(checkpoint, NOTE_NAME), json.dumps({"version": VERSION, **asdict(note)}))


def remove_incomplete(lake: str, complete: Mapping[str, int], files: Files) -> list[str]:
    """Remove incomplete batches of queries that are gone: those above their last complete one.

    Args:
        lake: The lake.
        complete: The last complete batch of each such query, by its id.
        files: Its file system.

    Returns:
        The removed directories, relative to the lake.
    """
    removed = []
    for path in _batch_directories(lake, files):
        landed = LandedBatch.parse(path.rpartition("/batch=")[2])
        if landed is not None and landed.number > complete.get(landed.query_id, landed.number):
            files.delete(join(lake, path))
            removed.append(path)
    return removed


def remove_staging(lake: str, queries: Collection[str], files: Files) -> list[str]:
    """Remove what killed batches of some queries had written to hidden directories, which Spark never does.

    One batch below each such directory identifies its query; a directory without a batch is left alone.

    Args:
        lake: The lake.
        queries: The ids of queries that are not running.
        files: Its file system.

    Returns:
        The removed directories, relative to the lake.
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
    """Return a batch somewhere below: of a task that is writing, of one that is done, or of all of them."""
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
    """Return each directory `batch=...` of a lake, relative to it."""
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
            f"{path} was changed after aioproduce wrote it: restore it, or find out who changed it", path=path
        ) from error
    if version > VERSION:
        raise LayoutError(f"{path} is of a newer aioproduce (version {version}): update this one", path=path)
    return read
