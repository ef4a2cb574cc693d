"""Calls a user's own partitioner and checks its answers.

Called by `Admission`, once for each record without a partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from aioproduce.errors import PartitionerError
from aioproduce.partitioners.protocol import Partitioner

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.partitioners.protocol import TopicView


@final
class ForeignPartitioner:
    """Asks a partitioner, and turns its exceptions and invalid answers into errors.

    Args:
        partitioner: An object like `Partitioner`; `on_new_batch()` may be missing.

    Attributes:
        hears_of_new_batches: Whether it has an `on_new_batch()` that is not the protocol's empty one.
    """

    __slots__ = ("_partitioner", "hears_of_new_batches")

    def __init__(self, partitioner: Any) -> None:
        self._partitioner = partitioner
        self.hears_of_new_batches: bool = callable(getattr(partitioner, "on_new_batch", None)) and (
            getattr(type(partitioner), "on_new_batch", None) is not Partitioner.on_new_batch
        )

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> int:
        """Return the partition for a record.

        Raises:
            PartitionerError: If it raised, or if its answer is not a partition of the topic.
        """
        try:
            answer = self._partitioner.partition(topic, key, value, view)
        except Exception as error:
            raise self._raised("partition", topic, error) from error
        if type(answer) is not int or not 0 <= answer < view.partition_count:
            raise PartitionerError(
                f"{self._name}.partition() answered {_shown(answer)} for topic {topic!r}, which has the "
                f"partitions 0 to {view.partition_count - 1}: it must return one of them as an int",
                topic=topic,
                answer=answer,
            )
        return answer

    def on_new_batch(self, topic: str, view: TopicView, previous: int) -> None:
        """Report that a new batch would be started.

        Raises:
            PartitionerError: If it raised.
        """
        try:
            self._partitioner.on_new_batch(topic, view, previous)
        except Exception as error:
            raise self._raised("on_new_batch", topic, error) from error

    @property
    def _name(self) -> str:
        return type(self._partitioner).__name__

    def _raised(self, method: str, topic: str, error: Exception) -> PartitionerError:
        return PartitionerError(
            f"{self._name}.{method}() raised {type(error).__name__}: {_text(error, str)} for a record of "
            f"topic {topic!r}; the record was not queued",
            topic=topic,
            answer=None,
        )


def _shown(answer: object) -> str:
    return f"{_text(answer, repr)[:80]} ({type(answer).__name__})"


def _text(thing: object, words: Callable[[object], str]) -> str:
    """Describe an object, if possible: Python prints no huge numbers, and a foreign object may raise."""
    try:
        return words(thing)
    except Exception as error:
        return f"<not printable: {type(error).__name__}>"
