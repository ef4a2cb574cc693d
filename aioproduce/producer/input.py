"""Checks of the input of `send()`, and its conversion to the one form that the core accepts.

Called by the Producer, once per record, unless the input has that form already. A refused record was never queued.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import (
    InvalidHeadersError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    SerializationError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.records import Header, Headers, ProducerRecord

# org.apache.kafka.common.internals.Topic: the legal characters and the longest name.
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_TIMESTAMP: Final = 2**63 - 1


def check_topic(topic: object) -> None:
    """Refuse a topic name that Kafka would refuse.

    Raises:
        InvalidTopicError: if the name is invalid; the message has the rule.
    """
    if not isinstance(topic, str):
        raise InvalidTopicError(f"a topic must be a str, not {type(topic).__name__}", topic=topic)
    if topic in (".", "..") or _TOPIC_NAME.fullmatch(topic) is None:
        raise InvalidTopicError(
            f"{topic!r:.300} is not a valid topic name: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and "
            "'-', and neither '.' nor '..'",
            topic=topic,
        )


def check_partition(partition: object) -> None:
    """Refuse a value that is not a partition number of any topic."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidRecordError(f"partition must be an int or None, not {type(partition).__name__}")
    if partition < 0:
        raise InvalidRecordError(
            f"partition must be 0 or more, not {_shown(partition)}; None lets the producer choose"
        )


def _shown(number: int) -> str:
    # Python refuses to print a number with thousands of digits.
    return str(number) if number.bit_length() < 128 else f"a number of {number.bit_length()} bits"


def serialize(
    field: str, value: Any, topic: str, serializer: Callable[[Any], bytes | None] | None
) -> bytes | None:
    """Return the bytes of a key or value.

    Args:
        field: `"key"` or `"value"`.
        value: The argument of `send()`; not None.
        topic: The topic, for error messages.
        serializer: The configured serializer, or `None`.

    Raises:
        SerializationError: if the type needs a serializer and there is none, or if the serializer raised or did not
            return bytes.
    """
    if serializer is None:
        if value.__class__ is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return _exact_bytes(value)
        raise SerializationError(
            f"the {field} for topic {topic!r} is {type(value).__name__}, and the producer has no {field} "
            f"serializer: send bytes, or configure {field}_serializer"
            + (" (e.g. str.encode)" if isinstance(value, str) else ""),
            field=field,
            topic=topic,
        )
    try:
        serialized = serializer(value)
    except Exception as error:
        raise SerializationError(
            f"the {field} serializer failed for topic {topic!r} on a {type(value).__name__}: "
            f"{type(error).__name__}: {error}",
            field=field,
            topic=topic,
        ) from error
    given: object = serialized  # a serializer may return another type than its annotation says
    if given is None:
        return None
    if isinstance(given, bytes | bytearray | memoryview):
        return _exact_bytes(given)
    if isinstance(given, Coroutine):
        given.close()  # else Python also warns that nobody awaited it
    raise SerializationError(
        f"the {field} serializer returned {type(given).__name__} for topic {topic!r}; it must return bytes or None"
        + (
            ": is it an async function? SerializingProducer awaits those"
            if isinstance(given, Awaitable)
            else ""
        ),
        field=field,
        topic=topic,
    )


def _exact_bytes(value: bytes | bytearray | memoryview) -> bytes:
    # The compiled hot path accepts no subclass of bytes. Copy the buffer, since a subclass may define `__bytes__`.
    return value if type(value) is bytes else bytes(memoryview(value))


def timestamp_ms(timestamp: object) -> int:
    """Return a timestamp in milliseconds since the epoch.

    Raises:
        InvalidTimestampError: if it is neither an int from 0 to 2^63 - 1 nor an aware datetime.
    """
    if isinstance(timestamp, datetime):
        if timestamp.utcoffset() is None:
            raise InvalidTimestampError(
                f"{timestamp!r} has no time zone: use an aware datetime, e.g. datetime.now(timezone.utc)"
            )
        milliseconds = (timestamp - _EPOCH) // _MILLISECOND
    elif isinstance(timestamp, int) and not isinstance(timestamp, bool):
        milliseconds = timestamp
    else:
        raise InvalidTimestampError(
            f"timestamp must be an int (milliseconds since the epoch) or an aware datetime, not "
            f"{type(timestamp).__name__}"
            + (" (time.time() returns seconds)" if isinstance(timestamp, float) else "")
        )
    if not 0 <= milliseconds <= _MAX_TIMESTAMP:
        raise InvalidTimestampError(
            f"timestamp must be from 0 to 2^63 - 1 ms since the epoch, not {_shown(milliseconds)}"
        )
    return milliseconds


@final
class RecordInput:
    """Reads the input of users with the serializers of one producer.

    Args:
        config: The settings; None for no serializers.

    Attributes:
        has_serializers: Whether there is a key or a value serializer.
    """

    __slots__ = ("_key_serializer", "_value_serializer", "has_serializers")

    def __init__(self, config: ProducerConfig | None = None) -> None:
        self._key_serializer = None if config is None else config.key_serializer
        self._value_serializer = None if config is None else config.value_serializer
        self.has_serializers: bool = self._key_serializer is not None or self._value_serializer is not None

    def key(self, topic: str, key: Any) -> bytes | None:
        """Return the bytes of a key that is not None."""
        return serialize("key", key, topic, self._key_serializer)

    def value(self, topic: str, value: Any) -> bytes | None:
        """Return the bytes of a value that is not None."""
        return serialize("value", value, topic, self._value_serializer)

    def read(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        now_ms: int,
    ) -> SerializedRecord:
        """Return the record in the core's form; `now_ms` (ms since the epoch) is the default timestamp."""
        if topic.__class__ is not str:
            check_topic(topic)
        return SerializedRecord(
            topic,
            None if key is None else serialize("key", key, topic, self._key_serializer),
            None if value is None else serialize("value", value, topic, self._value_serializer),
            None if headers is None else header_list(headers),
            partition,
            now_ms if timestamp is None else timestamp_ms(timestamp),
        )

    def read_record(self, record: ProducerRecord, now_ms: int) -> SerializedRecord:
        """Return a `ProducerRecord` in the core's form, as `read()` does."""
        return self.read(
            record.topic,
            record.value,
            record.key,
            record.partition,
            record.timestamp,
            record.headers,
            now_ms,
        )


def header_list(headers: object) -> Sequence[Header] | None:
    """Return headers as a sequence; the encoder checks its items."""
    if isinstance(headers, list | tuple):
        return headers or None
    if isinstance(headers, str | bytes | bytearray | memoryview | Mapping):
        hint = ": use headers.items()" if isinstance(headers, Mapping) else ""
        raise InvalidHeadersError(
            f"headers must be (name, value) pairs, not a {type(headers).__name__}{hint}"
        )
    if not isinstance(headers, Iterable):
        raise InvalidHeadersError(
            f"headers must be an iterable of (name, value) pairs, not {type(headers).__name__}"
        )
    return list(headers) or None
