"""The per-record future and the one result that all records of a batch share.

The core makes a `BatchResult` per batch and a `DeliveryFuture` per record, and settles the result; users await.

Invariants:

1. A `BatchResult` is settled exactly once: it succeeds, fails, or is split into the results of other batches.
   A second time raises RuntimeError.
2. Settling costs nothing for a record that nobody waits for: `_watched` holds only futures that someone watches.
3. The shared `DeliveryFuture` is never yielded to an event loop. Each wait yields a `Watcher` of its own, so
   cancelling one wait disturbs neither the record nor the other waits.
4. `DeliveryFuture.cancel()` marks the handle cancelled and wakes every waiter. The record is still sent.
5. The error that a result keeps is never raised or returned: every caller gets a copy. The traceback of a raised
   error holds the frames that it passed, and those hold futures of this batch. Kept here, it would close a cycle
   through `DeliveryFuture`, which the garbage collector does not see.
6. A drop-in for another library can return that library's classes to the user, through `runtime.outcomes`.

Nothing here knows an event loop: the `runtime` does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce._native.watcher import Wakeups
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
    from aioproduce._native._metadata import record_metadata
    from aioproduce._native._watched_future import Watched
    from aioproduce._native.watcher import begin_wait, linked, make_callback, unlinked

if TYPE_CHECKING:
    from contextvars import Context

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.watcher import Watcher

_PENDING: Final = 0
_SUCCEEDED: Final = 1
_FAILED: Final = 2
_SPLIT: Final = 3
PENDING: Final = _PENDING  # for Python: the names above are C numbers, which a module does not export
SUCCEEDED: Final = _SUCCEEDED

DeliveryCallback = Callable[[RecordMetadata, "BaseException | None"], object]


@cython.cclass
class UnobservedFailures:
    """The failures of a batch that nobody has asked for. It dies with the batch, and tells then how many are left.

    The batch itself has no finalizer. Its memory is used again, and an object runs none in memory in which CPython
    has run one.
    """

    def __init__(self, batch: BatchResult, count: int) -> None:
        assert batch.error is not None
        self._runtime = batch.runtime
        self._topic = batch.topic
        self._partition = batch.partition
        self._error = batch.error
        self.count = count

    def __del__(self) -> None:
        # The futures were dropped without a look at the outcome.
        if self.count > 0:
            self._runtime.unobserved_failure(self._topic, self._partition, self._error, self.count)


@cython.freelist(16384)
@cython.cclass
class BatchResult:
    """The outcome of one batch, shared by the futures of its records.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        status: PENDING, SUCCEEDED, FAILED or SPLIT, as numbers from 0 on.
        base_offset: The first record's offset; -1 if it is not known.
        log_append_time: The timestamp that the broker set on all records, or -1.
        error: The reason of a failure, or `None`.
        runtime: The driver's functions for the event loop.
    """

    @cython.annotation_typing(False)
    def __init__(self, topic: str, partition: int, runtime: DeliveryRuntime) -> None:
        self.topic: str = str.__str__(topic)  # C's attribute refuses a subclass of str
        self.partition = partition
        self.status: int = _PENDING
        self.base_offset: int = -1
        self.log_append_time: int = -1
        self._log_start_offset = -1
        self.error: BaseException | None = None
        self.runtime = runtime
        self._outcomes = getattr(runtime, "outcomes", None)
        self._record_errors: dict[int, BaseException] | None = None
        self._children: list[tuple[int, BatchResult]] | None = None
        self._watched: list[DeliveryFuture] | None = None
        self._callbacks: list[tuple[DeliveryFuture, Any]] | None = None
        self._unobserved: UnobservedFailures | None = None
        self._late: Wakeups | None = None
        self._wait: Any = getattr(runtime, "wait", None)
        self._group: Any = None

    @property
    def is_done(self) -> bool:
        """Whether the batch succeeded or failed."""
        return self.status == _SUCCEEDED or self.status == _FAILED

    @property
    def has_callbacks(self) -> bool:
        """Whether `run_callbacks()` has anything to call."""
        return self._callbacks is not None

    def add_callback(self, future: DeliveryFuture, callback: DeliveryCallback) -> None:
        """Register a callback of one record, for `run_callbacks()`."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append((future, callback))

    def succeed(self, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1) -> None:
        """Settle: all records are in the log, from `base_offset` on (-1: not known)."""
        self._check_pending()
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._log_start_offset = log_start_offset
        self.status = _SUCCEEDED
        self._fire()

    def fail(
        self,
        error: BaseException,
        record_count: int,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        """Settle: no record was acknowledged. `record_errors` are errors of single records, by index (KIP-467)."""
        self._check_pending()
        future: DeliveryFuture
        self.error = error
        self._record_errors = record_errors
        self._unobserved = UnobservedFailures(self, record_count)
        if self._callbacks is not None:
            for future, _callback in self._callbacks:
                # The callback gets the error, so the failure is observed.
                future._observe()
        self.status = _FAILED
        self._fire()

    def split(self, children: list[tuple[int, BatchResult]]) -> None:
        """Settle: the records went into other batches, `(index of the first record, batch's result)`, ascending."""
        future: DeliveryFuture
        self._check_pending()
        self._children = children
        self.status = _SPLIT
        watched = self._watched
        callbacks = self._callbacks
        self._watched = None
        self._callbacks = None
        if watched is not None:
            for future in watched:
                future._follow_split()
                future._result._watch(future)
        if callbacks is not None:
            for future, callback in callbacks:
                future._follow_split()
                future._result.add_callback(future, callback)

    def run_callbacks(self) -> list[BaseException]:
        """Call every delivery callback once, in the order of the records.

        Returns:
            The errors that callbacks raised, for the log. Only KeyboardInterrupt and SystemExit are raised.
        """
        future: DeliveryFuture
        fatal: BaseException | None = None
        raised: list[BaseException] = []
        callbacks = self._callbacks
        self._callbacks = None
        if callbacks is None:
            return raised
        for future, callback in callbacks:
            try:
                failed = self.status != _SUCCEEDED
                callback(future._metadata(), copy_of(self._error_at(future._index)) if failed else None)
            except (KeyboardInterrupt, SystemExit) as error:
                fatal = error  # raised after the other records' callbacks, which would never run otherwise
            except BaseException as error:
                raised.append(error)  # CancelledError, too: it would end the sender's task
        if fatal is not None:
            raise fatal
        return raised

    def take_unobserved(self) -> int:
        """Return the number of failures that nobody observed, and reset it: the caller counts them from now on."""
        if self._unobserved is None:
            return 0
        count: cython.longlong = self._unobserved.count
        self._unobserved.count = 0
        return count

    def _check_pending(self) -> None:
        if self.status != _PENDING:
            raise RuntimeError(f"the batch of {self.topic}-{self.partition} was settled twice")

    def _error_at(self, index: cython.int) -> BaseException:
        assert self.error is not None
        if self._record_errors is None:
            return self.error
        return self._record_errors.get(index, self.error)

    def _metadata_of(
        self,
        index: cython.Py_ssize_t,
        timestamp: cython.longlong,
        key_size: cython.Py_ssize_t,
        value_size: cython.Py_ssize_t,
    ) -> Any:
        """Return the metadata of the record at an index; `timestamp` is the record's own."""
        offset: cython.longlong = self.base_offset
        if offset >= 0:
            offset += index
        if self.log_append_time >= 0:
            timestamp = self.log_append_time
        if self._outcomes is not None:
            appended, start = self.log_append_time, self._log_start_offset
            return self._outcomes.metadata(self.topic, self.partition, offset, timestamp, appended, start)
        return record_metadata(
            RecordMetadata, self.topic, self.partition, offset, timestamp, key_size, value_size
        )

    def _observe(self, count: cython.longlong) -> None:
        assert self._unobserved is not None
        self._unobserved.count -= count

    def _watch(self, future: DeliveryFuture) -> None:
        if self._watched is None:
            self._watched = []
        self._watched.append(future)

    def _fire(self) -> None:
        future: DeliveryFuture
        watched = self._watched
        self._watched = None
        if watched is not None:
            wakeups = Wakeups(self.runtime)
            for future in watched:
                wakeups.add(future._take_watchers())
            wakeups.schedule()

    def _tell_late(self, watcher: Watcher) -> None:
        """Wake a watcher of a settled batch in the loop's next turn, together with all that are added before it."""
        if self._late is None or self._late._is_begun:
            late = Wakeups(self.runtime)
            late.add(watcher)
            late.schedule()
            self._late = late  # not set if the loop is closed: the next call must raise as well
        else:
            self._late.add(watcher)


@cython.no_gc
@cython.cclass
class DeliveryFuture(Watched):
    """The outcome of one accepted record. Any number of tasks can await it, any number of times.

    `Producer.send()` returns it. Awaiting it returns the record's `RecordMetadata` or raises a `DeliveryError`.
    asyncio accepts it as a future (`asyncio.isfuture`): `gather`, `wait`, `wait_for`, `shield`, `as_completed`
    and `add_done_callback` work. A trio task can await it, too.

    Cancelling a task that awaits a delivery ends that wait only. `cancel()` marks this handle cancelled and wakes
    every waiter, but the record is still sent. Use `asyncio.shield(delivery)` if several tasks share one delivery.

    Example:
        >>> delivery = await producer.send("orders", b"42")
        >>> metadata = await delivery
    """

    __slots__ = (  # noqa: SIM905  # a line for each says no more
        "_result _timestamp _held _index _key_size _value_size _is_watched _is_cancelled _is_observed"
    ).split()

    _result: BatchResult
    _timestamp: cython.longlong
    _held: Any
    _index: cython.int
    _key_size: cython.int
    _value_size: cython.int
    _is_watched: cython.uchar
    _is_cancelled: cython.uchar
    _is_observed: cython.uchar

    def __init__(self) -> None:
        raise TypeError("deliveries are made by the producer")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}")

    # -- what asyncio expects of a future ---

    # For type checkers the base has an attribute: a task sets it on the future that it waits on, never on this one.
    @property
    def _asyncio_future_blocking(self) -> bool:  # type: ignore[override]  # as said
        """A mark for `asyncio.isfuture()`. Never True: no task waits on this object itself."""
        return False

    @property
    def _cancel_message(self) -> object:
        """The message that `asyncio.gather()` reads from a cancelled future."""
        return self._held if self._is_cancelled else None

    def _make_cancelled_error(self) -> BaseException:
        """Return the error that `asyncio.gather()` raises for a cancelled future; without it, gather never ends."""
        return self._result.runtime.cancelled_error(self._cancel_message)

    def get_loop(self) -> Any:
        """Return the event loop that the producer runs on."""
        return self._result.runtime.get_loop()

    def done(self) -> cython.bint:
        """Return whether the record was acknowledged or failed, or this handle was cancelled."""
        if self._is_cancelled:
            return True
        if self._result.status == _SPLIT:
            self._follow_split()
        return self._result.status != _PENDING

    def cancelled(self) -> bool:
        """Return whether this handle was cancelled. The record may be acknowledged all the same."""
        return self._is_cancelled != 0

    def cancel(self, msg: object = None) -> bool:
        """Mark this handle cancelled and wake its waiters; return False if done. The record is still sent."""
        if self.done():
            return False
        wakeups = Wakeups(self._result.runtime)
        wakeups.add(self._take_watchers())
        self._is_cancelled = True
        self._held = msg
        wakeups.schedule()
        return True

    def result(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises:
            DeliveryError: if the record was not acknowledged.
            asyncio.CancelledError: if this handle was cancelled.
            asyncio.InvalidStateError: if there is no outcome yet. (Under trio both are from `concurrent.futures`.)
        """
        return self._value()  # type: ignore[no-any-return]  # a drop-in's class, where there is one

    def exception(self) -> BaseException | None:
        """Return the error of the record; `None` if it was acknowledged.

        Raises:
            asyncio.CancelledError: if this handle was cancelled.
            asyncio.InvalidStateError: if there is no outcome yet. (Under trio both are from `concurrent.futures`.)
        """
        return self._outcome()

    def add_done_callback(
        self, callback: Callable[[DeliveryFuture], object], *, context: Context | None = None
    ) -> None:
        """Call `callback(self)` on the loop after the outcome is known; in its next turn if it is known already."""
        # As in asyncio's futures: the context of this call, not of the code that settles the record.
        watcher = make_callback(self, callback, context)
        if self.done():
            self._result._tell_late(watcher)
        else:
            self._attach(watcher)

    def remove_done_callback(self, callback: Callable[[DeliveryFuture], object]) -> int:
        """Remove a callback, and return how often it was registered."""
        if self._is_cancelled:
            return 0
        removed = 0
        watcher: Watcher | None = self._held
        while watcher is not None:
            following = watcher._next
            if watcher.is_callback() and watcher._callback == callback:
                self._detach(watcher)
                removed += 1
            watcher = following
        return removed

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return begin_wait(self, self._result._wait, False)

    def __iter__(self) -> Generator[Any, None, RecordMetadata]:
        return begin_wait(self, self._result._wait, False)

    def _wait_done(self) -> Generator[Any, None, None]:
        """Suspend until `done()`, without observing a failure."""
        return begin_wait(self, self._result._wait, True)

    def _again(self) -> DeliveryFuture:
        """Return another handle of the same record, which is not cancelled."""
        other = make_delivery(self._result, self._index, self._timestamp, self._key_size, self._value_size)
        other._is_observed = self._is_observed
        return other

    def __repr__(self) -> str:
        if self._is_cancelled:
            state = "cancelled"
        elif not self.done():
            state = "pending"
        elif self._result.status == _SUCCEEDED:
            state = f"offset={getattr(self._metadata(), 'offset', None)}"
        else:
            state = f"error={self._result._error_at(self._index)!r}"
        return f"<DeliveryFuture {self._result.topic}-{self._result.partition} {state}>"

    # -- of the record ---

    @property
    def topic(self) -> str:
        """The topic that the record goes to."""
        return self._result.topic

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._result.partition

    def _add_delivery_callback(self, callback: DeliveryCallback) -> None:
        """Call `callback(metadata, error)` once, when the record's batch is settled (for the producer)."""
        if self._result.status == _SPLIT:
            self._follow_split()
        self._result.add_callback(self, callback)

    # -- between the classes ---

    def _follow_split(self) -> None:
        self._result, self._index = part_of(self._result, self._index)

    def _attach(self, watcher: Watcher) -> None:
        self._held = linked(self._held, watcher)
        if not self._is_watched:
            self._is_watched = True
            self._result._watch(self)

    def _detach(self, watcher: Watcher) -> None:
        if not self._is_cancelled:
            self._held = unlinked(self._held, watcher)

    def _runtime_of(self) -> DeliveryRuntime:
        return self._result.runtime

    def _take_watchers(self) -> Watcher | None:
        taken: Watcher | None = None if self._is_cancelled else self._held
        if not self._is_cancelled:
            self._held = None
        return taken

    def _metadata(self) -> Any:
        return self._result._metadata_of(self._index, self._timestamp, self._key_size, self._value_size)

    def _value(self) -> Any:
        """Return the metadata, or raise as `result()` does."""
        error = self._outcome()
        if error is None:
            return self._metadata()
        try:
            raise error
        finally:
            error = None  # its traceback holds this frame

    def _outcome(self) -> BaseException | None:
        """Return a copy of the record's error; `None` on success."""
        if self._is_cancelled:
            raise self._make_cancelled_error()
        if not self.done():
            raise self._result.runtime.invalid_state_error("the record is not acknowledged yet")
        if self._result.status == _SUCCEEDED:
            return None
        self._observe()
        error = copy_of(self._result._error_at(self._index))
        return error if self._result._outcomes is None else self._result._outcomes.error(error)

    def _observe(self) -> None:
        self._result._observe(not self._is_observed)
        self._is_observed = True


def part_of(result: BatchResult, index: cython.Py_ssize_t) -> tuple[BatchResult, int]:
    """Return the part of a split batch that holds a record, and its index there. A part may be split again."""
    part: BatchResult
    first: cython.Py_ssize_t
    while result.status == _SPLIT:
        children = result._children
        assert children is not None
        first = 0
        for start, part in children:
            if start > index:
                break
            first = start
            result = part
        index -= first
    return result, index


def make_delivery(
    result: BatchResult,
    index: cython.Py_ssize_t,
    timestamp: cython.longlong,
    key_size: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
) -> DeliveryFuture:
    """Return the future of one record (size -1: null key or value). A constructor call would double the cost."""
    delivery: DeliveryFuture = DeliveryFuture.__new__(DeliveryFuture)
    delivery._result = result
    delivery._index = index
    delivery._timestamp = timestamp
    delivery._key_size = key_size
    delivery._value_size = value_size
    if not cython.compiled:  # a fresh C structure is all zeros
        delivery._held = None
        delivery._is_watched = delivery._is_cancelled = delivery._is_observed = False
    return delivery
