"""What a spooled producer measures: its backlog by topic, and the sensors of its metrics and of its health.

`SpooledProducer` owns one `SpoolMeasures`. The writer reports what it has stored, and each forwarder what it has
read, sent and settled, all in the loop.

Invariants:

1. The cost is per batch, group, read or sync, never per record.
2. What this process stored is counted by offsets, which are consecutive within a life of a log: damage cannot make
   the count wrong. What an earlier process left is counted as it is read, and estimated before.
3. `BacklogCount` knows no clock. The others get one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import nan
from typing import TYPE_CHECKING, Final, final

from aioproduce._native.stats import Meter, Windows
from aioproduce.metrics import MetricsSnapshot
from aioproduce.metrics.catalog import COUNT
from aioproduce.metrics.metric import Metric, MetricKind
from aioproduce.metrics.spool_metrics import SpoolMetrics, read_spool
from aioproduce.spool.batch_head import read_sealed
from aioproduce.spool.health import (
    SpoolHealth,
    SpoolState,
    TopicBacklog,
    blocked_topics,
    combined,
    drain_seconds,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.metrics.spool_metrics import SpoolTopicMetrics
    from aioproduce.spool.batch_head import BatchHead
    from aioproduce.spool.log_reader import Batch, LogReader
    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.writer import SpoolWriter
    from aioproduce.spool.writer_messages import Append, Dropped

# Rates of the health are over 10 to 15 s: long enough for a forwarder's pauses, short enough for an outage's begin.
_RECENT: Final = Windows(3, 5.0)
# A service that is not ready gets no records, so nothing would tell that the disk works again.
_FAILED_FOR: Final = 30.0
_MS: Final = 1000


@final
class BacklogCount:
    """Counts what waits of one topic in one queue.

    Args:
        position: The offset before which everything was settled at the start.
        life_begins_at: The first offset of this process.
        earlier_bytes: Bytes of the files that earlier processes left.
    """

    __slots__ = (
        "_earlier_bytes",
        "_earlier_records",
        "_first_timestamp",
        "_life_begins_at",
        "_own_bytes",
        "_read_bytes",
        "_read_records",
        "_read_to",
        "_sent_to",
        "_settled_to",
        "_stored_to",
        "_unread_bytes",
    )

    def __init__(self, position: int, life_begins_at: int, earlier_bytes: int) -> None:
        self._life_begins_at = life_begins_at
        self._stored_to = life_begins_at
        self._settled_to = position
        self._read_to = position
        self._sent_to = position
        self._own_bytes = 0
        self._earlier_records = 0
        self._earlier_bytes = 0
        self._unread_bytes = earlier_bytes
        self._read_records = 0
        self._read_bytes = 0
        self._first_timestamp: int | None = None

    # -- what happens ---

    def stored(self, end_offset: int, size: int, first_timestamp: int) -> None:
        """Count a batch of this process."""
        if self._settled_to >= self._stored_to and not self._unread_bytes:
            self._first_timestamp = first_timestamp
        self._stored_to = end_offset
        if end_offset > self._settled_to:  # else it was acknowledged before, in direct mode
            self._own_bytes += size

    def read(self, heads: Sequence[BatchHead], unread_bytes: int) -> None:
        """Count what was read, in order; what was read before counts once.

        Args:
            heads: The batches.
            unread_bytes: Bytes behind them in the files of earlier processes.
        """
        self._unread_bytes = min(self._unread_bytes, unread_bytes)
        for head in heads:
            if self._first_timestamp is None and head.end_offset > self._settled_to:
                self._first_timestamp = head.first_timestamp
            if head.end_offset <= self._read_to:
                continue
            self._read_to = head.end_offset
            if head.base_offset < self._life_begins_at:
                self._earlier_records += head.end_offset - max(head.base_offset, self._settled_to)
                self._earlier_bytes += head.size
                self._read_records += head.record_count
                self._read_bytes += head.size

    def damaged(self, first_offset: int, size: int) -> None:
        """Drop damaged bytes: they are never settled."""
        if first_offset >= self._life_begins_at:
            self._own_bytes -= size

    def sent(self, head: BatchHead) -> bool:
        """Notice that a batch was sent; return whether it was sent before."""
        is_again = head.end_offset <= self._sent_to
        self._sent_to = max(self._sent_to, head.end_offset)
        return is_again

    def settled(self, head: BatchHead, records: int, following: BatchHead | None, *, is_stored: bool) -> None:
        """Count a batch as settled.

        Args:
            head: The batch.
            records: Its records that were not settled before.
            following: The next batch, if it is read already.
            is_stored: Whether it was counted as stored.
        """
        self._settled_to = max(self._settled_to, head.end_offset)
        if not is_stored:
            pass
        elif head.base_offset < self._life_begins_at:
            self._earlier_records -= records
            self._earlier_bytes -= head.size
        else:
            self._own_bytes -= head.size
        self._first_timestamp = None if following is None else following.first_timestamp

    def dropped(self, end_offset: int, records: int, size: int) -> None:
        """Count records as dropped: nobody will settle them.

        Args:
            end_offset: The offset behind them.
            records: Their number.
            size: The bytes of their file.
        """
        self._settled_to = max(self._settled_to, end_offset)
        if end_offset > self._life_begins_at:
            self._own_bytes -= size
        else:
            self._unread_bytes = max(self._unread_bytes - size, 0)
            self._earlier_records = max(self._earlier_records - records, 0)
        self._first_timestamp = None

    def drained(self, read_to: int) -> None:
        """Notice that everything before an offset is read and settled, also what was damaged or never used."""
        self._settled_to = max(self._settled_to, read_to)
        if read_to >= self._life_begins_at:
            self._unread_bytes = self._earlier_records = self._earlier_bytes = 0
        if read_to >= self._stored_to:
            self._own_bytes = 0
            self._first_timestamp = None

    # -- what waits ---

    @property
    def unread_bytes(self) -> int:
        """Bytes that earlier processes left and nobody has read yet."""
        return self._unread_bytes

    @property
    def bytes_waiting(self) -> int:
        """Bytes of what waits; at most too large while there are unread ones."""
        return max(self._own_bytes, 0) + self._earlier_bytes + self._unread_bytes

    @property
    def records(self) -> int | None:
        """Records that wait; an estimate while there are unread bytes, None if nothing tells their size yet."""
        own = self._stored_to - max(self._settled_to, self._life_begins_at)
        counted = max(own, 0) + self._earlier_records
        if not self._unread_bytes:
            return counted
        if not self._read_bytes:
            return None
        return counted + round(self._unread_bytes * self._read_records / self._read_bytes)

    @property
    def oldest_at(self) -> float | None:
        """The first waiting record's time, in seconds since the epoch; None if it is not known."""
        return None if self._first_timestamp is None else self._first_timestamp / _MS


