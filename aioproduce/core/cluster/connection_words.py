"""Messages for the end of a connection, and the typed error if TLS or a login is the cause.

Used by `core.cluster.broker_connection` at the end of a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce.core.cluster.connection_states import ConnectionState, LossCause
from aioproduce.errors import AuthenticationError, TlsError
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.errors import ProducerError, ProtocolError


_FIRST_REQUESTS: Final = frozenset({ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID})


def describe_timeout(connection: BrokerConnection, now: float) -> tuple[str, LossCause]:
    """Return which time-out passed, in words, and the cause that it stands for."""
    peer, allowed = connection.peer, connection.setup_timeout
    login = connection.authentication
    if connection.state is ConnectionState.CONNECTING:
        return (
            f"no connection to {peer} within {allowed:g} s (socket.connection.setup.timeout.ms)",
            LossCause.SETUP_TIMEOUT,
        )
    if connection.state is ConnectionState.ENCRYPTING:
        return (
            f"{peer} did not finish the TLS handshake within {allowed:g} s (socket.connection.setup.timeout.ms); "
            f"is it a listener with TLS?",
            LossCause.SETUP_TIMEOUT,
        )
    if connection.state is ConnectionState.NEGOTIATING:
        return (
            f"{peer} did not answer ApiVersions within {allowed:g} s "
            f"(request.timeout.ms); is it a Kafka listener{_and_without_tls(connection)}?",
            LossCause.REQUEST_TIMEOUT,
        )
    if connection.state is ConnectionState.AUTHENTICATING and login is not None:
        return (
            f"the login to {peer} did not finish within {allowed:g} s (request.timeout.ms): {login.describe()}",
            LossCause.SECURITY,
        )
    if login is not None and login.ends_at <= now:
        return f"the session with {peer} has ended, and {login.describe()}", LossCause.SECURITY
    request = connection.first_to_expire()
    if request is None:
        return (
            f"no traffic with {peer} for {connection.settings.connections_max_idle:g} s (connections.max.idle.ms)",
            LossCause.IDLE,
        )
    took = request.deadline - request.sent_at
    done = "answer" if request.expects_response else "accept"
    return (
        f"{peer} did not {done} request {request.correlation_id} ({request.api.display_name}) "
        f"within {took:g} s (request.timeout.ms)",
        LossCause.REQUEST_TIMEOUT,
    )


def describe_end(connection: BrokerConnection) -> tuple[str, LossCause, ProducerError | None]:
    """Describe the end of a channel whose peer announced that it sends no more, like a closed connection."""
    if connection.state is ConnectionState.READY and not connection.pending_count:
        words = f"{connection.peer} closed its connection while no request was in flight"
        return words, LossCause.CLOSED_AT_REST, None
    error = security_error_of_loss(connection, None)
    return describe_loss(connection, error), LossCause.DISCONNECTED, error


def describe_loss(connection: BrokerConnection, error: BaseException | None) -> str:
    """Describe why a connection ended that the client did not close."""
    is_secured = connection.state in (ConnectionState.ENCRYPTING, ConnectionState.AUTHENTICATING)
    if isinstance(error, TlsError | AuthenticationError):
        if is_secured or not error.is_transient:
            return f"{connection.peer}: {error}"
        error = None  # a guess: reported elsewhere
    cause = (str(error) or type(error).__name__) if error is not None else "closed by the peer"
    if connection.state is ConnectionState.CONNECTING:
        return f"cannot connect to {connection.peer}: {cause}"
    if connection.state is ConnectionState.NEGOTIATING:
        return (
            f"connection to {connection.peer} lost before it reported its versions: {cause}; "
            f"is it a Kafka listener{_and_without_tls(connection)}?"
        )
    if connection.cause is LossCause.CLOSED_AT_REST:
        return f"{connection.peer} closed its connection while no request was in flight"
    return f"connection to {connection.peer} lost: {cause}"


def security_error_of_loss(connection: BrokerConnection, error: BaseException | None) -> ProducerError | None:
    """Return the error if the peer's close suggests settings that do not match; `None` otherwise.

    A broker silently closes a connection on which the client speaks unexpected TLS, or sends a request before a
    required login. A broker that shuts down looks the same, so the error has `is_transient` set.
    """
    if isinstance(error, TlsError):
        return error
    host, port = connection.address.host, connection.address.port
    if connection.state is ConnectionState.ENCRYPTING:
        return TlsError(
            f"the connection was closed during the TLS handshake{_why(error)}. Is this port a listener with TLS? "
            "security.protocol says that it is",
            reason="closed during handshake",
            setting="security.protocol",
            host=host,
            port=port,
            is_transient=True,
        )
    if connection.state is ConnectionState.AUTHENTICATING:
        login = connection.authentication
        return None if login is None else login.timed_out(f"the connection was closed meanwhile{_why(error)}")
    if connection.state is ConnectionState.NEGOTIATING and not connection.is_encrypted and error is None:
        return TlsError(
            "the connection was closed at the first request. Is this port a listener with TLS? security.protocol "
            f"says that it is not{'' if connection.authentication is None else ' (SASL_SSL says that it is)'}",
            reason="closed at the first request",
            setting="security.protocol",
            host=host,
            port=port,
            is_transient=True,
        )
    asked = {request.api for request in connection.in_flight}
    if (
        connection.is_ready
        and ApiKey.METADATA in asked
        and asked <= _FIRST_REQUESTS
        and not connection.has_answered
        and connection.authentication is None
        and error is None
    ):
        return AuthenticationError(
            "the broker closed the connection at the first request. Does this listener require a login? "
            "security.protocol says that it does not; SASL_PLAINTEXT or SASL_SSL say that it does",
            mechanism="",
            setting="security.protocol",
            host=host,
            port=port,
            is_transient=True,
        )
    return None


def security_error_of_timeout(
    connection: BrokerConnection, reason: str, cause: LossCause
) -> ProducerError | None:
    """Return the error if a login timed out; `None` if something else did."""
    login = connection.authentication
    is_of_login = cause is LossCause.SECURITY or connection.state is ConnectionState.REAUTHENTICATING
    return login.timed_out(reason) if login is not None and is_of_login else None


def foreign_protocol(connection: BrokerConnection, data: bytes, error: ProtocolError) -> ProducerError:
    """Return a `TlsError` if the bytes are unexpected TLS, else the given error."""
    if connection.state is not ConnectionState.NEGOTIATING or data[:2] not in (b"\x15\x03", b"\x16\x03"):
        return error
    return TlsError(
        "the port answers in TLS: set security.protocol to SSL or SASL_SSL, or use the port of a listener without "
        "TLS",
        reason="TLS not expected",
        setting="security.protocol",
        host=connection.address.host,
        port=connection.address.port,
    )


def _why(error: BaseException | None) -> str:
    return "" if error is None else f" ({error})"


def _and_without_tls(connection: BrokerConnection) -> str:
    return "" if connection.is_encrypted else ", and without TLS"
