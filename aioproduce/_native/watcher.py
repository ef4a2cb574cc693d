"""The waiters for an outcome (an `await`, a done-callback), and the wake-ups of many waiters at once.

`Watched` is an outcome that tasks can wait for, the base of DeliveryFuture. It keeps its `Watcher`s, and passes
them to `Wakeups` when the outcome is known.

Invariants:

1. A `Watcher` is woken once, in a callback of the event loop, never within the call that settles the outcome.
2. A task waits on the watcher of its own `await`. Cancelling that removes it from the list, and does no more.
3. Waking many watchers costs the loop one callback per `_WAKES_PER_TURN` of them.
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

# A wake-up runs a task's step, about a microsecond or two. So many stay well below a millisecond.
_WAKES_PER_TURN: Final = 256

# For loops with a wait of their own: after so many awaits of settled deliveries one takes a turn of the loop. So a
# task that collects a million deliveries can be cancelled, and lets other tasks run.
_AWAITS_PER_TURN: Final = 256
_awaits: cython.longlong = 0


@cython.no_gc
@cython.cclass
class Watched:
    """An outcome that tasks can wait for."""

    __slots__ = ()

    def done(self) -> cython.bint:
        """Return whether the outcome is known."""
        raise NotImplementedError

    def _runtime_of(self) -> DeliveryRuntime:
        """Return the functions of the event loop."""
        raise NotImplementedError

    def _value(self) -> Any:
        """Return or raise the outcome."""
        raise NotImplementedError

    def _attach(self, watcher: Watcher) -> None:
        """Add a watcher after the others; call it only before `done()`."""
        raise NotImplementedError

    def _detach(self, watcher: Watcher) -> None:
        """Remove a watcher, if it is in the list."""
        raise NotImplementedError


_NEW: Final = 0
_PARKED: Final = 1
_CANCELLED: Final = 2
_CALLBACK: Final = 3


@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Watcher:
    """One `await` of a delivery, or one done-callback: a link in the delivery's list of watchers.

    For an `await` it is both the iterator that runs in the task and the future that the task waits on. The event
    loop treats it as a future of the task's own (`_asyncio_future_blocking`, `add_done_callback`, `cancel`,
    `result`), and cancels it without touching the delivery.
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
        # A copy would be in no list, and wait forever.
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
        """Do the same as `next()`."""
        return self.__next__()

    def throw(self, kind: Any, error: Any = None, traceback: Any = None) -> Watcher:
        """End this wait with an exception."""
        is_foreign = self._state == _PARKED and self._callback is None
        self.close()
        error = thrown(kind, error, traceback)
        try:
            if is_foreign and isinstance(error, TypeError):
                # trio does this with an asyncio future that a task suspends on.
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
        """Return itself, to suspend on, or the result of the `await`."""
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

    # -- what a task calls on the future that it waits on ---

    @property
    def _asyncio_future_blocking(self) -> bool:
        return self._is_blocking != 0

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, value: bool) -> None:
        self._is_blocking = value

    def get_loop(self) -> Any:
        """Return the event loop of the delivery."""
        return self._watched._runtime_of().get_loop()

    def add_done_callback(self, callback: Any, *, context: Context | None = None) -> None:
        """Set the callback that wakes the task; the task calls this once."""
        self._callback = callback
        self._context = copy_context() if context is None else context

    def cancel(self, msg: object = None) -> bool:
        """Wake the task to cancel it. The delivery and its other waiters are not affected.

        Returns:
            False if the task is woken already.
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
        """Return whether the task is woken, or will be in the next turn."""
        return self._state == _CANCELLED or self._watched.done()

    def result(self) -> None:
        """Return None, since `await` returns the outcome; raise the cancellation, if there is one."""
        if self._state == _CANCELLED:
            raise self._watched._runtime_of().cancelled_error(self._cancelled_with)


def thrown(kind: Any, error: Any, traceback: Any) -> BaseException:
    """Return the exception that the arguments of `throw()` describe."""
    raised: BaseException
    if isinstance(kind, BaseException):
        raised = kind
    elif isinstance(error, BaseException):
        raised = error
    else:
        raised = kind() if error is None else kind(error)
    return raised if traceback is None else raised.with_traceback(traceback)


def make_wait(watched: Watched, is_quiet: cython.bint) -> Watcher:
    """Return a wait for one outcome. A quiet wait does not observe the outcome, and returns None.

    A constructor call would cost as much as all the rest.
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
    """Return the iterator of an `await`: a Watcher, or `foreign`'s if the loop has its own wait and needs it."""
    global _awaits
    if foreign is not None:
        _awaits += 1
        if _awaits % _AWAITS_PER_TURN == 0 or not watched.done():
            return foreign(watched, is_quiet).__await__()  # type: ignore[no-any-return]  # of any loop's
    return make_wait(watched, is_quiet)


def make_callback(watched: Watched, callback: Any, context: Context | None) -> Watcher:
    """Return the watcher of a done-callback in a context; None means the caller's context."""
    watcher = make_wait(watched, False)
    watcher._state = _CALLBACK
    watcher.add_done_callback(callback, context=context)
    return watcher


if cython.compiled:
    set_am_send(Watcher, watcher_am_send)  # type: ignore[name-defined]  # noqa: F821  # of watcher.pxd


def linked(first: Watcher | None, watcher: Watcher) -> Watcher:
    """Append a watcher to a list; return the list's first watcher."""
    last: Watcher | None = first
    if last is None:
        return watcher
    while last._next is not None:
        last = last._next
    last._next = watcher
    return first  # type: ignore[return-value]  # it is not None


def unlinked(first: Watcher | None, watcher: Watcher) -> Watcher | None:
    """Remove a watcher from a list, if it is there (a settled future drops its list); return the first."""
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
    """Watchers that wait to be woken, in one callback of the loop, or in a few if they are many."""

    def __init__(self, runtime: DeliveryRuntime) -> None:
        self._runtime = runtime
        self._watchers: list[Watcher] = []
        self._position = 0
        self._is_begun = False

    def add(self, watcher: Watcher | None) -> None:
        """Add a watcher and its followers."""
        while watcher is not None:
            following = watcher._next
            watcher._next = None
            self._watchers.append(watcher)
            watcher = following

    def schedule(self) -> None:
        """Wake the watchers in the loop's next turn."""
        if self._position < len(self._watchers):
            self._runtime.call_soon(_run_some, self, None)

    def run_some(self) -> None:
        """Wake the next watchers, each in its own context, and leave the rest to the next turn."""
        self._is_begun = True
        stop: cython.Py_ssize_t = min(self._position + _WAKES_PER_TURN, len(self._watchers))
        try:
            while self._position < stop:
                self._position += 1
                self._tell(self._watchers[self._position - 1])
        finally:
            if self._position == len(self._watchers):
                # A batch's result may keep this object (`_late`), and woken watchers refer to that result.
                self._watchers.clear()
            self.schedule()

    def _tell(self, watcher: Watcher) -> None:
        callback = watcher._callback
        context = watcher._context
        told: object = watcher._watched if watcher._state == _CALLBACK else watcher
        if callback is None:
            return  # no task waits on it
        watcher._callback = watcher._context = None
        try:
            context.run(callback, told)  # type: ignore[union-attr]  # where there is a callback, there is one
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._runtime.callback_failed(callback, error)
        finally:
            # The traceback of the task's error holds this frame, and the task's wake-up holds the task.
            callback = context = told = None


def _run_some(wakeups: Wakeups) -> None:
    wakeups.run_some()
