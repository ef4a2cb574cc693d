"""The path of a record from `await producer.send()` into an open batch: every record pays for it.

`SendPath` is the base of the Producer. Its `send()` makes a `SendCall`, the coroutine that the user awaits. The
call tries the short path first, which is C from end to end. If something must be decided, converted, awaited or
refused, it runs the long path instead, the Producer's own coroutine in Python.

Invariants:

1. The short path is open between `_open_path()` and `_shut_path()`, and only in the thread, the process and the
   running event loop of `_open_path()`. So no record is accepted that nobody would send.
2. Nothing happens before a call is awaited, as with any coroutine. A call that is never awaited warns.
3. The short path changes nothing if it does not accept the record.
4. After `_TURN` seconds of uninterrupted sending the loop gets a turn. The clock is read once in
   `_SENDS_PER_CLOCK` calls. If a turn is due, the call takes the long path, which yields.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce._native.watcher import Watcher
from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.watcher import begin_wait, thrown

    monotonic = time.monotonic
    wall_time = time.time
    PyThread_get_thread_ident = threading.get_ident

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from aioproduce._native.delivery import DeliveryCallback, DeliveryFuture
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.records import Headers, ProducerRecord, RecordMetadata

# The clock is read once in so many sends (a power of 2). The loop gets a turn after so many seconds.
_SENDS_PER_CLOCK: Final = 16
_TURN: Final = 0.001
# Kafka's int32. Larger numbers do not fit C's integer; the long path refuses them with a typed error.
_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIMESTAMP: Final = 2**63 - 1

_NEW: Final = 0
_RUNNING: Final = 1
_DONE: Final = 2

# The number of forks above this process: a path that the parent opened is not open in a child.
_forks: cython.longlong = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _no_batch(*_: object) -> None:
    """Append nothing: the path is shut."""


class SendPath:
    """The base of the Producer: accepts the records that need no decision."""

    def __init__(self) -> None:
        self._appenders: dict[str, TopicAppender] = {}
        self._is_running: Callable[[], bool] = bool
        self._thread = 0
        self._forks = 0
        self._is_plain = False
        self._sends = 0
        self._began_at = 0.0
        self._wall_ms: Callable[[], int] | None = None
        self._append: Callable[..., DeliveryFuture | None] = _no_batch

    def _open_path(
        self,
        appenders: dict[str, TopicAppender],
        is_running: Callable[[], bool],
        on_turn: Callable[[Callable[[], None]], None],
        append: Callable[..., DeliveryFuture | None],
        *,
        is_plain: bool,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        """Accept records from now on, in this thread.

        Args:
            appenders: The open batches by topic; the accumulator's own dictionary.
            is_running: Returns whether the event loop of this thread runs.
            on_turn: Schedules a callback for when the running callback of the loop has ended.
            append: Appends a record that no open batch has room for, or returns `None`
                (`Admission.append_plain()`).
            is_plain: Whether keys and values are bytes already, and no interceptor sees the records.
            wall_ms: The wall clock if time is simulated. No turn of the loop is due then, because that would
                depend on the speed of the machine.
        """
        self._wall_ms = wall_ms
        self._appenders = appenders
        self._is_running = is_running
        self._on_turn = on_turn
        self._append = append
        self._is_plain = is_plain
        self._forks = _forks
        self._thread = PyThread_get_thread_ident()
        mark_as_async(SendPath.send, SendPath.send_and_wait)

    def _shut_path(self) -> None:
        """Accept no record on the short path from now on."""
        self._thread = 0

    # -- what users call ---
    # The annotations are for type checkers. The long path refuses wrong arguments, with typed errors.

    @cython.annotation_typing(False)
    def send(
        self,
        topic: str | ProducerRecord,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Coroutine[Any, Any, DeliveryFuture]:
        """Accept one record. Wait until its topic is known and the buffer has room for it.

        Args:
            topic: The topic, or a whole ProducerRecord.
            value: Bytes, `None` (a tombstone), or an object that the value serializer accepts. A call without a
                value sends a tombstone if it has a key, and is refused otherwise.
            key: Bytes, `None`, or an object that the key serializer accepts. Records with the same key go to the
                same partition, in order.
            partition: The partition; `None` lets the partitioner choose.
            timestamp: Milliseconds since the epoch or an aware datetime; `None` means now.
            headers: `(name, value)` pairs.
            timeout: The most seconds to wait, if less than `max.block.ms`. It bounds this call only.
                `delivery.timeout.ms` bounds the delivery of the record.
            on_delivery: Called once on the event loop, with `(metadata, None)` on success and with
                `(metadata with offset -1, error)` on failure. An error that it raises is logged.

        Returns:
            A coroutine. Awaiting it returns the record's future. Awaiting the future returns the RecordMetadata
            or raises a DeliveryError.

        Raises:
            InvalidRecordError: if this record can never be sent.
            MaxBlockTimeoutError: if the wait for the topic or the buffer was too long.
            TopicAuthorizationError: if the cluster denies the topic.
            ProducerStateError: if the producer is not started or closed, or belongs to another loop or process.

        Example:
            >>> delivery = await producer.send("orders", b"42", key=b"customer-7")
        """
        return make_call(self, topic, value, key, partition, timestamp, headers, timeout, on_delivery, False)

    @cython.annotation_typing(False)
    def send_and_wait(
        self,
        topic: str | ProducerRecord,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Coroutine[Any, Any, RecordMetadata]:
        """Send one record as `send()` does, and wait for its acknowledgement.

        `timeout` bounds the wait for metadata and buffer space, as in `send()`. It does not bound the wait for the
        acknowledgement.

        Returns:
            A coroutine. Awaiting it returns the record's metadata: its partition and offset.

        Raises:
            DeliveryError: if the record was not acknowledged.
            ProducerError: if `send()` raises it.

        Example:
            >>> metadata = await producer.send_and_wait("orders", b"42")
        """
        return make_call(self, topic, value, key, partition, timestamp, headers, timeout, on_delivery, True)

    # -- for the Producer ---

    def _send_slowly(self, *record: Any, **_named: Any) -> Coroutine[Any, Any, DeliveryFuture]:
        """Send on the long path, with all arguments of `send()`; the Producer implements it."""
        raise NotImplementedError

    def _turn_is_due(self) -> cython.bint:
        """Return whether a turn of the loop is due, after `_TURN` seconds of sending (invariant 4)."""
        if self._sends == 0:
            self._sends = 1
            self._begin_turn()
            return False
        return self._wall_ms is None and bool(monotonic() - self._began_at >= _TURN)

    def _begin_turn(self) -> None:
        self._began_at = monotonic()
        self._on_turn(self._turn_came)

    def _put_turn_off(self) -> None:
        """Read the clock again only after some more sends: different tasks send, so none blocks the loop."""
        self._sends += 1

    def _turn_came(self) -> None:
        self._sends = 0

    # -- the short path ---

    def _accept(self, call: SendCall) -> DeliveryFuture | None:  # noqa: C901  # one function, with every test
        """Append the record of a call; return None, and change nothing, if it needs the long path."""
        partition: cython.longlong = NO_PARTITION
        timestamp: cython.longlong
        appender: TopicAppender | None
        delivery: DeliveryFuture | None
        topic: str
        value: bytes | None
        key: bytes | None
        # The order of these lines, and the calls that they avoid, set the cost of a record: measure each change.
        if self._thread != PyThread_get_thread_ident() or self._forks != _forks or not self._is_running():
            return None
        if self._sends and self._sends % _SENDS_PER_CLOCK == 0 and self._turn_is_due():
            return None
        if not self._is_plain or type(call._topic) is not str:
            return None
        if call._value is not None and type(call._value) is not bytes:
            if call._value is not NOT_GIVEN or call._key is None:
                return None
            call._value = None  # a tombstone: it has a key
        if call._key is not None and type(call._key) is not bytes:
            return None
        if call._headers is not None and type(call._headers) is not list and type(call._headers) is not tuple:
            return None
        if call._partition is not None:
            if type(call._partition) is not int or not 0 <= call._partition <= _MAX_PARTITION:
                return None
            partition = call._partition
        if call._timestamp is None:
            timestamp = int(wall_time() * 1000.0) if self._wall_ms is None else self._wall_ms()
        elif type(call._timestamp) is int and 0 <= call._timestamp <= _MAX_TIMESTAMP:
            timestamp = call._timestamp
        else:
            return None
        topic = call._topic
        value = call._value
        key = call._key
        appender = self._appenders.get(topic)
        if appender is None:
            return None
        delivery = appender.append(partition, timestamp, key, value, call._headers)
        if delivery is None:
            delivery = self._append(topic, key, value, call._headers, call._partition, timestamp)
            if delivery is None:
                return None
        if self._sends == 0:
            # Not before the append: it has a step of the core scheduled, which then tells of the turn.
            self._begin_turn()
        self._sends += 1
        if call._on_delivery is not None:
            delivery._add_delivery_callback(call._on_delivery)
        return delivery


@cython.freelist(64)
@cython.cclass
class SendCall:
    """One call of `send()` or `send_and_wait()`: a coroutine (`collections.abc.Coroutine`), awaited once."""

    _path: SendPath
    _topic: Any
    _value: Any
    _key: Any
    _partition: Any
    _timestamp: Any
    _headers: Any
    _timeout: Any
    _on_delivery: Any
    _inner: Any
    _given: Any
    _state: cython.uchar
    _is_awaiting: cython.uchar

    def __init__(self) -> None:
        self._state = _DONE  # no warning for this one
        raise TypeError("calls are made by send() and send_and_wait()")

    def __reduce__(self) -> NoReturn:
        # As any coroutine, it can be neither copied nor pickled.
        raise TypeError(f"cannot copy or pickle {self!r}")

    def __getattr__(self, name: str) -> str:
        # asyncio shows these names in a task's repr; a property cannot have them.
        if name == "__name__" or name == "__qualname__":
            return "Producer.send_and_wait" if self._is_awaiting else "Producer.send"
        raise AttributeError(f"a call of send() has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<coroutine object {self.__getattr__('__qualname__')}>"

    def __await__(self) -> SendCall:
        if self._state == _RUNNING:
            # A second await would take a step that belongs to the first.
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self) -> SendCall:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: object) -> Any:
        """Run to the next suspension or the end, as a coroutine's `send()` does."""
        if self._step(value):
            return self._take()
        raise StopIteration(self._take())

    def throw(self, kind: Any, error: Any = None, traceback: Any = None) -> Any:
        """Raise an exception at the point where it waits, as a coroutine's `throw()` does."""
        inner = self._inner
        if self._state == _RUNNING and inner is not None:
            try:
                # The form with one argument: newer versions of Python deprecate the others.
                return inner.throw(thrown(kind, error, traceback))
            except BaseException:
                self._end()
                raise
        if self._state == _DONE:
            raise _reused(self)
        self._end()
        try:
            raise thrown(kind, error, traceback)
        finally:
            kind = error = None  # the traceback holds this frame

    def close(self) -> None:
        """End the call and its wait, as a coroutine's `close()` does."""
        inner = self._inner
        self._end()
        if inner is not None:
            inner.close()

    def _step(self, sent: object) -> cython.bint:
        """Run on, and return whether it suspended again. `_given` is the value to yield or to return."""
        delivery: DeliveryFuture | None
        if self._state == _NEW:
            if sent is not None:
                raise TypeError("can't send non-None value to a just-started coroutine")
            self._state = _RUNNING
            try:
                delivery = self._path._accept(self)
            except BaseException:
                self._end()
                raise
            if delivery is None:
                self._inner = self._slowly()
            elif self._is_awaiting:
                self._inner = begin_wait(delivery, delivery._result._wait, False)
            else:
                self._given = delivery
                # The part of `_end()` that is needed here: every record runs this.
                self._state = _DONE
                self._value = None
                return False
        elif self._state == _DONE:
            raise _reused(self)
        try:
            if cython.compiled and type(self._inner) is Watcher:
                return self._wait()
            self._given = self._inner.send(sent)
        except StopIteration as stop:
            self._given = stop.value
            self._end()
            return False
        except BaseException:
            self._end()
            raise
        return True

    def _wait(self) -> cython.bint:
        """Continue the wait for the acknowledgement, without the StopIteration of `Watcher.send()`."""
        watcher: Watcher = self._inner
        self._given = watcher._advance()
        if self._given is watcher:
            return True
        self._end()
        return False

    def _slowly(self) -> Any:
        coroutine = self._path._send_slowly(
            self._topic,
            self._value,
            self._key,
            self._partition,
            self._timestamp,
            self._headers,
            self._timeout,
            self._on_delivery,
        )
        return _then_wait(coroutine) if self._is_awaiting else coroutine

    def _end(self) -> None:
        self._state = _DONE
        self._inner = None
        # A task keeps its coroutine, which must not keep the record.
        self._value = None
        self._key = None
        self._headers = None
        self._on_delivery = None

    def _take(self) -> Any:
        given = self._given
        self._given = None
        return given

    def __dealloc__(self) -> None:
        if self._state == _NEW:
            _never_awaited(self._is_awaiting != 0)