@final
class TopicMeasures:
    """What one forwarder reports.

    Args:
        owner: The measures of the whole.
        topic: The topic.
        count: What waits.
        earlier_sizes: Bytes of the files that earlier processes left, by base offset.
    """

    __slots__ = ("_earlier_sizes", "_of_topic", "_owner", "count")

    def __init__(
        self, owner: SpoolMeasures, topic: str, count: BacklogCount, earlier_sizes: Mapping[int, int]
    ) -> None:
        self._owner = owner
        self._of_topic: SpoolTopicMetrics = owner.sensors.topic(topic)
        self.count: BacklogCount = count
        self._earlier_sizes = earlier_sizes

    def stored(self, append: Append, records: int) -> None:
        """Record a batch that is on disk."""
        owner, now = self._owner, self._owner.now()
        self.count.stored(append.end_offset, append.size, append.first_timestamp)
        self._of_topic.appended.record(records, now)
        owner.sensors.appended.record(records, now)
        owner.sensors.appended_bytes.record(append.size, now)
        owner.recently_stored.record(records, now)

    def read(self, batches: Sequence[Batch], reader: LogReader) -> None:
        """Record what was read; nothing is read at the end of the log."""
        unread = reader.bytes_behind(self._earlier_sizes) if batches else 0
        self.count.read([batch.head for batch in batches], unread)

    def damaged(self, damage: Damage) -> None:
        """Record a damage of the log."""
        self.count.damaged(damage.first_offset, damage.end - damage.start)
        self._owner.sensors.damaged.record(damage.record_count, self._owner.now())

    def dropped(self, dropped: Dropped) -> None:
        """Record that the oldest records were dropped."""
        self.count.dropped(dropped.end_offset, dropped.record_count, dropped.size)
        self._owner.sensors.dropped.record(dropped.record_count, self._owner.now())

    def sent(self, head: BatchHead, records: int) -> None:
        """Record that a batch was sent."""
        if self.count.sent(head):
            self._owner.sensors.resent.record(records, self._owner.now())

    def settled(
        self, head: BatchHead, records: int, dead: int, following: BatchHead | None, *, is_stored: bool
    ) -> None:
        """Record the outcome of a batch.

        Args:
            head: The batch.
            records: Its records that were not settled before.
            dead: How many of them went to the dead letters.
            following: The next batch, if it is read already.
            is_stored: Whether the disk has it.
        """
        owner, now = self._owner, self._owner.now()
        self.count.settled(head, records, following, is_stored=is_stored)
        self._of_topic.forwarded.record(records - dead, now)
        owner.sensors.forwarded.record(records - dead, now)
        owner.recently_forwarded.record(records, now)
        if dead:
            owner.sensors.dead_letters.record(dead, now)

    def backlog(
        self, stored_bytes: int, forwarded: int, blocked_by: BaseException | None, dropped: int = 0
    ) -> TopicBacklog:
        """Return what waits.

        Args:
            stored_bytes: Bytes on disk.
            forwarded: Records that were acknowledged.
            blocked_by: Why the topic cannot be sent to.
            dropped: Records that were dropped.
        """
        count = self.count
        oldest_at = count.oldest_at
        age = None if oldest_at is None else max(self._owner.wall() - oldest_at, 0.0)
        return TopicBacklog(
            *(stored_bytes, forwarded, blocked_by, count.records, count.unread_bytes > 0),
            *(count.bytes_waiting, oldest_at, age, dropped),
        )


