"""Write one micro-batch into the lake: what `land` gives to Spark's `foreachBatch`.

Invariants:

1. One pass over the batch: data, marks and quarantine are one Parquet write, with the table as outermost directory.
2. A batch that is written again replaces what it wrote before, by dynamic partition overwrite: each of its
   directories carries its name, and its rows are those offsets whatever happened meanwhile.
3. Files are written under a hidden name, `.spark-staging-...`, and their directories renamed into place when all
   are whole: a reader never sees half a file.
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
    # A file is open for each directory that a task meets, instead of its rows sorted by directory first: they come
    # in the order of time, a few hours at most. What is more than this is sorted.
    "spark.sql.maxConcurrentOutputFileWriters": "24",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""What a session must be set to."""

_WRITE_OPTIONS: Final = {
    "partitionOverwriteMode": "dynamic",
    # Least and greatest of what nobody looks for by order: each value would be compared with both, byte by byte.
    **{
        f"parquet.column.statistics.enabled#{column}": "false"
        for column in ("key", "value", "headers.list.element.key", "headers.list.element.value")
    },
    "parquet.size.statistics.enabled": "false",
    # Of the heap, for all open files together: 24 of each task at most. By default it is nearly all, and a batch of
    # large records over many hours would leave nothing for Kafka's fetches.
    "parquet.memory.pool.ratio": "0.5",
    # Of what is nearly always different a dictionary is built in vain, one page after the other.
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

    Attributes:
        lake: The lake's directory.
        checkpoint: The query's, complete.
        audit_topic: Whose records are marks, or `None`.
        compression: Parquet's codec.
        options: More of Parquet's options.
    """

    lake: str
    checkpoint: str
    audit_topic: str | None
    compression: str = "zstd"
    options: Mapping[str, str] | None = None
    _is_known: bool = False

    def write(self, records: DataFrame, number: int) -> None:
        """Land a batch; called by Spark, once for each batch and again for one that it does not know as done."""
        spark = records.sparkSession
        state = read_checkpoint(self.checkpoint, spark)
        if state is None:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} was deleted while its query ran: start again",
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
        """Say that there is such a query before it leaves anything here."""
        if self._is_known:
            return
        files = files_of(self.lake, spark)
        if all(lander.query_id != query_id for lander in landers_of(self.lake, files)):
            write_lander(self.lake, Lander(query_id, self.checkpoint, number - 1, {}), files)
        self._is_known = True
