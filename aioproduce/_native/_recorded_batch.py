"""What metrics read of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aioproduce._native.record_batch import RecordBatchBuffer


class RecordedBatch(Protocol):
    """A batch; what has not happened yet is at infinity."""

    @property
    def topic(self) -> str:
        """Where it goes."""

    @property
    def records(self) -> RecordBatchBuffer:
        """Its records."""

    @property
    def record_count(self) -> int:
        """How many."""

    @property
    def size(self) -> int:
        """Bytes as sent."""

    @property
    def created_at(self) -> float:
        """When it was opened."""

    @property
    def closed_at(self) -> float:
        """When it was full, or its linger over."""

    @property
    def first_sent_at(self) -> float:
        """When it was sent first."""

    @property
    def first_failed_at(self) -> float:
        """When its first attempt failed."""
