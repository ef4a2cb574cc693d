"""The part that all drivers share: run the core step by step, and report facts in between.

A driver owns the loop's side: sockets, alarms, the sender task and its end. It makes one `CoreStep`, and calls
`step()` after each `wake()`: in a callback of the loop, or in a task by `run()`. Its connections report facts.

Invariants:

1. A fact never carries out an effect: it asks for a step (`wake()`) if the core has work.
2. A fact that raises is the sender's death, like a bug in a step: the inconsistent state is abandoned. A dead core
   receives nothing more.
3. A closed core still learns of the end of a compression: this releases the batch's memory.
4. The alarm is reset only for an earlier instant. One that fires too early costs less than a new one at every
   sleep.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproduce.core.effects import Compress, Connect, Offload, Send
from aioproduce.drivers.compression_workers import CompressionWorkers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from aioproduce._native.delivery import BatchResult
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Buffer, Effect
    from aioproduce.drivers.base import Core
    from aioproduce.drivers.compression_workers import Finished
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.security.mechanism import Work

FOREVER: Final = float("inf")

# Seconds between pulse callbacks while answers are awaited. A blocked loop delays answers, and nothing else may be
# due then to measure the lag. Ten callbacks a second cost little; an idle producer has none.
_PULSE: Final = 0.1


class Connection(Protocol):
    """An attempt to connect, and the resulting connection."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Write the buffers of one request."""

    def abort(self) -> None:
        """Give up the attempt, or drop the connection and its unsent bytes."""


class Alarm(Protocol):
    """An alarm that calls back once at an instant, which may be moved."""

    @property
    def at(self) -> float:
        """The instant that it is set for; `inf` if it is off."""

    def set(self, at: float) -> None:
        """Call back at this instant instead of the earlier one."""


class Loop(Protocol):
    """The part of a driver that `CoreStep` uses.

    Attributes:
        now: The driver's clock.
        work_clock: The clock that times work; it must advance within a turn of the loop.
        is_now_exact: Whether `now` equals `work_clock`, so that one reading serves for both.
        call_in_loop: Calls a callable in the loop's thread, from any thread.
        make_executor: Makes the executor of compression jobs.
    """

    now: Callable[[], float]
    work_clock: Callable[[], float]
    is_now_exact: bool
    call_in_loop: Callable[[Callable[[], None]], object]
    make_executor: Callable[[], Executor]

    def wake(self) -> None:
        """Have `step()` called soon; calls before that make no difference."""

    def make_alarm(self, came: Callable[[float], None]) -> Alarm:
        """Return an alarm that is off; it calls `came` with the instant that it was set for."""

    def connect(self, effect: Connect) -> Connection:
        """Begin to connect; facts follow in later turns of the loop."""

    def offload(self, work: Work, ended: Callable[[object], None]) -> None:
        """Run work in a thread or task of its own; call `ended` in the loop with the result or exception."""


