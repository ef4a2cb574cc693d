"""Connections that lead to something in this process instead of a broker: the log of a spool.

`ProducerLife.dial` has the function that makes them, and a driver calls it instead of connecting. The core does not
notice the difference.

Invariants, for the peer in this process:

1. It reports nothing within `Connection.write()` or `abort()`, except `Link.written_at_once()`.
2. It reports `lost` once, after `abort()` or by itself, when it uses no buffer that was written any more.
3. It calls a link in the loop's thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aioproduce.core.effects import Connect
    from aioproduce.drivers.core_step import Connection, CoreStep


class Link:
    """The driver's end of a connection in this process: the peer reports facts to it.

    Args:
        core: The core's step.
        connection_id: The connection.
    """

    __slots__ = ("_connection_id", "_core")

    def __init__(self, core: CoreStep, connection_id: int) -> None:
        self._core = core
        self._connection_id = connection_id

    def connected(self) -> None:
        """Report that the connection is open."""
        self._core.connected(self._connection_id)

    def received(self, data: bytes) -> None:
        """Report bytes of the peer."""
        self._core.received(self._connection_id, data)

    def written_at_once(self) -> None:
        """Report within `write()` that the next request may be written."""
        self._core.written_at_once(self._connection_id)

    def written(self) -> None:
        """Report in a later turn that the next request may be written."""
        self._core.written(self._connection_id)

    def lost(self, error: Exception | None) -> None:
        """Report the end."""
        self._core.disconnected(self._connection_id, error)


class Dial(Protocol):
    """Opens connections in this process."""

    def __call__(self, connect: Connect, link: Link, /) -> Connection:
        """Return a connection; report to the link, in later turns of the loop."""
