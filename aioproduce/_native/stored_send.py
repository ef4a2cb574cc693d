"""The path of a record from `await SpooledProducer.send()` to the disk: every spooled record pays for it.

`StoredPath` is the base of `SpooledProducer`. Its `send()` makes a `StoredCall`, the coroutine that the user
awaits. The call sends by way of another producer's `SendPath`, waits for the acknowledgement, which the disk gives,
and returns a `SpooledDelivery`.

Invariants:

1. Nothing happens before a call is awaited, as with any coroutine. A call that is never awaited warns.
2. A call returns when its batch is acknowledged, and never before.
3. The group of a batch is looked up once, by the first of its calls that returns: it is kept with the batch's
   result, so a call finds it however late the loop wakes its task.
4. A `SpooledDelivery` refers to its group alone, so what waits on disk costs no memory.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce._native.delivery import BatchResult
from aioproduce._native.send_path import SendCall, SendPath, mark_as_async
from aioproduce._native.watcher import Watcher
from aioproduce.errors import DeliveryError
from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.send_path import make_call
    from aioproduce._native.watcher import begin_wait, thrown

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from datetime import datetime

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import Headers, RecordMetadata

_NEW: Final = 0
_SENDING: Final = 1
_WAITING: Final = 2
_DONE: Final = 3


class StoredPath:
    """The base of `SpooledProducer`: sends records, and waits until they are stored.

    Args:
        front: The producer that sends to the disk.

    Attributes:
        _failure: What ended a part of the spool; each call raises it.
    """

    @cython.annotation_typing(False)
    def __init__(self, front: SendPath) -> None:
        self._front_path: SendPath = front
        self._failure: BaseException | None = None
        mark_as_async(StoredPath.send)

    @cython.annotation_typing(False)
    def send(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, SpooledDelivery]:
        """Put one record on disk.

        A call that is cancelled, or that runs into a time-out of its caller, may have put it there.

        Args:
            topic: The topic.
            value: The value; None is a tombstone.
            key: The key, which chooses the partition.
            partition: The partition, instead of the key's. If the topic does not have it when the record is
                forwarded, the record goes to the dead letters.
            timestamp: Milliseconds since the epoch, or an aware datetime; now by default.
            headers: Pairs of name and value.
            timeout: Seconds for room in the buffer, instead of `max.block.ms`.

        Returns:
            A coroutine. Awaiting it returns the delivery by the cluster, which may be dropped.

        Raises:
            SpoolFullError: if the queue had no room in time. Nothing was stored.
            SpoolStorageError: if the disk failed; `possibly_stored` says whether the record may be in the queue.
            InvalidRecordError: as `Producer.send()`.
            MaxBlockTimeoutError: as `Producer.send()`.
            ProducerStateError: as `Producer.send()`.
        """
        if self._front_path is None:
            raise RuntimeError("a subclass of StoredPath has not called its __init__()")
        refusal: Any = None
        if partition is not None:
            try:
                headers = self._with_partition(headers, partition)
            except Exception as error:  # raised by the call when it is awaited, like all others
                refusal = error
        call: StoredCall = make_stored_call(
            self,
            make_call(self._front_path, topic, value, key, None, timestamp, headers, timeout, None, False),
        )
        call._given = refusal
        return call

    # -- for the SpooledProducer ---

    def _group_at(self, topic: str, offset: int) -> Any:
        """Return the group of the batch that has just been stored at an offset; the producer implements it."""
        raise NotImplementedError

    def _with_partition(self, headers: Any, partition: int) -> Any:
        """Return the headers with a chosen partition in them; the producer implements it."""
        raise NotImplementedError

    def _stored_error(self, error: DeliveryError) -> BaseException:
        """Return the error of a call whose record was not stored; the producer implements it."""
        raise NotImplementedError


@cython.freelist(64)
@cython.cclass
class StoredCall:
    """One call of `SpooledProducer.send()`: a coroutine (`collections.abc.Coroutine`), awaited once."""

    _path: StoredPath
    _call: SendCall  # None from the wait on
    _delivery: DeliveryFuture | None
    _inner: Any
    _given: Any
    _state: cython.uchar

    def __init__(self) -> None:
        self._state = _DONE  # no warning for this one
        raise TypeError("calls are made by send()")

    def __reduce__(self) -> NoReturn:
        # As any coroutine, it can be neither copied nor pickled.
        raise TypeError(f"cannot copy or pickle {self!r}")

    def __getattr__(self, name: str) -> str:
        # asyncio shows these names in a task's repr; a property cannot have them.
        if name == "__name__" or name == "__qualname__":
            return "SpooledProducer.send"
        raise AttributeError(f"a call of send() has no attribute {name!r}")

    def __repr__(self) -> str:
        return "<coroutine object SpooledProducer.send>"

    def __await__(self) -> StoredCall:
        if self._state == _SENDING or self._state == _WAITING:
            # A second await would take a step that belongs to the first.
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self) -> StoredCall:
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
        raised = thrown(kind, error, traceback)
        if self._state == _DONE:
            raise _reused()
        if self._state == _NEW:
            self._end()
            try:
                raise raised
            finally:
                kind = error = raised = None  # type: ignore[assignment]  # the traceback holds this frame
        try:
            return self._call.throw(raised) if self._state == _SENDING else self._inner.throw(raised)
        except StopIteration as stop:
            # What it waits in has finished in spite of the exception.
            if self._state == _SENDING:
                self._begin_wait(stop.value)
            else:
                self._inner = None
        except BaseException:
            self._end()
            raise
        finally:
            kind = error = raised = None  # type: ignore[assignment]  # as above
        return self.send(None)

    def close(self) -> None:
        """End the call and its wait, as a coroutine's `close()` does."""
        call, inner = self._call, self._inner
        self._end()
        if call is not None:
            call.close()
        if inner is not None:
            inner.close()

    def _step(self, sent: object) -> cython.bint:
        """Run on, and return whether it suspended again. `_given` is the value to yield or to return."""
        if self._state == _NEW:
            if sent is not None:
                raise TypeError("can't send non-None value to a just-started coroutine")
            if self._path._failure is not None:
                self._end()
                raise self._path._failure
            if self._given is not None:
                self._end()
                raise self._take()
            self._state = _SENDING
        elif self._state == _DONE:
            raise _reused()
        try:
            if self._state == _SENDING:
                if self._call._step(sent):
                    self._given = self._call._take()
                    return True
                self._begin_wait(self._call._take())
                sent = None
            if self._wait(sent):
                return True
            self._given = self._stored()
        except BaseException:
            self._end()
            raise
        # The part of `_end()` that is needed here: every record runs this.
        self._state = _DONE
        self._delivery = None
        self._inner = None
        return False

    def _begin_wait(self, delivery: DeliveryFuture) -> None:
        self._state = _WAITING
        # It can serve the next record: many wait at a time.
        self._call = None  # type: ignore[assignment]
        self._delivery = delivery
        self._inner = begin_wait(delivery, delivery._result._wait, True)

    def _wait(self, sent: object) -> cython.bint:
        """Run the wait on, and return whether it suspended again."""
        if cython.compiled and type(self._inner) is Watcher:
            watcher: Watcher = self._inner
            self._given = watcher._advance()
            return self._given is watcher
        if self._inner is None:
            return False  # an exception that was thrown in has ended the wait, which passed over it
        try:
            self._given = self._inner.send(sent)
        except StopIteration:
            return False
        return True

    def _stored(self) -> SpooledDelivery:
        """Return the delivery of a record whose batch is settled.

        Raises:
            BaseException: if the record was not stored.
        """
        delivery: DeliveryFuture = self._delivery  # type: ignore[assignment]  # it is not None
        error: Any = delivery._outcome()
        if error is not None:
            if isinstance(error, DeliveryError):
                raise self._path._stored_error(error) from error
            try:
                raise error
            finally:
                error = None  # its traceback holds this frame
        result: BatchResult = delivery._result
        if result._group is None:
            result._group = self._path._group_at(result.topic, result.base_offset)
        return make_spooled(result._group, delivery._index)

    def _end(self) -> None:
        self._state = _DONE
        self._delivery = None
        self._inner = None
        if self._call is not None:
            self._call._end()  # a task keeps its coroutine, which must not keep the record
            self._call = None  # type: ignore[assignment]

    def _take(self) -> Any:
        given = self._given
        self._given = None
        return given

    def __dealloc__(self) -> None:
        if self._state == _NEW:
            if self._call is not None:
                self._call._end()  # so that it does not warn, too
            warnings.warn(
                "coroutine 'SpooledProducer.send' was never awaited: nothing was stored",
                RuntimeWarning,
                # The line that dropped it: compiled functions have no frames.
                stacklevel=1 if cython.compiled else 2,
            )


