"""What the model wants done to sockets.

Made by `model`, carried out in order by the front (`server`) or by a simulated network.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Send(NamedTuple):
    """Write these bytes."""

    connection_id: int
    data: bytes


class Close(NamedTuple):
    """Close the connection: by FIN after what was sent, or by RST at once."""

    connection_id: int
    is_reset: bool


class SetReading(NamedTuple):
    """Stop reading from the socket (which stays open), or go on."""

    connection_id: int
    is_reading: bool


Effect: TypeAlias = Send | Close | SetReading
