"""What every test shares: which build of the hot path is tested, and what a skipped real-Kafka test means.

Loaded by pytest before any test module, and it must stay the first to import anything of ``aioproduce``.

1. With ``AIOPRODUCE_PURE=1`` no compiled module of ``aioproduce`` is ever loaded: the same ``.py``
   files run interpreted, so one command tests both builds (``make test`` does).
2. No test leaves a switch of the interpreter thrown that slows or silences those after it.
3. A test that uses a real Kafka carries the ``kafka`` marker, whether its author thought of it or not; one that
   starts Spark carries ``spark``.
4. With ``AIOPRODUCE_REQUIRE_KAFKA=1`` (set by ``.ci/run`` in CI) a skip of such a test is a failure that says
   why.
5. Hypothesis does not judge how fast examples come, and how long one takes: no test has a limit by the clock.
6. Ctrl-C ends a wait, here and in the processes that tests start. A shell has what it starts in the background
   ignore SIGINT.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tracemalloc
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.dashboard.browser import NO_CHROMIUM
from tests.groups import group_of
from tests.interpreted_finder import InterpretedNative
from tests.secured.kdc import NO_KDC

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# For tests/plugin, which runs pytest in pytest; only here may it be asked for.
pytest_plugins = ["pytester", "tests.gate.plugin"]

hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

IS_PURE = os.environ.get("AIOPRODUCE_PURE") == "1"
REQUIRES_KAFKA = os.environ.get("AIOPRODUCE_REQUIRE_KAFKA") == "1"

KAFKA_FIXTURES = frozenset({"kafka1", "kafka3", "secured1", "secured3", "kafka_tools"})
SPARK_FIXTURES = frozenset({"spark", "connector"})
BROWSER_FIXTURES = frozenset({"chromium", "visit"})
FIRST = ("spark", "kafka")
"""The groups that wait most are begun first, so that the files of the others fill the processors meanwhile."""


if IS_PURE:
    already_loaded = [
        name
        for name, module in sys.modules.items()
        if name.startswith("aioproduce.") and (module.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
    ]
    if already_loaded:
        raise RuntimeError(
            f"AIOPRODUCE_PURE=1 comes too late: {', '.join(already_loaded)} is imported already"
        )
    sys.meta_path.insert(0, InterpretedNative("aioproduce"))


def _switches() -> dict[str, object]:
    return {
        "tracemalloc is tracing": tracemalloc.is_tracing(),
        "trace function": sys.gettrace(),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collection": gc.isenabled(),
        "level of the logger": logging.getLogger("aioproduce").level,
        "logging disabled below": logging.root.manager.disable,
    }


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    """Fail the test that leaves the process otherwise than it found it, not the one that meets it thus."""
    before = _switches()
    yield
    assert _switches() == before


def pytest_report_header() -> str:
    """Say in the first lines of the run which build is tested."""
    return f"aioproduce: {'interpreted (AIOPRODUCE_PURE=1)' if IS_PURE else 'as built'}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what patches the core where that is compiled: `make` runs it interpreted."""
    from tests.native_builds import core_is_compiled

    if item.get_closest_marker("patches_core") is not None and core_is_compiled():
        pytest.skip("it replaces methods of the core's classes, which are compiled: AIOPRODUCE_PURE=1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for a real Kafka, Spark or a browser, so that ``-m 'not kafka'`` can be relied on.

    And say which tests run in one process where there are several (``pytest -n 3 --dist loadgroup``): those with
    Spark, which share its JVM, those with a real Kafka, which share its brokers, and otherwise those of each file.
    First of all, since pytest-xdist reads the groups in the same hook, and before a conftest's.
    """
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        if fixtures & KAFKA_FIXTURES:
            item.add_marker("kafka")
        if fixtures & SPARK_FIXTURES:
            item.add_marker("spark")
        if fixtures & BROWSER_FIXTURES:
            item.add_marker("browser")
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    order = {group: place for place, group in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(group_of(item), len(order)))


def pytest_collection_finish() -> None:
    """Keep what collecting made out of all later garbage collections.

    Many tests ask for full collections. Each walked pytest's own half a million objects, for 0.3 s.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test with a real Kafka or Spark into a failure where CI asked for it."""
    report = yield
    is_expected_failure = hasattr(report, "wasxfail")
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    is_about_java = item.get_closest_marker("kafka") or item.get_closest_marker("spark")
    is_about_kafka = is_about_java and NO_CHROMIUM not in reason and NO_KDC not in reason
    if REQUIRES_KAFKA and report.skipped and not is_expected_failure and is_about_kafka:
        kind = "real-Kafka" if item.get_closest_marker("kafka") else "Spark"
        report.outcome = "failed"
        report.longrepr = f"AIOPRODUCE_REQUIRE_KAFKA=1, but this {kind} test was skipped. {reason}"
    return report
