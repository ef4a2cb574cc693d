"""The same files on a cluster: one master and two workers of Spark on loopback, and an executor that dies."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproduce.spark import submit
from aioproduce.spark.ids import TASK_ID_SIZE, task_id
from examples.lake import orders
from examples.lake.sources import write_orders
from tests.kafka_install import find_or_install
from tests.spark import fault_world
from tests.spark.fault_world import (
    ARROW_BATCH,
    BATCH_ROWS,
    ROWS,
    expected,
    make_marks_topic,
    read_back,
    wait_for_records,
    wait_until,
    write_input,
)
from tests.spark.standalone import StandaloneCluster
from tests.spark.standalone_write import TASKS, WRITE

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.extended("starts its own Spark cluster; the gate's jobs run in the shared session"),
]

RECORDS = 2_000
PARTITIONS = 2
JOB_TIMEOUT = 240.0


@pytest.fixture(scope="module")
def standalone(
    connector: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneCluster]:
    del connector  # it skips where nothing of this can run
    with StandaloneCluster(find_or_install().java, tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


def test_land_and_audit_by_spark_submit(
    standalone: StandaloneCluster,
    kafka1: KafkaCluster,
    connector: tuple[Path, ...],
    topic_name: str,
    tmp_path: Path,
) -> None:
    topic, marks = (
        kafka1.create_topic(topic_name, partitions=PARTITIONS),
        kafka1.create_topic(f"{topic_name}-marks"),
    )
    servers, lake = kafka1.bootstrap_servers, tmp_path / "lake"
    asyncio.run(
        orders.main(
            argparse.Namespace(
                file=write_orders(tmp_path / "orders.jsonl", RECORDS),
                bootstrap_servers=servers,
                topic=topic,
                audit_topic=marks,
                journal=tmp_path / "journal",
                rate=1e6,
            )
        )
    )
    script = Path(submit.__file__)

    where = ("--bootstrap-servers", servers, "--topics", topic, "--audit-topic", marks, "--lake", str(lake))
    landed = standalone.submit(
        standalone.command(script, "land", "--json", *where, jars=connector), timeout=JOB_TIMEOUT
    )
    audited = standalone.submit(
        standalone.command(
            script,
            *("audit", "--lake", str(lake), "--json", "--strict", "--fail-on-duplicates"),
            # By the executors: so small a lake the driver would read by itself.
            *("--reader", "files"),
        ),
        timeout=JOB_TIMEOUT,
    )

    assert landed.code == 0, landed.err[-5000:] + standalone.logs()
    assert json.loads(landed.out.splitlines()[-1])["rows"] == RECORDS + 1  # and the closing mark
    assert audited.code == 0, audited.out + audited.err[-5000:]
    told = json.loads(audited.out.splitlines()[-1])
    assert told["verdict"] == "clean"
    assert told["rows"] == told["numbers"] == RECORDS
    assert (told["producers"], told["closed"]) == (1, 1)


def test_an_executor_is_lost(
    standalone: StandaloneCluster, kafka1: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    topic = kafka1.create_topic(topic_name, partitions=PARTITIONS)
    make_marks_topic(kafka1)
    source = write_input(tmp_path / "source")
    command = standalone.command(
        Path(fault_world.__file__).with_name("standalone_write.py"),
        *(str(source), kafka1.bootstrap_servers, topic),
        settings={ARROW_BATCH: BATCH_ROWS},
    )

    def midway() -> list[str]:
        """The workers with a task that has sent some rows and has most of them to send."""
        sent = Counter(
            record.stamp[:TASK_ID_SIZE] for record in read_back(kafka1.bootstrap_servers, topic, PARTITIONS)
        )
        half = ROWS // TASKS // 2
        return [
            worker
            for worker, partitions in standalone.running_tasks().items()
            if any(0 < sent[task_id(WRITE, 0, partition)] < half for partition in partitions)
        ]

    with standalone.running(command) as application:
        wait_for_records(kafka1, topic, 1, application.check)
        wait_until("an executor in the midst of its rows", lambda: bool(midway()))
        standalone.kill_executor(midway()[0])
        ended = application.wait(JOB_TIMEOUT)

    assert ended.code == 0, ended.err[-5000:] + standalone.logs()
    records = read_back(kafka1.bootstrap_servers, topic, PARTITIONS)
    stamps = Counter(record.stamp for record in records)
    assert {record.value for record in records} == set(expected())
    assert len({(record.stamp, record.value) for record in records}) == len(stamps) == ROWS
    assert len(records) > ROWS
