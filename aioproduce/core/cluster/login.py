"""A producer's credential: shared by all connections, fetched once, and refreshed before it expires.

Owned by `core.cluster.broker_connections`, used by the connections' authentications. It corresponds to Java's
LoginManager and ExpiringCredentialRefreshingLogin.

Invariants:

1. At most one fetch is awaited, however many connections wait for it.
2. A credential is used until it expires, also when fetching the next one fails, and never afterwards.
3. Each waiter gets an outcome within `_FETCH_TIMEOUT`. A provider that hangs is left alone; its late result is
   used if there is nothing newer.
4. After a failure the next fetch waits for `sasl.login.retry.backoff.ms`, doubled with each failure.
5. A source that does not report when its credential expires is asked for each login, so a changed password needs
   no restart. A static source is asked once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import ProducerError, TokenError
from aioproduce.security.mechanism import Credential, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.offloads import Offloads
    from aioproduce.security.mechanism import Sasl

_FETCH_TIMEOUT: Final = 30.0
"""Seconds. Longer than the time-outs of a token endpoint allow."""

_REFRESH_PAUSE: Final = 1.0
"""Minimum seconds between two refreshes of a credential that lasts longer."""

_HANGING_MAX: Final = 4
"""Limit of abandoned fetches that still run. Each holds a thread, so no further fetch begins at the limit."""


@final
class Login:
    """Fetches, keeps and refreshes the credential.

    Args:
        sasl: The source of credentials, and the refresh settings.
        offloads: Runs the fetch.
        wall: The wall clock in seconds since the epoch, by which credentials expire.
        random: Returns a number in `0 <= x < 1`.
        log: Receives failures to fetch.

    Attributes:
        timer_at: When to call `handle_timer`; infinity: never.
        last_error: The error of the latest fetch; `None` after a success.
    """

    __slots__ = (
        "_backoff",
        "_credential",
        "_failures",
        "_fetch_deadline",
        "_hanging",
        "_log",
        "_next_fetch_at",
        "_offloads",
        "_random",
        "_refresh_at",
        "_sasl",
        "_ticket",
        "_waiting",
        "_wall",
        "last_error",
        "timer_at",
    )

    def __init__(
        self,
        sasl: Sasl,
        offloads: Offloads,
        wall: Callable[[], float],
        random: Callable[[], float],
        log: BoundedLog,
    ) -> None:
        self._sasl = sasl
        self._offloads = offloads
        self._wall = wall
        self._random = random
        self._log = log
        window = sasl.refresh
        self._backoff = ExponentialBackoff(window.retry_backoff, window.retry_backoff_max, random=random)
        self._credential: Credential | None = None
        self._waiting: list[Callable[[Credential | ProducerError, float], None]] = []
        self._ticket: int | None = None
        self._fetch_deadline = inf
        self._hanging = 0
        self._failures = 0
        self._next_fetch_at = -inf
        self._refresh_at = inf
        self.timer_at: float = inf
        self.last_error: ProducerError | None = None

    def obtain(self, told: Callable[[Credential | ProducerError, float], None], now: float) -> None:
        """Call `told` with a credential or an error, at once if a credential is available."""
        if self._sasl.source.is_static:
            told(self._static(), now)
            return
        credential = self._credential
        if credential is not None and self._lives(credential):
            told(credential, now)
            return
        self._credential = None
        self._waiting.append(told)
        self._fetch_when_due(now)

    def forget(self, told: Callable[[Credential | ProducerError, float], None]) -> None:
        """Remove a waiter."""
        if told in self._waiting:
            self._waiting.remove(told)

    def refused(self, credential: Credential) -> None:
        """Note that a broker refused the credential, so that the next login fetches another one."""
        if self._credential is credential:
            self._credential = None
            self._refresh_at = inf
            self._set_timer()

    def handle_timer(self, now: float) -> None:
        """Start a fetch that is due; give up one that takes too long."""
        if self._ticket is not None and self._fetch_deadline <= now:
            self._ticket = None
            self._hanging += 1
            self._failed(
                TokenError(
                    f"the provider of {self._sasl.mechanism}'s credentials did not answer within "
                    f"{_FETCH_TIMEOUT:g} s; the producer asks it again. Check what the provider waits for",
                    setting="sasl.oauthbearer.token.provider",
                ),
                now,
            )
        if self._refresh_at <= now or self._waiting:
            self._fetch_when_due(now)
        self._set_timer()

    # -- fetching ---

    def _static(self) -> Credential | ProducerError:
        if self._credential is None:
            credential = self._sasl.source.fetch()
            assert isinstance(credential, Credential), "a static source returns its credential at once"
            self._credential = credential
        return self._credential

    def _lives(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at > self._wall()

    def _fetch_when_due(self, now: float) -> None:
        if self._ticket is None and self._next_fetch_at <= now and self._hanging < _HANGING_MAX:
            source = self._sasl.source
            self._fetch_deadline = now + _FETCH_TIMEOUT
            work = Work(source.fetch, is_async=source.is_async, what=f"{self._sasl.mechanism} credentials")
            started: list[int] = []
            ticket = self._offloads.begin(work, lambda outcome, now: self._fetched(started[0], outcome, now))
            started.append(ticket)
            self._ticket = ticket
            self._refresh_at = inf
        self._set_timer()

    def _fetched(self, ticket: int, outcome: object, now: float) -> None:
        if ticket == self._ticket:
            self._ticket = None
            self._fetch_deadline = inf
        else:
            self._hanging -= 1
            is_of_use = isinstance(outcome, Credential) and not self._has_expired(outcome)
            if self._credential is not None or not is_of_use:
                self._set_timer()  # another fetch may begin
                return
        if isinstance(outcome, Credential) and not self._has_expired(outcome):
            self._take(outcome, now)
        else:
            self._failed(self._error_of(outcome), now)
        self._set_timer()

    def _has_expired(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at <= self._wall()

    def _take(self, credential: Credential, now: float) -> None:
        self._credential = credential
        self._failures = 0
        self._next_fetch_at = -inf
        self.last_error = None
        self._refresh_at = self._refresh_instant(credential, now)
        self._tell(credential, now)

    def _failed(self, error: ProducerError, now: float) -> None:
        self.last_error = error
        self._next_fetch_at = now + self._backoff.backoff(self._failures)
        self._failures += 1
        has_one = self._credential is not None and self._lives(self._credential)
        if has_one:
            self._refresh_at = self._next_fetch_at
        kept = "; the current ones are used until they expire" if has_one else ""
        self._log.warning(
            "credentials", now, "no new credentials for %s%s: %s", self._sasl.mechanism, kept, error
        )
        self._tell(error, now)

    def _error_of(self, outcome: object) -> ProducerError:
        if isinstance(outcome, ProducerError):
            return outcome
        if isinstance(outcome, Credential):
            return TokenError(
                f"the credentials of {self._sasl.mechanism} had expired when they arrived: check the clock of this "
                "machine, and the provider of the credentials",
                setting="sasl.oauthbearer.token.provider",
            )
        # Only the type: the text may contain a secret argument.
        return TokenError(
            f"the provider of {self._sasl.mechanism}'s credentials raised {type(outcome).__name__}: correct the "
            "provider",
            setting="sasl.oauthbearer.token.provider",
        )

    def _tell(self, outcome: Credential | ProducerError, now: float) -> None:
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(outcome, now)

    def _refresh_instant(self, credential: Credential, now: float) -> float:
        """Return when to refresh, as Java does: after a share of the lifetime, within bounds."""
        if credential.expires_at is None:
            return inf
        window = self._sasl.refresh
        wall = self._wall()
        begins_at = wall if credential.begins_at is None else min(credential.begins_at, wall)
        share = window.factor + window.jitter * self._random()
        at = begins_at + (credential.expires_at - begins_at) * share
        if wall + window.min_period + window.buffer < credential.expires_at:
            at = max(min(at, credential.expires_at - window.buffer), wall + window.min_period)
        # If the provider keeps returning a credential that expires soon, do not ask without pause.
        soonest = min(_REFRESH_PAUSE, (credential.expires_at - wall) * window.factor)
        return now + max(at - wall, soonest)

    def _set_timer(self) -> None:
        fetch_at = inf
        if self._ticket is not None:
            fetch_at = self._fetch_deadline
        elif self._waiting and self._hanging < _HANGING_MAX:
            fetch_at = self._next_fetch_at
        elif self._hanging < _HANGING_MAX:
            fetch_at = self._refresh_at
        self.timer_at = fetch_at