@final
class SpoolMeasures:
    """What a spooled producer measures, over all its queues.

    Args:
        config: The producer's settings.
        wall: Returns the seconds since the epoch.

    Attributes:
        sensors: The sensors of the metrics.
        now: The clock of the sensors; set at the start.
        wall: As given.
        recently_stored: Records that were stored lately.
        recently_forwarded: Records that left the queue lately.
    """

    def __init__(self, config: ProducerConfig, wall: Callable[[], float]) -> None:
        self._client_id = config.client_id
        self.sensors: SpoolMetrics = SpoolMetrics(
            Windows(config.metrics_num_samples, config.metrics_sample_window)
        )
        self.recently_stored: Meter = Meter(_RECENT)
        self.recently_forwarded: Meter = Meter(_RECENT)
        self.now: Callable[[], float] = lambda: 0.0
        self.wall: Callable[[], float] = wall
        self._queues: list[_Queue] = []

    def add_queue(self, writer: SpoolWriter, directory: str, quarantine: str) -> None:
        """Measure a queue from now on.

        Args:
            writer: Its writer, before its start.
            directory: Its directory.
            quarantine: The directory of its damaged bytes.
        """
        queue = _Queue(self, writer, directory, quarantine)
        self._queues.append(queue)
        writer.measure = queue.written

    def remove_queue(self, writer: SpoolWriter) -> None:
        """Measure a queue no more."""
        self._queues = [each for each in self._queues if each.writer is not writer]

    def topic(self, writer: SpoolWriter, topic: str) -> TopicMeasures:
        """Return what the forwarder of a topic reports to."""
        (queue,) = (each for each in self._queues if each.writer is writer)
        return queue.topic(topic)

    # -- reading ---

    def health(
        self, backlogs: Mapping[str, TopicBacklog], failure: BaseException | None, *, is_open: bool
    ) -> SpoolHealth:
        """Return the health.

        Args:
            backlogs: What waits, by topic.
            failure: What ended a part of the producer.
            is_open: Whether the producer is started and not closed.
        """
        now = self.now()
        total = combined(backlogs.values())
        forwarding, storing = self.recently_forwarded.rate(now), self.recently_stored.rate(now)
        failure = failure or next((each.failure() for each in self._queues if each.failure()), None)
        state = state_of(
            is_open=is_open,
            has_failed=failure is not None,
            is_full=any(queue.writer.is_full for queue in self._queues),
            backlog=total,
            rate=forwarding,
        )
        most = sum(queue.writer.max_bytes for queue in self._queues)
        stored = sum(queue.writer.stored_bytes for queue in self._queues)
        free = [each for queue in self._queues if (each := queue.free_bytes()) is not None]
        return SpoolHealth(
            state=state,
            backlog_bytes=total.bytes_waiting,
            backlog_records=total.records,
            is_estimate=total.is_estimate,
            oldest_age=total.oldest_age,
            forwarding_rate=forwarding,
            storing_rate=storing,
            drain_seconds=drain_seconds(total.records, forwarding, storing),
            blocked_topics=blocked_topics(backlogs),
            dead_letters=round(self.sensors.dead_letters.total),
            quarantined_bytes=sum(queue.quarantined_bytes() for queue in self._queues),
            free_bytes=min(free, default=None),
            full_ratio=stored / most if most else 0.0,
            failure=str(failure) if state is SpoolState.FAILED else None,
        )

    def snapshot(
        self, back: MetricsSnapshot, backlogs: Mapping[str, TopicBacklog], health: SpoolHealth
    ) -> MetricsSnapshot:
        """Return the metrics of the queue, with those of the producer that forwards.

        Args:
            back: The metrics of that producer.
            backlogs: What waits, by topic.
            health: The health.
        """
        self._set_levels(backlogs, health)
        found, histograms = read_spool(self.sensors, self._client_id, self.now())
        every = [metric for metric in back if metric.group != COUNT] + found
        count = float(len(every) + 1)
        tags = {"client-id": self._client_id}
        every.append(
            Metric(COUNT, "count", tags, "The number of metrics", "metrics", MetricKind.GAUGE, count)
        )
        return MetricsSnapshot(every, (*back.histograms, *histograms), back.taken_at_ms)

    def _set_levels(self, backlogs: Mapping[str, TopicBacklog], health: SpoolHealth) -> None:
        self.sensors.levels = {
            "spool-backlog-records": _number(health.backlog_records),
            "spool-backlog-bytes": float(health.backlog_bytes),
            "spool-unread-bytes": float(sum(queue.unread_bytes for queue in self._queues)),
            "spool-oldest-age": _age(combined(backlogs.values())),
            "spool-drain-time": _number(health.drain_seconds),
            "spool-stored-bytes": float(sum(each.stored_bytes for each in backlogs.values())),
            "spool-max-bytes": float(sum(queue.writer.max_bytes for queue in self._queues)),
            "spool-free-bytes": _number(health.free_bytes),
            "spool-quarantined-bytes": float(health.quarantined_bytes),
            "spool-full-wait-total": float(sum(queue.writer.full_waits for queue in self._queues)),
            "spool-blocked-topics": float(len(health.blocked_topics)),
            "spool-takes-records": float(health.takes_records),
        }
        for topic, of_topic in list(self.sensors.topics.items()):
            backlog = backlogs.get(topic) or _NOTHING
            of_topic.levels = {
                "spool-backlog-records": _number(backlog.records),
                "spool-backlog-bytes": float(backlog.bytes_waiting),
                "spool-oldest-age": _age(backlog),
                "spool-stored-bytes": float(backlog.stored_bytes),
                "spool-is-blocked": float(backlog.blocked_by is not None),
            }


