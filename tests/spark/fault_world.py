"""What the fault tests share: rows to write, ways to write them, and another client to read them back with.

Used by ``test_faults`` and, as a process of its own that is killed, ``python -m tests.spark.fault_world``.

1. A row's value is its number, padded to 100 bytes: a row that comes back under another id, or not at all, shows.
2. What travels to Spark's workers is in ``in_workers``, which they import: a function of this module would take
   a broker's clients with it.
3. A write is paced where something is to happen within it: Arrow batches are small then, and rows a second few.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, substring

from tests.kafka_ask import LATEST, offset_of
from tests.spark.in_workers import Held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.kafka_cluster import KafkaCluster

ROWS = 1_000
FILES = 4
BATCH_ROWS = "50"
"""Rows of an Arrow batch: the sink paces and sends by them."""

SLOW = "100"
"""Rows a second of each task, and as many at once, where something is to happen meanwhile: four seconds for all."""

MARKS = "faults.audit"
"""Not the default: other tests' producers tell there of topics that are not in this lake."""

HELD = {"driver-killed-before": "write", "driver-killed-after": "commit"}
"""The faults for which a query of the driver that is killed stops by itself, and where (`in_workers.Held`)."""

DURING = "driver-killed-during"
"""The one for which it is killed while its query goes on."""

WAIT_TIMEOUT = 120.0
POLL_INTERVAL = 0.02
ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITION_BYTES = "spark.sql.files.maxPartitionBytes"


@dataclass(frozen=True, slots=True)
class Read:
    """A record of a topic: its stamp and its value."""

    stamp: bytes
    value: bytes


def expected() -> list[bytes]:
    """The values of all rows."""
    return [f"{number:0100d}".encode() for number in range(ROWS)]


def write_input(folder: Path) -> Path:
    """The rows, as files of text."""
    folder.mkdir()
    values = expected()
    size = ROWS // FILES
    for part in range(FILES):
        lines = values[part * size : (part + 1) * size]
        (folder / f"part-{part}.txt").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def options(servers: str, topic: str, **more: str) -> dict[str, str]:
    """The sink's, with an underscore for each dot of a name."""
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.linger.ms": "0",
        "topic": topic,
        "audit.topic": MARKS,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def start(
    rows: DataFrame, checkpoint: Path, options: dict[str, str], name: str = "aioproduce"
) -> StreamingQuery:
    """A streaming query that writes all that there is, and ends."""
    return (
        rows.writeStream.format(name)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def numbered(rows: DataFrame) -> DataFrame:
    """With a column that tells rows apart wherever they are."""
    return rows.select("value", substring(col("value"), 90, 11).cast("long").alias("id"))


def make_marks_topic(cluster: KafkaCluster) -> None:
    """The topic of the tasks' marks, if it is not there yet."""
    if not cluster.partitions(MARKS):
        cluster.create_topic(MARKS)


def read_back(servers: str, topic: str, partitions: int) -> list[Read]:
    """All of a topic, by librdkafka."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "judge", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        left = sum(consumer.get_watermark_offsets(place, timeout=60.0)[1] for place in places)
        consumer.assign(places)
        found: list[Read] = []
        while len(found) < left:
            messages = consumer.consume(left - len(found), timeout=60.0)
            assert messages, f"{left - len(found)} of {left} records of {topic} did not come"
            for message in messages:
                assert message.error() is None
                stamp, value = dict(message.headers() or [])["ap.id"], message.value()
                assert isinstance(stamp, bytes)
                assert isinstance(value, bytes)
                found.append(Read(stamp, value))
        return found
    finally:
        consumer.close()


def wait_for_records(
    cluster: KafkaCluster, topic: str, count: int, check: Callable[[], None] = lambda: None
) -> None:
    """Until so many are in a topic of one broker; `check` raises where none will come any more."""
    port = cluster.nodes[1].port
    partitions = len(cluster.partitions(topic))

    def are_there() -> bool:
        check()
        return sum(offset_of(port, topic, number, LATEST) or 0 for number in range(partitions)) >= count

    wait_until(f"{count} records in {topic}", are_there)


def wait_until(awaited: str, is_so: Callable[[], bool]) -> None:
    """Poll: another process offers no other means."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while not is_so():
        assert time.monotonic() < deadline, f"waited {WAIT_TIMEOUT:g} s for {awaited}"
        time.sleep(POLL_INTERVAL)


def main(source: str, folder: str, servers: str) -> None:
    """A driver that will be killed: three streaming writes in a JVM of its own, each to stop at another place.

    They begin when the gate is there. The slow one is the last: the others stand still while it writes.
    """
    from pyspark.sql import SparkSession

    parent = os.getppid()
    spark = (
        # As many tasks of each query as where it will be run again, and room for all tasks that stand still.
        SparkSession.builder.master("local[4]")
        .config("spark.default.parallelism", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config(ARROW_BATCH, BATCH_ROWS)
        .getOrCreate()
    )
    spark.dataSource.register(Held)

    def begin(name: str, place: str, **more: str) -> StreamingQuery:
        told = options(servers, topic_of(name), hold=place, marker=str(marker_of(Path(folder), name)), **more)
        rows = text_stream(spark, Path(source))
        return start(rows, Path(folder) / name / "checkpoint", told, Held.name())

    def wait(path: Path, *queries: StreamingQuery) -> None:
        while not path.exists():
            if os.getppid() != parent or not all(query.isActive for query in queries):
                raise SystemExit(f"waited for {path}: {[query.exception() for query in queries]}")
            time.sleep(POLL_INTERVAL)

    wait(gate_of(Path(folder)))
    queries = [begin(name, place) for name, place in HELD.items()]
    for name in HELD:
        wait(marker_of(Path(folder), name), *queries)
    begin(DURING, "", rate_limit_records=SLOW).awaitTermination()


def topic_of(name: str) -> str:
    """Where a fault's rows go."""
    return f"fault-{name}"


def gate_of(folder: Path) -> Path:
    """The file by which the driver is let go."""
    return folder / "gate"


def marker_of(folder: Path, name: str) -> Path:
    """The file that tells that a query has stopped at its place."""
    return folder / name / "marker"


def text_stream(spark: SparkSession, source: Path) -> DataFrame:
    """The rows as a stream."""
    return spark.readStream.text(str(source))


if __name__ == "__main__":
    main(*sys.argv[1:])
