"""The audit's parts and the job without a JVM: marks, fingerprints, what is told and how it ends."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.audit.mark import Mark
from aioproduce.spark import ranges
from aioproduce.spark.__main__ import main
from aioproduce.spark.errors import LayoutError, OptionError
from aioproduce.spark.jobs import audit as job
from aioproduce.spark.jobs.audit import AuditOptions, audit
from aioproduce.spark.jobs.audit_lake import DataFile, Unit, packed, units_of
from aioproduce.spark.jobs.audit_passes import fingerprints, mixed
from aioproduce.spark.jobs.audit_report import AuditReport, Status
from aioproduce.spark.jobs.marks import MarkFold
from aioproduce.spark.jobs.running import run_job
from tests.spark.lake_making import Row, id_of, write_files

few = st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 8)), max_size=8)


def numbers_of(found: ranges.Ranges) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


def ranges_of(spec: list[tuple[int, int]]) -> ranges.Ranges:
    return ranges.union((first, first + more) for first, more in spec)


@given(few, few, st.integers(0, 40), st.integers(0, 50))
def test_ranges_are_sets(
    left_spec: list[tuple[int, int]], right_spec: list[tuple[int, int]], low: int, end: int
) -> None:
    left, right = ranges_of(left_spec), ranges_of(right_spec)
    a, b = numbers_of(left), numbers_of(right)
    assert a == {number for first, more in left_spec for number in range(first, first + more + 1)}
    assert numbers_of(ranges.union(left, right)) == a | b
    assert numbers_of(ranges.intersection(left, right)) == a & b
    assert numbers_of(ranges.difference(left, right)) == a - b
    assert numbers_of(ranges.within(left, low, end)) == {number for number in a if low <= number < end}
    assert ranges.count(left) == len(a)
    for found in (
        left,
        ranges.union(left, right),
        ranges.difference(left, right),
        ranges.intersection(left, right),
    ):
        assert all(first <= last for first, last in found)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


def test_mixed_numbers_are_those_of_splitmix64() -> None:
    # The first outputs of the generator with seed 0, as published with it.
    gamma = np.uint64(0x9E3779B97F4A7C15)
    states = np.arange(3, dtype=np.uint64) * gamma
    assert [hex(number) for number in mixed(states).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_a_fingerprint_of_a_block_is_the_sum_of_its_numbers() -> None:
    numbers = np.arange(3 << 16, (3 << 16) + 100, dtype=np.uint64)
    assert int(fingerprints(3)[100]) == sum(mixed(numbers).tolist()) % (1 << 64)
    assert int(fingerprints(3)[0]) == 0


def closing(producer: int, end: int, **more: Any) -> Mark:
    return Mark("closing", id_of(producer), end, more.pop("acknowledged", end), **more)


def write_marks(lake: Path, marks: list[Mark | bytes]) -> None:
    place = lake / "table=marks" / "topic=aioproduce.audit" / "date=2026-01-31" / "hour=07" / "batch=q-0"
    place.mkdir(parents=True, exist_ok=True)
    values = [mark.to_json() if isinstance(mark, Mark) else mark for mark in marks]
    pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), place / "part-00000.parquet")


def audited(lake: Path, **more: Any) -> AuditReport:
    return audit(AuditOptions(str(lake), **more), None)


def test_a_whole_lake_is_clean(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in range(70_000)], [Row(None), Row(2, 0)]])
    write_marks(tmp_path, [closing(1, 70_000), closing(2, 1)])
    report = audited(tmp_path)
    assert (report.verdict, report.exit_code) == ("clean", 0)
    assert (report.rows, report.unstamped, report.producers, report.closed) == (70_002, 1, 2, 2)
    assert report.suspects == 0
    assert report.findings == ()


def test_a_lost_tail_is_seen_by_the_closing_mark(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in range(5)]])
    write_marks(tmp_path, [closing(1, 8, run={"query": "q", "batch": 3})])
    report = audited(tmp_path)
    (found,) = report.findings
    assert (report.exit_code, report.lost, found.holes) == (1, 3, ((5, 7),))
    assert "query=q, batch=3" in found.line()


def test_a_producer_that_vanished_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, 0)]])
    write_marks(tmp_path, [closing(1, 1), closing(9, 4)])
    report = audited(tmp_path)
    (found,) = report.findings
    assert (found.producer_id, found.status, found.lost) == (id_of(9).hex(), Status.VANISHED, 4)
    assert report.vanished == 1


def test_what_failed_is_excused_and_told(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in (0, 1, 4)]])
    write_marks(tmp_path, [closing(1, 5, acknowledged=3, failed=((2, 3),))])
    report = audited(tmp_path)
    assert (report.exit_code, report.lost, report.excused) == (0, 0, 2)
    assert any("2 numbers are missing because their records failed" in line for line in report.lines())


def test_more_failures_than_a_mark_lists_leave_it_open_which_are_missing(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, 0)]])
    write_marks(tmp_path, [closing(1, 4, acknowledged=1, failed_more=2)])
    report = audited(tmp_path)
    assert (report.lost, report.undecided, report.exit_code) == (1, 2, 1)


def test_of_an_open_producer_only_what_is_proven_is_lost(tmp_path: Path) -> None:
    """Killed with three records in flight, of which one got through: the others may never be acknowledged."""
    write_files(tmp_path, [[Row(1, number) for number in (0, 1, 2, 4, 7)]])
    write_marks(tmp_path, [Mark("heartbeat", id_of(1), 6, 3)])
    report = audited(tmp_path)
    assert (report.open, report.lost, report.undecided, report.exit_code) == (1, 0, 3, 0)
    strict = audited(tmp_path, is_strict=True)
    assert (strict.verdict, strict.exit_code) == ("undecided", 1)
    write_marks(tmp_path, [Mark("heartbeat", id_of(1), 6, 5)])
    assert (audited(tmp_path).lost, audited(tmp_path).undecided) == (1, 2)


def test_what_an_open_producer_had_acknowledged_beyond_its_heartbeat_makes_no_loss(tmp_path: Path) -> None:
    """Two failed that the mark does not list; three beyond its `next` were acknowledged already."""
    write_files(tmp_path, [[Row(1, number) for number in (0, 1, 2, 3, 6, 7, 8)]])
    write_marks(tmp_path, [Mark("heartbeat", id_of(1), 6, 7, failed_more=2)])
    report = audited(tmp_path)
    assert (report.open, report.lost, report.undecided, report.exit_code) == (1, 0, 2, 0)


def test_conflicts_are_no_duplicates(tmp_path: Path) -> None:
    write_files(
        tmp_path, [[Row(1, 0, checksum=7), Row(1, 0, checksum=8, offset=1), Row(1, 1), Row(1, 1, offset=2)]]
    )
    report = audited(tmp_path)
    assert (report.duplicates, report.conflicts, report.numbers, report.exit_code) == (1, 1, 2, 1)
    assert report.verdict == "conflicts"
    assert report.findings[0].conflicting == (0,)
    assert any(line.startswith("CONFLICTS: 1 rows") for line in report.lines())


@pytest.mark.parametrize(
    ("second", "reread"), [pytest.param(0, 1, id="landed-twice"), pytest.param(5, 0, id="sent-twice")]
)
def test_duplicates_by_where_they_come_from(tmp_path: Path, second: int, reread: int) -> None:
    write_files(tmp_path, [[Row(1, 0)], [Row(1, 0, offset=second)]])
    report = audited(tmp_path, fails_on_duplicates=True)
    assert (report.duplicates, report.reread, report.exit_code, report.verdict) == (
        1,
        reread,
        3,
        "duplicates",
    )
    assert audited(tmp_path).exit_code == 0


def test_a_duplicate_cannot_cancel_a_hole(tmp_path: Path) -> None:
    """Numbers 0 3 5 6 and 1 2 4 7 have the same count, sum and sum of squares (Prouhet, Tarry, Escott)."""
    write_files(tmp_path, [[Row(1, number) for number in (0, 1, 1, 2, 2, 4, 4, 7, 7, 8)]])
    report = audited(tmp_path)
    assert (report.lost, report.duplicates) == (3, 4)  # 3, 5 and 6; 0 is there
    assert report.findings[0].holes == ((3, 3), (5, 6))


def test_topics_that_are_not_in_the_lake(tmp_path: Path) -> None:
    rows = [Row(1, number, topic="orders" if number % 2 else "audit-log") for number in range(10)]
    write_files(tmp_path, [rows[:8]])
    write_marks(tmp_path, [closing(1, 12, topics={"orders": 5, "audit-log": 5, "elsewhere": 2})])
    whole = audited(tmp_path)
    assert (whole.lost, whole.missing_topics) == (4, ("elsewhere",))
    assert any("--topics" in line for line in whole.lines())
    part = audited(tmp_path, topics=("orders",))
    (found,) = part.findings
    assert (part.rows, part.lost, found.is_by_counts, found.holes) == (4, 1, True, ())


def test_numbers_below_the_first_that_is_there_can_be_let_be(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in (70_000, 70_001, 70_003)]])
    write_marks(tmp_path, [closing(1, 70_004), closing(2, 9)])
    assert audited(tmp_path).lost == 70_001 + 9
    assert audited(tmp_path, is_from_first_seen=True).lost == 1


def test_of_some_topics_and_without_the_old_days_nothing_is_proven(tmp_path: Path) -> None:
    """Counts are compared, and how many of them were in the days that are deleted is not known."""
    write_files(tmp_path, [[Row(1, number) for number in (7, 9)]])
    topics = {"orders": 5, "clicks": 5}
    write_marks(tmp_path, [closing(1, 10, topics=topics), closing(2, 10, topics=topics)])
    assert audited(tmp_path, topics=("orders",)).lost == 3 + 5
    report = audited(tmp_path, topics=("orders",), is_from_first_seen=True)
    assert (report.lost, report.undecided, report.exit_code) == (0, 3, 0)


def test_failures_that_a_heartbeat_does_not_list_are_not_lost(tmp_path: Path) -> None:
    """Of 6 numbers 1 and 2 failed, of which 2 is not listed; 4 were acknowledged below `next`, and 3 beyond."""
    write_files(tmp_path, [[Row(1, number) for number in (0, 3, 4, 5, 6, 7, 8)]])
    write_marks(tmp_path, [Mark("heartbeat", id_of(1), 6, 7, failed=((1, 1),), failed_more=1)])
    report = audited(tmp_path)
    assert (report.lost, report.undecided, report.excused, report.exit_code) == (0, 1, 1, 0)


def test_marks_made_later_than_a_time_are_passed_over(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in range(3)]])
    write_marks(
        tmp_path, [Mark("heartbeat", id_of(1), 3, 3, at=1000), closing(1, 9, at=2000), b"no mark", b"{}"]
    )
    assert audited(tmp_path).lost == 6
    early = audited(tmp_path, until=1500)
    assert (early.lost, early.open, early.marks, early.unreadable_marks) == (0, 1, 1, 2)


def test_rows_in_the_quarantine_are_there(tmp_path: Path) -> None:
    files = write_files(tmp_path, [[Row(1, 0), Row(1, 2)]])
    bad = write_files(tmp_path / "aside", [[Row(1, 1)]])
    place = (
        tmp_path
        / "table=quarantine"
        / Path(bad[0].path).parent.relative_to(tmp_path / "aside" / "table=data")
    )
    place.mkdir(parents=True)
    Path(bad[0].path).rename(place / "part-00000.parquet")
    report = audited(tmp_path)
    assert len(files) == 1
    assert (report.lost, report.rows, report.quarantined) == (0, 3, 1)


def test_what_is_no_lake_is_said(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="is not a lake") as caught:
        audited(tmp_path / "nowhere")
    assert caught.value.path == str(tmp_path / "nowhere")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (file,) = write_files(tmp_path, [[Row(1, 0)]])
    Path(file.path).write_bytes(b"PAR1 and then nothing")
    with pytest.raises(LayoutError, match="so its records are not audited") as caught:
        audited(tmp_path)
    assert caught.value.path == file.path


@pytest.mark.parametrize(
    "content", [pytest.param(b"PAR1 no more", id="damaged"), pytest.param(None, id="other")]
)
def test_a_file_of_marks_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    write_files(tmp_path, [[Row(1, 0)]])
    write_marks(tmp_path, [closing(1, 9)])
    (file,) = (tmp_path / "table=marks").rglob("*.parquet")
    if content is None:
        pq.write_table(pa.table({"sequence": [1]}), file)
    else:
        file.write_bytes(content)
    with pytest.raises(LayoutError, match="cannot be read as a file of marks") as caught:
        audited(tmp_path)
    assert caught.value.path == str(file)


def test_what_is_no_lake_is_said_too_where_spark_is_to_read(tmp_path: Path) -> None:
    spark: Any = object()
    with pytest.raises(LayoutError, match="is not a lake"):
        audit(AuditOptions(str(tmp_path / "nowhere"), reader="spark"), spark)


def test_a_topic_that_nothing_tells_of_is_refused(tmp_path: Path) -> None:
    """Misspelled, it would be a clean lake without a row."""
    write_files(tmp_path, [[Row(1, 0)]])
    write_marks(tmp_path, [closing(1, 2, topics={"orders": 1, "clicks": 1})])
    with pytest.raises(OptionError, match="no records of ordres") as caught:
        audited(tmp_path, topics=("orders", "ordres"))
    assert caught.value.option == "--topics"
    assert audited(tmp_path, topics=("clicks",)).lost == 1


def test_a_file_of_another_shape_is_named(tmp_path: Path) -> None:
    (file,) = write_files(tmp_path, [[Row(1, 0)]])
    pq.write_table(pa.table({"sequence": [1]}), file.path)
    with pytest.raises(LayoutError, match="has no column 'producer_id'"):
        audited(tmp_path)


def attempts(*marks: Mark) -> MarkFold:
    fold = MarkFold()
    fold.add_all(mark.to_json() for mark in marks)
    return fold


def test_of_several_attempts_only_what_none_has_written_is_excused() -> None:
    first = closing(1, 6, acknowledged=3, failed=((1, 3),), run={"attempt": 0})
    second = closing(1, 8, acknowledged=5, failed=((3, 4), (7, 7)), run={"attempt": 1})
    for order in ((first, second), (second, first), (first, second, first)):
        (found,) = attempts(*order).expectations.values()
        # 6 and 7 the first attempt never gave out; 7 failed in the second.
        assert (found.next, found.excused, found.run["attempt"]) == (8, ((3, 3), (7, 7)), 1)


def test_a_closing_mark_outweighs_a_later_heartbeat() -> None:
    marks = closing(1, 5, at=1), Mark("heartbeat", id_of(1), 9, 9, at=2)
    assert all(attempts(*order).expectations[id_of(1)].is_closed for order in (marks, marks[::-1]))


def test_files_are_dealt_out_evenly_and_none_is_left_out() -> None:
    files = [DataFile(str(number), "t", size) for number, size in enumerate([200 << 20, 10, 10, 0, 90 << 20])]
    units = units_of(files)
    assert sum(unit.parts == 4 for unit in units) == 4
    tasks = packed(units, 3)
    assert sorted((unit.file.path, unit.part) for task in tasks for unit in task) == sorted(
        (unit.file.path, unit.part) for unit in units
    )
    sizes = [sum(unit.file.size // unit.parts for unit in task) for task in tasks]
    assert max(sizes) < 2 * min(sizes)
    assert packed([Unit(files[1])], 8) == [[Unit(files[1])]]


@pytest.mark.parametrize(
    ("failed", "code"),
    [pytest.param(None, 1, id="any-job"), pytest.param(2, 2, id="one-whose-1-is-a-finding")],
)
def test_a_bug_ends_with_the_code_of_a_failure(
    capsys: pytest.CaptureFixture[str], failed: int | None, code: int
) -> None:
    """Not with Python's own 1, which of an audit says that records are lost."""

    class Broken:
        NEEDS_SPARK = False

        def run(self, args: argparse.Namespace, spark: object) -> None:
            raise KeyError("a bug")

    broken: Any = Broken()
    if failed is not None:
        broken.FAILED_EXIT_CODE = failed
    assert run_job("broken", broken, argparse.Namespace(traceback=False, json=False)) == code
    told = capsys.readouterr()
    assert told.err.startswith("Traceback")
    assert told.err.rstrip().endswith("KeyError: 'a bug'")
    assert told.out == ""
    assert job.FAILED_EXIT_CODE == 2


