"""Reads the checkpoint of a Spark query: its query and what that has committed.

Used by `land` before it starts, by `compact`, which may only touch what no query can write again, and by tests.
Needs no JVM if the checkpoint is local.

Spark's format, since 2.0 (StreamMetadata, OffsetSeqLog, CommitLog): `metadata` is a line of JSON with the query's
id. `offsets/<n>` is written before micro-batch n runs, and `commits/<n>` after it. An offsets file has a version
(`v1`), a line of JSON about the batch, and a line per source: the offsets at which the batch ends.

Invariants:

1. A committed batch is never run again: a query continues after its last commit.
2. At most one batch is planned and not committed, the next one.
3. An unreadable file is an error that names it, never an empty checkpoint, with which a query would start all over.
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
    """An existing checkpoint.

    Attributes:
        path: The checkpoint's directory.
        query_id: The id of its query.
        committed: The last committed micro-batch; -1 before the first.
        planned: The last micro-batch with offsets: `committed`, or the next one, which will be run again.
    """

    path: str
    query_id: str
    committed: int
    planned: int
    _files: Files

    @property
    def has_unfinished(self) -> bool:
        """Whether the query will begin with a batch that is planned and not committed."""
        return self.planned > self.committed

    def end_offsets(self, number: int) -> dict[str, dict[int, int]]:
        """Return where a planned micro-batch of a query over Kafka ends: the next offset, by topic and partition.

        Raises:
            CheckpointError: If there is no such file, or if Kafka is not the query's only source.
        """
        path = join(self.path, "offsets", str(number))
        text = self._files.read(path)
        if text is None:
            raise CheckpointError(f"{path} is missing: {_REMEDY}", path=path)
        lines = text.strip().splitlines()
        if len(lines) != 3 or not lines[0].startswith("v"):
            raise CheckpointError(f"{path} does not belong to a query with one source: {_REMEDY}", path=path)
        return parse_offsets(lines[2], path)


def read_checkpoint(path: str, spark: SparkSession | None = None) -> Checkpoint | None:
    """Read a checkpoint; return `None` if no query was ever started with it.

    Args:
        path: Its directory.
        spark: Needed if the directory is not local.

    Raises:
        CheckpointError: If it is damaged: commits or offsets without the query's id, or a file that is not Spark's.
    """
    files = files_of(path, spark)
    text = files.read(join(path, "metadata"))
    committed = _last(files, join(path, "commits"))
    planned = _last(files, join(path, "offsets"))
    if text is None:
        # The sources' start offsets are stored separately: a new query would use them, and land landed records
        # again.
        if planned >= 0 or committed >= 0 or files.names(join(path, "sources")):
            raise CheckpointError(
                f"{path} has batches or sources but no file `metadata`, so their query is unknown: {_REMEDY}",
                path=path,
            )
        return None
    try:
        query_id = json.loads(text)["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{join(path, 'metadata')} is not Spark's, which has the form {{'id': ...}}: {_REMEDY}", path=path
        ) from error
    return Checkpoint(path, query_id, committed, planned, files)


def parse_offsets(text: str, path: str | None = None) -> dict[str, dict[int, int]]:
    """Parse offsets in the format of Spark's Kafka source: `{"orders":{"0":17}}`.

    Raises:
        CheckpointError: If the text has another format.
    """
    try:
        read = json.loads(text)
        return {
            topic: {int(number): int(offset) for number, offset in partitions.items()}
            for topic, partitions in read.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"not offsets of Kafka: {text[:200]!r}", path=path) from error


def format_offsets(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Write offsets in the format that `parse_offsets()` reads."""
    ordered: dict[str, Any] = {
        topic: {str(number): partitions[number] for number in sorted(partitions)}
        for topic, partitions in sorted(offsets.items())
    }
    return json.dumps(ordered, separators=(",", ":"))


def _last(files: Files, path: str) -> int:
    """Return the highest number of a file in a log; Spark's own temporary files begin with a dot."""
    return max((int(name) for name in files.names(path) if name.isdecimal()), default=-1)
