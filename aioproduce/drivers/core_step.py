"""What every driver does with the core, whatever its event loop: step after step, and the facts in between.

A driver owns the loop's side: sockets, alarms, the sender task and its end. It makes one `CoreStep`, has its sender
task run `run()`, and its connections report facts.

Invariants:

1. A fact never carries out an effect: it wakes the sender task, if the core has something to do.
2. A fact that raises is the sender's death, like a bug in a step: inconsistent state is abandoned. A core that
   died is told nothing more.
3. The core is told of a compression's end even when it is closed: this releases the batch's memory.
4. The alarm is set anew only for an earlier instant. One that comes too early costs less than a new one at every
   sleep.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aioproduce.core.effects import Compress, Connect, Offload, Send
from aioproduce.drivers.compression_workers import CompressionWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from aioproduce._native.delivery import BatchResult
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Buffer, Effect
    from aioproduce.drivers.base import Core
    from aioproduce.drivers.compression_workers import Finished
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.mechanism import Work

FOREVER: Final = float("inf")

# How often the loop is asked for its pulse while answers are awaited: a loop that is blocked makes them late, and
# nothing else of ours may be due then to show it. Ten callbacks a second cost little; an idle producer has none.
_PULSE: Final = 0.1


class Connection(Protocol):
    """An attempt to connect, and the connection that comes of it."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Write the pieces of one request."""

    def abort(self) -> None:
        """Give up the attempt, or drop the connection and what it has not sent."""


class Alarm(Protocol):
    """Calls back at an instant, which may be moved; then it is off until it is set again."""

    @property
    def at(self) -> float:
        """The instant that it is set for; `inf` when it is off."""

    def set(self, at: float) -> None:
        """Call back then, and not at the instant that it was set for before."""


class Loop(Protocol):
    """A driver, as far as `CoreStep` asks for it.

    Attributes:
        now: The driver's clock.
        work_clock: What work is timed with, which may not stand still for a turn of the loop.
        is_now_exact: Whether `now` gives the instant of `work_clock`: then one reading does for both.
        call_in_loop: Has a callable called in the loop's thread; called from any.
        make_executor: Makes what runs compression jobs.
    """

    now: Callable[[], float]
    work_clock: Callable[[], float]
    is_now_exact: bool
    call_in_loop: Callable[[Callable[[], None]], object]
    make_executor: Callable[[], Executor]

    def wake(self) -> None:
        """End the sender task's rest, or keep it from resting."""

    def make_alarm(self, came: Callable[[float], None]) -> Alarm:
        """An alarm that is off; `came` is called with the instant that it was set for."""

    def connect(self, effect: Connect) -> Connection:
        """Begin to connect; the facts follow in later turns of the loop."""

    def offload(self, work: Work, ended: Callable[[object], None]) -> None:
        """Have it done in a thread or task of its own; `ended` is told the result or exception, in the loop."""

    async def rest(self, has_work: bool) -> None:
        """Give the loop one turn; if the core has no work, sleep until `wake()`, which may have come already."""


