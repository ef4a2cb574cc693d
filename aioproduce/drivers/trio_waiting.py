"""The waits of trio tasks: for a delivery, and for one event of the producer.

Invariants:

1. A task is rescheduled once per wait: by its event, or by a cancellation if trio asks for that first. If the
   delivery is done when trio asks, the cancellation is refused: the wake-up is scheduled already.
2. Every wait is a checkpoint, also if its event has already happened.
3. Only trio's thread wakes a task; any thread may call `unobserved_failure()`.
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
    """The functions of a trio run that delivery futures use.

    Args:
        token: The run's token.
        call_soon: Calls a callable in the run's next turn.
        on_unobserved: Called with failures that nobody asked for.
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
        """Return the token of the run."""
        return self._token

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Schedule a done-callback."""
        self._call_soon(callback, argument, context)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """Log the error: trio has no handler for errors outside a task."""
        _log.error("the done-callback %r of a delivery failed", callback, exc_info=error)

    def cancelled_error(self, message: object) -> BaseException:
        """Return the error of `concurrent.futures`: trio's own belongs to a cancel scope, not to a handle."""
        what = "this handle of the delivery was cancelled by its cancel(); the record is still sent"
        return concurrent.futures.CancelledError(what if message is None else message)

    def invalid_state_error(self, message: str) -> BaseException:
        """Return the error of `concurrent.futures`."""
        return concurrent.futures.InvalidStateError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Report failed records that nobody asked for; the garbage collector may call this in any thread."""
        # After the run nobody is left to notify, as with a closed loop.
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._on_unobserved, topic, partition, error, count)

    async def wait(self, delivery: DeliveryFuture, is_quiet: bool) -> Any:
        """Suspend the task until the delivery is done; return its outcome, or `None` with `is_quiet`."""
        if token_here() is not self._token:
            raise WrongEventLoopError(
                "this delivery belongs to a producer in another trio run: await it in the run that sent it, or "
                "reach that run with trio.from_thread.run(..., trio_token=)"
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
    """The wait of one task."""

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
        # It may be notified in the same turn as the time-out: what was granted must not be lost.
        return self._is_notified

    def _give_up(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED


@final
class Alarm:
    """A task that sleeps until an instant, which may be moved, and calls back with it; then it waits for the next.

    Args:
        came: Called in that task with the instant that the alarm was set for.
    """

    __slots__ = ("_came", "_scope", "at")

    def __init__(self, came: Callable[[float], None]) -> None:
        self._came = came
        self._scope: trio.CancelScope | None = None
        self.at: float = float("inf")

    def set(self, at: float) -> None:
        """Call back at this instant instead of the earlier one."""
        self.at = at
        if self._scope is not None:
            self._scope.deadline = at

    async def run(self) -> None:
        """Run the task until it is cancelled."""
        while True:
            with trio.CancelScope(deadline=self.at) as self._scope:
                await trio.sleep_forever()
            at, self.at = self.at, float("inf")
            self._came(at)


def token_here() -> trio.lowlevel.TrioToken | None:
    """Return the token of the calling task's run, or `None`; the host of a guest run is not one of its tasks."""
    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_task() else None
