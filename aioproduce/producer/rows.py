"""Rows of the bulk calls, read from iterables or from columns, and the defaults of a call.

Called by `producer.bulk`, and by the blocking producer for its own `send_many()`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.record_batch import encode_headers
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import SerializationError
from aioproduce.producer.input import serialize, timestamp_ms
from aioproduce.records import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from aioproduce._native.columns import ByteColumn, HeaderColumn
    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.producer.arrow import Columns
    from aioproduce.records import Header

_MAX_PARTITION: Final = 2**31 - 1


@final
class Defaults:
    """The values that a call sets for all rows without their own."""

    __slots__ = ("encoded_headers", "headers", "on_delivery", "partition", "timeout", "timestamp")

    def __init__(
        self,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Sequence[Header] | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        self.partition: int | None = partition
        self.timestamp: int | None = None if timestamp is None else timestamp_ms(timestamp)
        self.headers: Sequence[Header] | None = headers
        self.encoded_headers: bytes = encode_headers(headers or None)
        self.timeout: float | None = timeout
        self.on_delivery: DeliveryCallback | None = on_delivery

    @property
    def has_plain_partition(self) -> bool:
        """Whether compiled code can use the partition; the path of `send()` refuses others."""
        partition = self.partition
        return partition is None or (partition.__class__ is int and 0 <= partition <= _MAX_PARTITION)


def row_as_record(topic: str, columns: Columns, row: int, defaults: Defaults) -> ProducerRecord:
    """Return one row as the object that interceptors see."""
    value = _bytes_at("value", columns.values, row, topic)
    key = None if columns.keys is None else _bytes_at("key", columns.keys, row, topic)
    headers = defaults.headers
    if columns.headers is not None:
        headers = _told("headers", columns.headers, row) or None
    partition = defaults.partition
    if columns.partitions is not None and (told := columns.partitions.at(row)) is not None:
        partition = told
    timestamp = defaults.timestamp
    if columns.timestamps is not None and (told := columns.timestamps.at(row)) is not None:
        timestamp = timestamp_ms(told)
    return ProducerRecord(
        topic=topic, value=value, key=key, partition=partition, timestamp=timestamp, headers=headers
    )


def serialized_row(
    topic: str, columns: Columns, row: int, defaults: Defaults, now_ms: int
) -> SerializedRecord:
    """Return one row in the core's form; `now_ms` (ms since the epoch) is the default timestamp."""
    record = row_as_record(topic, columns, row, defaults)
    timestamp: Any = now_ms if record.timestamp is None else record.timestamp
    headers: Any = record.headers
    return SerializedRecord(topic, record.key, record.value, headers, record.partition, timestamp)


def _told(field: str, column: ByteColumn | HeaderColumn, row: int) -> Any:
    try:
        return column.at(row)
    except ValueError as error:
        raise SerializationError(f"the {field} column is malformed: {error}", field=field) from error


def _bytes_at(field: str, column: ByteColumn, row: int, topic: str) -> bytes | None:
    value = _told(field, column, row)
    if value is None or value.__class__ is bytes:
        return value
    return serialize(field, value, topic, None)


@final
class Rows:
    """Values and optional keys, read from iterables in steps.

    Raises:
        TypeError: if one of them is not iterable.
    """

    __slots__ = ("_keys", "_values", "is_ready")

    def __init__(self, values: Iterable[Any], keys: Iterable[Any] | None) -> None:
        self.is_ready: bool = isinstance(values, list | tuple) and isinstance(keys, list | tuple | None)
        self._values: Iterator[Any] = iter(values)
        self._keys: Iterator[Any] | None = None if keys is None else iter(keys)

    def take(self, count: int) -> tuple[list[Any], list[Any] | None, BaseException | None]:
        """Return the next `count` values and their keys; at the end or before an error fewer, and that error."""
        failure: BaseException | None = None
        values: list[Any] = []
        try:
            # Items that an iterator returned before it raised stay in the list.
            values.extend(islice(self._values, count))
        except Exception as error:
            failure = error
        if self._keys is None:
            return values, None, failure
        keys: list[Any] = []
        has_ended = failure is None and len(values) < count
        try:
            # At the end of the values, read one key more, to check that the keys end, too.
            keys.extend(islice(self._keys, len(values) + has_ended))
        except Exception as error:
            if len(keys) < len(values) or has_ended:
                failure = error
        else:
            if len(keys) != len(values):
                ended = "keys" if len(keys) < len(values) else "values"
                failure = ValueError(f"give as many keys as values: the {ended} ended first")
        paired = min(len(keys), len(values))
        del values[paired:], keys[paired:]
        return values, keys, failure
