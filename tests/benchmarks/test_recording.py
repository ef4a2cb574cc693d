"""The measure of what recording metrics costs: one producer of the pair records, and the other does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from aioproduce._native.stats import Windows
from aioproduce.metrics import ProducerMetrics
from benchmarks.recording import LOADS
from benchmarks.silent_metrics import SilentMetrics
from tests.benchmarks.test_benchmarks import broker_options

pytestmark = pytest.mark.skipif(bool(broker_options()), reason="the null broker needs a C compiler")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.recording", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pair_of_processes_takes_turns() -> None:
    done = run("--only", "alone", "--sets", "1", "--turns", "2", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["load"] == "alone"
    assert row["records_per_second"] > 0
    median, least, largest = row["time"]
    assert median == least == largest > 0


@pytest.mark.parametrize("of", ["auditor", "auditor-roomy"])
def test_so_does_a_pair_of_which_one_is_audited(of: str) -> None:
    done = run("--of", of, "--only", "alone", "--sets", "1", "--turns", "1", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["cpu"][0] > 0


def test_no_turns_are_refused() -> None:
    assert "--sets and --turns: at least 1" in run("--turns", "0").stderr


def test_silent_sensors_take_what_the_real_ones_take() -> None:
    silent = SilentMetrics(Windows())
    for metrics in (silent, ProducerMetrics(Windows())):
        metrics.node(1).sent(100, 1.0)
        metrics.node(1).received(100, 1, 1.0)
        metrics.node(1).answered(0.5, 1.0)
        metrics.throttled(0.5, 1.0)
        metrics.stepped(0.5, 0.5, 1.0)
        metrics.lagged(0.5, 1.0)
        metrics.batches.request_sent(0, 1.0)
        heard = metrics.request_latency.count + metrics.throttle.count + metrics.loop_lag.count
        assert heard == (0 if metrics is silent else 3)
    assert set(LOADS) == {"send", "send-many", "alone"}
