"""The core without an event loop: a few lines that run coroutines on virtual time, and a driver for the Sender.

For `tests.simulation.sides`. Everything of the producer runs but asyncio and its driver: admission, core, wire. A
coroutine waits by yielding a `Suspend`; its resumer puts it into `ready`.
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, final

from aioproduce.core.effects import Compress, Connect, Offload, Send
from aioproduce.drivers.offloading import outcome_of
from aioproduce.testing.simulation import SimulationDeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioproduce._native.delivery import BatchResult
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Effect
    from aioproduce.core.sender import Sender
    from aioproduce.testing.simulation import Endpoint, Simulation
    from aioproduce.testing.simulation.network import Attempt


@final
class Suspend:
    """One wait of one coroutine, until `resume()`."""

    def __init__(self, loop: BareLoop) -> None:
        self._loop = loop
        self._task: BareTask | None = None
        self.is_resumed = False

    def __await__(self) -> Generator[Suspend, None, None]:
        if not self.is_resumed:
            yield self

    def suspend(self, task: BareTask) -> None:
        """A task has yielded this."""
        self._task = task

    def resume(self) -> None:
        """Let the coroutine go on in its loop's next turn; more than once does no harm."""
        if not self.is_resumed:
            self.is_resumed = True
            if self._task is not None:
                self._loop.ready.append(self._task.step)


@final
class BareTask:
    """A coroutine that runs."""

    def __init__(self, loop: BareLoop, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self.name = name
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = Suspend(loop)
        loop.tasks.append(self)
        loop.ready.append(self.step)

    def step(self) -> None:
        """Run to the next wait."""
        try:
            suspend = self._coroutine.send(None)
        except StopIteration as stop:
            self.result = stop.value
        except BaseException as error:
            self.error = error
        else:
            suspend.suspend(self)
            return
        self.is_done = True
        self._loop.tasks.remove(self)
        self.ended.resume()


@final
class BareLoop:
    """Runs coroutines and callbacks on a simulation's clock, one turn after the other."""

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self._count = 0
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self.ready: deque[Callable[[], object]] = deque()
        self.tasks: list[BareTask] = []

    def now(self) -> float:
        return self._clock.now

    def call_at(self, at: float, callback: Callable[[], object]) -> None:
        """Call back at an instant; there is no way to cancel it."""
        self._count += 1
        heapq.heappush(self._timers, (at, self._count, callback))

    async def sleep_until(self, at: float) -> None:
        suspend = Suspend(self)
        self.call_at(at, suspend.resume)
        await suspend

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str = "task") -> BareTask:
        return BareTask(self, coroutine, name)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, and whatever else is there meanwhile."""
        main = self.spawn(coroutine, "main")
        while not main.is_done:
            self._turn(main)
        if main.error is not None:
            raise main.error
        return main.result

    def _turn(self, main: BareTask) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()
        if main.is_done:
            return  # nothing else need ever happen
        if self.ready:
            until = self._clock.now
        elif self._timers:
            until = self._timers[0][0]
        elif self._clock.next_at() is not None:
            until = inf
        else:
            raise SimulationDeadlockError.of_tasks([task.name for task in self.tasks])
        self._clock.step(until)
        while self._timers and self._timers[0][0] <= self._clock.now:
            self.ready.append(heapq.heappop(self._timers)[2])


@final
class BareWaiter:
    """One coroutine's place to wait."""

    def __init__(self, loop: BareLoop) -> None:
        self._loop = loop
        self._suspend = Suspend(loop)
        self._is_notified = False

    def notify(self) -> None:
        self._is_notified = True
        self._suspend.resume()

    async def wait(self, deadline: float) -> bool:
        if deadline != inf:
            self._loop.call_at(deadline, self._suspend.resume)
        await self._suspend
        return self._is_notified


@final
class BareRuntime:
    """What deliveries need of a loop."""

    def get_loop(self) -> Any:
        raise NotImplementedError

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Any) -> None:
        raise NotImplementedError

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        raise error

    def cancelled_error(self, message: object) -> BaseException:
        raise NotImplementedError

    def invalid_state_error(self, message: str) -> BaseException:
        return RuntimeError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        raise AssertionError(f"{count} records failed and nobody was told: {error}")


