"""The outcomes of a drop-in's deliveries: another library's named tuples and exceptions.

The drop-in makes it (`aioproduce.compat.aiokafka_errors`). `DeliveryFuture` calls it when an outcome is read.

Invariants:

1. Nothing is made for a record whose outcome nobody reads.
2. A tuple costs the same as our own RecordMetadata: no Python frame, and nothing for the garbage collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._metadata import placed_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS: Final = (
    "topic",
    "partition",
    "topic_partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "log_start_offset",
)


class TupleOutcomes:
    """Makes outcomes of given classes.

    Args:
        metadata_type: A named tuple of topic, partition, the two as a tuple, offset, timestamp, its type, and
            where the log begins: aiokafka's and kafka-python's RecordMetadata.
        place_type: A named tuple of topic and partition.
        translate: Makes the other library's exception of ours.
        is_acknowledged: False with acks=0, where a record's outcome is None.

    Raises:
        TypeError: if `metadata_type` has other fields.
    """

    def __init__(
        self,
        metadata_type: type,
        place_type: type,
        translate: Callable[[BaseException], BaseException],
        *,
        is_acknowledged: bool,
    ) -> None:
        if not issubclass(metadata_type, tuple) or getattr(metadata_type, "_fields", ()) != _FIELDS:
            raise TypeError(f"{metadata_type.__name__} is no named tuple of {', '.join(_FIELDS)}")
        self._metadata_type: Any = metadata_type
        self._place_type: Any = place_type
        self.error = translate
        self._is_acknowledged = is_acknowledged
        self._topic = ""
        self._partition = -1
        self._place: Any = None

    def metadata(
        self,
        topic: str,
        partition: cython.int,
        offset: cython.longlong,
        timestamp: cython.longlong,
        log_append_time: cython.longlong,
        log_start_offset: cython.longlong,
    ) -> object:
        """Return the metadata of an acknowledged record; an offset of -1 is not known.

        `log_append_time` is -1 if the timestamp is the record's own.
        """
        if not self._is_acknowledged:
            return None
        if partition != self._partition or topic is not self._topic:
            self._place = self._place_type(topic, partition)
            self._topic = topic
            self._partition = partition
        return placed_metadata(
            self._metadata_type,
            topic,
            partition,
            self._place,
            offset,
            timestamp,
            1
            if log_append_time >= 0
            else 0,  # the type: 1 for the broker's append time, 0 for the record's time
            log_start_offset,
        )
