"""What one producer told of its records: a line of JSON each, kept in some ten bytes each.

Filled by ``senders`` while the run goes on, read by ``audit`` at its end.

1. Records are known by their numbers, from 0: values are ``prefix.number``, as VerifiableProducer makes them.
2. Lines are taken as JSON says, whatever the order of their fields. The usual one has a shorter way, which takes a
   line only if it is all of it: a line that neither way understands raises.
3. A second outcome of one record is counted, and the first one stays.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_SUCCESS = re.compile(
    rb'\{"timestamp":(\d+),"name":"producer_send_success","key":(?:null|"\d+"),"value":"(\d+)\.(\d+)",'
    rb'"offset":(-?\d+),"topic":"[A-Za-z0-9._-]+","partition":(\d+)\}'
)
_NONE = -1
_GROWTH = 65_536


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not acknowledged.

    Attributes:
        kind: The error's class, without its package.
        is_definite: Whether the producer says that the record is not in the log; ``None``: it does not say.
    """

    kind: str
    is_definite: bool | None


class Outcomes:
    """The outcomes of one producer's records.

    Args:
        prefix: What stands before the dot of its values.
    """

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self.partitions = array("b")
        self.offsets = array("q")
        self.failed: dict[int, Failure] = {}
        self.acked = 0
        self.settled_again = 0
        self.acked_in_ms: set[int] = set()
        self.events: Counter[str] = Counter()
        self.sent: int | None = None
        self._rest = b""

    def take(self, chunk: bytes) -> None:
        """More of what the producer printed; it may end within a line."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            found = _SUCCESS.fullmatch(line)
            if found is None:
                self._take_event(json.loads(line))
            else:
                timestamp, prefix, number, offset, partition = map(int, found.groups())
                self._acknowledge(prefix, number, partition, offset, timestamp)

    def place(self, number: int) -> tuple[int, int] | None:
        """The partition and the offset of an acknowledged record."""
        if number >= len(self.partitions) or self.partitions[number] == _NONE:
            return None
        return self.partitions[number], self.offsets[number]

    @property
    def failures(self) -> Counter[str]:
        """How many records failed by which error."""
        return Counter(failure.kind for failure in self.failed.values())

    @property
    def is_complete(self) -> bool:
        """Whether the producer came to its end, and printed whole lines."""
        return self.events["shutdown_complete"] == 1 and self.sent is not None and not self._rest

    def may_have_sent(self, number: int) -> bool:
        """Whether a record of this number is the producer's; of one that told no count any may be."""
        return number >= 0 and (self.sent is None or number < self.sent)

    @property
    def unsettled(self) -> int:
        """Records that were sent and have no outcome; known at the end only."""
        return 0 if self.sent is None else self.sent - self.acked - len(self.failed)

    def _take_event(self, event: dict[str, Any]) -> None:
        name = event["name"]
        self.events[name] += 1
        if name == "tool_data":
            self.sent = event["sent"]
        elif name == "producer_send_success":
            prefix, number = map(int, event["value"].split("."))
            self._acknowledge(prefix, number, event["partition"], event["offset"], event["timestamp"])
        elif name == "producer_send_error":
            self._fail(event)

    def _acknowledge(self, prefix: int, number: int, partition: int, offset: int, timestamp: int) -> None:
        if prefix != self.prefix:
            raise ValueError(f"producer {self.prefix} tells of a record of producer {prefix}")
        while number >= len(self.partitions):
            self.partitions.extend([_NONE] * _GROWTH)
            self.offsets.extend([_NONE] * _GROWTH)
        if self.partitions[number] != _NONE or number in self.failed:
            self.settled_again += 1
            return
        self.partitions[number] = partition
        self.offsets[number] = offset
        self.acked += 1
        self.acked_in_ms.add(timestamp)

    def _fail(self, event: dict[str, Any]) -> None:
        number = int(event["value"].partition(".")[2])
        if self.place(number) is not None or number in self.failed:
            self.settled_again += 1
            return
        # Only ours can say whether the record may be in the log; Java's tool has no such field.
        possibly_written = event.get("possibly_written")
        self.failed[number] = Failure(
            kind=event["exception"].rpartition(".")[2],
            is_definite=None if possibly_written is None else not possibly_written,
        )


def longest_gap(all_outcomes: list[Outcomes]) -> float:
    """The most seconds in which no producer got any acknowledgement, between the first and the last one."""
    instants = sorted(set[int]().union(*(outcomes.acked_in_ms for outcomes in all_outcomes)))
    return max((later - earlier for earlier, later in pairwise(instants)), default=0) / 1000


def acknowledging_seconds(all_outcomes: list[Outcomes]) -> float:
    """From the first acknowledgement to the last."""
    instants = set[int]().union(*(outcomes.acked_in_ms for outcomes in all_outcomes))
    return (max(instants) - min(instants)) / 1000 if instants else 0.0
