"""What a task tells the driver about what it wrote, and what the driver makes of it: a log line and a line of JSON.

A `TaskReport` is made by `task` in a worker process and travels as Spark's commit message; `datasource` sums them
when Spark calls `commit()` or `abort()`.

Invariants:

1. Only acknowledged records are counted as rows.
2. Percentiles cannot be summed: the sum tells the median of the tasks' medians, weighted by their rows, and the
   worst task's 99th percentile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from pyspark.sql.datasource import WriterCommitMessage


@final
@dataclass(kw_only=True)
class TaskReport(WriterCommitMessage):
    """What one attempt of a task wrote; not frozen, because Spark's class is not.

    Attributes:
        partition: Spark's partition of the rows.
        attempt: The attempt's number, from 0.
        rows: Records that were acknowledged; those that went to the dead-letter topic are not among them.
        bytes: Of their keys and values.
        batches: Arrow batches taken from Spark.
        requests: Produce requests that were sent.
        retries: Batches that were sent again.
        ack_p50_ms: Half of the batches were acknowledged within this time after they were handed over; 0: none.
        ack_p99_ms: Likewise 99 of 100.
        dead_letters: Rows that went to the dead-letter topic.
        dropped: Rows that were left out under `on.error=drop`.
        producer_id: The stamps' first half, as 32 hex digits; empty where nothing is stamped.
        next_row: The number after the highest that was given out; 0 where nothing is stamped.
        query_id: The streaming query's id, or the batch write's.
        batch_id: The micro-batch's number; -1 of a batch write.
        seconds: From the first row to the last acknowledgement.
        topics: Acknowledged records by topic.
    """

    partition: int
    attempt: int = 0
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0
    ack_p50_ms: float = 0.0
    ack_p99_ms: float = 0.0
    dead_letters: int = 0
    dropped: int = 0
    producer_id: str = ""
    next_row: int = 0
    query_id: str = ""
    batch_id: int = -1
    seconds: float = 0.0
    topics: dict[str, int] = field(default_factory=dict)
