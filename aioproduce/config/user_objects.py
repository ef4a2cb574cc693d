"""What the objects and functions of a user's own have to offer, as types: a partitioner, a provider of tokens.

Named by `settings`. A value is checked by the kind of its key (`kinds`, `security_kinds`), where it is set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from aioproduce.config.secret import Secret


class ChoosesPartition(Protocol):
    """Chooses partitions; `aioproduce.partitioners.Partitioner` describes it."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: Any, /) -> int:
        """Return the partition for a record that names none."""
        ...


class HasToken(Protocol):
    """Gives tokens by a method."""

    def token(self) -> Any:
        """Return a token, or an awaitable of one."""
        ...


Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Makes bytes of a key or a value; a null stays a null."""

TokenProvider: TypeAlias = Callable[[], Any] | HasToken
"""Gives a token, or an awaitable of one; `docs/how-to/security.md` lists what a token may be."""

UserPassword: TypeAlias = tuple[str, str | Secret]
"""A name and a password."""

CredentialsProvider: TypeAlias = Callable[[], UserPassword | Awaitable[UserPassword]]
"""Gives a name and a password."""
