"""Who waits for an outcome, and how they are told: an `await`, a done-callback, and the wake-ups of many at once.

`Watched` is what can be waited for (the base of DeliveryFuture); it keeps its `Watcher`s, and hands them to
`Wakeups` when the outcome is there.

Invariants:

1. A `Watcher` is told once, in a callback of the event loop, never within the call that settles the outcome.
2. What a task is parked on is the watcher of its own `await`: cancelling it takes it from the list, no more.
3. Telling many costs the loop one callback, and `_WAKES_PER_TURN` of them at a time get their turn.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce.errors import WrongEventLoopError

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextvars import Context

    from aioproduce._native._delivery_runtime import DeliveryRuntime

# A wake-up runs a task's step, about a microsecond or two: so many are well below a millisecond.
_WAKES_PER_TURN: Final = 256

# Where the loop waits in its own way: so many deliveries that are done are awaited without it before one is a turn
# of the loop. A task that collects a million of them can be cancelled, and lets others run.
_AWAITS_PER_TURN: Final = 256
_awaits: cython.longlong = 0


@cython.no_gc
@cython.cclass
class Watched:
    """What can be waited for."""

    __slots__ = ()

    def done(self) -> cython.bint:
        """Whether the outcome is there."""
        raise NotImplementedError

    def _runtime_of(self) -> DeliveryRuntime:
        """The event loop's side."""
        raise NotImplementedError

    def _value(self) -> Any:
        """The outcome, given or raised."""
        raise NotImplementedError

    def _attach(self, watcher: Watcher) -> None:
        """Add a watcher, behind those that are there; not once done."""
        raise NotImplementedError

    def _detach(self, watcher: Watcher) -> None:
        """Forget a watcher, if it is still there."""
        raise NotImplementedError


_NEW: Final = 0
_PARKED: Final = 1
_CANCELLED: Final = 2
_CALLBACK: Final = 3


@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Watcher:
    """Who is to be told when a delivery is done, a link of its list: one `await` of it, or a done-callback.

    Of an `await` it is at once what runs in the task and the future that the task is parked on: the event loop
    sees a future of the task's own in it (`_asyncio_future_blocking`, `add_done_callback`, `cancel`, `result`), and
    cancels it without touching the delivery.
    """

    _next: Watcher | None
    _watched: Watched
    _callback: Any
    _context: Context | None
    _cancelled_with: object | None
    _state: cython.uchar
    _is_quiet: cython.uchar
    _is_blocking: cython.uchar

    def __init__(self) -> None:
        raise TypeError("who waits is made by `await` and by add_done_callback()")

    def __reduce__(self) -> NoReturn:
        # A copy would be in nobody's list, and wait forever.
        raise TypeError("cannot copy or pickle who waits for a delivery")

    # -- what `await` drives ---

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        outcome = self._advance()
        if outcome is self:
            return self  # to suspend on
        raise StopIteration(outcome)

    def send(self, _value: object) -> Any:
        """As `next()`."""
        return self.__next__()

    def throw(self, kind: Any, error: Any = None, traceback: Any = None) -> Watcher:
        """End this wait with an exception."""
        is_foreign = self._state == _PARKED and self._callback is None
        self.close()
        error = thrown(kind, error, traceback)
        try:
            if is_foreign and isinstance(error, TypeError):
                # What trio does with a future of asyncio's that it is given to suspend on.
                raise WrongEventLoopError(
                    "this delivery belongs to a producer on an asyncio loop, and is awaited by a task of another "
                    "loop: await it where it was sent, or reach that loop with asyncio.run_coroutine_threadsafe()"
                ) from error
            raise error
        finally:
            kind = error = None  # the traceback holds this frame

    def close(self) -> None:
        """End this wait."""
        if self._state == _PARKED:
            self._state = _CANCELLED
            self._watched._detach(self)

    def is_callback(self) -> cython.bint:
        """Whether it is a done-callback, not an `await`."""
        return self._state == _CALLBACK

    def _advance(self) -> Any:
        """Itself, to suspend on; or what the `await` gives."""
        if self._is_blocking:
            raise RuntimeError("a delivery can only be awaited in a task of the event loop")
        if self._watched.done():
            return None if self._is_quiet else self._watched._value()
        if self._state != _NEW:
            raise RuntimeError("resumed before the delivery was done")
        self._state = _PARKED
        self._is_blocking = True
        self._watched._attach(self)
        return self

    # -- what a task asks of the future that it is parked on ---

    @property
    def _asyncio_future_blocking(self) -> bool:
        return self._is_blocking != 0

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, value: bool) -> None:
        self._is_blocking = value

    def get_loop(self) -> Any:
        """The event loop of the delivery."""
        return self._watched._runtime_of().get_loop()

    def add_done_callback(self, callback: Any, *, context: Context | None = None) -> None:
        """Have the task woken (its own call, once)."""
        self._callback = callback
        self._context = copy_context() if context is None else context

    def cancel(self, msg: object = None) -> bool:
        """Wake the task to be cancelled; the delivery, and who else waits for it, goes on.

        Returns:
            False where the task is woken already.
        """
        if self._state != _PARKED or self._watched.done():
            return False
        self.close()
        self._cancelled_with = msg
        wakeups = Wakeups(self._watched._runtime_of())
        wakeups.add(self)
        wakeups.schedule()
        return True

    @cython.exceptval(-1, check=False)
    def done(self) -> cython.bint:
        """Whether the task is woken, or about to be."""
        return self._state == _CANCELLED or self._watched.done()

    def result(self) -> None:
        """Nothing: the task goes on, and `await` gives it the outcome. Raises what cancels it."""
        if self._state == _CANCELLED:
            raise self._watched._runtime_of().cancelled_error(self._cancelled_with)


