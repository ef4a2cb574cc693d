"""The plugin in runs of pytest inside this one, with limits of a tenth of a second.

In this process, but for pytest-xdist, which has processes of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gate import measure, plugin

if not measure.Tree.is_possible():
    pytest.skip("this kernel tells nothing of the run queue", allow_module_level=True)

REPOSITORY = Path(__file__).parents[2]
# A sleep of 0.6 s is too long for a test, and so is 0.15 s of processor time. Waiting is measured as a lower bound:
# on a machine with other work most of a sleep may go uncounted.
SMALL = ("-o", "gate_waiting=0.1", "-o", "gate_cpu=0.05", "-o", "gate_floor=0.1")
CONFIGURATION = """
    [pytest]
    addopts = --strict-markers --strict-config -p no:cacheprovider
    asyncio_default_fixture_loop_scope = function
    markers =
        extended(reason): not of the gate
        kafka: with real brokers
        native: about the build
    filterwarnings = error
"""
BURN = """
    import time
    import pytest

    def burn(seconds=0.15):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest in pytest; what is in the environment of this run is not meant for that one."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeini(CONFIGURATION)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*SMALL, *arguments, "--gate-file=budget.json", plugins=[plugin])

    return run


def report(pytester: pytest.Pytester) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((pytester.path / "build" / "gate.json").read_text())
    return told


def test_without_an_option_it_does_nothing(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        f"""
        import os

        def test_it():
            assert {measure.TOKEN_NAME!r} not in os.environ or "." in os.environ[{measure.TOKEN_NAME!r}]
        """
    )

    result = run()

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*what the tests cost*")
    assert not (pytester.path / "build").exists()


def test_where_the_kernel_tells_nothing_it_does_nothing(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure.Tree, "is_possible", lambda: False)
    pytester.makepyfile("import time\ndef test_it(): time.sleep(0.6)")

    result = run("--gate-budget")

    assert result.ret == 0
    result.stdout.no_fnmatch_line("*what the tests cost*")


def test_a_test_that_waits_and_one_that_works_fail_the_run_and_extended_ones_do_not(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        BURN
        + """
    def test_that_waits(): time.sleep(1.5)

    def test_that_works(): burn(0.6)

    @pytest.mark.extended("the real thing")
    def test_extended(): time.sleep(0.3)

    @pytest.mark.kafka
    def test_with_brokers(): burn()
    """
    )

    # A thread that an earlier test has left in this process may take some processor time during the sleep.
    result = run("--gate-budget", "-o", "gate_cpu=0.2")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4)
    result.stdout.re_match_lines(
        [
            r"TOO MUCH: \.: [01]\.\d s of CPU, 0\.0 s are recorded, .*",
            r"TOO MUCH: \.: (0\.[2-9]|1\.[0-5]) s of waiting, 0\.0 s are recorded, .*",
            r" +(0\.[2-9]|1\.[0-5])\d s  test_a_test_that_waits.*\.py::test_that_waits",
            r"TOO MUCH: kafka: .* s of CPU, .*",
            r"TOO MUCH: .*::test_that_waits: [01]\.\d+ s of waiting; a test of the gate may take 0\.1 s.*",
            r"TOO MUCH: .*::test_that_works: [01]\.\d+ s of CPU; a test of the gate may take 0\.2 s.*",
            r"What to do: make it cheaper, .* @pytest\.mark\.extended.* --gate-record .*",
            r"=+ 4 passed in .*",
            # The directory twice, the group, both tests, and pytest itself: nothing of it is recorded.
            r"the gate fails: 6 x TOO MUCH, named above",
        ]
    )
    rows = report(pytester)["rows"]
    assert {name: row["tests"] for name, row in rows.items() if row["tests"]} == {
        ".": 2,
        "extended .": 1,
        "kafka": 1,
    }


def test_what_is_recorded_is_the_budget(pytester: pytest.Pytester, run: Run) -> None:
    pytester.mkdir("tests")
    pytester.makepyfile(**{"tests/test_it": "def test_it(burn): burn(0.2)"})
    pytester.makeconftest(BURN + "    @pytest.fixture(name='burn')\n    def _burn():\n        return burn")
    file = pytester.path / "budget.json"

    assert run("--gate-budget", "--gate-record", "-o", "gate_cpu=5").ret == 0
    budget = json.loads(file.read_text())
    assert set(budget["rows"]) == {"fixtures below 0.5 s", "pytest itself", "tests"}
    # About 0.2: it is recorded at the processor's speed in the mean, and that may change during the run.
    assert budget["rows"]["tests"]["cpu_s"] > 0

    # What pytest costs here depends on the run around it, and so does the rest of a test's cost: this process has
    # other tests' objects to collect and may have a thread of theirs.
    budget["rows"]["pytest itself"]["cpu_s"] = 1e6
    budget["rows"]["tests"] = {"cpu_s": 100.0, "waiting_s": 100.0}
    file.write_text(json.dumps(budget))
    assert run("--gate-budget", "-o", "gate_cpu=5").ret == 0

    budget["rows"]["tests"]["cpu_s"] = 0.0
    file.write_text(json.dumps(budget))
    result = run("--gate-budget", "-o", "gate_cpu=5")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines([r"TOO MUCH: tests: \d\.\d s of CPU, 0\.0 s are recorded.*"])


