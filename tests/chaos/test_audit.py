"""The judges of the chaos run and the soak run, tried on logs and samples that are wrong in every way they know."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.chaos.audit import Findings, audit
from tests.chaos.outcomes import Outcomes, acknowledging_seconds, longest_gap
from tests.chaos.schedule import BOUNCES, Fault, Kind, endless, one_of_each
from tests.chaos.soak import SoakReport, slope


def line(name: str, **fields: object) -> bytes:
    return json.dumps({"timestamp": 1000, "name": name, **fields}, separators=(",", ":")).encode() + b"\n"


def success(number: int, partition: int, offset: int, *, prefix: int = 0, at: int = 1000) -> bytes:
    # As Kafka 4.3.1's VerifiableProducer prints it.
    return (
        f'{{"timestamp":{at},"name":"producer_send_success","key":null,"value":"{prefix}.{number}",'
        f'"offset":{offset},"topic":"t","partition":{partition}}}\n'
    ).encode()


def failure(number: int, **more: object) -> bytes:
    error = "class aioproduce.errors.DeliveryTimeoutError"
    return line(
        "producer_send_error", topic="t", key=None, value=f"0.{number}", exception=error, message="m", **more
    )


def outcomes_of(*lines: bytes, sent: int = 4, prefix: int = 0) -> Outcomes:
    outcomes = Outcomes(prefix)
    end = line("tool_data", sent=sent, acked=0, target_throughput=-1, avg_throughput=0.0)
    outcomes.take(line("startup_complete") + b"".join(lines) + line("shutdown_complete") + end)
    return outcomes


# Records 0 and 2 in partition 0, record 1 in partition 1; record 3 failed.
SENT = (success(0, 0, 10), success(1, 1, 5), success(2, 0, 11))
LOG = [b"Partition:0\tOffset:10\t0.0", b"Partition:0\tOffset:11\t0.2", b"Partition:1\tOffset:5\t0.1"]


def judge(log: list[bytes], *more: bytes) -> dict[str, int]:
    return audit([outcomes_of(*SENT, *more)], log).wrong()


def test_nothing_is_wrong_with_a_right_log() -> None:
    findings = audit([outcomes_of(*SENT, failure(3, possibly_written=False))], LOG)

    assert findings == Findings(read=3)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_lost(missing: int) -> None:
    assert judge([record for index, record in enumerate(LOG) if index != missing]) == {"lost": 1}


def test_all_lost() -> None:
    assert judge([]) == {"lost": 3}


def test_duplicated() -> None:
    assert judge([*LOG, b"Partition:1\tOffset:6\t0.1"]) == {"duplicated": 1}
    assert judge([*LOG, b"Partition:1\tOffset:6\t0.1", b"Partition:1\tOffset:7\t0.1"]) == {"duplicated": 2}


def test_duplicated_where_it_was_not_told() -> None:
    copy = b"Partition:0\tOffset:9\t0.0"

    assert judge([copy, *LOG]) == {"duplicated": 1, "misplaced": 1}


def test_misplaced() -> None:
    assert judge([*LOG[:2], b"Partition:1\tOffset:6\t0.1"]) == {"misplaced": 1}
    assert judge([*LOG[:2], b"Partition:2\tOffset:5\t0.1"]) == {"misplaced": 1}


def test_misordered() -> None:
    swapped = [b"Partition:0\tOffset:10\t0.2", b"Partition:0\tOffset:11\t0.0", LOG[2]]

    assert judge(swapped) == {"misordered": 1, "misplaced": 2}


def test_order_is_each_producers_own() -> None:
    first = outcomes_of(success(5, 0, 0), sent=6)
    second = outcomes_of(success(0, 0, 1, prefix=1), prefix=1)
    log = [b"Partition:0\tOffset:0\t0.5", b"Partition:0\tOffset:1\t1.0"]

    assert audit([first, second], log).wrong() == {}


def test_undead_where_the_failure_was_definite() -> None:
    written = [*LOG, b"Partition:1\tOffset:6\t0.3"]

    assert judge(written, failure(3, possibly_written=False)) == {"undead": 1}
    assert judge(written, failure(3, possibly_written=True)) == {}
    assert judge(written, failure(3)) == {}  # Java's tool does not say


def test_ambiguous_twice() -> None:
    log = [*LOG, b"Partition:1\tOffset:6\t0.3", b"Partition:1\tOffset:7\t0.3"]

    assert judge(log, failure(3, possibly_written=True)) == {"duplicated": 1}


def test_foreign() -> None:
    assert judge([*LOG, b"Partition:1\tOffset:6\t0.4"]) == {"foreign": 1}
    assert judge([*LOG, b"Partition:1\tOffset:6\t1.0"]) == {"foreign": 1}


def test_the_log_of_a_producer_that_was_killed_is_judged_by_what_it_told() -> None:
    killed = Outcomes(0)
    killed.take(b"".join(SENT))

    assert audit([killed], [*LOG, b"Partition:1\tOffset:6\t0.3"]).wrong() == {}
    assert audit([killed], LOG[1:]).wrong() == {"lost": 1}


def test_acknowledged_without_an_offset_is_counted_and_found_anywhere() -> None:
    findings = audit([outcomes_of(success(0, 0, -1), sent=1)], [b"Partition:0\tOffset:77\t0.0"])

    assert (findings.wrong(), findings.unplaced) == ({}, 1)


def test_outcomes_that_are_missing_or_come_twice() -> None:
    outcomes = outcomes_of(*SENT)
    assert (outcomes.acked, outcomes.unsettled, outcomes.settled_again) == (3, 1, 0)

    for again in (success(0, 0, 10), failure(0)):
        assert outcomes_of(*SENT, again).settled_again == 1
    assert outcomes_of(failure(3), success(3, 0, 1)).settled_again == 1


def test_lines_are_taken_in_any_order_of_fields_and_in_any_pieces() -> None:
    fields = json.loads(success(3, 2, 9))
    lines = b"".join(SENT) + json.dumps(dict(reversed(fields.items()))).encode() + b"\n"
    outcomes = Outcomes(0)
    for index in range(len(lines)):
        outcomes.take(lines[index : index + 1])

    assert [outcomes.place(number) for number in range(5)] == [(0, 10), (1, 5), (0, 11), (2, 9), None]


def test_an_end_that_is_missing_or_cut() -> None:
    assert outcomes_of(*SENT).is_complete
    cut = outcomes_of(*SENT)
    cut.take(b'{"timest')
    assert not cut.is_complete
    killed = Outcomes(0)
    killed.take(b"".join(SENT))
    assert not killed.is_complete


@pytest.mark.parametrize("wrong", [b"Traceback (most recent call last):\n", SENT[0][:40] + SENT[1]])
def test_a_line_that_nobody_understands(wrong: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        Outcomes(0).take(wrong)


def test_gaps_are_those_of_all_producers_together() -> None:
    first = outcomes_of(success(0, 0, 0, at=1000), success(1, 0, 1, at=9000))
    second = outcomes_of(success(0, 0, 2, at=4000, prefix=1), prefix=1)

    assert longest_gap([first]) == 8.0
    assert longest_gap([first, second]) == 5.0
    assert acknowledging_seconds([first, second]) == 8.0
    assert longest_gap([]) == 0.0


# Schedules


def first_of(seed: int, count: int = 30) -> list[Fault]:
    return list(itertools.islice(endless(seed, 6), count))


def test_a_schedule_is_its_seed() -> None:
    assert first_of(1) == first_of(1)
    assert first_of(1) != first_of(2)


def test_every_round_has_every_kind() -> None:
    kinds = [fault.kind for fault in first_of(3)]

    assert all(set(kinds[start : start + 3]) == set(Kind) for start in range(0, 30, 3))
    bounces = {fault.kind for fault in itertools.islice(endless(1, 6, BOUNCES), 10)}
    assert bounces == {Kind.CLEAN_BOUNCE, Kind.HARD_BOUNCE}
    assert {fault.kind for fault in one_of_each(1, 6, pause=0, down=1, stall=2)} == set(Kind)


# Soak


def sample(at: float, **fields: Any) -> dict[str, Any]:
    usual = {
        "rss_kib": 50_000,
        "tasks": 3,
        "handles": 9,
        "sockets": 4,
        "outstanding": 0,
        "cpu": 0.0,
        "sent": 100,
        "acked": 100,
        "failed": {},
        "unhandled": [],
        "is_last": False,
    }
    return {"at": at, **usual, **fields}


def report_of(*, growth_kib: float = 0.0, in_log: int = 100, leak: str = "", **last: Any) -> SoakReport:
    """Half an hour, a sample a minute; with a leak there is one more of something every five minutes."""
    samples = [sample(60 * minute, rss_kib=50_000 + growth_kib * minute) for minute in range(30)]
    for minute, each in enumerate(samples):
        if leak:
            each[leak] += minute // 5
    closed = {"tasks": 1, "is_last": True, **last}
    return SoakReport(samples=[*samples, sample(1800, **closed)], in_log=in_log)


def test_nothing_is_wrong_with_a_flat_soak() -> None:
    report = report_of()

    assert (report.wrong(), report.slope) == ([], 0)


def test_the_slope_is_that_of_the_last_two_thirds() -> None:
    report = report_of(growth_kib=100)
    for minute in range(10):
        report.samples[minute]["rss_kib"] = 10

    assert report.slope == pytest.approx(100)
    assert report.growth == pytest.approx(100 * 19 / 51_000)
    assert slope([0, 1, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.8)  # worked out by hand


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (report_of(growth_kib=200), "memory grew"),
        (report_of(in_log=99), "99 records in the log"),
        (report_of(in_log=101), "101 records in the log"),
        (report_of(acked=99, in_log=99), "1 records without an outcome"),
        (report_of(acked=99, failed={"DeliveryTimeoutError": 1}), "failed"),
        (report_of(tasks=2), "2 tasks are left"),
        (report_of(outstanding=7), "7 bytes"),
        (report_of(sockets=5), "5 sockets are open"),
        (report_of(handles=10), "10 handles are open"),
        (report_of(leak="tasks"), "tasks grew from 4 at most to 7 at least"),
        (report_of(leak="sockets"), "sockets grew"),
        (report_of(leak="handles"), "handles grew"),
        (report_of(unhandled=["Task exception was never retrieved"]), "never retrieved"),
        (report_of(is_last=False), "did not come to its end"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_wrong_with_a_soak_is_said(report: SoakReport, said: str) -> None:
    (wrong,) = report.wrong()
    assert said in wrong
