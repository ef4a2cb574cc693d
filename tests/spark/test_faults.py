"""The table of faults of `docs/explanation/pipeline.md`, on a real broker: nothing lost, what comes twice says so.

All faults are played once, each into a topic of its own; then everything is landed and audited once. A test looks
at one row of the table.

1. What was lost and what came twice is found by librdkafka and by pyarrow; the audit is held to that.
2. A fault comes when rows are in the topic already and others are not, by what the broker says; none by time.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from aioproduce.spark.duplicates import drop_duplicates
from aioproduce.spark.jobs import audit, land
from aioproduce.spark.jobs.running import Job, add_common_arguments
from tests.processes import command_of, connected_to, family, kill, kill_family
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.fault_world import (
    ARROW_BATCH,
    BATCH_ROWS,
    DURING,
    FILES,
    HELD,
    MARKS,
    PARTITION_BYTES,
    ROWS,
    SLOW,
    Read,
    expected,
    gate_of,
    make_marks_topic,
    marker_of,
    numbered,
    options,
    read_back,
    start,
    text_stream,
    topic_of,
    wait_for_records,
    write_input,
)
from tests.spark.in_workers import CommitRaisesOnce, PlannedError, too_large_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.kafka_cluster import KafkaCluster

# All of the faults are within the first test's time.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.extended("kills processes in a chain of faults, with one audit of all"),
]

PARTITIONS = 2
ENOUGH = 100
"""Records in the topic at which a fault comes: a tenth."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One that is to be killed. It is started before the first fault, since a JVM takes as long as several faults.

    One SIGKILL is three faults: it comes when each of its queries is where another fault has it.

    Attributes:
        process: It waits for its gate, and then runs the queries of `fault_world`.
        folder: With a folder for each fault.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    def check(self) -> None:
        assert self.process.poll() is None, "the driver that was to be killed has ended by itself"

    def kill(self, cluster: KafkaCluster) -> None:
        """Let it go, and kill it as soon as all queries are at their places; nothing if that was done."""
        if self.process.poll() == -signal.SIGKILL:
            return
        gate_of(self.folder).touch()
        wait_for_records(cluster, topic_of(DURING), ENOUGH, self.check)
        assert all(marker_of(self.folder, name).exists() for name in HELD)
        kill_family(self.process.pid)
        assert self.process.wait() == -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class World:
    """Where a fault is played.

    Attributes:
        folder: An empty one, of this fault alone.
        topic: The same, with two partitions.
        driver: Killed by the first of the faults that want it.
    """

    spark: SparkSession
    cluster: KafkaCluster
    source: Path
    folder: Path
    topic: str
    driver: Driver

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def lines(self) -> DataFrame:
        return self.spark.read.text(str(self.source))

    def stream(self) -> DataFrame:
        return text_stream(self.spark, self.source)

    def options(self, **more: str) -> dict[str, str]:
        return options(self.cluster.bootstrap_servers, self.topic, **more)

    def write(self, rows: DataFrame, **more: str) -> None:
        rows.write.format("aioproduce").mode("append").options(**self.options(**more)).save()

    def run(self, rows: DataFrame, **more: str) -> None:
        """A stream to its end."""
        start(rows, self.checkpoint, self.options(**more)).awaitTermination()

    def fail(self, rows: DataFrame, name: str = "aioproduce", **more: str) -> None:
        """A stream that must fail as planned."""
        query = start(rows, self.checkpoint, self.options(**more), name)
        with pytest.raises(Exception, match=PlannedError.__name__):
            query.awaitTermination()

    def forget_commit(self) -> None:
        """As if the driver had died after the sink's commit, and before Spark wrote down that it was one."""
        commits = self.checkpoint / "commits"
        (commits / "0").unlink()
        (commits / ".0.crc").unlink()


# The faults


def task_raises(world: World) -> None:
    rows = world.lines().mapInArrow(too_large_once(str(world.folder / "marker")), "value string")
    world.write(rows, write_id="raises", rate_limit_records=SLOW)