@pytest.mark.parametrize("body", ["assert False", "pytest.exit('enough')"])
def test_only_a_whole_run_that_passes_is_recorded(pytester: pytest.Pytester, run: Run, body: str) -> None:
    pytester.makepyfile(f"import pytest\ndef test_it(): {body}")

    result = run("--gate-record")

    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert not (pytester.path / "budget.json").exists()


def test_a_run_that_ended_early_is_not_judged(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        "import time\ndef test_it():\n    time.sleep(0.6)\n    assert False\ndef test_two(): pass"
    )

    result = run("--gate-budget", "-x")

    result.stdout.fnmatch_lines(["the run was not whole (stopping after 1 failures): nothing is judged*"])
    result.stdout.no_fnmatch_line("*TOO MUCH*")
    assert report(pytester)["is_whole"] is False


def test_a_shared_fixture_is_not_the_cost_of_who_asks_first(pytester: pytest.Pytester, run: Run) -> None:
    """Setup and teardown, one fixture inside another, and the work of its process during others' tests."""
    pytester.makepyfile(
        BURN
        + """
    import subprocess, sys

    WORK = "import time\\nprint(1, flush=True)\\nwhile time.process_time() < 0.1: pass\\ntime.sleep(60)"

    @pytest.fixture(scope="session")
    def broker():
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", WORK], stdout=subprocess.PIPE)
        process.stdout.readline()
        yield process
        process.kill()
        process.communicate()
        burn(0.05)

    @pytest.fixture(scope="session")
    def session(broker):
        burn(0.05)
        yield
        burn(0.05)

    @pytest.fixture(scope="module")
    def module():
        yield time.sleep(0.3)

    def test_first(session): pass

    def test_alone(): time.sleep(0.4)

    def test_second(session, module): pass
    """
    )

    result = run("--gate-measure")

    result.assert_outcomes(passed=3)
    told = report(pytester)
    rows = told["rows"]
    assert rows["fixtures below 0.5 s"]["cpu_s"] == pytest.approx(0.25, abs=0.15)
    tests = {each["test"].split("::")[1]: each for each in told["slowest"]}
    assert tests["test_first"]["cpu_s"] < 0.15
    assert tests["test_alone"]["cpu_s"] < 0.15
    # What was slept, less what the machine hides: waiting is measured as a lower bound.
    assert 0.1 < tests["test_alone"]["waiting_s"] < 0.5
    assert tests["test_second"]["waiting_s"] < 0.1
    assert 0.3 < rows["."]["waiting_s"] < 0.8


def test_a_fixture_of_a_module_is_limited_as_a_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import time, pytest

        @pytest.fixture(scope="module")
        def slow():
            time.sleep(0.6)

        def test_it(slow): pass
        """
    )

    result = run("--gate-budget")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines([r"TOO MUCH: test_a_fix.*\.py::fixture slow: 0\.[2-6]\d s of waiting.*"])


def test_workers_measure_and_the_controller_sums_up(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    # Three processes: most of what they would load is for other tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nfilterwarnings = error")
    pytester.makeconftest("pytest_plugins = ['tests.gate.plugin']")
    slow = "import time, pytest\n@pytest.mark.parametrize('n', range(2))\ndef test_it(n): time.sleep(0.3)"
    pytester.makepyfile(test_one=slow, test_two=slow)

    arguments = ("-p", "xdist", "-n", "2", "--dist", "loadfile", "--gate-budget", "--gate-file=budget.json")
    result = pytester.runpytest_subprocess(*arguments, *SMALL)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4)
    result.stdout.re_match_lines([r"TOO MUCH: \.: (0\.[4-9]|1\.[0-3]) s of waiting, .*"])
    told = report(pytester)
    assert told["is_whole"] is True
    assert told["rows"]["."]["tests"] == 4
    # A worker has a thread that hears from the controller: on a busy machine that wants to run meanwhile.
    assert 0.4 < told["rows"]["."]["waiting_s"] < 1.3
    assert [row["tests"] for row in told["functions"].values()] == [2, 2]


def test_a_worker_that_dies_leaves_no_figures(pytester: pytest.Pytester, run: Run) -> None:
    """What is left to judge by then would be too little."""
    pytester.makepyfile("import time\ndef test_it(): time.sleep(0.6)")
    pytester.makeconftest(
        """
        from types import SimpleNamespace

        def pytest_runtest_teardown(item):
            judge = item.config.pluginmanager.get_plugin("aioproduce-gate-judge")
            for name in ("gw0", "gw1"):
                judge.pytest_testnodeready(SimpleNamespace(gateway=SimpleNamespace(id=name)))
            told = {"aioproduce_gate": "[]"}
            judge.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw0"), workeroutput=told))
            # One that crashed never said a last word.
            judge.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw1")))
        """
    )

    result = run("--gate-budget")

    result.stdout.fnmatch_lines(["the run was not whole (no figures from gw1): nothing is judged*"])
    assert report(pytester)["is_whole"] is False
