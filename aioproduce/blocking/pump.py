"""The loop thread's side of `BlockingProducer`: moves records from the hand-over into batches, in order.

Run by `Session` and by each transaction as a task of its own. Records for an open batch are appended in C, many at
a time. A record that needs a decision is sent as `Producer.send()` does it.

Invariants:

1. Each entry is accepted or refused exactly once, even if the task ends in the middle.
2. A record that waits for memory delays all later ones, which would also wait. A record of a topic without metadata
   delays only that topic's records (a *lane*), which keep their order.
3. An entry waits here at most `max.block.ms` from its hand-over on.
4. Other tasks of the loop run about every millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import (
    ForcedCloseError,
    ProducerClosedError,
    ProducerError,
    TransactionAbortedError,
    TransactionError,
)
from aioproduce.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce._native.hand_over import HandOver
    from aioproduce.blocking.line import Line
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_life import TransactionLife

# This many records take a fraction of a millisecond; then the clock is read.
_MOST: Final = 1024
_TURN: Final = 0.001


@final
class _Lane:
    """Records of one topic that wait until it is known again."""

    __slots__ = ("entries", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.entries: deque[BlockingDelivery] = deque()


@final
class Pump:
    """Moves records from the hand-over into batches.

    life: The Producer's life.
    max_block: `max.block.ms`, in seconds.
    hand_over: The hand-over.
    line: Threads that wait for room in it.
    on_refusal: Called with the error of each record that did not get into a batch.
    """

    __slots__ = (
        "_at",
        "_entries",
        "_hand_over",
        "_is_stopped",
        "_is_woken",
        "_lanes",
        "_left",
        "_life",
        "_line",
        "_marks",
        "_max_block",
        "_on_refusal",
        "_sleeper",
    )

    def __init__(
        self,
        life: ProducerLife | TransactionLife,
        max_block: float,
        hand_over: HandOver,
        line: Line,
        on_refusal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._life = life
        self._on_refusal = on_refusal
        self._max_block = max_block
        self._hand_over = hand_over
        self._line = line
        self._entries: list[BlockingDelivery] = []
        self._at = 0
        # How many entries have left the hand-over (into a batch or a lane, or refused), and who waits for which
        # number.
        self._left = 0
        self._marks: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._lanes: dict[str, _Lane] = {}
        self._sleeper: asyncio.Future[None] | None = None
        self._is_woken = False
        self._is_stopped = False

    # -- the task ---

    async def run(self) -> None:
        """Move records until `stop()`.

        Raises:
            ProducerStateError: If the Producer failed.
        """
        while not self._is_stopped:
            self._is_woken = False
            self._entries = self._hand_over.take()
            self._at = 0
            if self._entries:
                await self._accept()
            self._line.move()
            if not self._is_woken and not self._is_stopped:
                self._sleeper = asyncio.get_running_loop().create_future()
                try:
                    await self._sleeper
                finally:
                    self._sleeper = None

    def wake(self) -> None:
        """Check the hand-over again; called in the loop thread."""
        self._is_woken = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def stop(self) -> None:
        """End the task after its current step."""
        self._is_stopped = True
        self.wake()

    def answer(self) -> None:
        """Serve threads that wait for records accepted earlier; called in the loop thread."""
        for delivery in self._hand_over.take_questions():
            delivery._heed_watch()

    async def _accept(self) -> None:
        entries, life = self._entries, self._life
        count = len(entries)
        began_at = time.monotonic()
        while self._at < count:
            life.check_running()
            stop = min(count, self._at + _MOST)
            at = self._hand_over.accept(entries, self._at, stop, self._lanes)
            self._passed(at)
            if at < stop:
                await self._decide(entries[at])
                self._passed(at + 1)
            self._line.move()
            if time.monotonic() - began_at >= _TURN:
                await asyncio.sleep(0)
                began_at = time.monotonic()
        self._entries = []

    def _passed(self, at: int) -> None:
        self._left += at - self._at
        self._at = at
        while self._marks and self._marks[0][0] <= self._left:
            _, waiter = self._marks.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # -- one record ---

    async def _decide(self, entry: BlockingDelivery) -> None:
        """Accept a record that needs a decision, or refuse it."""
        record = SerializedRecord._make(entry._record)
        topic = record.topic
        lane = self._lanes.get(topic)
        if lane is not None:
            lane.entries.append(entry)
            return
        admission = self._life.admission
        try:
            delivery = admission.append_at_once(record)
            if delivery is None and self._life.sender.metadata.topic(topic) is not None:
                delivery = await admission.append_waiting(record, self._time_left(entry))
        except Exception as error:
            self._refuse(entry, error)
            return
        if delivery is not None:
            self._is_in(entry, delivery)
            return
        lane = self._lanes[topic] = _Lane()
        lane.entries.append(entry)
        lane.task = asyncio.get_running_loop().create_task(
            self._serve(topic, lane), name=f"aioproduce records that wait for topic {topic}"
        )

    async def _serve(self, topic: str, lane: _Lane) -> None:
        """Accept the records of a lane in order."""
        try:
            while lane.entries:
                entry = lane.entries[0]
                record = SerializedRecord._make(entry._record)
                try:
                    delivery = await self._life.admission.append_waiting(record, self._time_left(entry))
                except Exception as error:
                    self._refuse(entry, error)
                else:
                    self._is_in(entry, delivery)
                lane.entries.popleft()
        finally:
            if not lane.entries:
                del self._lanes[topic]

    def _time_left(self, entry: BlockingDelivery) -> float:
        return max(entry._handed_at + self._max_block - time.monotonic(), 0.0)

    def _is_in(self, entry: BlockingDelivery, delivery: DeliveryFuture) -> None:
        self._hand_over.left(entry)
        entry._accept(delivery)

    def _refuse(self, entry: BlockingDelivery, error: BaseException) -> None:
        if isinstance(error, ProducerClosedError):
            error = forced_close(entry)
        elif isinstance(error, TransactionError):
            error = not_in_transaction(entry, error)
        self._hand_over.left(entry)
        if isinstance(error, ProducerError):
            self._life.count_refusal(error)
        if self._on_refusal is not None:
            self._on_refusal(error)
        entry._refuse(error)

    # -- waiting and end ---

    async def through(self, timeout: float | None) -> bool:
        """Wait until all records handed over so far are accepted or refused.

        Returns:
            False if that took longer than `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._reached(self._hand_over.sent)
                while self._lanes:
                    await asyncio.wait([lane.task for lane in self._lanes.values()])
        except TimeoutError:
            return False
        return True

    async def behind(self, topic: str, timeout: float) -> None:
        """Wait at most `timeout` seconds until all records of a topic that were handed over earlier have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._reached(self._hand_over.sent)
                while (lane := self._lanes.get(topic)) is not None:
                    await asyncio.wait([lane.task])

    async def _reached(self, mark: int) -> None:
        if self._left < mark:
            waiter = asyncio.get_running_loop().create_future()
            self._marks.append((mark, waiter))
            await waiter

    async def settle(self, make_error: Callable[[BlockingDelivery], BaseException]) -> None:
        """Refuse the remaining records, after the hand-over is shut and the task has ended."""
        for lane in list(self._lanes.values()):
            lane.task.cancel()
            await asyncio.wait([lane.task])
        left = [entry for lane in self._lanes.values() for entry in lane.entries]
        self._lanes.clear()
        left += self._entries[self._at :]
        left += self._hand_over.take()
        self._entries = []
        self._at = 0
        for entry in left:
            self._refuse(entry, make_error(entry))
        self._left = self._hand_over.sent
        for _, waiter in self._marks:
            if not waiter.done():
                waiter.set_result(None)
        self._marks.clear()

    async def end(self, make_error: Callable[[BlockingDelivery], BaseException]) -> None:
        """Refuse the remaining records and serve all waiting threads, after the Producer has ended."""
        await self.settle(make_error)
        for delivery in self._hand_over.end():
            delivery._heed_watch()


def forced_close(entry: BlockingDelivery) -> ForcedCloseError:
    """Return the error for a record that was in no batch when the producer was closed."""
    partition = entry._record[4]
    return ForcedCloseError(
        "the producer was closed before the record was sent: give close() more time, or call flush() first",
        topic_partition=TopicPartition(entry.topic, -1 if partition is None else partition),
        possibly_written=False,
        attempts=0,
        retriable=True,
    )


def not_in_transaction(entry: BlockingDelivery, cause: TransactionError | None) -> TransactionAbortedError:
    """Return the error for a record that was in no batch when its transaction ended or failed."""
    partition = entry._record[4]
    error = TransactionAbortedError(
        "the record was not sent: its transaction " + ("is being aborted" if cause is None else "has failed"),
        topic_partition=TopicPartition(entry.topic, -1 if partition is None else partition),
        possibly_written=False,
        attempts=0,
        retriable=True,
    )
    error.__cause__ = cause
    return error
