"""The login of one connection: agreement on the mechanism, then its conversation until both sides accept.

`core.cluster.broker_connections` makes one for a connection. The connection calls `begin()` when versions are
negotiated, and again before the session ends (KIP-368). The state table is a shorter form of Java's
SaslClientAuthenticator.

Invariants:

1. The credential is available before `SaslHandshake` is sent: from that request to the end of the conversation
   the connection accepts no other request, and a token endpoint may be slow.
2. Blocking work runs outside the core (`core.cluster.offloads`); its outcome is ignored once the connection ended.
3. Only the mechanism conducts the conversation and decides when it is over: an answer of the broker without an
   error is not enough.
4. Every failure is one `AuthenticationError` or `TokenError`, which ends the connection.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final

from aioproduce.core.cluster.in_flight_request import OwnRequest
from aioproduce.core.state_table import StateTable
from aioproduce.errors import AuthenticationError, ProducerError, ProtocolError
from aioproduce.security.mechanism import Work
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import (
    ILLEGAL_SASL_STATE,
    NONE,
    UNSUPPORTED_SASL_MECHANISM,
    message_of,
    name_of,
)
from aioproduce.wire.requests import encode_sasl_authenticate, encode_sasl_handshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.cluster.login import Login
    from aioproduce.core.cluster.offloads import Offloads
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.mechanism import Answer, Credential, Mechanism, Sasl
    from aioproduce.wire.messages import BrokerAddress, SaslAuthenticateResponse, SaslHandshakeResponse

_ANSWER_MAX: Final = 512 * 1024
"""Limit of bytes in one message of the broker; Kafka has the same limit for a client's message."""

_TEXT_MAX: Final = 300
"""Limit of characters that an error quotes from a broker."""


class AuthenticationState(Enum):
    """The state of a login."""

    NEW = "new"
    AWAITING_CREDENTIAL = "awaiting credential"
    AGREEING = "agreeing on the mechanism"
    CONVERSING = "conversing"
    COMPUTING = "computing"
    """The mechanism's next message is computed outside the core."""
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


_Event: TypeAlias = Literal["begun", "credential", "agreed", "computing", "computed", "content", "failed"]

AUTHENTICATION_STATES: Final[StateTable[AuthenticationState, _Event]] = StateTable(
    "a login",
    {
        AuthenticationState.NEW: {"begun": AuthenticationState.AWAITING_CREDENTIAL},
        AuthenticationState.AWAITING_CREDENTIAL: {
            "credential": AuthenticationState.AGREEING,
            "failed": AuthenticationState.FAILED,
        },
        AuthenticationState.AGREEING: {
            "agreed": AuthenticationState.CONVERSING,
            "failed": AuthenticationState.FAILED,
        },
        AuthenticationState.CONVERSING: {
            "computing": AuthenticationState.COMPUTING,
            "content": AuthenticationState.AUTHENTICATED,
            "failed": AuthenticationState.FAILED,
        },
        AuthenticationState.COMPUTING: {
            "computed": AuthenticationState.CONVERSING,
            "failed": AuthenticationState.FAILED,
        },
        AuthenticationState.AUTHENTICATED: {"begun": AuthenticationState.AWAITING_CREDENTIAL},
        AuthenticationState.FAILED: {},
    },
)


class Line(Protocol):
    """The part of a connection that a login uses."""

    address: BrokerAddress

    def hold(self) -> None:
        """Accept no request until the login has ended: its first request is next."""

    def ask(self, request: OwnRequest, now: float) -> None:
        """Send a request of the connection's own as soon as possible."""

    def authenticated(self) -> None:
        """Accept that the login succeeded."""

    def fail(self, error: ProducerError) -> None:
        """Accept that the login failed."""


