"""The benchmark tool itself, run small: what it counts, what it refuses, and the JSON that others read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks import judge, report
from benchmarks.cases import Case, Outcome, Settings
from benchmarks.clients import NAMES, client
from benchmarks.loop_clock import LoopWatch, Ticks, percentiles
from benchmarks.null_broker import CompilerNotFoundError, find_compiler
from benchmarks.plans import SECTIONS, Effort
from benchmarks.process import payload
from benchmarks.runner import BenchmarkError, CountMismatchError, Result, run_interleaved, run_once
from benchmarks.targets import FakeTarget, Target, fake_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def broker_options() -> list[str]:
    try:
        find_compiler()
    except CompilerNotFoundError:
        return ["--broker", "fake"]
    return []


@pytest.fixture(scope="module")
def target() -> Iterator[FakeTarget]:
    with fake_target() as target:
        yield target


def case_of(client: str = "aioproduce", mode: str = "await-each", records: int = 300) -> Case:
    return Case("throughput", client, mode, "asyncio", records, warmup=20)


@pytest.mark.extended("runs a benchmark from end to end, and builds the other clients")
def test_the_command_compares_two_clients_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "null", "--rounds", "2", "--no-pin"]
    command += ["--clients", "aioproduce", "aiokafka", "--modes", "await-each", "--seconds", "0.01"]
    command += ["--json", str(file), *broker_options()]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "aiokafka (uvloop), await-each" in answer.stdout
    found = json.loads(file.read_text())
    assert {"machine", "command", "pinned", "sections", "others", "targets", "skipped"} == set(found)
    assert found["pinned"] is None
    assert found["machine"]["aiokafka"].startswith("0.")
    cases = {each["name"]: each for each in found["sections"]["null"]}
    assert set(cases) == {
        f"{name} ({loop}), await-each"
        for name in ("aioproduce", "aiokafka")
        for loop in ("uvloop", "asyncio")
    }
    for each in cases.values():
        assert len(each["rounds"]) == 2
        assert each["median"]["records"] == each["case"]["records"] > 0
        for figure in ("records_per_second", "cpu_seconds_per_million", "rss_peak_mib"):
            assert each["median"][figure] > 0
    (ratio,) = [
        each for each in found["targets"]["null"] if each["what"] == "await-each / aiokafka await-each"
    ]
    ours, theirs = (
        cases[f"{name} (uvloop), await-each"]["median"]["records_per_second"]
        for name in ("aioproduce", "aiokafka")
    )
    assert ratio["value"] == pytest.approx(ours / theirs)


@pytest.mark.parametrize("mode", sorted(client("aioproduce").modes))
def test_every_mode_of_ours_sends_exactly_what_it_says(mode: str, target: FakeTarget) -> None:
    outcome = run_once(case_of(mode=mode), target)
    assert outcome.records == 300
    assert outcome.total == target.count() == 321


@pytest.mark.parametrize("mode", sorted(client("aiokafka").modes))
@pytest.mark.extended(
    "tests the code that drives another client; the code that drives ours stays in the gate"
)
def test_every_mode_of_aiokafka_sends_exactly_what_it_says(mode: str, target: FakeTarget) -> None:
    outcome = run_once(case_of("aiokafka", mode), target)
    assert outcome.total == target.count() == 321


@pytest.mark.parametrize("mode", sorted(client("confluent").modes))
@pytest.mark.extended(
    "tests the code that drives another client; the code that drives ours stays in the gate"
)
def test_every_mode_of_confluent_sends_exactly_what_it_says(mode: str, target: FakeTarget) -> None:
    outcome = run_once(case_of("confluent", mode), target)
    assert outcome.total == target.count() == 321


class OneTooMany:
    """A broker that has seen a record which no client was told of."""

    name = "one too many"

    def __init__(self, target: Target) -> None:
        self._target = target
        self.bootstrap_servers = target.bootstrap_servers

    def begin(self) -> None:
        self._target.begin()

    def count(self) -> int:
        return self._target.count() + 1

    def shape(self) -> dict[str, float]:
        return {}


def test_a_count_that_differs_from_the_brokers_fails_the_run(target: FakeTarget) -> None:
    with pytest.raises(CountMismatchError, match=r"321 records .* has 322"):
        run_once(case_of(), OneTooMany(target))


def test_a_worker_that_fails_is_shown(target: FakeTarget) -> None:
    with pytest.raises(BenchmarkError, match="KeyError: 'no such mode'"):
        run_once(case_of(mode="no such mode"), target)


def test_rounds_alternate_and_medians_are_taken(target: FakeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    seconds = iter((1.0, 1.0, 3.0, 2.0, 4.0, 9.0))

    def run(case: Case, target: Target | None, cores: tuple[int, ...], interpreter: Sequence[str]) -> Outcome:
        ran.append(case.client)
        return Outcome(records=12, total=12, seconds=next(seconds), cpu_seconds=6e-6)

    monkeypatch.setattr("benchmarks.runner.run_once", run)
    first, second = run_interleaved([(target, case_of("a")), (target, case_of("b"))], rounds=3)
    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert first.figures["records_per_second"] == 12 / 2.0
    assert second.figures["records_per_second"] == 12 / 3.0
    assert first.figures["cpu_seconds_per_million"] == pytest.approx(0.5)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_tasks_that_only_wait_are_all_woken(loop: str) -> None:
    outcome = run_once(Case("parking", "", "", loop, 300, options={"tasks": 100}), None)
    assert outcome.records == 300
    assert outcome.seconds > 0


def test_latencies_at_a_fixed_rate(target: FakeTarget) -> None:
    case = Case(
        "latency", "aioproduce", "", "asyncio", 200, options={"rate": 400.0}, settings=Settings(linger_ms=0)
    )
    outcome = run_once(case, target)
    assert outcome.total == 601
    figures = outcome.figures
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"] <= figures["latency_max_ms"]
    # 600 records, each not before it is due.
    assert outcome.seconds >= 599 / 400


def test_percentiles_are_nearest_ranks() -> None:
    found = percentiles("x", [number / 1000 for number in range(1000, 0, -1)])
    assert found == pytest.approx({"x_p50_ms": 500, "x_p99_ms": 990, "x_p99.9_ms": 999, "x_max_ms": 1000})
    assert percentiles("x", [0.007])["x_p50_ms"] == 7
    assert percentiles("x", []) == {}


async def test_ticks_that_nobody_served_are_late_not_left_out() -> None:
    with LoopWatch() as watch:
        await watch.wait(0)
        time.sleep(0.03)  # noqa: ASYNC251  # the stall that is to be seen
        await watch.wait(25)
    assert len(watch.late) == watch.expired >= 26
    assert max(watch.late) >= 0.02
    assert min(watch.late) >= 0
    assert sum(late >= 0.01 for late in watch.late) >= 10


async def test_a_tick_is_never_early() -> None:
    with Ticks(0.002) as ticks:
        for tick in (0, 3, 4):
            await ticks.wait(tick)
            assert time.perf_counter() >= ticks.due(tick)
        await asyncio.wait_for(ticks.wait(1), timeout=5)


@pytest.mark.parametrize("size", [10, 100, 1000, 10_000])
def test_payloads_have_their_size_and_fit_on_a_line(size: int) -> None:
    values = payload(size)
    assert {len(value) for value in values} == {size}
    assert not any(b"\n" in value for value in values)
    assert values == payload(size)


def test_a_case_survives_the_way_to_its_worker() -> None:
    case = Case("latency", "Java", "callback", "", 5, settings=Settings(acks="1"), options={"rate": 2.5})
    assert Case.from_json(case.to_json()) == case
    outcome = Outcome(records=3, total=4, figures={"x": 1.5})
    assert Outcome.from_json(outcome.to_json()) == outcome


def test_growth_counts_from_ten_on_and_only_upwards() -> None:
    assert report.growth_of([(1, 100.0), (10, 5.0), (100, 4.0), (1000, 4.4)]) == pytest.approx(1.1)
    assert report.growth_of([(10, 9.0), (100, 3.0), (1000, 1.0)]) == 1
    assert report.verdict("partitions", [(10, 1.0), (100, 1.21)]).startswith("NO")


def test_a_target_may_be_a_least_or_a_most() -> None:
    assert judge.Judgement("x", 2.0, 1.9, 2.5).is_met
    assert not judge.Judgement("x", 2.0, 1.9, 2.5).is_goal_met
    assert not judge.Judgement("x", 0.71, 0.7, 0.5, is_most=True).is_met
    assert judge.Judgement("x", 0.5, 0.7, 0.5, is_most=True).is_goal_met


def test_each_size_is_judged_by_its_own_targets() -> None:
    def result(client: str, mode: str, rate: float, value_size: int = 100, batch_size: int = 65536) -> Result:
        settings = Settings(value_size=value_size, batch_size=batch_size)
        case = Case("throughput", client, mode, "uvloop", settings=settings)
        figures = {"records_per_second": rate, "cpu_seconds_per_million": 1e6 / rate}
        return Result(case, {**figures, "megabytes_per_second": rate * case.settings.value_size / 1e6}, [])

    results = [
        result("aioproduce", "dropped", 250_000.0, value_size=10_000),
        result("aioproduce", "await-each", 1_500_000.0, batch_size=16384),
        result("Java", "callback", 1_000_000.0, batch_size=16384),
        result("aioproduce", "dropped", 2_000_000.0),
        result("franz-go", "callback", 1_000_000.0),
    ]
    judged = {each.what: each for each in judge.judge({"null": results}, {})["null"]}
    assert {what: each.value for what, each in judged.items()} == pytest.approx(
        {
            "dropped / franz-go callback": 2.0,
            "await-each / Java callback, batches of 16 KiB": 1.5,
            "10 KB records, dropped": 2500.0,
        }
    )
    assert all(each.is_met for each in judged.values())


def test_latency_is_judged_by_the_best_peer_and_the_processor_by_confluent() -> None:
    def result(client: str, p50: float, cpu: float) -> Result:
        case = Case("latency", client, "linger 0", "uvloop", settings=Settings(linger_ms=0))
        return Result(
            case,
            {"latency_p50_ms": p50, "latency_p99_ms": 2.0, "latency_p99.9_ms": 3.0, "cpu_percent": cpu},
            [],
        )

    results = [
        result("aioproduce", 0.2, 60.0),
        result("aiokafka", 0.5, 90.0),
        result("confluent", 0.25, 40.0),
    ]
    judged = judge.judge({"latency": results}, {})["latency"]
    assert [each.is_met for each in judged] == [True, True, True, False]
    assert judged[0].least == 0.25
    assert judged[0].is_goal_met
    assert judged[3].value == pytest.approx(1.5)


def test_the_round_trip_is_judged_against_what_five_requests_can_carry() -> None:
    def result(delay: float, rate: float) -> Result:
        case = Case("throughput", "aioproduce", "await-each", "uvloop", options={"round_trip_ms": delay})
        return Result(case, {"records_per_second": rate}, [])

    judged = judge.judge({"round-trip": [result(0.0, 9e6), result(10.0, 983_040.0)]}, {})
    # 5 requests of 6 batches of 64 KiB in 10 ms are 1,966,080 records of 100 bytes a second.
    assert judged["round-trip"][0].value == pytest.approx(0.5)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_plans_name_only_what_there_is(name: str) -> None:
    from benchmarks.worker import MEASURES

    effort = Effort(rounds=1, seconds=0.1, is_quick=True, clients=("aioproduce", "aiokafka"))
    section = SECTIONS[name](effort)
    assert section.runs
    for _, case in section.runs:
        assert case.measure in MEASURES
        assert case.client in NAMES or case.client.startswith("(")
        if case.measure == "throughput":
            assert case.mode in client(case.client).modes