@final
class BareDriver:
    """Runs one core on a bare loop: the seam of `drivers.base`, as far as admission and the core ask for it."""

    def __init__(self, simulation: Simulation, loop: BareLoop) -> None:
        self._simulation = simulation
        self._loop = loop
        self.runtime = BareRuntime()
        self.ended = Suspend(loop)
        self._endpoints: dict[int, Endpoint] = {}
        self._attempts: dict[int, Attempt] = {}
        self._open: set[int] = set()  # of which the core has not been told the end
        self._is_planned = False
        self._alarm_at = inf

    def now(self) -> float:
        return self._loop.now()

    def make_waiter(self) -> BareWaiter:
        return BareWaiter(self._loop)

    def start(self, sender: Sender) -> None:
        self._sender = sender
        self.wake()

    def wake(self) -> None:
        """Look at the core in the next turn."""
        if not self._is_planned:
            self._is_planned = True
            self._loop.ready.append(self._run)

    def _run(self) -> None:
        self._is_planned = False
        sender, now = self._sender, self.now()
        sender.handle_timer(now)
        while (effect := sender.next_effect(now)) is not None:
            self._carry_out(effect)
        self.run_callbacks()
        if sender.is_closed:
            self.ended.resume()
        elif sender.has_work:
            self.wake()
        else:
            timer = sender.next_timer()
            if timer is not None and timer < self._alarm_at:
                self._alarm_at = timer
                self._loop.call_at(timer, self._alarm)

    def run_callbacks(self) -> None:
        """Tell of what is settled."""
        while self._sender.settled:
            _run_callbacks(self._sender.settled.popleft())

    def _alarm(self) -> None:
        self._alarm_at = inf
        self.wake()

    def _carry_out(self, effect: Effect | Offload | Compress[ProducerBatch]) -> None:
        if isinstance(effect, Offload):
            delay = self._simulation.network.random.expovariate(500)
            self._loop.call_at(self.now() + delay, partial(self._offload, effect))
        elif isinstance(effect, Compress):
            delay = self._simulation.network.random.expovariate(500)
            self._loop.call_at(self.now() + delay, partial(self._compress, effect))
        elif isinstance(effect, Connect):
            number = effect.connection_id
            self._open.add(number)
            self._attempts[number] = self._simulation.network.connect(
                (effect.host, effect.port),
                partial(self._accepted, number),
                partial(self._soon, self._lost, number),
            )
        elif isinstance(effect, Send):
            endpoint = self._endpoints.get(effect.connection_id)
            if endpoint is not None:
                endpoint.write(effect.buffers)
                if not endpoint.unsent and not endpoint.is_gone:
                    self._sender.writable(effect.connection_id, self.now())
        elif effect.connection_id in self._endpoints:
            self._endpoints[effect.connection_id].abort()
        elif effect.connection_id in self._open:
            self._attempts[effect.connection_id].cancel()
            self._soon(self._lost, effect.connection_id, None)

    def _compress(self, job: Compress[ProducerBatch]) -> None:
        self._sender.compressed(job.batch, job.codec.compress(job.records), self.now())
        job.records.release()
        self.wake()

    def _offload(self, effect: Offload) -> None:
        self._sender.offloaded(effect.ticket, outcome_of(effect.work), self.now())
        self.wake()

    # -- facts: what the kernel knows becomes known to the loop in its next turn ---

    def _soon(self, fact: Callable[..., None], *arguments: Any) -> None:
        self._loop.ready.append(partial(fact, *arguments))

    def _accepted(self, number: int, endpoint: Endpoint) -> None:
        endpoint.pause_reading()
        self._soon(self._connected, number, endpoint)

    def _connected(self, number: int, endpoint: Endpoint) -> None:
        if self._attempts.pop(number, None) is None or endpoint.is_told:
            endpoint.abort()  # given up, or gone, in the meantime
            self._lost(number, None)
            return
        endpoint.on_data = partial(self._soon, self._received, number)
        endpoint.on_drained = partial(self._soon, self._written, number)
        endpoint.on_lost = partial(self._soon, self._lost, number)
        self._endpoints[number] = endpoint
        self._sender.connection_made(number, self.now())
        endpoint.resume_reading()
        self.wake()

    def _received(self, number: int, data: bytes) -> None:
        if number in self._endpoints:
            self._sender.receive_data(number, data, self.now())
            self.wake()

    def _written(self, number: int) -> None:
        if number in self._endpoints and not self._endpoints[number].unsent:
            self._sender.writable(number, self.now())
            self.wake()

    def _lost(self, number: int, error: Exception | None) -> None:
        if number not in self._open:
            return
        self._open.discard(number)
        self._endpoints.pop(number, None)
        self._attempts.pop(number, None)
        self._sender.connection_lost(number, error, self.now())
        self.wake()


def _run_callbacks(result: BatchResult) -> None:
    for error in result.run_callbacks():
        raise AssertionError("a delivery callback raised") from error
