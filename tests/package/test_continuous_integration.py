"""What ``.ci/run`` relies on: a real-Kafka test that is skipped is seen, and in CI it is a failure.

Each case is a pytest of its own on one test of ``tests/integration``, with a Java that does not exist.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
REAL_KAFKA_TEST = "tests/integration/test_harness.py::test_an_empty_topic_is_read_as_nothing"


def run_without_java(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCE_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, REAL_KAFKA_TEST],
        cwd=REPOSITORY,
        env={**inherited, "JAVA_HOME": str(REPOSITORY / "no-java-here"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


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


def test_a_real_kafka_fixture_marks_its_test() -> None:
    answer = run_without_java("-m", "not kafka")

    assert "1 deselected" in answer.stdout
