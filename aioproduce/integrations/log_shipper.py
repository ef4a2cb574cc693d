"""Passes lines from the queue to a producer, on the producer's event loop.

Created by `KafkaLogHandler`, one for each producer.

Invariants:

1. Lines are sent in the order in which they were logged.
2. A line that the producer does not accept because of the cluster (no broker, no room) stays first and is tried
   again. An outage costs only the lines that do not fit into the queue.
3. After it ends, lines that were not accepted are back in the queue.
4. A flood of lines does not block the event loop: other tasks run after every few lines.
5. With a queue on disk (`SpoolShipper`) a line is shipped when it is there, and no outage of the cluster costs one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import (
    MaxBlockTimeoutError,
    ProducerError,
    ProducerStateError,
    SpoolFullError,
    SpoolStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.integrations.log_queue import LogQueue
    from aioproduce.producer.producer import Producer
    from aioproduce.records import RecordMetadata
    from aioproduce.spool import SpooledProducer

_log = logging.getLogger("aioproduce.logging")

# Some 100 microseconds of work.
_LINES_PER_TURN: Final = 100

# Seconds after which lines are tried again for which the queue on disk had no room, or whose disk failed.
_PAUSE: Final = 0.2


class Shipper:
    """Passes the lines of one queue to one producer; the subclasses know how.

    Args:
        queue: The queue.
        topic: The topic.
        notice_of: Returns a line that reports a number of dropped lines.

    Attributes:
        shipped: Lines that are in the log.
        failed: Lines that the producer refused, or that were not acknowledged.
        loop: The event loop that it runs on.
    """

    __slots__ = (
        "_bounded_log",
        "_idle",
        "_in_hand",
        "_is_over",
        "_news",
        "_notice_of",
        "_queue",
        "_topic",
        "failed",
        "loop",
        "shipped",
    )

    def __init__(
        self,
        queue: LogQueue,
        topic: str,
        notice_of: Callable[[int], bytes | None],
    ) -> None:
        self._queue = queue
        self._topic = topic
        self._notice_of = notice_of
        self._in_hand: deque[bytes] = deque()
        self._bounded_log = BoundedLog(_log)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._is_over = False
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.shipped: int = 0
        self.failed: int = 0

    async def run(self) -> None:
        """Send lines until cancelled, or until the producer is closed or fails."""
        self._queue.on_line(self._wake)
        try:
            while True:
                self._news.clear()
                self._in_hand.extend(self._queue.take(_LINES_PER_TURN))
                self._add_notice()
                if self._in_hand:
                    self._idle.clear()
                    await self._hand_over()
                    await asyncio.sleep(0)
                else:
                    self._idle.set()
                    await self._news.wait()
        except ProducerStateError as error:
            _log.warning("log records are no longer sent: %s", error)
        finally:
            self._queue.on_line(None)
            self._queue.put_back(self._in_hand)
            self._in_hand.clear()
            self._is_over = True
            self._idle.set()

    def _wake(self) -> None:
        self.loop.call_soon_threadsafe(self._news.set)

    def _add_notice(self) -> None:
        dropped = self._queue.untold_drops()
        if dropped:
            self._bounded_log.warning(
                "dropped",
                self.loop.time(),
                "%d log record(s) were dropped: the queue was full. Log less, raise capacity, or check the "
                "brokers",
                dropped,
            )
            notice = self._notice_of(dropped)
            if notice is not None:
                self._queue.count_notice()
                self._in_hand.append(notice)

    async def _hand_over(self) -> None:
        """Pass on the lines in hand, in order, until none is left.

        Raises:
            ProducerStateError: If the producer is closed or failed.
        """
        raise NotImplementedError

    async def _flush_producer(self) -> None:
        """Wait until what was passed on is safe."""
        raise NotImplementedError

    def _count_shipped(self) -> None:
        self.shipped += 1

    def _count_failed(self, error: BaseException) -> None:
        self.failed += 1
        self._bounded_log.warning(
            type(error).__name__, self.loop.time(), "a log record was not sent: %s", error
        )

    async def flush(self) -> None:
        """Wait until all earlier lines are acknowledged or failed, without a time limit."""
        if self._is_over:
            return
        self._news.set()
        self._idle.clear()
        await self._idle.wait()
        if not self._is_over:
            await self._flush_producer()

    async def end(self, running: asyncio.Task[None], timeout: float) -> None:
        """Flush for at most this time, and end `run()`; unsent lines are then back in the queue.

        Args:
            running: The task of `run()`.
            timeout: Seconds.
        """
        flushing = self.loop.create_task(self.flush())
        try:
            await asyncio.wait([flushing, running], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            flushing.cancel()
            running.cancel()
            await asyncio.wait([flushing, running])
            if not flushing.cancelled() and (error := flushing.exception()) is not None:
                _log.warning("log records were not flushed: %s", error)


@final
class LogShipper(Shipper):
    """Sends lines to the cluster.

    Args:
        queue: The queue.
        producer: A running producer.
        topic: The topic.
        notice_of: Returns a line that reports a number of dropped lines.
    """

    __slots__ = ("_producer",)

    def __init__(
        self,
        queue: LogQueue,
        producer: Producer[Any, Any],
        topic: str,
        notice_of: Callable[[int], bytes | None],
    ) -> None:
        super().__init__(queue, topic, notice_of)
        self._producer = producer

    async def _hand_over(self) -> None:
        while self._in_hand:
            try:
                await self._producer.send(self._topic, self._in_hand[0], on_delivery=self._settled)
            except MaxBlockTimeoutError as error:
                self._bounded_log.warning("waits", self.loop.time(), "log records wait: %s", error)
                continue
            except ProducerStateError:
                raise
            except ProducerError as error:
                # A fault of the record itself, or of a set-up that time does not change: the next record may
                # succeed.
                self._count_failed(error)
                await asyncio.sleep(0)
            self._in_hand.popleft()

    def _settled(self, _: RecordMetadata, error: BaseException | None) -> None:
        if error is None:
            self._count_shipped()
        else:
            self._count_failed(error)

    async def _flush_producer(self) -> None:
        await self._producer.flush()


@final
class SpoolShipper(Shipper):
    """Puts lines on disk: those in hand share a sync.

    Args:
        queue: The queue.
        producer: A running producer.
        topic: The topic.
        notice_of: Returns a line that reports a number of dropped lines.
    """

    __slots__ = ("_knows_topic", "_producer")

    def __init__(
        self,
        queue: LogQueue,
        producer: SpooledProducer,
        topic: str,
        notice_of: Callable[[int], bytes | None],
    ) -> None:
        super().__init__(queue, topic, notice_of)
        self._producer = producer
        self._knows_topic = False

    async def _hand_over(self) -> None:
        while self._in_hand:
            # Tasks keep their order only once the topic is known.
            lines = list(self._in_hand) if self._knows_topic else [self._in_hand[0]]
            outcomes = await asyncio.gather(*map(self._store, lines), return_exceptions=True)
            left = [line for line, outcome in zip(lines, outcomes, strict=True) if not self._is_done(outcome)]
            for _ in lines:
                self._in_hand.popleft()
            self._in_hand.extendleft(reversed(left))
            if left:
                await asyncio.sleep(_PAUSE)
            self._knows_topic = True

    async def _store(self, line: bytes) -> None:
        await self._producer.send(self._topic, line)

    def _is_done(self, outcome: BaseException | None) -> bool:
        """Count the outcome of a line; return false if it has to be tried again."""
        if outcome is None:
            self._count_shipped()
            return True
        if isinstance(outcome, (SpoolFullError, SpoolStorageError, MaxBlockTimeoutError)):
            self._bounded_log.warning("waits", self.loop.time(), "log records wait: %s", outcome)
            return False
        if isinstance(outcome, ProducerStateError) or not isinstance(outcome, ProducerError):
            raise outcome
        self._count_failed(outcome)
        return True

    async def _flush_producer(self) -> None:
        """Do nothing: what was passed on is on disk."""