def thrown(kind: Any, error: Any, traceback: Any) -> BaseException:
    """The exception that `throw()` means by its arguments."""
    raised: BaseException
    if isinstance(kind, BaseException):
        raised = kind
    elif isinstance(error, BaseException):
        raised = error
    else:
        raised = kind() if error is None else kind(error)
    return raised if traceback is None else raised.with_traceback(traceback)


def make_wait(watched: Watched, is_quiet: cython.bint) -> Watcher:
    """A wait for one outcome; a quiet one does not ask for it, and gives None.

    No constructor: its call would cost as much as all the rest.
    """
    wait: Watcher = Watcher.__new__(Watcher)
    wait._watched = watched
    wait._is_quiet = is_quiet
    if not cython.compiled:
        wait._next = wait._callback = wait._context = wait._cancelled_with = None
        wait._state = _NEW
        wait._is_blocking = False
    return wait


def begin_wait(watched: Watched, foreign: Any, is_quiet: cython.bint) -> Generator[Any, None, Any]:
    """What an `await` drives: a Watcher, or where the loop waits in its own way (`foreign`), and must, that."""
    global _awaits
    if foreign is not None:
        _awaits += 1
        if _awaits % _AWAITS_PER_TURN == 0 or not watched.done():
            return foreign(watched, is_quiet).__await__()  # type: ignore[no-any-return]  # of any loop's
    return make_wait(watched, is_quiet)


def make_callback(watched: Watched, callback: Any, context: Context | None) -> Watcher:
    """A done-callback, in its context; None is that of who asks."""
    watcher = make_wait(watched, False)
    watcher._state = _CALLBACK
    watcher.add_done_callback(callback, context=context)
    return watcher


if cython.compiled:
    set_am_send(Watcher, watcher_am_send)  # type: ignore[name-defined]  # noqa: F821  # of watcher.pxd


def linked(first: Watcher | None, watcher: Watcher) -> Watcher:
    """A list of watchers, by its first, with one more at its end."""
    last: Watcher | None = first
    if last is None:
        return watcher
    while last._next is not None:
        last = last._next
    last._next = watcher
    return first  # type: ignore[return-value]  # it is not None


def unlinked(first: Watcher | None, watcher: Watcher) -> Watcher | None:
    """The same without one of them, if it is there: a settled future dropped its list."""
    before: Watcher | None = first
    following = watcher._next
    watcher._next = None
    if first is watcher:
        return following
    while before is not None and before._next is not watcher:
        before = before._next
    if before is not None:
        before._next = following
    return first


class Wakeups:
    """Watchers on their way to being told, in one callback of the loop, or a few where they are many."""

    def __init__(self, runtime: DeliveryRuntime) -> None:
        self._runtime = runtime
        self._watchers: list[Watcher] = []
        self._position = 0
        self._is_begun = False

    def add(self, watcher: Watcher | None) -> None:
        """Tell these: one and its followers."""
        while watcher is not None:
            following = watcher._next
            watcher._next = None
            self._watchers.append(watcher)
            watcher = following

    def schedule(self) -> None:
        """Have them told in the loop's next turn."""
        if self._position < len(self._watchers):
            self._runtime.call_soon(_run_some, self, None)

    def run_some(self) -> None:
        """Tell the next ones, each in its own context, and leave the rest to the next turn."""
        self._is_begun = True
        stop: cython.Py_ssize_t = min(self._position + _WAKES_PER_TURN, len(self._watchers))
        try:
            while self._position < stop:
                self._position += 1
                self._tell(self._watchers[self._position - 1])
        finally:
            if self._position == len(self._watchers):
                # A batch's result may keep this object (`_late`): what was told refers to that result.
                self._watchers.clear()
            self.schedule()

    def _tell(self, watcher: Watcher) -> None:
        callback = watcher._callback
        context = watcher._context
        told: object = watcher._watched if watcher._state == _CALLBACK else watcher
        if callback is None:
            return  # no task took it for a future
        watcher._callback = watcher._context = None
        try:
            context.run(callback, told)  # type: ignore[union-attr]  # where there is a callback, there is one
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._runtime.callback_failed(callback, error)
        finally:
            # The task's error holds this frame, by its traceback; and the task's wake-up the task.
            callback = context = told = None


def _run_some(wakeups: Wakeups) -> None:
    wakeups.run_some()
