"""The interface between the core and an event loop: all that the Producer needs of a driver.

Each event loop has one implementation. A driver

1. reports facts to the core with its own monotonic clock, and carries out the effects in their order;
2. calls the core only from the one loop that it runs on;
3. reports `connection_lost` for every `Connect`, and only when the transport holds no buffer any more: it aborts,
   since a graceful close waits for a stalled peer for ever;
4. reports `writable` when the transport holds none of the bytes of the last `Send`;
5. compresses in other threads, at most `core.batching.batch_compression.THREADS` at a time, and reports each end
   once, when no thread reads the batch any more;
6. supervises its sender task: if the task dies or a fact raises, it calls `on_death`, leaves no waiter behind, and
   reports nothing more to the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import deque
    from contextlib import AbstractContextManager

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import BatchResult
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.cluster.broker_connections import BrokerConnections
    from aioproduce.core.effects import Compress, Effect, Offload


class Core(Protocol):
    """The core that a driver runs: a producer's `Sender`, or a `ClusterCheck`.

    Attributes:
        connections: Its connections; the driver asks them whether requests are in flight.
        settled: Results whose delivery callbacks the driver must run, in order.
        has_work: Whether `next_effect()` may return an effect, so that the sender task must wake.
        is_closed: Whether it has ended: every connection has ended, and no thread reads a batch.
    """

    @property
    def connections(self) -> BrokerConnections: ...  # noqa: D102
    @property
    def settled(self) -> deque[BatchResult]: ...  # noqa: D102
    @property
    def has_work(self) -> bool: ...  # noqa: D102
    @property
    def is_closed(self) -> bool: ...  # noqa: D102

    def next_effect(self, now: float) -> Effect | Offload | Compress[ProducerBatch] | None:
        """Return the driver's next effect; `None` if the core is at rest."""

    def next_timer(self) -> float | None:
        """Return when to call `handle_timer()`; `None`: never."""

    def handle_timer(self, now: float) -> None:
        """Handle the time-outs that are due."""

    def connection_made(self, connection_id: int, now: float) -> None:
        """Accept that the transport is open."""

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Accept bytes from a broker."""

    def writable(self, connection_id: int, now: float) -> None:
        """Accept that a transport holds none of our bytes any more."""

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """Accept that a transport is lost, or an attempt to open one failed."""

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """Accept the outcome of an `Offload` effect: a result or an exception."""

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """Accept the compressed bytes of a `Compress` effect."""

    def compression_failed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        """Accept the failure of a `Compress` effect."""


class Waiter(Protocol):
    """A task's wait for one event: memory, metadata of a topic, a flush."""

    def notify(self) -> None:
        """Wake the task because the event happened. It never suspends, and may be called repeatedly."""

    async def wait(self, deadline: float) -> bool:
        """Suspend until `notify()` or the deadline on the driver's clock (`inf`: no deadline).

        Returns:
            Whether it was notified.
        """


class Driver(Protocol):
    """A driver, which runs one core on one event loop."""

    @property
    def runtime(self) -> DeliveryRuntime:
        """The functions of this loop that delivery futures use."""

    @property
    def loop(self) -> object:
        """The event loop, as `running_loop()` returns it when this driver may be used."""

    @property
    def has_ended(self) -> bool:
        """Whether this driver has ended for good: its loop is closed, or its task done."""

    @property
    def ended_with_loop(self) -> bool:
        """Whether the sender task ended with its loop, cancelled or not, and not by a bug."""

    def look_for_end(self) -> None:
        """Call `on_death` if the loop was closed without ending the sender task."""

    @property
    def running_loop(self) -> Callable[[], object]:
        """The function that returns the caller's event loop, or `None`."""

    @property
    def is_running(self) -> Callable[[], bool]:
        """The function that returns whether this driver's loop runs here; only for the thread of `start()`.

        Each `send()` calls it. It costs a tenth of `running_loop()`, which makes a system call.
        """

    @property
    def wall_ms(self) -> Callable[[], int] | None:
        """The wall clock in milliseconds since the epoch; `None` for the machine's clock."""

    @property
    def call_in_loop(self) -> Callable[[Callable[[], None]], object]:
        """The function that calls a callable in the loop's thread, from any thread."""

    @property
    def current_task(self) -> Callable[[], object]:
        """The function that returns the calling task, to distinguish tasks."""

    def now(self) -> float:
        """Return the core's time: monotonic seconds."""

    def start(
        self,
        sender: Core,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Start to run the core in a task of its own.

        Args:
            sender: The core.
            on_death: Called once if the task ends in any way but the core's own end. If the loop no longer runs
                the task, the garbage collector or `look_for_end()` calls it.
            on_settled: Called, outside the core, with each result that has delivery callbacks.
        """

    def wake(self) -> None:
        """Wake the sender task because the core has work. Repeated calls are cheap."""

    def make_waiter(self) -> Waiter:
        """Return a waiter for the calling task."""

    async def yield_once(self) -> None:
        """Yield to the loop for one turn."""

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn, after everything that is ready now."""

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call back once the running callback of the loop has ended: at the latest in the loop's next turn."""

    async def join(self, deadline: float) -> bool:
        """Wait until the core has ended and every socket is closed.

        Returns:
            Whether that happened by the deadline.
        """

    def body(self) -> AbstractContextManager[object]:
        """Return the context for the body of `async with producer:` and its close.

        With structured tasks (trio), the sender's death cancels the body.
        """

    def shielded(self) -> AbstractContextManager[object]:
        """Return the context for a bounded wait of a cancelled task, which its cancellation does not end."""

    async def end_aborted(self, deadline: float) -> bool:
        """Call `join()` for a cancelled `close()`, after the core was aborted.

        In trio a cancelled task's next wait raises at once, so this one is shielded. Elsewhere it need not wait.

        Returns:
            False if something has not ended by the deadline.
        """

    async def kill(self) -> None:
        """End the task and drop every socket, regardless of the core. `on_death` is not called.

        A thread that still compresses continues; the core gets its result.
        """