@final
class Authentication:
    """The first and all later logins of one connection.

    Args:
        line: The connection.
        sasl: How to log in.
        client_id: Kafka's `client.id`.
        login: The source of credentials.
        offloads: Runs blocking work.
        random: Returns a number in `0 <= x < 1`.
        metrics: Counts logins.

    Attributes:
        state: See `AuthenticationState`.
        again_at: When to log in again; infinity: never, or not known yet.
        ends_at: When the broker ends the session; infinity: never.
        is_first: Whether no login has succeeded on this connection yet.
        began_at: When the current or the last login began.
    """

    __slots__ = (
        "_client_id",
        "_credential",
        "_lifetime",
        "_line",
        "_login",
        "_mechanism",
        "_metrics",
        "_offloads",
        "_random",
        "_sasl",
        "_ticket",
        "again_at",
        "began_at",
        "ends_at",
        "is_first",
        "state",
    )

    again_at: float
    ends_at: float

    def __init__(
        self,
        line: Line,
        sasl: Sasl,
        client_id: str,
        login: Login,
        offloads: Offloads,
        random: Callable[[], float],
        metrics: ProducerMetrics,
    ) -> None:
        self._metrics = metrics
        self._line = line
        self._sasl = sasl
        self._client_id = client_id
        self._login = login
        self._offloads = offloads
        self._random = random
        self._credential: Credential | None = None
        self._mechanism: Mechanism | None = None
        self._ticket: int | None = None
        self._lifetime = 0.0
        self.state: AuthenticationState = AuthenticationState.NEW
        self.again_at = self.ends_at = inf
        self.is_first: bool = True
        self.began_at: float = 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a login has begun and not ended."""
        return self.state not in (
            AuthenticationState.NEW,
            AuthenticationState.AUTHENTICATED,
            AuthenticationState.FAILED,
        )

    @property
    def mechanism(self) -> str:
        """The SASL mechanism."""
        return self._sasl.mechanism

    @property
    def principal(self) -> str:
        """The name that logs in; empty while it is unknown."""
        return "" if self._credential is None else self._credential.principal

    @property
    def session_lifetime(self) -> float:
        """Seconds that the current session lasts; 0: the broker set no end."""
        return max(self._lifetime, 0.0)

    def begin(self, now: float) -> None:
        """Begin a login."""
        self._move("begun")
        self.began_at = now
        self.again_at = inf
        self._login.obtain(self._have_credential, now)

    def begin_if_due(self, now: float) -> None:
        """Log in again if the session ends soon (KIP-368)."""
        if self.again_at <= now < self.ends_at:
            self.begin(now)

    def stop(self) -> None:
        """Stop waiting for pending work: the connection has ended."""
        self._login.forget(self._have_credential)
        if self._ticket is not None:
            self._offloads.forget(self._ticket)
            self._ticket = None
        if self.is_under_way:
            self._move("failed")

    def describe(self) -> str:
        """Return what a login waits for, in words for a time-out."""
        if self.state is AuthenticationState.AWAITING_CREDENTIAL:
            return "the credentials did not arrive"
        if self.state is AuthenticationState.COMPUTING:
            return "the client's answer was not ready"
        if self.state is AuthenticationState.AUTHENTICATED:
            return "there was no time to log in again: the event loop was blocked, or the machine slept"
        return f"the broker did not continue with {self._sasl.mechanism}"

    def timed_out(self, words: str) -> AuthenticationError | None:
        """Return the error of a login that took too long; `None` if none is under way."""
        return self._error(words, None) if self.is_under_way else None

    # -- the steps ---

    def _have_credential(self, outcome: Credential | ProducerError, now: float) -> None:
        if self.state is not AuthenticationState.AWAITING_CREDENTIAL:
            return
        if isinstance(outcome, ProducerError):
            self._fail(outcome, now)
            return
        self._credential = outcome
        self._move("credential")
        self._line.hold()
        mechanism, client_id = self._sasl.mechanism, self._client_id
        request = OwnRequest(
            ApiKey.SASL_HANDSHAKE,
            lambda version, correlation_id: [
                encode_sasl_handshake(version, correlation_id, client_id, mechanism)
            ],
            self._agreed,
        )
        self._ask(request, now)

    def _agreed(self, response: SaslHandshakeResponse, now: float) -> None:
        if response.error_code != NONE:
            self._fail(self._refusal_of_mechanism(response), now)
            return
        self._move("agreed")
        assert self._credential is not None
        try:
            self._mechanism = self._sasl.converse(self._line.address.host, self._credential)
            answer = self._mechanism.start()
        except ProducerError as error:
            self._fail(error, now)
            return
        self._say(answer, now)

    def _say(self, answer: Answer, now: float) -> None:
        if answer is None:
            self._succeed(now)
        elif isinstance(answer, Work):
            self._move("computing")
            self._ticket = self._offloads.begin(answer, self._computed)
        else:
            client_id = self._client_id
            request = OwnRequest(
                ApiKey.SASL_AUTHENTICATE,
                lambda version, correlation_id: [
                    encode_sasl_authenticate(version, correlation_id, client_id, answer)
                ],
                self._answered,
            )
            self._ask(request, now)

    def _ask(self, request: OwnRequest, now: float) -> None:
        try:
            self._line.ask(request, now)
        except ProtocolError as error:  # the broker supports no version of it
            self._fail(error, now)

    def _computed(self, outcome: object, now: float) -> None:
        self._ticket = None
        if outcome is None or isinstance(outcome, bytes | Work):
            self._move("computed")
            self._say(outcome, now)
        elif isinstance(outcome, ProducerError):
            self._fail(outcome, now)
        else:
            # Only the type: the text may contain a secret argument.
            self._fail(self._error(f"the client's answer failed with {type(outcome).__name__}", None), now)

    def _answered(self, response: SaslAuthenticateResponse, now: float) -> None:
        if response.error_code != NONE:
            self._fail(self._refusal(response), now)
            return
        self._lifetime = response.session_lifetime
        assert self._mechanism is not None
        if len(response.auth_bytes) > _ANSWER_MAX:
            self._fail(self._error(f"the broker's answer has {len(response.auth_bytes)} bytes", None), now)
            return
        try:
            answer = self._mechanism.step(response.auth_bytes)
        except ProducerError as error:
            self._fail(error, now)
            return
        self._say(answer, now)

    def _succeed(self, now: float) -> None:
        self._move("content")
        self._mechanism = None
        self.ends_at = now + self._lifetime if self._lifetime > 0 else inf
        # As Java: after 85 to 95 % of the session, so that connections do not all log in at once.
        self.again_at = now + self._lifetime * (0.85 + 0.1 * self._random()) if self._lifetime > 0 else inf
        self._metrics.authenticated(self.is_first, self._lifetime > 0, now - self.began_at, now)
        self.is_first = False
        self._line.authenticated()

    # -- failures ---

    def _fail(self, error: ProducerError, now: float) -> None:
        self._mechanism = None
        self._move("failed")
        if isinstance(error, AuthenticationError) and self._credential is not None:
            self._login.refused(self._credential)
        self._metrics.authentication_failed(self.is_first, now)
        self._line.fail(error)

    def _refusal_of_mechanism(self, response: SaslHandshakeResponse) -> AuthenticationError:
        if response.error_code == UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(_printable(name) for name in response.mechanisms[:20]) or "none"
            return self._error(f"the broker does not offer it; it offers {offered}", "sasl.mechanism")
        if response.error_code == ILLEGAL_SASL_STATE and self.is_first:
            return self._error(
                "this listener accepts no logins: set security.protocol to PLAINTEXT or SSL, or use the port of a "
                "listener with SASL",
                "security.protocol",
            )
        return self._error(f"{name_of(response.error_code)}: {message_of(response.error_code)}", None)

    def _refusal(self, response: SaslAuthenticateResponse) -> AuthenticationError:
        mechanism = self._sasl.mechanism
        told = getattr(self._mechanism, "refusal", "") or response.error_message
        words = _printable(told or message_of(response.error_code))
        return self._error(
            f"{name_of(response.error_code)}: {words}. Check {_SETTINGS.get(mechanism, _JAAS)}",
            _SETTING.get(mechanism, "sasl.jaas.config"),
        )

    def _error(self, what: str, setting: str | None) -> AuthenticationError:
        again = "" if self.is_first else " again"
        address = self._line.address
        return AuthenticationError(
            f"cannot log in{again} to {address.host}:{address.port} with {self._sasl.mechanism}: {what}",
            mechanism=self._sasl.mechanism,
            setting=setting,
            host=address.host,
            port=address.port,
            # The same broker accepted this login before: a new connection may succeed.
            is_transient=setting is None or not self.is_first,
        )

    def _move(self, event: _Event) -> None:
        self.state = AUTHENTICATION_STATES.after(self.state, event, self._line)


_JAAS: Final = "sasl.username and sasl.password, or sasl.jaas.config"
_SETTINGS: Final = {
    "OAUTHBEARER": "the token's audience, scope and expiry, and what the listener expects",
    "GSSAPI": "sasl.kerberos.service.name, the principal, and the broker's keytab",
}
_SETTING: Final = {
    "OAUTHBEARER": "sasl.oauthbearer.token.endpoint.url",
    "GSSAPI": "sasl.kerberos.service.name",
}


def _printable(text: str) -> str:
    """Return a peer's text, shortened and without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_TEXT_MAX])