_NOTHING: Final = TopicBacklog(0, 0, None)


@final
class _Queue:
    """The measures of one queue."""

    __slots__ = ("_directory", "_owner", "_quarantine", "_quarantined", "_topics", "writer")

    def __init__(self, owner: SpoolMeasures, writer: SpoolWriter, directory: str, quarantine: str) -> None:
        self._owner = owner
        self.writer: SpoolWriter = writer
        self._directory = directory
        self._quarantine = quarantine
        self._quarantined = (0, 0)
        self._topics: dict[str, TopicMeasures] = {}

    def topic(self, topic: str) -> TopicMeasures:
        found = self._topics.get(topic)
        if found is None:
            sizes = self.writer.earlier_sizes(topic)
            count = BacklogCount(
                self.writer.position(topic), self.writer.life_begins_at(topic), sum(sizes.values())
            )
            found = self._topics[topic] = TopicMeasures(self._owner, topic, count, sizes)
        return found

    def written(self, appends: list[Append], sync_times: list[float]) -> None:
        """Record what the writer has stored together."""
        owner = self._owner
        now = owner.now()
        records = 0
        for append in appends:
            if append.may_be_in_log:
                count = read_sealed(append.buffers[0])[1]
                self.topic(append.topic).stored(append, count)
                records += count
        if records:
            owner.sensors.group_size.record(records, now)
        for seconds in sync_times:
            owner.sensors.synced(seconds, now)

    @property
    def unread_bytes(self) -> int:
        return sum(each.count.unread_bytes for each in list(self._topics.values()))

    def failure(self) -> OSError | None:
        """Return why the disk refused the latest records, if that is not long ago."""
        failure = self.writer.failure
        return failure if self.writer.failed_at + _FAILED_FOR > self.writer.now() else None

    def free_bytes(self) -> int | None:
        try:
            status = os.statvfs(self._directory)
        except OSError:
            return None
        return status.f_bavail * status.f_frsize

    def quarantined_bytes(self) -> int:
        """Return the bytes in the quarantine; its files are looked at again when one came or went."""
        try:
            changed_at = os.stat(self._quarantine).st_mtime_ns
            if changed_at != self._quarantined[0]:
                with os.scandir(self._quarantine) as files:
                    size = sum(file.stat().st_size for file in files if file.name.endswith(".bytes"))
                self._quarantined = (changed_at, size)
        except OSError:  # there is none, or a file of it was just removed
            return 0
        return self._quarantined[1]


def _number(value: float | None) -> float:
    return nan if value is None else float(value)


def _age(backlog: TopicBacklog) -> float:
    if backlog.oldest_age is not None:
        return backlog.oldest_age
    return nan if backlog.bytes_waiting else 0.0
