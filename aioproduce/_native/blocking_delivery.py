# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The future of one record that a thread sent: `concurrent.futures.Future`'s interface, without its lock.

`BlockingProducer.send()` makes it, in any thread. The loop thread accepts its record into a batch, or refuses it.
The same object is the entry of the queue between the two threads (`hand_over`): one object per record.

Invariants:

1. A settled batch never changes its outcome: status, offset, error, the parts of a split batch. So a thread that
   finds it settled needs no lock.
2. A waiting thread makes a `_Watch` first, then checks whether the record was accepted. The loop thread sets the
   batch first, then checks for a `_Watch`. One of them sees the other, and the batch calls `_tell()` back.
3. Settling a batch costs nothing per record, except for records with a `_Watch` or a delivery callback.
4. A copy that `fork()` made is never settled: it raises at once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce._native.delivery import BatchResult, DeliveryFuture
from aioproduce.portable_error import copy_of
from aioproduce.records import RecordMetadata

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.delivery import _FAILED, _SPLIT, _SUCCEEDED, make_delivery, part_of

if TYPE_CHECKING:
    from aioproduce._native.hand_over import HandOver
    from aioproduce.records import Header

_log = logging.getLogger("aioproduce")

_NULL: Final = -1

# Held to make a `_Watch`, and to count an observed failure: two threads may do either at the same time.
_making = threading.Lock()


def _forked() -> None:
    """Replace the lock: in the parent it may be held by a thread that the child does not have."""
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Watch:
    """The waiters of one record. The first waiter makes it."""

    __slots__ = ("callbacks", "condition", "is_asked", "is_told", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.is_asked = False
        self.is_told = False
        # Waiters of `concurrent.futures.wait()` and `as_completed()`.
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[BlockingDelivery], object]] = []


