"""What the model wants done to sockets.

Made by `model`, carried out in order by the front (`server`) or by a simulated network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final


@final
@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    connection_id: int
    data: bytes


@final
@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection: by FIN after what was sent, or by RST at once."""

    connection_id: int
    is_reset: bool


@final
@dataclass(frozen=True, slots=True)
class SetReading:
    """Stop reading from the socket (which stays open), or go on."""

    connection_id: int
    is_reading: bool


Effect: TypeAlias = Send | Close | SetReading
