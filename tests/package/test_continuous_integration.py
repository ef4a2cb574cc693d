"""What CI relies on: a skipped real-Kafka test is seen, in CI it is a failure; groups stay together.

Each case is a pytest of its own: on one test of ``tests/integration``, with a Java that does not exist; and on a
file that one process is to run. What the hosted CI's workflows run is there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.tiers import PARTS

REPOSITORY = Path(__file__).parents[2]
REAL_KAFKA_TEST = "tests/integration/test_harness.py::test_an_empty_topic_is_read_as_nothing"
ONE_GROUP = "tests/faults/test_verdict.py"


def run_without_java(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(
        *options,
        REAL_KAFKA_TEST,
        JAVA_HOME=str(REPOSITORY / "no-java-here"),
        **environment,
    )


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Another pytest, which does not inherit what this one was told."""
    told = ("AIOPRODUCE_", "PYTEST_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=REPOSITORY,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.extended("runs pytest in a process; the same in CI stays in the gate")
def test_without_java_a_real_kafka_test_skips_and_says_why() -> None:
    answer = run_without_java()

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "1 skipped" in answer.stdout
    assert "no real Kafka: no java under JAVA_HOME=" in answer.stdout


def test_in_ci_the_same_skip_is_a_failure() -> None:
    answer = run_without_java(AIOPRODUCE_REQUIRE_KAFKA="1")

    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "this real-Kafka test was skipped" in answer.stdout
    assert "install a Java 17 runtime" in answer.stdout


@pytest.mark.extended("runs pytest in a process")
def test_a_real_kafka_fixture_marks_its_test() -> None:
    answer = run_without_java("-m", "not kafka")

    assert "1 deselected" in answer.stdout


@pytest.mark.extended("runs pytest with several processes")
def test_one_process_runs_a_group() -> None:
    """Otherwise each of two starts all brokers and a Spark of its own, and nothing says so."""
    answer = run("-n", "2", "--dist", "loadgroup", "-v", ONE_GROUP)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    ran = re.findall(r"\[(gw\d)\].* PASSED", answer.stdout)
    assert len(ran) > 10
    assert len(set(ran)) == 1


WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_there(workflow: Path) -> None:
    text = workflow.read_text()
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z][\w-]*)", re.sub("#.*", "", text))) <= targets
    assert set(re.findall(r"PART=(\w+)", text)) <= PARTS.keys()
    programs = re.findall(r"(?:run: |python )((?:\.ci|tests)/[\w./]+)", text)
    assert [program for program in programs if not (REPOSITORY / program).is_file()] == []


def test_each_night_runs_all_parts_and_each_can_be_run_alone() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "nightly.yml").read_text()
    options = re.search(r"options: \[([^]]*)\]", text)
    nightly = re.search(r"'\[([^]]*)\]'", text)
    assert options is not None
    assert nightly is not None
    parts = re.findall(r"\w+", nightly[1])
    assert re.findall(r"\w+", options[1]) == ["all", *parts]
    assert set(parts) == PARTS.keys() | {"mutation", "soak", "fuzz"}