def make_stored_call(path: StoredPath, sending: SendCall) -> StoredCall:
    """Return the call that sends by way of another call."""
    call: StoredCall = StoredCall.__new__(StoredCall)
    if not cython.compiled:  # a fresh C structure is all None and zeros
        call._delivery = call._inner = call._given = None
        call._state = _NEW
    call._path = path
    call._call = sending
    return call


# asyncio may not be loaded yet: a StoredPath marks again.
mark_as_async(StoredPath.send)


def _reused() -> RuntimeError:
    return RuntimeError("cannot reuse already awaited <coroutine object SpooledProducer.send>")


@cython.freelist(256)
@cython.cclass
class SpooledDelivery:
    """The outcome of one record that is on disk.

    `SpooledProducer.send()` returns it. Awaiting it waits until the record is acknowledged by the cluster, and
    returns its `RecordMetadata`. Nobody has to await it: the record is on disk, and is forwarded in any case.

    Attributes:
        topic: The topic.
        spool_offset: The record's offset in the queue, which is part of its id.
    """

    __slots__ = ("_group", "_index")

    _group: Any
    _index: cython.longlong

    def __init__(self, group: Any, index: int) -> None:
        self._group = group
        self._index = index

    @property
    def topic(self) -> str:
        """The topic."""
        return self._group.topic  # type: ignore[no-any-return]  # a SpooledGroup's

    @property
    def spool_offset(self) -> int:
        """The record's offset in the queue."""
        return self._group.base_offset + self._index  # type: ignore[no-any-return]  # as above

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._group.is_settled  # type: ignore[no-any-return]  # as above

    def result(self) -> RecordMetadata:
        """Return the metadata.

        Raises:
            DeliveryError: if the record was not acknowledged.
            RuntimeError: if the outcome is not known yet.
        """
        if not self._group.is_settled:
            raise RuntimeError("the record is not acknowledged yet: await its delivery")
        return self._group.outcome(self._index)  # type: ignore[no-any-return]  # as above

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._group.is_settled:
            yield from self._group.wait().__await__()
        return self._group.outcome(self._index)  # type: ignore[no-any-return]  # as above

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}")

    def __repr__(self) -> str:
        state = "settled" if self.done() else "on disk"
        return f"<SpooledDelivery {self.topic} at {self.spool_offset}, {state}>"


def make_spooled(group: Any, index: cython.longlong) -> SpooledDelivery:
    """Return a delivery. A constructor call would double the cost."""
    delivery: SpooledDelivery = SpooledDelivery.__new__(SpooledDelivery)
    delivery._group = group
    delivery._index = index
    return delivery


if cython.compiled:
    set_am_send(StoredCall, stored_call_am_send)  # type: ignore[name-defined]  # noqa: F821  # of stored_send.pxd
else:
    StoredCall.__del__ = StoredCall.__dealloc__  # type: ignore[attr-defined]  # the same under Python's name
