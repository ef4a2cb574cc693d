"""The core's interface to a login: conversations, their credentials, and the sources of these.

A `Mechanism` is one conversation of one connection with its broker. It uses a `Credential` from a
`CredentialSource`, which returns one for all connections of a producer, and a new one before that expires.
Implemented by the other modules of this package; used by `core.cluster.authentication` and `core.cluster.login`.

Invariants of every implementation:

1. `start()` and `step()` do no I/O and do not wait. Work that may wait or takes more than a millisecond is `Work`.
2. For any bytes, a conversation returns an answer or raises `AuthenticationError`, in bounded memory and time.
3. No secret is in the message of an error, in a repr, or in a local variable of an error's frames, because a
   traceback may be printed with its locals.
4. A conversation ends when it answers `None`. It does so only after the broker has authenticated itself, if the
   mechanism requires that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, final


@final
@dataclass(frozen=True, slots=True)
class Work:
    """Work that blocks or waits. A driver runs it elsewhere and returns its result.

    Attributes:
        run: A callable that blocks, for a thread; or one that returns an awaitable, for a task of the event loop.
        is_async: Whether `run` returns an awaitable.
        what: A short description for the name of its thread or task: `"SCRAM-SHA-256"`.
    """

    run: Callable[[], Any] = field(repr=False)
    is_async: bool = False
    what: str = "login"


Answer: TypeAlias = "bytes | Work | None"
"""The next step: bytes for the broker; `Work` whose result is the answer; or `None` after success."""


class Mechanism(Protocol):
    """One login conversation."""

    def start(self) -> Answer:
        """Return the client's first message.

        Raises:
            AuthenticationError: If the conversation cannot begin with this credential.
        """

    def step(self, challenge: bytes) -> Answer:
        """Answer the broker.

        Args:
            challenge: The broker's message, possibly empty.

        Raises:
            AuthenticationError: If the broker has not authenticated itself, or its message is not valid.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The credential of a login.

    Attributes:
        value: What the mechanism needs: a name and a password, or a token.
        expires_at: When it expires, in seconds since the epoch; `None`: never, or unknown.
        begins_at: Since when it is valid, in seconds since the epoch; the refresh time is computed from it. `None`:
            since it was fetched.
        principal: The user's name for messages; empty if unknown.
    """

    value: Any = field(repr=False)
    expires_at: float | None = None
    begins_at: float | None = None
    principal: str = ""


class CredentialSource(Protocol):
    """The source of a producer's credentials.

    Attributes:
        is_async: Whether `fetch()` returns an awaitable. Otherwise it blocks, and is called in a thread.
        is_static: Whether it always returns the same credential. It is then called only once and never blocks.
    """

    @property
    def is_async(self) -> bool: ...  # noqa: D102
    @property
    def is_static(self) -> bool: ...  # noqa: D102

    def fetch(self) -> Credential | Awaitable[Credential]:
        """Return a credential that is valid now.

        Raises:
            TokenError: If there is none. The error names the setting and the remedy. Any other exception is
                reported as a fault of the user's own provider.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshWindow:
    """When an expiring credential is refreshed: Kafka's `sasl.login.refresh.*`.

    Attributes:
        factor: The fraction of its lifetime after which it is refreshed, 0.5 to 1.
        jitter: The maximum fraction that is added to `factor` at random, 0 to 0.25.
        min_period: The minimum seconds after it was fetched, if the lifetime is long enough.
        buffer: The minimum seconds before it expires, if the lifetime is long enough for both.
        retry_backoff: Seconds before the first retry after a failure.
        retry_backoff_max: The maximum of that wait, which doubles with each failure.
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 10.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """How a producer logs in to its brokers.

    Attributes:
        mechanism: The name for `SaslHandshake`.
        converse: Creates the conversation of one connection from the broker's host and a credential.
        source: The source of the credentials.
        refresh: When the credentials are refreshed.
    """

    mechanism: str
    converse: Callable[[str, Credential], Mechanism] = field(repr=False)
    source: CredentialSource = field(repr=False)
    refresh: RefreshWindow = RefreshWindow()
