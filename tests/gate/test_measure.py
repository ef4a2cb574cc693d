"""Processor time and waiting of a tree of processes: wherever spent, once, whatever else the machine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

if sys.platform != "linux":
    pytest.skip("measured by what Linux tells in /proc", allow_module_level=True)

from tests.gate.measure import TOKEN_NAME, Tree, _Contention
from tests.gate.program import BURNT, SLEPT

if not Tree.is_possible():
    pytest.skip("this kernel tells nothing of the run queue", allow_module_level=True)

# A child starts and ends besides; times of living processes come in ticks of 10 ms.
BESIDES = 0.06
TICKS = 0.03


def measured(*cases: str) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate.program", *cases], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_own_threads_and_children_are_counted_and_a_sleep_is_not() -> None:
    burn, thread, child, sleep = measured("burn", "thread", "child", "sleep")

    for figures in (burn, thread, child):
        assert BURNT - TICKS <= figures["cpu"] <= BURNT + BESIDES
    assert sleep["cpu"] < TICKS
    assert SLEPT - TICKS <= sleep["waiting"] <= sleep["wall"]


@pytest.mark.parametrize("kind", ["child", "grandchild"])
def test_a_process_that_lives_on_is_counted_once(kind: str) -> None:
    """A broker of the session: its end must not bring the cost of its whole life to the test that runs then."""
    lives, nothing, end = measured(f"living {kind}", "nothing more", "its end")

    assert BURNT - TICKS <= lives["cpu"] <= BURNT + 2 * BESIDES
    assert nothing["cpu"] < TICKS
    assert nothing["waiting"] >= SLEPT - TICKS
    assert end["cpu"] < BESIDES


def test_an_end_that_nobody_waits_for_hides_no_work() -> None:
    """What it used was counted while it lived. No sum of ended children has it, so others' work seemed less."""
    lives, end = measured("living unawaited", "end of the unawaited")

    assert BURNT - TICKS <= lives["cpu"] <= BURNT + 2 * BESIDES
    assert BURNT - TICKS <= end["cpu"] <= BURNT + 2 * BESIDES
    assert end["waiting"] < BESIDES


@pytest.fixture
def one_loaded_cpu() -> Iterator[int]:
    """A processor on which another process wants to run all the time."""
    cpu = max(os.sched_getaffinity(0))
    # Bounded, should nobody end them.
    script = f"""
import os, time
os.sched_setaffinity(0, {{{cpu}}})
print("begun", flush=True)
while time.process_time() < 2: pass
"""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", script], stdout=subprocess.PIPE) as burner:
        assert burner.stdout is not None
        burner.stdout.readline()
        yield cpu
        burner.kill()


def test_load_on_the_machine_is_no_waiting(one_loaded_cpu: int) -> None:
    """Two share one processor: what takes 0.1 s of it takes twice that on the clock."""
    burn, thread, child = measured(f"cpu={one_loaded_cpu}", "burn", "thread", "child")

    for figures in (burn, thread, child):
        assert figures["wall"] > 1.4 * BURNT
        assert figures["waiting"] < BESIDES


def test_what_nobody_saw_waited_as_long_as_others_lately() -> None:
    contention = _Contention()
    assert contention.queue_of(1.0) == 0
    for _ in range(10):
        contention.learn(1.0, 9.0)
    for _ in range(30):
        contention.learn(0.5, 1.0)

    assert contention.queue_of(0.1) == pytest.approx(0.2, rel=0.01)


def test_a_process_that_was_there_before_is_nobodys_cost() -> None:
    """As a broker of the session is, when a test of the gate measures in the process of the gate."""
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    script = f"print(1, flush=True)\ninput()\n{burn}print(2, flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        tree = Tree()
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            lives = tree.read()
            process.communicate(b"\n")
            end = tree.read()
        finally:
            tree.close()

    assert lives.living == end.living == []
    assert lives.cpu + end.cpu < 0.3 - TICKS


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_NAME, "of a run outside")
    tree = Tree()
    assert os.environ[TOKEN_NAME] != "of a run outside"
    tree.close()

    assert os.environ[TOKEN_NAME] == "of a run outside"
