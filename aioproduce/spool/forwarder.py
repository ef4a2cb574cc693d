"""One topic's forwarder: it reads the topic's log, sends the records to the cluster, and moves the position.

`SpooledProducer` runs one for each topic, as two tasks: one sends, one settles.

Invariants:

1. Records are sent in the order of the log. A new record never overtakes one that was stored before it.
2. The position moves over a batch when each of its records is acknowledged or in the dead letters, and every batch
   before it was passed.
3. A record that is sent again has the same id: the spool's id and its offset in the log, in the header `ap.id`.
4. A topic that cannot be sent to is tried again, after longer and longer pauses. It holds a bounded part of the
   producer's buffer, and so no other topic up.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce._native.batch_rows import BatchRows
from aioproduce._native.bulk_append import BulkAppender
from aioproduce._native.record_numbers import RecordNumbers
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import DeliveryError, ProducerError, ProducerStateError, StillSpooledError
from aioproduce.producer.deliveries import Deliveries
from aioproduce.records import TopicPartition
from aioproduce.spool.spooled_delivery import Groups, SpooledGroup
from aioproduce.spool.writer import Settle

if TYPE_CHECKING:
    from aioproduce.drivers.base import Waiter
    from aioproduce.producer.producer import Producer
    from aioproduce.records import Header
    from aioproduce.spool.dead_letters import DeadLetters
    from aioproduce.spool.health import TopicBacklog
    from aioproduce.spool.log_reader import Batch, LogReader
    from aioproduce.spool.measuring import TopicMeasures
    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.writer import SpoolWriter

_log = logging.getLogger("aioproduce.spool")

ID_HEADER: Final = "ap.id"
_READ_BYTES: Final = 256 * 1024
_MOST_ROWS: Final = 1024
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0
# Seconds between two moves of the position. A killed process sends again what it has settled since the last.
_MOVE_EVERY: Final = 0.2
# A topic of the local broker has at most five batches under way, so a task that wakes finds its batch here.
_LATEST: Final = 16


@final
@dataclass(slots=True)
class _Sent:
    """A batch of the log that was sent, until it is settled."""

    batch: Batch
    rows: BatchRows
    deliveries: Deliveries


@final
class TopicForwarder:
    """Forwards one topic.

    Args:
        topic: The topic.
        writer: Writes the log, and moves its position.
        reader: Reads the log, from its position on.
        producer: Sends to the cluster; it gives no record up for as long as it runs.
        spool_id: The 16 bytes of the ids.
        window: Returns how many bytes of the log may be under way now.
        dead_letters: Takes what the cluster will never accept.
        read: Calls a function in another thread.
        changed: Called when something was settled.
        measures: Told what is read, sent and settled.

    Attributes:
        groups: The groups of deliveries that somebody holds.
        forwarded: Records that were acknowledged.
        blocked_by: Why the topic cannot be sent to at present, or None.
    """

    def __init__(
        self,
        topic: str,
        writer: SpoolWriter,
        reader: LogReader,
        producer: Producer[bytes, bytes],
        spool_id: bytes,
        window: Callable[[], int],
        dead_letters: DeadLetters,
        read: Callable[..., Awaitable[list[Batch]]],
        changed: Callable[[], None],
        measures: TopicMeasures,
    ) -> None:
        self.topic: str = topic
        self.groups: Groups = Groups()
        self.forwarded: int = 0
        self.blocked_by: BaseException | None = None
        self._writer = writer
        self._reader = reader
        self._producer = producer
        self._spool_id = spool_id
        self._window = window
        self._dead_letters = dead_letters
        self._read = read
        self._changed = changed
        self._measures = measures
        self._latest: deque[SpooledGroup] = deque(maxlen=_LATEST)
        self._keepers: list[list[SpooledGroup]] = []
        # What was read and not sent: only records whose `send()` is about to return are sent, so that each finds
        # its group before its outcome comes.
        self._ahead: deque[Batch] = deque()
        self._stored_to = writer.life_begins_at(topic)
        self._read_to = reader.offset
        self._is_idle = False
        self._sent: deque[_Sent] = deque()
        self._under_way = 0
        self._pause = 0.0
        self._sends: list[Waiter] = []
        self._settles: list[Waiter] = []
        self._again_from: int | None = None
        self._ending: StillSpooledError | None = None
        self._is_moving = False
        self._moved_at = 0.0
        self._moved_to = reader.offset
        self._moves_to: int | None = None

    # -- waking ---

    def stored(self, base_offset: int, end_offset: int) -> None:
        """Notice a new batch in the log, before the tasks that sent its records."""
        group = SpooledGroup(self.topic, base_offset, end_offset, self._producer._life.driver.make_waiter)
        if self._ending is not None:
            group.fail(self._ending)
        self.groups[base_offset] = group
        self._latest.append(group)
        for kept in self._keepers:
            kept.append(group)
        self._stored_to = end_offset
        self._is_idle = False
        _notify(self._sends)

    @contextmanager
    def keeping_groups(self) -> Iterator[list[SpooledGroup]]:
        """Keep the groups of all batches that are stored until the context ends, in order."""
        kept: list[SpooledGroup] = []
        self._keepers.append(kept)
        try:
            yield kept
        finally:
            self._keepers = [each for each in self._keepers if each is not kept]

    def group_at(self, offset: int) -> SpooledGroup:
        """Return the group of a record whose `send()` is about to return."""
        return next(
            group for group in reversed(self._latest) if group.base_offset <= offset < group.end_offset
        )

    @property
    def is_drained(self) -> bool:
        """Whether every stored record is settled, and the position is behind it."""
        return self._is_idle and not self._sent and not self._is_moving and self._moved_to >= self._read_to

    def backlog(self) -> TopicBacklog:
        """Return what waits."""
        stored_bytes = self._writer.stored_bytes_of(self.topic)
        return self._measures.backlog(stored_bytes, self.forwarded, self.blocked_by)

    def give_up(self, cause: BaseException | None) -> None:
        """Settle the deliveries that are held, and those to come: their records are on disk, and stay there.

        Args:
            cause: What ended the forwarding; None for a close.
        """
        self._ending = ending = _still_spooled(self.topic)
        ending.__cause__ = cause
        for group in list(self.groups.values()):
            if not group.is_settled:
                group.fail(ending)

    def close(self) -> None:
        """Give up, and close the file that is read."""
        if self._ending is None:
            self.give_up(None)
        self._reader.close()

    async def _wait(self, waiters: list[Waiter], seconds: float = inf) -> None:
        driver = self._producer._life.driver
        waiter = driver.make_waiter()
        waiters.append(waiter)
        await waiter.wait(driver.now() + seconds)

    # -- sending ---

    async def send_all(self) -> None:
        """Send what the log has, as it comes, without an end."""
        while True:
            if self._again_from is not None:
                await self._begin_again()
            elif self._under_way >= self._window():
                await self._wait(self._sends)
            elif self._ahead and self._ahead[0].head.end_offset <= self._stored_to:
                if await self._send(self._ahead[0]):
                    self._ahead.popleft()
            elif not self._ahead and self._read_to < self._stored_to:
                await self._read_ahead()
            else:
                self._is_idle = not self._ahead
                if self._is_idle and not self._sent:
                    self._measures.count.drained(self._read_to)
                _notify(self._settles)
                self._changed()
                await self._wait(self._sends)

    async def _read_ahead(self) -> None:
        stored_to = self._stored_to
        batches = await self._read(self._reader.read, self._writer.segments(self.topic), _READ_BYTES)
        self._ahead += batches
        self._measures.read(batches, self._reader)
        self._report_damages()
        # Between the last record of an earlier process and the first of this one are offsets that nobody used.
        self._read_to = self._ahead[-1].head.end_offset if self._ahead else stored_to

    def _report_damages(self) -> None:
        damages: list[Damage] = self._reader.damages
        while damages:
            damage = damages.pop(0)
            self._measures.damaged(damage)
            _log.error("the spool is damaged: %s; they are kept in the quarantine", damage)

    async def _send(self, batch: Batch) -> bool:
        """Send one batch of the log; return false if the topic cannot be sent to at present."""
        head = batch.head
        rows = BatchRows(batch.content, head.record_count, head.first_timestamp)
        deliveries = Deliveries()
        # A batch that was settled in part before a restart is sent from its first record that was not.
        row = max(self._writer.position(self.topic) - head.base_offset, 0)
        try:
            while row < head.record_count:
                row = await self._send_rows(deliveries, rows, row, head.record_count, head.base_offset)
        except ProducerStateError:
            raise
        except ProducerError as error:
            self._try_later(head.base_offset, error)
            return False
        self._sent.append(_Sent(batch, rows, deliveries))
        self._under_way += head.size
        self._measures.sent(head, len(deliveries))
        _notify(self._settles)
        return True

    async def _send_rows(
        self, deliveries: Deliveries, rows: BatchRows, row: int, stop: int, base_offset: int
    ) -> int:
        """Send some rows; return the next one."""
        life = self._producer._life
        appender = life.appenders.get(self.topic)
        if appender is not None:
            bulk = BulkAppender(appender, NO_PARTITION, b"", RecordNumbers(self._spool_id, base_offset + row))
            span = bulk.append(
                *(
                    rows.values,
                    rows.keys,
                    rows.headers,
                    None,
                    rows.timestamps,
                    0,
                    row,
                    min(stop, row + _MOST_ROWS),
                )
            )
            deliveries._add_span(span)
            row += len(span)
            if len(span) and row < stop:
                return row
        if row < stop:
            record = self._record(rows, row, base_offset + row)
            delivery = life.admission.append_at_once(record)
            if delivery is None:
                delivery = await life.admission.append_waiting(record, None)
            deliveries._add_future(delivery)
            row += 1
        return row

    def _record(self, rows: BatchRows, row: int, offset: int) -> SerializedRecord:
        headers: list[Header] = list((rows.headers and rows.headers.at(row)) or ())
        headers.append((ID_HEADER, self._spool_id + offset.to_bytes(8, "big")))
        key = None if rows.keys is None else rows.keys.at(row)
        timestamp = rows.timestamps.at(row)
        assert timestamp is not None
        return SerializedRecord(self.topic, key, rows.values.at(row), headers, None, timestamp)

    # -- trouble ---

    def _try_later(self, offset: int, error: BaseException) -> None:
        """Send everything from an offset on again, after a pause."""
        self._again_from = offset if self._again_from is None else min(self._again_from, offset)
        if self.blocked_by is None or type(self.blocked_by) is not type(error):
            _log.warning("the spool cannot forward records of %s, and goes on trying: %s", self.topic, error)
        self.blocked_by = error

    async def _begin_again(self) -> None:
        while self._sent:  # what is under way has an outcome first: nothing is sent twice at a time
            await self._wait(self._sends)
        assert self._again_from is not None
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        driver = self._producer._life.driver
        ends_at = driver.now() + self._pause
        while (left := ends_at - driver.now()) > 0:
            await self._wait(self._sends, left)
        self._ahead.clear()
        self._reader.begin_at(self._again_from)
        self._read_to = self._again_from
        self._again_from = None

    # -- settling ---

    async def settle_all(self) -> None:
        """Settle what was sent, in order, without an end."""
        while True:
            if not self._sent:
                await self._wait_for_sent()
                continue
            sent = self._sent[0]
            failed = await sent.deliveries.failed()
            if self._again_from is None:
                await self._settle(sent, failed)
            self._sent.popleft()
            self._under_way -= sent.batch.head.size
            _notify(self._sends)
            self._changed()

    async def _wait_for_sent(self) -> None:
        """Wait until something is sent; move the position meanwhile, when that is due."""
        if self._is_idle and self._moves_to is None and self._moved_to < self._read_to:
            self._moves_to = self._read_to  # over the offsets that nobody used
        if self._moves_to is None or self._is_moving:
            await self._wait(self._settles)
            return
        left = self._moved_at + _MOVE_EVERY - self._producer._life.driver.now()
        if left > 0:
            await self._wait(self._settles, left)
        if not self._sent:
            self._move_now()

    async def _settle(self, sent: _Sent, failed: dict[int, DeliveryError]) -> None:
        head = sent.batch.head
        first = head.record_count - len(sent.deliveries)
        errors: dict[int, BaseException] = {}
        for index, error in failed.items():
            if not self._dead_letters.takes(error):
                self._try_later(head.base_offset, error)
                return
            row = first + index
            record = self._record(sent.rows, row, head.base_offset + row)
            await self._dead_letters.put(record, error)
            errors[row] = error
        self._pause, self.blocked_by = 0.0, None
        self.forwarded += len(sent.deliveries) - len(errors)
        following = self._sent[1].batch if len(self._sent) > 1 else self._ahead[0] if self._ahead else None
        self._measures.settled(
            *(head, len(sent.deliveries), len(errors), None if following is None else following.head)
        )
        self._move(head.end_offset)
        group = self.groups.get(head.base_offset)
        if group is not None:
            group.settle(sent.deliveries, first, errors)

    def _move(self, position: int) -> None:
        """Move the position, now or soon: each move is a sync of the disk."""
        self._moves_to = position
        if not self._is_moving and self._producer._life.driver.now() >= self._moved_at + _MOVE_EVERY:
            self._move_now()

    def _move_now(self) -> None:
        position, self._moves_to = self._moves_to, None
        assert position is not None
        self._moved_to = position
        self._is_moving = True
        self._moved_at = self._producer._life.driver.now()
        self._writer.settle(Settle(self.topic, position, partial(self._moved, position)))

    def _moved(self, position: int, error: OSError | None) -> None:
        self._is_moving = False
        if error is not None and self._moves_to is None:
            self._moves_to = position  # tried again
        _notify(self._settles)
        self._changed()


def _notify(waiters: list[Waiter]) -> None:
    while waiters:
        waiters.pop().notify()


def _still_spooled(topic: str) -> StillSpooledError:
    return StillSpooledError(
        f"the producer was closed before the cluster acknowledged the record for {topic!r}; it is in the queue on "
        "disk, and the next producer with this directory sends it",
        topic_partition=TopicPartition(topic, -1),
        possibly_written=True,
        attempts=0,
        retriable=True,
    )
