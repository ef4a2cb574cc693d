"""The per-record future and the one result that all records of a batch share.

Who calls it: the core makes one `BatchResult` per batch and one `DeliveryFuture` per record, and settles the
result once; users await the futures.

Invariants:

1. A `BatchResult` is settled exactly once (succeeded, failed, or split into the results of other batches);
   a second time raises RuntimeError.
2. Settling costs nothing per record that nobody waits for: only futures that someone watches are in `_watched`.
3. The shared `DeliveryFuture` is never yielded to an event loop: each waiter yields a waiter of its own, so that
   cancelling one wait disturbs neither the record nor the other waiters.
4. `DeliveryFuture.cancel()` marks the handle cancelled and wakes all who wait on it; the record goes on.
5. The error that a result keeps is never raised nor handed out: whoever asks gets a copy. The traceback of a
   raised error holds the frames that it passed, and those hold futures of this very batch: kept here, it would
   close a cycle through `DeliveryFuture`, which the garbage collector does not see.

One source, two builds: compiled by Cython as it stands (pure Python mode), or interpreted. Nothing here knows an
event loop: the `runtime` of a result (made by the driver) parks, wakes and schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproduce.records import RecordMetadata

if TYPE_CHECKING:
    from contextvars import Context

    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

PENDING: Final = 0
SUCCEEDED: Final = 1
FAILED: Final = 2
SPLIT: Final = 3

DeliveryCallback = Callable[[RecordMetadata, "BaseException | None"], object]


class DeliveryRuntime(Protocol):
    """What a delivery needs of the event loop; the driver gives it."""

    def get_loop(self) -> Any:
        """The event loop, as `asyncio.Future.get_loop()` answers it."""

    def make_waiter(self) -> Any:
        """A waiter for one task."""

    def park(self, waiter: Any) -> Generator[Any, None, Any]:
        """Suspend the running task until `wake(waiter)`; cancelling the task ends this wait only."""

    def wake(self, waiter: Any) -> None:
        """Wake the task parked on a waiter, if it still is."""

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Call back in the loop's next turn."""

    def cancelled_error(self, message: object) -> BaseException:
        """The exception that says "cancelled" under this loop."""

    def invalid_state_error(self, message: str) -> BaseException:
        """The exception for asking a pending future for its result."""

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """`count` records of a batch failed and nobody ever asked for them; may come from the collector."""


@cython.cfunc
def _copy_of(error: BaseException) -> BaseException:
    kind = type(error)
    copied: BaseException = kind.__new__(kind)  # its `__init__` may want more than `args`
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    copied.__context__ = error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied


