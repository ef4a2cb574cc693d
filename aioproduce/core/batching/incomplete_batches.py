"""Every batch whose futures are pending, the oldest first: for expiry, flush and close.

Owned by the RecordAccumulator.

Invariants:

1. Batches are in the order of their creation; each origin keeps the parts that it was split into.
2. Each call costs O(1), or O(batches that it returns): the oldest are in front, and a call looks at the front only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerBatch


class IncompleteBatches:
    """Pending batches."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # Not a dict: finding the first entry of a dict scans all entries that were deleted before it.
        # A batch that is not split has no list: thousands of lists would cost each pass of the garbage collector.
        self._parts: OrderedDict[ProducerBatch, list[ProducerBatch] | None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, batch: ProducerBatch) -> None:
        """Add a new batch."""
        self._parts[batch] = None

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch by the parts that it was split into."""
        siblings = self._parts[batch.origin]
        if siblings is None:
            self._parts[batch] = parts
        else:
            place = siblings.index(batch)
            siblings[place : place + 1] = parts

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a settled batch."""
        siblings = self._parts[batch.origin]
        if siblings is not None:
            siblings.remove(batch)
        if not siblings:
            del self._parts[batch.origin]

    @property
    def oldest(self) -> ProducerBatch | None:
        """The oldest batch; if it was split, the original."""
        return next(iter(self._parts)) if self._parts else None

    def all(self) -> list[ProducerBatch]:
        """Return all pending batches."""
        # Copied in one step: at the interpreter's exit another thread may call this while the loop still runs.
        return [part for origin, parts in list(self._parts.items()) for part in parts or (origin,)]

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches whose delivery time-out has passed."""
        expired: list[ProducerBatch] = []
        for origin, parts in self._parts.items():
            if origin.deadline > now:
                break
            expired.extend(parts or (origin,))
        return expired
