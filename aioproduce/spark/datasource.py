"""Spark's interface of the sink: `format("aioproduce")`, batch and streaming, in SQL and through Spark Connect.

Spark creates an `AioproduceDataSource` in a separate process next to the driver and asks it for a writer. Options,
columns and topics are checked there, before any row moves. The writer is pickled; each task calls its `write()` in
a worker process (`task`), and a driver-side process later its `commit()` or `abort()`.

Invariants:

1. Everything that can be refused without looking at a row is refused when the writer is created.
2. A writer holds options and columns, and no producer or other live object, because it is pickled.
3. An unpickled data source does not contact the cluster: Spark creates the writer whose `commit()` it calls from
   one, when the rows are already acknowledged.
4. Each delivery mode has its own pair of writer classes; none checks which one it is.
5. `commit()` and `abort()` never fail: the records are in the topic, and Spark would send all of them again.
6. A batch write within `foreachBatch` is numbered by its query and micro-batch, which its tasks can see and the
   driver cannot. Elsewhere it is numbered by `write.id`, or by an id that the driver creates and the writer
   carries to all tasks.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aioproduce.config import ProducerConfig
from aioproduce.spark.columns import SinkColumns
from aioproduce.spark.errors import ColumnError, OptionError, SparkPipelineError
from aioproduce.spark.options import SinkOptions
from aioproduce.spark.report import TaskReport, summarize, tell
from aioproduce.spark.requirements import check_extra
from aioproduce.spark.topics import check_topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from aioproduce.spark.ids import TaskIdentity

NAME: Final = "aioproduce"


def register(spark: SparkSession) -> None:
    """Register `format("aioproduce")` in a session, if Spark does not find it by itself.

    Spark searches for packages named `pyspark_*` once, at the first use of a Python data source, on the driver's
    path. This function is for a session that began before aioproduce was installed, or with another path.

    Args:
        spark: The session; also one of Spark Connect.

    Raises:
        MissingExtraError: If the extra `spark` is not installed.

    Example:
        >>> aioproduce.spark.register(spark)
        >>> df.write.format("aioproduce").mode("append").options(**options).save()
    """
    check_extra("aioproduce.spark")
    spark.dataSource.register(AioproduceDataSource)


@final
class AioproduceDataSource(DataSource):
    """`format("aioproduce")`: writes to Kafka."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        check_extra("the sink of Spark")
        self._has_travelled = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _travelled, (dict(self.options),)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def schema(self) -> NoReturn:
        """Refuse to infer a schema, for `spark.read` and for SQL without a list of columns."""
        raise ColumnError(
            "aioproduce writes, and has no columns of its own: read with format('kafka'); in SQL list the columns, "
            "as in CREATE TEMPORARY VIEW sink (key STRING, value STRING) USING aioproduce OPTIONS (...)"
        )

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002
        """Refuse to read: this is a sink."""
        raise SparkPipelineError("aioproduce is a sink: read with format('kafka'), Spark's own Kafka source")

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refuse to read: this is a sink."""
        self.reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch write.

        Raises:
            SparkPipelineError: If the write is not possible; the message contains the remedy.
        """
        if overwrite:
            raise OptionError(
                "mode('overwrite') is refused: a topic cannot be overwritten, only appended to. Use .mode('append')"
            )
        options, columns = self._checked(schema)
        return AtLeastOnceWriter(options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of a micro-batch.

        In the output mode `complete`, which Spark calls overwriting, all rows are appended each time, as by Spark's
        own Kafka sink.

        Raises:
            SparkPipelineError: If the write is not possible; the message contains the remedy.
        """
        del overwrite
        options, columns = self._checked(schema)
        if options.write_id is not None:
            raise OptionError(
                f"option write.id={options.write_id!r} is for batch writes: a streaming query has its "
                "own id in its checkpoint. Leave it out",
                option="write.id",
            )
        return AtLeastOnceStreamWriter(options, columns)

    def _checked(self, schema: StructType) -> tuple[SinkOptions, SinkColumns]:
        options = SinkOptions.parse(self.options)
        columns = SinkColumns.of(schema, options)
        if not self._has_travelled:
            _check_metrics_path(options.metrics_path)
            check_topics(
                ProducerConfig.from_mapping(dict(options.kafka)),
                _topics_of(options),
                options.topic_timeout_ms / 1000,
            )
        return options, columns


def _travelled(options: Mapping[str, str]) -> AioproduceDataSource:
    """Unpickle a data source."""
    source = AioproduceDataSource(options)
    source._has_travelled = True
    return source


def _topics_of(options: SinkOptions) -> list[str]:
    """Return the topics that are known before any row.

    The default audit topic may be missing; `task` reports that.
    """
    marks = options.audit_topic if options.stamp else None
    return [topic for topic in (options.topic, options.dead_letter_topic, marks) if topic is not None]


def _check_metrics_path(path: str | None) -> None:
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        problem = f"there is no directory {folder} on the driver"
    elif os.path.isdir(path):
        problem = "it is a directory"
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        problem = "the driver may not write there"
    else:
        return
    raise OptionError(
        f"option metrics.path={path!r} cannot be written, {problem}: name a file on the driver's machine",
        option="metrics.path",
    )


class _AtLeastOnce:
    """A write in which each record arrives at least once, with the id of its original if it arrives again.

    Attributes:
        options: The options.
        columns: The positions of the columns.
        fresh_id: The name of the write if neither Spark nor the option `write.id` names it.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self.options = options
        self.columns = columns
        self.fresh_id: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write one task's rows; all of them are acknowledged when it returns.

        Raises:
            SparkPipelineError: If a row cannot be sent, or was not acknowledged.
        """
        from pyspark import TaskContext

        from aioproduce.spark.ids import TaskIdentity
        from aioproduce.spark.task import write_task

        identity = self._named(TaskIdentity.of_context(TaskContext.get()))
        return write_task(self.options, self.columns, iterator, identity)

    def _named(self, identity: TaskIdentity) -> TaskIdentity:
        """Return Spark's identity of the task, completed."""
        return identity


@final
class AtLeastOnceWriter(_AtLeastOnce, DataSourceArrowWriter):
    """The writer of a batch write."""

    def _named(self, identity: TaskIdentity) -> TaskIdentity:
        if identity.query_id is None:
            return replace(identity, query_id=self.fresh_id)
        # Within `foreachBatch`, where the same query and batch may have other writes.
        return replace(identity, write=self.options.write_id or self.options.topic or "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report the result."""
        tell(summarize(messages, is_aborted=False), self.options.metrics_path)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report the acknowledged records of a failed write, which are in the topic."""
        tell(summarize(messages, is_aborted=True), self.options.metrics_path)


@final
class AtLeastOnceStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """The writer of a micro-batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Report the result."""
        tell(summarize(messages, is_aborted=False, batch_id=batchId), self.options.metrics_path)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Report the acknowledged records of a failed micro-batch, which are in the topic and are sent again."""
        tell(summarize(messages, is_aborted=True, batch_id=batchId), self.options.metrics_path)
