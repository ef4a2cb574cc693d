"""The alert's processor by Spark's own tester, without a JVM; and what it makes of Kafka's rows."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from aioproduce.audit.mark import Mark
from aioproduce.spark.errors import TopicError
from aioproduce.spark.jobs import alert
from aioproduce.spark.jobs.alert import AlertSummary, Telling, Watcher, ranges_of
from aioproduce.spark.jobs.watch import Patience
from aioproduce.spark.topic_partitions import TopicPartitions

PRODUCER = "00" * 15 + "07"


def came(*runs: tuple[int, int]) -> list[Row]:
    return [Row(producer_id=PRODUCER, first=first, last=last, mark=None) for first, last in runs]


def mark(
    end: int, *, closing: bool, failed: list[list[int]] | None = None, elsewhere: bool = False
) -> list[Row]:
    text = json.dumps({"closing": closing, "failed": failed or [], "elsewhere": elsewhere})
    return [Row(producer_id=PRODUCER, first=end, last=end, mark=text)]


def told(rows: Any) -> list[tuple[str, int, int]]:
    return [(row.kind, row.first, row.last) for row in rows]


@pytest.fixture
def tester() -> TwsTester:
    found = TwsTester(Watcher(Patience(1000, 10_000), is_from_zero=True), timeMode="ProcessingTime")
    found.setProcessingTime(1)
    return found


def test_a_gap_is_told_when_the_grace_is_over_and_once(tester: TwsTester) -> None:
    assert told(tester.test(PRODUCER, came((0, 4), (7, 9)))) == []
    assert told(tester.setProcessingTime(500)) == []
    assert told(tester.setProcessingTime(1001)) == [("gap", 5, 6)]
    assert told(tester.setProcessingTime(3000)) == []
    assert told(tester.test(PRODUCER, came((6, 6), (8, 8)))) == [("late", 6, 6), ("duplicate", 8, 8)]


def test_the_tail_of_a_closing_mark_is_waited_for(tester: TwsTester) -> None:
    tester.test(PRODUCER, came((0, 4)))
    assert told(tester.test(PRODUCER, mark(8, closing=True, failed=[[5, 5]]))) == []
    assert told(tester.setProcessingTime(1500)) == [("gap", 6, 7)]


def watched_from_the_midst() -> TwsTester:
    found = TwsTester(Watcher(Patience(1000, 10_000), is_from_zero=False), timeMode="ProcessingTime")
    found.setProcessingTime(1)
    return found


def test_a_producer_that_falls_silent_is_told_and_forgotten() -> None:
    tester = watched_from_the_midst()
    tester.test(PRODUCER, came((0, 4)))
    assert tester.peekValueState("watch", PRODUCER) is not None
    assert told(tester.setProcessingTime(20_000)) == [("silent", 4, 4)]
    assert tester.peekValueState("watch", PRODUCER) is None
    assert list(tester.handle.listTimers()) == []


def test_one_that_speaks_again_has_not_lost_what_it_had_sent(tester: TwsTester) -> None:
    """Watched from 0 on: were it forgotten, all its old numbers would be a gap."""
    tester.test(PRODUCER, came((0, 4)))
    assert told(tester.setProcessingTime(20_000)) == [("silent", 4, 4)]
    assert list(tester.handle.listTimers()) == []
    assert told(tester.setProcessingTime(40_000)) == []
    assert told(tester.test(PRODUCER, came((5, 6), (8, 8)))) == []
    assert told(tester.setProcessingTime(41_500)) == [("gap", 7, 7)]


def test_one_that_has_ended_is_forgotten_without_a_word(tester: TwsTester) -> None:
    tester.test(PRODUCER, [*came((0, 4)), *mark(5, closing=True)])
    assert told(tester.setProcessingTime(20_000)) == []
    assert tester.peekValueState("watch", PRODUCER) is None


def test_from_the_midst_gaps_are_told_when_all_that_is_older_has_come() -> None:
    tester = watched_from_the_midst()
    assert told(tester.test(PRODUCER, came((50, 52), (40, 44)))) == []
    assert told(tester.test(PRODUCER, came((10, 12)))) == []
    assert told(tester.setProcessingTime(1200)) == []
    assert told(tester.test(PRODUCER, came((55, 55)))) == []
    assert told(tester.setProcessingTime(2300)) == [("gap", 53, 54)]


def test_rows_become_ranges_and_marks() -> None:
    one, two = bytes(16), bytes([1]) * 16
    closing = Mark("closing", one, 9, 8, failed=((3, 3),), topics={"t": 8})
    rows = pa.table(
        {
            "producer_id": pa.array([one, two, one, one, None, one, None], pa.binary()),
            "sequence": pa.array([2, 7, 0, 1, None, 1, None], pa.int64()),
            "mark": pa.array([None, None, None, None, closing.to_json(), None, b"no mark"], pa.binary()),
        }
    )
    assert [tuple(row.values()) for row in ranges_of(rows).to_pylist()] == [
        (one.hex(), 0, 1, None),
        (one.hex(), 1, 2, None),
        (two.hex(), 7, 7, None),
        (one.hex(), 9, 9, '{"closing": true, "failed": [[3, 3]], "elsewhere": false}'),
    ]
    assert ranges_of(rows.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize("is_from_zero", [pytest.param(True, id="zero"), pytest.param(False, id="midst")])
def test_marks_of_producers_of_other_topics_are_no_promise(is_from_zero: bool) -> None:
    tester = TwsTester(Watcher(Patience(1000, 10_000), is_from_zero=is_from_zero), timeMode="ProcessingTime")
    tester.setProcessingTime(1)
    assert told(tester.test(PRODUCER, mark(100, closing=False, elsewhere=True))) == []
    assert told(tester.test(PRODUCER, mark(200, closing=False, elsewhere=True))) == []
    assert tester.peekValueState("watch", PRODUCER) is None
    assert told(tester.setProcessingTime(30_000)) == []


def test_of_a_producer_of_other_topics_too_only_duplicates_are_told(tester: TwsTester) -> None:
    """Every second number is in a topic that is not watched, which its heartbeat tells."""
    assert told(tester.test(PRODUCER, came(*((number, number) for number in range(0, 20, 2))))) == []
    assert told(tester.test(PRODUCER, mark(20, closing=False, elsewhere=True))) == []
    assert told(tester.setProcessingTime(2000)) == []
    assert told(tester.test(PRODUCER, came((20, 20), (22, 22), (22, 22), (24, 24)))) == [
        ("duplicate", 22, 22)
    ]
    assert told(tester.test(PRODUCER, mark(26, closing=True, elsewhere=True))) == []
    assert told(tester.setProcessingTime(30_000)) == []
    assert tester.peekValueState("watch", PRODUCER) is None


@pytest.mark.parametrize(
    ("topics", "is_elsewhere"),
    [
        pytest.param(None, False, id="all"),
        pytest.param(["orders", "clicks"], False, id="both"),
        pytest.param(["orders"], True, id="one"),
    ],
)
def test_a_mark_tells_of_topics_that_are_not_watched(topics: list[str] | None, is_elsewhere: bool) -> None:
    mark = Mark("heartbeat", bytes(16), 9, 9, topics={"orders": 4, "clicks": 5, "payments": 0})
    rows = pa.table(
        {
            "producer_id": pa.array([None], pa.binary()),
            "sequence": pa.array([None], pa.int64()),
            "mark": pa.array([mark.to_json()]),
        }
    )
    assert json.loads(ranges_of(rows, topics)["mark"][0].as_py())["elsewhere"] is is_elsewhere


@pytest.mark.parametrize(
    ("listed", "excused"),
    [
        pytest.param(((3, 3),), [[3, 3], [4, 8]], id="above-those-listed"),
        pytest.param((), [[0, 8]], id="none-listed"),
        pytest.param(((8, 8),), [[8, 8]], id="none-above"),
    ],
)
def test_failures_that_a_mark_does_not_list_are_no_gaps(
    listed: tuple[tuple[int, int], ...], excused: list[list[int]]
) -> None:
    """Those that it lists are the lowest (`NumberRuns`): what is not listed is above."""
    mark = Mark("heartbeat", bytes(16), 9, 3, failed=listed, failed_more=2)
    rows = pa.table(
        {
            "producer_id": pa.array([None], pa.binary()),
            "sequence": pa.array([None], pa.int64()),
            "mark": pa.array([mark.to_json()]),
        }
    )
    assert json.loads(ranges_of(rows)["mark"][0].as_py())["failed"] == excused


def cluster_of(*topics: str) -> TopicPartitions:
    return TopicPartitions(dict.fromkeys(topics, (0,)))


def test_the_topic_of_marks_may_be_missing_where_nobody_named_it() -> None:
    assert cluster_of("orders").marks_topic(None) is None
    assert cluster_of("orders", "aioproduce.audit").marks_topic(None) == "aioproduce.audit"
    assert cluster_of("orders", "aioproduce.audit").marks_topic("none") is None
    assert cluster_of("orders", "marks").marks_topic("marks") == "marks"
    with pytest.raises(TopicError, match=r"there is no topic marks: .*--audit-topic none") as caught:
        cluster_of("orders", "aioproduce.audit").marks_topic("marks")
    assert (caught.value.topic, caught.value.is_missing) == ("marks", True)


def test_a_topic_that_is_missing_is_told_with_a_remedy() -> None:
    cluster = cluster_of("orders", "clicks")
    cluster.check(["orders", "clicks"], "correct --topics")
    with pytest.raises(TopicError, match="there is no topic a, b: create it, or correct --topics") as caught:
        cluster.check(["orders", "a", "clicks", "b"], "correct --topics")
    assert (caught.value.topic, caught.value.is_missing) == ("a", True)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        pytest.param(["orders", "alerts"], "clicks", id="watched"),
        pytest.param(["orders", "clicks", "alerts"], "marks", id="marks"),
        pytest.param(["orders", "clicks", "marks"], "alerts", id="alerts"),
    ],
)
def test_a_topic_that_is_missing_is_told_before_anything_is_watched(
    monkeypatch: pytest.MonkeyPatch, there: list[str], missing: str
) -> None:
    monkeypatch.setattr(TopicPartitions, "ask", lambda *_: cluster_of(*there))
    parser = ArgumentParser()
    alert.add_arguments(parser)
    given = "--bootstrap-servers b:1 --checkpoint c --topics orders,clicks --audit-topic marks --alert-topic alerts"
    with pytest.raises(TopicError, match=f"there is no topic {missing}: "):
        alert.run(parser.parse_args(given.split()), cast("Any", None))


class Rows:
    """A DataFrame as far as `Telling` looks at one."""

    def __init__(self, *rows: Row) -> None:
        self._rows = rows

    def persist(self) -> None:
        """It is in memory."""

    def unpersist(self) -> None:
        """It stays there."""

    def toLocalIterator(self) -> Iterator[Row]:
        return iter(self._rows)


@pytest.mark.parametrize(
    ("is_json", "line"),
    [
        pytest.param(False, f"gap: producer {PRODUCER}, 5 to 6", id="text"),
        pytest.param(
            True,
            f'{{"kind":"gap","producer_id":"{PRODUCER}","first":5,"last":6,"numbers":2,"at":1}}',
            id="json",
        ),
    ],
)
def test_alerts_are_lines_and_are_counted(
    capsys: pytest.CaptureFixture[str], is_json: bool, line: str
) -> None:
    summary = AlertSummary()
    rows: Any = Rows(
        Row(kind="gap", producer_id=PRODUCER, first=5, last=6, numbers=2, at=1),
        Row(kind="silent", producer_id=PRODUCER, first=9, last=9, numbers=1, at=1),
    )
    Telling(summary, is_json=is_json).tell(rows, 0)
    assert capsys.readouterr().out.splitlines()[0] == line
    assert (summary.gap, summary.silent, summary.exit_code) == (2, 1, 3)


def test_a_gap_of_which_only_the_size_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    summary = AlertSummary()
    rows: Any = Rows(Row(kind="gap", producer_id=PRODUCER, first=5, last=60, numbers=2, at=1))
    Telling(summary, is_json=False).tell(rows, 0)
    assert capsys.readouterr().out == f"gap: producer {PRODUCER}, 2 of 5 to 60\n"
    assert summary.gap == 2
