"""The driver for asyncio, and for uvloop, which has the same interface.

One task (`_run`) brings the core to rest and sleeps until a fact or a timer. Sockets are `asyncio.Protocol`s whose
callbacks report facts and wake that task; they never run the core's effects themselves.

Invariants, beyond those of `drivers.base`:

1. `pause_writing` is told at the first byte that stays in the transport's buffer (high-water mark 0), and
   `resume_writing` at none: "writable" therefore means that the transport holds nothing of ours.
2. The sleeper is a bare future, made per sleep; `wake()` is one attribute test when the task is awake.
3. A compression worker reports within the loop, as everything does (`CompressionWorkers`), to a core that was
   closed, too: memory comes back by that.
4. Waiters' conditions are never contended: `notify()` takes the lock without suspending, since nobody holds
   it across a suspension.
5. A bug in a fact, which some callback of the loop's reports, is the sender's death as one in its task is: what is
   torn is not gone on with. A core that died is told nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast, final

from aioproduce.core.effects import Compress, Connect, Send
from aioproduce.drivers.choice import asyncio_lookup
from aioproduce.drivers.compression_workers import CompressionWorkers, compression_threads
from aioproduce.drivers.sockets import reason, set_buffer_sizes
from aioproduce.errors import BrokerConnectionError

if TYPE_CHECKING:
    from contextvars import Context

    from aioproduce._native.delivery import BatchResult
    from aioproduce._native.tuple_outcomes import TupleOutcomes
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Effect
    from aioproduce.core.sender import Sender
    from aioproduce.drivers.compression_workers import Finished
    from aioproduce.metrics import ProducerMetrics

_FOREVER: Final = float("inf")

# How often the loop is asked for its pulse while answers are awaited: a loop that is blocked makes them late, and
# nothing else of ours may be due then to show it. Ten callbacks a second cost little; an idle producer has none.
_PULSE: Final = 0.1


@final
class AsyncioRuntime:
    """What delivery futures need of an asyncio loop.

    Attributes:
        outcomes: What they give out in the place of our own classes; None for our own.
    """

    __slots__ = ("_loop", "_on_unobserved", "outcomes")

    wait = None  # a task suspends on the delivery's own watcher

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_unobserved: Callable[[str, int, BaseException, int], None]
    ) -> None:
        self._loop = loop
        self._on_unobserved = on_unobserved
        self.outcomes: TupleOutcomes | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Schedule a done-callback."""
        self._loop.call_soon(callback, argument, context=context)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """As the loop tells of its own callbacks' errors."""
        self._loop.call_exception_handler(
            {"message": f"Exception in the done-callback {callback!r} of a delivery", "exception": error}
        )

    def cancelled_error(self, message: object) -> BaseException:
        """As `asyncio.Future` raises it."""
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def invalid_state_error(self, message: str) -> BaseException:
        """As `asyncio.Future` raises it."""
        return asyncio.InvalidStateError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Records failed that nobody asked for; the garbage collector may tell, at any point, in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_unobserved, topic, partition, error, count)


@final
class AsyncioWaiter:
    """One task's place to wait: a condition of its own, so that each wake-up wakes one task."""

    __slots__ = ("_condition", "_is_notified")

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._is_notified = False

    def notify(self) -> None:
        """Wake the task."""
        self._is_notified = True
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
            async with asyncio.timeout_at(None if deadline == _FOREVER else deadline), self._condition:
                await self._condition.wait_for(lambda: self._is_notified)
        except TimeoutError:
            # Notified in the same turn as the time-out: what was granted must not be lost.
            return self._is_notified
        return True


class _Connection(asyncio.Protocol):
    """One transport; reports facts under its connection id."""

    def __init__(self, driver: AsyncioDriver, connection_id: int) -> None:
        self._driver = driver
        self._connection_id = connection_id
        self.transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=0)
        self._driver.connected(self._connection_id, self)

    def data_received(self, data: bytes) -> None:
        self._driver.received(self._connection_id, data)

    def eof_received(self) -> None:
        """The peer sends no more, so no answer will come: let the transport close."""

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._driver.written(self._connection_id)

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.disconnected(self._connection_id, exc)

    def write(self, buffers: Any) -> None:
        """Write the pieces of one request; `written` follows now or when the transport's buffer is empty."""
        transport = self.transport
        assert transport is not None
        if transport.is_closing():
            return  # connection_lost is on its way and accounts for the request
        transport.writelines(buffers)
        if not self._is_paused and transport.get_write_buffer_size() == 0:
            self._driver.written_at_once(self._connection_id)

    def abort(self) -> None:
        """Drop the transport and what it has not sent."""
        if self.transport is not None:
            self.transport.abort()


