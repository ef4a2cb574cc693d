"""Bugs on purpose in TLS and logins, which only a secured case can see. For `test_seeds_secured`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.connection_states import ConnectionState
from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.version_negotiation import negotiate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioproduce.security.mechanism import Credential


@contextmanager
def _request_during_login() -> Iterator[None]:
    """A connection that logs in again takes new requests between SaslHandshake and the last token."""
    can_send = BrokerConnection.can_send

    def can_send_always(connection: BrokerConnection, now: float) -> bool:
        if connection.state is not ConnectionState.REAUTHENTICATING:
            return can_send(connection, now)
        has_room = len(connection.in_flight) < connection.settings.max_in_flight
        return connection.is_writable and has_room and connection.throttled_until <= now

    with patch.object(BrokerConnection, "can_send", can_send_always):
        yield


@contextmanager
def _plaintext_first() -> Iterator[None]:
    """The first question goes out in plaintext, before the handshake is done."""

    def connection_made(connection: BrokerConnection, now: float) -> None:
        connection.connected_at = now
        connection.is_writable = True
        connection._move("connected")
        negotiate(connection, connection.settings.client_id, now)

    with patch.object(BrokerConnection, "connection_made", connection_made):
        yield


@contextmanager
def _expired_given_out() -> Iterator[None]:
    """A credential is given out for ever."""

    def lives(_: Login, credential: Credential) -> bool:
        return credential.expires_at is not None

    with patch.object(Login, "_lives", lives):
        yield


class SecurityMutant(NamedTuple):
    """A bug, and the cases that can show it.

    Attributes:
        bug: What puts it in.
        security: The security of the cases.
        weather: Their weather.
        seed: The case to try first: a cheap one that shows it.
        letter: What must object.
    """

    bug: Callable[[], AbstractContextManager[None]]
    security: str
    weather: str
    seed: int
    letter: str


SECURITY_MUTANTS: dict[str, SecurityMutant] = {
    "a request during a login": SecurityMutant(
        _request_during_login, "SASL_PLAINTEXT/PLAIN/3000", "squall", 2, "P"
    ),
    "plaintext before the handshake is done": SecurityMutant(_plaintext_first, "SSL//", "squall", 0, "P"),
    "an expired credential": SecurityMutant(_expired_given_out, "SASL_SSL/OAUTHBEARER/", "storm", 16, "K"),
}
