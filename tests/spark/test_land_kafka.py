"""`land` against a real broker: what is sent is in the lake once, read by pyarrow, whatever checkpoints went."""

from __future__ import annotations

import argparse
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer as Librdkafka

from aioproduce.audit.stamp import pack_stamp
from aioproduce.spark.errors import CheckpointError, LandRunningError, OptionError, TopicError
from aioproduce.spark.files import LocalFiles
from aioproduce.spark.jobs import land
from aioproduce.spark.jobs.running import add_common_arguments
from aioproduce.spark.lake import LOCK_NAME, CheckpointNote, lake_id, write_note
from aioproduce.spark.lake_files import land_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_cluster import KafkaCluster

ID = b"producer-of-land"
Id = tuple[bytes | None, int | None]


@pytest.fixture
def landing_session(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name, None) for name in land.SETTINGS}
    for name, value in land.SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    land.add_arguments(parser)
    add_common_arguments(parser)
    return parser.parse_args([*given, "--quiet"])


def send(cluster: KafkaCluster, topic: str, numbers: range, *, header: bytes | None = None) -> None:
    producer = Librdkafka({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    failed: list[Any] = []
    for number in numbers:
        stamp = pack_stamp(ID, number) if header is None else header
        producer.produce(
            topic,
            f"value {number}".encode(),
            key=str(number).encode(),
            headers=[("trace", b"1"), ("ap.id", stamp)],
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


def send_and_take_back(cluster: KafkaCluster, topic: str, numbers: range) -> None:
    producer = Librdkafka(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-taken-back"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, b"taken back", headers=[("ap.id", pack_stamp(ID, number))])
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


def ids(lake: Path, table: str) -> list[Id]:
    """As any engine sees them that knows nothing of us: hidden names are nothing."""
    found = ds.dataset(lake / f"table={table}", format="parquet", partitioning="hive").to_table(
        columns=["producer_id", "sequence", "key"]
    )
    rows = found.to_pylist()
    return sorted(((row["producer_id"], row["sequence"]) for row in rows), key=repr)


def test_land(landing_session: SparkSession, kafka1: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    spark, marks, lake = landing_session, f"{topic_name}-marks", tmp_path / "lake"
    kafka1.create_topic(topic_name, partitions=2)
    kafka1.create_topic(marks)
    common = ["--bootstrap-servers", kafka1.bootstrap_servers, "--lake", str(lake), "--audit-topic", marks]
    args = arguments(*common, "--topics", topic_name, "--max-offsets", "150")

    # Its records are in the topic's log, and were taken back: they are in no table.
    send_and_take_back(kafka1, topic_name, range(1000, 1010))
    send(kafka1, topic_name, range(300))
    send(kafka1, topic_name, range(1), header=b"short")
    send(kafka1, marks, range(2))
    first = land.run(args, spark)
    assert (first.rows, first.quarantined, first.marks) == (303, 1, 2)
    assert first.batches >= 3
    everything = sorted([(ID, number) for number in range(300)], key=repr)
    assert ids(lake, "data") == everything
    assert (ids(lake, "quarantine"), len(ids(lake, "marks"))) == ([(None, None)], 2)

    # Least and greatest are kept of what is looked for by order, and of nothing else.
    kept = set()
    for path in (lake / "table=data").rglob("part-*.parquet"):
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        kept |= {each.path_in_schema for each in columns if each.is_stats_set and each.statistics.has_min_max}
    assert kept == {
        "partition", "offset", "timestamp", "timestamp_type", "producer_id", "sequence", "checksum"
    }  # fmt: skip

    # The last batch's commit is lost, as after a kill between the write and the commit: it is landed again.
    checkpoint = lake / "_land" / "checkpoint"
    commits = sorted(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal())
    for name in (f"{commits[-1]}", f".{commits[-1]}.crc"):
        (checkpoint / "commits" / name).unlink()
    send(kafka1, topic_name, range(300, 340))
    # So is what such a batch had written by then, under a name that nobody would ever look at again.
    staging = lake / ".spark-staging-1" / "table=data" / f"batch={first.query_id}-{commits[-1]}"
    staging.mkdir(parents=True)
    again = land.run(args, spark)
    assert again.query_id == first.query_id
    assert (again.removed, list(lake.glob(".spark-staging-*"))) == (1, [])
    everything = sorted([(ID, number) for number in range(340)], key=repr)
    assert ids(lake, "data") == everything
    assert len(ids(lake, "marks")) == 2

    # A second one at the same time (a cron job longer than its period) is refused before it does anything.
    with land_lock(checkpoint / LOCK_NAME), pytest.raises(LandRunningError, match="another land works with"):
        land.run(args, spark)

    # Another checkpoint while this one lives would land everything twice.
    with pytest.raises(CheckpointError, match="is landed into this lake with the checkpoint"):
        land.run(arguments(*common, "--topics", topic_name, "--checkpoint", str(tmp_path / "new")), spark)
    # A lost one does not: the lake knows what it holds. What a dead query left half done goes.
    shutil.rmtree(checkpoint)
    hour = next((lake / "table=data").glob("topic=*/date=*/hour=*"))
    half = hour / f"batch={first.query_id}-{commits[-1] + 2}"
    shutil.copytree(next(hour.glob("batch=*")), half)
    with pytest.raises(CheckpointError, match="would be landed again"):
        land.run(arguments(*common, "--topics", topic_name, "--starting-offsets", "earliest"), spark)
    send(kafka1, topic_name, range(340, 350))
    # Killed as soon as Spark had written whose the checkpoint is, and where its source begins: nothing is planned,
    # so what the lake holds counts.
    note = CheckpointNote(
        lake_id(str(lake), LocalFiles()), (topic_name,), is_pattern=False, audit_topic=marks
    )
    write_note(str(checkpoint), note, LocalFiles())
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "sources" / "0" / "0").write_text(
        f'v1\n{{"{topic_name}":{{"0":0,"1":0}},"{marks}":{{"0":0}}}}'
    )
    (checkpoint / "metadata").write_text('{"id":"b1cc365a-d2bd-4c7e-adb1-071156ad6f08"}')
    anew = land.run(args, spark)
    assert anew.query_id != first.query_id
    assert (anew.rows, anew.removed, half.exists()) == (10, 1, False)
    assert ids(lake, "data") == sorted([(ID, number) for number in range(350)], key=repr)

    # What is refused is refused before anything is written.
    before = sorted(path for path in lake.rglob("*") if path.suffix == ".parquet")
    with pytest.raises(TopicError, match="there is no topic no-such") as missing:
        land.run(arguments(*common, "--topics", f"{topic_name},no-such"), spark)
    assert missing.value.is_missing
    with pytest.raises(CheckpointError, match="also lands"):
        land.run(arguments(*common, "--topics", marks), spark)
    other = ["--checkpoint", str(checkpoint), "--lake", str(tmp_path / "other")]
    with pytest.raises(CheckpointError, match="for another lake"):
        land.run(arguments(*common, "--topics", topic_name, *other), spark)
    with pytest.raises(OptionError, match="--compression is 'zip'"):
        land.run(arguments(*common, "--topics", topic_name, "--compression", "zip"), spark)
    assert sorted(path for path in lake.rglob("*") if path.suffix == ".parquet") == before
