"""The credential of a producer: single flight, refreshing, failures, providers that hang. `now` is an argument.

Expected instants are reckoned by hand from Kafka's `sasl.login.refresh.*`: 0.8 of the lifetime, half of 0.05 of it
as jitter, 60 s and 300 s at either end.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest

from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.offloads import Offloads
from aioproduce.errors import TokenError
from aioproduce.security.mechanism import Credential, RefreshWindow
from tests.unit.security_harness import EPOCH, QuietLog, Source, make_login


class World:
    """A login, its offloads, and who waits."""

    def __init__(self, *, is_static: bool = False, refresh: RefreshWindow | None = None) -> None:
        self.now = 0.0
        self.offloads = Offloads()
        self.source = Source(is_static=is_static)
        self.log = QuietLog()
        self.login: Login = make_login(
            self.source, self.offloads, lambda: EPOCH + self.now, refresh=refresh, log=self.log
        )
        self.told: list[Any] = []

    def obtain(self) -> None:
        self.login.obtain(self.hear, self.now)

    def hear(self, outcome: Any, now: float) -> None:
        assert now == self.now
        self.told.append(outcome)

    def fetch(self) -> int:
        """The ticket of the one fetch that is begun."""
        (effect,) = self.offloads.effects
        self.offloads.effects.clear()
        return effect.ticket

    def end(self, ticket: int, outcome: object) -> None:
        self.offloads.ended(ticket, outcome, self.now)

    def tick(self, now: float) -> None:
        """Time goes on, and the timer comes where it is due."""
        self.now = now
        if self.login.timer_at <= now:
            self.login.handle_timer(now)
            assert self.login.timer_at > now

    def token(self, lifetime: float, **options: Any) -> Credential:
        return Credential(value=object(), expires_at=EPOCH + self.now + lifetime, **options)

    def has(self, credential: Credential) -> None:
        """One was fetched."""
        self.obtain()
        self.end(self.fetch(), credential)
        assert self.told.pop() is credential


def test_fifty_connections_share_one_fetch_and_all_get_its_credential() -> None:
    world = World()
    for _ in range(50):
        world.obtain()
    ticket = world.fetch()
    assert world.told == []
    token = world.token(3600)
    world.end(ticket, token)
    assert world.told == [token] * 50
    world.obtain()
    assert world.told.pop() is token
    assert not world.offloads.effects


def test_a_failure_is_told_to_all_who_wait() -> None:
    world = World()
    for _ in range(3):
        world.obtain()
    error = TokenError("endpoint gone")
    world.end(world.fetch(), error)
    assert world.told == [error] * 3
    assert world.login.last_error is error


def test_who_waits_no_longer_is_not_told() -> None:
    world = World()
    world.obtain()
    world.login.forget(world.hear)
    world.end(world.fetch(), world.token(3600))
    assert world.told == []


def test_it_is_fetched_anew_ahead_of_its_end_and_given_out_meanwhile() -> None:
    world = World()
    old = world.token(3600)
    world.has(old)
    assert world.login.timer_at == pytest.approx(3600 * 0.825)
    world.tick(3600 * 0.825 - 1)
    assert not world.offloads.effects
    world.tick(3600 * 0.825 + 0.001)
    ticket = world.fetch()
    world.obtain()
    assert world.told.pop() is old
    new = world.token(3600)
    world.end(ticket, new)
    world.obtain()
    assert world.told.pop() is new


@pytest.mark.parametrize(
    ("lifetime", "begins_before", "at"),
    [
        (100.0, 0.0, 82.5),  # too short for a period and a buffer
        (600.0, 0.0, 300.0),  # not within the last 300 s
        (3600.0, 0.0, 2970.0),
        (400.0, 5000.0, 60.0),  # its time is long since come, and not before 60 s
    ],
)
def test_when_it_is_fetched_anew(lifetime: float, begins_before: float, at: float) -> None:
    world = World()
    world.has(world.token(lifetime, begins_at=EPOCH - begins_before))
    assert world.login.timer_at == pytest.approx(at)


def test_a_source_that_gives_the_same_to_its_end_is_not_asked_without_end() -> None:
    """Caches of tokens do, and those of clouds: the token's own beginning is long ago."""
    world = World()
    token = Credential(value=object(), begins_at=EPOCH - 3600, expires_at=EPOCH + 20)
    world.has(token)
    fetches = 0
    while world.login.timer_at < 20:
        world.tick(world.login.timer_at)
        fetches += 1
        world.end(world.fetch(), token)
        assert fetches < 40
    assert fetches > 15


