"""What the alert knows of a producer, against a model that has every number by itself."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.spark.jobs import watch
from aioproduce.spark.jobs.watch import Alert, Kind, Patience, Watch

PATIENCE = Patience(grace_ms=10, silence_ms=100)


def numbers_of(alerts: list[Alert], kind: Kind) -> Counter[int]:
    return Counter(
        number for alert in alerts if alert.kind is kind for number in range(alert.first, alert.last + 1)
    )


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
        assert found.missed == len(missed_since) + len(told)
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


def test_what_is_too_much_to_wait_for_is_told_at_once() -> None:
    found = Watch.begin(0, 0)
    alerts = found.take([(number, number) for number in range(1, 2 * watch.MOST_RANGES + 6, 2)], 0)
    assert alerts == [Alert(Kind.GAP, 2 * number, 2 * number) for number in range(3)]
    assert len(found.gaps) == watch.MOST_RANGES
