"""What one topic has in a queue: read it from the log, send it, settle it, and move the position.

Two forwarders use it: `forwarder` for at least once, `transactional_forwarder` for exactly once. They decide when
something is sent and settled; how is here.

Invariants:

1. Batches are sent in the order of the log. A new record never overtakes one that was stored before it: in direct
   mode a batch goes ahead of the log only if everything before it was read or has gone ahead.
2. A record that is sent again has the same id, in the header `ap.id`: the id of the life that stored it, and its
   offset.
3. The position moves over a batch when each of its records is acknowledged, in the dead letters, or dropped, and
   every batch before it was passed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce._native.batch_rows import BatchRows
from aioproduce._native.bulk_append import BulkAppender
from aioproduce._native.record_numbers import RecordNumbers
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import (
    InvalidRecordError,
    PartitionerError,
    SpoolDroppedError,
    SpoolStorageError,
    StillSpooledError,
)
from aioproduce.producer.deliveries import Deliveries
from aioproduce.records import TopicPartition
from aioproduce.spool.batch_head import place
from aioproduce.spool.dead_letters import is_never_accepted
from aioproduce.spool.direct_mode import DirectMode
from aioproduce.spool.log_reader import Batch
from aioproduce.spool.reading_thread import ReadingThread
from aioproduce.spool.sent_batch import SentBatch
from aioproduce.spool.spooled_delivery import Groups, SpooledGroup
from aioproduce.spool.writer_messages import Append, Dropped, Settle

if TYPE_CHECKING:
    from aioproduce.drivers.base import Driver
    from aioproduce.errors import DeliveryError, ProducerError
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_life import TransactionLife
    from aioproduce.records import Header
    from aioproduce.spool.batch_head import BatchHead
    from aioproduce.spool.dead_letters import DeadLetters
    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.health import TopicBacklog
    from aioproduce.spool.log_reader import LogReader
    from aioproduce.spool.measuring import TopicMeasures
    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.writer import SpoolWriter

_log = logging.getLogger("aioproduce.spool")

ID_HEADER: Final = "ap.id"
PARTITION_HEADER: Final = "ap.partition"
"""The partition that the application has chosen; the cluster does not see it."""

_READ_BYTES: Final = 256 * 1024
_MOST_ROWS: Final = 1024
# Seconds between two moves of the position. A killed process sends again what it has settled since the last.
_MOVE_EVERY: Final = 0.2
# A topic of the local broker has at most five batches under way, so a task that wakes finds its batch here.
_LATEST: Final = 16
# Batches that wait to go ahead: if the cluster is slower, the log has the others.
_MOST_AHEAD: Final = 4
_PARTITION_BYTES: Final = PARTITION_HEADER.encode()


@final
class TopicQueue:
    """The queue of one topic.

    Args:
        topic: The topic.
        writer: Writes the log, and moves its position.
        reader: Reads the log, from its position on.
        directory: Has the ids of the queue's lives.
        dead_letters: Takes what the cluster will never accept.
        driver: The loop's side.
        read: Calls a function in another thread.
        changed: Called when something was settled.
        measures: Told what is read, sent, settled and dropped.

    Attributes:
        topic: The topic.
        groups: The groups of deliveries that somebody holds.
        forwarded: Records that were acknowledged.
        dropped: Records that were dropped.
        blocked_by: Why the topic cannot be sent to at present, or None.
        has_new: Called when something was stored, or dropped.
        was_moved: Called when the position was moved, or could not be.
    """

    def __init__(
        self,
        topic: str,
        writer: SpoolWriter,
        reader: LogReader,
        directory: SpoolDirectory,
        dead_letters: DeadLetters,
        driver: Driver,
        read: Callable[..., Awaitable[list[Batch]]],
        changed: Callable[[], None],
        measures: TopicMeasures,
    ) -> None:
        self.topic: str = topic
        self.groups: Groups = Groups()
        self.forwarded: int = 0
        self.dropped: int = 0
        self.blocked_by: BaseException | None = None
        self.has_new: Callable[[], None] = _nobody_waits
        self.was_moved: Callable[[], None] = _nobody_waits
        self._writer = writer
        self._reader = reader
        self._reading = ReadingThread(reader)
        self._directory = directory
        self._dead_letters = dead_letters
        self._driver = driver
        self._read = read
        self._changed = changed
        self._measures = measures
        self._latest: deque[SpooledGroup] = deque(maxlen=_LATEST)
        self._keepers: list[list[SpooledGroup]] = []
        # What was read or goes ahead of the log, and was not sent. What is read is sent when its `send()` is about
        # to return, so that it finds its group before its outcome comes.
        self._ahead: deque[Batch] = deque()
        self._ahead_bytes = 0
        self._stored_to = writer.life_begins_at(topic)  # or settled in direct mode
        self._read_to = reader.offset  # or gone ahead
        self._grouped_to = 0
        self._direct = DirectMode(self._stored_to, driver, writer)
        self._buried: dict[int, BaseException] = {}  # by offset, until the position is behind it
        self._ending: StillSpooledError | None = None
        self._dropped_to = 0
        self._drop: SpoolDroppedError | None = None  # the last one
        self._has_settled = writer.has_settled(topic)
        self._is_moving = False
        self._moved_at = -inf
        self._moved_to = reader.offset
        self._moves_to: int | None = None
        self._sent_to = reader.offset
        self._damaged_to = 0
        self._is_hasty = False

    # -- what is stored ---

    def stored(self, base_offset: int, end_offset: int) -> None:
        """Notice a new batch in the log, before the tasks that sent its records.

        Args:
            base_offset: Its first offset; -1 if its tasks are told that it may be stored. It is sent, too.
            end_offset: The offset behind its last.
        """
        if base_offset >= self._grouped_to:  # it has not gone ahead
            self._make_group(base_offset, end_offset)
        self._stored_to = max(end_offset, self._stored_to)
        self.has_new()

    def go_ahead(self, append: Append) -> Append:
        """Let a new batch go to the cluster before it is on disk, if nothing is in front of it: direct mode.

        Returns:
            What the writer gets. In any case it has its offset, which is part of the records' ids.
        """
        is_free = self.blocked_by is None and self._ending is None and len(self._ahead) < _MOST_AHEAD
        direct = self._direct.begin(append, may_go_ahead=is_free and self._read_to >= self._stored_to)
        if direct is None:
            return append
        (content,) = direct.write.buffers
        self._put_ahead([Batch(place(content, append.offset), memoryview(content))])
        self._make_group(append.offset, append.end_offset)
        self._read_to = append.end_offset
        self.has_new()
        return direct.write

    def _make_group(self, base_offset: int, end_offset: int) -> None:
        group = SpooledGroup(self.topic, base_offset, end_offset, self._driver.make_waiter)
        if self._ending is not None:
            group.fail(self._ending)
        elif self._drop is not None and end_offset <= self._dropped_to:
            group.fail(self._drop)  # dropped before the answer that it was stored
        self.groups[base_offset] = group
        self._latest.append(group)
        for kept in self._keepers:
            kept.append(group)
        self._grouped_to = end_offset

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
        for group in reversed(self._latest):
            if group.base_offset <= offset < group.end_offset:
                return group
        raise LookupError(f"no delivery is kept of offset {offset} of {self.topic}")

    def backlog(self) -> TopicBacklog:
        """Return what waits."""
        stored_bytes = self._writer.stored_bytes_of(self.topic)
        return self._measures.backlog(stored_bytes, self.forwarded, self.blocked_by, self.dropped)

    def were_dropped(self, dropped: Dropped) -> None:
        """Notice that the oldest records were dropped: their deliveries end."""
        self.dropped += dropped.record_count
        self._measures.dropped(dropped)
        error = SpoolDroppedError(
            f"the record for {self.topic!r} was dropped from the queue before the cluster acknowledged it: "
            f"{dropped.reason}. Let the cluster take more, or raise the limit",
            topic_partition=TopicPartition(self.topic, -1),
            possibly_written=True,
            attempts=0,
            retriable=False,
        )
        self._dropped_to, self._drop = dropped.end_offset, error
        for group in list(self.groups.values()):
            if group.end_offset <= dropped.end_offset and not group.is_settled:
                group.fail(error)
        while self._ahead and self._ahead[0].head.end_offset <= dropped.end_offset:
            self._take_ahead()
        self._direct.dropped(dropped.end_offset)
        self._moved_to = max(self._moved_to, dropped.end_offset)
        self.has_new()

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
        self._direct.failed()

    def close(self) -> None:
        """Give up, and close the file that is read."""
        if self._ending is None:
            self.give_up(None)
        self._reading.close()

    # -- reading ---

    @property
    def next_batch(self) -> Batch | None:
        """The next batch to send, if it was read."""
        if self._ahead and self._ahead[0].head.end_offset <= max(self._stored_to, self._direct.goes_to):
            return self._ahead[0]
        return None

    @property
    def has_unread(self) -> bool:
        """Whether `read_ahead()` has something to read."""
        return not self._ahead and self._read_to < self._stored_to

    @property
    def wants_more(self) -> bool:
        """Whether `read_ahead()` has something to read, and little that was read waits to be sent."""
        return self._read_to < self._stored_to and self._ahead_bytes < _READ_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether everything that is stored or goes ahead was sent."""
        return not self._ahead and self._read_to >= self._stored_to

    async def read_ahead(self) -> None:
        """Read the next batches of the log."""
        stored_to = self._stored_to
        rescues = self._writer.rescues(self.topic)
        wanted = (self._writer.segments(self.topic), _READ_BYTES)
        self._reader.pass_over(max(self._writer.dropped_to(self.topic), self._read_to))
        batches = self._reading.read_cached(*wanted) or await self._read(self._reading.read, *wanted)
        self._put_ahead(batches)
        self._measures.read(batches, self._reader)
        damages: list[Damage] = self._reader.damages
        while damages:
            damage = damages.pop(0)
            if damage.next_offset <= self._damaged_to:
                continue  # it was told when this was read before
            self._damaged_to = damage.next_offset
            self._measures.damaged(damage)
            _log.error("the spool is damaged: %s; they are kept in the quarantine", damage)
        # Between the last record of an earlier process and the first of this one are offsets that nobody used.
        if batches:
            self._read_to = batches[-1].head.end_offset
        elif rescues % 2 or rescues != self._writer.rescues(self.topic):
            self.read_failed()  # a sync failed meanwhile, and batches have moved to another segment
        else:
            self._read_to = stored_to

    def read_failed(self) -> None:
        """Read from the same place the next time."""
        self._reader.begin_at(self._read_to)

    def _put_ahead(self, batches: list[Batch]) -> None:
        self._ahead += batches
        self._ahead_bytes += sum(batch.head.size for batch in batches)

    def _take_ahead(self) -> None:
        self._ahead_bytes -= self._ahead.popleft().head.size

    def begin_again(self, offset: int) -> None:
        """Send everything from an offset on, also what was sent before, and from the log."""
        self._direct.failed()
        self._ahead.clear()
        self._ahead_bytes = 0
        self._reader.begin_at(offset)
        self._read_to = offset

    # -- sending ---

    async def send_next(self, life: ProducerLife | TransactionLife, settled_to: int) -> SentBatch:
        """Send the next batch, and return it.

        Args:
            life: Where it is sent.
            settled_to: What is before this offset was settled; it may be within the batch after a restart.

        Raises:
            ProducerError: if it cannot be sent at present. It is still the next one.
        """
        batch = self._ahead[0]
        head = batch.head
        rows = BatchRows(batch.content, head.record_count, head.first_timestamp)
        deliveries = Deliveries()
        first = row = max(settled_to - head.base_offset, 0)
        left_out = self._buried_rows(head, first)
        has_partitions = bool(rows.headers) and _PARTITION_BYTES in bytes(batch.content)
        for stop in (*left_out, head.record_count):
            while row < stop:
                if has_partitions:
                    row = await self._send_row(life, deliveries, rows, row, head.base_offset)
                else:
                    row = await self._send_rows(life, deliveries, rows, row, stop, head.base_offset)
            row = stop + 1
        self._sent_to = max(self._sent_to, head.end_offset)
        if self._ahead and self._ahead[0] is batch:  # it was not dropped meanwhile
            self._take_ahead()
        self._measures.sent(head, len(deliveries))
        return SentBatch(batch, rows, deliveries, first, self._buried_rows(head, first))

    def _buried_rows(self, head: BatchHead, first: int) -> list[int]:
        """Return the rows of a batch from one on that are in the dead letters, in order."""
        start, stop = head.base_offset + first, head.end_offset
        return sorted(offset - head.base_offset for offset in self._buried if start <= offset < stop)

    async def _send_rows(
        self,
        life: ProducerLife | TransactionLife,
        deliveries: Deliveries,
        rows: BatchRows,
        row: int,
        stop: int,
        base_offset: int,
    ) -> int:
        """Send some rows; return the next one."""
        life.check_running()
        appender = life.appenders.get(self.topic)
        if appender is not None:
            life_id = self._directory.life_id(base_offset)
            bulk = BulkAppender(appender, NO_PARTITION, b"", RecordNumbers(life_id, base_offset + row))
            span = bulk.append(
                *(rows.values, rows.keys, rows.headers, None, rows.timestamps),
                *(0, row, min(stop, row + _MOST_ROWS)),
            )
            deliveries._add_span(span)
            row += len(span)
            if len(span) and row < stop:
                return row
        return await self._send_row(life, deliveries, rows, row, base_offset) if row < stop else row

    async def _send_row(
        self,
        life: ProducerLife | TransactionLife,
        deliveries: Deliveries,
        rows: BatchRows,
        row: int,
        base_offset: int,
    ) -> int:
        record = self._record(rows, row, base_offset + row)
        try:
            delivery = life.admission.append_at_once(record)
            if delivery is None:
                delivery = await life.admission.append_waiting(record, None)
        except PartitionerError:
            raise
        except (
            InvalidRecordError
        ) as error:  # e.g. a partition that the topic has not, or a limit that was lowered
            await self._bury(record, base_offset + row, error)
        else:
            deliveries._add_future(delivery)
        return row + 1

    async def _bury(self, record: SerializedRecord, offset: int, error: BaseException) -> None:
        """Put a record into the dead letters.

        Raises:
            SpoolStorageError: if the disk refused it.
        """
        try:
            await self._dead_letters.put(record, error)
        except sqlite3.Error as failure:
            raise SpoolStorageError(
                f"a record for {self.topic!r} can never be sent ({error}), and cannot be put to the dead letters: "
                f"{failure}",
                possibly_stored=True,
            ) from failure
        self._buried[offset] = error

    def _record(self, rows: BatchRows, row: int, offset: int) -> SerializedRecord:
        headers: list[Header] = []
        partition: int | None = None
        for name, value in (rows.headers and rows.headers.at(row)) or ():
            if name == PARTITION_HEADER and value is not None:
                partition = int.from_bytes(value, "big")
            else:
                headers.append((name, value))
        headers.append((ID_HEADER, self._directory.life_id(offset) + offset.to_bytes(8, "big")))
        key = None if rows.keys is None else rows.keys.at(row)
        timestamp = rows.timestamps.at(row)
        assert timestamp is not None
        return SerializedRecord(self.topic, key, rows.values.at(row), headers, partition, timestamp)

    # -- settling ---

    async def bury(self, sent: SentBatch, failed: dict[int, DeliveryError]) -> ProducerError | None:
        """Put what the cluster will never accept into the dead letters; return another failure, if there is one.

        Args:
            sent: The batch.
            failed: Its failures, by the index of the delivery.
        """
        others = [error for error in failed.values() if not is_never_accepted(error)]
        for index, error in failed.items():
            if is_never_accepted(error):
                row = sent.row(index)
                offset = sent.batch.head.base_offset + row
                try:
                    await self._bury(self._record(sent.rows, row, offset), offset, error)
                except SpoolStorageError as failure:
                    return failure
        return others[0] if others else None

    def settle(self, sent: SentBatch, following: SentBatch | None) -> None:
        """Settle a batch, all of whose records are acknowledged or buried: its deliveries end.

        Args:
            sent: The batch.
            following: The next one that was sent.
        """
        head = sent.batch.head
        errors: dict[int, BaseException] = {}
        if self._buried:
            for offset in [each for each in self._buried if each < head.end_offset]:
                errors[offset - head.base_offset] = self._buried.pop(offset)
        count = len(sent.deliveries) + len(sent.left_out)
        self.forwarded += count - len(errors)
        batch = following.batch if following is not None else self._ahead[0] if self._ahead else None
        following_head = None if batch is None else batch.head
        self._measures.settled(
            head, count, len(errors), following_head, is_stored=self._direct.settled(head.end_offset)
        )
        group = self.groups.get(head.base_offset)
        was_dropped = sent.first >= head.record_count  # and `were_dropped()` is on its way
        if group is not None and not group.is_settled and not was_dropped:
            group.settle(sent.outcomes(), sent.first, errors)

    # -- the position ---

    @property
    def is_passed(self) -> bool:
        """Whether the position is behind everything that was read, or is on its way there."""
        return not self._is_moving and self._moved_to >= self._read_to

    def pass_unused(self) -> None:
        """Move the position over offsets that nobody used; everything that was sent is settled."""
        if not self.is_idle:
            return
        self._measures.count.drained(self._read_to)
        if self._moves_to is None and self._moved_to < self._read_to:
            self._moves_to = self._read_to

    @property
    def moves_in(self) -> float:
        """Seconds until the position is to be moved: not in sight, 0 or less for now."""
        if self._moves_to is None or self._is_moving:
            return inf
        if self._is_hasty and self.is_idle and self._moves_to >= self._sent_to:
            return 0.0
        return self._moved_at + _MOVE_EVERY - self._driver.now()

    def hasten(self) -> None:
        """Move the position as soon as everything in the log is settled: somebody waits for that."""
        self._is_hasty = True
        if self.moves_in <= 0:
            self.move_now()

    def move(self, position: int) -> None:
        """Move the position behind a settled record, now or soon: each move is a sync of the disk."""
        self._has_settled = True
        self._moves_to = position
        if self.moves_in <= 0:
            self.move_now()

    def move_now(self) -> None:
        """Move the position where it is to be moved to."""
        position, self._moves_to = self._moves_to, None
        assert position is not None
        self._moved_to = max(position, self._moved_to)
        self._is_moving = True
        self._moved_at = self._driver.now()
        self._writer.settle(Settle(self.topic, position, partial(self._moved, position), self._has_settled))

    def move_last(self) -> None:
        """Move the position for the last time, if it is to be moved."""
        if self._moves_to is not None:
            self.move_now()

    def _moved(self, position: int, error: OSError | None) -> None:
        self._is_moving = False
        if error is not None and self._moves_to is None:
            self._moves_to = position  # tried again
        if error is not None or self.is_passed:
            self._is_hasty = False  # a disk that refuses is not asked without a pause
        self.was_moved()
        self._changed()


def _nobody_waits() -> None:
    pass


def _still_spooled(topic: str) -> StillSpooledError:
    return StillSpooledError(
        f"the producer was closed before the cluster acknowledged the record for {topic!r}; it is in the queue on "
        "disk, and the next producer with this directory sends it",
        topic_partition=TopicPartition(topic, -1),
        possibly_written=True,
        attempts=0,
        retriable=True,
    )
