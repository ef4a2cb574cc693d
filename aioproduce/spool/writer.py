"""The thread that writes a spool: group commit for all tasks, one write and one sync for what waits.

`local_broker` submits batches and gets their offsets back; the forwarder moves positions. While the disk syncs, the
next group gathers.

Invariants:

1. Only this thread changes logs. Others read the segments that a log announces.
2. An append is answered once: with its offset after the write, or after the sync if the policy is `always`; with an
   error otherwise. Answers are given in the order of submission.
3. A queue that is full holds the first append back, and all behind it: first come, first served. Positions are
   moved meanwhile, since they make room.
4. A batch that the disk refused is submitted again. Until the sender was told so, everything behind it of the same
   topic is refused, too: records keep their order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from aioproduce.spool.batch_head import first_timestamp, read_sealed
from aioproduce.spool.refusals import Refusals
from aioproduce.spool.topic_log import PossiblyStoredError, TopicLog
from aioproduce.spool.writer_messages import Append, Dropped, QueueIsFullError, Settle
from aioproduce.spool.writer_settings import FullPolicy, SyncPolicy, WriterSettings

if TYPE_CHECKING:
    from aioproduce.spool.disk import Disk
    from aioproduce.spool.segments import Segment

_log = logging.getLogger("aioproduce.spool")

PARTITION_SUFFIX: Final = "-0"
"""What Kafka adds to a topic's name to get its directory; a spool's topics have one partition."""


_SEGMENTS_IN_AGE: Final = 8
"""A segment of a queue with an age limit takes records for this share of it, so the limit is exact to that."""


class SpoolWriter:
    """Writes the logs of one directory.

    Args:
        disk: The disk.
        directory: The directory of all logs; it exists.
        settings: The settings.
        call_in_loop: Calls a callable in the loop's thread, from any thread.

    Attributes:
        on_dropped: Called in the loop after records were dropped; set before the start.
        measure: Called in the loop with appends that are about to be answered, and the seconds of each sync.
        is_full: Whether an append found no room, and none became free since then.
        full_waits: How many appends found no room at once.
        failure: Why the disk refused the latest records; None after it took some.
        failed_at: When, on `time.monotonic()`.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: WriterSettings,
        call_in_loop: Callable[[Callable[[], None]], object],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self.on_dropped: Callable[[Dropped], None] = lambda _: None
        self._clock = _Clock()
        self._expires_at = inf if settings.max_age == inf else self.now()
        # By topic: a time, and the offset before which everything was written by then.
        self._ages: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self._call_in_loop = call_in_loop
        self._condition = threading.Condition()
        self._appends: deque[Append] = deque()
        self._settles: deque[Settle] = deque()
        self._is_closing = False
        self._logs: dict[str, TopicLog] = {}
        self._life_begins_at = 0
        self._stored_bytes = 0  # of all logs: a sum over them at each wake-up would be a pass over all topics
        self._wants_room = False  # an append has found none; settled segments may have some
        self._has_freed = False
        self._refusals = Refusals()
        self._to_sync: set[TopicLog] = set()
        self._synced_at = 0.0
        self._thread = threading.Thread(target=self._run, name="aioproduce spool writer", daemon=True)
        self._ended: Callable[[BaseException | None], None] = lambda _: None
        self._sync_times: list[float] = []
        self.measure: Callable[[list[Append], list[float]], None] = lambda _appends, _times: None
        self.is_full: bool = False
        self.full_waits: int = 0
        self.failure: OSError | None = None
        self.failed_at: float = 0.0

    # -- called in the loop ---

    def open(self) -> tuple[int, int]:
        """Open the logs that are there; it may take a while, so call it in a thread.

        Returns:
            The first offset that no log has used, and the first that may wait in one.

        Raises:
            OSError: if the directory cannot be read.
        """
        for name in self._disk.names(self._directory):
            if name.endswith(PARTITION_SUFFIX):
                self._open(name.removesuffix(PARTITION_SUFFIX))
        begins_at = max((log.life_begins_at for log in self._logs.values()), default=0)
        return begins_at, min(
            (log.position for log in self._logs.values() if log.segments), default=begins_at
        )

    def begin_life(self, begins_at: int) -> None:
        """Store from this offset on, in each log; before the start."""
        self._life_begins_at = begins_at
        for log in self._logs.values():
            log.begin_life_at(begins_at)

    def start(self, ended: Callable[[BaseException | None], None]) -> None:
        """Start the thread.

        Args:
            ended: Called in the loop when the thread has ended, with the reason if it is a bug.
        """
        self._ended = ended
        self._thread.start()

    def submit(self, appends: Iterable[Append]) -> None:
        """Append batches; each is answered."""
        with self._condition:
            self._appends += appends
            self._condition.notify()

    def cancel(self, append: Append) -> None:
        """Do not write a batch that was submitted, if that has not begun; then it is not answered."""
        with self._condition:
            append.is_cancelled = True
            if not append.is_taken:
                append.forget()  # it may be behind one that waits for room, or for a disk that hangs
            while self._appends and self._appends[0].is_cancelled:
                self._appends.popleft()
            self._condition.notify()  # there may be room for the one behind it

    def settle(self, settle: Settle) -> None:
        """Move a position; it is answered."""
        with self._condition:
            self._settles.append(settle)
            self._condition.notify()

    def close(self) -> None:
        """Write what was submitted, seal the logs, end the thread. What finds no room fails at once."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()

    def topics(self) -> list[str]:
        """Return the topics that have a log."""
        return list(self._logs)

    def position(self, topic: str) -> int:
        """Return a log's durable position; the first offset of this process if there is no log."""
        log = self._logs.get(topic)
        return self._life_begins_at if log is None else log.position

    def has_settled(self, topic: str) -> bool:
        """Return whether a log's position was ever moved: records of it were settled."""
        log = self._logs.get(topic)
        return log is not None and log.has_settled

    def directory_of(self, topic: str) -> str:
        """Return the directory of a topic's log."""
        return f"{self._directory}/{topic}{PARTITION_SUFFIX}"

    def life_begins_at(self, topic: str) -> int:
        """Return the first offset of this process: before it is what earlier ones have stored."""
        log = self._logs.get(topic)
        return self._life_begins_at if log is None else log.life_begins_at

    def segments(self, topic: str) -> list[Segment]:
        """Return a log's segments."""
        log = self._logs.get(topic)
        return [] if log is None else log.snapshot()

    def stored_bytes_of(self, topic: str) -> int:
        """Return the bytes of a topic's log."""
        log = self._logs.get(topic)
        return 0 if log is None else log.stored_bytes

    def rescues(self, topic: str) -> int:
        """Return how often batches have moved to another segment, times two; odd while they do."""
        log = self._logs.get(topic)
        return 0 if log is None else log.rescues

    def dropped_to(self, topic: str) -> int:
        """Return the offset behind the last dropped record of a topic."""
        log = self._logs.get(topic)
        return 0 if log is None else log.dropped_to

    @property
    def stored_bytes(self) -> int:
        """The bytes of all logs."""
        return self._stored_bytes

    @property
    def max_bytes(self) -> int:
        """The most bytes of all logs."""
        return self._settings.max_bytes

    def earlier_sizes(self, topic: str) -> dict[int, int]:
        """Return the bytes of the files that earlier processes left of a topic, by base offset."""
        log = self._logs.get(topic)
        return {} if log is None else log.earlier_sizes()

    # -- the thread ---

    def _run(self) -> None:
        reason: BaseException | None = None
        try:
            while self._turn():
                pass
            self._close_logs()
        except BaseException as error:
            reason = error
        with suppress(RuntimeError):  # the loop was closed before the producer was: nobody is left to be told
            self._call_in_loop(partial(self._ended, reason))

    def _turn(self) -> bool:
        """Do what waits; return false after the last turn."""
        settles, appends, is_last = self._wait()
        for settle in settles:
            self._call_in_loop(partial(settle.answer, self._settle(settle)))
        if appends:
            self._append(appends)
            self._report(appends)
        if self._wants_room:
            self._drop_settled()
        if self._to_sync and self.now() >= self._synced_at + self._settings.sync_interval:
            self._sync_late()
            self._report([])
        if self.now() >= self._expires_at:
            self._expire()
        return not is_last

    def _report(self, appends: list[Append]) -> None:
        """Answer appends, and pass on what was measured."""
        sync_times, self._sync_times = self._sync_times, []
        self._call_in_loop(partial(self._answer, appends, sync_times))

    def _answer(self, appends: list[Append], sync_times: list[float]) -> None:
        self.measure(appends, sync_times)  # first: an answer may run the task that sent, at once
        for append in appends:
            append.answer(append)

    def _wait(self) -> tuple[list[Settle], list[Append], bool]:
        """Wait for work; return the positions to move, the appends that go on, and whether these are the last."""
        with self._condition:
            while True:
                settles = list(self._settles)
                self._settles.clear()
                appends = self._take()
                is_last = self._is_closing and not self._appends
                if settles or appends or is_last or self._wants_room:
                    return settles, appends, is_last
                at = self._wakes_at()
                if at <= (now := self.now()):
                    return [], [], False
                self._condition.wait(None if at == inf else min(at - now, threading.TIMEOUT_MAX))

    def _wakes_at(self) -> float:
        """Return when there is something to do without a call."""
        sync_at = self._synced_at + self._settings.sync_interval if self._to_sync else inf
        return min(sync_at, self._expires_at, self._appends[0].deadline if self._appends else inf)

    def _take(self) -> list[Append]:
        """Take the appends that have room, and those that wait no longer.

        One that finds no room asks for it first: to free some takes system calls, and the loop waits for the lock
        that is held here.
        """
        taken: list[Append] = []
        has_asked, self._has_freed = self._has_freed, False
        stored = self._stored_bytes
        waits = self._settings.when_full is FullPolicy.BLOCK and not self._is_closing
        drops = self._settings.when_full is FullPolicy.DROP_OLDEST
        now = self.now()
        has_room = False
        while self._appends:
            append = self._appends[0]
            if append.is_cancelled:
                self._appends.popleft()
                continue
            has_room = stored + append.size <= self._settings.max_bytes or not stored
            if not (has_room or has_asked or append.has_waited):
                self._wants_room = True
                break
            if has_room or drops:
                stored += append.size
            else:
                self._found_full(append)
                if waits and now < append.deadline:
                    break
                append.error = QueueIsFullError()
            append.is_taken = True
            taken.append(self._appends.popleft())
        if has_room:
            self.is_full = False
        return taken

    def _drop_settled(self) -> None:
        """Drop settled segments that are still written to: perhaps no position moves that would drop them."""
        self._wants_room, self._has_freed = False, True
        for topic, log in self._logs.items():
            stored = log.stored_bytes
            try:
                log.drop_active()
            except OSError as error:
                _log.error("the spool cannot drop what is forwarded of %s: %s", topic, error)
            self._stored_bytes += log.stored_bytes - stored

    def _found_full(self, append: Append) -> None:
        self.is_full = True
        if not append.has_waited:
            append.has_waited = True
            self.full_waits += 1

    def _append(self, appends: list[Append]) -> None:
        by_topic: dict[str, list[Append]] = {}
        for append in appends:
            if append.error is None:
                by_topic.setdefault(append.topic, []).append(append)
        for topic, every in by_topic.items():
            group = self._refusals.admit(topic, every)
            if not group:
                continue
            try:
                log = self._open(topic)
                if self._settings.when_full is FullPolicy.DROP_OLDEST:
                    self._make_room(sum(append.size for append in group))
                self._append_group(log, group)
            except OSError as error:
                for append in group:
                    if append.offset < 0 and append.error is None:
                        append.error = error
                self._refusals.refuse(topic, group, error)
                self._has_failed(error)
                _log.error("the spool cannot store records of %s: %s", topic, error)
            else:
                if self._settings.sync is not SyncPolicy.INTERVAL and group[-1].error is None:
                    self.failure = None

    def _append_group(self, log: TopicLog, group: list[Append]) -> None:
        done = 0
        before = log.stored_bytes
        try:
            while done < len(group):
                rest = group[done:]
                offset = log.next_offset
                count = log.append([append.buffers for append in rest], [append.at_least for append in rest])
                for append in rest[:count]:
                    append.offset = max(offset, append.at_least)
                    offset = append.end_offset = append.offset + read_sealed(append.buffers[0])[1]
                    append.first_timestamp = first_timestamp(append.buffers[0])
                done += count
        finally:
            self._stored_bytes += log.stored_bytes - before
            if self._settings.sync is SyncPolicy.ALWAYS:
                self._sync(log, group[:done])
            elif self._settings.sync is SyncPolicy.INTERVAL:
                if not self._to_sync:
                    self._synced_at = self.now()
                self._to_sync.add(log)

    def _has_failed(self, error: OSError) -> None:
        self.failure, self.failed_at = error, self.now()

    def _sync(self, log: TopicLog, group: list[Append]) -> None:
        began_at = self.now()
        try:
            log.sync()
            self._sync_times.append(self.now() - began_at)
        except OSError as error:
            self._has_failed(error)
            failure = PossiblyStoredError(error.errno, error.strerror)
            failure.__cause__ = error
            for append in group:
                append.offset, append.error = -1, failure
            _log.error("the spool cannot make records durable: %s", error)

    def _sync_late(self) -> None:
        logs, self._to_sync = self._to_sync, set()
        self._synced_at = self.now()
        self.failure = None
        for log in logs:
            self._sync(log, [])

    def _settle(self, settle: Settle) -> OSError | None:
        log = self._logs.get(settle.topic)
        if log is None:  # in direct mode nothing of the topic was written
            return None
        before = log.stored_bytes
        try:
            log.settle(settle.position, is_settled=settle.is_settled)
            if self._appends:
                log.drop_active()
        except OSError as error:
            _log.error("the spool cannot move its position in %s: %s", settle.topic, error)
            return error
        finally:
            self._stored_bytes += log.stored_bytes - before
            if log.stored_bytes < before:
                self.is_full = False
        return None

    # -- drop ---

    def _make_room(self, size: int) -> None:
        """Drop the oldest segments until there is room for this many bytes, or nothing is left."""
        while self._stored_bytes and self._stored_bytes + size > self._settings.max_bytes:
            topic = min(self._logs, key=lambda each: self._logs[each].oldest_written_at())
            if not self._drop_from(topic, f"the queue had its {self._settings.max_bytes} bytes"):
                return

    def _expire(self) -> None:
        """Drop segments that are too old, and end the active ones, so that each has a short span of time."""
        share = self._settings.max_age / _SEGMENTS_IN_AGE
        self._expires_at = self.now() + share
        reason = f"it was older than {self._settings.max_age:g} s"
        for topic, log in self._logs.items():
            try:
                while self._is_old(topic, log) and self._drop_from(topic, reason):
                    pass
                log.seal()
            except OSError as error:
                _log.error("the spool cannot look for old records of %s: %s", topic, error)
            ages = self._ages[topic]
            if not ages or ages[-1][1] < log.next_offset:  # an earlier time is right for the same offset
                ages.append((self.now(), log.next_offset))

    def _is_old(self, topic: str, log: TopicLog) -> bool:
        """Return whether a topic's oldest segment is too old, by its file's time or by this process's own clock.

        The file's time is of no use if the clock was wrong when it was written, or is corrected since then.
        """
        if not log.stored_bytes:
            return False
        ages = self._ages[topic]
        until = self.now() - self._settings.max_age
        while len(ages) > 1 and ages[1][0] <= until:
            ages.popleft()
        if ages and ages[0][0] <= until and log.oldest_ends_at <= ages[0][1]:
            return True
        return log.oldest_written_at() <= self._clock.wall() - self._settings.max_age

    def _drop_from(self, topic: str, reason: str) -> bool:
        """Drop a topic's oldest segment; return whether that has made room."""
        log = self._logs[topic]
        before = log.stored_bytes
        try:
            first, end, count = log.drop_oldest()
        except OSError as error:
            _log.error("the spool cannot drop the oldest records of %s: %s", topic, error)
            return False
        try:
            log.remove_settled()
        except OSError as error:
            _log.error("the spool cannot remove a file of %s, which the next start does: %s", topic, error)
        size = before - log.stored_bytes
        self._stored_bytes -= size
        if count:
            self._call_in_loop(partial(self.on_dropped, Dropped(topic, first, end, count, size, reason)))
        return True

    def _open(self, topic: str) -> TopicLog:
        log = self._logs.get(topic)
        if log is None:
            log = self._logs[topic] = TopicLog(
                self._disk,
                self.directory_of(topic),
                self._settings.segment_bytes,
                keeps=self._settings.sync is SyncPolicy.ALWAYS,
            )
            log.begin_life_at(max(log.life_begins_at, self._life_begins_at))
            self._stored_bytes += log.stored_bytes
        return log

    def _close_logs(self) -> None:
        for log in self._logs.values():
            try:
                log.close()
            except OSError as error:
                _log.error("the spool cannot seal a log: %s", error)

    @staticmethod
    def now() -> float:
        """Return the time on the clock of deadlines and failures."""
        return time.monotonic()


class _Clock:
    """The wall clock, without its jumps: records that are not old must not be dropped after one."""

    __slots__ = ("_monotonic", "_wall")

    def __init__(self) -> None:
        self._wall = time.time()
        self._monotonic = time.monotonic()

    def wall(self) -> float:
        """Return seconds since the epoch: the earlier of the clock, and of what it was plus the time since then.

        After a jump forward the second is right for older files. After a jump back, new files have the clock's
        time.
        """
        return min(time.time(), self._wall + time.monotonic() - self._monotonic)
