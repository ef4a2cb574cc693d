"""The view of a topic that partitioners get, and the interface of custom partitioners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TopicView(Protocol):
    """The currently known partitions of a topic."""

    @property
    def partition_count(self) -> int:
        """The number of partitions, with or without leader; at least 1."""

    @property
    def available(self) -> Sequence[int]:
        """The partitions that have a leader; possibly none."""


class Partitioner(Protocol):
    """Chooses partitions instead of a built-in partitioner: `Producer(partitioner_class=ByRegion())`.

    It is called once for each record without a partition, on the event loop, before the record waits for memory. It
    should be quick, and cannot be async. If it raises or its answer is out of range, that `send()` raises
    PartitionerError, and the record is not queued.

    Example:
        >>> class ByRegion:
        ...     def partition(self, topic, key, value, view):
        ...         return 0 if key is not None and key.startswith(b"eu-") else view.partition_count - 1
        ...
        ...     def on_new_batch(self, topic, view, previous):
        ...         pass
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> int:
        """Return the partition for a record that names none.

        Args:
            topic: The topic's name.
            key: The serialized key, or None.
            value: The serialized value, or None.
            view: The topic's partitions.

        Returns:
            A partition from 0 to `view.partition_count - 1`.
        """

    def on_new_batch(self, topic: str, view: TopicView, previous: int) -> None:
        """Handle that a new batch is about to be started in the partition just chosen (KIP-480).

        It is called before the batch is started; then the record's partition is requested again, once. May be
        omitted.

        Args:
            topic: The topic's name.
            view: The topic's partitions.
            previous: The chosen partition, which has no open batch with room.
        """
