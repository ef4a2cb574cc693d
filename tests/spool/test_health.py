"""Backlog, rates and states by numbers worked out by hand: no clock, no disk."""

from __future__ import annotations

import json

import pytest

from aioproduce.config import configured
from aioproduce.spool import SpoolState, TopicBacklog
from aioproduce.spool.batch_head import BatchHead
from aioproduce.spool.health import combined, drain_seconds, state_of
from aioproduce.spool.measuring import BacklogCount, SpoolMeasures


def _head(base: int, count: int, size: int, first_timestamp: int = 0) -> BatchHead:
    return BatchHead(base, base + count, size, count, first_timestamp, first_timestamp, 0)


def _count_of(count: BacklogCount) -> tuple[int | None, int, float | None]:
    return count.records, count.bytes_waiting, count.oldest_at


def test_what_this_process_stores_is_counted_exactly() -> None:
    count = BacklogCount(0, 0, 0)
    assert _count_of(count) == (0, 0, None)
    count.stored(10, 1000, 5_000)
    count.stored(12, 300, 7_000)
    assert _count_of(count) == (12, 1300, 5.0)
    first, second = _head(0, 10, 1000, 5_000), _head(10, 2, 300, 7_000)
    count.read([first, second], 0)
    assert _count_of(count) == (12, 1300, 5.0)
    count.settled(first, 10, second, is_stored=True)
    assert _count_of(count) == (2, 300, 7.0)
    count.settled(second, 2, None, is_stored=True)
    assert _count_of(count) == (0, 0, None)
    count.stored(13, 50, 9_000)
    assert _count_of(count) == (1, 50, 9.0)


def test_what_an_earlier_process_left_is_unknown_then_estimated_then_counted() -> None:
    life = 10**9
    count = BacklogCount(4, life, 4_000)  # it has settled four records
    assert _count_of(count) == (None, 4_000, None)
    count.stored(life + 3, 90, 9_000)
    assert _count_of(count) == (None, 4_090, None)
    head = _head(0, 10, 1_000, 1_000)
    count.read([head], 3_000)
    # 6 of it wait, and 3,000 unread bytes at 100 a record are about 30; 3 are of this process.
    assert _count_of(count) == (6 + 30 + 3, 1_000 + 3_000 + 90, 1.0)
    last = _head(10, 20, 2_900, 2_000)
    count.read([last], 0)  # 100 bytes at the end were no batch
    assert _count_of(count) == (6 + 20 + 3, 1_000 + 2_900 + 90, 1.0)
    count.settled(head, 6, last, is_stored=True)
    own = _head(life, 3, 90, 9_000)
    count.read([own], 0)
    count.settled(last, 20, own, is_stored=True)
    assert _count_of(count) == (3, 90, 9.0)
    count.settled(own, 3, None, is_stored=True)
    count.drained(life + 3)
    assert _count_of(count) == (0, 0, None)


def test_what_is_read_again_counts_once_and_is_sent_again() -> None:
    count = BacklogCount(0, 10**9, 500)
    head = _head(0, 5, 500)
    count.read([head], 0)
    assert not count.sent(head)
    count.read([head], 400)  # reading begins again before it
    assert count.records == 5
    assert count.sent(head)


def test_damage_leaves_nothing_behind() -> None:
    count = BacklogCount(0, 0, 0)
    count.stored(3, 300, 0)
    count.stored(5, 200, 0)
    count.damaged(0, 300)
    count.read([_head(3, 2, 200)], 0)
    count.settled(_head(3, 2, 200), 2, None, is_stored=True)
    assert _count_of(count) == (0, 0, None)
    count.stored(6, 10, 0)
    count.damaged(5, 10)
    count.drained(6)  # nothing whole was left
    assert _count_of(count) == (0, 0, None)


def test_backlogs_add_up_and_say_what_is_not_known() -> None:
    failure = OSError("denied")
    known = TopicBacklog(1000, 5, None, 10, False, 800, 100.0, 20.0)
    blocked = TopicBacklog(2000, 0, failure, 30, True, 1500, 90.0, 30.0)
    unknown = TopicBacklog(1, 0, None, None, True, 1, None, None)
    assert combined([known, blocked]) == TopicBacklog(3000, 5, failure, 40, True, 2300, 90.0, 30.0)
    assert combined([known, unknown]).records is None
    assert combined([]) == TopicBacklog(0, 0, None, 0, False, 0, None, None)


@pytest.mark.parametrize(
    ("records", "forwarding", "storing", "expected"),
    [
        (1000, 150.0, 50.0, 10.0),
        (0, 0.0, 10.0, 0.0),
        (1000, 50.0, 50.0, None),
        (1000, 0.0, 20.0, None),
        (None, 100.0, 0.0, None),
    ],
)
def test_the_time_until_it_is_empty(
    records: int | None, forwarding: float, storing: float, expected: float | None
) -> None:
    assert drain_seconds(records, forwarding, storing) == expected


@pytest.mark.parametrize(
    ("is_open", "has_failed", "is_full", "records", "rate", "expected"),
    [
        (False, True, True, 1, 0.0, SpoolState.CLOSED),
        (True, True, True, 1, 0.0, SpoolState.FAILED),
        (True, False, True, 1, 9.0, SpoolState.FULL),
        (True, False, False, 1, 0.0, SpoolState.WAITING),
        (True, False, False, 1, 9.0, SpoolState.FORWARDING),
        (True, False, False, 0, 9.0, SpoolState.EMPTY),
    ],
)
def test_the_state_in_one_word(
    is_open: bool, has_failed: bool, is_full: bool, records: int, rate: float, expected: SpoolState
) -> None:
    backlog = TopicBacklog(0, 0, None, records, False, records * 10)
    state = state_of(is_open=is_open, has_failed=has_failed, is_full=is_full, backlog=backlog, rate=rate)
    assert state is expected


def test_rates_are_over_the_last_seconds_and_give_the_time_to_go() -> None:
    now = 0.0
    measures = SpoolMeasures(configured("a:1", {}), lambda: 1_000.0)
    measures.now = lambda: now
    for second in range(30):
        now = float(second)
        measures.recently_stored.record(50, now)
        measures.recently_forwarded.record(150, now)
    now = 30.0
    backlog = {"one": TopicBacklog(0, 0, None, 2_000, False, 9, 990.0, 10.0)}
    health = measures.health(backlog, None, is_open=True)
    assert health.forwarding_rate == pytest.approx(150, rel=0.11)
    assert health.storing_rate == pytest.approx(50, rel=0.11)
    assert health.drain_seconds == pytest.approx(20, rel=0.11)
    assert health.state is SpoolState.FORWARDING
    now = 60.0  # the cluster went away, and nobody sends
    health = measures.health(backlog, None, is_open=True)
    assert (health.forwarding_rate, health.storing_rate, health.drain_seconds) == (0, 0, None)
    assert health.state is SpoolState.WAITING
    assert health.takes_records
    assert json.loads(json.dumps(health.as_dict()))["oldest_age"] == 10.0
    health = measures.health(backlog, ZeroDivisionError("a bug"), is_open=True)
    assert (health.state, health.failure, health.takes_records) == (SpoolState.FAILED, "a bug", False)
