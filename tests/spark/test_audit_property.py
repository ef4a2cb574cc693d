"""The audit against an oracle that only counts: lakes with holes, duplicates, conflicts, failures and lost tails.

Needs no JVM. Numbers lie around the seams of blocks, where counting by blocks could go wrong.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.spark.jobs.audit_judge import Judge, Scope
from aioproduce.spark.jobs.audit_lake import LocalPasses
from aioproduce.spark.jobs.audit_report import AuditReport
from aioproduce.spark.jobs.marks import Expectation
from aioproduce.spark.ranges import union
from tests.spark.lake_making import Row, count_by_hand, id_of, write_files

SEAMS = (0, 65_536, 131_072, 5 * 65_536, 1 << 40)
PRODUCERS = 3


@dataclass
class Lake:
    files: list[list[Row]]
    expectations: dict[bytes, Expectation]


numbers = st.one_of(
    st.integers(0, 12),
    st.builds(lambda seam, beside: max(0, seam + beside), st.sampled_from(SEAMS), st.integers(-3, 3)),
)
rows = st.builds(
    Row,
    producer=st.one_of(st.none(), st.integers(0, PRODUCERS - 1), st.integers(0, PRODUCERS - 1)),
    number=numbers,
    checksum=st.integers(0, 1),
    partition=st.integers(0, 1),
    offset=st.integers(0, 1),
)


@st.composite
def marks(draw: st.DrawFn) -> dict[bytes, Expectation]:
    out = {}
    for producer in range(PRODUCERS + 1):
        if draw(st.booleans()):
            end = draw(numbers)
            failed = draw(st.lists(st.tuples(numbers, st.integers(0, 3)), max_size=3))
            excused = union((first, min(first + more, end - 1)) for first, more in failed)
            failures = sum(last - first + 1 for first, last in excused)
            more = draw(st.integers(0, min(2, end - failures)))
            closed = draw(st.booleans())
            in_flight = 0 if closed else draw(st.integers(0, min(3, end - failures - more)))
            acknowledged = end - failures - more - in_flight
            out[id_of(producer)] = Expectation(
                id_of(producer), closed, end, acknowledged, excused, more, {"orders": acknowledged}
            )
    return out


@st.composite
def lakes(draw: st.DrawFn) -> Lake:
    # A run without a hole first, so that the clean blocks of a producer are met as well.
    whole = [
        [Row(producer, number) for number in range(draw(st.sampled_from([0, 1, 5, 13])))]
        for producer in range(PRODUCERS)
    ]
    return Lake([*whole, *draw(st.lists(st.lists(rows, max_size=20), max_size=3))], draw(marks()))


def audited(lake: Lake, scope: Scope | None = None) -> AuditReport:
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), lake.files, row_group_size=7)
        passes = LocalPasses()
        judge = Judge(
            passes.first(files),
            lake.expectations,
            scope or Scope(frozenset({file.topic for file in files}), limit=1000),
        )
        return judge.report(passes.exact(files, judge.spans()))


def size_of(ranges: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


@settings(max_examples=100, deadline=None)
@given(lakes())
def test_audit_agrees_with_one_who_counts(lake: Lake) -> None:
    counted, unstamped = count_by_hand(lake.files)
    report = audited(lake)
    assert report.unstamped == unstamped
    assert report.rows == sum(map(len, lake.files))
    assert report.duplicates == sum(found.duplicates for found in counted.values())
    assert report.conflicts == sum(found.conflicts for found in counted.values())
    assert report.reread == sum(found.reread for found in counted.values())
    assert report.numbers == sum(len(found.numbers) for found in counted.values())
    everyone = {id_of(producer): found.numbers for producer, found in counted.items()}
    for name in lake.expectations:
        everyone.setdefault(name, set())
    assert report.producers == len(everyone)
    wanted = {
        name.hex(): told_lost(present, lake.expectations.get(name)) for name, present in everyone.items()
    }
    assert (report.lost, report.undecided, report.excused) == tuple(
        map(sum, zip((0, 0, 0), *wanted.values(), strict=True))
    )
    for finding in report.findings:
        found = counted.get(int(finding.producer_id, 16))
        assert (finding.lost, finding.undecided, finding.excused) == wanted[finding.producer_id]
        assert finding.rows == (found.rows if found else 0)
        assert size_of(list(finding.holes)) + finding.holes_more == finding.lost + finding.undecided
        present = found.numbers if found else set()
        assert not [number for first, last in finding.holes for number in present if first <= number <= last]


def told_lost(present: set[int], expected: Expectation | None) -> tuple[int, int, int]:
    """Lost, undecided and excused, by the definitions: sets are counted, the numbers between are not walked."""
    top = max(present, default=-1) + 1
    if expected is None:
        return top - len(present), 0, 0
    end = expected.next
    below = {number for number in present if number < end}
    failed = size_of(list(expected.excused))
    failed_there = sum(1 for number in below for first, last in expected.excused if first <= number <= last)
    missing = end - len(below)
    unexcused = missing - (failed - failed_there)
    loose = max(0, top - end) - (len(present) - len(below))
    if expected.is_closed:
        lost = max(0, unexcused - expected.excused_more)
    else:
        in_flight = end - expected.acknowledged - failed
        lost = max(0, unexcused - in_flight)
    return lost, unexcused - lost + loose, missing - unexcused


@settings(max_examples=30, deadline=None)
@given(lakes())
@pytest.mark.extended(
    "takes 2.1 s of processor time; the comparison with an independent count stays in the gate"
)
def test_files_in_another_order_and_cut_otherwise_are_the_same_lake(lake: Lake) -> None:
    other = Lake([[row] for rows in reversed(lake.files) for row in rows], lake.expectations)
    left, right = audited(lake).to_json(), audited(other).to_json()
    for report in (left, right):
        del report["seconds"], report["rows_per_second"], report["files"]
    assert left == right