@final
class CoreStep:
    """Runs one core on behalf of a driver.

    Args:
        loop: The driver.
        metrics: The producer's.

    Attributes:
        connections: Those that the core has asked for and not been told the end of, by connection id.
        compression: The threads that compress.
        sender: The core, from `start()` on.
        woken_at: Since when the sleeping sender task should be awake; `inf` if it need not.
        is_killed: Whether the end of `run()`, whatever it is, is no death.
        is_dead: Whether `run()` ended by a bug, or was cancelled.
    """

    sender: Core
    _on_settled: Callable[[BatchResult], None]
    _on_thrown_away: Callable[[], None]

    def __init__(self, loop: Loop, metrics: ProducerMetrics) -> None:
        self._now = loop.now
        self._work_clock = loop.work_clock
        self._is_now_exact = loop.is_now_exact
        self._wake = loop.wake
        self._connect = loop.connect
        self._offload = loop.offload
        self._rest = loop.rest
        self._metrics = metrics
        self._alarm = loop.make_alarm(self._alarm_came)
        self._pulse = loop.make_alarm(self._pulse_came)
        self.connections: dict[int, Connection] = {}
        self.compression: CompressionWorkers = CompressionWorkers(
            loop.call_in_loop, self.compressed, loop.make_executor
        )
        self.woken_at: float = FOREVER
        self._worked = 0.0
        self.is_killed = False
        self.is_dead: bool = False
        self._failure: BaseException | None = None

    def start(
        self,
        sender: Core,
        on_settled: Callable[[BatchResult], None],
        on_thrown_away: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over the core; `run()` follows.

        Args:
            sender: The core.
            on_settled: Called with each result that has delivery callbacks.
            on_thrown_away: Called where `run()` is closed as a coroutine: the loop was closed or dropped, and never
                cancelled its tasks. The garbage collector may be the caller.
        """
        self.sender = sender
        self._on_settled = on_settled
        self._on_thrown_away = on_thrown_away

    async def run(self) -> None:
        """Bring the core to rest again and again, until it has ended.

        Raises:
            BaseException: a bug in the core or in a driver, or the cancellation of the task.
        """
        sender, metrics = self.sender, self._metrics
        timer_at: float | None = None
        slept_at = self._work_clock()
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                now = self._now()
                began_at = self._work_clock()
                if self.woken_at < now:
                    metrics.lagged(now - self.woken_at, now)
                self.woken_at = FOREVER
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
                has_work = sender.has_work
                if not has_work:
                    if timer_at is not None and timer_at < self._alarm.at:
                        self._alarm.set(timer_at)
                    if self._pulse.at == FOREVER:
                        self._feel_pulse()
                await self._rest(has_work)
        except BaseException as error:
            self._ended_by(error)
            raise

    def _ended_by(self, error: BaseException) -> None:
        if self.is_killed or self.is_dead:
            return
        self.is_dead = True
        if isinstance(error, GeneratorExit):
            self._on_thrown_away()

    def _carry_out(self, effect: Effect | Offload | Compress[ProducerBatch]) -> None:
        if isinstance(effect, Send):
            connection = self.connections.get(effect.connection_id)
            if connection is not None:
                connection.write(effect.buffers)
        elif isinstance(effect, Connect):
            self.connections[effect.connection_id] = self._connect(effect)
        elif isinstance(effect, Compress):
            self.compression.submit(effect)
        elif isinstance(effect, Offload):
            self._offload(effect.work, partial(self._offloaded, effect.ticket))
        else:
            connection = self.connections.get(effect.connection_id)
            if connection is not None:
                connection.abort()

    # -- timers ---

    def _alarm_came(self, at: float) -> None:
        self.woken_at = min(self.woken_at, at)  # late from when it was due
        self._wake()

    def _feel_pulse(self) -> None:
        if self.sender.connections.in_flight:
            self._pulse.set(self._now() + _PULSE)

    def _pulse_came(self, due_at: float) -> None:
        now = self._now()
        self._metrics.lagged(max(now - due_at, 0.0), now)
        self._feel_pulse()

    # -- facts ---

    def _report(self, fact: Callable[..., None], *what: Any) -> None:
        if self.is_dead:
            return
        try:
            fact(*what, self._now())
        except Exception as error:
            self._failure = error
        self._wake()

    def failed(self, error: Exception) -> None:
        """A driver's callback or task found a bug: the sender dies of it."""
        self._failure = error
        self._wake()

    def connected(self, connection_id: int) -> None:
        """The connection is there."""
        self._report(self.sender.connection_made, connection_id)

    def received(self, connection_id: int, data: bytes) -> None:
        """Bytes came."""
        if self.is_dead:
            return
        sender = self.sender
        now = self._now()
        began_at = now if self._is_now_exact else self._work_clock()  # a clock is read in 80 ns
        try:
            sender.receive_data(connection_id, data, now)
        except Exception as error:
            self.failed(error)
            return
        self._worked += self._work_clock() - began_at
        if sender.has_work or sender.settled:
            self._wake()
        else:
            # The task may go on sleeping, but maybe not as long as it meant to.
            at = sender.next_timer()
            if at is not None and at < self._alarm.at:
                self._alarm.set(at)

    def written(self, connection_id: int) -> None:
        """A connection holds nothing more of ours."""
        self._report(self.sender.writable, connection_id)

    def written_at_once(self, connection_id: int) -> None:
        """Likewise, within `write()`: the sender task looks at the core again anyway."""
        self.sender.writable(connection_id, self._now())

    def disconnected(self, connection_id: int, error: Exception | None) -> None:
        """A connection is gone, or never came about."""
        self.connections.pop(connection_id, None)
        self._report(self.sender.connection_lost, connection_id, error)

    def _offloaded(self, ticket: int, outcome: object) -> None:
        self._report(self.sender.offloaded, ticket, outcome)

    def compressed(self, finished: Iterable[Finished]) -> None:
        """Threads are done with these batches."""
        for batch, outcome in finished:
            if isinstance(outcome, bytes):
                self._report(self.sender.compressed, batch, outcome)
            else:
                self._report(self.sender.compression_failed, batch, outcome)