def worker_killed(world: World) -> None:
    gateway = world.spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid

    def strike(check: Callable[[], None]) -> None:
        wait_for_records(world.cluster, world.topic, ENOUGH, check)
        workers = [pid for pid in family(java) if b"pyspark.daemon" in command_of(pid)]
        writing = connected_to(workers, [node.port for node in world.cluster.nodes.values()])
        assert any(map(kill, writing[:1])), f"none of {workers} is connected to a broker"

    with meanwhile(strike):
        world.write(world.lines(), write_id="killed", rate_limit_records=SLOW)


def broker_down(world: World) -> None:
    def strike(check: Callable[[], None]) -> None:
        wait_for_records(world.cluster, world.topic, ENOUGH, check)
        world.cluster.bounce(1, hard=True)

    with meanwhile(strike):
        world.write(world.lines(), write_id="broker", rate_limit_records=SLOW)


def commit_raises(world: World) -> None:
    world.spark.dataSource.register(CommitRaisesOnce)
    world.fail(world.stream(), CommitRaisesOnce.name(), marker=str(world.folder / "marker"))
    world.run(world.stream())


def driver_killed(world: World) -> None:
    """At one of three moments: the driver leaves a query for each, with a micro-batch that Spark has begun."""
    world.driver.kill(world.cluster)
    assert (world.checkpoint / "offsets" / "0").exists()
    assert not (world.checkpoint / "commits" / "0").exists()
    world.run(world.stream())


def plan_changed(world: World) -> None:
    """Twice as many tasks, so every row is in another one or elsewhere in it."""
    world.run(numbered(world.stream()), id_column="id")
    world.forget_commit()
    world.spark.conf.set(PARTITION_BYTES, ROWS * 101 // FILES)
    try:
        world.run(numbered(world.stream()), id_column="id")
    finally:
        world.spark.conf.unset(PARTITION_BYTES)


def checkpoint_deleted(world: World) -> None:
    """The next query is another one, and starts from the beginning."""
    world.run(numbered(world.stream()), id_column="id")
    world.checkpoint.rename(world.folder / "deleted")
    world.run(numbered(world.stream()), id_column="id")


def written_again(world: World) -> None:
    """A batch job that is run once more, by a scheduler or by hand."""
    world.write(world.lines(), write_id="again")
    world.write(world.lines(), write_id="again")


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table.

    Attributes:
        play: Does it, and ends when all rows are acknowledged.
        repeats: How many rows must be in the topic twice: at least, at most.
    """

    play: Callable[[World], None]
    repeats: tuple[int, int]


FAULTS = {
    "task-raises": Fault(task_raises, (1, ROWS)),
    "worker-killed": Fault(worker_killed, (1, ROWS)),
    "broker-down": Fault(broker_down, (0, 0)),
    "commit-raises": Fault(commit_raises, (ROWS, ROWS)),
    "driver-killed-before": Fault(driver_killed, (0, 0)),
    DURING: Fault(driver_killed, (ENOUGH, ROWS)),
    "driver-killed-after": Fault(driver_killed, (ROWS, ROWS)),
    "plan-changed": Fault(plan_changed, (ROWS, ROWS)),
    "checkpoint-deleted": Fault(checkpoint_deleted, (ROWS, ROWS)),
    "written-again": Fault(written_again, (ROWS, ROWS)),
}


@contextmanager
def meanwhile(strike: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Let the fault come while the body writes; what `strike` raises is raised at the end.

    Not the other way round: a session is active in the thread that made it, and elsewhere Spark's JVM does not look
    for data sources in Python.
    """
    ended = threading.Event()
    raised: list[BaseException] = []

    def check() -> None:
        assert not ended.is_set(), "the write had ended before the fault came"

    def run() -> None:
        try:
            strike(check)
        except BaseException as error:  # told to the thread that writes
            raised.append(error)

    thread = threading.Thread(target=run, name="strikes")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if raised:
        raise raised[0]


@contextmanager
def driver_beside(source: Path, servers: str, folder: Path) -> Iterator[Driver]:
    """A driver for `driver_killed`, which ends with the body at the latest."""
    command = [sys.executable, "-m", "tests.spark.fault_world", str(source), str(folder), servers]
    with open(folder / "driver.log", "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=os.environ | spark_environment(),
        )
    try:
        yield Driver(process, folder)
    finally:
        if process.poll() is None:
            kill_family(process.pid)
            process.wait()


@pytest.fixture(scope="module")
def played(
    _spark_session: SparkSession,
    _kafka1_session: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[Read]]:
    """Every fault, played; what is in its topic then."""
    folder = tmp_path_factory.mktemp("faults")
    source = write_input(folder / "source")
    found = {}
    for name in FAULTS:
        (folder / name).mkdir()
        _kafka1_session.create_topic(topic_of(name), partitions=PARTITIONS)
    servers = _kafka1_session.bootstrap_servers
    _spark_session.conf.set(ARROW_BATCH, BATCH_ROWS)
    try:
        make_marks_topic(_kafka1_session)
        with driver_beside(source, servers, folder) as driver:
            for name, fault in FAULTS.items():
                topic = topic_of(name)
                fault.play(World(_spark_session, _kafka1_session, source, folder / name, topic, driver))
                found[name] = read_back(servers, topic, PARTITIONS)
    finally:
        _spark_session.conf.unset(ARROW_BATCH)
    return found


@pytest.fixture(scope="module")
def audited(
    played: dict[str, list[Read]],
    _spark_session: SparkSession,
    _kafka1_session: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Any]]:
    """A lake with all of it, and what the audit says."""
    lake = tmp_path_factory.mktemp("faults-lake") / "lake"
    topics = ",".join(topic_of(name) for name in played)
    servers = _kafka1_session.bootstrap_servers
    where = ("--bootstrap-servers", servers, "--topics", topics, "--audit-topic", MARKS, "--lake", str(lake))
    run(land, _spark_session, "--quiet", *where)
    return lake, run(audit, _spark_session, "--lake", str(lake), "--strict")


