"""`send()` with aiokafka's signature: all arguments may be positional, and the timestamp is `timestamp_ms`.

`PositionalCalls` is the base of the drop-in (`aioproduce.compat.aiokafka`), which users may subclass and
patch, so the calls are methods of its class. They make the calls of a `SendPath` that is not the drop-in
itself. So no running call refers to the drop-in, and a forgotten drop-in is collected, which makes it warn.

Invariant: a call costs the same as `Producer.send()`, without a Python frame in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce._native.send_path import SendPath, mark_as_async

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.send_path import make_call

if TYPE_CHECKING:
    from collections.abc import Coroutine


class PositionalCalls:
    """The base of a drop-in: the calls that send records.

    Args:
        path: Accepts the records.
    """

    @cython.annotation_typing(False)
    def __init__(self, path: SendPath) -> None:
        self._path = path

    @cython.annotation_typing(False)
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Accept one record. Wait until its topic is known and the buffer has room for it.

        Args:
            topic: The topic.
            value: Bytes, or an object that the value serializer accepts; None is a tombstone, and needs a key.
            key: Bytes, None, or an object that the key serializer accepts. Records with the same key go to the
                same partition, in order.
            partition: The partition; `None` lets the partitioner choose.
            timestamp_ms: Milliseconds since the epoch; `None` means now.
            headers: `(name, value)` pairs.

        Returns:
            A coroutine. Awaiting it returns a future of the record's metadata.
        """
        return _call(self._path, topic, value, key, partition, timestamp_ms, headers, False)

    @cython.annotation_typing(False)
    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send one record as `send()` does, and wait for its acknowledgement.

        Returns:
            A coroutine. Awaiting it returns the record's metadata.
        """
        return _call(self._path, topic, value, key, partition, timestamp_ms, headers, True)


def _call(
    path: SendPath,
    topic: Any,
    value: Any,
    key: Any,
    partition: Any,
    timestamp: Any,
    headers: Any,
    is_awaiting: cython.bint,
) -> Coroutine[Any, Any, Any]:
    if value is None and key is None:
        # aiokafka refuses such a record when it is awaited; the short path would accept it.
        return path._send_slowly(topic, None, None, partition, timestamp, headers, None, None)
    return make_call(path, topic, value, key, partition, timestamp, headers, None, None, is_awaiting)


mark_as_async(PositionalCalls.send, PositionalCalls.send_and_wait)