def mark_as_async(*functions: Any) -> None:
    """Mark functions as `async def` for `iscoroutinefunction()`, which mocks of a Producer call."""
    for function in functions:
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(function)
        elif (coroutines := sys.modules.get("asyncio.coroutines")) is not None:
            function._is_coroutine = coroutines._is_coroutine  # the mark of `asyncio.iscoroutinefunction()`


# asyncio may not be loaded yet: `start()` loads it, so `_open_path()` marks again.
mark_as_async(SendPath.send, SendPath.send_and_wait)

if cython.compiled:
    set_am_send(SendCall, send_call_am_send)  # type: ignore[name-defined]  # noqa: F821  # of send_path.pxd
else:
    SendCall.__del__ = SendCall.__dealloc__  # type: ignore[attr-defined]  # the same under Python's name


def make_call(
    path: SendPath,
    topic: object,
    value: object,
    key: object,
    partition: object,
    timestamp: object,
    headers: object,
    timeout: object,
    on_delivery: object,
    is_awaiting: cython.bint,
) -> SendCall:
    call: SendCall = SendCall.__new__(SendCall)
    if not cython.compiled:  # a fresh C structure is all None and zeros
        call._key = call._partition = call._timestamp = call._headers = call._timeout = call._on_delivery = (
            None
        )
        call._inner = call._given = None
        call._state = _NEW
    call._path = path
    call._topic = topic
    call._value = value
    # To store None in place of None would count references twice: from 3.12 on that is ten instructions for each.
    if key is not None:
        call._key = key
    if partition is not None:
        call._partition = partition
    if timestamp is not None:
        call._timestamp = timestamp
    if headers is not None:
        call._headers = headers
    if timeout is not None:
        call._timeout = timeout
    if on_delivery is not None:
        call._on_delivery = on_delivery
    call._is_awaiting = is_awaiting
    return call


async def _then_wait(sending: Coroutine[Any, Any, DeliveryFuture]) -> RecordMetadata:
    return await (await sending)


def _reused(call: SendCall) -> RuntimeError:
    return RuntimeError(f"cannot reuse already awaited {call!r}")


def _never_awaited(is_awaiting: cython.bint) -> None:
    name = "send_and_wait" if is_awaiting else "send"
    warnings.warn(
        f"coroutine 'Producer.{name}' was never awaited: nothing was sent",
        RuntimeWarning,
        # The line that dropped it: compiled functions have no frames; interpreted, this and the destructor do.
        stacklevel=1 if cython.compiled else 3,
    )
