"""Which partitions can be sent now, which at some instant, and which not before something happens.

Owned by the RecordAccumulator, which tells what changed; the Sender asks. Java scans every partition at each
wake-up; here readiness is an event: whatever makes a partition's first batch sendable puts it into the ready queue
of its leader, and what only time makes sendable waits in a heap of deadlines.

Invariants:

1. A partition is in at most one ready queue, that of its leader; or among the leaderless; or blocked by the
   idempotent protocol; or waiting for an instant in `_deadlines`; or has nothing to send.
2. Only the first batch of a queue is sent, and only compressed: one that another thread still compresses holds
   up those behind it, however ready they are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.batching.ready_queues import ReadyQueues
from aioproduce.core.batching.topic_queues import NO_LEADER
from aioproduce.core.deadlines import Deadlines

if TYPE_CHECKING:
    from aioproduce.core.batching.batch_compression import BatchCompression
    from aioproduce.core.batching.buffer_pool import BufferPool
    from aioproduce.core.batching.topic_queues import PartitionQueue

NOW: Final = float("-inf")


@final
class Readiness:
    """The state of every partition that has something to send.

    Args:
        pool: While anyone waits for its memory, nothing lingers.
        compression: Where and when batches are compressed, or `None`.
        linger: Seconds that a batch waits for more records.

    Attributes:
        ready: Which can be sent now.
        has_news: Set when something became ready or a deadline appeared; the Sender clears it when it has looked.
        has_new_leaderless: Set when a partition without a leader got something to send; cleared likewise.
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
        self._deadlines: Deadlines[PartitionQueue] = Deadlines()
        self._lingering: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._flush_before = 0
        self._is_closing = False
        self.has_news: bool = False
        self.has_new_leaderless: bool = False

    # -- what changed ---

    def reconsider(self, queue: PartitionQueue, now: float) -> None:
        """Something about this partition changed: see whether, or when, its first batch can be sent."""
        at = self._sendable_at(queue)
        if self._compression is not None and queue.batches:
            is_ready = at is not None and (at == NOW or at <= now)
            self._compression.look_ahead(queue, is_ready=is_ready)
            if is_ready and self._compression.awaits(queue.batches[0]):
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
        """The last batch was added, or closed: which matters where it is the first, or is compressed ahead."""
        if len(queue.batches) == 1 or self._compression is not None:
            self.has_news = True
            self.reconsider(queue, now)

    def block(self, queue: PartitionQueue) -> None:
        """The idempotent protocol forbids to send of this partition, for now. It is in no ready queue."""
        queue.is_blocked = True
        self._blocked[queue] = None

    def unblock(self, queue: PartitionQueue, now: float) -> None:
        """That protocol's state of this partition changed."""
        if queue.is_blocked:
            queue.is_blocked = False
            del self._blocked[queue]
            self.reconsider(queue, now)

    def unblock_all(self, now: float) -> None:
        """The producer id or epoch changed."""
        for queue in list(self._blocked):
            self.unblock(queue, now)

    def memory_exhausted(self, now: float) -> None:
        """A `send()` began to wait for memory: no batch lingers any longer."""
        lingering, self._lingering = self._lingering, OrderedDict()
        for queue in lingering:
            self.reconsider(queue, now)

    def flush_before(self, batch_id: int, now: float) -> None:
        """Let no batch of a lower id linger."""
        self._flush_before = batch_id
        self.memory_exhausted(now)

    def begin_close(self, now: float) -> None:
        """Let nothing linger any more."""
        self._is_closing = True
        self.memory_exhausted(now)

    # -- what is ready ---

    def first(self, node: int, now: float) -> PartitionQueue | None:
        """The partition whose turn it is at a node; it stays first in line until it is removed from `ready`."""
        while (queue := self.ready.first(node)) is not None:
            at = self._sendable_at(queue)
            if at is not None and at <= now:
                break
            self.reconsider(queue, now)  # it was ready because someone waited for memory
        return queue

    # -- time ---

    def handle_timer(self, now: float) -> None:
        """Move what linger or back-off held up, and whose time has come, to the ready queues."""
        for queue in self._deadlines.pop_due(now):
            self.reconsider(queue, now)

    def next_timer(self) -> float | None:
        """When `handle_timer()` has something to do next."""
        return self._deadlines.next_at()

    def _sendable_at(self, queue: PartitionQueue) -> float | None:
        """When the first batch can be sent: an instant, `NOW`, or `None` if no passing of time brings it."""
        if not queue.batches or queue.is_muted or queue.is_blocked:
            return None
        head = queue.batches[0]
        if head.attempts:
            # A newer leader than the one that refused it is worth an attempt at once (KIP-951).
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
