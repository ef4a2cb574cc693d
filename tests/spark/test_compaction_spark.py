"""What compact writes, read by Spark; what Spark writes, read by compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.spark.compaction import Compactor, Policy
from aioproduce.spark.layout import PARTITION_COLUMNS, Table, file_schema
from aioproduce.spark.tables import read_table
from tests.gate.marks import others_extended
from tests.spark.lake_harness import QUERY, Lake, UnsyncedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = f"""
    SELECT encode('k' || id, 'UTF-8') key, IF(id % 5 = 0, NULL, encode('v' || id, 'UTF-8')) value,
        array(named_struct('key', 'ap.id', 'value', unhex(lpad(hex(id), 48, '0')))) headers,
        int(id % 3) partition, id offset, timestamp_micros(1769843000000000 + id) timestamp, 0 timestamp_type,
        IF(id % 7 = 0, NULL, unhex(repeat('ab', 16))) producer_id, id sequence, xxhash64(id) checksum,
        string(NULL) reason, 'data' table, 'orders' topic, '2026-01-31' date, '07' hour,
        '{QUERY}-' || int(id / 100) batch
    FROM range(400)
"""


@pytest.mark.parametrize(
    "instants",
    others_extended(
        ["INT96", "TIMESTAMP_MICROS"], keep=["INT96"], reason="Spark's default stays in the gate"
    ),
)
def test_spark_reads_back_what_it_wrote(spark: SparkSession, tmp_path: Path, instants: str) -> None:
    lake = Lake(tmp_path)
    option = "spark.sql.parquet.outputTimestampType"
    before = str(spark.conf.get(option))
    spark.conf.set(option, instants)
    try:
        spark.sql(ROWS).write.mode("overwrite").partitionBy(*PARTITION_COLUMNS).parquet(str(lake.path))
    finally:
        spark.conf.set(option, before)
    columns = [name.split(" ")[0] for name in file_schema().split(", ")]
    expected = read_table(spark, str(lake.path), Table.DATA).select(columns).orderBy("offset").collect()
    assert len(expected) == 400
    lake.committed = 3
    outcome = Compactor(lake.store, lake.safe, Policy(), UnsyncedFiles()).run()
    assert (outcome.failed, outcome.rows) == ({}, 300)
    table = read_table(spark, str(lake.path), Table.DATA)
    assert table.select(columns).orderBy("offset").collect() == expected
    assert table.select("batch").distinct().count() == 2
    # By any engine that lists the table, without a schema given: Spark takes it from one of the files.
    plain = spark.read.parquet(str(lake.store.root))
    assert plain.select(columns).orderBy("offset").collect() == expected
    assert plain.select(columns).dtypes == table.select(columns).dtypes
