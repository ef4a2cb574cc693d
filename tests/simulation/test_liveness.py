"""Letter W of the oracle by hand: waits that something explains, and the same waits without it.

Nothing runs here. Each case writes down what was seen in the network and at the brokers, and when one send was
offered, accepted and settled. The same wait is in the tables with what explains it, and without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.records import RecordMetadata
from aioproduce.testing.simulation import Simulation
from aioproduce.wire.api import ApiKey
from tests.simulation.case import MODES, TOPIC, Case
from tests.simulation.ledger import Entry
from tests.simulation.liveness import check_liveness
from tests.simulation.observations import Answer, Observations, Opening, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LEADERS = {0: 0, 1: 1, 2: 2}
LAST = 1000.0
"""Long after everything."""


class Hand:
    """A run that is made up; the client knows the cluster from 1.0 on, and its topic is used every second."""

    def __init__(self, **settings: Any) -> None:
        plain = {
            "linger_ms": 5,
            "batch_size": 1000,
            "buffer_memory": 1_000_000,
            "delivery_timeout_ms": 120_000,
        }
        self.case = Case(1, "by hand", True, MODES["idempotent"] | plain | settings, (), (), 0.0)
        self.seen = Observations(Simulation(topics={TOPIC: 3}))
        self.seen.leaders = {partition: [(0.0, f"broker-{node}")] for partition, node in LEADERS.items()}
        self.entries: list[Entry] = []
        self.flushes: list[float] = []
        self.ask(0.9, 1.0, leaders=LEADERS)
        self.request(0.9, 1.0, api=ApiKey.INIT_PRODUCER_ID)

    def request(
        self, sent_at: float, ended_at: float, *, node: int = 0, api: ApiKey = ApiKey.PRODUCE, **answer: Any
    ) -> None:
        """A request and its answer; the connection is lost if nothing is known of the answer."""
        made = Answer((sent_at + ended_at) / 2, api, **answer)
        request = Request(f"broker-{node}", api, sent_at, ended_at, made)
        self.seen.requests.append(request)
        self.seen.answers.append(request)
        self.seen.answers.sort(key=lambda each: each.ended_at)

    def ask(self, sent_at: float, ended_at: float, *, leaders: dict[int, int] | None, code: int = 0) -> None:
        """For metadata; without leaders another topic was asked for."""
        self.request(
            sent_at,
            ended_at,
            api=ApiKey.METADATA,
            topic_code=None if leaders is None else code,
            leaders=leaders or {},
            brokers=frozenset(f"broker-{node}" for node in range(3)),
        )

    def send(self, offered_at: float, answered_at: float, settled_at: float, writer: int = 0) -> Entry:
        entry = Entry(writer, len(self.entries), b"v", offered_at, 0, answered_at, answered_at, settled_at)
        entry.outcomes.append((RecordMetadata(TOPIC, writer, 0, 0, -1, -1), None))
        self.entries.append(entry)
        return entry

    def use_constantly(self, until: float = LAST) -> None:
        """Sends that do not wait, to the last partition."""
        for second in range(2, int(until)):
            self.send(second, second, second + 0.01, writer=2)

    @property
    def violations(self) -> list[str]:
        accused: list[str] = []
        self.entries.sort(key=lambda entry: entry.offered_at)
        check_liveness(
            self.seen, self.case, self.entries, self.flushes, lambda letter, what: accused.append(letter)
        )
        return accused


def record(settled_at: float, *happenings: Callable[[Hand], object], **settings: Any) -> Hand:
    """A record to partition 0 that is accepted at 10, with linger.ms until 10.005 if nothing else is said."""
    hand = Hand(**settings)
    for happen in happenings:
        happen(hand)
    hand.use_constantly()
    hand.send(10.0, 10.0, settled_at)
    return hand


def sent(sent_at: float, ended_at: float, **more: Any) -> Callable[[Hand], None]:
    return lambda hand: hand.request(sent_at, ended_at, **more)


def opened(began_at: float, ended_at: float, node: int = 0) -> Callable[[Hand], None]:
    return lambda hand: hand.seen.openings.append(Opening(f"broker-{node}", began_at, ended_at))


def lost(at: float, node: int = 0) -> Callable[[Hand], None]:
    return lambda hand: hand.seen.failures.append((at, f"broker-{node}"))


def led(*history: tuple[float, int | None]) -> Callable[[Hand], None]:
    """Partition 0 is led by others."""

    def lead(hand: Hand) -> None:
        hand.seen.leaders[0] = [(at, None if node is None else f"broker-{node}") for at, node in history]

    return lead


def asked(*spans: tuple[float, float], leader: int = -1) -> Callable[[Hand], None]:
    """Metadata is asked for, and tells the leader of partition 0."""

    def ask(hand: Hand) -> None:
        for sent_at, ended_at in spans:
            hand.ask(sent_at, ended_at, leaders=LEADERS | {0: leader})

    return ask


def waited(offered_at: float, answered_at: float) -> Callable[[Hand], None]:
    """A send waits for memory, which two records hold."""

    def wait(hand: Hand) -> None:
        hand.send(offered_at, answered_at, answered_at + 0.01, writer=1)
        for at in (offered_at, answered_at - 0.03):
            hand.request(at, at + 0.04, node=1)

    return wait


def flushed(at: float) -> Callable[[Hand], None]:
    return lambda hand: hand.flushes.append(at)


def blocked(begin: float, end: float) -> Callable[[Hand], None]:
    return lambda hand: hand.seen.blocked.append((begin, end))


LINGER = {"linger_ms": 5000}

EXPLAINED: dict[str, Hand] = {
    "linger and a round trip": record(10.010, sent(10.005, 10.010)),
    "a broker that takes its time": record(13.0, sent(10.005, 13.0)),
    "a connection that is set up": record(18.0, opened(10.005, 17.99)),
    "a broker that refuses": record(11.0, sent(10.005, 10.01, refused=frozenset({0})), sent(10.99, 11.0)),
    "a connection that was lost": record(11.1, sent(10.005, 10.1), lost(10.1), sent(11.09, 11.1)),
    "a broker that throttles": record(14.0, sent(9.9, 10.0, throttle=3.99), sent(13.99, 14.0)),
    "no leader": record(
        14.1,
        led((0.0, 0), (9.0, None), (13.0, 1)),
        asked((10.01, 10.02), (11.01, 11.02), (12.01, 12.02)),
        asked((13.01, 13.02), leader=1),
        sent(13.05, 14.1, node=1),
    ),
    "a former leader": record(14.0, led((0.0, 2), (9.9, 0)), sent(10.005, 14.0, node=2)),
    "linger": record(15.01, sent(15.005, 15.01), **LINGER),
    "a blocked loop": record(14.0, blocked(10.0, 13.99)),
}

UNEXPLAINED: dict[str, Hand] = {
    "nothing": record(11.0, sent(10.99, 11.0)),
    "another broker takes its time": record(13.0, sent(10.005, 13.0, node=1)),
    "a connection to another": record(18.0, opened(10.005, 17.99, node=1)),
    "another partition is refused": record(11.0, sent(10.005, 10.01, refused=frozenset({1}))),
    "longer than the back-off": record(12.5, sent(10.005, 10.1), lost(10.1), sent(12.49, 12.5)),
    "another was lost": record(11.1, sent(10.005, 10.1), lost(10.1, node=1), sent(11.09, 11.1)),
    "longer than throttled": record(14.0, sent(9.9, 10.0, throttle=2.0), sent(13.99, 14.0)),
    "no leader, and nobody asks": record(
        14.1,
        led((0.0, 0), (9.0, None), (13.0, 1)),
        asked((10.01, 10.02)),
        asked((13.01, 13.02), leader=1),
        sent(13.05, 14.1, node=1),
    ),
    "the leader is known": record(
        14.1,
        led((0.0, 0), (9.0, None), (11.0, 1)),
        asked((10.01, 10.02)),
        asked((11.01, 11.02), (12.01, 12.02), (13.01, 13.02), leader=1),
        sent(14.09, 14.1, node=1),
    ),
    "longer than linger": record(15.1, sent(15.09, 15.1), **LINGER),
    "linger, while a send waits for memory": record(
        15.01, sent(15.005, 15.01), waited(11.0, 12.0), **LINGER, buffer_memory=2000
    ),
    "linger, and a flush": record(15.01, sent(15.005, 15.01), flushed(11.0), **LINGER),
    "after a blocked loop": record(15.0, blocked(10.0, 13.99)),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_record_that_waits_for_a_reason(name: str) -> None:
    assert EXPLAINED[name].violations == []


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_a_record_that_waits_for_none(name: str) -> None:
    assert set(UNEXPLAINED[name].violations) == {"W"}


# -- sends ---


def test_a_send_need_not_wait_for_a_topic_that_is_known_and_used() -> None:
    hand = Hand()
    hand.use_constantly()
    hand.send(10.5, 10.502, 10.51)
    assert hand.violations == ["W"]


def test_a_send_may_wait_for_the_first_answer_about_its_topic() -> None:
    hand = Hand()
    hand.send(0.5, 1.0, 1.01)
    hand.seen.openings.append(Opening("broker-0", 0.4, 0.9))
    assert hand.violations == []


def test_a_send_may_not_wait_for_a_topic_that_nobody_asks_for() -> None:
    hand = Hand()
    hand.send(0.1, 1.0, 1.01)
    hand.seen.openings.append(Opening("broker-0", 0.4, 0.9))
    assert hand.violations == ["W"]


@pytest.mark.parametrize(("last_use", "is_accused"), [(340.0, True), (300.0, False)])
def test_a_topic_may_be_forgotten_by_an_answer_that_comes_when_it_was_idle(
    last_use: float, is_accused: bool
) -> None:
    hand = Hand(metadata_max_idle_ms=60_000)
    hand.use_constantly(last_use)
    hand.ask(370.0, 370.01, leaders=LEADERS)
    hand.ask(380.0, 380.01, leaders=LEADERS)
    hand.send(380.0, 380.01, 380.02)
    assert hand.violations == ["W"] * is_accused


def test_a_topic_is_unknown_from_an_error_to_the_next_good_answer() -> None:
    for answered_at, is_accused in ((20.01, False), (30.01, True)):
        hand = Hand()
        hand.use_constantly()
        hand.ask(10.0, 10.01, leaders={}, code=3)
        hand.ask(20.0, 20.01, leaders=LEADERS)
        hand.request(20.0, 30.01, api=ApiKey.METADATA)
        hand.entries = [e for e in hand.entries if not 9 < e.offered_at < 31]
        hand.request(10.1, 20.0, api=ApiKey.METADATA)
        hand.send(10.5, answered_at, answered_at + 0.001)
        assert hand.violations == ["W"] * is_accused


@pytest.mark.parametrize(("held_until", "is_accused"), [(13.0, False), (10.2, True)])
def test_a_send_may_wait_for_memory_while_it_is_on_its_way(held_until: float, is_accused: bool) -> None:
    hand = Hand(buffer_memory=2000)
    hand.use_constantly()
    for _ in range(2):
        hand.send(10.1, 10.1, 13.0)
    hand.request(10.1, held_until)
    hand.send(10.1, 13.0, 13.01)
    assert ("W" in hand.violations) is is_accused


@pytest.mark.parametrize(("after", "is_accused"), [(0.0001, False), (0.01, True)])
def test_others_may_take_the_last_memory_in_the_same_instant(after: float, is_accused: bool) -> None:
    hand = Hand(buffer_memory=2000)
    hand.use_constantly()
    for node in range(2):
        hand.request(10.05, 13.0, node=node)
    hand.send(10.1, 13.0, 13.01)
    for _ in range(2):
        hand.send(10.1 + after, 10.1 + after, 13.0, writer=1)
    assert ("W" in hand.violations) is is_accused


def test_memory_that_lasts_for_all_is_nothing_to_wait_for() -> None:
    hand = Hand(buffer_memory=4000)
    for _ in range(2):
        hand.send(10.1, 10.1, 13.0)
    hand.request(10.1, 13.0)
    hand.send(10.1, 13.0, 13.01)
    assert hand.violations == ["W"]
