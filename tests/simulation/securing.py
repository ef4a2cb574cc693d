"""TLS and logins of a case: what its brokers ask for, what its producer has, and what neither may ever see.

For `run` and `sides`. What it draws is from sources of its own, so that the rest of a seed is as it was. TLS is the
simulation's stand-in; tokens are unsecured ones, whose provider is gone for a while now and then.

Letter P: a request came to a broker while a login was under way, or before the first one, or in plaintext.
Letter K: a login began with a token that had expired.
"""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioproduce.config.secret import Secret
from aioproduce.errors import TlsError, TokenError
from aioproduce.security import oauthbearer, plain
from aioproduce.security.credentials import Token, UserPassword
from aioproduce.security.mechanism import Credential, RefreshWindow, Sasl
from aioproduce.security.security import Security
from aioproduce.testing import FakeSecurity
from aioproduce.testing.fake_cluster.sasl_mechanisms import unsecured_token
from aioproduce.testing.fake_cluster.sasl_server import Admission, SaslServer, SaslSession, SaslState
from aioproduce.testing.simulation.stand_in_tls import StandInChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.testing.simulation import Simulation
    from tests.simulation.case import Case

USER, PASSWORD = "alice", "alice-secret"
OUTAGE = 90.0
"""Seconds for which the provider of tokens is gone."""

_MALFORMED = frozenset({"wrong version number", "unexpected message"})
"""What plaintext is to a channel; a record that was changed on its way is a bad MAC."""


def fake_security(case: Case) -> FakeSecurity | None:
    """What the brokers ask for: `protocol/mechanism/session`, the session in milliseconds."""
    if not case.security:
        return None
    protocol, mechanism, session = case.security.split("/")
    return FakeSecurity(
        protocol,
        users={USER: PASSWORD},
        mechanisms=(mechanism or "PLAIN",),
        connections_max_reauth_ms=int(session or 0),
    )


def client_security(
    simulation: Simulation, case: Case, accuse: Callable[[str, str], None]
) -> Security | None:
    """What the producer has for it."""
    if not case.security:
        return None
    mechanism = case.security.split("/")[1]

    def wall() -> float:
        return simulation.wall_ms() / 1000

    def converse(host: str, credential: Credential) -> Any:
        if credential.expires_at is not None and credential.expires_at <= wall():
            accuse("K", f"a login began with a token that is over for {wall() - credential.expires_at:.3f} s")
        return (plain if mechanism == "PLAIN" else oauthbearer).converse(host, credential)

    sasl = None
    if mechanism:
        source: Any = _Password() if mechanism == "PLAIN" else _Tokens(case.seed, wall)
        window = RefreshWindow(min_period=1.0, buffer=2.0)
        sasl = Sasl(mechanism=mechanism, converse=converse, source=source, refresh=window)
    return Security(channels=simulation.cluster.tls, sasl=sasl)


class _Password:
    is_async, is_static = False, True

    def fetch(self) -> Credential:
        return Credential(value=UserPassword(USER, Secret(PASSWORD)))


class _Tokens:
    """Tokens that last half a minute to five; an eighth of the time nobody gives one."""

    is_async, is_static = False, False

    def __init__(self, seed: int, wall: Callable[[], float]) -> None:
        self._random = Random(f"tokens {seed}")
        self._wall = wall
        self._began_at = wall()

    def fetch(self) -> Credential:
        now = self._wall()
        if int((now - self._began_at) / OUTAGE) % 8 == 3:
            raise TokenError("the provider is gone")
        lifetime = self._random.choice([30.0, 60.0, 300.0])
        token = unsecured_token(USER, issued_at=now, lifetime=lifetime)
        return Credential(value=Token(value=Secret(token)), expires_at=now + lifetime)


@contextmanager
def watched(accuse: Callable[[str, str], None]) -> Iterator[None]:
    """Whatever a broker is sent that no client of Kafka's may send is told."""
    admit, failed = SaslServer.admit, StandInChannel._failed

    def watch(server: SaslServer, session: SaslSession, api_key: int, now: float) -> Admission:
        is_late = session.state is SaslState.FAILED  # it was refused, and does not know yet
        admission = admit(server, session, api_key, now)
        if admission is Admission.ILLEGAL:
            accuse("P", f"a request of API {api_key} came during a login")
        elif admission is Admission.CLOSED and session.principal is None and not is_late:
            accuse("P", f"a request of API {api_key} came before a login")
        return admission

    def watch_bytes(channel: StandInChannel, reason: str) -> TlsError:
        if not channel._is_client and not channel._has_failed and reason in _MALFORMED:
            accuse("P", f"what came to a broker is not encrypted: {reason}")
        return failed(channel, reason)

    with patch.object(SaslServer, "admit", watch), patch.object(StandInChannel, "_failed", watch_bytes):
        yield
