"""The driver for asyncio, and for uvloop, which has the same interface.

One task brings the core to rest and sleeps until a fact or a timer (`drivers.core_step`). Sockets are
`asyncio.Protocol`s whose callbacks report facts.

Invariants, beyond those of `drivers.base` and `drivers.core_step`:

1. The loop calls `pause_writing` at the first byte that stays in the transport's buffer (high-water mark 0), and
   `resume_writing` when it is empty: "writable" therefore means that the transport holds none of our bytes.
2. Steps run in callbacks of the loop, one in a turn. The sender task only waits for their end, and its cancellation
   ends them. Waking a task for each step costs as much as the step of a lone record.
3. Waiters' conditions are never contended: `notify()` acquires the lock without suspending, since nobody holds it
   across a suspension.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast, final

from aioproduce.drivers.compression_workers import compression_threads
from aioproduce.drivers.core_step import FOREVER, CoreStep
from aioproduce.drivers.in_process import Link
from aioproduce.drivers.offloading import run_in_thread, without_frames
from aioproduce.drivers.running_loop import asyncio_lookup
from aioproduce.drivers.sockets import failed_attempt, set_buffer_sizes
from aioproduce.security.mechanism import Work

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextvars import Context

    from aioproduce._native.delivery import BatchResult
    from aioproduce._native.tuple_outcomes import TupleOutcomes
    from aioproduce.config import ProducerConfig
    from aioproduce.core.effects import Connect
    from aioproduce.drivers.base import Core
    from aioproduce.drivers.core_step import Connection
    from aioproduce.drivers.in_process import Dial
    from aioproduce.metrics import ProducerMetrics


@final
class AsyncioRuntime:
    """The functions of an asyncio loop that delivery futures use.

    Attributes:
        outcomes: The outcomes that futures return instead of our own classes; `None` for our own.
        is_quiet: Whether nobody is left to wake: the loop is closed, and pending deliveries are being settled.
    """

    __slots__ = ("_held", "_is_holding", "_loop", "_on_unobserved", "is_quiet", "outcomes")

    wait = None  # a task suspends on the delivery's own watcher

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_unobserved: Callable[[str, int, BaseException, int], None]
    ) -> None:
        self._loop = loop
        self._on_unobserved = on_unobserved
        self._is_holding = False
        self._held: tuple[Callable[..., object], Any] | None = None
        self.is_quiet: bool = False
        self.outcomes: TupleOutcomes | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Schedule a callback for the loop's next turn; `run_held()` runs the first one after `hold()`."""
        if self.is_quiet:
            return
        if self._is_holding and self._held is None:
            self._held = (callback, argument)
        else:
            self._loop.call_soon(callback, argument, context=context)

    def hold(self) -> None:
        """Hold the first callback back, until `run_held()`."""
        self._is_holding = True

    def run_held(self) -> None:
        """Run the callback that was held back: tasks that wait for an answer are woken without another turn.

        An error that must end the loop is raised in a callback of the loop. A transport would take it for an error
        of its protocol, and close.
        """
        self._is_holding = False
        held, self._held = self._held, None
        if held is None:
            return
        callback, argument = held
        try:
            callback(argument)
        except (KeyboardInterrupt, SystemExit) as error:
            self._loop.call_soon(_raise, error)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """Report the error to the loop's exception handler, as the loop does for its own callbacks."""
        self._loop.call_exception_handler(
            {"message": f"Exception in the done-callback {callback!r} of a delivery", "exception": error}
        )

    def cancelled_error(self, message: object) -> BaseException:
        """Return the error that `asyncio.Future` raises."""
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def invalid_state_error(self, message: str) -> BaseException:
        """Return the error that `asyncio.Future` raises."""
        return asyncio.InvalidStateError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Report failed records that nobody asked for; the garbage collector may call this in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_unobserved, topic, partition, error, count)


def _raise(error: BaseException) -> NoReturn:
    raise error


