"""What the checkpoint of a Spark query says: whose it is, and what it has committed.

Read by `land` before it starts, by `compact`, which may touch only what no query can write again, and by tests.
Needs no JVM where the checkpoint is local.

Spark's format, since 2.0 (StreamMetadata, OffsetSeqLog, CommitLog): `metadata` is a line of JSON with the query's
id; `offsets/<n>` is written before micro-batch n runs and `commits/<n>` after it; an offsets file is a version
(`v1`), a line of JSON about the batch, and a line per source: the offsets that the batch ends with.

Invariants:

1. A batch whose commit is there is never run again: a query goes on after the last commit.
2. At most one batch is planned and not committed, the next one.
3. What cannot be read is an error that names the file, never an empty checkpoint: that would start all over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.spark.errors import CheckpointError
from aioproduce.spark.files import files_of, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from aioproduce.spark.files import Files

_REMEDY: Final = "restore the checkpoint, or delete it and start with --starting-offsets lake"


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is there.

    Attributes:
        path: Where.
        query_id: The id of the query that it belongs to.
        committed: The last micro-batch that is done for good; -1 before the first.
        planned: The last one whose offsets are written: `committed`, or the next, which will be run again.
    """

    path: str
    query_id: str
    committed: int
    planned: int
    _files: Files

    @property
    def has_unfinished(self) -> bool:
        """Whether the query will begin with running a batch once more, or for the first time."""
        return self.planned > self.committed

    def end_offsets(self, number: int) -> dict[str, dict[int, int]]:
        """Where a planned micro-batch of a query over Kafka ends: the next offset, by topic and partition.

        Raises:
            CheckpointError: there is no such file, or it is not of a query with Kafka as its only source.
        """
        path = join(self.path, "offsets", str(number))
        text = self._files.read(path)
        if text is None:
            raise CheckpointError(f"{path} is missing: {_REMEDY}", path=path)
        lines = text.strip().splitlines()
        if len(lines) != 3 or not lines[0].startswith("v"):
            raise CheckpointError(f"{path} is not of a query with one source: {_REMEDY}", path=path)
        return parse_offsets(lines[2], path)


def read_checkpoint(path: str, spark: SparkSession | None = None) -> Checkpoint | None:
    """Read a checkpoint; `None` where no query has ever started with it.

    Args:
        path: Its directory.
        spark: Needed where that is not local.

    Raises:
        CheckpointError: it is damaged: commits or offsets without the query's id, or a file that is not Spark's.
    """
    files = files_of(path, spark)
    text = files.read(join(path, "metadata"))
    committed = _last(files, join(path, "commits"))
    planned = _last(files, join(path, "offsets"))
    if text is None:
        # Where its sources begin is kept apart: a new query would heed it, and land once more what is landed.
        if planned >= 0 or committed >= 0 or files.names(join(path, "sources")):
            raise CheckpointError(
                f"{path} has batches or sources and no file `metadata`, so nobody knows whose they are: {_REMEDY}",
                path=path,
            )
        return None
    try:
        query_id = json.loads(text)["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{join(path, 'metadata')} is not Spark's, which would be {{'id': ...}}: {_REMEDY}", path=path
        ) from error
    return Checkpoint(path, query_id, committed, planned, files)


def parse_offsets(text: str, path: str | None = None) -> dict[str, dict[int, int]]:
    """Offsets as Spark's Kafka source writes them: `{"orders":{"0":17}}`.

    Raises:
        CheckpointError: the text is not that.
    """
    try:
        read = json.loads(text)
        return {
            topic: {int(number): int(offset) for number, offset in partitions.items()}
            for topic, partitions in read.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"no offsets of Kafka's: {text[:200]!r}", path=path) from error


def format_offsets(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """The same, written."""
    ordered: dict[str, Any] = {
        topic: {str(number): partitions[number] for number in sorted(partitions)}
        for topic, partitions in sorted(offsets.items())
    }
    return json.dumps(ordered, separators=(",", ":"))


def _last(files: Files, path: str) -> int:
    """The highest number that a file of a log has; Spark's own temporary files begin with a dot."""
    return max((int(name) for name in files.names(path) if name.isdecimal()), default=-1)
