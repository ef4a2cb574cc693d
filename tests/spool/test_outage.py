"""`examples/outage`: its audit finds what is wrong with a log, and its figures are right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.folders import FolderError, room_for
from examples.outage import report
from examples.outage.__main__ import SIGN, main, plan_of
from examples.outage.__main__ import parse as parse_example
from examples.outage.audit import Findings, Logged, audit
from examples.outage.events import BROKER, NETWORK, SERVICE, Event
from examples.outage.journal import Journal, Journals, Returned
from examples.outage.story import Plan
from tests.spool import kill_forwarding

SPOOL = bytes(range(16))
BEGAN = 1_800_000_000.0


def logged(
    number: int, *, spooled: int | None = None, life: int = 1, at: float = 0.0, partition: int = 0
) -> Logged:
    """A record whose place in the queue is its number, unless told otherwise."""
    place = number if spooled is None else spooled
    return Logged(0, 0, at, life, number, SPOOL + place.to_bytes(8, "big"))


def found(log: Iterable[Logged], *returned: range) -> Findings:
    return audit({1: returned or (range(3),)}, log)


# -- journals ---


def test_a_journal_has_what_returned_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    with Journal(journals.file_of(1)) as journal:
        journal.returned(0, 1, BEGAN, 0.001)
        journal.returned(2, 3, BEGAN + 1, 0.25)
    with Journal(journals.file_of(10)) as journal:
        journal.returned(0, 1, BEGAN, 0.5)
    whole = journals.file_of(10).read_bytes()
    journals.file_of(10).write_bytes(whole + whole[:-1])

    assert journals.lives() == [1, 10]
    assert list(journals.read(1)) == [Returned(0, 1, BEGAN, 0.001), Returned(2, 3, BEGAN + 1, 0.25)]
    assert list(journals.read(10)) == [Returned(0, 1, BEGAN, 0.5)]
    assert (journals.calls(), journals.records()) == (3, 5)


def test_two_lives_never_write_one_journal(tmp_path: Path) -> None:
    Journal(tmp_path / "life-1.journal").__exit__()
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "life-1.journal")


# -- the audit ---


def test_what_a_kill_may_leave_is_sound() -> None:
    """A record whose send() had not returned, another life, and a copy with the id of its original."""
    second = [logged(0, spooled=9, life=2)]
    log = [logged(0), logged(1), logged(2), logged(3), logged(1), *second]
    findings = audit({1: [range(3)], 2: [range(1)]}, log)

    assert not findings.wrong(is_exactly_once=False)
    assert findings.wrong(is_exactly_once=True) == {"repeated": 1}
    assert (findings.returned, findings.read, findings.distinct, findings.unreturned, findings.repeated) == (
        *(4, 6, 5, 1, 1),
    )


def test_a_record_that_is_not_in_the_log_is_lost() -> None:
    findings = found([logged(0), logged(2)])
    assert findings.wrong(is_exactly_once=False) == {"lost": 1}
    assert findings.examples == ["lost: life 1, number 1"]


def test_a_life_with_an_empty_journal_promised_nothing() -> None:
    findings = audit({1: []}, [logged(0)])
    assert (findings.wrong(is_exactly_once=True), findings.unreturned) == ({}, 1)


def test_a_copy_with_another_id_is_there_twice() -> None:
    findings = found([logged(0), logged(1), logged(2), logged(1, spooled=7), logged(1, spooled=7)])
    assert findings.wrong(is_exactly_once=False) == {"unlike": 2, "twice": 1}


def test_copies_without_an_id_are_there_twice() -> None:
    bare = logged(1)._replace(record_id=b"")
    findings = found([logged(0), bare, logged(2), bare])
    assert findings.wrong(is_exactly_once=False) == {"unlike": 1, "twice": 1}


def test_two_records_with_one_id_are_found() -> None:
    """Whoever drops equal ids would lose the second."""
    assert found([logged(0), logged(1, spooled=0), logged(2)]).wrong(is_exactly_once=False) == {"shared": 1}


def test_a_record_in_front_of_an_older_one_is_found_within_a_partition() -> None:
    log = [logged(0), logged(2), logged(1)]
    assert found(log).wrong(is_exactly_once=False) == {"misordered": 1}
    apart = [log[0], log[1]._replace(partition=1), log[2]]
    assert not found(apart).wrong(is_exactly_once=False)


def test_a_record_of_nobody_is_found() -> None:
    assert found([*map(logged, range(3)), logged(0, life=5)]).wrong(is_exactly_once=False) == {"foreign": 1}


def test_examples_are_few() -> None:
    findings = found([], range(1000))
    assert (findings.lost, len(findings.examples)) == (1000, 5)


# -- figures ---


EVENTS = [
    Event(BEGAN, "begun"),
    Event(BEGAN + 2, "cut", NETWORK),
    Event(BEGAN + 3, "killed", SERVICE),
    Event(BEGAN + 6, "back", NETWORK),
    Event(BEGAN + 7, "dead", BROKER),
    Event(BEGAN + 8, "back", BROKER),
    Event(BEGAN + 10, "ended"),
]


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    """Ten records: one returned each second from 0.5 on, after as many milliseconds."""
    journals = Journals(tmp_path)
    with Journal(journals.file_of(1)) as journal:
        for number in range(10):
            journal.returned(number, 1, BEGAN + 0.5 + number, (number + 1) / 1000)
    return journals


def log_of_a_cut() -> list[Logged]:
    """Each is appended at once, but for those of 2.5 s to 5.5 s, which come at 6.25 s; one of them comes again."""
    delayed = dict.fromkeys((2, 3, 4, 5), BEGAN + 6.25)
    log = [logged(number, at=delayed.get(number, BEGAN + 0.5 + number)) for number in range(10)]
    return [*log, logged(5, at=BEGAN + 9)]


def test_the_backlog_is_what_returned_and_was_not_appended(journals: Journals) -> None:
    told = report.figures(journals, log_of_a_cut(), EVENTS)
    at = dict(told["backlog"])
    assert [at[second] for second in (0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.5, 10.0)] == [0, 0, 1, 2, 3, 4, 0, 0]
    assert told["largest_backlog"] == 4
    assert told["seconds_to_drain"] == 0.25
    assert told["spans"] == [[NETWORK, 2.0, 6.0], [BROKER, 7.0, 8.0]]
    assert told["kills"] == [3.0]


def test_latencies_are_of_each_state(journals: Journals) -> None:
    told = report.figures(journals, log_of_a_cut(), EVENTS)["send_ms"]
    assert told == {
        "all is well": {"calls": 5, "p50": 7.0, "p99": 10.0, "most": 10.0},
        "the network is cut": {"calls": 4, "p50": 5.0, "p99": 6.0, "most": 6.0},
        "a broker is dead": {"calls": 1, "p50": 8.0, "p99": 8.0, "most": 8.0},
    }


def test_the_plot_has_each_fault_and_breaks_the_line_where_nothing_returned(journals: Journals) -> None:
    told = report.figures(journals, log_of_a_cut(), EVENTS)
    root = ElementTree.fromstring(report.plot(told))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("the network is cut", "a broker is dead", "service killed", "p50", "p99"):
        assert texts.count(expected) == 1
    # One of the backlog, and for each quantile one for each second, since they are farther apart than three steps.
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 1 + 2 * 10


# -- the program ---


def test_the_plan_of_a_command_line() -> None:
    plan = plan_of(
        parse_example(["--quick", "--rate", "5000", "--mode", "exactly-once", "--faults", "network"])
    )
    assert plan == Plan(120_000, 5_000.0, "always", "exactly-once", frozenset({"network"}))


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["--folder", str(tmp_path)]) == 2
    with pytest.raises(FolderError):
        room_for(tmp_path, SIGN)
    (tmp_path / "thesis.tex").unlink()
    assert list(room_for(tmp_path, SIGN).iterdir()) == [tmp_path / SIGN]


def test_the_points_of_kills_come_from_the_seed() -> None:
    points = kill_forwarding.Plan(1_000_000, 100, seed=3).points
    assert points == kill_forwarding.Plan(1_000_000, 100, seed=3).points
    assert points != kill_forwarding.Plan(1_000_000, 100, seed=4).points
    assert points == sorted(set(points))
    assert (len(points), points[0] > 0, points[-1] < 1_000_000) == (100, True, True)
