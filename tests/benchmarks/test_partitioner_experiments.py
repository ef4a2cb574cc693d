"""The experiments of the partitioners' history at a fraction of their size: their shapes; one seed, one outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.partitioners import balance, batching, slow_broker
from benchmarks.partitioners.run import Measured, measure


def batched(partitioner: str, linger: int, per_request: float = 0.0012) -> Measured:
    return measure(
        batching.load(400, per_request), {"partitioner_class": partitioner, "linger_ms": linger}, seed=3
    )


@pytest.mark.parametrize("partitioner", ["sticky", "uniform_sticky"])
def test_records_that_stick_wait_less_than_records_that_go_round(partitioner: str) -> None:
    in_turn, together = batched("round_robin", 10), batched(partitioner, 10)
    assert (
        together.percentile(0.5) < in_turn.percentile(0.5) / 2
    )  # as KIP-480 says: half, and more with linger
    assert together.records_per_request > in_turn.records_per_request
    assert sum(together.by_partition) == sum(in_turn.by_partition) == 3 * 400


def test_a_slow_broker_piles_records_up_unless_shares_are_by_bytes() -> None:
    found = dict(slow_broker.run(seed=3, records=3_000))
    assert list(found) == list(slow_broker.PUBLISHED)
    assert found["sticky"].mean > 4 * found["uniform"].mean
    assert found["uniform"].mean > found["adaptive"].mean
    shares = {name: measured.by_broker[slow_broker.SLOW] / 3_000 for name, measured in found.items()}
    assert shares["sticky"] > 0.8 > 0.55 > shares["uniform"] > shares["adaptive"]
    assert sum(found["availability time-out"].by_broker) == 3_000


def test_the_same_seed_gives_the_same_figures() -> None:
    assert batched("uniform_sticky", 0) == batched("uniform_sticky", 0)
    assert balance.counts("random", 8_000, seed=3) == balance.counts("random", 8_000, seed=3)
    assert balance.counts("random", 8_000, seed=3) != balance.counts("random", 8_000, seed=4)


def test_every_record_is_counted_once() -> None:
    found = dict(balance.run(seed=3, records=8_000))
    assert found["round_robin"] == [2_000] * 4
    assert {name: sum(counts) for name, counts in found.items()} == dict.fromkeys(found, 8_000)
    assert min(found["random"]) > 1_800  # five standard deviations are 194


@pytest.mark.extended("runs and plots all experiments; the JSON output stays in the gate")
def test_the_program_prints_tables_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "experiments.svg"
    shown = run(
        "--only", "slow_broker", "--only", "balance", "--records", "1000", "--plot", str(picture)
    ).stdout
    assert "KIP-794: 1,000 records" in shown
    assert "1,000 keyless records" in shown
    assert "94,685 to 94,798" in " ".join(shown.split())
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert "<svg" in picture.read_text()


def test_too_few_records_are_refused() -> None:
    refused = run("--records", "999", status=2)
    assert "--records: at least 1,000" in refused.stderr


def test_the_program_for_programs() -> None:
    told = json.loads(run("--only", "balance", "--records", "4000", "--json", "--seed", "3").stdout)
    assert told["records"] == {"balance": 4000}
    assert {row["partitioner"]: row["by_partition"] for row in told["experiments"]["balance"]} == dict(
        balance.run(seed=3, records=4_000)
    )


def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.partitioners", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done