def test_the_old_one_is_kept_while_the_provider_fails_and_not_a_moment_longer() -> None:
    world = World()
    old = world.token(100)
    world.has(old)
    attempts = []
    while world.login.timer_at < 99:
        world.tick(world.login.timer_at)
        attempts.append(world.now)
        world.end(world.fetch(), TokenError("endpoint gone"))
        world.obtain()
        assert world.told.pop() is old
    # 0.1 s doubled up to 10 s, as sasl.login.retry.backoff.ms has it.
    pauses = [after - before for before, after in pairwise(attempts)]
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(pauses) <= 10.0
    assert "the current ones are used until they expire: endpoint gone" in world.log.lines[0]
    world.now = 100.0
    world.obtain()
    assert world.told == []


def test_after_a_failure_the_next_fetch_waits_for_its_back_off() -> None:
    world = World()
    world.obtain()
    world.end(world.fetch(), TokenError("gone"))
    world.obtain()
    assert not world.offloads.effects
    assert world.login.timer_at == pytest.approx(0.1)
    world.tick(0.1)
    token = world.token(100)
    world.end(world.fetch(), token)
    assert world.told[1:] == [token]
    assert world.login.last_error is None


def test_a_provider_that_hangs_is_given_up_and_asked_again_a_few_times_at_most() -> None:
    world = World()
    tickets = []
    for _ in range(10):
        if not world.told or isinstance(world.told[-1], TokenError):
            world.obtain()
        if world.login.timer_at == inf:
            break
        world.tick(world.login.timer_at)
        if world.offloads.effects:
            tickets.append(world.fetch())
    assert len(tickets) == 4
    assert "did not answer within 30 s" in str(world.told[-1])
    assert world.login.timer_at == inf

    # One of them ends, if badly: there is room for one more, for whom somebody waits.
    world.end(tickets[0], RuntimeError("at last"))
    world.tick(world.login.timer_at)
    token = world.token(3600)
    world.end(world.fetch(), token)
    assert world.told[-1] is token


def test_what_comes_late_is_taken_where_nothing_newer_is_there() -> None:
    world = World()
    world.obtain()
    hung = world.fetch()
    world.tick(30.0)
    assert isinstance(world.told.pop(), TokenError)
    late = world.token(3600)
    world.end(hung, late)
    world.obtain()
    assert world.told.pop() is late


def test_what_comes_late_is_dropped_where_something_newer_is_there() -> None:
    world = World()
    world.obtain()
    hung = world.fetch()
    world.tick(30.0)
    world.obtain()
    world.tick(world.login.timer_at)
    newer = world.token(3600)
    world.end(world.fetch(), newer)
    world.end(hung, world.token(3600))
    world.obtain()
    assert world.told[1:] == [newer, newer]


def test_what_comes_late_and_has_expired_fails_nobody_who_waits_for_the_next() -> None:
    world = World()
    world.obtain()
    hung = world.fetch()
    world.tick(30.0)
    world.told.clear()
    world.obtain()
    world.tick(world.login.timer_at)
    ticket = world.fetch()
    world.end(hung, world.token(-1))
    assert world.told == []
    token = world.token(3600)
    world.end(ticket, token)
    assert world.told == [token]


def test_one_that_had_expired_when_it_came_is_an_error_that_names_the_clock() -> None:
    world = World()
    world.obtain()
    world.end(world.fetch(), world.token(0))
    (error,) = world.told
    assert isinstance(error, TokenError)
    assert "check the clock of this machine" in str(error)
    assert error.setting == "sasl.oauthbearer.token.provider"


@pytest.mark.parametrize("outcome", [ValueError("password=secret"), b"bytes", None])
def test_what_is_no_credential_is_an_error_without_its_text(outcome: object) -> None:
    world = World()
    world.obtain()
    world.end(world.fetch(), outcome)
    (error,) = world.told
    assert isinstance(error, TokenError)
    assert type(outcome).__name__ in str(error)
    assert "secret" not in str(error)


def test_a_source_that_names_no_end_is_asked_for_each_login() -> None:
    world = World()
    first, second = Credential(value=1), Credential(value=2)
    world.has(first)
    assert world.login.timer_at == inf
    world.has(second)


def test_a_static_source_is_asked_once_and_at_once() -> None:
    world = World(is_static=True)
    world.obtain()
    world.obtain()
    assert world.told[0] is world.told[1]
    assert world.source.fetches == 1
    assert not world.offloads.effects
    assert world.login.timer_at == inf


def test_a_credential_that_was_refused_is_not_given_out_again() -> None:
    world = World()
    refused = world.token(3600)
    world.has(refused)
    world.login.refused(refused)
    assert world.login.timer_at == inf
    other = world.token(3600)
    world.has(other)
    world.login.refused(refused)  # by another connection, which had it before
    world.obtain()
    assert world.told.pop() is other
