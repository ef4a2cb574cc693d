"""The seam between the core and an event loop: what the Producer needs of a driver, and no more.

Implemented once per event loop. A driver

1. reports facts to the core with its own monotonic clock, and carries out the effects in their order;
2. never calls the core from another thread or task than the one loop it runs on;
3. reports `connection_lost` for every `Connect`, and only when the transport holds no buffer any more: it
   aborts, since a polite close waits for a stalled peer for ever;
4. reports `writable` when the transport holds none of the bytes of the last `Send`;
5. compresses in other threads, at most `core.batching.batch_compression.THREADS` at a time, and reports each end
   once, when no thread reads the batch any more;
6. supervises its sender task: should that die, or a fact raise, `on_death` is called, no waiter is left behind, and
   the core is told nothing more.
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
    """What a driver runs: the `Sender` of a producer, or a `ClusterCheck`.

    Attributes:
        connections: Its connections, which the driver asks what is under way.
        settled: Results whose delivery callbacks the driver shall run, in order.
        has_work: Whether `next_effect()` has something to look at: the driver shall be woken.
        is_closed: Whether it has ended: every connection is gone, and no thread reads a batch.
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
        """What the driver shall do next; `None` when the core is at rest."""

    def next_timer(self) -> float | None:
        """The next instant at which `handle_timer()` has something to do."""

    def handle_timer(self, now: float) -> None:
        """Do what is due."""

    def connection_made(self, connection_id: int, now: float) -> None:
        """The transport is there."""

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Bytes came from a broker."""

    def writable(self, connection_id: int, now: float) -> None:
        """A transport holds none of our bytes any more."""

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """A transport is gone, or an attempt to open one failed."""

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """What an `Offload` effect asked for has ended, with a result or an exception."""

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """What a `Compress` effect asked for."""

    def compression_failed(self, batch: ProducerBatch, error: BaseException, now: float) -> None:
        """What a `Compress` effect asked for cannot be done."""


class Waiter(Protocol):
    """One task that waits for one event: memory, metadata of a topic, a flush."""

    def notify(self) -> None:
        """The event happened: wake the task. Never suspends; more than once does no harm."""

    async def wait(self, deadline: float) -> bool:
        """Suspend until `notify()` or the deadline, on the driver's clock (`inf`: without one).

        Returns:
            Whether it was notified.
        """


class Driver(Protocol):
    """Runs one core on one event loop."""

    @property
    def runtime(self) -> DeliveryRuntime:
        """What delivery futures need of this loop."""

    @property
    def loop(self) -> object:
        """What `running_loop()` gives where this driver may be used."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of this driver runs any more, nor ever will: its loop is closed, or its task done."""

    @property
    def ended_with_loop(self) -> bool:
        """Whether the sender task ended because its loop did, cancelled or not, and not by a bug."""

    def look_for_end(self) -> None:
        """Find out whether the loop was closed without the sender task's knowledge: that is `on_death`, too."""

    @property
    def running_loop(self) -> Callable[[], object]:
        """Gives the caller's event loop, or `None`."""

    @property
    def is_running(self) -> Callable[[], bool]:
        """Whether this driver's loop is the one that runs in this thread (asked in the thread of `start()` only).

        Asked with every `send()`: a tenth of the price of `running_loop()`, which makes a system call.
        """

    @property
    def wall_ms(self) -> Callable[[], int] | None:
        """The wall clock in milliseconds since the epoch; `None` where that is the machine's own."""

    @property
    def current_task(self) -> Callable[[], object]:
        """Gives the task that calls, to be told from others."""

    def now(self) -> float:
        """The clock that every instant of the core refers to: monotonic seconds."""

    def start(
        self,
        sender: Core,
        *,
        on_death: Callable[[BaseException], None],
        on_settled: Callable[[BatchResult], None],
    ) -> None:
        """Begin to run the core in a task of its own.

        Args:
            sender: The core.
            on_death: Called once if the task ends by anything but the core's own end. If nobody runs the task
                any more, the garbage collector or `look_for_end()` is the caller.
            on_settled: Called, outside the core, with each result that has delivery callbacks.
        """

    def wake(self) -> None:
        """The core has work; cheap when it was told before."""

    def make_waiter(self) -> Waiter:
        """A waiter for the calling task."""

    async def yield_once(self) -> None:
        """Give the loop one turn."""

    def on_next_turn(self, callback: Callable[[], None]) -> None:
        """Call back when the loop has come round: whatever was ready before ran by then."""

    async def join(self, deadline: float) -> bool:
        """Wait until the core has ended and every socket is closed.

        Returns:
            Whether that was so by the deadline.
        """

    def body(self) -> AbstractContextManager[object]:
        """Around the body of `async with producer:`, and its close.

        Where tasks are structured (trio), the sender's death cancels what is in it.
        """

    def shielded(self) -> AbstractContextManager[object]:
        """Around a bounded wait of a task that was cancelled: what cancelled it does not end the wait."""

    async def end_aborted(self, deadline: float) -> bool:
        """`join()` for a `close()` that was cancelled, after the core was told to abort.

        Where a cancelled task's next wait would raise at once (trio) this one is shielded; elsewhere nothing need
        be waited for.

        Returns:
            False if something has not ended by the deadline.
        """

    async def kill(self) -> None:
        """End the task and drop every socket, whatever the core says. That is no death: `on_death` is not called.

        A thread that still compresses is left to itself; when it is done, the core is told.
        """
