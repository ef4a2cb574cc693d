"""Checks the arguments of `produce()` as confluent-kafka's `Producer` does, before anything is queued.

Used by `confluent.AIOProducer` for values that the producer does not accept directly.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce.records import Header


def payload(field: str, value: object) -> bytes:
    """Return the bytes of a key or a value; a str is encoded as UTF-8. Raise TypeError if it is neither."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"Message {field} must be bytes or str, not {type(value).__name__}: serialize it first")


def check_types(topic: object, partition: object, timestamp: object) -> None:
    """Refuse arguments of the wrong type; the TypeError names the first."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"{name} must be int, not {type(number).__name__}")


def check_callback(callback: object) -> None:
    """Refuse an object that is not callable, or a coroutine function, which would never be awaited."""
    if not callable(callback):
        raise TypeError(f"on_delivery must be callable, not {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(
            "on_delivery is called, not awaited: await the future of produce(), or start a task in it"
        )


def header_pairs(headers: Any) -> list[Header] | None:
    """Return headers as `(name, bytes or None)` pairs.

    Args:
        headers: A list (or tuple) of pairs, or a dict; values str, bytes or None.

    Raises:
        TypeError: If they have another shape.
    """
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    elif not isinstance(headers, list | tuple):
        raise TypeError(
            f"Headers are expected to be a list of (key, value) or a dict, not {type(headers).__name__}"
        )
    pairs: list[Header] = []
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise TypeError("Headers are expected to be a tuple of (key, value)")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"A header's key must be str, not {type(name).__name__}")
        if value is not None:
            value = payload(f"header {name!r:.60}", value)
        pairs.append((name, value))
    return pairs or None
