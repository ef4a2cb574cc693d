"""A thread with an asyncio event loop of its own, and calls into it from other threads.

Used where a producer or a fake cluster runs next to code without coroutines: `blocking.session`, `spark.runtime`,
`integrations.log_thread`, `testing.cluster_thread`.

Invariants:

1. Each call gets an outcome, however the thread ends: a call that can no longer run fails with `ThreadEndedError`.
   Its cause is the error that ended the loop, if there was one. A waiter checks each second whether the thread
   lives, and never waits in the thread itself.
2. The thread is a daemon: the interpreter's exit does not wait for a stuck loop. The owner stops it before that.
3. The thread's end cancels its tasks, so that producers drop their sockets, and closes the loop. That needs no
   other thread and no import: at the interpreter's exit no executor accepts work. It does not wait for the loop's
   own executor.
4. A call runs in the context (`contextvars`) of its caller.
5. After a fork the child has no such thread: calls raise there. The owner keeps the inherited loop alive: a freed
   uvloop removes its sockets from the epoll instance that both processes share.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

P = ParamSpec("P")
R = TypeVar("R")

_LOOKS_EVERY: Final = 1.0
# Seconds for tasks that are cancelled at the end; a producer's forced close takes longest (`producer.life`).
_CANCEL_BOUND: Final = 10.0


class ThreadEndedError(RuntimeError):
    """The loop thread has ended, or belongs to another process, so the call has no outcome of its own."""


class ThreadBusyError(TimeoutError):
    """The loop thread did not produce the call's outcome in time."""


@final
class LoopThread:
    """Runs an event loop in a thread, from its creation until `stop()`.

    Args:
        name: The thread's name.
        loop: The loop, which nothing else runs; it is closed at the end.

    Attributes:
        loop: The loop.

    Raises:
        RuntimeError: if the interpreter starts no more threads.

    Example:
        >>> thread = LoopThread("worker", asyncio.new_event_loop())
        >>> thread.call(asyncio.sleep, 0, "done")
        'done'
        >>> thread.stop()
        >>> thread.join()
        True
    """

    __slots__ = ("_calls", "_end", "_has_ended", "_thread", "loop")

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._calls: dict[Future[Any], asyncio.Task[Any] | None] = {}
        self._has_ended = False
        self._end: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            loop.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether calls can be made: the thread runs in this process."""
        return not self._has_ended and self._thread.is_alive()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the thread."""
        # Not by the number: that of a thread that has just ended is given to the next one.
        return threading.current_thread() is self._thread

    # -- calls, from any thread ---

    def submit(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Begin to run a coroutine function in the thread, without waiting for the loop, which may be stuck.

        Raises:
            ThreadEndedError: if the thread has ended.
        """
        call: Future[R] = concurrent.futures.Future()

        def begin() -> None:
            task = self.loop.create_task(function(*args, **kwargs), name=f"aioproduce {name_of(function)}")
            self._calls[call] = task
            task.add_done_callback(lambda task: self._answer(call, task))

        self._send(call, begin)
        return call

    def call(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a coroutine function in the thread, and return its result, like `submit()` and `result()`."""
        return self.result(self.submit(function, *args, **kwargs))

    def ask(self, function: Callable[[], R]) -> R:
        """Call a plain function between two turns of the loop, and return its result, like `result()`.

        In the thread itself this calls it at once.
        """
        if self.is_here:
            return function()
        call: Future[R] = concurrent.futures.Future()

        def answer() -> None:
            try:
                given = function()
            except BaseException as error:
                self._settle(call, None, error)
            else:
                self._settle(call, given)

        self._send(call, answer)
        return self.result(call)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call back in the thread's loop, without waiting. If the thread has ended, nothing happens."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(callback, *arguments)

    def result(self, call: Future[R], timeout: float | None = None) -> R:
        """Wait for a call's outcome. An abandoned wait (time-out, Ctrl-C) cancels the call.

        Args:
            call: The result of `submit()`.
            timeout: Seconds; `None` waits as long as the thread lives.

        Raises:
            ThreadBusyError: if there was no outcome in time.
            ThreadEndedError: if the thread ends first.
            RuntimeError: if called in the thread itself, which would wait for itself.
        """
        if self.is_here and not call.done():
            raise RuntimeError(f"the thread {self._thread.name!r} would wait for itself")
        until = time.monotonic() + (float("inf") if timeout is None else timeout)
        try:
            while not call.done():
                left = until - time.monotonic()
                if left <= 0:
                    raise ThreadBusyError(f"the event loop of {self._thread.name!r} did not answer in time")
                concurrent.futures.wait([call], min(left, _LOOKS_EVERY))
                if not self._thread.is_alive() and not call.done():
                    raise self._ended()
            return call.result()
        except BaseException:
            if not call.cancel():  # it has begun
                self.call_soon(self._cancel, call)
            raise

    # -- the end ---

    def stop(self) -> None:
        """Begin to end the thread: cancel its tasks, which have some seconds to end."""
        self.call_soon(self._stop)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end.

        Args:
            timeout: Seconds; `None` waits until it has ended.

        Returns:
            Whether it has ended.
        """
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread ---

    def _stop(self) -> None:
        if not self._has_ended:  # a second stop would interrupt the clean-up
            self.loop.stop()

    def _run(self) -> None:
        try:
            try:
                self.loop.run_forever()
            except BaseException as error:  # such as SystemExit in a callback; every call reports it
                self._end = error
            self._has_ended = True
            self._cancel_tasks()
        finally:
            for call in list(self._calls):
                self._settle(call, None, self._ended())
            self.loop.close()

    def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_BOUND))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def _send(self, call: Future[Any], begin: Callable[[], None]) -> None:
        """Schedule a call in the loop, unless it is over by then."""

        def begin_if_wanted() -> None:
            if not self._has_ended and not call.done() and call.set_running_or_notify_cancel():
                begin()
            else:
                self._calls.pop(call, None)

        if not self.is_alive:
            raise self._ended()
        self._calls[call] = None
        try:
            self.loop.call_soon_threadsafe(begin_if_wanted)
        except RuntimeError:
            self._calls.pop(call, None)
            raise self._ended() from self._end
        if self._has_ended:
            # It ended after the checks above: `_run()` may already have settled the calls in its list.
            self._settle(call, None, self._ended())

    def _answer(self, call: Future[Any], task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._settle(call, None, self._ended())
        elif (error := task.exception()) is not None:
            self._settle(call, None, error)
        else:
            self._settle(call, task.result())

    def _settle(self, call: Future[Any], given: Any, error: BaseException | None = None) -> None:
        self._calls.pop(call, None)
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has an outcome already
            if error is None:
                call.set_result(given)
            else:
                call.set_exception(error)

    def _ended(self) -> ThreadEndedError:
        error = ThreadEndedError(f"the event loop's thread {self._thread.name!r} has ended")
        error.__cause__ = self._end
        return error

    def _cancel(self, call: Future[Any]) -> None:
        task = self._calls.get(call)
        if task is not None:
            task.cancel()


def new_loop() -> asyncio.AbstractEventLoop:
    """Make uvloop's loop if it is installed: asyncio's copies bytes that a socket does not accept at once."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def name_of(function: Callable[..., object]) -> str:
    """Return a function's name, for the name of its task."""
    while isinstance(function, partial):
        function = function.func
    return function.__name__.strip("_")
