"""`replay` against real Kafka, and `alert` as a stream over files: what needs a JVM of both, in one go each."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer as Librdkafka

from aioproduce.audit.mark import Mark
from aioproduce.audit.stamp import STAMP_HEADER, pack_stamp
from aioproduce.spark.errors import TopicError
from aioproduce.spark.jobs import alert, replay
from aioproduce.spark.jobs.alert import AlertSummary, Telling, alerts_of, seen_in, started
from aioproduce.spark.jobs.running import add_common_arguments
from aioproduce.spark.jobs.watch import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.spark

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ID = bytes(range(16))


def stamped(number: int) -> list[dict[str, object]]:
    return [{"key": "h", "value": b"1"}, {"key": STAMP_HEADER, "value": pack_stamp(ID, number)}]


@pytest.fixture
def settings_kept(spark: SparkSession) -> Iterator[None]:
    """A stream of alerts sets the session as it needs it."""
    names = ("spark.sql.streaming.stateStore.providerClass", "spark.sql.streaming.noDataMicroBatches.enabled")
    before = {name: spark.conf.get(name) for name in names}
    yield
    for name, value in before.items():
        spark.conf.set(name, str(value))


@pytest.mark.usefixtures("settings_kept")
@pytest.mark.extended("the alert as a stream stays in the gate")
def test_alert_on_kafka(
    spark: SparkSession,
    kafka1: KafkaCluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job itself: numbers 0, 1, 3 and 3; a topic that is missing is said at once."""
    topic = kafka1.create_topic(topic_name)
    alerts = kafka1.create_topic(f"{topic_name}-alerts")
    producer = Librdkafka({"bootstrap.servers": kafka1.bootstrap_servers})
    for number in (0, 1, 3, 3):
        producer.produce(topic, b"v", headers=[(STAMP_HEADER, pack_stamp(ID, number))])
    assert producer.flush(60) == 0

    def run(*given: str) -> AlertSummary:
        parser = argparse.ArgumentParser()
        alert.add_arguments(parser)
        add_common_arguments(parser)
        said = ["--bootstrap-servers", kafka1.bootstrap_servers, "--checkpoint", str(tmp_path / "checkpoint")]
        return alert.run(
            parser.parse_args([*said, *given, "--once", "--json", "--quiet", "--audit-topic", "none"]), spark
        )

    with pytest.raises(TopicError, match="there is no topic no-such"):
        run("--topics", f"{topic},no-such")
    found = run("--topics", topic, "--starting-offsets", "earliest", "--grace", "0", "--alert-topic", alerts)
    assert (found.rows, found.gap, found.duplicate, found.exit_code) == (4, 1, 1, 3)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [(told["kind"], told["first"], told["last"]) for told in map(json.loads, lines)] == [
        ("duplicate", 3, 3),
        ("gap", 2, 2),
    ]
    where = {"kafka.bootstrap.servers": kafka1.bootstrap_servers, "subscribe": alerts}
    sent = spark.read.format("kafka").options(**where).load().collect()
    assert {bytes(row.key).decode() for row in sent} == {ID.hex()}
    assert sorted(map(json.loads, lines), key=str) == sorted((json.loads(row.value) for row in sent), key=str)


