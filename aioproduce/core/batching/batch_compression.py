"""Where and when batches are compressed: in the Sender's own step, or in another thread.

Owned by the RecordAccumulator, which calls it when a partition's queue changes (`look_ahead()`), before it sends a
batch (`prepare()`), and when a thread is done (`finished()`). It requests work of other threads by `Compress`
effects, which the Sender passes to the driver.

A batch goes to another thread if its compression would take longer than the hand-over (`HAND_OVER`), or if
the Sender's step has spent its share (`STEP_SHARE`) on other batches. It goes there early: a full batch as
soon as it is among the first of its queue, a lingering batch when its linger is over. So compression and
network work at the same time. Small batches wait for their request, and fill up meanwhile.

Invariants:

1. A batch is closed for appends before a thread sees it, and COMPRESSING while one does.
2. One step, that is one `now`, compresses for `STEP_SHARE` seconds at most, by the codec's own estimate.
3. Other threads get only as much as keeps two of them busy until the loop's next turn: `WINDOW` seconds of work,
   or two batches. So a batch that fails while it waits here costs nothing, and the end of a producer waits for two
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
"""Several turns of the loop, to which a busy sender yields each millisecond; for two threads."""
AHEAD: Final = 5
"""As many batches as one partition can have in flight."""
THREADS: Final = 2
"""How many threads a driver runs."""


@final
class BatchCompression:
    """The choice between compression in the step and in another thread.

    Args:
        codec: The compression.

    Attributes:
        codec: As above.
        effects: Jobs for other threads; the Sender drains them from the left.
        failures: Batches whose compression failed in the step itself, with the errors; the Sender drains them.
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
        """How many batches other threads have, or get by the pending effects."""
        return len(self._in_progress)

    def awaits(self, batch: ProducerBatch) -> bool:
        """Return whether another thread must compress this batch before it can be sent."""
        return batch.state is BatchState.COMPRESSING or (not batch.is_compressed and self._is_long(batch))

    def look_ahead(self, queue: PartitionQueue, *, is_ready: bool) -> None:
        """Pass batches of a changed queue to other threads, if they should not wait for their request.

        Args:
            queue: A queue with at least one batch.
            is_ready: Whether its first batch would be sent now, if it were compressed.
        """
        head = queue.batches.first
        assert head is not None
        # Only the first batch of a queue is closed by its age. If those behind it were, too, leased buffers would
        # stay half empty while a broker is slow.
        if is_ready and head.is_open and self._is_long(head):
            queue.close_open()
        if not self._is_stopped and self._next_of(queue, is_head_wanted=False) is not None:
            self._waiting[queue] = None
            self._give_away()

    def prepare(self, queue: PartitionQueue, now: float) -> bool:
        """Compress the first batch of a queue, which is to be sent now, or let another thread do it.

        Returns:
            Whether it is compressed. If not, another thread will compress it and `finished()` makes it sendable, or
            its compression failed.
        """
        batch = queue.batches.first
        assert batch is not None
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
                # It fails alone, and leaves no gap: a batch gets its sequence when it is sent.
                self.failures.append((batch, error))
                return False
            return True
        queue.close_open()
        self._waiting[queue] = None
        self._give_away()
        return False

    def finished(self, batch: ProducerBatch) -> None:
        """Note that another thread is done with a batch."""
        self._backlog -= self._in_progress.pop(batch)
        self._give_away()

    def stop(self) -> None:
        """Start no more jobs, since all batches are about to fail, and cancel those that no thread has yet."""
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
        """Return the first batch of a queue that another thread should compress; a wanted head always counts."""
        for batch in islice(queue.batches, AHEAD):
            if batch.is_open:
                return None
            is_wanted = is_head_wanted and batch is queue.batches.first
            if (
                batch.state is BatchState.QUEUED
                and not batch.is_compressed
                and (is_wanted or self._is_long(batch))
            ):
                return batch
        return None

    def _is_long(self, batch: ProducerBatch) -> bool:
        return self.codec.cost(batch.records.size) > HAND_OVER