@cython.cclass
class BatchResult:
    """The outcome of one batch, shared by the futures of its records."""

    __slots__ = (
        "_base_offset",
        "_callbacks",
        "_children",
        "_error",
        "_log_append_time",
        "_partition",
        "_record_errors",
        "_runtime",
        "_status",
        "_topic",
        "_unobserved",
        "_watched",
    )

    _topic: str
    _partition: cython.int
    _status: cython.int
    _base_offset: cython.longlong
    _log_append_time: cython.longlong
    _error: BaseException | None
    _runtime: DeliveryRuntime
    _record_errors: dict[int, BaseException] | None
    _children: list[tuple[int, BatchResult]] | None
    _watched: list[DeliveryFuture] | None
    _callbacks: list[tuple[DeliveryFuture, Any]] | None
    _unobserved: cython.longlong

    def __init__(self, topic: str, partition: int, runtime: DeliveryRuntime) -> None:
        self._topic = topic
        self._partition = partition
        self._status = PENDING
        self._base_offset = -1
        self._log_append_time = -1
        self._error = None
        self._runtime = runtime
        self._record_errors = None
        self._children = None
        self._watched = None
        self._callbacks = None
        self._unobserved = 0

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._partition

    @property
    def status(self) -> int:
        """PENDING, SUCCEEDED, FAILED or SPLIT."""
        return self._status

    @property
    def base_offset(self) -> int:
        """The first record's offset; -1 while it is not known."""
        return self._base_offset

    @property
    def log_append_time(self) -> int:
        """The timestamp that the broker gave all records, or -1."""
        return self._log_append_time

    @property
    def error(self) -> BaseException | None:
        """Why the batch failed."""
        return self._error

    @property
    def runtime(self) -> DeliveryRuntime:
        """The driver's side."""
        return self._runtime

    @property
    def is_done(self) -> bool:
        """Whether the batch succeeded or failed."""
        return self._status == SUCCEEDED or self._status == FAILED

    @property
    def has_callbacks(self) -> bool:
        """Whether `run_callbacks()` has anything to call."""
        return self._callbacks is not None

    def add_callback(self, future: DeliveryFuture, callback: DeliveryCallback) -> None:
        """Have `run_callbacks()` call back for one record."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append((future, callback))

    def succeed(self, base_offset: int, log_append_time: int = -1) -> None:
        """All records are in the log from `base_offset` on (-1: where is not known)."""
        self._check_pending()
        self._base_offset = base_offset
        self._log_append_time = log_append_time
        self._status = SUCCEEDED
        self._fire()

    def fail(
        self,
        error: BaseException,
        record_count: int,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        """No record was acknowledged; `record_errors` has the reason of single records, by index (KIP-467)."""
        self._check_pending()
        future: DeliveryFuture
        self._error = error
        self._record_errors = record_errors
        self._unobserved = record_count
        if self._callbacks is not None:
            for future, _callback in self._callbacks:
                # A callback is told of the failure: that is observed.
                future._observe()
        self._status = FAILED
        self._fire()

    def split(self, children: list[tuple[int, BatchResult]]) -> None:
        """The records went into other batches: `(index of the first record, its batch's result)`, ascending."""
        future: DeliveryFuture
        result: BatchResult
        self._check_pending()
        self._children = children
        self._status = SPLIT
        watched = self._watched
        callbacks = self._callbacks
        self._watched = None
        self._callbacks = None
        if watched is not None:
            for future in watched:
                future._follow_split()
                result = future._result
                result._watch(future)
        if callbacks is not None:
            for future, callback in callbacks:
                future._follow_split()
                result = future._result
                result.add_callback(future, callback)

    def run_callbacks(self) -> list[BaseException]:
        """Call every delivery callback once, in the order of the records.

        Returns:
            What callbacks raised; the caller logs it. Nothing that a callback raises is fatal.
        """
        future: DeliveryFuture
        raised: list[BaseException] = []
        callbacks = self._callbacks
        self._callbacks = None
        if callbacks is None:
            return raised
        for future, callback in callbacks:
            try:
                if self._status == SUCCEEDED:
                    callback(future._metadata(), None)
                else:
                    callback(future._metadata(), _copy_of(self._error_at(future._index)))
            except Exception as error:
                raised.append(error)
        return raised

    @cython.cfunc
    def _check_pending(self) -> None:
        if self._status != PENDING:
            raise RuntimeError(f"the batch of {self._topic}-{self._partition} was settled twice")

    @cython.cfunc
    def _error_at(self, index: cython.int) -> BaseException:
        assert self._error is not None
        if self._record_errors is None:
            return self._error
        return self._record_errors.get(index, self._error)

    @cython.cfunc
    def _watch(self, future: DeliveryFuture) -> None:
        if self._watched is None:
            self._watched = []
        self._watched.append(future)

    @cython.cfunc
    def _fire(self) -> None:
        future: DeliveryFuture
        watched = self._watched
        self._watched = None
        if watched is not None:
            for future in watched:
                future._fire()

    def __del__(self) -> None:
        # Whoever held these futures dropped them unasked. `_unobserved` is only set by a failure.
        if self._unobserved > 0 and self._error is not None:
            self._runtime.unobserved_failure(self._topic, self._partition, self._error, self._unobserved)


# Without the collector: a million live deliveries would cost each of its passes. No cycle outlives the record: what
# a delivery refers to (waiters, callbacks) it drops when it is settled, which `delivery.timeout.ms` bounds.
@cython.no_gc
@cython.final
@cython.cclass
class DeliveryFuture:
    """The outcome of one accepted record: awaitable, any number of times, by any number of tasks.

    Returned by `Producer.send()`. To asyncio it is a future (`asyncio.isfuture`), so `gather`, `wait`,
    `wait_for`, `shield`, `as_completed` and `add_done_callback` take it as it is. Awaiting it gives the record's
    `RecordMetadata` or raises a `DeliveryError`; the metadata is computed when it is asked for.

    Cancelling a task that awaits a delivery ends that wait only. `cancel()` marks this handle cancelled and wakes
    all who wait on it, while the record goes on: use `asyncio.shield(delivery)` where several tasks share one.

    Example:
        >>> delivery = await producer.send("orders", b"42")  # doctest: +SKIP
        >>> metadata = await delivery  # doctest: +SKIP
    """

    __slots__ = (
        "_cancelled_with",
        "_done_callbacks",
        "_index",
        "_is_cancelled",
        "_is_observed",
        "_is_watched",
        "_key_size",
        "_result",
        "_timestamp",
        "_value_size",
        "_waiters",
    )

    _result: BatchResult
    _index: cython.int
    _key_size: cython.int
    _value_size: cython.int
    _timestamp: cython.longlong
    _waiters: list[Any] | None
    _done_callbacks: list[tuple[Any, Any]] | None
    _is_watched: cython.bint
    _is_cancelled: cython.bint
    _is_observed: cython.bint
    _cancelled_with: object | None

    def __init__(
        self, result: BatchResult, index: int, timestamp: int, key_size: int, value_size: int
    ) -> None:
        self._result = result
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._waiters = None
        self._done_callbacks = None
        self._is_watched = False
        self._is_cancelled = False
        self._is_observed = False
        self._cancelled_with = None

    # -- what asyncio asks of a future ---

    @property
    def _asyncio_future_blocking(self) -> bool:
        """Tells `asyncio.isfuture()` that this is one; never True, as it is never yielded to a task."""
        return False

    @property
    def _cancel_message(self) -> object:
        """What `asyncio.gather()` reads of a cancelled future."""
        return self._cancelled_with

    def _make_cancelled_error(self) -> BaseException:
        """What `asyncio.gather()` raises for a cancelled future; without it, it would never end."""
        return self._result._runtime.cancelled_error(self._cancelled_with)

    def get_loop(self) -> Any:
        """The event loop that the producer runs on."""
        return self._result._runtime.get_loop()

    def done(self) -> bool:
        """Whether the record was acknowledged, failed, or this handle was cancelled."""
        if self._is_cancelled:
            return True
        if self._result._status == SPLIT:
            self._follow_split()
        return self._result._status != PENDING

    def cancelled(self) -> bool:
        """Whether this handle was cancelled; that says nothing of the record."""
        return self._is_cancelled

    def cancel(self, msg: object = None) -> bool:
        """Mark this handle cancelled and wake all who wait on it. The record goes on.

        Returns:
            False if the outcome was there already.
        """
        if self.done():
            return False
        self._is_cancelled = True
        self._cancelled_with = msg
        self._fire()
        return True

    def result(self) -> RecordMetadata:
        """The record's metadata.

        Raises:
            DeliveryError: the record was not acknowledged.
            asyncio.CancelledError: this handle was cancelled.
            asyncio.InvalidStateError: the outcome is not there yet.
        """
        error = self._outcome()
        if error is None:
            return self._metadata()
        try:
            raise error
        finally:
            error = None  # its traceback holds this frame

    def exception(self) -> BaseException | None:
        """Why the record was not acknowledged, or `None` if it was.

        Raises:
            asyncio.CancelledError: this handle was cancelled.
            asyncio.InvalidStateError: the outcome is not there yet.
        """
        return self._outcome()

    def add_done_callback(
        self, callback: Callable[[DeliveryFuture], object], *, context: Context | None = None
    ) -> None:
        """Call `callback(self)` on the loop once the outcome is there (at once in its next turn, if it is)."""
        if self.done():
            self._result._runtime.call_soon(callback, self, context)
            return
        if context is None:
            # As asyncio's futures: the context of who asks, not of who will settle the record.
            context = copy_context()
        if self._done_callbacks is None:
            self._done_callbacks = []
        self._done_callbacks.append((callback, context))
        self._watch()

    def remove_done_callback(self, callback: Callable[[DeliveryFuture], object]) -> int:
        """Forget a callback.

        Returns:
            How many were removed.
        """
        callbacks = self._done_callbacks
        if callbacks is None:
            return 0
        kept = [entry for entry in callbacks if entry[0] != callback]
        self._done_callbacks = kept or None
        return len(callbacks) - len(kept)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            runtime = self._result._runtime
            waiter = runtime.make_waiter()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            self._watch()
            try:
                yield from runtime.park(waiter)
            finally:
                # Still there only when this wait was cancelled: a settled future dropped its list.
                if self._waiters is not None:
                    self._waiters.remove(waiter)
        return self.result()

    def __iter__(self) -> Generator[Any, None, RecordMetadata]:
        return self.__await__()

    def wait_done(self) -> Generator[Any, None, None]:
        """Suspend until `done()`. That does not ask for the outcome: a failure still is unobserved."""
        if self.done():
            return
        runtime = self._result._runtime
        waiter = runtime.make_waiter()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        self._watch()
        try:
            yield from runtime.park(waiter)
        finally:
            if self._waiters is not None:
                self._waiters.remove(waiter)

    def again(self) -> DeliveryFuture:
        """Another handle of the same record, not cancelled, to be asked in this one's place."""
        other = DeliveryFuture(self._result, self._index, self._timestamp, self._key_size, self._value_size)
        other._is_observed = self._is_observed
        return other

    def __repr__(self) -> str:
        if self._is_cancelled:
            state = "cancelled"
        elif not self.done():
            state = "pending"
        elif self._result._status == SUCCEEDED:
            state = f"offset={self._metadata().offset}"
        else:
            state = f"error={self._result._error_at(self._index)!r}"
        return f"<DeliveryFuture {self._result._topic}-{self._result._partition} {state}>"

    # -- of the record ---

    @property
    def topic(self) -> str:
        """The topic that the record goes to."""
        return self._result._topic

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._result._partition

    def add_delivery_callback(self, callback: DeliveryCallback) -> None:
        """Have `callback(metadata, error)` called once when the record's batch is settled (for the producer)."""
        if self._result._status == SPLIT:
            self._follow_split()
        self._result.add_callback(self, callback)

    # -- between the two classes ---

    @cython.cfunc
    def _follow_split(self) -> None:
        while self._result._status == SPLIT:
            children = self._result._children
            assert children is not None
            first: int = 0
            target: BatchResult = children[0][1]
            for start, child in children:
                if start > self._index:
                    break
                first = start
                target = child
            self._index -= first
            self._result = target

    @cython.cfunc
    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._result._watch(self)

    @cython.cfunc
    def _fire(self) -> None:
        runtime = self._result._runtime
        waiters = self._waiters
        callbacks = self._done_callbacks
        self._waiters = None
        self._done_callbacks = None
        if waiters is not None:
            for waiter in waiters:
                runtime.wake(waiter)
        if callbacks is not None:
            for callback, context in callbacks:
                runtime.call_soon(callback, self, context)

    @cython.cfunc
    def _metadata(self) -> RecordMetadata:
        result: BatchResult = self._result
        offset = result._base_offset
        timestamp = result._log_append_time
        # As RecordMetadata(...) makes it, without the Python frame of its constructor: half a microsecond each.
        return tuple.__new__(
            RecordMetadata,
            (
                result._topic,
                result._partition,
                offset + self._index if offset >= 0 else -1,
                timestamp if timestamp >= 0 else self._timestamp,
                self._key_size,
                self._value_size,
            ),
        )

    @cython.cfunc
    def _outcome(self) -> BaseException | None:
        """The error of the record, a copy; `None` on success."""
        if self._is_cancelled:
            raise self._make_cancelled_error()
        if not self.done():
            raise self._result._runtime.invalid_state_error("the record is not acknowledged yet")
        if self._result._status == SUCCEEDED:
            return None
        self._observe()
        return _copy_of(self._result._error_at(self._index))

    @cython.cfunc
    def _observe(self) -> None:
        if not self._is_observed:
            self._is_observed = True
            self._result._unobserved -= 1


def make_delivery(
    result: BatchResult, index: int, timestamp: int, key_size: int, value_size: int
) -> DeliveryFuture:
    """The future of one record (sizes: -1 for a null key or value)."""
    return DeliveryFuture(result, index, timestamp, key_size, value_size)