@final
class AsyncioWaiter:
    """The wait of one task, with its own condition, so that each wake-up wakes one task."""

    __slots__ = ("_condition", "_is_notified", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._condition = asyncio.Condition()
        self._is_notified = False

    def notify(self) -> None:
        """Wake the task."""
        self._is_notified = True
        if self._loop.is_closed():
            return  # it never runs again
        acquire = self._condition.acquire()
        try:
            acquire.send(None)
        except StopIteration:
            self._condition.notify()
            self._condition.release()
        else:
            acquire.close()
            raise RuntimeError("a waiter's lock is never held across a suspension")

    async def wait(self, deadline: float) -> bool:
        """Suspend until notified, at most until the deadline."""
        if self._is_notified:
            return True
        try:
            async with asyncio.timeout_at(None if deadline == FOREVER else deadline), self._condition:
                await self._condition.wait_for(lambda: self._is_notified)
        except TimeoutError:
            # It may be notified in the same turn as the time-out: what was granted must not be lost.
            return self._is_notified
        return True


@final
class _Alarm:
    """A movable timer of the loop: see `core_step.Alarm`."""

    __slots__ = ("_came", "_loop", "_timer", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, came: Callable[[float], None]) -> None:
        self._loop = loop
        self._came = came
        self._timer: asyncio.TimerHandle | None = None
        self.at: float = FOREVER

    def set(self, at: float) -> None:
        """Call back at this instant instead of the earlier one."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        at, self.at = self.at, FOREVER
        self._came(at)

    def cancel(self) -> None:
        """Never call back again."""
        if self._timer is not None:
            self._timer.cancel()


def _say_nothing_of_its_end(task: asyncio.Task[None]) -> None:
    """Suppress asyncio's "Task was destroyed but it is pending!", as `asyncio.gather()` does.

    `on_death` reports what was lost with a loop that no longer runs.
    """
    task._log_destroy_pending = False  # type: ignore[attr-defined]


class _Connection(asyncio.Protocol):
    """An attempt to connect, and its transport. It reports facts with its connection id."""

    def __init__(
        self, core: CoreStep, connection_id: int, config: ProducerConfig, runtime: AsyncioRuntime
    ) -> None:
        self._core = core
        self._runtime = runtime
        self._connection_id = connection_id
        self._config = config
        self.attempt: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_buffer_sizes(sock, self._config)
        self._core.connected(self._connection_id)

    def data_received(self, data: bytes) -> None:
        self._runtime.hold()
        try:
            self._core.received(self._connection_id, data)
        finally:  # also if a signal's handler raised: what is held back must not wait for the next answer
            self._runtime.run_held()

    def eof_received(self) -> None:
        """Let the transport close: the peer sends no more, so no answer will arrive."""

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._core.written(self._connection_id)

    def connection_lost(self, exc: Exception | None) -> None:
        self._core.disconnected(self._connection_id, exc)

    def write(self, buffers: Any) -> None:
        """Write a request's buffers; `written` follows now, or when the transport's buffer is empty."""
        transport = self.transport
        assert transport is not None
        if transport.is_closing():
            return  # connection_lost is on its way and accounts for the request
        transport.writelines(buffers)
        if self._is_paused:
            return
        if transport.get_write_buffer_size() == 0:
            self._core.written_at_once(self._connection_id)
        else:
            # CPython 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 do not check the limits in writelines()
            # (CVE-2024-12254), and a transport that is not paused never resumes. Setting the limits checks them.
            transport.set_write_buffer_limits(high=0)

    def abort(self) -> None:
        """Give up the attempt, or drop the transport and its unsent bytes."""
        if self.transport is not None:
            self.transport.abort()
        elif self.attempt is not None:
            self.attempt.cancel()


@final
class _Link(Link):
    """A link that wakes the tasks that wait for an answer without another turn, as a socket does."""

    __slots__ = ("_runtime",)

    def __init__(self, core: CoreStep, connection_id: int, runtime: AsyncioRuntime) -> None:
        super().__init__(core, connection_id)
        self._runtime = runtime

    def received(self, data: bytes) -> None:
        self._runtime.hold()
        try:
            super().received(data)
        finally:
            self._runtime.run_held()


@final
class AsyncioDriver:
    """Runs one core on the running asyncio loop."""

    _on_death: Callable[[BaseException], None]

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        on_unobserved: Callable[[str, int, BaseException, int], None],
        dial: Dial | None = None,
    ) -> None:
        self._dial = dial
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._loop = loop = self.loop
        # In trio's guest mode asyncio's loop also runs during a trio task, but is not that task's loop.
        self.running_loop: Callable[[], object] = asyncio_lookup()
        self.is_running: Callable[[], bool] = loop.is_running
        self.current_task: Callable[[], object] = asyncio.current_task
        self.now: Callable[[], float] = loop.time
        self._config = config
        self.runtime: AsyncioRuntime = AsyncioRuntime(loop, on_unobserved)
        # A simulated loop has its own clock, and no threads.
        self.wall_ms: Callable[[], int] | None = getattr(loop, "wall_ms", None)
        self.make_executor: Callable[[], Executor] = getattr(loop, "make_executor", compression_threads)
        self.call_in_loop: Callable[[Callable[[], None]], object] = loop.call_soon_threadsafe
        # uvloop's clock stands still within a turn of the loop, so it cannot time work.
        is_simulated = self.wall_ms is not None
        self.work_clock: Callable[[], float] = loop.time if is_simulated else time.monotonic
        self.is_now_exact: bool = is_simulated or type(loop).time is asyncio.BaseEventLoop.time
        self._alarms: list[_Alarm] = []
        self._attempts: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] = loop.create_future()
        self._is_due = False
        self._before_step: list[Callable[[], None]] = []
        self._context: Context | None = None
        self.ended_with_loop: bool = False
        self.core: CoreStep = CoreStep(self, metrics)

    # -- the seam ---

    @property
    def has_ended(self) -> bool:
        """Whether the loop is closed."""
        return self._loop.is_closed()

    def look_for_end(self) -> None:
        """Detect a loop that `loop.close()` closed without ending its tasks."""
        if self.has_ended and not self.core.is_dead and self._task is not None and not self._task.done():
            self.core.is_dead = True
            self._thrown_away()

    def make_waiter(self) -> AsyncioWaiter:
        """Return a waiter for the calling task."""
        return AsyncioWaiter()

    async def yield_once(self) -> None:
        """Yield one turn of the loop."""
        await asyncio.sleep(0)

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn."""
        self._loop.call_soon(callback)

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call back by the step that is due, or in the loop's next turn."""
        if self._is_due:
            self._before_step.append(callback)
        else:
            self._loop.call_soon(callback)

    def start(
        self,
        sender: Core,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Start the sender task."""
        self._on_death = on_death
        self.core.start(sender, on_settled, self._thrown_away)
        self._context = copy_context()
        self._task = self._loop.create_task(self._run(), name=f"aioproduce sender {self._config.client_id}")
        self._task.add_done_callback(partial(self._task_done, on_death))
        _say_nothing_of_its_end(self._task)
        self.wake()

    async def _run(self) -> None:
        """Wait for the end of the steps; a cancellation ends them."""
        try:
            await self._end
        except BaseException as error:
            self.core.ended_by(error)
            raise

    def wake(self) -> None:
        """Have a step run in the loop's next turn."""
        if not self._is_due and self._context is not None:
            self._is_due = True
            if self.core.woken_at == FOREVER:
                self.core.woken_at = self.now()
            self._loop.call_soon(self._step, context=self._context)

    def _step(self) -> None:
        self._is_due = False
        while self._before_step:
            self._before_step.pop()()
        if self._end.done():
            return  # cancelled with the task
        try:
            has_work = self.core.step()
        except StopIteration as error:
            # A future refuses it, and a coroutine makes a RuntimeError of it.
            failure = RuntimeError("a step of the core raised StopIteration")
            failure.__cause__ = error
            self._end.set_exception(failure)
            return
        except BaseException as error:
            self._end.set_exception(error)
            return
        if self.core.is_over:
            self._end.set_result(None)
        elif has_work:
            # A callback may have sent a record, for example. The loop still gets its turn.
            self.wake()

    async def join(self, deadline: float) -> bool:
        """Wait for the sender task."""
        assert self._task is not None, "join() needs start()"
        timeout = None if deadline == FOREVER else max(deadline - self.now(), 0)
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        return bool(done)

    def body(self) -> contextlib.AbstractContextManager[object]:
        """Return a null context: a task is not cancelled for an error that its next call reports."""
        return contextlib.nullcontext()

    def shielded(self) -> contextlib.AbstractContextManager[object]:
        """Return a null context: a cancelled asyncio task may still wait."""
        return contextlib.nullcontext()

    async def end_aborted(self, deadline: float) -> bool:  # noqa: ARG002
        """Return true without waiting: the loop continues to run."""
        return True

    async def kill(self) -> None:
        """Cancel the sender task and drop every socket."""
        self._drop_sockets()
        if self._task is not None and not self._task.done():
            self.core.is_killed = True
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._attempts:
            for attempt in self._attempts:
                attempt.cancel()
            await asyncio.wait(list(self._attempts))

    # -- what the core's step asks for ---

    def make_alarm(self, came: Callable[[float], None]) -> _Alarm:
        """Return an alarm, which is a timer of the loop."""
        self._alarms.append(alarm := _Alarm(self._loop, came))
        return alarm

    def connect(self, effect: Connect) -> Connection:
        """Begin to connect."""
        if self._dial is not None:
            return self._dial(effect, _Link(self.core, effect.connection_id, self.runtime))
        connection = _Connection(self.core, effect.connection_id, self._config, self.runtime)
        connection.attempt = attempt = self._loop.create_task(
            self._connect(connection, effect), name=f"aioproduce connect {effect.host}:{effect.port}"
        )
        self._attempts.add(attempt)
        _say_nothing_of_its_end(attempt)
        attempt.add_done_callback(partial(self._attempt_done, effect, connection))
        return connection

    def offload(self, work: Work, ended: Callable[[object], None]) -> None:
        """Run work in a thread, or in a task of the loop."""
        if not work.is_async:
            run_in_thread(work, ended, self.call_in_loop, self._simulated_executor())
            return
        task = self._loop.create_task(self._await(work, ended), name=f"aioproduce {work.what}")
        self._attempts.add(task)
        _say_nothing_of_its_end(task)
        task.add_done_callback(self._attempts.discard)

    async def _await(self, work: Work, ended: Callable[[object], None]) -> None:
        try:
            outcome: object = await work.run()
        except Exception as error:
            outcome = without_frames(error)
        ended(outcome)

    def _simulated_executor(self) -> Executor | None:
        """Return the executor that replaces threads in a simulated loop, else `None`."""
        return None if self.wall_ms is None else self.make_executor()

    async def _prepare(self, prepare: Callable[[], None]) -> None:
        """Read key files in a thread: the disk may be slow."""
        ended: asyncio.Future[object] = self._loop.create_future()
        run_in_thread(
            Work(prepare, what="key files"),
            lambda outcome: None if ended.done() else ended.set_result(outcome),
            self.call_in_loop,
            self._simulated_executor(),
        )
        outcome = await ended
        if isinstance(outcome, BaseException):
            raise outcome

    async def _connect(self, connection: _Connection, effect: Connect) -> None:
        if effect.prepare is not None:
            await self._prepare(effect.prepare)
        # This resolves the name for each attempt, and tries its addresses in turn (KIP-302).
        await self._loop.create_connection(lambda: connection, effect.host, effect.port)

    def _attempt_done(self, effect: Connect, connection: _Connection, attempt: asyncio.Task[None]) -> None:
        # A callback, not the end of `_connect()`: a task that is cancelled before its first step runs none of it.
        self._attempts.discard(attempt)
        connection.attempt = None
        failure = asyncio.CancelledError() if attempt.cancelled() else attempt.exception()
        if failure is None:
            return
        # If it was given up between `connection_made` and the end of create_connection(), uvloop closes the
        # transport without a call to the protocol. asyncio makes that call a second time, and the core ignores it.
        connection.abort()
        self.core.disconnected(effect.connection_id, failed_attempt(failure, effect))

    # -- the end ---

    def _task_done(self, on_death: Callable[[BaseException], None], task: asyncio.Task[None]) -> None:
        self._end.cancel()  # of no effect, unless the task was cancelled before its first line
        self.core.compression.close()
        for alarm in self._alarms:
            alarm.cancel()
        for attempt in self._attempts:  # for example a provider of credentials that hangs
            attempt.cancel()
        if task.cancelled() and self.core.is_killed:
            return
        if task.cancelled():
            self.core.is_dead = True  # also if the task was cancelled before its first line
            self.ended_with_loop = True
            on_death(
                asyncio.CancelledError(
                    "the event loop cancelled its tasks, as asyncio.run() does at its end, before the producer was "
                    "closed"
                )
            )
        elif (error := task.exception()) is not None:
            on_death(error)
        else:
            return
        self._drop_sockets()

    def _thrown_away(self) -> None:
        """End without a running sender task: the loop was closed or dropped, and cancelled nothing."""
        self.ended_with_loop = True
        self.core.compression.close()
        self.runtime.is_quiet = self._loop.is_closed()
        try:
            self._on_death(RuntimeError("the event loop was closed before the producer was"))
        finally:
            self.runtime.is_quiet = False

    def _drop_sockets(self) -> None:
        for connection in list(self.core.connections.values()):
            connection.abort()
