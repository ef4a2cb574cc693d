"""Exactly once: the forwarder of all topics of a queue, in transactions that also commit the queue's positions.

A position is an offset of the consumer group `aioproduce.spool.<id>`, for partition 0 of the topic. The group's
offsets say which records the cluster has, whatever the process knew when it was killed. The position on disk is
written after each commit, as a lower bound: it frees the disk, and helps if the cluster forgets the group.

Invariants:

1. A record and the position behind it are committed by the same transaction.
2. Nothing is sent before the positions are known, and no transaction of an earlier owner of the id is open.
3. Records whose commit has no known outcome are settled or sent again when the positions are known again.
4. A topic whose records fail is left out for a while. A topic that the cluster does not show is never waited for
   in a transaction, and each is looked for by a task of its own. So neither holds another topic up for longer than
   `delivery.timeout.ms`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from aioproduce.errors import (
    DeliveryError,
    ProducerError,
    ProducerFencedError,
    ProducerStateError,
    SpoolClonedError,
    SpoolPositionLostError,
    TransactionAbortedError,
    TransactionError,
    TransactionUnconfirmedError,
)
from aioproduce.spool.bell import Bell
from aioproduce.spool.committed_positions import PARTITION, committed_positions, denied_error
from aioproduce.spool.forwarder import FIRST_PAUSE, LONGEST_PAUSE
from aioproduce.spool.pauses import Pauses

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from aioproduce.config import ProducerConfig
    from aioproduce.drivers.base import Driver
    from aioproduce.producer.producer import Producer
    from aioproduce.producer.transactions import Transaction
    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.sent_batch import SentBatch
    from aioproduce.spool.topic_queue import TopicQueue
    from aioproduce.spool.writer import SpoolWriter

_log = logging.getLogger("aioproduce.spool")

# Seconds and bytes of one transaction. It ends earlier when nothing more is stored.
_LONGEST: Final = 0.25
_LARGEST: Final = 16 * 1024 * 1024
# Seconds for one look for a topic that the cluster does not show.
_LOOK: Final = 2.0
# The cluster forgets an offset that is not committed again (offsets.retention.minutes, a week by default).
_RENEW_EVERY: Final = 24 * 60 * 60.0
# The first time sooner: a process may live for less than a day.
_RENEW_FIRST: Final = 60 * 60.0


class LostPosition(Enum):
    """What happens if the cluster has no position of a topic from which records were forwarded before."""

    RESUME = "resume"
    """Go on from the position on disk: the records of the last transactions may come twice."""
    REFUSE = "refuse"
    """End with SpoolPositionLostError, so that a person can look."""


def name_of(spool_id: bytes) -> str:
    """Return the group and the transactional id of a queue."""
    return f"aioproduce.spool.{uuid.UUID(bytes=spool_id)}"


@final
class TransactionalForwarder:
    """Forwards one queue.

    Args:
        queues: The queue's topics; topics that are stored later are added to it.
        writer: Knows the positions on disk.
        directory: The queue's directory.
        make_producer: Makes a producer with the queue's transactional id.
        driver: The loop's side.
        lost_position: As `LostPosition` says.
        in_thread: Calls a function in another thread.
        changed: Called when something was settled.
    """

    def __init__(
        self,
        queues: Mapping[str, TopicQueue],
        writer: SpoolWriter,
        directory: SpoolDirectory,
        make_producer: Callable[[], Producer[bytes, bytes]],
        driver: Driver,
        lost_position: LostPosition,
        in_thread: Callable[..., Awaitable[Any]],
        changed: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._writer = writer
        self._directory = directory
        self._group = name_of(directory.spool_id)
        self._make_producer = make_producer
        self._driver = driver
        self._lost_position = lost_position
        self._in_thread = in_thread
        self._changed = changed
        self._producer: Producer[bytes, bytes] | None = None
        self._positions: dict[str, int] = {}
        self._highest: dict[str, int] = {}  # what this process may have committed
        self._pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        self._read_pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)  # of topics whose log could not be read
        self._shown: set[str] = set()
        self._sent: list[tuple[TopicQueue, SentBatch]] = []
        self._denied_at: dict[str, int] = {}  # where topics began again, whose positions may not be read
        self._in_doubt: list[tuple[TopicQueue, SentBatch]] = []
        self._renews_at: dict[str, float] = {}  # of the positions that the cluster has
        self._alone: set[str] = (
            set()
        )  # their transactions failed, and it is not known because of which of them
        self._is_busy = True
        self._bell = Bell(driver)
        self._looks = Bell(driver)
        self._looked_for: set[str] = set()

    @property
    def producer(self) -> Producer[bytes, bytes] | None:
        """The producer that forwards at present."""
        return self._producer

    def add(self, queue: TopicQueue) -> None:
        """Forward a topic, too."""
        queue.has_new = queue.was_moved = self.wake
        self.wake()

    def wake(self) -> None:
        """Look for what is new."""
        self._bell.ring()
        self._looks.ring()

    @property
    def is_drained(self) -> bool:
        """Whether every stored record is committed, and the positions on disk are behind it."""
        is_settled = not self._is_busy and not self._sent and not self._in_doubt
        return is_settled and all(queue.is_idle and queue.is_passed for queue in self._queues.values())

    # -- the producer ---

    async def run(self) -> None:
        """Forward without an end.

        Raises:
            SpoolClonedError: if another process forwards the same queue.
            SpoolPositionLostError: as `LostPosition` says.
        """
        pause = 0.0
        while True:
            try:
                await self._forward()
            except (SpoolClonedError, SpoolPositionLostError):
                raise
            except ProducerFencedError as error:
                raise self._cloned("it has taken over the queue's transactional id") from error
            except (ProducerError, OSError) as error:
                pause = (
                    min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE) if not self._positions else FIRST_PAUSE
                )
                self._blocked(error)
                await self._rest(pause)

    async def _forward(self) -> None:
        """Forward with one producer, until it cannot be used any more."""
        self._positions.clear()
        self._denied_at.clear()
        self._is_busy = True
        self._producer = producer = self._make_producer()
        try:
            await producer.start()
            producer._life.reports.is_told = True  # what it gives up is on disk, and not lost
            await self._learn(producer.config, list(self._queues))
            while True:
                await self._turn(producer)
        finally:
            self._producer = None
            self._in_doubt += self._sent
            self._sent = []
            self._shown.clear()
            with self._driver.shielded():
                await producer.close(0)

    def _blocked(self, error: BaseException) -> None:
        for queue in self._queues.values():
            self._tell_blocked(queue, error)

    @staticmethod
    def _tell_blocked(queue: TopicQueue, error: BaseException) -> None:
        if queue.blocked_by is None or type(queue.blocked_by) is not type(error):
            _log.warning("the spool cannot forward records of %s, and goes on trying: %s", queue.topic, error)
        queue.blocked_by = error

    async def _rest(self, seconds: float) -> None:
        ends_at = self._driver.now() + seconds
        while (left := ends_at - self._driver.now()) > 0:
            self._move_positions()
            await self._bell.wait(left)

    # -- positions ---

    async def _learn(self, config: ProducerConfig, topics: list[str]) -> None:
        """Learn the positions of topics from the cluster, and read on from there."""
        found = await self._in_thread(committed_positions, config, self._group, topics, config.max_block)
        for topic in topics:
            queue = self._queues[topic]
            if topic in found.denied:
                self._begin_denied(queue, self._writer.position(topic))
                self._leave_out(queue, denied_error(topic))
                continue
            here = self._writer.position(topic)
            there = found.offsets.get(topic)
            begins_at = self._writer.life_begins_at(topic)
            if there is not None and there > max(begins_at, self._highest.get(topic, 0)):
                raise self._cloned(
                    f"the cluster has records of {topic!r} up to offset {there}, which this copy has not stored"
                )
            if there is None and self._writer.has_settled(topic):
                self._lost(topic, here)
            if there is not None:
                self._renews_at.setdefault(topic, self._driver.now() + _RENEW_FIRST)
            position = max(here, there or 0)
            self._settle_doubts(queue, position)
            queue.begin_again(position)
            queue.blocked_by = None
            if position > here:
                queue.move(position)
            self._positions[topic] = position
        self.wake()

    def _begin_denied(self, queue: TopicQueue, here: int) -> None:
        """Begin a topic again from the position on disk, once: what was sent may be in the cluster, or not."""
        self._renews_at.pop(queue.topic, None)
        if self._denied_at.get(queue.topic) != here:
            self._denied_at[queue.topic] = here
            queue.begin_again(here)

    def _settle_doubts(self, queue: TopicQueue, position: int) -> None:
        """Settle what was committed although nobody was told; forget the rest, which is sent again."""
        for each, sent in self._in_doubt:
            if each is queue and sent.batch.head.end_offset <= position:
                queue.blocked_by = None
                queue.settle(sent, None)
        self._in_doubt = [pair for pair in self._in_doubt if pair[0] is not queue]

    def _lost(self, topic: str, here: int) -> None:
        if self._lost_position is LostPosition.REFUSE:
            raise SpoolPositionLostError(
                f"the cluster has no position of {topic!r} in group {self._group}, and records before offset "
                f'{here} were forwarded. Commit an offset for the group; or set lost_position="resume", and then '
                "records of the last transactions may come twice",
                directory=self._directory.path,
                topic=topic,
                position=here,
            )
        _log.warning(
            "the cluster has no position of %s in group %s: the spool goes on from offset %d on disk, and records "
            "of the last transactions may come twice",
            *(topic, self._group, here),
        )

    def _cloned(self, why: str) -> SpoolClonedError:
        return SpoolClonedError(
            f"another process forwards a copy of the queue in {self._directory.path} to this cluster: {why}. Give "
            "one of the two a directory of its own; what this one has stored since the copy was made is on disk",
            directory=self._directory.path,
        )

    # -- transactions ---

    async def _turn(self, producer: Producer[bytes, bytes]) -> None:
        """Do one transaction, or wait until there is something to do."""
        now = self._driver.now()
        unknown = [topic for topic in self._queues if topic not in self._positions]
        new = [topic for topic in unknown if not self._pauses.holds(topic, now)]
        if new:
            await self._learn(producer.config, new)
            now = self._driver.now()
        self._move_positions()
        stored = [queue for queue in self._queues.values() if not queue.is_idle]
        open_ones = [queue for queue in stored if self._is_open(queue, now)]
        # Also of topics that cannot be sent to: it may turn out that nothing of them waits.
        unread = [queue for queue in stored if self._can_read(queue, now)]
        if unread:
            for queue in unread:
                await self._read(queue)
            return  # something may have come meanwhile
        ready = [queue for queue in open_ones if queue.next_batch is not None]
        due = next(
            (topic for topic, at in self._renews_at.items() if at <= now and topic in self._positions), None
        )
        if ready:
            self._is_busy = True
            await self._transactions(producer, ready)
        if due is not None:
            self._renews_at[due] = now + _RENEW_EVERY  # whatever comes of it
            await self._transaction(producer, [], due)
        if ready or due is not None:
            return
        self._is_busy = bool(stored)
        doubtful = {queue.topic for queue, _ in self._in_doubt}
        for topic, queue in self._queues.items():
            if topic not in doubtful:
                queue.pass_unused()
                if queue.is_idle and topic in self._positions:
                    queue.blocked_by = None  # nothing is
        self._changed()
        await self._bell.wait(self._next_in(stored, now))

    def _is_open(self, queue: TopicQueue, now: float) -> bool:
        return queue.topic in self._shown and not self._pauses.holds(queue.topic, now)

    def _can_read(self, queue: TopicQueue, now: float) -> bool:
        return queue.has_unread and not self._read_pauses.holds(queue.topic, now)

    def _next_in(self, stored: list[TopicQueue], now: float) -> float:
        """Return the seconds until there is something to do without a call.

        Args:
            stored: The topics that have something.
            now: The time that told which of them are paused: a later one could miss the end of a pause.
        """
        topics = [queue.topic for queue in stored]
        pauses = [each.left(topics, now) for each in (self._pauses, self._read_pauses)]
        moves = [queue.moves_in for queue in self._queues.values()]
        renewals = [at - now for at in self._renews_at.values()]
        return max(min((*pauses, *renewals, *moves)), 0.0)

    def _move_positions(self) -> None:
        for queue in self._queues.values():
            if queue.moves_in <= 0:
                queue.move_now()

    async def _transactions(self, producer: Producer[bytes, bytes], ready: list[TopicQueue]) -> None:
        """Do one transaction of all topics; of those that failed together, one with each alone."""
        together = [queue for queue in ready if queue.topic not in self._alone]
        alone = [queue for queue in ready if queue.topic in self._alone]
        for topics in (together, *([queue] for queue in alone)):
            if topics:
                await self._transaction(producer, topics)

    async def _transaction(
        self, producer: Producer[bytes, bytes], ready: list[TopicQueue], renewed: str | None = None
    ) -> None:
        """Send what is stored of topics, and commit their positions; or commit the position of one again."""
        transaction = await producer.transaction().begin()
        try:
            await self._send(transaction, ready)
            ends = self._ends()
            self._highest |= ends
            offsets = {(topic, PARTITION): end for topic, end in ends.items()}
            if renewed is not None:
                offsets[renewed, PARTITION] = self._positions[renewed]
            if offsets:
                await transaction.send_offsets(offsets, self._group)
            await _until_known(transaction.commit)
        except TransactionError as error:
            if error.recover in ("init", "new producer"):
                raise
            await self._aborted(transaction, error)
        except ProducerStateError:
            raise  # e.g. the sender has died: what was committed is known with the positions
        except ProducerError as error:
            await self._aborted(transaction, error)
        else:
            self._committed(ends)

    async def _read(self, queue: TopicQueue) -> None:
        """Read on; after an error a topic is left alone for a while."""
        try:
            await queue.read_ahead()
        except OSError as error:
            queue.read_failed()
            is_first = queue.topic not in self._read_pauses
            if not (is_first and isinstance(error, FileNotFoundError)):  # a drop may have removed the file
                self._tell_blocked(queue, error)
            self._read_pauses.begin(queue.topic, self._driver.now())
        else:
            self._read_pauses.end(queue.topic)

    def _ends(self) -> dict[str, int]:
        """Return the offset behind the last record that was sent, by topic."""
        return {queue.topic: sent.batch.head.end_offset for queue, sent in self._sent}

    async def _send(self, transaction: Transaction[bytes, bytes], ready: list[TopicQueue]) -> None:
        """Send what is stored, one batch of each topic in turn."""
        ends_at = self._driver.now() + _LONGEST
        size = 0
        is_more = True
        while is_more and size < _LARGEST and self._driver.now() < ends_at:
            is_more = False
            for queue in ready:
                await transaction._heed_turn()
                if self._can_read(queue, self._driver.now()):
                    await self._read(queue)
                if queue.next_batch is None:
                    continue
                try:
                    sent = await queue.send_next(transaction._life, self._positions[queue.topic])
                except ProducerError as error:
                    if not isinstance(error, TransactionError):
                        self._leave_out(queue, error)
                    raise
                self._sent.append((queue, sent))
                size += sent.batch.head.size
                is_more = True

    def _committed(self, ends: Mapping[str, int]) -> None:
        sent, self._sent = self._sent, []
        self._positions |= ends
        self._renews_at |= dict.fromkeys(ends, self._driver.now() + _RENEW_EVERY)
        following: dict[TopicQueue, SentBatch] = {}
        after: list[SentBatch | None] = []
        for queue, each in reversed(sent):
            after.append(following.get(queue))
            following[queue] = each
        for (queue, each), later in zip(sent, reversed(after), strict=True):
            queue.blocked_by = None
            queue.settle(each, later)
            self._pauses.end(queue.topic)
            self._alone.discard(queue.topic)
        for topic, end in ends.items():
            self._queues[topic].move(end)
        self._changed()

    async def _aborted(self, transaction: Transaction[bytes, bytes], error: ProducerError) -> None:
        """Abort; bury what can never be accepted, and leave topics out whose records failed."""
        if transaction.can_abort:
            await _until_known(transaction.abort)
        sent, self._sent = self._sent, []
        is_explained = False
        for queue, each in sent:
            failed = {
                index: failure
                for index, failure in (await each.deliveries.failed()).items()
                if not isinstance(failure, TransactionAbortedError)
            }
            if failed:
                is_explained = True
                other = await queue.bury(each, failed)
                if other is not None:
                    self._leave_out(queue, other)
        if not sent:
            _log.warning("the spool cannot commit a position again: %s", error)
        for queue in {id(queue): queue for queue, _ in sent}.values():
            queue.begin_again(self._positions[queue.topic])
            if not is_explained and not self._pauses.holds(queue.topic, self._driver.now()):
                self._alone.add(queue.topic)
                self._leave_out(queue, error)

    def _leave_out(self, queue: TopicQueue, error: ProducerError) -> None:
        self._tell_blocked(queue, error)
        self._pauses.begin(queue.topic, self._driver.now())
        if not isinstance(error, DeliveryError):
            self._shown.discard(queue.topic)
            self._looks.ring()

    # -- topics ---

    async def look_for_topics(self) -> None:
        """Find out which topics the cluster shows, without an end; each by itself, since one can take `_LOOK`."""
        async with anyio.create_task_group() as looks:
            while True:
                left = inf if self._producer is None else self._begin_looks(looks, self._producer)
                await self._looks.wait(left)

    def _begin_looks(self, looks: TaskGroup, producer: Producer[bytes, bytes]) -> float:
        """Look for each hidden topic whose pause has ended; return the seconds until that of the next one ends."""
        now = self._driver.now()
        hidden = [*filter(self._is_hidden, self._queues)]
        for topic in hidden:
            if not self._pauses.holds(topic, now):
                self._looked_for.add(topic)
                looks.start_soon(self._look_for, producer, topic)
        return self._pauses.left(hidden, now)

    def _is_hidden(self, topic: str) -> bool:
        is_known = topic in self._shown or topic in self._looked_for
        return not is_known and topic in self._positions and not self._queues[topic].is_idle

    async def _look_for(self, producer: Producer[bytes, bytes], topic: str) -> None:
        try:
            await producer.partitions_for(topic, _LOOK)
        except ProducerError as error:
            if producer is self._producer and not self._queues[topic].is_idle:
                self._leave_out(self._queues[topic], error)
        else:
            if producer is self._producer:
                self._shown.add(topic)
                self._bell.ring()
        finally:
            self._looked_for.discard(topic)
            self._looks.ring()


async def _until_known(end: Callable[[], Awaitable[None]]) -> None:
    """Commit or abort, and wait until the outcome is known, for as long as it takes."""
    while True:
        try:
            await end()
        except TransactionUnconfirmedError:
            continue
        return
