"""The chaos run in small: verifiable producers, each kind of fault once, audited by Kafka's own consumer.

``python -m tests.chaos`` is the same with two million records; see ``tests/chaos/README.md``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import PARTITIONS, Plan, run
from tests.chaos.schedule import Kind, one_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.extended("kills brokers for minutes")

RECORDS = 50_000


@pytest.mark.scenario(29, "K")
@pytest.mark.scenario(30, "K")
@pytest.mark.scenario(34, "K")
async def test_nothing_is_lost_nor_twice_nor_out_of_order(
    kafka3: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    plan = Plan(
        records=RECORDS,
        rate=2000,
        # Longer than the 6 s after which the controller fences a silent broker.
        faults=one_of_each(seed=1, partitions=PARTITIONS, pause=1.0, down=0.0, stall=10.0),
        is_endless=False,
    )
    told: list[str] = []

    report = await asyncio.to_thread(
        run, kafka3, topic_name, plan, tmp_path, say=told.append, on_progress=lambda _settled: None
    )

    assert (report.wrong(), report.findings.examples) == ([], [])
    assert report.failed == {}
    assert report.sent == report.acked == report.findings.read >= RECORDS
    assert report.faults == dict.fromkeys(Kind, 1)
