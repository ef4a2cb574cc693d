"""The fault scenarios: what goes wrong, at which layers it is tried, and by which tests.

    python -m tests.faults.scenarios            list the covered scenarios and the gaps
    python -m tests.faults.scenarios --run      run those tests, and rewrite the table of README.md

A test names its scenario with `@pytest.mark.scenario(number, layer)`; this collects the marks. The layers: S,
simulation (`tests/simulation`); D, the drivers against a `FakeCluster`; M, librdkafka's mock cluster; P, a TCP
proxy that knows Kafka's framing; N, a network namespace; K, real Kafka.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- the table: python -m tests.faults.scenarios --run -->", "<!-- end of the table -->"


class Scenario(NamedTuple):
    """One row.

    Attributes:
        fault: What goes wrong.
        layers: Where it is to be tried.
        plain: What must come of a record without idempotence (acks=1 or all): 1 exactly once, 1+ at least once, f
            failed with a typed error, and absent where that is certain.
        idempotent: The same with idempotence; "=" as without.
    """

    fault: str
    layers: str
    plain: str
    idempotent: str


SCENARIOS: dict[int, Scenario] = {
    1: Scenario("no broker at the start; it appears, or never", "SMP", "waits, 1; f in time", "="),
    2: Scenario("SYN black hole at the first bootstrap address", "SN", "time-out, next address", "="),
    3: Scenario("reset before the broker reads the request", "SP", "1", "1"),
    4: Scenario("reset after the append: the answer is lost", "SMPK", "1+", "1, offset right or unknown"),
    5: Scenario("the answer is cut in the middle of a frame", "SP", "1+", "1"),
    6: Scenario("the answer is swallowed, the connection lives", "SP", "time-out, 1+", "1"),
    7: Scenario("the answer comes after the request's time-out", "SMP", "old connection closed, 1+", "1"),
    8: Scenario("black hole longer than the request's time-out", "SPN", "1+", "1"),
    9: Scenario(
        "black hole longer than the delivery time-out",
        "SPN",
        "f, ambiguous; usable",
        "f, later ones 1, no gap",
    ),
    10: Scenario("slices of one byte; answers that come together", "SP", "1", "1"),
    11: Scenario("a link of 1 kB/s, slower than the producer", "SP", "waits, memory bounded", "="),
    12: Scenario("latency of 200 ms and as much jitter", "SP", "1, order", "1, pipelined, order"),
    13: Scenario("20 % of packets lost; one way cut", "N", "1+", "1"),
    14: Scenario("the broker closes idle connections, or after each answer", "SPK", "no error", "="),
    15: Scenario("wrong correlation id, hostile length, garbage", "SP", "connection dropped, 1+", "1"),
    16: Scenario("the advertised address changes", "MPK", "follows metadata", "="),
    17: Scenario("TLS: cut handshake, expired or wrong certificate", "SDK", "1; typed error, no spin", "="),
    18: Scenario(
        "SASL: bad password; a session ends with five in flight", "SDK", "typed error; 1", "1, order"
    ),
    19: Scenario("NOT_LEADER once, three times, with the leader's hint", "SM", "1, one refresh", "1"),
    20: Scenario("the leader moves with five requests in flight", "SMK", "1+", "1, order"),
    21: Scenario("an older leader epoch in later metadata", "SM", "ignored", "="),
    22: Scenario("no leader for 3 s; for ever", "SM", "1; f in time", "1; f, sequence reusable"),
    23: Scenario("LEADER_NOT_AVAILABLE on a topic that is just created", "SMK", "1", "1"),
    24: Scenario("unknown topic, none is created", "MK", "f within max.block.ms", "="),
    25: Scenario("topic deleted and created again while sending", "MK", "no crash, 1+ after", "1 after"),
    26: Scenario("partitions are added", "MK", "used after a refresh", "="),
    27: Scenario("all brokers are replaced (KIP-899)", "MK", "1+", "1"),
    28: Scenario("ApiVersions v3 refused; versions shrink", "SMK", "negotiated per connection", "="),
    29: Scenario("the leader ends (SIGTERM)", "K", "1+", "1"),
    30: Scenario("the leader is killed (SIGKILL)", "K", "acks=1 may lose, all: 1+", "1"),
    31: Scenario("five clean bounces of the leader", "K", "1+", "1"),
    32: Scenario("five hard bounces of the leader", "K", "as 30", "1"),
    33: Scenario("rolling restart, with gzip and zstd, also over SASL_SSL", "K", "1+", "1"),
    34: Scenario("one, two of three brokers stopped (SIGSTOP)", "K", "1+ or f, ambiguous", "1 or f, no gap"),
    35: Scenario("min.insync.replicas not met: before, after the append", "SMK", "1; 1+", "1"),
    36: Scenario(
        "unclean election loses acknowledged records",
        "SK",
        "the broker's loss, seen",
        "usable after a new epoch",
    ),
    37: Scenario("KAFKA_STORAGE_ERROR, a log directory fails", "MK", "1+ after a refresh", "1"),
    38: Scenario("the controller fails over", "K", "nothing visible", "="),
    39: Scenario("throttled for 2 s (quota)", "SK", "silence meanwhile, 1", "1"),
    40: Scenario("REQUEST_TIMED_OUT with and without an append", "SM", "1+", "1"),
    41: Scenario("MESSAGE_TOO_LARGE for many records; for one", "SMK", "split; f alone", "split, order"),
    42: Scenario("CORRUPT_MESSAGE", "SM", "retried", "1"),
    43: Scenario(
        "INVALID_RECORD with errors of single records", "SK", "f, index and message", "f, next not stuck"
    ),
    44: Scenario("TOPIC_AUTHORIZATION_FAILED, granted later", "MK", "f now, 1 later", "="),
    45: Scenario("one of two partitions of a request fails", "SM", "only it is retried", "="),
    46: Scenario(
        "UNKNOWN_SERVER_ERROR; a code of the future", "SM", "f, ambiguous, name kept", "f, not stuck"
    ),
    47: Scenario("the first of five fails, the others are out of order", "SK", "-", "1, order"),
    48: Scenario("DUPLICATE_SEQUENCE_NUMBER", "SM", "-", "success, offset unknown"),
    49: Scenario("out of order at the head, nothing else in flight", "SM", "-", "new epoch, sent again"),
    50: Scenario("UNKNOWN_PRODUCER_ID, a producer forgotten", "SMK", "-", "reset, 1"),
    51: Scenario("a batch expires before it was ever sent", "S", "f", "f, sequence not used"),
    52: Scenario(
        "a batch expires in flight, others wait behind it", "S", "f, ambiguous", "never out of order for ever"
    ),
    53: Scenario("the sequence passes 2^31-1; the epoch reaches 32767", "S", "-", "wraps; new id, 1"),
    54: Scenario("InitProducerId: 14, 15, 16, 51, 31, a lost connection", "SM", "-", "retried; f, typed"),
    55: Scenario("the first of five loses its answer, the leader moves", "SK", "-", "1, order"),
    67: Scenario("cancelled at every await", "S", "queued once or not", "="),
    68: Scenario("close(timeout) in a black hole", "SP", "bounded; f, typed", "="),
    69: Scenario("flush() with a linger of 10 s; in an outage", "SM", "at once; bounded", "="),
    70: Scenario("the loop is blocked for 5 s; the wall clock jumps back", "S", "no storm of expiry", "1"),
    71: Scenario("the buffer is full in an outage that ends", "S", "waits or raises; memory", "="),
    72: Scenario("ten clients, many topics, one slow broker", "SM", "others not delayed", "="),
}
"""By their numbers; 56 to 66 come with transactions."""

EXCEPTIONS: dict[tuple[int, str], str] = {
    (
        21,
        "M",
    ): "not possible: leader epochs before Metadata v9 are not believed, and the mock's v9 is malformed",
    (28, "K"): "not possible: Kafka 4.3 speaks all versions of ApiVersions that this client does",
}
"""Rows that a layer cannot prove, and why."""


@dataclass(eq=False)
class Coverage:
    """The pytest plugin that collects marks and results."""

    tests: dict[tuple[int, str], dict[str, list[str]]] = field(default_factory=dict)
    """(number, layer) -> test function -> its node ids."""
    results: dict[str, str] = field(default_factory=dict)
    """Node id -> passed, failed, or skipped with the reason."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = []
        for item in items:
            marks = list(item.iter_markers("scenario"))
            for mark in marks:
                number, layer = mark.args
                # Where it is collected: on trio a test's function is another module's.
                path = item.nodeid.partition("::")[0].removeprefix("tests/")
                name = f"{path}::{item.originalname if isinstance(item, pytest.Function) else item.name}"
                self.tests.setdefault((number, layer), {}).setdefault(name, []).append(item.nodeid)
            if marks:
                chosen.append(item)
        items[:] = chosen

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.results[report.nodeid] = "failed"
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.results[report.nodeid] = f"skipped: {reason.removeprefix('Skipped: ')}"
        elif report.when == "call":
            self.results.setdefault(report.nodeid, "passed")

    def result_of(self, nodes: list[str]) -> str:
        """What became of a test's variants."""
        results = [self.results.get(node, "not run") for node in nodes]
        passed = results.count("passed")
        if passed == len(results):
            return "passed" if passed == 1 else f"passed ({passed})"
        others = sorted({result for result in results if result != "passed"})
        return "; ".join([f"passed ({passed})"] * bool(passed) + others)

    def missing(self) -> list[str]:
        """Rows that no test stands for at a layer where one should."""
        return [
            f"{number} at {layer}: {scenario.fault}"
            for number, scenario in SCENARIOS.items()
            for layer in scenario.layers
            if (number, layer) not in self.tests and (number, layer) not in EXCEPTIONS
        ]

    def stale(self) -> list[str]:
        """What the README's table names and is no test, or the reverse; and results it may not rest with."""
        table = README.read_text().partition(BEGIN)[2]
        named = set(re.findall(r"`([\w/]+\.py::\w+)`", table))
        results = {
            result.partition(" (")[0]
            for row in table.splitlines()
            for cell in row.split("|")[-2:-1]
            for result in re.split("<br>|; ", cell.strip())
        }
        marked = {name for tests in self.tests.values() for name in tests}
        return [
            *sorted(f"{name} is in the table only" for name in named - marked),
            *sorted(f"{name} is not in the table" for name in marked - named),
            *(
                f"there is a result {word!r} in the table"
                for word in ("failed", "not run")
                if word in results
            ),
        ]

    def table(self) -> str:
        """The table of the README."""
        lines = [
            "| # | fault | without idempotence | idempotent | layer | test | result |",
            "|---|---|---|---|---|---|---|",
        ]
        for number, scenario in SCENARIOS.items():
            head = f"| {number} | {scenario.fault} | {scenario.plain} | {scenario.idempotent} "
            layers = dict.fromkeys(
                scenario.layers + "".join(la for no, la in sorted(self.tests) if no == number)
            )
            for layer in layers:
                found = self.tests.get((number, layer), {})
                tests = "<br>".join(f"`{name}`" for name in sorted(found))
                results = "<br>".join(self.result_of(found[name]) for name in sorted(found))
                if not found:
                    tests, results = "none", EXCEPTIONS.get((number, layer), "missing")
                lines.append(f"{head}| {layer} | {tests} | {results} |")
                head = "| | | | "
        return "\n".join(lines)


