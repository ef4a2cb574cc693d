"""Which partitions can be sent now, which at some instant, and which only after an event.

Owned by the RecordAccumulator, which reports changes; the Sender reads the result. Java scans every partition at
each wake-up. Here readiness is an event: a change that makes a partition's first batch sendable puts the partition
into the ready queue of its leader. A partition that only time makes sendable waits in a heap of deadlines.

Invariants:

1. A partition is in one ready queue (its leader's, or that of the leaderless), or blocked by the idempotent
   protocol, or waiting for an instant in `_deadlines`, or in none of these; never in two.
2. Only the first batch of a queue is sent, and only compressed: a batch that another thread still compresses
   blocks those behind it, even if they are ready.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from aioproduce.core.batching.ready_queues import ReadyQueues
from aioproduce.core.batching.topic_queues import NO_LEADER
from aioproduce.core.deadlines import Deadlines

if TYPE_CHECKING:
    from aioproduce.core.batching.batch_compression import BatchCompression
    from aioproduce.core.batching.buffer_pool import BufferPool
    from aioproduce.core.batching.topic_queues import PartitionQueue

NOW: Final = float("-inf")


class Readiness:
    """The state of every partition that has something to send.

    Args:
        pool: While a request waits for its memory, nothing lingers.
        compression: The compression of batches, or `None`.
        linger: Seconds that a batch waits for more records.

    Attributes:
        ready: The partitions that can be sent now.
        has_news: Set when a partition became ready or a deadline appeared; the Sender clears it after a look.
        has_new_leaderless: Set when a partition without a leader got something to send; the Sender clears it, too.
    """

    __slots__ = (
        "_blocked",
        "_compression",
        "_deadlines",
        "_flush_before",
        "_is_closing",
        "_linger",
        "_lingering",
        "_pool",
        "has_new_leaderless",
        "has_news",
        "ready",
    )

    def __init__(self, *, pool: BufferPool, compression: BatchCompression | None, linger: float) -> None:
        self._pool = pool
        self._compression = compression
        self._linger = linger
        self.ready: ReadyQueues = ReadyQueues()
        self._blocked: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._deadlines: Deadlines = Deadlines()
        self._lingering: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._flush_before = 0
        self._is_closing = False
        self.has_news: bool = False
        self.has_new_leaderless: bool = False

    # -- changes ---

    def reconsider(self, queue: PartitionQueue, now: float) -> None:
        """Decide again, after a change of a partition, whether or when its first batch can be sent."""
        at = self._sendable_at(queue)
        head = queue.batches.first
        if self._compression is not None and head is not None:
            is_ready = at is not None and (at == NOW or at <= now)
            self._compression.look_ahead(queue, is_ready=is_ready)
            if is_ready and self._compression.awaits(head):
                at = None
        if at is not None and at > now and at != NOW:
            self.ready.remove(queue)
            self._lingering[queue] = None
            self._deadlines.reschedule(queue, at)
            self.has_news = True
            return
        self._lingering.pop(queue, None)
        self._deadlines.cancel(queue)
        if at is None:
            self.ready.remove(queue)
        else:
            self._mark_ready(queue)

    def tail_changed(self, queue: PartitionQueue, now: float) -> None:
        """Handle that the last batch was added or closed. It matters if it is the first, or is compressed ahead."""
        if queue.batches.first is queue.batches.last or self._compression is not None:
            self.has_news = True
            self.reconsider(queue, now)

    def block(self, queue: PartitionQueue) -> None:
        """Mark a partition as blocked by the idempotent protocol, for now. It is in no ready queue."""
        queue.is_blocked = True
        self._blocked[queue] = None

    @property
    def has_blocked(self) -> bool:
        """Whether any partition is blocked."""
        return bool(self._blocked)

    def unblock(self, queue: PartitionQueue, now: float) -> None:
        """Decide again after a change of the partition's state in the idempotent protocol."""
        if queue.is_blocked:
            queue.is_blocked = False
            del self._blocked[queue]
            self.reconsider(queue, now)

    def unblock_all(self, now: float) -> None:
        """Decide again for all blocked partitions: the producer id or epoch changed."""
        for queue in list(self._blocked):
            self.unblock(queue, now)

    def memory_exhausted(self, now: float) -> None:
        """End all lingering: a `send()` began to wait for memory."""
        lingering, self._lingering = self._lingering, OrderedDict()
        for queue in lingering:
            self.reconsider(queue, now)

    def flush_before(self, batch_id: int, now: float) -> None:
        """Let no batch with a lower id linger."""
        self._flush_before = batch_id
        self.memory_exhausted(now)

    def begin_close(self, now: float) -> None:
        """Let nothing linger any more."""
        self._is_closing = True
        self.memory_exhausted(now)

    # -- ready partitions ---

    def first(self, node: int, now: float) -> PartitionQueue | None:
        """Return the partition whose turn it is at a node; it stays first until it is removed from `ready`."""
        while (queue := self.ready.first(node)) is not None:
            at = self._sendable_at(queue)
            if at is not None and at <= now:
                break
            self.reconsider(queue, now)  # it was ready because a request waited for memory
        return queue

    # -- time ---

    def handle_timer(self, now: float) -> None:
        """Move partitions whose linger or back-off is over to the ready queues."""
        for queue in self._deadlines.pop_due(now):
            self.reconsider(queue, now)

    def next_timer(self) -> float | None:
        """Return when `handle_timer()` has work next."""
        return self._deadlines.next_at()

    def _sendable_at(self, queue: PartitionQueue) -> float | None:
        """Return when the first batch can be sent: an instant, `NOW`, or `None` if it takes an event."""
        head = queue.batches.first
        if head is None or queue.is_muted or queue.is_blocked:
            return None
        if head.attempts:
            # It is retried at once with a newer leader than the one that refused it (KIP-951).
            return NOW if queue.leader_epoch > head.sent_leader_epoch else head.retry_at
        if (
            not head.is_open
            or head.batch_id < self._flush_before
            or self._is_closing
            or self._pool.is_exhausted
        ):
            return NOW
        return head.created_at + self._linger

    def _mark_ready(self, queue: PartitionQueue) -> None:
        if self.ready.add(queue):
            self.has_news = True
            if queue.ready_node == NO_LEADER:
                self.has_new_leaderless = True