@cython.no_gc
@cython.cclass
class BlockingDelivery:
    """The outcome of one record that `BlockingProducer.send()` queued: a future for threads.

    It has the interface of `concurrent.futures.Future`. `concurrent.futures.wait()` and `as_completed()` accept
    it; `asyncio.wrap_future()` does not, because it requires that class. `result()` returns the record's
    RecordMetadata or raises its error.

    Attributes:
        topic: The record's topic.

    Example:
        >>> delivery = producer.send("orders", b"42")
        >>> delivery.result(timeout=10).offset
        7
    """

    __slots__ = (  # noqa: SIM905  # a line for each says no more
        "topic _handed_at _owner _key _value _headers _on_delivery _result _error "
        "_watch _timestamp _partition _index _key_size _value_size _is_observed"
    ).split()

    topic: str
    _handed_at: cython.double
    _owner: HandOver
    _key: bytes | None
    _value: bytes | None
    _headers: Any
    _on_delivery: Any
    _result: BatchResult | None
    _error: BaseException | None
    _watch: Any
    _timestamp: cython.longlong
    _partition: cython.int
    _index: cython.int
    _key_size: cython.int
    _value_size: cython.int
    _is_observed: cython.uchar

    def __init__(self) -> None:
        raise TypeError("deliveries are made by the producer")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}")

    # -- as concurrent.futures.Future ---

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement, and return the record's metadata.

        Args:
            timeout: The most seconds to wait; `None` waits until the outcome is known, at most for `max.block.ms`
                and `delivery.timeout.ms` together.

        Raises:
            TimeoutError: if the outcome is not known in time; the record is still being sent.
            DeliveryError: if the record was not acknowledged.
            ProducerError: if the record was not accepted; `docs/how-to/blocking.md` lists the reasons.
            LoopThreadError: if the loop thread calls it (in a callback): it would wait for itself.
            ForkedProcessError: if `fork()` copied this delivery; only the parent gets the outcome.
        """
        error = self._outcome(timeout)
        if error is None:
            return self._metadata()
        try:
            raise error
        finally:
            error = None  # its traceback holds this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result()` does, and return the error of the record; `None` if it was acknowledged.

        Raises:
            TimeoutError: if the outcome is not known in time.
            LoopThreadError: if the loop thread calls it.
            ForkedProcessError: if `fork()` copied this delivery.
        """
        return self._outcome(timeout)

    def done(self) -> bool:
        """Return whether the record was acknowledged or failed."""
        return self._is_settled() or self._owner.is_forked()

    def running(self) -> bool:
        """Return whether the record has no outcome yet. A queued record cannot be withdrawn."""
        return not self.done()

    def cancel(self) -> bool:
        """Return False: a queued record cannot be withdrawn."""
        return False

    def cancelled(self) -> bool:
        """Return False: `cancel()` never cancels."""
        return False

    def add_done_callback(self, callback: Callable[[BlockingDelivery], object]) -> None:
        """Call `callback(self)` in the loop thread when the outcome is known, or at once if it is known already.

        An error that the callback raises is logged.
        """
        if not self._is_settled() or self._watch is not None:
            self._check_not_forked()
            watch = self._watched()
            with watch.condition:
                if not watch.is_told:
                    watch.callbacks.append(callback)
                    return
        _call(callback, self)

    # -- what `concurrent.futures.wait()` and `as_completed()` read ---

    @property
    def _condition(self) -> threading.Condition:
        self._check_not_forked()
        return self._watched().condition

    @property
    def _waiters(self) -> list[Any]:
        return self._watched().waiters

    @property
    def _state(self) -> str:
        # Read under the condition. Not FINISHED before the waiters are notified: each is notified once.
        return "FINISHED" if self._watched().is_told else "PENDING"

    def __repr__(self) -> str:
        if self._error is not None:
            state = f"error={self._error!r}"
        elif not self._is_settled():
            state = "pending"
        else:
            result: BatchResult = self._batch()
            state = (
                f"offset={self._metadata().offset}"
                if result.status == _SUCCEEDED
                else f"error={result._error_at(self._index_in_batch())!r}"
            )
        return f"<BlockingDelivery {self.topic} {state}>"

    # -- for the producer, in the loop thread ---

    @property
    def _record(self) -> tuple[str, bytes | None, bytes | None, list[Header] | None, int | None, int]:
        """Topic, key, value, headers, partition and timestamp, until the record is accepted."""
        partition = None if self._partition < 0 else self._partition
        return self.topic, self._key, self._value, self._headers, partition, self._timestamp

    def _accept(self, delivery: DeliveryFuture) -> None:
        """Set the batch that holds the record."""
        result: BatchResult = delivery._result
        self._index = delivery._index
        self._partition = result.partition
        self._key = None
        self._value = None
        self._headers = None
        self._result = result
        if self._on_delivery is not None:
            result.add_callback(delivery, self._on_delivery)
            self._on_delivery = None
            self._is_observed = True  # the batch counts a callback as an observer
        if self._watch is not None:
            self._attach(delivery)

    def _refuse(self, error: BaseException) -> None:
        """Settle a record that no batch accepts, with the reason."""
        on_delivery = self._on_delivery
        self._key = None
        self._value = None
        self._headers = None
        self._on_delivery = None
        self._error = error
        if on_delivery is not None:
            metadata = RecordMetadata(
                self.topic, self._partition, -1, self._timestamp, self._key_size, self._value_size
            )
            try:
                on_delivery(metadata, copy_of(error))
            except Exception:
                _log.exception("a delivery callback for %s failed", self.topic)
        if self._watch is not None:
            self._tell()

    def _heed_watch(self) -> None:
        """Attach a `_Watch` that came after the acceptance to the batch, or notify it at once."""
        result = self._result
        if self._watch is None or self._watch.is_told:
            return
        if self._is_settled():
            self._tell()
        elif result is not None:
            self._attach(
                make_delivery(result, self._index, self._timestamp, self._key_size, self._value_size)
            )

    def _attach(self, delivery: DeliveryFuture) -> None:
        self._is_observed = True  # as above
        delivery._add_delivery_callback(self._settled)

    def _settled(self, _metadata: RecordMetadata, _error: BaseException | None) -> None:
        """Notify the waiters; the batch calls this back."""
        self._tell()

    def _tell(self) -> None:
        """Wake the waiters, and call the callbacks."""
        watch = self._watch
        with watch.condition:
            if watch.is_told:
                return
            watch.is_told = True
            # A failure wakes those who wait for the first one (`FIRST_EXCEPTION`); the rest count it like a result.
            has_failed: cython.bint = self._has_failed()
            for waiter in watch.waiters:
                if has_failed:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            watch.condition.notify_all()
            callbacks, watch.callbacks = watch.callbacks, []
        for callback in callbacks:
            _call(callback, self)

    # -- in callers' threads ---

    def _is_settled(self) -> cython.bint:
        if self._result is None:
            return self._error is not None
        result: BatchResult = self._batch()
        status: cython.int = result.status
        is_settled: cython.bint = status == _SUCCEEDED or status == _FAILED  # of C's numbers
        return is_settled

    def _has_failed(self) -> cython.bint:
        if self._result is None:
            return self._error is not None
        result: BatchResult = self._batch()
        has_failed: cython.bint = result.status == _FAILED  # of C's numbers
        return has_failed

    def _batch(self) -> BatchResult:
        """Return the batch of the record; if it was split, the part."""
        result: BatchResult = self._result  # type: ignore[assignment]  # there is one
        return result if result.status != _SPLIT else part_of(result, self._index)[0]

    def _index_in_batch(self) -> cython.Py_ssize_t:
        """Return the record's index in `_batch()`."""
        result: BatchResult = self._result  # type: ignore[assignment]  # there is one
        return self._index if result.status != _SPLIT else part_of(result, self._index)[1]

    def _outcome(self, timeout: Any) -> BaseException | None:
        """Return a copy of the record's error; `None` on success."""
        if not self._is_settled():
            self._wait(timeout)
        if self._error is not None:
            return copy_of(self._error)
        batch: BatchResult = self._batch()
        if batch.status == _SUCCEEDED:
            return None
        with _making:
            batch._observe(not self._is_observed)
            self._is_observed = True
        return copy_of(batch._error_at(self._index_in_batch()))

    def _wait(self, timeout: float | None) -> None:
        self._check_not_forked()
        self._owner.check_may_wait("wait for a delivery")
        watch = self._watched()
        with watch.condition:
            watch.condition.wait_for(lambda: watch.is_told, timeout)
        if not watch.is_told and not self._is_settled():
            raise TimeoutError(f"not acknowledged within {timeout} s; the record goes on: ask again")

    def _watched(self) -> _Watch:
        """Return the `_Watch` of the record, and make it known to the loop thread (invariant 2)."""
        watch = self._watch
        if watch is None:
            with _making:
                if self._watch is None:
                    self._watch = _Watch()
                watch = self._watch
        if not watch.is_asked and (self._result is not None or self._error is not None):
            self._owner.ask(self)
            watch.is_asked = True
        return watch  # type: ignore[no-any-return]  # C's attribute is any object

    def _check_not_forked(self) -> None:
        if self._owner.is_forked():
            self._owner.raise_forked()

    def _metadata(self) -> RecordMetadata:
        batch: BatchResult = self._batch()
        return batch._metadata_of(  # type: ignore[no-any-return]  # of ours: no drop-in is for threads
            self._index_in_batch(), self._timestamp, self._key_size, self._value_size
        )


def _call(callback: Callable[[BlockingDelivery], object], delivery: BlockingDelivery) -> None:
    try:
        callback(delivery)
    except Exception:
        _log.exception("a done-callback of %r failed", delivery)


def new_delivery(
    owner: HandOver,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: object,
    partition: cython.Py_ssize_t,
    timestamp: cython.longlong,
    on_delivery: object,
) -> BlockingDelivery:
    """Return the future of a checked record, for the hand-over's queue."""
    delivery: BlockingDelivery = BlockingDelivery.__new__(BlockingDelivery)
    delivery._owner = owner
    delivery.topic = topic
    delivery._key = key
    delivery._value = value
    delivery._headers = headers
    delivery._on_delivery = on_delivery
    delivery._partition = partition
    delivery._timestamp = timestamp
    delivery._key_size = _NULL if key is None else len(key)
    delivery._value_size = _NULL if value is None else len(value)
    if not cython.compiled:  # a fresh C structure is all zeros
        delivery._result = delivery._error = delivery._watch = None
        delivery._handed_at = 0.0
        delivery._index = 0
        delivery._is_observed = False
    return delivery