@pytest.mark.usefixtures("settings_kept")
def test_alert_as_a_stream(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs on one checkpoint: what the first waits for the second tells, and a late one is known for it."""
    records = tmp_path / "records"
    records.mkdir()

    def write(name: str, numbers: list[int], marks: list[Mark]) -> None:
        count = len(numbers) + len(marks)
        table = pa.table(
            {
                "value": pa.array([b"v"] * len(numbers) + [mark.to_json() for mark in marks], pa.binary()),
                "topic": ["orders"] * len(numbers) + ["marks"] * len(marks),
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(range(count), pa.int64()),
                "timestamp": pa.array(
                    [datetime(2026, 1, 31, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC")
                ),
                "headers": pa.array([*map(stamped, numbers), *[None] * len(marks)], HEADERS),
            }
        )
        pq.write_table(table, records / name)

    def watch() -> tuple[AlertSummary, list[tuple[str, int, int]]]:
        summary = AlertSummary()
        source = spark.readStream.schema(KAFKA).parquet(str(records))
        told = Telling(summary, is_json=True)
        alerts = alerts_of(seen_in(source, "marks"), Patience(0, 600_000), is_from_zero=True)
        query = started(alerts, told, str(tmp_path / "checkpoint"), None)
        try:
            assert query.awaitTermination(250)
        finally:
            query.stop()
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return summary, sorted((line["kind"], line["first"], line["last"]) for line in lines)

    write("1.parquet", [3, 0, 1, 1, 5], [])
    first, lines = watch()
    assert lines == [("duplicate", 1, 1), ("gap", 2, 2), ("gap", 4, 4)]
    assert (first.gap, first.duplicate, first.exit_code) == (2, 1, 3)
    write("2.parquet", [4, 5], [Mark("closing", ID, 8, 7, failed=((6, 6),))])
    _, lines = watch()
    assert lines == [("duplicate", 5, 5), ("gap", 7, 7), ("late", 4, 4)]


def lake_of(folder: Path, rows: list[dict[str, object]]) -> None:
    place = folder / "table=data" / "topic=orders" / "date=2026-01-31" / "hour=07" / "batch=q-0"
    place.mkdir(parents=True)
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", HEADERS),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("producer_id", pa.binary()),
            ("sequence", pa.int64()),
            ("checksum", pa.int64()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), place / "part-00000.parquet")


def test_replay(spark: SparkSession, kafka1: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    """Headers, stamps, timestamps and the order within a partition come back; new ids take the stamps' place."""
    noon = datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    rows: list[dict[str, object]] = [
        {
            "key": b"k%d" % (number % 3),
            "value": b"v%d" % number,
            "headers": stamped(number),
            "partition": number % 2,
            "offset": number // 2,
            "timestamp": noon.replace(second=number),
            "producer_id": ID,
            "sequence": number,
            "checksum": number,
        }
        for number in range(20)
    ]
    lake_of(tmp_path / "lake", [*reversed(rows), rows[3]])
    target = kafka1.create_topic(topic_name, partitions=2)
    servers = kafka1.bootstrap_servers

    def run(*given: str) -> replay.ReplaySummary:
        parser = argparse.ArgumentParser()
        replay.add_arguments(parser)
        add_common_arguments(parser)
        said = ["--lake", str(tmp_path / "lake"), "--to", target, "--bootstrap-servers", servers, *given]
        return replay.run(parser.parse_args(said), spark)

    dry = run("--dry-run", "--since", "2026-01-31T07:30:10")
    assert [(route["topic"], route["to"], route["rows"]) for route in dry.routes] == [("orders", target, 10)]
    assert run("--distinct", "--keep-partitions").rows == 20
    assert (
        run("--ids", "new", "--write-id", "again", "--partitions", "1", "--until", "2026-01-31T07:30:04").rows
        == 3
    )
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    found = source.option("includeHeaders", "true").load().orderBy("partition", "offset").collect()
    stamps = [[bytes(header.value) for header in row.headers if header.key == STAMP_HEADER] for row in found]
    old = [row for row, (stamp,) in zip(found, stamps, strict=True) if stamp[:16] == ID]
    assert [bytes(row.value) for row in old if row.partition == 0] == [b"v%d" % n for n in range(0, 20, 2)]
    assert [bytes(row.value) for row in old if row.partition == 1] == [b"v%d" % n for n in range(1, 20, 2)]
    by_value = {bytes(row.value): row for row in old}
    assert len(by_value) == len(old) == 20
    assert [(header.key, bytes(header.value)) for header in by_value[b"v7"].headers] == [
        ("h", b"1"),
        (STAMP_HEADER, pack_stamp(ID, 7)),
    ]
    assert bytes(by_value[b"v7"].key) == b"k1"
    assert by_value[b"v7"].timestamp.astimezone(UTC) == noon.replace(second=7)
    assert sorted(bytes(row.value) for row in found if row not in old) == [b"v1", b"v3", b"v3"]


def test_jobs_name_what_they_need() -> None:
    assert (alert.NEEDS_CONNECTOR, replay.NEEDS_CONNECTOR) == (True, False)