def test_a_small_lake_is_audited_without_a_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no-java-here")
    write_files(tmp_path, [[Row(1, number) for number in (0, 2)]])
    assert main(["audit", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lost"] == 1
    assert main(["audit", str(tmp_path / "nowhere")]) == 2
    assert "is not a lake" in capsys.readouterr().err
    assert main(["audit", str(tmp_path), "--reader", "files"]) == 2
    assert capsys.readouterr().err.startswith("error: Spark needs Java")


@pytest.mark.parametrize(
    ("more", "is_needed"),
    [
        pytest.param([], False, id="small"),
        pytest.param(["--reader", "driver"], False, id="driver"),
        pytest.param(["--reader", "spark"], True, id="spark"),
        pytest.param(["--bootstrap-servers", "x:1"], True, id="marks-from-kafka"),
    ],
)
def test_when_an_audit_needs_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], is_needed: bool
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    write_files(tmp_path, [[Row(1, 0)]])
    args = arguments(*more, lake=("--lake", str(tmp_path)))
    assert job.needs_spark(args) is is_needed
    assert job.needs_spark(arguments(lake=("--lake", "s3a://bucket/lake")))
    monkeypatch.setattr(job, "DRIVER_BYTES", 100)
    assert job.needs_spark(args) is ("driver" not in more)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert job.needs_spark(args)


def test_the_report_is_json_and_lines(tmp_path: Path) -> None:
    write_files(tmp_path, [[Row(1, number) for number in range(0, 500, 2)]])
    report = audited(tmp_path)
    told = json.loads(json.dumps(report.to_json()))
    assert (told["job"], told["verdict"], told["exit_code"], told["lost"]) == ("audit", "loss", 1, 249)
    (found,) = told["findings"]
    assert found["holes"][:2] == [[1, 1], [3, 3]]
    assert (len(found["holes"]), found["holes_more"]) == (100, 149)
    assert report.lines()[0] == "loss: lost 249, duplicated 0, conflicts 0, undecided 0"


def arguments(*given: str, lake: tuple[str, ...] = ("--lake", "somewhere")) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args([*lake, *given])


def test_arguments() -> None:
    found = job.options_of(
        arguments(
            "--topics",
            "a, b",
            "--as-of",
            "1970-01-01T00:00:01Z",
            "--kafka",
            "security.protocol=SSL",
            "--strict",
        )
    )
    assert (found.topics, found.until, found.kafka) == (("a", "b"), 1000, {"security.protocol": "SSL"})
    assert found.is_strict
    assert job.options_of(arguments("--as-of", "1970-01-01T00:00:01")).until == 1000
    assert job.options_of(arguments("--strict", lake=("here",))).lake == "here"
    assert job.options_of(arguments()).lake == "somewhere"


@pytest.mark.parametrize(
    "given",
    [["--as-of", "yesterday"], ["--topics", " ,"], ["--kafka", "nothing"], ["--limit", "-1"]],
    ids=lambda given: given[0],
)
def test_arguments_that_are_refused(given: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        job.options_of(arguments(*given))
    assert caught.value.option == given[0]
