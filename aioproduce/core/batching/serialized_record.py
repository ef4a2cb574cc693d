"""A record as the core accepts it: checked, serialized, with a timestamp.

The compiled path of `send()` creates no such object: it keeps the same six values in C variables.
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
        partition: The partition; `None` if the key or the partitioner chooses it.
        timestamp: Milliseconds since the epoch.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    partition: int | None
    timestamp: int
