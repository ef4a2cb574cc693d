"""Which batches are compressed where, and when: in the Sender's own step, or by another thread.

Owned by the RecordAccumulator, which asks when a partition's queue changes (`look_ahead()`), before it sends a
batch (`prepare()`), and when a thread is done (`finished()`). It decides; the work of others it asks for by
`Compress` effects, which the Sender hands to the driver.

A batch goes to another thread if its compression would take longer than handing it over (`HAND_OVER`), or if
the Sender's step has spent its share (`STEP_SHARE`) on others. What goes there goes early: a full batch as
soon as it is among the first of its queue, one that lingered when its time has come, so that compression and
network work at the same time. Small ones wait for their request, and fill up meanwhile.

Invariants:

1. A batch is closed for appends before a thread sees it, and COMPRESSING while one does.
2. One step, that is one `now`, compresses `STEP_SHARE` seconds by itself at most, by the codec's own estimate.
3. No more is given away than keeps two threads busy until the loop comes round again: `WINDOW` seconds of work,
   or two batches. So what is given up while it waits here costs nothing, and the end of a producer waits for two
   batches at most.
4. Partitions take turns; within one its batches are compressed in their order.
5. At most `AHEAD` batches of a partition are compressed and not yet sent: the copies are extra memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.core.effects import Compress

if TYPE_CHECKING:
    from aioproduce.compression import Codec
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.topic_queues import PartitionQueue

HAND_OVER: Final = 50e-6
"""Seconds that a hand-over and its report cost a busy loop; docs/explanation/measurements.md has the figures."""
STEP_SHARE: Final = 500e-6
WINDOW: Final = 10e-3
"""Several turns of a loop that a busy sender yields to each millisecond, for two threads."""
AHEAD: Final = 5
"""As many as can be in flight of one partition."""
THREADS: Final = 2
"""How many threads a driver runs."""


@final
class BatchCompression:
    """Chooses between here and elsewhere.

    Args:
        codec: The compression.

    Attributes:
        codec: Likewise.
        effects: Jobs for other threads; drained from the left by the Sender.
        failures: Batches whose compression failed in the step itself, and why; drained by the Sender.
    """

    __slots__ = (
        "_backlog",
        "_in_progress",
        "_is_stopped",
        "_spent",
        "_step_at",
        "_waiting",
        "codec",
        "effects",
        "failures",
    )

    def __init__(self, codec: Codec) -> None:
        self.codec: Codec = codec
        self.effects: deque[Compress[ProducerBatch]] = deque()
        self.failures: deque[tuple[ProducerBatch, Exception]] = deque()
        self._waiting: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._in_progress: dict[ProducerBatch, float] = {}
        self._backlog = 0.0
        self._step_at = 0.0
        self._spent = 0.0
        self._is_stopped = False

    @property
    def in_progress(self) -> int:
        """How many batches other threads have, or will be given by the effects."""
        return len(self._in_progress)

    def awaits(self, batch: ProducerBatch) -> bool:
        """Whether another thread is to compress this batch before it can be sent."""
        return batch.state is BatchState.COMPRESSING or (not batch.is_compressed and self._is_long(batch))

    def look_ahead(self, queue: PartitionQueue, *, is_ready: bool) -> None:
        """A queue changed: give away what should not wait for its request.

        Args:
            queue: With at least one batch.
            is_ready: Whether its first batch would be sent now, if it were compressed.
        """
        head = queue.batches[0]
        # Only the first of a queue is closed by its age. To close those behind it, too, would leave leased buffers
        # half empty while a broker is slow.
        if is_ready and head.is_open and self._is_long(head):
            queue.close_open()
        if not self._is_stopped and self._next_of(queue, is_head_wanted=False) is not None:
            self._waiting[queue] = None
            self._give_away()

    def prepare(self, queue: PartitionQueue, now: float) -> bool:
        """The first batch of a queue is to be sent now: have it compressed.

        Returns:
            Whether it is. Otherwise it will be, and `finished()` is what makes it sendable; or it failed.
        """
        batch = queue.batches[0]
        if batch.is_compressed:
            return True
        if now != self._step_at:
            self._step_at = now
            self._spent = 0.0
        cost = self.codec.cost(batch.records.size)
        if batch.state is BatchState.QUEUED and cost <= HAND_OVER and self._spent + cost <= STEP_SHARE:
            self._spent += cost
            queue.close_open()
            try:
                batch.compress(self.codec)
            except Exception as error:
                # It fails alone, and leaves no gap: sequences are given when a batch is sent.
                self.failures.append((batch, error))
                return False
            return True
        queue.close_open()
        self._waiting[queue] = None
        self._give_away()
        return False

    def finished(self, batch: ProducerBatch) -> None:
        """Another thread is done with a batch."""
        self._backlog -= self._in_progress.pop(batch)
        self._give_away()

    def stop(self) -> None:
        """Give nothing away any more: all is about to be given up. What no thread has seen yet is taken back."""
        self._is_stopped = True
        self._waiting.clear()
        while self.effects:
            batch = self.effects.pop().batch
            del self._in_progress[batch]
            if batch.state is BatchState.COMPRESSING:
                batch.cancel_compression()
            else:
                batch.release_abandoned()

    def _give_away(self) -> None:
        while self._waiting:
            queue = next(iter(self._waiting))
            batch = self._next_of(queue, is_head_wanted=True)
            if batch is None:
                del self._waiting[queue]
                continue
            cost = self.codec.cost(batch.records.size)
            if len(self._in_progress) >= THREADS and self._backlog + cost > WINDOW:
                break
            self._in_progress[batch] = cost
            self._backlog += cost
            self.effects.append(Compress(batch, self.codec, batch.begin_compression()))
            self._waiting.move_to_end(queue)

    def _next_of(self, queue: PartitionQueue, *, is_head_wanted: bool) -> ProducerBatch | None:
        """The first batch of a queue that another thread should compress; the head, if wanted, in any case."""
        for batch in islice(queue.batches, AHEAD):
            if batch.is_open:
                return None
            is_wanted = is_head_wanted and batch is queue.batches[0]
            if (
                batch.state is BatchState.QUEUED
                and not batch.is_compressed
                and (is_wanted or self._is_long(batch))
            ):
                return batch
        return None

    def _is_long(self, batch: ProducerBatch) -> bool:
        return self.codec.cost(batch.records.size) > HAND_OVER
