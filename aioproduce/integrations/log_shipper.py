"""Takes lines out of the queue and gives them to a producer, on the producer's event loop.

Made by `KafkaLogHandler`, one for each producer that it is given.

Invariants:

1. Lines are sent in the order in which they were logged.
2. A line that the producer does not accept because of the cluster (no broker, no room) stays first and is tried
   again: an outage costs what does not fit into the queue, and nothing else.
3. Whenever it ends, lines that were not accepted are back in the queue.
4. A flood of lines does not keep the loop: it has a turn after so many.
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

# Some 100 microseconds' work.
_LINES_PER_TURN: Final = 100


@final
class LogShipper:
    """Ships one queue by one producer.

    Args:
        queue: Where lines come from.
        producer: A running producer.
        topic: Where they go.
        notice_of: Makes a line that tells of so many dropped ones.

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
        """Ship until cancelled, or until the producer is closed or dead."""
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
            _log.warning("log records are not shipped any more: %s", error)
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
                "%d log record(s) were dropped: the queue was full. Log less, raise capacity, or look at the "
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
                # The record's own fault, or one of the set-up that time will not mend: the next may do better.
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
            type(error).__name__, self.loop.time(), "a log record was not shipped: %s", error
        )

    async def flush(self) -> None:
        """Wait until what was logged before is settled. Without a bound of its own."""
        if self._is_over:
            return
        self._news.set()
        self._idle.clear()
        await self._idle.wait()
        if not self._is_over:
            await self._producer.flush()

    async def end(self, running: asyncio.Task[None], timeout: float) -> None:
        """Flush, for so many seconds at most, and end `run()`; what is not sent by then is in the queue again.

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
