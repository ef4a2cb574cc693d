"""One task of the sink: sends the rows of one partition of a DataFrame, from Spark's iterator on.

Used by `datasource` in a Python worker process, on its main thread. That thread reads Spark's iterator and prepares
Arrow batches; the loop thread of `runtime` sends them. The loop thread never reads the iterator, which blocks on
the JVM, because heartbeats, lingers and timeouts would stop.

    Spark's iterator ──▶ order ──▶ stamping ──▶ pacing ──▶ │ loop thread: sending ──▶ Producer.send_arrow()
      Arrow batches      main thread                       │    ├─▶ dead_letters
                                                           │    └─▶ marks, when all is acknowledged

Invariants:

1. When `write_task()` returns, every row and the task's closing mark are acknowledged, or the user's policy refused
   the row. Worker processes end without notice, so nothing may be left.
2. When it raises, its producer is dropped with everything in flight; the next attempt starts with a new one.
3. No wait here is without a bound, except for Spark's iterator.
4. At most `inflight.batches` Arrow batches (or pieces of them, if a rate is limited) are in flight; meanwhile
   nothing is read from Spark.
5. Row numbers count all rows of Spark's iterator, including refused ones: a replay with another `on.error` writes
   the same ids.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aioproduce.audit.stamp import STAMP_SIZE
from aioproduce.config import ProducerConfig
from aioproduce.spark.dead_letters import DeadLetters
from aioproduce.spark.errors import RowError, SparkPipelineError, WriteError
from aioproduce.spark.marks import closing_mark, publish
from aioproduce.spark.order import sorted_rows
from aioproduce.spark.pacing import Pacer
from aioproduce.spark.report import TaskReport
from aioproduce.spark.runtime import Runtime
from aioproduce.spark.sending import Outcome, Rows, TaskSending
from aioproduce.spark.stamping import HeaderMaker, stamps_of_column

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Iterable, Iterator

    from aioproduce.producer.producer import Producer
    from aioproduce.spark.columns import SinkColumns
    from aioproduce.spark.ids import TaskIdentity
    from aioproduce.spark.options import SinkOptions

_ROLES: Final = ("key", "value", "headers", "topic", "partition", "timestamp")

# How much longer than a call's own bound its answer may take before the loop is considered stuck.
_GRACE: Final = 15.0


def write_task(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[Any], identity: TaskIdentity
) -> TaskReport:
    """Write the rows of one task.

    Args:
        options: The write's options.
        columns: The columns of the batches.
        batches: `pyarrow.RecordBatch`es from Spark.
        identity: The task's identity.

    Returns:
        The report; all rows are acknowledged.

    Raises:
        RowError: If a row can never be sent, and `on.error` is `fail`.
        WriteError: If not all rows were acknowledged.
        SparkPipelineError: For the other errors of the tree.
    """
    runtime = Runtime.here()
    try:
        return _Task(options, columns, identity, runtime).write(batches)
    except BaseException:
        runtime.drop(options.kafka)
        raise


@final
class _Task:
    """The state of one task while it writes."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, identity: TaskIdentity, runtime: Runtime
    ) -> None:
        self._options = options
        self._columns = columns
        self._identity = identity
        self._runtime = runtime
        self._bound = ProducerConfig.from_mapping(dict(options.kafka)).delivery_timeout
        self._producer_id = b""
        self._run = (options.write_id if identity.write is None else None) or identity.query_id or ""
        if options.stamp and options.id_column is None:
            self._producer_id = identity.producer_id(options.write_id)
        self._headers = HeaderMaker(options.headers)
        self._pacer = Pacer(options.rate_limit_records, options.rate_limit_bytes)
        self._producer = runtime.producer(options.kafka)
        dead_letters = None
        if options.on_error == "dead_letter":
            assert options.dead_letter_topic is not None
            dead_letters = DeadLetters(self._producer, options.dead_letter_topic, identity, self._run)
        self._sending = TaskSending(
            producer=self._producer,
            topic=options.topic,
            policy=options.on_error,
            dead_letters=dead_letters,
            bound=self._bound,
            headers=options.headers,
        )
        self._next_row = 0
        self._batches = 0
        self._under_way: deque[concurrent.futures.Future[Outcome]] = deque()
        self._outcomes = Outcome()
        self._acks: list[float] = []

    def write(self, batches: Iterable[Any]) -> TaskReport:
        """Write the rows, as `write_task()` does."""
        began_at = time.perf_counter()
        before = self._runtime.run(_GRACE, _counts, self._producer)
        if self._options.row_order == "sort":
            batches = sorted_rows(batches)
        try:
            for batch in batches:
                self._batches += batch.num_rows > 0
                for piece in self._pieces(batch):
                    self._hand_over(piece)
            self._finish()
        except SparkPipelineError as error:
            if isinstance(error, WriteError):
                error.partition = self._identity.partition_id
                error.acknowledged = self._outcomes.topics.total()
            raise
        except Exception as error:
            raise WriteError(
                f"{self._identity} failed: {error}",
                partition=self._identity.partition_id,
                acknowledged=self._outcomes.topics.total(),
                unknown=self._next_row - self._outcomes.topics.total() - len(self._outcomes.refused),
            ) from error
        after = self._runtime.run(_GRACE, _counts, self._producer)
        return self._report(
            requests=after[0] - before[0],
            retries=after[1] - before[1],
            seconds=time.perf_counter() - began_at,
        )

    # -- rows ---

    def _pieces(self, batch: Any) -> Iterator[Any]:
        """Yield an Arrow batch in as many pieces as the rate limits require."""
        if not batch.num_rows or not self._pacer.has_limit:
            return iter([batch] if batch.num_rows else [])
        places = (self._columns.value, self._columns.key)
        size = sum(_size(batch.column(place)) for place in places if place is not None)
        return (batch.slice(first, count) for first, count in self._pacer.pieces(batch.num_rows, size))

    def _hand_over(self, batch: Any) -> None:
        rows = self._prepared(batch)
        self._pacer.wait(len(rows), rows.size)
        while self._under_way and (
            len(self._under_way) >= self._options.inflight_batches or self._under_way[0].done()
        ):
            self._take_outcome()
        self._under_way.append(self._runtime.submit(self._sending.send, rows))

    def _take_outcome(self) -> None:
        outcome = self._runtime.result(self._under_way[0], self._bound + _GRACE)
        self._under_way.popleft()
        self._acks.append(outcome.seconds)
        self._outcomes.topics.update(outcome.topics)
        self._outcomes.size += outcome.size
        self._outcomes.refused += outcome.refused

    def _finish(self) -> None:
        if self._under_way:
            self._runtime.run(self._bound + _GRACE, self._sending.flush)
        while self._under_way:
            self._take_outcome()
        # Ids of a column are for one record each, with number 0. The user's own numbers have gaps, which an audit
        # would report as losses. So there is no mark for them, nor for a task without rows.
        if self._producer_id and self._next_row:
            mark = closing_mark(
                self._producer_id,
                self._identity,
                self._run,
                next_row=self._next_row,
                failed=self._outcomes.refused,
                topics=self._outcomes.topics,
                client_id=self._producer.config.client_id,
            )
            self._runtime.run(
                self._bound + _GRACE,
                publish,
                self._producer,
                self._options.marks_topic,
                mark,
                is_named=self._options.audit_topic is not None,
            )

    def _prepared(self, batch: Any) -> Rows:
        """Return Spark's Arrow batch as rows to send."""
        count = batch.num_rows
        first = self._next_row
        self._next_row += count
        columns = {
            role: batch.column(place)
            for role in _ROLES
            if (place := getattr(self._columns, role)) is not None
        }
        rows = Rows(
            None,
            np.arange(first, first + count),
            _size(columns["value"]) + _size(columns.get("key")),
        )
        ids = None if self._columns.id is None else batch.column(self._columns.id)
        self._put_headers(rows, columns, ids, count)
        rows.batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        rows.make_ready(has_topic=self._options.topic is not None)
        return rows

    def _put_headers(self, rows: Rows, columns: dict[str, Any], ids: Any, count: int) -> None:
        """Add stamps and static headers: encoded, or after those of the DataFrame."""
        own = columns.get("headers")
        first = int(rows.numbers[0])
        if not self._options.stamp:
            if own is not None:
                columns["headers"] = self._headers.joined(own, None)
                rows.added_headers = len(self._options.headers)
            return
        if own is None:
            rows.encoded = (
                self._headers.numbered(self._producer_id, first, count)
                if ids is None
                else self._headers.stamped(self._stamps_of_column(ids, first))
            )
            rows.stamps = rows.encoded[:, -STAMP_SIZE:]
            return
        rows.stamps = (
            HeaderMaker().numbered(self._producer_id, first, count)[:, -STAMP_SIZE:]
            if ids is None
            else self._stamps_of_column(ids, first)
        )
        columns["headers"] = self._headers.joined(own, rows.stamps)
        rows.added_headers = len(self._options.headers) + 1

    def _stamps_of_column(self, ids: Any, first: int) -> np.ndarray[Any, Any]:
        if ids.null_count:
            row = first + pc.index(ids.is_null(), True).as_py()
            name = self._options.id_column
            raise RowError(
                f"row {row} has a null in column {name!r}, which is the 'id.column': filter such "
                "rows out, or give them ids",
                row=row,
                column=name,
            )
        return stamps_of_column(ids, self._options.write_id or self._options.topic or "")

    # -- the report ---

    def _report(self, *, requests: int, retries: int, seconds: float) -> TaskReport:
        refused = len(self._outcomes.refused)
        is_dead_letter = self._options.on_error == "dead_letter"
        acks = sorted(self._acks)
        return TaskReport(
            partition=self._identity.partition_id,
            attempt=self._identity.attempt,
            rows=self._outcomes.topics.total(),
            bytes=self._outcomes.size,
            batches=self._batches,
            requests=requests,
            retries=retries,
            ack_p50_ms=_percentile(acks, 0.50) * 1000,
            ack_p99_ms=_percentile(acks, 0.99) * 1000,
            dead_letters=refused if is_dead_letter else 0,
            dropped=0 if is_dead_letter else refused,
            producer_id=self._producer_id.hex(),
            next_row=self._next_row if self._producer_id else 0,
            query_id=self._run,
            batch_id=-1 if self._identity.batch_id is None else self._identity.batch_id,
            seconds=seconds,
            topics=dict(Counter(self._outcomes.topics)),
        )


async def _counts(producer: Producer[Any, Any]) -> tuple[int, int]:
    """Return the number of Produce requests and of retried records since the producer's start."""
    metrics = producer.metrics()
    return metrics.histogram("request-latency").count, int(metrics.value("record-retry-total"))


def _size(column: Any) -> int:
    """Return the bytes of a column of binary or string."""
    if column is None or pa.types.is_null(column.type):
        return 0
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed; 0 if there are none."""
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)] if ordered else 0.0