def run(job: Job, spark: SparkSession, *words: str) -> dict[str, Any]:
    """A job in this session; what it tells."""
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    add_common_arguments(parser)
    return job.run(parser.parse_args(words), spark).to_json()


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_and_a_duplicate_bears_the_id_of_its_original(
    played: dict[str, list[Read]], name: str
) -> None:
    records = played[name]
    stamps: dict[bytes, set[bytes]] = {}
    for record in records:
        stamps.setdefault(record.value, set()).add(record.stamp)

    assert stamps.keys() == set(expected())
    assert {value: ids for value, ids in stamps.items() if len(ids) != 1} == {}
    assert len({record.stamp for record in records}) == ROWS
    least, most = FAULTS[name].repeats
    assert least <= len(records) - ROWS <= most


def test_the_audit_counts_exactly_those(
    played: dict[str, list[Read]], audited: tuple[Path, dict[str, Any]]
) -> None:
    lake, told = audited
    records = sum(map(len, played.values()))
    landed = ds.dataset(lake / "table=data", format="parquet", partitioning="hive").count_rows()

    assert landed == records
    assert {
        name: told[name] for name in ("rows", "numbers", "duplicates", "lost", "undecided", "conflicts")
    } == {
        "rows": records,
        "numbers": ROWS * len(played),
        "duplicates": records - ROWS * len(played),
        "lost": 0,
        "undecided": 0,
        "conflicts": 0,
    }


def test_a_reader_that_drops_duplicates_has_each_row_once(
    spark: SparkSession, played: dict[str, list[Read]], audited: tuple[Path, dict[str, Any]]
) -> None:
    lake, _ = audited
    rows = drop_duplicates(spark.read.parquet(str(lake / "table=data")))

    counts = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert counts == {topic_of(name): ROWS for name in played}
