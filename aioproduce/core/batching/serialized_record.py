"""A record as the core takes it: checked, in bytes, with a timestamp. One value from the input to its batch.

The compiled way of `send()` has no such object: there the same six are C variables, from the call to the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aioproduce.records import Header


class SerializedRecord(NamedTuple):
    """One record on its way into a batch.

    Attributes:
        topic: The topic's name.
        key: The key, or `None`.
        value: The value; `None` is a tombstone.
        headers: Pairs of name and value, or `None`.
        partition: The partition, or `None` for the key or the partitioner to choose.
        timestamp: Milliseconds since the epoch.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    partition: int | None
    timestamp: int