@final
class AsyncioDriver:
    """Runs one core on the running asyncio loop."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        on_unobserved: Callable[[str, int, BaseException, int], None],
    ) -> None:
        self._loop = self.loop = asyncio.get_running_loop()
        # In a task of trio's guest mode asyncio's loop runs, too, and is not that task's.
        self.running_loop: Callable[[], object] = asyncio_lookup()
        self.is_running: Callable[[], bool] = self._loop.is_running
        self.current_task: Callable[[], object] = asyncio.current_task
        self._config = config
        self._metrics = metrics
        self.runtime = AsyncioRuntime(self._loop, on_unobserved)
        self._connections: dict[int, _Connection] = {}
        self._attempts: dict[int, asyncio.Task[None]] = {}
        # A loop that is simulated has time pass in its own way: a clock of its own, and no threads.
        self.wall_ms: Callable[[], int] | None = getattr(self._loop, "wall_ms", None)
        make_executor = getattr(self._loop, "make_executor", compression_threads)
        self._compression = CompressionWorkers(
            self._loop.call_soon_threadsafe, self.compressed, make_executor
        )
        self._task: asyncio.Task[None] | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _FOREVER
        self._is_woken = False
        self._woken_at = _FOREVER
        self._pulse: asyncio.TimerHandle | None = None
        # What work is timed with. uvloop's own clock stands still for a turn of the loop: of no use here.
        is_simulated = self.wall_ms is not None
        self._work_clock = self._loop.time if is_simulated else time.monotonic
        self._is_loop_time_exact = is_simulated or type(self._loop).time is asyncio.BaseEventLoop.time
        self._worked = 0.0
        self._is_killed = False
        self._is_dead = False
        self._failure: BaseException | None = None

    # -- the seam ---

    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    @property
    def has_ended(self) -> bool:
        """Whether the loop is closed."""
        return self._loop.is_closed()

    def make_waiter(self) -> AsyncioWaiter:
        """A waiter for the calling task."""
        return AsyncioWaiter()

    async def yield_once(self) -> None:
        """One turn of the loop."""
        await asyncio.sleep(0)

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn."""
        self._loop.call_soon(callback)

    def start(
        self,
        sender: Sender,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Start the sender task."""
        self._sender = sender
        self._on_settled = on_settled
        self._task = self._loop.create_task(self._run(), name=f"aioproduce sender {self._config.client_id}")
        self._task.add_done_callback(partial(self._task_done, on_death))

    def wake(self) -> None:
        """Have the sender task look at the core."""
        sleeper = self._sleeper
        if sleeper is None:
            self._is_woken = True
        elif not sleeper.done():
            sleeper.set_result(None)
            self._woken_at = min(self._woken_at, self._loop.time())

    async def join(self, deadline: float) -> bool:
        """Wait for the sender task."""
        assert self._task is not None, "only what was started is waited for"
        timeout = None if deadline == _FOREVER else max(deadline - self.now(), 0)
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        return bool(done)

    def body(self) -> contextlib.AbstractContextManager[object]:
        """Nothing: a task of asyncio's is not ended from elsewhere for what its next call tells it."""
        return contextlib.nullcontext()

    async def end_aborted(self, deadline: float) -> bool:  # noqa: ARG002
        """Not waited for: a task that was cancelled may still wait, and the loop runs on."""
        return True

    async def kill(self) -> None:
        """Cancel the sender task and drop every socket."""
        self._drop_sockets()
        if self._task is not None and not self._task.done():
            self._is_killed = True
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._attempts:
            await asyncio.wait(list(self._attempts.values()))

    # -- the sender task ---

    async def _run(self) -> None:
        sender, metrics = self._sender, self._metrics
        timer_at: float | None = None
        slept_at = self._work_clock()
        try:
            while True:
                self._is_woken = False
                if self._failure is not None:
                    raise self._failure
                now = self._loop.time()
                began_at = self._work_clock()
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
                slept_at = self._work_clock()
                metrics.stepped(waited, slept_at - began_at + worked, now)
                if sender.has_work:
                    # A callback sent again, say. The loop gets its turn all the same.
                    await asyncio.sleep(0)
                elif not self._is_woken:
                    if self._pulse is None:
                        self._feel_pulse()
                    await self._sleep(timer_at)
        except BaseException:
            self._is_dead = not self._is_killed
            raise

    async def _sleep(self, until: float | None) -> None:
        self._set_alarm(until)
        self._sleeper = self._loop.create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def _set_alarm(self, at: float | None) -> None:
        """Wake the task then, or before: an alarm that comes too early costs less than a new one at every sleep."""
        if at is None or self._alarm_at <= at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._alarm_came)
        self._alarm_at = at

    def _alarm_came(self) -> None:
        self._alarm = None
        self._woken_at, self._alarm_at = self._alarm_at, _FOREVER  # late from when it was due
        self.wake()

    def _feel_pulse(self) -> None:
        if self._sender.connections.in_flight:
            self._pulse = self._loop.call_at(at := self._loop.time() + _PULSE, self._pulse_came, at)

    def _pulse_came(self, due_at: float) -> None:
        self._pulse = None
        now = self._loop.time()
        self._metrics.lagged(max(now - due_at, 0.0), now)
        self._feel_pulse()

    def _task_done(self, on_death: Callable[[BaseException], None], task: asyncio.Task[None]) -> None:
        self._compression.close()
        for timer in (self._alarm, self._pulse):
            if timer is not None:
                timer.cancel()
        if task.cancelled() and self._is_killed:
            return
        # Also of a task that was cancelled before its first line.
        self._is_dead = self._is_dead or task.cancelled()
        if task.cancelled():
            on_death(
                asyncio.CancelledError(
                    "the sender task was cancelled, as asyncio.run() does with what is left when it ends: close "
                    "the producer before, by `async with producer:`"
                )
            )
        elif (error := task.exception()) is not None:
            on_death(error)
        else:
            return
        self._drop_sockets()

    def _drop_sockets(self) -> None:
        for attempt in self._attempts.values():
            attempt.cancel()
        for connection in list(self._connections.values()):
            connection.abort()

    def _carry_out(self, effect: Effect | Compress[ProducerBatch]) -> None:
        if isinstance(effect, Send):
            connection = self._connections.get(effect.connection_id)
            if connection is not None:
                connection.write(effect.buffers)
        elif isinstance(effect, Connect):
            task = self._loop.create_task(
                self._connect(effect), name=f"aioproduce connect {effect.host}:{effect.port}"
            )
            self._attempts[effect.connection_id] = task
            task.add_done_callback(partial(self._attempt_done, effect))
        elif isinstance(effect, Compress):
            self._compression.submit(effect)
        else:
            attempt = self._attempts.get(effect.connection_id)
            connection = self._connections.get(effect.connection_id)
            if connection is not None:
                connection.abort()
            elif attempt is not None:
                attempt.cancel()

    # -- connections ---

    async def _connect(self, effect: Connect) -> None:
        # Resolves the name anew each time and tries its addresses in turn (KIP-302).
        await self._loop.create_connection(
            lambda: _Connection(self, effect.connection_id), effect.host, effect.port
        )

    def _attempt_done(self, effect: Connect, attempt: asyncio.Task[None]) -> None:
        # A callback, not the end of `_connect()`: a task that is cancelled before its first step runs no line.
        del self._attempts[effect.connection_id]
        failure = asyncio.CancelledError() if attempt.cancelled() else attempt.exception()
        if failure is None:
            return
        connection = self._connections.pop(effect.connection_id, None)
        if connection is not None:
            # Given up between `connection_made` and the end of create_connection(): uvloop then closes the
            # transport and never tells the protocol. asyncio tells it again, which the core ignores.
            connection.abort()
        error = BrokerConnectionError(reason(failure), host=effect.host, port=effect.port)
        error.__cause__ = failure
        self._report(self._sender.connection_lost, effect.connection_id, error)

    def _set_options(self, transport: asyncio.Transport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_buffer_sizes(sock, self._config)

    # -- facts, reported by the protocols ---

    def _report(self, fact: Callable[..., None], *what: Any) -> None:
        """Tell the core, and have the task look at it (invariant 5)."""
        if self._is_dead:
            return
        try:
            fact(*what, self._loop.time())
        except Exception as error:
            self._failure = error
        self.wake()

    def connected(self, connection_id: int, connection: _Connection) -> None:
        """A transport is there."""
        assert connection.transport is not None
        self._set_options(connection.transport)
        self._connections[connection_id] = connection
        if self._is_dead:
            connection.abort()
        self._report(self._sender.connection_made, connection_id)

    def received(self, connection_id: int, data: bytes) -> None:
        """Bytes came."""
        if self._is_dead:
            return
        sender = self._sender
        now = self._loop.time()
        began_at = now if self._is_loop_time_exact else time.monotonic()  # a clock is read in 80 ns
        try:
            sender.receive_data(connection_id, data, now)
        except Exception as error:
            self._failure = error
            self.wake()
            return
        self._worked += self._work_clock() - began_at
        if sender.has_work or sender.settled:
            self.wake()
        else:
            # The task may go on sleeping, but maybe not as long as it meant to.
            self._set_alarm(sender.next_timer())

    def written(self, connection_id: int) -> None:
        """The transport holds nothing of ours."""
        self._report(self._sender.writable, connection_id)

    def written_at_once(self, connection_id: int) -> None:
        """Likewise, told by the task itself, which looks at the core again anyway."""
        self._sender.writable(connection_id, self._loop.time())

    def disconnected(self, connection_id: int, error: Exception | None) -> None:
        """A transport is gone."""
        self._connections.pop(connection_id, None)
        self._report(self._sender.connection_lost, connection_id, error)

    def compressed(self, finished: Iterable[Finished]) -> None:
        """Compression workers are done with these batches."""
        for batch, outcome in finished:
            if isinstance(outcome, bytes):
                self._report(self._sender.compressed, batch, outcome)
            else:
                self._report(self._sender.compression_failed, batch, outcome)
