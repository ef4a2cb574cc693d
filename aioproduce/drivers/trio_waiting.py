"""How tasks of trio's wait: for a delivery, and for what the producer has one task wait for.

Invariants:

1. A task is rescheduled once per wait: by what it waited for, or, where trio asked first, by its cancellation.
   A delivery that is done when trio asks is not given up: its wake-up is on its way, and cancels nothing.
2. Every wait is a checkpoint, also one that finds its event there already.
3. Whatever wakes a task does so within trio's thread; `unobserved_failure()` may come from any.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from aioproduce.errors import WrongEventLoopError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from aioproduce._native.delivery import DeliveryFuture

_log: Final = logging.getLogger("aioproduce")


@final
class TrioRuntime:
    """What delivery futures need of a trio run.

    Args:
        token: The run's.
        call_soon: Has a callable called in the run's next turn.
        on_unobserved: Called with what nobody asked for.
    """

    __slots__ = ("_call_soon", "_on_unobserved", "_token")

    def __init__(
        self,
        token: trio.lowlevel.TrioToken,
        call_soon: Callable[[Callable[..., object], Any, Context | None], None],
        on_unobserved: Callable[[str, int, BaseException, int], None],
    ) -> None:
        self._token = token
        self._call_soon = call_soon
        self._on_unobserved = on_unobserved

    def get_loop(self) -> trio.lowlevel.TrioToken:
        """The token of the run."""
        return self._token

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Schedule a done-callback."""
        self._call_soon(callback, argument, context)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """Logged: trio has nobody to tell of what no task waits for."""
        _log.error("the done-callback %r of a delivery failed", callback, exc_info=error)

    def cancelled_error(self, message: object) -> BaseException:
        """Of `concurrent.futures`: trio's own belongs to a cancel scope, and this to a handle."""
        what = "this handle of the delivery was cancelled by its cancel(); the record goes on"
        return concurrent.futures.CancelledError(what if message is None else message)

    def invalid_state_error(self, message: str) -> BaseException:
        """Of `concurrent.futures`, likewise."""
        return concurrent.futures.InvalidStateError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Records failed that nobody asked for; the garbage collector may tell, at any point, in any thread."""
        # Of a run that is over as of a closed loop: nobody is left to be told.
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._on_unobserved, topic, partition, error, count)

    async def wait(self, delivery: DeliveryFuture, is_quiet: bool) -> Any:
        """Suspend the task until the delivery is done; give its outcome, or with `is_quiet` nothing."""
        if token_here() is not self._token:
            raise WrongEventLoopError(
                "this delivery belongs to a producer in another trio run than this task: await it where it was "
                "sent, or reach that run with trio.from_thread.run(..., trio_token=)"
            )
        if delivery.done():
            await trio.lowlevel.checkpoint()
        else:
            parked = _Parked(delivery)
            delivery.add_done_callback(parked.wake)
            await wait_task_rescheduled(parked.give_up)
        return None if is_quiet else delivery.result()


@final
class _Parked:
    """A task that waits for a delivery."""

    __slots__ = ("_delivery", "_task")

    def __init__(self, delivery: DeliveryFuture) -> None:
        self._delivery = delivery
        self._task = current_task()

    def wake(self, _: object) -> None:
        reschedule(self._task)

    def give_up(self, _: object) -> Abort:
        if self._delivery.done():
            return Abort.FAILED  # invariant 1
        self._delivery.remove_done_callback(self.wake)
        return Abort.SUCCEEDED


@final
class TrioWaiter:
    """One task's place to wait."""

    __slots__ = ("_is_notified", "_task")

    def __init__(self) -> None:
        self._is_notified = False
        self._task: trio.lowlevel.Task | None = None

    def notify(self) -> None:
        """Wake the task."""
        self._is_notified = True
        task, self._task = self._task, None
        if task is not None:
            reschedule(task)

    async def wait(self, deadline: float) -> bool:
        """Suspend until notified, at most until the deadline."""
        if self._is_notified:
            await trio.lowlevel.checkpoint()
            return True
        with trio.CancelScope(deadline=deadline):
            self._task = current_task()
            await wait_task_rescheduled(self._give_up)
        # Notified in the same turn as the time-out: what was granted must not be lost.
        return self._is_notified

    def _give_up(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED


@final
class Alarm:
    """A task that sleeps until an instant, which may be moved, and calls back with it; then until the next one.

    Args:
        came: Called in that task with the instant that it was set for.
    """

    __slots__ = ("_came", "_scope", "at")

    def __init__(self, came: Callable[[float], None]) -> None:
        self._came = came
        self._scope: trio.CancelScope | None = None
        self.at: float = float("inf")

    def set(self, at: float) -> None:
        """Call back then, and not when it was set for before."""
        self.at = at
        if self._scope is not None:
            self._scope.deadline = at

    async def run(self) -> None:
        """Be that task, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self.at) as self._scope:
                await trio.sleep_forever()
            at, self.at = self.at, float("inf")
            self._came(at)


def token_here() -> trio.lowlevel.TrioToken | None:
    """The token of the run whose task calls, or `None`: the host of a guest run is none of its tasks."""
    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_task() else None
