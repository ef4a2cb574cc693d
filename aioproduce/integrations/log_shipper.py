"""Passes lines from the queue to a producer, on the producer's event loop.

Created by `KafkaLogHandler`, one for each producer.

Invariants:

1. Lines are sent in the order in which they were logged.
2. A line that the producer does not accept because of the cluster (no broker, no room) stays first and is tried
   again. An outage costs only the lines that do not fit into the queue.
3. After it ends, lines that were not accepted are back in the queue.
4. A flood of lines does not block the event loop: other tasks run after every few lines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import MaxBlockTimeoutError, ProducerError, ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.integrations.log_queue import LogQueue
    from aioproduce.producer.producer import Producer
    from aioproduce.records import RecordMetadata

_log = logging.getLogger("aioproduce.logging")

# Some 100 microseconds of work.
_LINES_PER_TURN: Final = 100


@final
class LogShipper:
    """Sends the lines of one queue through one producer.

    Args:
        queue: The queue.
        producer: A running producer.
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
        "_producer",
        "_queue",
        "_topic",
        "failed",
        "loop",
        "shipped",
    )

    def __init__(
        self,
        queue: LogQueue,
        producer: Producer[Any, Any],
        topic: str,
        notice_of: Callable[[int], bytes | None],
    ) -> None:
        self._queue = queue
        self._producer = producer
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
                self.failed += 1
                self._tell_failure(error)
                await asyncio.sleep(0)
            self._in_hand.popleft()

    def _settled(self, _: RecordMetadata, error: BaseException | None) -> None:
        if error is None:
            self.shipped += 1
        else:
            self.failed += 1
            self._tell_failure(error)

    def _tell_failure(self, error: BaseException) -> None:
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
            await self._producer.flush()

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