class CoreStep:
    """Runs one core on behalf of a driver.

    Args:
        loop: The driver.
        metrics: The producer's metrics.

    Attributes:
        connections: Connections that the core asked for and whose end was not reported, by connection id.
        compression: The compression threads.
        sender: The core, from `start()` on.
        woken_at: When a step became due; `inf`: none is.
        is_over: Whether the core has ended, and needs no more steps.
        is_killed: Whether no end of `run()` counts as a death.
        is_dead: Whether `run()` ended by a bug, or was cancelled.
    """

    __slots__ = (
        "_alarm",
        "_connect",
        "_failure",
        "_is_now_exact",
        "_metrics",
        "_now",
        "_offload",
        "_on_settled",
        "_on_thrown_away",
        "_pulse",
        "_slept_at",
        "_timer_at",
        "_wake",
        "_work_clock",
        "_worked",
        "compression",
        "connections",
        "is_dead",
        "is_killed",
        "is_over",
        "sender",
        "woken_at",
    )

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
        self._metrics = metrics
        self._alarm = loop.make_alarm(self._alarm_came)
        self._pulse = loop.make_alarm(self._pulse_came)
        self.connections: dict[int, Connection] = {}
        self.compression: CompressionWorkers = CompressionWorkers(
            loop.call_in_loop, self.compressed, loop.make_executor
        )
        self.woken_at: float = FOREVER
        self._worked = 0.0
        self._timer_at: float | None = None
        self._slept_at = 0.0
        self.is_killed: bool = False
        self.is_over: bool = False
        self.is_dead: bool = False
        self._failure: BaseException | None = None

    def start(
        self,
        sender: Core,
        on_settled: Callable[[BatchResult], None],
        on_thrown_away: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the core, before `run()`.

        Args:
            sender: The core.
            on_settled: Called with each result that has delivery callbacks.
            on_thrown_away: Called if the coroutine `run()` is closed because the loop was closed or dropped without
                cancelling its tasks. The garbage collector may call it.
        """
        self.sender = sender
        self._on_settled = on_settled
        self._on_thrown_away = on_thrown_away
        self._slept_at = self._work_clock()

    async def run(self, rest: Callable[[bool], Awaitable[None]]) -> None:
        """Run steps of the core until it has ended, with a rest after each.

        Args:
            rest: Yields one turn of the loop if the argument is true: the core has work. Else it sleeps until
                `wake()`, past calls included.

        Raises:
            BaseException: if the core or a driver has a bug, or the task is cancelled.
        """
        try:
            while True:
                has_work = self.step()
                if self.is_over:
                    break
                await rest(has_work)
        except BaseException as error:
            self.ended_by(error)
            raise

    def step(self) -> bool:
        """Carry out what the core wants; return whether it has more work for the next turn.

        `is_over` tells whether the core has ended.

        Raises:
            BaseException: if the core or a driver has a bug.
        """
        if self._failure is not None:
            raise self._failure
        sender, metrics, timer_at = self.sender, self._metrics, self._timer_at
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
            self.is_over = True
            return False
        timer_at = self._timer_at = sender.next_timer()
        worked, self._worked = self._worked, 0.0
        waited = began_at - self._slept_at - worked
        self._slept_at = self._work_clock()
        metrics.stepped(waited, self._slept_at - began_at + worked, now)
        has_work = sender.has_work
        if not has_work:
            if timer_at is not None and timer_at < self._alarm.at:
                self._alarm.set(timer_at)
            if self._pulse.at == FOREVER:
                self._feel_pulse()
        return has_work

    def ended_by(self, error: BaseException) -> None:
        """Note that an error, or the end of the loop, ended the steps."""
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
        self.woken_at = min(self.woken_at, at)  # lag counts from the due instant
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
        """End the sender because of a bug in a driver's callback or task."""
        self._failure = error
        self._wake()

    def connected(self, connection_id: int) -> None:
        """Report that a connection is open."""
        self._report(self.sender.connection_made, connection_id)

    def received(self, connection_id: int, data: bytes) -> None:
        """Report received bytes."""
        if self.is_dead:
            return
        sender = self.sender
        now = self._now()
        began_at = now if self._is_now_exact else self._work_clock()  # reading a clock takes 80 ns
        try:
            sender.receive_data(connection_id, data, now)
        except Exception as error:
            self.failed(error)
            return
        self._worked += self._work_clock() - began_at
        if sender.has_work or sender.settled:
            self._wake()
        else:
            # The task may continue to sleep, but perhaps not as long as before.
            at = sender.next_timer()
            if at is not None and at < self._alarm.at:
                self._alarm.set(at)

    def written(self, connection_id: int) -> None:
        """Report that a connection holds none of our bytes any more."""
        self._report(self.sender.writable, connection_id)

    def written_at_once(self, connection_id: int) -> None:
        """Report the same within `write()`: the sender task steps the core again anyway."""
        self.sender.writable(connection_id, self._now())

    def disconnected(self, connection_id: int, error: Exception | None) -> None:
        """Report that a connection was lost or could not be opened."""
        self.connections.pop(connection_id, None)
        self._report(self.sender.connection_lost, connection_id, error)

    def _offloaded(self, ticket: int, outcome: object) -> None:
        self._report(self.sender.offloaded, ticket, outcome)

    def compressed(self, finished: Iterable[Finished]) -> None:
        """Report the outcomes of compression jobs."""
        for batch, outcome in finished:
            if isinstance(outcome, bytes):
                self._report(self.sender.compressed, batch, outcome)
            else:
                self._report(self.sender.compression_failed, batch, outcome)
