"""Serializers without a registry: text, and JSON without a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from aioproduce.serializers.protocol import SerializationContext

Dumps = Callable[[Any], "str | bytes"]

# Compact, and without NaN and Infinity, which are not valid JSON and which other readers refuse.
COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@final
class StringSerializer:
    """Encodes text as bytes.

    Args:
        encoding: Python's name of the encoding.

    Raises:
        LookupError: If there is no such encoding.

    Example:
        >>> SerializingProducer("localhost:9092", key_serializer=StringSerializer())
    """

    __slots__ = ("_encoding",)

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self._encoding = encoding

    def serialize(self, value: str, _context: SerializationContext, /) -> bytes:
        """Return the text's bytes; raise for anything but a str, because its `str()` is rarely intended."""
        if not isinstance(value, str):
            raise TypeError(f"StringSerializer takes str, not {type(value).__name__}")
        return value.encode(self._encoding)


@final
class JsonSerializer:
    """Encodes values as JSON, without a schema.

    Args:
        dumps: Another encoder: `orjson.dumps`, or `functools.partial(json.dumps, default=str)`. Text is sent as
            UTF-8, bytes are sent unchanged. The default is the standard library's encoder. It writes compact
            JSON, refuses NaN and Infinity, and leaves non-ASCII characters readable.

    Example:
        >>> SerializingProducer("localhost:9092", value_serializer=JsonSerializer())
    """

    __slots__ = ("_dumps",)

    def __init__(self, dumps: Dumps | None = None) -> None:
        self._dumps = dumps or COMPACT

    def serialize(self, value: object, _context: SerializationContext, /) -> bytes:
        """Return the value's JSON."""
        return json_bytes(self._dumps, value)


def json_bytes(dumps: Dumps, value: object) -> bytes:
    """Return the encoder's result as bytes."""
    encoded = dumps(value)
    return encoded.encode() if isinstance(encoded, str) else encoded
