"""At least once: one topic's forwarder, which sends what the topic's queue has, and settles it in order.

A queue runs one for each topic, as three tasks: one reads, one sends, one settles.

Invariants:

1. What failed is sent again, with everything behind it, when each batch that is under way has an outcome. So no
   batch is sent twice at a time. What is before it is settled meanwhile, or sent again, too.
2. A topic that cannot be sent to is tried again, after longer and longer pauses. It holds a bounded part of the
   producer's buffer, and so no other topic up.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import ProducerError, ProducerStateError
from aioproduce.spool.bell import Bell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce.producer.life import ProducerLife
    from aioproduce.spool.sent_batch import SentBatch
    from aioproduce.spool.topic_queue import TopicQueue

_log = logging.getLogger("aioproduce.spool")

FIRST_PAUSE: Final = 0.2
"""Seconds before a topic that failed is tried again; each further pause is twice as long."""

_READ_PAUSE: Final = 0.5

# Bytes of the objects of a batch that is under way, measured: batches of one record are mostly these.
_OBJECTS: Final = 2048

LONGEST_PAUSE: Final = 30.0
"""The longest pause, in seconds."""


@final
class TopicForwarder:
    """Forwards one topic.

    Args:
        queue: The topic's queue.
        life: The producer of the cluster; it gives no record up for as long as it runs.
        position: Returns the topic's durable position.
        window: Returns how many bytes of the log may be under way now.
        heed_turn: Gives the loop its turn when that is due: a backlog of small batches is sent without a wait.
        changed: Called when something was settled.
    """

    def __init__(
        self,
        queue: TopicQueue,
        life: ProducerLife,
        position: Callable[[], int],
        window: Callable[[], int],
        heed_turn: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._life = life
        self._position = position
        self._window = window
        self._heed_turn = heed_turn
        self._changed = changed
        self._is_idle = False
        self._sent: deque[SentBatch] = deque()
        self._under_way = 0
        self._pause = 0.0
        self._is_reading = False
        self._is_missing = False
        self._reads, self._sends, self._settles = Bell(life.driver), Bell(life.driver), Bell(life.driver)
        self._again_from: int | None = None
        queue.has_new = self._has_new
        queue.was_moved = self._was_moved

    def _has_new(self) -> None:
        self._is_idle = False
        self._reads.ring()
        self._sends.ring()

    def _was_moved(self) -> None:
        self._settles.ring()

    @property
    def is_drained(self) -> bool:
        """Whether every stored record is settled, and the position is behind it."""
        return self._is_idle and not self._sent and self._queue.is_idle and self._queue.is_passed

    # -- reading ---

    async def read_all(self) -> None:
        """Read the log ahead of what is sent, without an end."""
        while True:
            if self._queue.wants_more and self._again_from is None:
                self._is_reading = True
                try:
                    await self._queue.read_ahead()
                    self._is_missing = False
                except OSError as error:
                    await self._read_later(error)
                finally:
                    self._is_reading = False
                self._sends.ring()
            else:
                await self._reads.wait()

    async def _read_later(self, error: OSError) -> None:
        """Read from the same place again, after a pause: a drop may have removed the file, or a disk failed."""
        if self._is_missing or not isinstance(error, FileNotFoundError):
            _log.error(
                "the spool cannot read records of %s, and goes on trying: %s", self._queue.topic, error
            )
            self._queue.blocked_by = error
        self._is_missing = True
        self._queue.read_failed()
        ends_at = self._life.driver.now() + _READ_PAUSE
        while (left := ends_at - self._life.driver.now()) > 0:
            await self._reads.wait(left)

    # -- sending ---

    async def send_all(self) -> None:
        """Send what the log has, as it comes, without an end."""
        queue = self._queue
        while True:
            await self._heed_turn()
            if self._again_from is not None:
                await self._begin_again()
            elif self._under_way >= self._window():
                await self._sends.wait()
            elif (batch := queue.next_batch) is not None:
                try:
                    sent = await queue.send_next(self._life, self._position())
                except ProducerStateError:
                    raise
                except ProducerError as error:
                    self._try_later(batch.head.base_offset, error)
                else:
                    self._sent.append(sent)
                    self._under_way += batch.head.size + _OBJECTS
                    self._reads.ring()
                    self._settles.ring()
            else:
                self._is_idle = queue.is_idle
                if self._is_idle and not self._sent:
                    queue.blocked_by = None  # nothing is
                self._settles.ring()
                self._changed()
                await self._sends.wait()

    def _try_later(self, offset: int, error: BaseException) -> None:
        """Send everything from an offset on again, after a pause."""
        self._is_idle = False  # the position must not move over what failed
        self._again_from = offset if self._again_from is None else min(self._again_from, offset)
        blocked_by = self._queue.blocked_by
        if blocked_by is None or type(blocked_by) is not type(error):
            _log.warning(
                "the spool cannot forward records of %s, and goes on trying: %s", self._queue.topic, error
            )
        self._queue.blocked_by = error

    async def _begin_again(self) -> None:
        while self._sent or self._is_reading:  # what is under way has an outcome first
            await self._sends.wait()
        assert self._again_from is not None
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        driver = self._life.driver
        ends_at = driver.now() + self._pause
        while (left := ends_at - driver.now()) > 0:
            await self._sends.wait(left)
        self._queue.begin_again(self._again_from)
        self._again_from = None
        self._reads.ring()

    # -- settling ---

    async def settle_all(self) -> None:
        """Settle what was sent, in order, without an end."""
        while True:
            if not self._sent:
                await self._wait_for_sent()
                continue
            sent = self._sent[0]
            failed = await sent.deliveries.failed()
            if self._again_from is None or sent.batch.head.base_offset < self._again_from:
                other = await self._queue.bury(sent, failed) if failed else None
                if other is not None:
                    self._try_later(sent.batch.head.base_offset, other)
                else:
                    self._settle(sent)
            self._sent.popleft()
            self._under_way -= sent.batch.head.size + _OBJECTS
            self._sends.ring()
            self._changed()

    def _settle(self, sent: SentBatch) -> None:
        self._queue.move(sent.batch.head.end_offset)
        self._queue.settle(sent, self._sent[1] if len(self._sent) > 1 else None)
        if self._again_from is None:
            self._pause = 0.0
            self._queue.blocked_by = None

    async def _wait_for_sent(self) -> None:
        """Wait until something is sent; move the position meanwhile, when that is due."""
        if self._is_idle and self._again_from is None:
            self._queue.pass_unused()
        left = self._queue.moves_in
        if left > 0:
            await self._settles.wait(left)
        if not self._sent and self._queue.moves_in <= 0:
            self._queue.move_now()
