"""What partitioners see of a topic, and what the producer calls of one that is not its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TopicView(Protocol):
    """What is known of a topic's partitions at the moment."""

    @property
    def partition_count(self) -> int:
        """How many partitions it has, with or without leader; at least 1."""

    @property
    def available(self) -> Sequence[int]:
        """The partitions that have a leader; may be empty."""


class Partitioner(Protocol):
    """Chooses partitions in a built-in partitioner's place: `Producer(partitioner_class=ByRegion())`.

    It is asked once for each record that names no partition, on the event loop, before the record waits for memory:
    it should be quick, and cannot be async. What it raises, or an answer out of range, is a PartitionerError of
    that `send()`; nothing is lost by it.

    Example:
        >>> class ByRegion:
        ...     def partition(self, topic, key, value, view):
        ...         return 0 if key is not None and key.startswith(b"eu-") else view.partition_count - 1
        ...
        ...     def on_new_batch(self, topic, view, previous):
        ...         pass
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> int:
        """The partition for a record that names none.

        Args:
            topic: The topic's name.
            key: The key as serialized, or None.
            value: The value as serialized, or None.
            view: The topic's partitions.

        Returns:
            A partition from 0 to `view.partition_count - 1`.
        """

    def on_new_batch(self, topic: str, view: TopicView, previous: int) -> None:
        """A new batch would have to be begun in the partition just chosen (KIP-480).

        Called before that is done; then the record's partition is asked for again, once. May be left out.

        Args:
            topic: The topic's name.
            view: The topic's partitions.
            previous: The partition that was chosen, and has no open batch with room.
        """
