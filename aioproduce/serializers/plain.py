"""Serializers that need nobody: text, and JSON without a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from aioproduce.serializers.protocol import SerializationContext

Dumps = Callable[[Any], "str | bytes"]

# Compact, as nobody reads it with the eye; no NaN or Infinity, which is no JSON and which other readers refuse.
COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@final
class StringSerializer:
    """Text as bytes.

    Args:
        encoding: Python's name of the encoding.

    Raises:
        LookupError: there is no such encoding.

    Example:
        >>> SerializingProducer("localhost:9092", key_serializer=StringSerializer())
    """

    __slots__ = ("_encoding",)

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self._encoding = encoding

    def serialize(self, value: str, _context: SerializationContext, /) -> bytes:
        """The text's bytes; anything but a str is refused, as its `str()` is hardly ever meant."""
        if not isinstance(value, str):
            raise TypeError(f"StringSerializer takes str, not {type(value).__name__}")
        return value.encode(self._encoding)


@final
class JsonSerializer:
    """Values as JSON, without a schema.

    Args:
        dumps: Another encoder: `orjson.dumps`, or `functools.partial(json.dumps, default=str)`. Its text is
            sent as UTF-8, its bytes as they are. By default the standard library's, compact, that refuses NaN
            and Infinity and leaves non-ASCII characters readable.

    Example:
        >>> SerializingProducer("localhost:9092", value_serializer=JsonSerializer())
    """

    __slots__ = ("_dumps",)

    def __init__(self, dumps: Dumps | None = None) -> None:
        self._dumps = dumps or COMPACT

    def serialize(self, value: object, _context: SerializationContext, /) -> bytes:
        """The value's JSON."""
        return json_bytes(self._dumps, value)


def json_bytes(dumps: Dumps, value: object) -> bytes:
    """What an encoder gives, as bytes."""
    encoded = dumps(value)
    return encoded.encode() if isinstance(encoded, str) else encoded
