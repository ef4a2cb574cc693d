"""Sends that nobody waits for, without losing them silently.

Created by `ProducerService`. A task waits until each record is accepted; the delivery callback reports its outcome.

Invariants:

1. Every record is counted once: as acknowledged, as failed, or (at the end) as dropped before it was accepted.
2. At most `limit` records are pending. This bounds memory, because a record's bytes count towards `buffer.memory`
   only once it is accepted.
3. Records are passed to the producer in the order of the calls.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import BackgroundFullError, DeliveryError, ProducerClosedError, WrongEventLoopError

if TYPE_CHECKING:
    from aioproduce.integrations.spooled_service import SpooledSends
    from aioproduce.producer.producer import Producer
    from aioproduce.records import RecordMetadata

_log = logging.getLogger("aioproduce.service")


@final
class BackgroundSends:
    """Sends records and counts their outcomes.

    Args:
        producer: A running producer.
        limit: How many records may be pending.

    Attributes:
        acknowledged: Records that are in the log, or on disk if the service has a queue there.
        failed: Records that are not, or may not be, in the log; each is logged, at a bounded rate.
        possibly_written: Those failed records that may be in the log in spite of their error.
        never_accepted: Those failed records that the producer had not accepted when the service ended.
        pending: Records without an outcome.
    """

    __slots__ = (
        "_bounded_log",
        "_is_closed",
        "_limit",
        "_loop",
        "_producer",
        "_tasks",
        "acknowledged",
        "failed",
        "never_accepted",
        "pending",
        "possibly_written",
    )

    def __init__(self, producer: Producer[Any, Any] | SpooledSends, limit: int) -> None:
        self._producer = producer
        self._limit = limit
        self._tasks: set[asyncio.Task[Any]] = set()
        self._bounded_log = BoundedLog(_log)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.acknowledged: int = 0
        self.failed: int = 0
        self.possibly_written: int = 0
        self.never_accepted: int = 0
        self.pending: int = 0

    def send(self, topic: str, value: Any, key: Any, **settings: Any) -> None:
        """Send a record in the background; further arguments as for `Producer.send()`.

        Raises:
            BackgroundFullError: If too many records are pending.
            ProducerClosedError: If the service is ending.
            WrongEventLoopError: If it is not called on the service's event loop.
        """
        if asyncio._get_running_loop() is not self._loop:
            raise WrongEventLoopError(
                "background() must be called on the service's event loop: make the endpoint `async def`, or use "
                "anyio.from_thread.run_sync(service.background, ...) in its thread"
            )
        if self._is_closed:
            raise ProducerClosedError("the service is ending: background sends are no longer accepted")
        if self.pending >= self._limit:
            raise BackgroundFullError(
                f"{self.pending} records are pending in the background, which is the limit: answer that the "
                "service is busy, check the brokers, or raise background_limit",
                limit=self._limit,
            )
        # A task for each record, even if `try_send()` would do: that would count refused records as failed, and
        # later records would overtake one that has to wait.
        settled = partial(self._settled, topic)
        sending = self._producer.send(topic, value, key, **settings, on_delivery=settled)
        self.pending += 1
        task = self._loop.create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(partial(self._accepted, topic))

    def _accepted(self, topic: str, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Cancelled by `drain()`, or together with all tasks of the loop.
            self.never_accepted += 1
            self._count_failure(topic, None)
        elif (error := task.exception()) is not None:
            if self._is_closed:
                self.never_accepted += 1
            self._count_failure(topic, error)

    def _settled(self, topic: str, _: RecordMetadata, error: BaseException | None) -> None:
        if error is None:
            self.pending -= 1
            self.acknowledged += 1
            return
        if isinstance(error, DeliveryError) and error.possibly_written:
            self.possibly_written += 1
        self._count_failure(topic, error)

    def _count_failure(self, topic: str, error: BaseException | None) -> None:
        self.pending -= 1
        self.failed += 1
        self._bounded_log.warning(
            (topic, type(error)),
            self._loop.time(),
            "a record for %r that was sent in the background failed: %s",
            topic,
            "its task was cancelled before the record was accepted" if error is None else error,
        )

    async def drain(self, timeout: float) -> None:
        """Accept no more records, wait until the pending ones are accepted, and drop the others after the timeout.

        Args:
            timeout: Seconds.
        """
        self._is_closed = True
        tasks = tuple(self._tasks)
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=timeout)
        finally:
            for task in tasks:
                task.cancel()
        # A cancelled send ends at once; without this wait it would be counted after the service's report.
        await asyncio.wait(tasks)
