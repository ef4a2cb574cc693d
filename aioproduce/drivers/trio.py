"""The driver for trio: it runs the core in a nursery of its own, within a system task.

Why a system task, and not a nursery that `async with producer:` holds open: `start()` and `close()` are separate
calls, maybe in two scopes of the user, and a nursery left open between them would break trio's nesting. Also, an
orderly close must outlive a cancelled scope around it. The guarantees of a nursery hold nevertheless: when the
sender dies, `body()` cancels the body of the `async with`, whose end then raises. The run cancels system tasks when
its main task ends, so that nothing outlives it.

Invariants, beyond those of `drivers.base` and `drivers.core_step`:

1. All tasks of a producer are in one nursery: the sender's, its two alarms, and one or two for each connection. The
   nursery ends with the sender, and raises nothing into the run.
2. Callbacks run in the sender's task, between its steps: never within the call that settles a delivery, and without
   waking another task. When the task ends, the run gets the remaining callbacks.
3. Nothing suspends while a fact is processed; all waits follow `trio_waiting`.
4. A cancelled scope waits in a shield with a deadline for what must still end.
5. `now()` is the run's clock, which any thread may read, also after the run.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, final

import trio
from trio.lowlevel import Abort, reschedule, wait_task_rescheduled

from aioproduce.drivers.compression_workers import compression_threads
from aioproduce.drivers.core_step import CoreStep
from aioproduce.drivers.in_process import Link
from aioproduce.drivers.offloading import run_in_thread, without_frames
from aioproduce.drivers.trio_connection import TrioConnection
from aioproduce.drivers.trio_waiting import Alarm, TrioRuntime, TrioWaiter, token_here

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from aioproduce._native.delivery import BatchResult
    from aioproduce.config import ProducerConfig
    from aioproduce.core.effects import Connect
    from aioproduce.drivers.base import Core
    from aioproduce.drivers.core_step import Connection
    from aioproduce.drivers.in_process import Dial
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.mechanism import Work


@final
class TrioDriver:
    """Runs one core in the trio run that makes it."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        on_unobserved: Callable[[str, int, BaseException, int], None],
        dial: Dial | None = None,
    ) -> None:
        self._dial = dial
        self._token = trio.lowlevel.current_trio_token()
        self.loop: object = self._token
        self.running_loop: Callable[[], object] = token_here
        # It means this run: no other run begins in this thread before this one and its sender task are over.
        self.is_running: Callable[[], bool] = trio.lowlevel.in_trio_task
        self.current_task: Callable[[], object] = trio.lowlevel.current_task
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        self.wall_ms: Callable[[], int] | None = None
        self.make_executor: Callable[[], Executor] = compression_threads
        self.call_in_loop: Callable[[Callable[[], None]], object] = self._token.run_sync_soon
        self.work_clock: Callable[[], float] = time.monotonic
        self.is_now_exact = False
        self._config = config
        self.runtime: TrioRuntime = TrioRuntime(self._token, self._call_soon, on_unobserved)
        self._callbacks: deque[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context | None]] = (
            deque()
        )
        self._nursery: trio.Nursery | None = None
        self._task: trio.lowlevel.Task | None = None
        self._sleeper: trio.lowlevel.Task | None = None
        self._alarms: list[Alarm] = []
        self._body: trio.CancelScope | None = None
        self._is_woken = False
        self._ended = trio.Event()
        self.ended_with_loop: bool = False
        self.core: CoreStep = CoreStep(self, metrics)

    # -- the seam ---

    @property
    def has_ended(self) -> bool:
        """Whether the sender's nursery has ended, at the latest with its run."""
        return self._ended.is_set()

    def look_for_end(self) -> None:
        """Do nothing: a trio run always ends its tasks."""

    def make_waiter(self) -> TrioWaiter:
        """Return a waiter for the calling task."""
        return TrioWaiter()

    async def yield_once(self) -> None:
        """Yield one turn of the run; raise if the task is cancelled."""
        await trio.lowlevel.checkpoint()

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in the run's next turn."""
        self._callbacks.append((callback, (), None))
        self._rouse()

    on_turn = on_next_turn

    def start(
        self,
        sender: Core,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Start the sender's task."""
        self.core.start(sender, on_settled)
        self._task = trio.lowlevel.spawn_system_task(
            self._supervise,
            on_death,
            name=f"aioproduce sender {self._config.client_id}",
            context=contextvars.copy_context(),
        )

    def wake(self) -> None:
        """Wake the sender's task."""
        self._is_woken = True
        if self._sleeper is not None:
            self.core.woken_at = min(self.core.woken_at, self.now())
            self._rouse()

    async def join(self, deadline: float) -> bool:
        """Wait for the sender's task."""
        with trio.CancelScope(deadline=deadline):
            await self._ended.wait()
        return self._ended.is_set()

    def body(self) -> AbstractContextManager[object]:
        """Return a scope that the sender's death cancels."""
        self._body = trio.CancelScope()
        return self._body

    def shielded(self) -> AbstractContextManager[object]:
        """Return a scope that outer cancellations do not reach."""
        return trio.CancelScope(shield=True)

    async def end_aborted(self, deadline: float) -> bool:
        """Call `join()`, shielded from outer cancellations."""
        with trio.CancelScope(shield=True, deadline=deadline):
            await self._ended.wait()
        return self._ended.is_set()

    async def kill(self) -> None:
        """Cancel the sender's nursery, and with it every socket's task."""
        if not self._ended.is_set():
            self.core.is_killed = True
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    # -- the sender's task ---

    async def _supervise(self, on_death: Callable[[BaseException], None]) -> None:
        death: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    if not self.core.is_killed:
                        for alarm in self._alarms:
                            self._nursery.start_soon(alarm.run)
                        await self.core.run(self.rest)
                except Exception as error:
                    death = error
                finally:
                    self._nursery.cancel_scope.cancel()
        except (trio.Cancelled, BaseExceptionGroup) as error:
            death = death or _first(error)
        except BaseException as error:  # from a callback, to end the process
            death = error
        self._end(death, on_death)

    def _end(self, death: BaseException | None, on_death: Callable[[BaseException], None]) -> None:
        """Report the end of the nursery, and run or hand over what is left."""
        if isinstance(death, trio.Cancelled):
            death = None
        if death is None and self.core.is_dead:
            self.ended_with_loop = True
            death = trio.RunFinishedError("the trio run ended before the producer was closed")
        self.core.compression.close()
        is_fatal = death is not None and not isinstance(death, Exception)
        if death is not None:
            on_death(death)
            if self._body is not None:
                self._body.cancel()
        self._task = None
        self._run_callbacks()
        while self._callbacks:
            callback, arguments, context = self._callbacks.popleft()
            self._in_the_run(callback, arguments, context)
        self._ended.set()
        if is_fatal and self._body is None:
            assert death is not None
            raise death

    # -- what the core's step asks for ---

    def make_alarm(self, came: Callable[[float], None]) -> Alarm:
        """Return an alarm, which is a task of the nursery."""
        self._alarms.append(alarm := Alarm(came))
        return alarm

    def connect(self, effect: Connect) -> Connection:
        """Begin to connect."""
        if self._dial is not None:
            return self._dial(effect, Link(self.core, effect.connection_id))
        assert self._nursery is not None
        connection = TrioConnection(self.core, effect, self._config, self._nursery)
        self._nursery.start_soon(connection.run, name=f"aioproduce connection {effect.host}:{effect.port}")
        return connection

    def offload(self, work: Work, ended: Callable[[object], None]) -> None:
        """Run work in a thread, or in a task of the nursery."""
        if work.is_async:
            assert self._nursery is not None
            self._nursery.start_soon(self._await, work, ended, name=f"aioproduce {work.what}")
        else:
            run_in_thread(work, ended, self.call_in_loop)

    async def _await(self, work: Work, ended: Callable[[object], None]) -> None:
        try:
            outcome: object = await work.run()
        except Exception as error:
            outcome = without_frames(error)
        ended(outcome)

    async def rest(self, has_work: bool) -> None:
        """Run callbacks, and sleep until `wake()`; yield only one turn if the core has work."""
        if has_work:
            # A callback may have sent a record, for example. Other tasks still get their turn.
            await trio.lowlevel.checkpoint()
            self._run_callbacks()
        else:
            self._run_callbacks()
            while not self._is_woken:
                if self._callbacks:
                    await trio.lowlevel.checkpoint()
                else:
                    self._sleeper = self._task
                    await wait_task_rescheduled(self._not_asleep)
                self._run_callbacks()
        self._is_woken = False

    def _not_asleep(self, _: object) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED

    def _rouse(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            reschedule(sleeper)

    # -- callbacks ---

    def _call_soon(
        self, callback: Callable[..., object], argument: Any, context: contextvars.Context | None
    ) -> None:
        if self._ended.is_set():
            self._in_the_run(callback, (argument,), context)
            return
        self._callbacks.append((callback, (argument,), context))
        self._rouse()

    def _run_callbacks(self) -> None:
        """Run the callbacks that are due now; those that they add wait for the next turn."""
        callbacks = self._callbacks
        for _ in range(len(callbacks)):
            callback, arguments, context = callbacks.popleft()
            if context is None:
                callback(*arguments)
            else:
                context.run(callback, *arguments)

    def _in_the_run(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        if context is None:
            self._token.run_sync_soon(callback, *arguments)
        else:
            self._token.run_sync_soon(context.run, callback, *arguments)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
