"""Queues on disk in front of real brokers, judged from outside: `examples/outage`, and kills of the forwarding.

Both are programs; these are their small forms. The audit's own tests are in `tests/spool/test_outage.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kafka_tools import KafkaTools
from tests.spool.kill_forwarding import Plan, run

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.extended("three brokers, a cut network, three kills")
def test_a_service_whose_cluster_goes_away(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    words = ("--quick", "--folder", str(tmp_path / "outage"), "--json", str(tmp_path / "told.json"))
    ran = subprocess.run(
        [sys.executable, "-m", "examples.outage", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["returned"], told["lost"], told["twice"], told["lives"]) == (12_000, 0, 0, 3)
    assert told["largest_backlog"] > 1_000
    assert set(told["send_ms"]) == {"all is well", "the network is cut", "a broker is dead"}
    assert "nothing lost" in ran.stdout
    ElementTree.parse(tmp_path / "outage" / "outage.svg")


@pytest.mark.timeout(900)
@pytest.mark.extended("three brokers that are bounced, ten kills")
def test_ten_kills_lose_nothing(
    kafka_tools: KafkaTools, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = run(Plan(records=100_000, kills=10, seed=2), tmp_path, lambda _: None)
    assert (told["wrong"], told["returned"], told["lives"]) == ({}, 100_000, 11), told["examples"]
    for name in ("read", "repeated", "bounces"):
        record_property(name, told[name])
