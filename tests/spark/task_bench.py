"""A task of the sink without Spark: made-up rows, a made-up identity, and a FakeCluster on real sockets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from aioproduce.spark.columns import SinkColumns
from aioproduce.spark.ids import TaskIdentity
from aioproduce.spark.options import SinkOptions
from aioproduce.spark.runtime import Runtime
from aioproduce.spark.task import write_task
from aioproduce.testing import ClusterThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioproduce.spark.report import TaskReport

AUDIT = "aioproduce.audit"
QUERY = "5f0c9f2e-7a55-4d4c-9b5e-1f2a3b4c5d6e"


@contextmanager
def cluster(**topics: int) -> Iterator[ClusterThread]:
    """A cluster with these topics, and nothing left of it or of the runtime that wrote to it."""
    with ClusterThread(
        brokers=1, topics={AUDIT: 1, **(topics or {"t": 3})}, auto_create_topics=False
    ) as found:
        try:
            yield found
        finally:
            Runtime.here().close()


def options_for(found: ClusterThread, **options: str | None) -> SinkOptions:
    """The sink's options; `_` in a name stands for a dot, and None takes one of ours out."""
    named = {"topic": "t", **{name.replace("_", "."): value for name, value in options.items()}}
    given = {name: value for name, value in named.items() if value is not None}
    return SinkOptions.parse({"kafka.bootstrap.servers": found.bootstrap_servers, **given})


def identity(batch: int = 0, partition: int = 0, attempt: int = 0) -> TaskIdentity:
    return TaskIdentity(QUERY, batch, partition, attempt, 1000 + attempt)


def rows(count: int, batch_size: int = 100, **columns: Any) -> list[pa.RecordBatch]:
    """Arrow batches of numbered values, with more columns where they are given whole."""
    table = pa.table({"value": [b"row-%d" % row for row in range(count)], **columns})
    return list(table.to_batches(max_chunksize=batch_size))


def write(options: SinkOptions, batches: Iterable[Any], task: TaskIdentity | None = None) -> TaskReport:
    held = list(batches)
    return write_task(options, columns_of(held[0].schema, options), iter(held), task or identity())


def columns_of(schema: Any, options: SinkOptions) -> SinkColumns:
    """What the driver makes of the schema."""
    return SinkColumns.of(from_arrow_schema(schema), options)


def by_value(found: ClusterThread, topic: str = "t") -> dict[bytes | None, dict[str, bytes | None]]:
    """The headers of each record of a topic, by its value."""
    return {record.value: dict(record.headers) for record in found.records(topic)}
