"""What partitioners see of a topic, and what the producer calls."""

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
    """Chooses partitions in the built-in partitioner's place."""

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
