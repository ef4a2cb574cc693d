"""One queue: its directory, its writer, and what forwards it. A worker has one, and adopts those of dead workers.

Invariants:

1. A queue has a producer of its own, so an adopted one takes nothing from the worker's.
2. The end of a part by a bug is the end of the queue, and its owner is told why.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

import anyio.to_thread

from aioproduce.config.kinds import INT_MAX
from aioproduce.producer.producer import Producer
from aioproduce.spool.dead_letter_forwarder import DeadLetterForwarder
from aioproduce.spool.dead_letters import DeadLetters
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.forwarder import TopicForwarder
from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.segments import LIFE_STEP
from aioproduce.spool.tasks import BackgroundTask, start_task
from aioproduce.spool.topic_queue import TopicQueue
from aioproduce.spool.transactional_forwarder import LostPosition, TransactionalForwarder, name_of
from aioproduce.spool.writer import SpoolWriter
from aioproduce.spool.writer_messages import Dropped
from aioproduce.spool.writer_settings import WriterSettings

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.drivers.base import Driver, Waiter
    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.health import TopicBacklog
    from aioproduce.spool.measuring import SpoolMeasures
    from aioproduce.spool.writer_messages import Append

_log = logging.getLogger("aioproduce.spool")

# Seconds that a forwarder waits for a topic or for room before it reports why.
_BACK_BLOCK: Final = 30.0
# The same for a call of a transaction: after it, another producer is made.
_TRANSACTION_BLOCK: Final = 10.0
_FOR_EVER: Final = INT_MAX / 1000
_MOST_IN_FLIGHT: Final = 5  # with idempotence, brokers keep the order of so many
# Bytes of one topic under way to the cluster. All topics have a share of the buffer, so those without a leader
# leave room for the others.
_MOST_WINDOW: Final = 4 * 1024 * 1024
_LEAST_WINDOW: Final = 256 * 1024


@final
@dataclass(frozen=True, slots=True)
class Forwarding:
    """How queues are forwarded.

    Attributes:
        config: The producer's settings.
        exactly_once: Whether each record comes once, by transactions.
        lost_position: For exactly once; see `LostPosition`.
        dead_letter_topic: Where records go that can never be sent to their topic.
        is_direct: Whether records go to the cluster and to the disk at a time while nothing waits.
        is_closed_at_exit: Whether the owner closes it at the exit, and reports then.
    """

    config: ProducerConfig
    exactly_once: bool = False
    lost_position: LostPosition = LostPosition.RESUME
    is_direct: bool = False
    dead_letter_topic: str | None = None
    is_closed_at_exit: bool = False

    @property
    def _is_idempotent(self) -> bool:
        return self.exactly_once or self.config.enable_idempotence

    @property
    def gives_up_after(self) -> float:
        """Seconds in which a healthy topic is settled, although another one of its transaction cannot go."""
        return 4 * (self.config.linger + self.config.request_timeout) if self.exactly_once else 0.0

    def producer(self, spool_id: bytes) -> Producer[bytes, bytes]:
        """Make a producer for a queue: it sends bytes as they are, for as long as it takes."""
        config = replace(
            self.config,
            key_serializer=None,
            value_serializer=None,
            interceptors=(),
            on_delivery_error=None,
            delivery_timeout=_FOR_EVER,
            max_block=max(self.config.max_block, _BACK_BLOCK),
            retries=INT_MAX,
            # Without idempotence a batch that is tried again would come behind the next one.
            max_in_flight=min(self.config.max_in_flight, _MOST_IN_FLIGHT if self._is_idempotent else 1),
        )
        if self.exactly_once:
            config = replace(
                config,
                transactional_id=name_of(spool_id),
                max_block=min(self.config.max_block, _TRANSACTION_BLOCK),
                acks=-1,
                enable_idempotence=True,
                # A partition without a leader must not hold a transaction up until its own time-out.
                delivery_timeout=config.linger + config.request_timeout,
                transaction_timeout=max(config.transaction_timeout, 2 * config.request_timeout),
            )
        producer: Producer[bytes, bytes] = Producer(config)
        producer._life.is_closed_at_exit = self.is_closed_at_exit
        return producer


@final
class SpoolQueue:
    """One queue, which is locked and belongs to this process.

    Args:
        directory: Its directory, locked.
        settings: How it is written.
        forwarding: How it is forwarded.
        driver: Returns the loop's side; it is called after `open()`.
        measures: Measures the queue until its end.
        changed: Called when something was settled, or has ended.
        failed: Called with the error that ended a part of it.

    Attributes:
        directory: Its directory.
        writer: Its writer.
        topics: What each topic has.
        dead_letters: Records that the cluster will never accept.
    """

    def __init__(
        self,
        directory: SpoolDirectory,
        settings: WriterSettings,
        forwarding: Forwarding,
        driver: Callable[[], Driver],
        measures: SpoolMeasures,
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.directory: SpoolDirectory = directory
        self.writer: SpoolWriter = SpoolWriter(FileSystem(), directory.logs, settings, self._call_in_loop)
        self.writer.on_dropped = self._dropped
        self.dead_letters: DeadLetters = DeadLetters(directory.path, in_thread)
        self.topics: dict[str, TopicQueue] = {}
        self._forwarding = forwarding
        self._driver_of = driver
        self._measures = measures
        self._changed = changed
        self._failed = failed
        self._forwarders: dict[str, TopicForwarder] = {}
        self._producer: Producer[bytes, bytes] | None = None
        self._transactional: TransactionalForwarder | None = None
        self._letters: DeadLetterForwarder | None = None
        self._tasks: dict[int, BackgroundTask] = {}
        self._tasks_made = 0
        self._marks: set[int] = set()  # tasks that note drops: the end waits for them
        self._cause: BaseException | None = None
        self._writer_runs = False
        self._is_ending = False
        self._end_waiter: Waiter | None = None

    def _call_in_loop(self, call: Callable[[], None]) -> None:
        self._driver_of().call_in_loop(call)

    # -- life ---

    def open(self) -> None:
        """Open the logs, and begin a life; it may take a while, so call it in a thread.

        Raises:
            OSError: if the directory cannot be read or written.
        """
        begins_at, waits_from = self.writer.open()
        lives = self.directory.description.lives
        is_unused = bool(lives) and lives[-1].begins_at >= begins_at
        if lives:
            begins_at = max(begins_at, lives[-1].begins_at + 2 * LIFE_STEP)
        self.directory.begin_life(begins_at, min(waits_from, begins_at), replaces_last=is_unused)
        self.writer.begin_life(begins_at)

    @property
    def producer(self) -> Producer[bytes, bytes] | None:
        """The producer that forwards; None before the start, and between two of them."""
        return self._producer if self._transactional is None else self._transactional.producer

    async def start(self) -> None:
        """Begin to write and to forward."""
        self._measures.add_queue(self.writer, self.directory.path, self.directory.quarantine)
        self.writer.start(self._writer_has_ended)
        self._writer_runs = True
        driver = self._driver_of()
        make = partial(self._forwarding.producer, self.directory.spool_id)
        if self._forwarding.exactly_once:
            forwarder = self._transactional = TransactionalForwarder(
                *(self.topics, self.writer, self.directory, make, driver),
                *(self._forwarding.lost_position, in_thread, self._changed),
            )
            self._start(forwarder.run, "transactions")
            self._start(forwarder.look_for_topics, "topics")
        else:
            producer = make()
            await producer.start()
            producer._life.reports.is_told = True  # what it gives up is on disk, and not lost
            self._producer = producer
        if self._forwarding.dead_letter_topic is not None:
            letters = DeadLetterForwarder(
                *(self.dead_letters.path, self._forwarding.dead_letter_topic, self._producer_of_letters),
                *(driver, in_thread, self._changed),
            )
            self._letters = letters
            self.dead_letters.has_new = letters.wake
            self._start(letters.run, "dead letters")
        for topic in self.writer.topics():
            self.topic(topic)

    async def _producer_of_letters(self) -> Producer[bytes, bytes]:
        """Return the queue's producer; with transactions another one, since dead letters are in none."""
        if self._producer is None:
            plain = replace(self._forwarding, exactly_once=False)
            producer = plain.producer(self.directory.spool_id)
            await producer.start()
            producer._life.reports.is_told = True
            self._producer = producer
        return self._producer

    async def end(self) -> None:
        """Write what was submitted, end the forwarding, and unlock the directory."""
        self._is_ending = True
        for number, task in list(self._tasks.items()):
            if number not in self._marks:
                task.cancel()
        if self._producer is not None:
            await self._producer.close(0)
        for topic in self.topics.values():
            topic.move_last()
        self.writer.close()
        while self._tasks or self._writer_runs:
            self._end_waiter = waiter = self._driver_of().make_waiter()
            await waiter.wait(inf)
        for topic in self.topics.values():
            topic.close()
        self.directory.close()

    def give_up(self, error: BaseException) -> None:
        """Settle all deliveries that are held, after an error has ended a part."""
        self._cause = error
        for topic in self.topics.values():
            topic.give_up(error)

    def hasten(self) -> None:
        """Move the positions as soon as each stored record has its outcome: somebody waits for that."""
        for topic in self.topics.values():
            topic.hasten()

    @property
    def is_drained(self) -> bool:
        """Whether each stored record has its outcome."""
        if self._transactional is not None:
            return self._transactional.is_drained
        return all(each.is_drained for each in self._forwarders.values())

    @property
    def has_letters_to_send(self) -> bool:
        """Whether dead letters are on their way to their topic."""
        return self._letters is not None and not self._letters.is_idle

    @property
    def progress(self) -> int:
        """A number that grows while the cluster takes anything."""
        letters = 0 if self._letters is None else self._letters.sent
        return letters + sum(self.writer.position(topic) for topic in self.writer.topics())

    def backlog(self) -> dict[str, TopicBacklog]:
        """Return what waits, by topic."""
        # Copied in one step: another thread may read this while a topic is added.
        return {topic: each.backlog() for topic, each in list(self.topics.items())}

    # -- parts ---

    def topic(self, topic: str) -> TopicQueue:
        """Return a topic's queue; it is made and forwarded from then on."""
        return self.topics.get(topic) or self._make_topic(topic)

    def _make_topic(self, topic: str) -> TopicQueue:
        disk = FileSystem()
        quarantine = Quarantine(disk, self.directory.quarantine)
        position = self.writer.position(topic)
        reader = LogReader(disk, self.writer.directory_of(topic), position, quarantine)
        queue = TopicQueue(
            *(topic, self.writer, reader, self.directory, self.dead_letters, self._driver_of()),
            *(in_thread, self._changed, self._measures.topic(self.writer, topic)),
        )
        self.topics[topic] = queue
        if self._cause is not None:
            queue.give_up(self._cause)
        if self._is_ending:
            return queue  # its first batch was under way to the disk; the next start forwards it
        if self._transactional is not None:
            self._transactional.add(queue)
            return queue
        assert self._producer is not None
        forwarder = TopicForwarder(
            *(queue, self._producer._life, partial(self.writer.position, topic), self._window),
            *(self._producer._heed_turn, self._changed),
        )
        self._forwarders[topic] = forwarder
        self._start(forwarder.read_all, topic)
        self._start(forwarder.send_all, topic)
        self._start(forwarder.settle_all, topic)
        return queue

    def _window(self) -> int:
        share = self._forwarding.config.buffer_memory // (1 + len(self.topics))
        return max(_LEAST_WINDOW, min(_MOST_WINDOW, share))

    def arrived(self, append: Append) -> Append:
        """Notice a batch that is to be stored; return what the writer gets."""
        return self.topic(append.topic).go_ahead(append) if self._forwarding.is_direct else append

    def was_stored(self, topic: str, base_offset: int, end_offset: int) -> None:
        """Notice a stored batch."""
        self.topic(topic).stored(base_offset, end_offset)

    def _dropped(self, dropped: Dropped) -> None:
        _log.error(
            "the spool has dropped %d records of %s, offsets %d to %d: %s",
            *(
                dropped.record_count,
                dropped.topic,
                dropped.first_offset,
                dropped.end_offset - 1,
                dropped.reason,
            ),
        )
        self.topic(dropped.topic).were_dropped(dropped)
        self._marks.add(self._start(partial(self._mark_dropped, dropped), "drops"))
        self._changed()

    async def _mark_dropped(self, dropped: Dropped) -> None:
        try:
            await self.dead_letters.mark_dropped(dropped)
        except sqlite3.Error as error:
            _log.error("the spool cannot note in %s what it has dropped: %s", self.dead_letters.path, error)

    # -- ends ---

    def _start(self, run: Callable[[], Any], name: str) -> int:
        number = self._tasks_made = self._tasks_made + 1
        ended = partial(self._task_has_ended, number)
        self._tasks[number] = start_task(run, ended, f"aioproduce spool {name}")
        return number

    def _task_has_ended(self, number: int, error: BaseException | None) -> None:
        del self._tasks[number]
        self._marks.discard(number)
        self._has_ended(error)

    def _writer_has_ended(self, error: BaseException | None) -> None:
        self._writer_runs = False
        self._has_ended(error)

    def _has_ended(self, error: BaseException | None) -> None:
        if error is not None and not self._is_ending:
            self._failed(error)
        if self._end_waiter is not None:
            self._end_waiter.notify()
        self._changed()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread; a cancellation does not wait for it."""
    return await anyio.to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)
