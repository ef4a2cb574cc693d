"""`python -m tests.spool.kill_forwarding`, smaller: a service with a queue and its brokers are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_tools import KafkaTools
from tests.spool.kill_forwarding import Plan, run


def test_the_points_of_the_kills_come_from_the_seed() -> None:
    points = Plan(1_000_000, 100, seed=3).points
    assert points == Plan(1_000_000, 100, seed=3).points
    assert points != Plan(1_000_000, 100, seed=4).points
    assert points == sorted(set(points))
    assert (len(points), points[0] > 0, points[-1] < 1_000_000) == (100, True, True)


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.extended("three brokers that are bounced, ten kills")
def test_ten_kills_lose_nothing(
    kafka_tools: KafkaTools, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = run(Plan(records=100_000, kills=10, seed=2), tmp_path, lambda _: None)
    assert (told["wrong"], told["returned"], told["lives"]) == ({}, 100_000, 11), told["examples"]
    for name in ("read", "repeated", "bounces"):
        record_property(name, told[name])
