"""What the core needs of a login: conversations, what they are held with, and where that comes from.

A `Mechanism` is one conversation of one connection with its broker. It is held with a `Credential`, which a
`CredentialSource` gives: one for all connections of a producer, and again when it is about to expire. Implemented
beside this module; used by `core.cluster.authentication` and `core.cluster.login`.

Invariants, which whoever implements a mechanism keeps:

1. No I/O and no waiting in `start()` and `step()`. What takes more than a millisecond, or may wait, is `Work`.
2. Whatever bytes come, a conversation gives an answer or raises `AuthenticationError`, in bounded memory and time.
3. No secret is in a message of an error, in a repr, or in a local variable of a frame that an error leaves: a
   traceback may be printed with its locals.
4. A conversation is over when it answers `None`, and not before the broker has proved itself where the mechanism
   has it do so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, final


@final
@dataclass(frozen=True, slots=True)
class Work:
    """Something that blocks or waits: a driver runs it elsewhere, and its result is what was asked for.

    Attributes:
        run: A callable that blocks, to be run in a thread; or one that gives an awaitable, to be run in a task of
            the event loop.
        is_async: Which of the two it is.
        what: What it does, in words, for the name of its thread or task: `"SCRAM-SHA-256"`.
    """

    run: Callable[[], Any] = field(repr=False)
    is_async: bool = False
    what: str = "login"


Answer: TypeAlias = "bytes | Work | None"
"""What a conversation says next: bytes for the broker; `Work` whose result is the answer; `None`: it went well."""


class Mechanism(Protocol):
    """One conversation."""

    def start(self) -> Answer:
        """What the client says first.

        Raises:
            AuthenticationError: It cannot begin with this credential.
        """

    def step(self, challenge: bytes) -> Answer:
        """Answer the broker.

        Args:
            challenge: What it said, which may be empty.

        Raises:
            AuthenticationError: The broker has not proved itself, or says what the mechanism does not know.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What conversations are held with.

    Attributes:
        value: A name and a password, a token: what the mechanism takes.
        expires_at: When it is over, in seconds since the epoch; `None`: never, as far as is known.
        begins_at: Since when it is of use, likewise; refreshing is reckoned from there. `None`: since it was
            fetched.
        principal: Whose it is, for messages; empty where that is not known.
    """

    value: Any = field(repr=False)
    expires_at: float | None = None
    begins_at: float | None = None
    principal: str = ""


class CredentialSource(Protocol):
    """Where a producer's credentials come from.

    Attributes:
        is_async: Whether `fetch()` gives an awaitable. If not, it blocks, and is called in a thread.
        is_static: Whether it gives the same whenever it is asked: then it is asked once, at once, and never blocks.
    """

    @property
    def is_async(self) -> bool: ...  # noqa: D102
    @property
    def is_static(self) -> bool: ...  # noqa: D102

    def fetch(self) -> Credential | Awaitable[Credential]:
        """A credential that is of use now.

        Raises:
            TokenError: There is none; names the setting and the remedy. Whatever else is raised is taken for a
                fault of the user's own provider.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshWindow:
    """When a credential that expires is fetched anew: Kafka's `sasl.login.refresh.*`.

    Attributes:
        factor: After this part of its lifetime, 0.5 to 1.
        jitter: Plus up to this part of it, chosen at random, 0 to 0.25.
        min_period: Not earlier than so many seconds after it was fetched, if it lasts long enough for that.
        buffer: And not in the last so many seconds, if it lasts long enough for both.
        retry_backoff: Seconds before the first attempt after one that failed.
        retry_backoff_max: The bound on that wait, which doubles with each failure.
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
        mechanism: The name that `SaslHandshake` asks for.
        converse: Makes the conversation of one connection: with the host that it goes to, and a credential.
        source: Where the credentials come from.
        refresh: When they are fetched anew.
    """

    mechanism: str
    converse: Callable[[str, Credential], Mechanism] = field(repr=False)
    source: CredentialSource = field(repr=False)
    refresh: RefreshWindow = RefreshWindow()
