"""Every batch whose futures are pending, the oldest first: what expiry, flush and close look at.

Owned by the RecordAccumulator.

Invariants:

1. Batches stand in the order of their creation, each origin with the parts that it was split into.
2. Each call costs O(1), or what it gives: the oldest are in front, and only the front is looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerBatch


@final
class IncompleteBatches:
    """Pending batches."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # OrderedDict and not dict: to find the first of a dict whose front was deleted scans what is gone.
        self._parts: OrderedDict[ProducerBatch, list[ProducerBatch]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, batch: ProducerBatch) -> None:
        """A new batch."""
        self._parts[batch] = [batch]

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split."""
        siblings = self._parts[batch.origin]
        place = siblings.index(batch)
        siblings[place : place + 1] = parts

    def remove(self, batch: ProducerBatch) -> None:
        """A batch is settled."""
        siblings = self._parts[batch.origin]
        siblings.remove(batch)
        if not siblings:
            del self._parts[batch.origin]

    @property
    def oldest(self) -> ProducerBatch | None:
        """The oldest one; of a batch that was split, what it was."""
        return next(iter(self._parts)) if self._parts else None

    def all(self) -> list[ProducerBatch]:
        """All of them."""
        # Copied in one step: at the interpreter's exit another thread may ask while the loop goes on.
        return [part for parts in list(self._parts.values()) for part in parts]

    def expired(self, now: float) -> list[ProducerBatch]:
        """Those whose delivery time-out has passed."""
        expired: list[ProducerBatch] = []
        for origin, parts in self._parts.items():
            if origin.deadline > now:
                break
            expired.extend(parts)
        return expired
