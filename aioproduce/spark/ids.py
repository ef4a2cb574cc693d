"""The identity of a task, as Spark reports it, and the 16 bytes that identify its rows' numbers.

Used by `task` for every task, and by code that looks up a task's records (the tests, an audit).

Invariants:

1. `task_id()` depends only on its arguments: not on the attempt, the process, the machine or the version, so that a
   replay writes the same ids. The hashed text is documented here and never changes.
2. Two different (run, batch, partition) never have the same hashed text.
3. Several writes of one micro-batch, as `foreachBatch` can make, are distinguished by `write.id` or by their topic.
   With the same ids, a reader that drops duplicates would drop records of the second topic, and an audit would
   confuse the two. Two writes to one topic there need `write.id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self, final

from aioproduce.spark.errors import OptionError

TASK_ID_SIZE: Final = 16
"""Bytes of `task_id()`, the first part of a stamp."""

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


def task_id(run: str, batch: int, partition: int) -> bytes:
    r"""Return the id under which the rows of one task are numbered.

    BLAKE2b with 128 bits of the text `<run>\n<batch>\n<partition>` in UTF-8, the numbers in decimal, as
    `printf '%s\n%d\n%d' RUN BATCH PARTITION | b2sum -l 128` prints it. The numbers contain no line end, so the text
    belongs to only one (run, batch, partition), whatever `run` is.

    Args:
        run: The id of the streaming query, or the option `write.id`.
        batch: The micro-batch; 0 for a batch write.
        partition: Spark's partition.

    Returns:
        16 bytes.
    """
    text = f"{run}\n{batch}\n{partition}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=TASK_ID_SIZE).digest()


def record_id(scope: str, value: bytes) -> bytes:
    r"""Return the id of a record that a user's column identifies, wherever and in whatever order it is sent.

    BLAKE2b with 128 bits of `<scope>\n<value>`.

    Args:
        scope: The scope in which values are unique: `write.id`, or else the option `topic`; empty if neither is
            set.
        value: The column's value: text as UTF-8, an integer in decimal.
    """
    text = scope.encode("utf-8", "surrogatepass") + b"\n" + value
    return blake2b(text, digest_size=TASK_ID_SIZE).digest()


@final
@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Spark's description of the current task.

    Attributes:
        query_id: The streaming query's id, which stays the same after each restart from its checkpoint; None in
            a batch write.
        batch_id: The micro-batch, from 0; None in a batch write.
        partition_id: The partition of the DataFrame, from 0.
        attempt: How often this task was tried before: 0 the first time.
        task_attempt_id: A number that is unique among the attempts of this application.
        write: The name of a batch write within `foreachBatch`, which distinguishes it from others; None elsewhere.
    """

    query_id: str | None
    batch_id: int | None
    partition_id: int
    attempt: int = 0
    task_attempt_id: int = 0
    write: str | None = None

    @classmethod
    def of_context(cls, context: Any) -> Self:
        """Return the identity in a `pyspark.TaskContext`.

        Within `foreachBatch`, a batch write has the query and the batch of its stream.
        """
        batch = context.getLocalProperty(_BATCH_ID)
        query = context.getLocalProperty(_QUERY_ID)
        return cls(
            query_id=query or None,
            batch_id=None if batch is None or batch == "" else int(batch),
            partition_id=context.partitionId(),
            attempt=context.attemptNumber(),
            task_attempt_id=context.taskAttemptId(),
        )

    def run_id(self, write_id: str | None) -> str:
        r"""Return the name of the write over its retries and replays: `write.id` if it is set, else the query's id.

        For a write within `foreachBatch` it is `<query>\n<write>`: batches are numbered from 0 in each query, so
        the name alone would also be that of another query's rows.

        Raises:
            OptionError: If there is neither, so that a retry could not repeat the ids of rows.
        """
        if self.write is not None:
            return f"{self.query_id}\n{self.write}"
        run = write_id or self.query_id
        if not run:
            raise OptionError(
                "a batch write has no query id for record ids: set the option 'write.id', which must be "
                "the same when this write is run again, or 'stamp' = 'off'",
                option="write.id",
            )
        return run

    def producer_id(self, write_id: str | None) -> bytes:
        """Return the id under which this task's rows are numbered; see `task_id()`.

        Raises:
            OptionError: If `run_id()` raises it.
        """
        return task_id(self.run_id(write_id), self.batch_id or 0, self.partition_id)

    def __str__(self) -> str:
        parts = [] if self.query_id is None else [f"query {self.query_id}"]
        if self.batch_id is not None:
            parts.append(f"batch {self.batch_id}")
        parts += [f"partition {self.partition_id}", f"attempt {self.attempt}"]
        return ", ".join(parts)
