"""Logins as on a broker: which requests are served when, who is logged in, and for how long.

Called by `model` for every request on a listener with SASL. Times are the model's.

Invariants (those of Kafka's SaslServerAuthenticator, KIP-43, KIP-152 and KIP-368):
1. Before a login only ApiVersions, once, and SaslHandshake are served; any other request closes the connection.
   After SaslHandshake only SaslAuthenticate is served; other requests are answered ILLEGAL_SASL_STATE.
2. A failed login is answered, and its connection closed `failed_delay` later; nothing is served meanwhile.
3. An expired session gets no answers: its next request, unless it is SaslHandshake, closes the connection.
4. A re-authentication must be by the same user and mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.core.state_table import StateTable
from aioproduce.testing.fake_cluster.sasl_mechanisms import (
    SCRAM_HASHES,
    BearerConversation,
    Conversation,
    LoginRefusedError,
    PlainConversation,
    ScramConversation,
    TokenVerifier,
    Users,
)
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange
    from aioproduce.testing.fake_cluster.faults import Faults

# SaslServerAuthenticator.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS
_REAUTHENTICATION_INTERVAL: Final = 1.0


SASL_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
"""What brokers offer. Kafka also has v0 of SaslHandshake, after which tokens are sent without frames."""


class SaslState(Enum):
    """The progress of a connection's login."""

    INITIAL = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


SASL_STATES: Final = StateTable[SaslState, str](
    "a login at a broker",
    {
        SaslState.INITIAL: {
            "versions": SaslState.HANDSHAKE,
            "handshake": SaslState.AUTHENTICATE,
            "refused": SaslState.FAILED,
        },
        SaslState.HANDSHAKE: {"handshake": SaslState.AUTHENTICATE, "refused": SaslState.FAILED},
        SaslState.AUTHENTICATE: {
            "challenged": SaslState.AUTHENTICATE,
            "completed": SaslState.AUTHENTICATED,
            "refused": SaslState.FAILED,
        },
        SaslState.AUTHENTICATED: {"handshake": SaslState.AUTHENTICATE, "refused": SaslState.FAILED},
        SaslState.FAILED: {},
    },
)


class Admission(Enum):
    """What happens to a request before it is parsed."""

    SERVED = auto()
    ILLEGAL = auto()
    """Answered ILLEGAL_SASL_STATE; then the connection is closed."""
    CLOSED = auto()
    """Not answered; the connection is closed."""


