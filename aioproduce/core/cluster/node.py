"""The state of one broker across its connections: address, failures, and the time of the next attempt.

`core.cluster.broker_connections` owns one for each broker.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import AuthenticationError, ProducerError, TlsError, TokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.wire.messages import BrokerAddress

_SURE: Final = 2
"""Transient failures after which they count as a wrong setting."""

_SECURITY_BACKOFF: Final = 1.0
_SECURITY_BACKOFF_MAX: Final = 30.0
"""Seconds. Nobody corrects a wrong setting within one second."""


class Node:
    """The state that outlives the connections of one broker.

    Attributes:
        address: Its address, by the latest metadata.
        connection: Its open connection in any state, or `None`.
        failed_attempts: Connections in a row that ended before they were ready.
        failed_setups: Attempts in a row that never opened a transport.
        is_retained: Whether metadata names it.
        last_ended_at: When its last connection ended.
        last_error: The reason in words; `None` since it was last ready.
        next_attempt_at: The earliest instant of the next attempt.
        ready_id: The id of the connection that was ready last; 0: none.
        security_error: The last error of a setting or a login since it last answered, or `None`.
        security_failures: The number of such errors since it last answered.
        silent_since: Since when it has been silent, if a connection ended for that; `None` since it was last
            ready.
    """

    __slots__ = (
        "address",
        "connection",
        "failed_attempts",
        "failed_setups",
        "is_retained",
        "last_ended_at",
        "last_error",
        "next_attempt_at",
        "ready_id",
        "security_error",
        "security_failures",
        "silent_since",
    )

    def __init__(self, address: BrokerAddress) -> None:
        self.address: BrokerAddress = address
        self.connection: BrokerConnection | None = None
        self.failed_attempts: int = 0
        self.failed_setups: int = 0
        self.is_retained: bool = True
        self.last_ended_at: float = -inf
        self.last_error: str | None = None
        self.next_attempt_at: float = -inf
        self.ready_id: int = 0
        self.security_error: ProducerError | None = None
        self.security_failures: int = 0
        self.silent_since: float | None = None

    def has_answered(self) -> None:
        """Reset the security failures: an answer proves that the settings are right."""
        self.security_error = None
        self.security_failures = 0

    def unanswered_since(self) -> float | None:
        """Return since when it owes an answer on any connection; `None` if it owes none.

        The end of a silent connection does not end the silence. The next connection does, once it is ready.
        """
        since: float | None = None
        connection = self.connection
        if connection is not None and connection.in_flight:
            since = max(connection.in_flight[0].sent_at, connection.last_heard_at)
        if self.silent_since is None:
            return since
        return self.silent_since if since is None else min(self.silent_since, since)

    def pause_after(self, error: BaseException | None, backoffs: Backoffs) -> float:
        """Return the seconds until the next attempt; longer if somebody has to correct a setting."""
        pause = backoffs.reconnect.backoff(self.failed_attempts)
        if not isinstance(error, TlsError | AuthenticationError | TokenError):
            return pause
        self.security_error = error
        self.security_failures += 1
        if isinstance(error, TokenError) or error.is_transient:
            return pause
        return max(pause, backoffs.security.backoff(self.security_failures - 1))


def security_error_of(nodes: Iterable[Node]) -> ProducerError | None:
    """Return the error of a setting or a login that some of these nodes report, or `None`.

    A transient error counts if it has happened twice, to one node or to two.
    """
    failed = [node for node in nodes if node.security_error is not None]
    is_sure = sum(node.security_failures for node in failed) >= _SURE
    for node in failed:
        if is_sure or not getattr(node.security_error, "is_transient", False):
            return node.security_error
    return None


@final
class Backoffs:
    """The back-offs that all nodes of a producer share.

    Args:
        setup: The set-up time-out by the number of set-ups that failed in a row (KIP-601).
        reconnect: The pause by the number of connections that ended in a row before they were ready.
        jitter: Returns a number in `0 <= x < 1`.

    Attributes:
        setup: The argument of that name.
        reconnect: The argument of that name.
        security: The pause after an error that does not pass by itself: 1 to 30 s.
    """

    __slots__ = ("reconnect", "security", "setup")

    def __init__(
        self, setup: ExponentialBackoff, reconnect: ExponentialBackoff, jitter: Callable[[], float]
    ) -> None:
        self.setup: ExponentialBackoff = setup
        self.reconnect: ExponentialBackoff = reconnect
        self.security: ExponentialBackoff = ExponentialBackoff(
            _SECURITY_BACKOFF, _SECURITY_BACKOFF_MAX, random=jitter
        )
