"""land and compact killed -9 on real Kafka, small: the program `kill_land.py` does it with two million records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.dying_compact import STEPS
from tests.spark.kill_land import Plan, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.extended("starts jobs as processes and kills them at each step")]


def test_nothing_is_lost_or_doubled(
    kafka1: KafkaCluster, connector: tuple[Path, ...], topic_name: str, tmp_path: Path
) -> None:
    plan = Plan(rows=12_000, kills=1, has_compact=True, batches=8, topic=topic_name)
    report = run(plan, kafka1, connector, tmp_path)
    assert report.is_right, report
    assert report.sent == report.rows == 12_000
    assert len(report.kills) == 1
    assert set(report.compact_kills) == set(STEPS)
    assert report.looks > len(STEPS)
