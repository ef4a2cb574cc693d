"""The values of a service: its state, health, counts, and the deadline of a request.

Created by `ProducerService`, read by the framework modules and by applications.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce.spool import SpoolHealth


class ServiceState(Enum):
    """The state of a service."""

    NEW = auto()
    RUNNING = auto()
    DRAINING = auto()
    STOPPED = auto()


@final
@dataclass(frozen=True, slots=True)
class Health:
    """Whether the service is well, and if not, why.

    Attributes:
        is_well: Whether it is well.
        reasons: The reasons why not; empty if it is well. They do not contain the cluster's addresses.
        oldest_record_age: Seconds since the oldest record without an outcome was accepted; 0 for none. Only
            readiness has this field and the following ones.
        oldest_send_wait: Seconds that the oldest waiting `send()` has waited; 0 for none.
        silent_brokers: The ids of the brokers that stopped answering.
        spool: The health of the queue on disk, if the service has one.
    """

    is_well: bool
    reasons: tuple[str, ...]
    oldest_record_age: float = 0.0
    oldest_send_wait: float = 0.0
    silent_brokers: tuple[int, ...] = ()
    spool: SpoolHealth | None = None


@final
@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """The totals of a service since its first start, and its pending records.

    Attributes:
        undelivered: Records that were dropped when the service ended, including background ones.
        unknown_outcomes: Sends that were accepted but not acknowledged within the time of their request.
        background_pending: Records sent in the background that have no outcome yet.
        background_acknowledged: Records sent in the background that are in the log.
        background_failed: Records sent in the background that failed; each was logged, at a bounded rate.
        refused_answers: Answers with status 503 for lack of room, of a broker or of time.
    """

    undelivered: int
    unknown_outcomes: int
    background_pending: int
    background_acknowledged: int
    background_failed: int
    refused_answers: int

    def as_dict(self) -> dict[str, int]:
        """Return all counts for `json.dumps()`."""
        return asdict(self)


@final
class Deadline:
    """The deadline of a request, on its event loop's clock.

    Args:
        seconds: Seconds from now.
    """

    __slots__ = ("at", "began_at")

    def __init__(self, seconds: float) -> None:
        self.began_at: float = asyncio.get_running_loop().time()
        self.at: float = self.began_at + seconds

    def remaining(self) -> float:
        """Return the remaining seconds, 0 or more."""
        return max(self.at - asyncio.get_running_loop().time(), 0.0)
