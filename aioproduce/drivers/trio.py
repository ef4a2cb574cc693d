"""The driver for trio: the same core, in a nursery of its own within a system task.

Why a system task, and not a nursery that `async with producer:` holds open: `start()` and `close()` are calls
of their own, also in two scopes of the user's, and a nursery left open between them would break trio's
nesting; and what closes the producer in an orderly way must outlive the scope that is cancelled around it.
What a nursery would give is there all the same: `body()` cancels the body of the `async with` when the sender
dies, whose end then raises; the run cancels system tasks when its main task ends, so that nothing outlives it.

Invariants, beyond those of `drivers.base`:

1. All tasks of a producer are in one nursery: the sender's (`_run`), its two alarms, and one or two per
   connection. That nursery ends with the sender, and nothing of it raises into the run.
2. Callbacks run in the sender's task, between its steps: nothing is told within the call that settles it, and
   no other task is woken for that. What is left when the task ends is handed to the run.
3. Nothing suspends between a fact and its end; what waits, waits as `trio_waiting` says.
4. What a cancelled scope must still see ended is waited for in a shield with a deadline.
5. `now()` is the run's clock, and may be read from any thread, also when the run is over.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, final

import trio
from trio.lowlevel import Abort, reschedule, wait_task_rescheduled

from aioproduce.core.effects import Compress, Connect, Send
from aioproduce.drivers.compression_workers import CompressionWorkers, compression_threads
from aioproduce.drivers.trio_connection import TrioConnection
from aioproduce.drivers.trio_waiting import Alarm, TrioRuntime, TrioWaiter, token_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce._native.delivery import BatchResult
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Effect
    from aioproduce.core.sender import Sender
    from aioproduce.drivers.compression_workers import Finished
    from aioproduce.metrics import ProducerMetrics

_FOREVER: Final = float("inf")

# As the asyncio driver's: how often a busy loop's lateness is measured while answers are awaited.
_PULSE: Final = 0.1


@final
class TrioDriver:
    """Runs one core in the trio run that it is made in."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        on_unobserved: Callable[[str, int, BaseException, int], None],
    ) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.loop: object = self._token
        self.running_loop: Callable[[], object] = token_here
        # Of this run: no other begins in this thread before it is over, and with it the sender's task.
        self.is_running: Callable[[], bool] = trio.lowlevel.in_trio_task
        self.current_task: Callable[[], object] = trio.lowlevel.current_task
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        self.wall_ms: Callable[[], int] | None = None
        self._config = config
        self._metrics = metrics
        self.runtime = TrioRuntime(self._token, self._call_soon, on_unobserved)
        self._connections: dict[int, TrioConnection] = {}
        self._compression = CompressionWorkers(
            self._token.run_sync_soon, self.compressed, compression_threads
        )
        self._callbacks: deque[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context | None]] = (
            deque()
        )
        self._nursery: trio.Nursery | None = None
        self._task: trio.lowlevel.Task | None = None
        self._sleeper: trio.lowlevel.Task | None = None
        self._alarm = Alarm(self._alarm_came)
        self._pulse = Alarm(self._pulse_came)
        self._body: trio.CancelScope | None = None
        self._is_woken = False
        self._woken_at = _FOREVER
        self._worked = 0.0
        self._is_killed = False
        self._is_dead = False
        self._failure: BaseException | None = None
        self._ended = trio.Event()

    # -- the seam ---

    @property
    def has_ended(self) -> bool:
        """Whether the sender's nursery has ended, which it does at the latest with its run."""
        return self._ended.is_set()

    def make_waiter(self) -> TrioWaiter:
        """A waiter for the calling task."""
        return TrioWaiter()

    async def yield_once(self) -> None:
        """One turn of the run; raises if the task is cancelled."""
        await trio.lowlevel.checkpoint()

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in the run's next turn."""
        self._callbacks.append((callback, (), None))
        self._rouse()

    def start(
        self,
        sender: Sender,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Start the sender's task."""
        self._sender = sender
        self._on_settled = on_settled
        self._task = trio.lowlevel.spawn_system_task(
            self._supervise,
            on_death,
            name=f"aioproduce sender {self._config.client_id}",
            context=contextvars.copy_context(),
        )

    def wake(self) -> None:
        """Have the sender's task look at the core."""
        self._is_woken = True
        if self._sleeper is not None:
            self._woken_at = min(self._woken_at, self.now())
            self._rouse()

    async def join(self, deadline: float) -> bool:
        """Wait for the sender's task."""
        with trio.CancelScope(deadline=deadline):
            await self._ended.wait()
        return self._ended.is_set()

    def body(self) -> AbstractContextManager[object]:
        """A scope that the sender's death cancels."""
        self._body = trio.CancelScope()
        return self._body

    async def end_aborted(self, deadline: float) -> bool:
        """`join()`, whatever is cancelled around it."""
        with trio.CancelScope(shield=True, deadline=deadline):
            await self._ended.wait()
        return self._ended.is_set()

    async def kill(self) -> None:
        """Cancel the sender's nursery, and with it every socket's task."""
        if not self._ended.is_set():
            self._is_killed = True
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
                    if not self._is_killed:
                        self._nursery.start_soon(self._alarm.run)
                        self._nursery.start_soon(self._pulse.run)
                        await self._run()
                except Exception as error:
                    death = error
                finally:
                    self._nursery.cancel_scope.cancel()
        except (trio.Cancelled, BaseExceptionGroup) as error:
            death = death or _first(error)
        except BaseException as error:  # a callback's that is to end the process
            death = error
        self._end(death, on_death)

    def _end(self, death: BaseException | None, on_death: Callable[[BaseException], None]) -> None:
        """The nursery has ended: tell of it, and leave nothing to be done."""
        if isinstance(death, trio.Cancelled):
            death = None
        if death is None and self._is_dead:
            death = trio.RunFinishedError(
                "the sender task was cancelled: the trio run ended before the producer was closed"
            )
        self._compression.close()
        is_fatal = death is not None and not isinstance(death, Exception)
        if death is not None:
            self._is_dead = True
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

    async def _run(self) -> None:
        sender, metrics, work_clock = self._sender, self._metrics, time.monotonic
        timer_at: float | None = None
        slept_at = work_clock()
        try:
            while True:
                self._is_woken = False
                if self._failure is not None:
                    raise self._failure
                now = self.now()
                began_at = work_clock()
                if self._woken_at < now:
                    metrics.lagged(now - self._woken_at, now)
                self._woken_at = _FOREVER
                if timer_at is not None and timer_at <= now:
                    sender.handle_timer(now)
                while (effect := sender.next_effect(now)) is not None:
                    self._carry_out(effect)
                while sender.settled:
                    self._on_settled(sender.settled.popleft())
                if sender.is_closed:
                    break
                timer_at = sender.next_timer()
                worked, self._worked = self._worked, 0.0
                waited = began_at - slept_at - worked
                slept_at = work_clock()
                metrics.stepped(waited, slept_at - began_at + worked, now)
                if sender.has_work:
                    # A callback sent again, say. Others get their turn all the same.
                    await trio.lowlevel.checkpoint()
                    self._run_callbacks()
                else:
                    await self._rest(timer_at)
        except BaseException:
            self._is_dead = not self._is_killed
            raise

    async def _rest(self, until: float | None) -> None:
        """Call back, and sleep until the core has something to do."""
        self._run_callbacks()
        if self._is_woken:
            return
        if self._pulse.at == _FOREVER:
            self._feel_pulse()
        self._set_alarm(until)
        while not self._is_woken:
            if self._callbacks:
                await trio.lowlevel.checkpoint()
            else:
                self._sleeper = self._task
                await wait_task_rescheduled(self._not_asleep)
            self._run_callbacks()

    def _not_asleep(self, _: object) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED

    def _rouse(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            reschedule(sleeper)

    def _set_alarm(self, at: float | None) -> None:
        """Wake the task then, or before: one that comes too early costs less than to set it at every sleep."""
        if at is not None and at < self._alarm.at:
            self._alarm.set(at)

    def _alarm_came(self, at: float) -> None:
        self._woken_at = min(self._woken_at, at)  # late from when it was due
        self.wake()

    def _feel_pulse(self) -> None:
        if self._sender.connections.in_flight:
            self._pulse.set(self.now() + _PULSE)

    def _pulse_came(self, due_at: float) -> None:
        now = self.now()
        self._metrics.lagged(max(now - due_at, 0.0), now)
        self._feel_pulse()

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
        """Those that are due; what they ask for in their turn is for the next one."""
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

    # -- effects ---

    def _carry_out(self, effect: Effect | Compress[ProducerBatch]) -> None:
        if isinstance(effect, Send):
            connection = self._connections.get(effect.connection_id)
            if connection is not None:
                connection.write(effect.buffers)
        elif isinstance(effect, Connect):
            connection = TrioConnection(self, effect, self._config)
            self._connections[effect.connection_id] = connection
            assert self._nursery is not None
            self._nursery.start_soon(
                connection.run, name=f"aioproduce connection {effect.host}:{effect.port}"
            )
        elif isinstance(effect, Compress):
            self._compression.submit(effect)
        else:
            connection = self._connections.get(effect.connection_id)
            if connection is not None:
                connection.abort()

    # -- facts, reported by the connections ---

    def _report(self, fact: Callable[..., None], *what: Any) -> None:
        """Tell the core, and have the task look at it; a bug in it is the sender's death."""
        if self._is_dead:
            return
        try:
            fact(*what, self.now())
        except Exception as error:
            self._failure = error
        self.wake()

    def failed(self, error: Exception) -> None:
        """A bug of a connection's task: the sender dies of it."""
        self._failure = error
        self.wake()

    def connected(self, connection: TrioConnection) -> None:
        """A socket is there."""
        self._report(self._sender.connection_made, connection.connection_id)

    def has_rest(self, connection: TrioConnection) -> None:
        """A socket did not take all at once."""
        assert self._nursery is not None
        self._nursery.start_soon(connection.write_rest)

    def received(self, connection_id: int, data: bytes) -> None:
        """Bytes came."""
        if self._is_dead:
            return
        sender = self._sender
        began_at = time.monotonic()
        try:
            sender.receive_data(connection_id, data, self.now())
        except Exception as error:
            self.failed(error)
            return
        self._worked += time.monotonic() - began_at
        if sender.has_work or sender.settled:
            self.wake()
        else:
            # The task may go on sleeping, but maybe not as long as it meant to.
            self._set_alarm(sender.next_timer())

    def written(self, connection_id: int) -> None:
        """The system has taken what it did not take at once."""
        self._report(self._sender.writable, connection_id)

    def written_at_once(self, connection_id: int) -> None:
        """Likewise, told by the task itself, which looks at the core again anyway."""
        self._sender.writable(connection_id, self.now())

    def disconnected(self, connection_id: int, error: Exception | None) -> None:
        """A socket is closed, or never came to be."""
        self._connections.pop(connection_id, None)
        self._report(self._sender.connection_lost, connection_id, error)

    def compressed(self, finished: Iterable[Finished]) -> None:
        """Compression workers are done with these batches."""
        for batch, outcome in finished:
            if isinstance(outcome, bytes):
                self._report(self._sender.compressed, batch, outcome)
            else:
                self._report(self._sender.compression_failed, batch, outcome)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
