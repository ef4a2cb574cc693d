"""What happens in the story, as `story` tells it and `report` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

NETWORK: Final = "network"
SERVICE: Final = "service"
BROKER: Final = "broker"
FAULTS: Final = (NETWORK, SERVICE, BROKER)


@final
@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        at: When, in seconds since the epoch.
        text: What, in words.
        fault: What began or ended, of `FAULTS`; a kill of the service does both. Empty for the rest.
    """

    at: float
    text: str
    fault: str = ""
