"""What is known of one broker beyond its connections: its address, its failures, and when it may be tried again.

Owned by `core.cluster.broker_connections`, one for each broker.
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
"""Failures of what may pass by itself, after which it is taken for a wrong setting."""

_SECURITY_BACKOFF: Final = 1.0
_SECURITY_BACKOFF_MAX: Final = 30.0
"""Seconds: a setting that is wrong is not put right within one."""


@final
class Node:
    """What outlives the connections of one broker.

    Attributes:
        address: Where it is, by the latest metadata.
        connection: Its open connection, in whatever state.
        failed_attempts: Connections in a row that ended before they were ready.
        failed_setups: Those of them that did not come about at all.
        is_retained: Whether metadata names it.
        last_ended_at: When its last connection ended.
        last_error: Why, in words; `None` since it was last ready.
        next_attempt_at: Before that it is not tried again.
        ready_id: The connection of it that was ready last; 0: none.
        security_error: What its last connection failed of, where that was a setting or a login.
        security_failures: How many have so since it last answered.
        silent_since: Since when it has answered nothing, where a connection ended for that; `None` since it was
            last ready.
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
        """A request was answered: whatever the settings are, they are not wrong."""
        self.security_error = None
        self.security_failures = 0

    def unanswered_since(self) -> float | None:
        """Since when it owes an answer, on whatever connection; `None` while it owes none.

        A connection that was given up because of its silence does not end the silence. The next one does, once it
        is ready.
        """
        since: float | None = None
        connection = self.connection
        if connection is not None and connection.in_flight:
            since = max(connection.in_flight[0].sent_at, connection.last_heard_at)
        if self.silent_since is None:
            return since
        return self.silent_since if since is None else min(self.silent_since, since)

    def pause_after(self, error: BaseException | None, backoffs: Backoffs) -> float:
        """Seconds until the next attempt; longer where the last one failed of what somebody has to put right."""
        pause = backoffs.reconnect.backoff(self.failed_attempts)
        if not isinstance(error, TlsError | AuthenticationError | TokenError):
            return pause
        self.security_error = error
        self.security_failures += 1
        if isinstance(error, TokenError) or error.is_transient:
            return pause
        return max(pause, backoffs.security.backoff(self.security_failures - 1))


def security_error_of(nodes: Iterable[Node]) -> ProducerError | None:
    """What all of them fail of, where that is a setting or a login.

    What may pass by itself counts when it has happened twice, to one of them or to two.
    """
    failed = [node for node in nodes if node.security_error is not None]
    is_sure = sum(node.security_failures for node in failed) >= _SURE
    for node in failed:
        if is_sure or not getattr(node.security_error, "is_transient", False):
            return node.security_error
    return None


@final
class Backoffs:
    """The pauses between attempts, which all nodes of a producer share.

    Args:
        setup: The set-up time-out by the number of set-ups that failed in a row (KIP-601).
        reconnect: The pause by the number of connections that ended in a row before they were ready.
        jitter: Gives a number in `0 <= x < 1`.

    Attributes:
        setup: Likewise.
        reconnect: Likewise.
        security: The pause after what is not better by itself: 1 to 30 s.
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
