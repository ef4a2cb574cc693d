"""Writes one micro-batch into the lake, for Spark's `foreachBatch`.

Invariants:

1. One pass over the batch: data, marks and quarantine are one Parquet write, with the table as outermost directory.
2. A repeated batch replaces its earlier files, by dynamic partition overwrite: each of its directories has its
   name, and its rows are the same offsets whatever happened meanwhile.
3. Files are written under a hidden name, `.spark-staging-...`, and their directories are renamed into place when
   all are complete: a reader never sees half a file.
4. The lake's own record of the batch is written last, before Spark commits it (`lake`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from aioproduce.spark.checkpoint import read_checkpoint
from aioproduce.spark.errors import CheckpointError
from aioproduce.spark.files import files_of
from aioproduce.spark.lake import Lander, landers_of, write_lander
from aioproduce.spark.layout import PARTITION_COLUMNS, LandedBatch
from aioproduce.spark.records import with_ids, with_partitions, with_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

SETTINGS: Final = {
    # A task keeps a file open for each directory, instead of sorting its rows by directory first: they come in
    # order of time, for a few hours at most. Rows of further directories are sorted.
    "spark.sql.maxConcurrentOutputFileWriters": "24",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""The required settings of a session."""

_WRITE_OPTIONS: Final = {
    "partitionOverwriteMode": "dynamic",
    # No minimum and maximum of columns without a meaningful order: each value would be compared byte by byte.
    **{
        f"parquet.column.statistics.enabled#{column}": "false"
        for column in ("key", "value", "headers.list.element.key", "headers.list.element.value")
    },
    "parquet.size.statistics.enabled": "false",
    # The share of the heap for all open files together, at most 24 per task. The default is nearly all of it, and a
    # batch of large records over many hours would leave nothing for Kafka's fetches.
    "parquet.memory.pool.ratio": "0.5",
    # A dictionary of nearly unique values would be built in vain for each page.
    **{
        f"parquet.enable.dictionary#{column}": "false"
        for column in (
            "key",
            "value",
            "offset",
            "timestamp",
            "sequence",
            "checksum",
            "headers.list.element.value",
        )
    },
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@final
@dataclass(slots=True)
class Landing:
    """Lands the batches of one query.

    lake: The lake's directory.
    checkpoint: The query's checkpoint, as a complete path.
    audit_topic: The topic with the marks, or `None`.
    compression: Parquet's codec.
    options: Further options of Parquet.
    """

    lake: str
    checkpoint: str
    audit_topic: str | None
    compression: str = "zstd"
    options: Mapping[str, str] | None = None
    _is_known: bool = False

    def write(self, records: DataFrame, number: int) -> None:
        """Land a batch; called by Spark once for each batch, and again if Spark did not commit it."""
        spark = records.sparkSession
        state = read_checkpoint(self.checkpoint, spark)
        if state is None:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} was deleted while its query was running: start again",
                path=self.checkpoint,
            )
        self._announce(spark, state.query_id, number)
        batch = LandedBatch(state.query_id, number)
        rows = with_partitions(with_table(with_ids(records), self.audit_topic), batch.name)
        writer = rows.write.mode("overwrite").partitionBy(*PARTITION_COLUMNS)
        writer = writer.options(**_WRITE_OPTIONS, **(self.options or {}), compression=self.compression)
        writer.parquet(self.lake)
        done = Lander(state.query_id, self.checkpoint, number, state.end_offsets(number))
        write_lander(self.lake, done, files_of(self.lake, spark))

    def _announce(self, spark: SparkSession, query_id: str, number: int) -> None:
        """Record that there is such a query before it leaves anything here."""
        if self._is_known:
            return
        files = files_of(self.lake, spark)
        if all(lander.query_id != query_id for lander in landers_of(self.lake, files)):
            write_lander(self.lake, Lander(query_id, self.checkpoint, number - 1, {}), files)
        self._is_known = True
