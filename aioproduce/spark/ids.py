"""Who a task is: the identity that Spark gives it, and the 16 bytes under which its rows are numbered.

Called by `task` for every task, and by whoever wants to find a task's records again (the tests, an audit).

Invariants:

1. `task_id()` depends on nothing but its arguments: not on the attempt, the process, the machine or the version, so
   that a replay writes the ids of the first time. What it hashes is written down here and never changes.
2. Two different (run, batch, partition) never give the same text to hash.
3. Writes of one micro-batch, as `foreachBatch` has them, are told apart by `write.id` or by their topic: with the
   same ids, a reader that drops duplicates would drop what was written to the second topic, and an audit would take
   the one for the other. Two writes to one topic there need `write.id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self, final

from aioproduce.spark.errors import OptionError

TASK_ID_SIZE: Final = 16
"""Bytes of `task_id()`: the first part of a stamp."""

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


def task_id(run: str, batch: int, partition: int) -> bytes:
    r"""The id under which the rows of one task are numbered.

    BLAKE2b with 128 bits of the text `<run>\n<batch>\n<partition>` in UTF-8, the numbers in decimal, as
    `printf '%s\n%d\n%d' RUN BATCH PARTITION | b2sum -l 128` prints it. The numbers hold no line end, so the text is
    of one (run, batch, partition) only, whatever is in `run`.

    Args:
        run: The id of the streaming query, or what the option `write.id` says.
        batch: The micro-batch; 0 for a batch write.
        partition: Spark's partition.

    Returns:
        16 bytes.
    """
    text = f"{run}\n{batch}\n{partition}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=TASK_ID_SIZE).digest()


def record_id(scope: str, value: bytes) -> bytes:
    r"""The id of a record that is told apart by a column of the user's, wherever it runs and in whatever order.

    BLAKE2b with 128 bits of `<scope>\n<value>`.

    Args:
        scope: What the values are unique in: `write.id`, or else the option `topic`; empty where neither is given.
        value: What the column holds: text as UTF-8, an integer in decimal.
    """
    text = scope.encode("utf-8", "surrogatepass") + b"\n" + value
    return blake2b(text, digest_size=TASK_ID_SIZE).digest()


@final
@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """What Spark says of the task at hand.

    Attributes:
        query_id: The streaming query's id, which is the same after each restart from its checkpoint; None in
            a batch write.
        batch_id: The micro-batch, from 0; None in a batch write.
        partition_id: The partition of the DataFrame, from 0.
        attempt: How often this task was tried before: 0 the first time.
        task_attempt_id: A number that no other attempt of this application has.
        write: Of a batch write within `foreachBatch`: what tells it from the other writes there; None elsewhere.
    """

    query_id: str | None
    batch_id: int | None
    partition_id: int
    attempt: int = 0
    task_attempt_id: int = 0
    write: str | None = None

    @classmethod
    def of_context(cls, context: Any) -> Self:
        """The identity that a `pyspark.TaskContext` tells.

        Within `foreachBatch`, a batch write has the query and the batch of the stream that it is part of.
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
        r"""What names the write over its retries and replays: `write.id` where it is given, else the query's id.

        Of a write within `foreachBatch` it is `<query>\n<write>`: batches are numbered from 0 in each query, so
        a name alone would be that of another query's rows too.

        Raises:
            OptionError: there is neither, so rows have no id that a retry could repeat.
        """
        if self.write is not None:
            return f"{self.query_id}\n{self.write}"
        run = write_id or self.query_id
        if not run:
            raise OptionError(
                "a batch write has no query id to make record ids of: give option 'write.id', which must be the "
                "same when this write is run again, or 'stamp' = 'off'",
                option="write.id",
            )
        return run

    def producer_id(self, write_id: str | None) -> bytes:
        """The id under which this task's rows are numbered; see `task_id()`.

        Raises:
            OptionError: as `run_id()`.
        """
        return task_id(self.run_id(write_id), self.batch_id or 0, self.partition_id)

    def __str__(self) -> str:
        parts = [] if self.query_id is None else [f"query {self.query_id}"]
        if self.batch_id is not None:
            parts.append(f"batch {self.batch_id}")
        parts += [f"partition {self.partition_id}", f"attempt {self.attempt}"]
        return ", ".join(parts)