def collect() -> tuple[Coverage, int]:
    """Find the marked tests."""
    coverage = Coverage()
    code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tests"], plugins=[coverage])
    return coverage, int(code)


def run(marks: str) -> tuple[dict[str, str], int]:
    """Run them, or those of certain marks; node id -> result."""
    coverage = Coverage()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", marks, "tests"], plugins=[coverage])
    return coverage.results, int(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.scenarios")
    parser.add_argument("--run", action="store_true", help="run the tests and rewrite the table of README.md")
    parser.add_argument("--marks", default="", help="with --run: only tests of these marks, as pytest's -m")
    arguments = parser.parse_args()
    coverage, code = collect()
    missing = coverage.missing()
    if arguments.run:
        coverage.results, code = run(arguments.marks)
        text = README.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        README.write_text(f"{before}{BEGIN}\n{coverage.table()}\n{END}{after}")
    covered = sum((number, layer) in coverage.tests for number, s in SCENARIOS.items() for layer in s.layers)
    wanted = sum(len(scenario.layers) for scenario in SCENARIOS.values())
    stale = coverage.stale()
    print(f"{len(SCENARIOS)} scenarios, {covered} of {wanted} pairs of scenario and layer have tests")
    for line in missing:
        print(f"  missing: {line}")
    for line in stale:
        print(f"  {README.name}: {line}")
    return code or bool(missing or stale)


if __name__ == "__main__":
    sys.exit(main())
