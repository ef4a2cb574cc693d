"""How a spool's writer writes: its two policies, and its sizes and times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import final


class SyncPolicy(Enum):
    """When a record is durable."""

    ALWAYS = "always"
    """Before `send()` returns."""
    INTERVAL = "interval"
    """At the latest an interval after `send()` has returned; the process may be killed, the machine may not lose
    power before."""
    OS = "os"
    """When the operating system writes its cache, as for any other file."""


class FullPolicy(Enum):
    """What happens to a new record if the queue is full."""

    BLOCK = "block"
    """`send()` waits for room, at most `max.block.ms`."""
    REJECT = "reject"
    """`send()` raises at once."""
    DROP_OLDEST = "drop_oldest"
    """The oldest records of the queue make room. They are counted, and marked in the dead letters' database."""


@final
@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of a writer.

    Attributes:
        segment_bytes: A segment's most bytes.
        max_bytes: The most bytes of all logs together, but for one group.
        sync: When records are durable.
        sync_interval: Seconds, for `SyncPolicy.INTERVAL`.
        when_full: What happens to records that find no room.
        max_age: Seconds after which records are dropped that wait; infinite by default.
    """

    segment_bytes: int = 16 * 1024 * 1024
    max_bytes: int = 10 * 1024 * 1024 * 1024
    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval: float = 0.2
    when_full: FullPolicy = FullPolicy.BLOCK
    max_age: float = inf
