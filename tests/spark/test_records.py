"""Rows of Kafka's into rows of the lake: what is bad, what is a mark, what is a duplicate; without Kafka."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.audit.stamp import pack_stamp
from aioproduce.spark import records
from aioproduce.spark.duplicates import drop_duplicates
from aioproduce.spark.files import HadoopFiles
from aioproduce.spark.layout import FILE_COLUMNS, PARTITION_COLUMNS, Table, table_path
from aioproduce.spark.tables import read_table
from tests.spark.test_lake_state import test_local_files as check_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key:string,value:binary>>"
)
ID = bytes(range(16))
SEVEN = datetime.datetime(2026, 11, 22, 7, 59, 59, 999000)
STAMP = pack_stamp(ID, 2**40 + 5)


def kafka_rows(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    given = {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "timestamp": SEVEN,
        "timestampType": 0,
    }
    filled = [{**given, "headers": None, "offset": number, **row} for number, row in enumerate(rows)]
    names = [column.split(" ")[0] for column in KAFKA.replace(", ", ",").split(",") if " " in column]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in filled], KAFKA)


def landed(spark: SparkSession, rows: list[dict[str, Any]], audit_topic: str | None = "marks") -> list[Row]:
    frame = records.with_ids(kafka_rows(spark, rows))
    lake = records.with_partitions(records.with_table(frame, audit_topic), "b-0")
    assert lake.columns == [*(name for name, _ in FILE_COLUMNS), *PARTITION_COLUMNS]
    return lake.orderBy("offset").collect()


def test_stamps_are_found_wherever_they_are(spark: SparkSession) -> None:
    other = ("trace", b"1" * 24)
    later = pack_stamp(b"z" * 16, 9)
    headers = [
        None,
        [],
        [other],
        [("ap.id", STAMP)],
        [other, ("ap.id", STAMP)],
        [("ap.id", STAMP), other, other],
        # The last of a name counts, as Kafka's lastHeader says.
        [("ap.id", STAMP), ("ap.id", later)],
        [("ap.id", STAMP), ("ap.id", later), other],
    ]
    rows = landed(spark, [{"headers": each} for each in headers])
    mine, theirs = (ID, 2**40 + 5), (b"z" * 16, 9)
    assert [(row.producer_id and bytes(row.producer_id), row.sequence) for row in rows] == [
        *[(None, None)] * 3,
        *[mine] * 3,
        *[theirs] * 2,
    ]
    assert {(row.table, row.reason) for row in rows} == {("data", None)}
    # Headers are kept as they were.
    kept = [None if row.headers is None else [(h.key, bytes(h.value)) for h in row.headers] for row in rows]
    assert kept == headers


def test_what_is_bad_goes_to_the_quarantine_with_the_reason(spark: SparkSession) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"headers": [("ap.id", b"12345")]}, "the header ap.id has 5 bytes instead of 24: not a stamp"),
        ({"headers": [("ap.id", STAMP + b"0")]}, "the header ap.id has 25 bytes instead of 24: not a stamp"),
        ({"headers": [("ap.id", b"")]}, "the header ap.id has 0 bytes instead of 24: not a stamp"),
        ({"headers": [("ap.id", None)]}, "the header ap.id has no value"),
        (
            {"headers": [("ap.id", pack_stamp(ID, 2**63))]},
            "the number in the header ap.id is above 2**63 - 1",
        ),
        (
            {"headers": [("ap.id", b"x"), ("trace", b"")]},
            "the header ap.id has 1 bytes instead of 24: not a stamp",
        ),
        ({"timestamp": None}, "the record has no timestamp"),
        (
            {"timestamp": datetime.datetime(1969, 12, 31, 23, 59, 59)},
            "the timestamp is not in the years 1970 to 9999",
        ),
        (
            {"topic": "marks", "headers": [("ap.id", b"x")]},
            "the header ap.id has 1 bytes instead of 24: not a stamp",
        ),
    ]
    rows = landed(spark, [case for case, _ in cases])
    assert [row.reason for row in rows] == [reason for _, reason in cases]
    assert {row.table for row in rows} == {"quarantine"}
    # Nothing is lost of it, and it has a place.
    assert [bytes(row.value) for row in rows] == [b"v"] * len(cases)
    assert {(str(row.date), row.hour) for row in rows} == {("2026-11-22", "07"), ("1970-01-01", "00")}
    highest = landed(spark, [{"headers": [("ap.id", pack_stamp(ID, 2**63 - 1))]}])
    assert (highest[0].sequence, highest[0].reason) == (2**63 - 1, None)


def test_where_a_row_is_put(spark: SparkSession) -> None:
    midnight = datetime.datetime(2026, 11, 23)
    rows = landed(spark, [{}, {"timestamp": midnight}, {"topic": "marks"}, {"topic": "7"}])
    assert [(row.table, row.topic, str(row.date), row.hour, row.batch) for row in rows] == [
        ("data", "orders", "2026-11-22", "07", "b-0"),
        ("data", "orders", "2026-11-23", "00", "b-0"),
        ("marks", "marks", "2026-11-22", "07", "b-0"),
        ("data", "7", "2026-11-22", "07", "b-0"),
    ]
    assert [row.table for row in landed(spark, [{"topic": "marks"}], None)] == ["data"]


def test_every_hour_is_that_of_the_calendar(spark: SparkSession) -> None:
    days = ("1970-01-01", "2000-02-29", "2026-12-31", "2100-03-01", "9999-12-31")
    moments = [
        datetime.datetime.fromisoformat(f"{day}T{hour:02d}:{minute}")
        for day in days
        for hour in range(24)
        for minute in ("00:00", "59:58.999999")
    ]
    rows = landed(spark, [{"timestamp": moment} for moment in moments])
    assert [(row.date, row.hour) for row in rows] == [(each.date(), f"{each:%H}") for each in moments]


def test_no_directory_has_a_name_that_could_be_null(spark: SparkSession) -> None:
    frame = records.with_table(records.with_ids(kafka_rows(spark, [{}])), None)
    columns = records.with_partitions(frame, "b-0").schema
    # Spark's writer would make another row of each one, to write a name for null.
    assert {name for name in PARTITION_COLUMNS if columns[name].nullable} <= {"date"}


def test_a_checksum_is_of_key_and_value(spark: SparkSession) -> None:
    contents = [
        (b"a", b"b"),
        (b"a", b"b"),
        (b"a", b"c"),
        (b"b", b"b"),
        (None, b"b"),
        (b"a", None),
        (b"", b"ab"),
    ]
    rows = landed(spark, [{"key": key, "value": value, "partition": 3} for key, value in contents])
    sums = [row.checksum for row in rows]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 6


def test_only_what_is_the_same_is_dropped(spark: SparkSession) -> None:
    stamp = [("ap.id", STAMP)]
    rows: list[dict[str, Any]] = [
        {"headers": stamp},
        {"headers": stamp, "offset": 1},
        {"headers": stamp, "value": b"another", "offset": 2},
        {"offset": 3},
        {"offset": 4},
        # Two numbers that do not fit, of one producer and with one content: two records.
        {"headers": [("ap.id", pack_stamp(ID, 2**63))], "offset": 5},
        {"headers": [("ap.id", pack_stamp(ID, 2**63 + 1))], "offset": 6},
    ]
    frame = records.with_ids(kafka_rows(spark, rows))
    assert sorted(row.offset for row in drop_duplicates(frame).collect()) == [0, 2, 3, 4, 5, 6]


def test_a_table_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert read_table(spark, lake, Table.DATA).count() == 0
    frame = records.with_ids(kafka_rows(spark, [{"topic": "007", "headers": [("ap.id", STAMP)]}]))
    rows = records.with_partitions(records.with_table(frame, None), "b-0")
    rows.write.partitionBy(*PARTITION_COLUMNS).parquet(lake, mode="overwrite")
    assert (tmp_path / "table=data" / "topic=007" / "date=2026-11-22" / "hour=07" / "batch=b-0").is_dir()
    (row,) = read_table(spark, lake, Table.DATA).collect()
    assert (row.topic, row.date, row.hour, row.batch) == ("007", SEVEN.date(), 7, "b-0")
    assert (bytes(row.producer_id), row.timestamp) == (ID, SEVEN)
    assert read_table(spark, lake, Table.QUARANTINE).count() == 0
    assert table_path(lake, Table.DATA) == f"{tmp_path}/table=data"


def test_other_file_systems_do_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.spark.test_lake_state.FILES", HadoopFiles(spark))
    check_files(tmp_path)
