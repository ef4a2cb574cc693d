"""The model's requests to sockets.

Created by `model`, executed in order by `server` or by a simulated network.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Send(NamedTuple):
    """Write these bytes."""

    connection_id: int
    data: bytes


class Close(NamedTuple):
    """Close the connection: with FIN after the sent data, or with RST at once."""

    connection_id: int
    is_reset: bool


class SetReading(NamedTuple):
    """Stop or resume reading from the socket, which stays open."""

    connection_id: int
    is_reading: bool


Effect: TypeAlias = Send | Close | SetReading
