"""What a service tells of itself, and how long a request may take: values.

Made by `ProducerService` and read by the frameworks' parts and by applications.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import final


class ServiceState(Enum):
    """Where a service is in its life."""

    NEW = auto()
    RUNNING = auto()
    DRAINING = auto()
    STOPPED = auto()


@final
@dataclass(frozen=True, slots=True)
class Health:
    """Whether all is well, and what is not.

    Attributes:
        is_well: Whether it is.
        reasons: What is not; empty where all is well. Nothing in them tells of the cluster's addresses.
        oldest_record_age: Seconds since the oldest record was accepted that has no outcome yet; 0 for none. Of
            readiness only, as the rest.
        oldest_send_wait: Seconds for which the oldest `send()` has waited that still waits; 0 for none.
        silent_brokers: The ids of the brokers that stopped answering.
    """

    is_well: bool
    reasons: tuple[str, ...]
    oldest_record_age: float = 0.0
    oldest_send_wait: float = 0.0
    silent_brokers: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """What a service did, in totals since its first start, and what it has under way.

    Attributes:
        undelivered: Records that were given up when the service ended, accepted or taken for the background.
        unknown_outcomes: Sends whose request had no more time when they were accepted and not acknowledged.
        background_pending: Records sent in the background that have no outcome yet.
        background_acknowledged: Those that are in the log.
        background_failed: Those that failed; each was logged, at a bounded rate.
        refused_answers: Answers of 503 that were given for the want of room, of a broker or of time.
    """

    undelivered: int
    unknown_outcomes: int
    background_pending: int
    background_acknowledged: int
    background_failed: int
    refused_answers: int

    def as_dict(self) -> dict[str, int]:
        """All of it as what `json.dumps()` takes."""
        return asdict(self)


@final
class Deadline:
    """Until when a request may take, on its event loop's clock.

    Args:
        seconds: From now.
    """

    __slots__ = ("at", "began_at")

    def __init__(self, seconds: float) -> None:
        self.began_at: float = asyncio.get_running_loop().time()
        self.at: float = self.began_at + seconds

    def remaining(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(self.at - asyncio.get_running_loop().time(), 0.0)
