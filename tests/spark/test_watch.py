"""What the alert knows of a producer, against a model that has every number by itself."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.spark.jobs import watch
from aioproduce.spark.jobs.watch import Alert, Kind, Patience, Watch
from aioproduce.spark.ranges import count

PATIENCE = Patience(grace_ms=10, silence_ms=100)


def numbers_of(alerts: list[Alert], kind: Kind) -> Counter[int]:
    return Counter(
        number for alert in alerts if alert.kind is kind for number in range(alert.first, alert.last + 1)
    )


def missed(found: Watch) -> int:
    """How many numbers are waited for or were told as missing."""
    return sum(gap.missing for gap in found.gaps) + count(found.told)


steps = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=6), st.integers(0, 15)),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(0, 5))
def test_every_number_is_told_as_what_it_is(
    batches: list[tuple[list[tuple[int, int]], int]], base: int
) -> None:
    now = 0
    found = Watch.begin(base, now)
    came: Counter[int] = Counter()
    missed_since: dict[int, int] = {}
    told: set[int] = set()
    top = base
    for runs, wait in batches:
        now += wait
        alerts = found.take([(first, first + more) for first, more in runs], now)
        batch = Counter(
            number for first, more in runs for number in range(first, first + more + 1) if number >= base
        )
        late = {number for number in batch if number in told}
        assert numbers_of(alerts, Kind.LATE) == Counter(late)
        again = {number: many - (0 if came[number] else 1) for number, many in batch.items()}
        assert numbers_of(alerts, Kind.DUPLICATE) == +Counter(again)
        told -= late
        came.update(batch)
        if batch and max(batch) >= top:
            missed_since.update({number: now for number in range(top, max(batch)) if not came[number]})
            top = max(batch) + 1
        missed_since = {number: since for number, since in missed_since.items() if not came[number]}
        due = {number for number, since in missed_since.items() if since + 10 <= now}
        assert numbers_of(found.look(now, PATIENCE), Kind.GAP) == Counter(due)
        told |= due
        for number in due:
            del missed_since[number]
        assert missed(found) == len(missed_since) + len(told)
        assert Watch.from_json(found.to_json()) == found
        assert found.wakes_at(PATIENCE) == min(
            [since + 10 for since in missed_since.values()] + [now + 100, found.seen_at + 100]
        )


def test_a_tail_is_missed_by_the_closing_mark() -> None:
    found = Watch.begin(0, 0)
    assert found.take([(0, 4)], 0) == []
    assert found.promise(8, ((6, 6),), 5, is_closing=True) == []
    assert found.look(14, PATIENCE) == []
    assert found.look(15, PATIENCE) == [Alert(Kind.GAP, 5, 5), Alert(Kind.GAP, 7, 7)]
    assert found.take([(5, 5)], 16) == [Alert(Kind.LATE, 5, 5)]


def test_silence_is_told_unless_the_producer_has_ended() -> None:
    found = Watch.begin(0, 0)
    found.take([(0, 4)], 0)
    assert not found.is_over(99, PATIENCE)
    assert found.look(100, PATIENCE) == [Alert(Kind.SILENT, 4, 4)]
    assert found.is_over(100, PATIENCE)
    found.promise(5, (), 100, is_closing=True)
    assert found.look(200, PATIENCE) == []
    assert found.is_over(200, PATIENCE)


def test_a_partition_that_is_far_ahead_is_waited_for() -> None:
    """Two partitions, of which a batch has one alone: as many gaps as records, and nothing is amiss."""
    found = Watch.begin(0, 0)
    end = 20 * watch.MOST_RANGES
    assert found.take([(number, number) for number in range(0, end, 2)], 0) == []
    assert len(found.gaps) <= watch.MOST_RANGES
    assert missed(found) == end // 2 - 1
    assert Watch.from_json(found.to_json()) == found
    assert found.take([(number, number) for number in range(1, end, 2)], 5) == []
    assert (found.gaps, found.look(50, PATIENCE)) == ([], [])


def test_one_of_many_that_is_lost_is_told_when_its_grace_is_over() -> None:
    found = Watch.begin(0, 0)
    end = 4 * watch.MOST_RANGES
    found.take([(number, number) for number in range(0, end, 2)], 0)
    # Again as many, at another time: they do not hold up those that were first.
    found.take([(number, number) for number in range(1, end, 2) if number != 777], 5)
    found.take([(number, number) for number in range(end, 2 * end, 2)], 5)
    (alert,) = found.look(10, PATIENCE)
    assert (alert.kind, alert.numbers) == (Kind.GAP, 1)
    assert alert.first <= 777 <= alert.last
    assert found.take([(777, 777)], 11) == [Alert(Kind.LATE, 777, 777)]


def test_gaps_of_more_times_than_are_kept_are_told() -> None:
    found = Watch.begin(0, 0)
    alerts = [
        alert
        for number in range(watch.MOST_RANGES + 3)
        for alert in found.take([(2 * number + 1, 2 * number + 1)], number)
    ]
    assert alerts == [Alert(Kind.GAP, 2 * number, 2 * number) for number in range(3)]


def test_what_came_before_a_watch_that_begins_in_the_midst_is_not_missed() -> None:
    """The one partition had 11, 13 and 15 before the watch began; 17 and 19 are really missing, later."""
    found = Watch.begin(12, 0, PATIENCE.grace_ms)
    assert found.take([(12, 12), (14, 14)], 0) == []
    assert found.take([(10, 10), (16, 16)], 3) == []
    assert found.promise(17, (), 5, is_closing=False) == []
    assert found.look(10, PATIENCE) == []
    assert found.gaps == []
    assert found.take([(18, 18), (20, 20)], 12) == []
    assert found.take([(13, 13)], 13) == []
    assert found.look(22, PATIENCE) == [Alert(Kind.GAP, 17, 17), Alert(Kind.GAP, 19, 19)]


def test_a_producer_of_which_number_0_is_seen_is_watched_from_there() -> None:
    found = Watch.begin(2, 0, PATIENCE.grace_ms)
    assert found.take([(2, 3)], 0) == []
    assert found.take([(0, 0), (5, 5)], 2) == []
    assert found.take([(1, 1)], 3) == []
    assert found.look(12, PATIENCE) == [Alert(Kind.GAP, 4, 4)]