@final
@dataclass(slots=True, eq=False)
class SaslSession:
    """The login of one connection.

    Attributes:
        state: The progress of the login.
        mechanism: What the client asked for; empty before that.
        principal: The logged-in user; `None` before the first login is complete.
        ends_at: When the session expires; `None`: never.
        logins: The number of logins on this connection.
        extensions: What an OAUTHBEARER client sent in addition to its token (KIP-342).
    """

    state: SaslState = SASL_STATES.start
    mechanism: str = ""
    principal: str | None = None
    ends_at: float | None = None
    logins: int = 0
    extensions: dict[str, str] = field(default_factory=dict)
    conversation: Conversation | None = field(default=None, repr=False)
    began_again_at: float | None = None
    is_other_mechanism: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether the connection is about to be closed."""
        return self.state is SaslState.FAILED

    def happened(self, event: str) -> None:
        """Change to the state that follows this event."""
        self.state = SASL_STATES.after(self.state, event)


@final
@dataclass(slots=True, eq=False, repr=False)
class SaslServer:
    """The logins of one cluster.

    Args:
        mechanisms: The enabled ones.
        users: The users with passwords.
        verify_token: For OAUTHBEARER.
        faults: The cluster's faults.
        wall_ms: Converts the model's time to milliseconds since the epoch.
        max_reauth: `connections.max.reauth.ms` in seconds; `None`: sessions end only with a token.
        announced_lifetime: Sent to clients instead of the session's real lifetime, in seconds; may be negative.
        failed_delay: `connection.failed.authentication.delay.ms` in seconds.
    """

    mechanisms: Sequence[str]
    users: Users
    verify_token: TokenVerifier
    faults: Faults
    wall_ms: Callable[[float], int]
    max_reauth: float | None = None
    announced_lifetime: float | None = None
    failed_delay: float = 0.1

    def admit(self, session: SaslSession, api_key: int, now: float) -> Admission:
        """Return whether a request is served now."""
        match session.state:
            case SaslState.AUTHENTICATED:
                is_over = session.ends_at is not None and now > session.ends_at
                if not is_over or api_key == ApiKey.SASL_HANDSHAKE:
                    return Admission.SERVED
            case SaslState.AUTHENTICATE:
                if api_key == ApiKey.SASL_AUTHENTICATE:
                    return Admission.SERVED
                session.happened("refused")
                return Admission.ILLEGAL
            case SaslState.INITIAL if api_key == ApiKey.API_VERSIONS:
                session.happened("versions")
                return Admission.SERVED
            case SaslState.INITIAL | SaslState.HANDSHAKE if api_key == ApiKey.SASL_HANDSHAKE:
                return Admission.SERVED
        session.happened("refused")
        return Admission.CLOSED

    def handshake(self, session: SaslSession | None, exchange: Exchange, now: float) -> Body:
        """Answer SaslHandshake; `session` is `None` on a listener without SASL."""
        if session is None:
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
        mechanism = exchange.body["mechanism"]
        if session.state is SaslState.AUTHENTICATED:
            began = session.began_again_at
            if began is not None and now - began < _REAUTHENTICATION_INTERVAL:
                return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
            session.began_again_at = now
        code = self.faults.take_top_level_code(exchange.api_key, exchange.broker_id)
        if mechanism not in self.mechanisms:
            code = ErrorCode.unsupported_sasl_mechanism
        if code:
            session.happened("refused")
            return {"error_code": code, "mechanisms": tuple(self.mechanisms)}
        session.is_other_mechanism = session.principal is not None and mechanism != session.mechanism
        if not session.is_other_mechanism:
            session.mechanism = mechanism
        session.conversation = self._converse(mechanism, now)
        session.happened("handshake")
        return {"error_code": ErrorCode.none, "mechanisms": tuple(self.mechanisms)}

    def authenticate(self, session: SaslSession | None, exchange: Exchange, now: float) -> Body:
        """Answer SaslAuthenticate."""
        if session is None or session.state is not SaslState.AUTHENTICATE:
            return _refusal("SaslAuthenticate request received after successful authentication", is_late=True)
        conversation = session.conversation
        assert conversation is not None, "SaslHandshake has made it"
        try:
            self._check_faults(exchange)
            if session.is_other_mechanism:
                raise LoginRefusedError(
                    "SASL mechanism requested by client is not supported for re-authentication of mechanism "
                    f"'{session.mechanism}'"
                )
            challenge = conversation.step(exchange.body["auth_bytes"])
            if conversation.principal is None:
                session.happened("challenged")
                return {
                    "error_code": ErrorCode.none,
                    "error_message": None,
                    "auth_bytes": challenge,
                    "session_lifetime": 0,
                }
            self._check_principal(session, conversation.principal)
        except LoginRefusedError as refusal:
            session.happened("refused")
            return _refusal(refusal.text or _invalid_credentials(session))
        return self._complete(session, conversation, challenge, now)

    def _complete(
        self, session: SaslSession, conversation: Conversation, challenge: bytes, now: float
    ) -> Body:
        session.happened("completed")
        session.principal = conversation.principal
        session.conversation = None
        session.logins += 1
        if isinstance(conversation, BearerConversation):
            session.extensions = conversation.extensions
        bounds = [] if self.max_reauth is None else [self.max_reauth]
        if conversation.expires_at is not None:
            bounds.append(max(0.0, conversation.expires_at - self.wall_ms(now) / 1000))
        lifetime = min(bounds, default=0.0)
        session.ends_at = now + lifetime if bounds else None
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "auth_bytes": challenge,
            "session_lifetime": lifetime if self.announced_lifetime is None else self.announced_lifetime,
        }

    def _converse(self, mechanism: str, now: float) -> Conversation:
        if mechanism in SCRAM_HASHES:
            return ScramConversation(mechanism, self.users)
        if mechanism == "PLAIN":
            return PlainConversation(self.users)
        return BearerConversation(self.verify_token, lambda: self.wall_ms(now) / 1000)

    def _check_faults(self, exchange: Exchange) -> None:
        fault = self.faults.take_refused_login(exchange.broker_id)
        if fault is not None:
            raise LoginRefusedError(fault.message)

    @staticmethod
    def _check_principal(session: SaslSession, principal: str) -> None:
        if session.principal not in (None, principal):
            raise LoginRefusedError(
                f"Cannot change principals during re-authentication from User.{session.principal}: User.{principal}"
            )


def _refusal(text: str, *, is_late: bool = False) -> Body:
    code = ErrorCode.illegal_sasl_state if is_late else ErrorCode.sasl_authentication_failed
    return {"error_code": code, "error_message": text, "auth_bytes": b"", "session_lifetime": 0}


def _invalid_credentials(session: SaslSession) -> str:
    what = "authentication" if session.principal is None else "re-authentication"
    cause = f"due to invalid credentials with SASL mechanism {session.mechanism}"
    return f"Authentication failed during {what} {cause}"


def illegal_state(exchange: Exchange) -> Body | None:
    """Return the answer ILLEGAL_SASL_STATE to a producer's request; `None` if it has no field for the code."""
    code = ErrorCode.illegal_sasl_state
    body = exchange.body
    match exchange.api_key:
        case ApiKey.PRODUCE if body["acks"] != 0:
            return {
                "responses": [
                    {
                        "name": topic.get("name"),
                        "topic_id": topic.get("topic_id"),
                        "partition_responses": [
                            {
                                "index": entry["index"],
                                "error_code": code,
                                "base_offset": -1,
                                "log_append_time": -1,
                                "log_start_offset": -1,
                                "record_errors": (),
                            }
                            for entry in topic["partition_data"]
                        ],
                    }
                    for topic in body["topic_data"]
                ]
            }
        case ApiKey.METADATA:
            topics = [
                {
                    "error_code": code,
                    "name": topic.get("name"),
                    "topic_id": topic.get("topic_id"),
                    "is_internal": False,
                    "partitions": (),
                }
                for topic in body["topics"] or ()
            ]
            return {
                "brokers": (),
                "cluster_id": None,
                "controller_id": -1,
                "topics": topics,
                "error_code": code,
            }
        case ApiKey.API_VERSIONS:
            return {"error_code": code, "api_keys": ()}
        case ApiKey.INIT_PRODUCER_ID:
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        case ApiKey.SASL_HANDSHAKE:
            return {"error_code": code, "mechanisms": ()}
    return None
