# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The path of a record from a sending thread to the loop thread: every record of `BlockingProducer` pays for it.

`BlockingPath` is the base of the BlockingProducer. Its `send()` puts a record into the `HandOver`. If something
must be decided or awaited, it calls the BlockingProducer's own method instead. The loop thread removes all queued
records at once and puts them into batches.

Invariants:

1. Compiled, no method here lets another thread run between its steps: none runs Python code, except the call that
   wakes the loop thread, which comes last. So the global interpreter lock is the only lock. Interpreted, there is
   a lock of its own.
2. The queued records use at most `limit` bytes, as `cost_of()` counts them. A record that is larger than that
   enters only an empty queue.
3. Records leave in the order in which they came. While threads wait in line for room, no other record enters.
4. The first record in an empty queue wakes the loop thread, once. The loop thread empties the queue before it
   sleeps.
5. A shut hand-over accepts no record. The loop thread settles the records that are queued.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce._native.blocking_delivery import BlockingDelivery
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.blocking_delivery import new_delivery

    monotonic = time.monotonic
    wall_time = time.time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioproduce._native.delivery import DeliveryCallback, DeliveryFuture
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.records import Headers, ProducerRecord

# Bytes of an entry without its key and value: the delivery, and the overhead of malloc and the list.
_ENTRY: Final = 160
_MAX_TIMESTAMP: Final = 2**63 - 1

# The number of forks above this process: a path that the parent opened is not open in a child.
_forks: cython.longlong = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class HandOver:
    """The queue of records that threads have sent and the loop thread has not put into batches yet.

    Args:
        appenders: The open batches by topic; the accumulator's own dictionary. Threads look up there whether a
            topic is known.
        wake: Wakes the loop thread to empty the queue; called from any thread.
        wake_to_answer: Wakes the loop thread to look at the questions.
        raise_forked: Raises the error for a child process.
        check_may_wait: Raises the error for a call that would wait in the loop thread.
        limit: The most bytes of queued records.
        largest: The most bytes of key and value that need no check against the size limits.
        is_plain: Whether keys and values are bytes already, and no interceptor sees the records.

    Attributes:
        is_open: Whether records are accepted.
        has_line: Whether threads wait in line; the owner of the line sets it.
        sent: The number of records that were queued.
        waiting_bytes: Bytes of the queued records, as `cost_of()` counts them.
    """

    def __init__(
        self,
        appenders: dict[str, TopicAppender],
        wake: Callable[[], object],
        wake_to_answer: Callable[[], object],
        raise_forked: Callable[[], NoReturn],
        check_may_wait: Callable[[str], None],
        *,
        limit: int,
        largest: int,
        is_plain: bool,
    ) -> None:
        self._appenders = appenders
        self._wake = wake
        self._wake_to_answer = wake_to_answer
        self.raise_forked = raise_forked
        self.check_may_wait = check_may_wait
        self._entries: list[BlockingDelivery] = []
        self._questions: list[BlockingDelivery] = []
        if not cython.compiled:
            self._lock = threading.RLock()
        self.waiting_bytes: int = 0
        self._limit = limit
        self._largest = largest
        self.sent: int = 0
        self._forks = _forks
        self._clock_offset = wall_time() - monotonic()
        self.is_open: bool = True
        self._is_plain = is_plain
        self._is_told = False
        self._is_asked = False
        self._is_ended = False
        self.has_line = False

    # -- as the owner of deliveries ---

    def is_forked(self) -> bool:
        """Return whether this process is a child of the process that made this object."""
        return self._forks != _forks

    def ask(self, delivery: BlockingDelivery) -> None:
        """Ask the loop thread to notify the waiters of a delivery; after the loop thread's end, do it here."""
        if not self._ask(delivery):
            delivery._heed_watch()
        elif not self._is_asked:
            self._is_asked = True
            self._call(self._wake_to_answer)

    def _ask(self, delivery: BlockingDelivery) -> cython.bint:
        if self._is_ended:
            return False
        self._questions.append(delivery)
        return True

    # -- in the threads that send ---

    def knows(self, topic: str, partition: int | None) -> bool:
        """Return whether the topic and the partition are known now."""
        appender: TopicAppender | None = self._appenders.get(topic)
        return appender is not None and (partition is None or 0 <= partition < appender._partition_count)

    def put(self, delivery: BlockingDelivery, *, is_first: bool = False) -> bool:
        """Queue a record, if there is room and no thread waits in line, or this thread is the first of the line.

        Returns:
            Whether the record is queued.
        """
        is_in: bool = self._put(delivery, is_first)
        if is_in:
            self.tell()
        return is_in

    def tell(self) -> None:
        """Wake the loop thread, unless it was woken since it last emptied the queue."""
        if not self._is_told:
            self._is_told = True
            self._call(self._wake)

    def _call(self, wake: Any) -> None:
        try:
            wake()
        except RuntimeError:
            # The loop is closed. The queue was shut and emptied before that, so nothing is lost.
            if not self._is_ended:
                raise

    def _put(self, delivery: BlockingDelivery, is_first: cython.bint) -> cython.bint:
        if not self.is_open or (self.has_line and not is_first):
            return False
        cost: cython.longlong = cost_of(delivery)
        if self.waiting_bytes + cost > self._limit and self.waiting_bytes > 0:
            return False
        delivery._handed_at = monotonic()
        if not self._is_told:
            self._clock_offset = wall_time() - delivery._handed_at
        if delivery._timestamp < 0:
            delivery._timestamp = int((delivery._handed_at + self._clock_offset) * 1000.0)
        self._entries.append(delivery)
        self.waiting_bytes += cost
        self.sent += 1
        return True

    # -- in the loop thread ---

    def take(self) -> list[BlockingDelivery]:
        """Remove and return all queued records. The next record wakes the loop thread again."""
        taken = self._entries
        self._entries = []
        self._is_told = False
        return taken

    def take_questions(self) -> list[BlockingDelivery]:
        """Remove and return the deliveries that `ask()` queued."""
        taken = self._questions
        self._questions = []
        self._is_asked = False
        return taken

    def accept(self, entries: list[BlockingDelivery], start: int, stop: int, held: dict[str, Any]) -> int:
        """Append records to open batches.

        Args:
            entries: The result of `take()`.
            start: The index of the first record.
            stop: The index after the last record.
            held: Topics with waiting records, which no later record may overtake.

        Returns:
            The index after the last appended record: `stop`, or the first record that needs a decision.
        """
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t = start
        end: cython.Py_ssize_t = stop
        freed: cython.longlong = 0
        is_held: cython.bint = len(held) > 0
        for at in range(first, end):
            entry: BlockingDelivery = entries[at]
            appender: TopicAppender | None = self._appenders.get(entry.topic)
            if appender is None or (is_held and entry.topic in held):
                end = at
                break
            delivery: DeliveryFuture | None = appender.append(
                entry._partition, entry._timestamp, entry._key, entry._value, entry._headers
            )
            if delivery is None:
                end = at
                break
            freed += cost_of(entry)
            entry._accept(delivery)
        self._free(freed)
        return end

    def left(self, entry: BlockingDelivery) -> None:
        """Free the bytes of a record that left without `accept()`; it still has its key and value."""
        self._free(cost_of(entry))

    def _free(self, count: cython.longlong) -> None:
        self.waiting_bytes -= count

    @property
    def is_half_empty(self) -> bool:
        """Whether there is enough room to wake the threads in line."""
        return self.waiting_bytes * 2 <= self._limit

    def shut(self) -> None:
        """Accept no record from now on."""
        self.is_open = False

    def end(self) -> list[BlockingDelivery]:
        """Accept no question from now on: the loop thread ends, and every batch is settled.

        Returns:
            The unanswered questions.
        """
        self.is_open = False
        self._is_ended = True
        return self.take_questions()


if not cython.compiled:
    # A lock for invariant 1. It is reentrant, because a signal handler may call `send()` within a `send()`.
    def _locked(method: Any) -> Any:
        @functools.wraps(method)
        def locked(self: HandOver, *arguments: Any) -> Any:
            with self._lock:
                return method(self, *arguments)

        return locked

    for _name in ("_ask", "_put", "take", "take_questions", "_free", "shut", "end"):
        setattr(HandOver, _name, _locked(getattr(HandOver, _name)))


def cost_of(entry: BlockingDelivery) -> cython.longlong:
    """Return the bytes that a queued record counts for."""
    cost: cython.longlong = _ENTRY
    if entry._key_size > 0:
        cost += entry._key_size
    if entry._value_size > 0:
        cost += entry._value_size
    return cost


class BlockingPath:
    """The base of the BlockingProducer: queues the records that need no decision."""

    def __init__(self) -> None:
        self._hand_over: HandOver | None = None

    def _open_path(self, hand_over: HandOver) -> None:
        """Queue records from now on."""
        self._hand_over = hand_over

    def _shut_path(self) -> None:
        """Queue no record on the short path from now on."""
        self._hand_over = None

    @cython.annotation_typing(False)
    def send(
        self,
        topic: str | ProducerRecord,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> BlockingDelivery:
        """Queue one record. Wait until its topic is known and the buffer has room for it.

        Args:
            topic: The topic, or a whole ProducerRecord.
            value: Bytes, `None` (a tombstone), or an object that the value serializer accepts. A call without a
                value sends a tombstone if it has a key, and is refused otherwise.
            key: Bytes, `None`, or an object that the key serializer accepts. Records with the same key go to the
                same partition, in order.
            partition: The partition; `None` lets the partitioner choose.
            timestamp: Milliseconds since the epoch or an aware datetime; `None` means now.
            headers: `(name, value)` pairs.
            timeout: The most seconds to wait, if less than `max.block.ms`. It bounds this call only.
                `delivery.timeout.ms` bounds the delivery of the record.
            on_delivery: Called once in the loop thread, with `(metadata, None)` on success and with
                `(metadata with offset -1, error)` on failure. An error that it raises is logged.

        Returns:
            The record's future. Any thread can use it.

        Raises:
            InvalidRecordError: if this record can never be sent.
            MaxBlockTimeoutError: if the wait for the topic or the buffer was too long.
            TopicAuthorizationError: if the cluster denies the topic.
            ProducerStateError: if the producer is not started, closed or forked, or if the call would wait in the
                loop thread.

        Example:
            >>> delivery = producer.send("orders", b"42", key=b"customer-7")
        """
        delivery: BlockingDelivery | None = self._taken(
            topic, value, key, partition, timestamp, headers, on_delivery
        )
        if delivery is None:
            return self._send_slowly(topic, value, key, partition, timestamp, headers, timeout, on_delivery)
        return delivery

    def _send_slowly(self, *record: Any, **_named: Any) -> BlockingDelivery:
        """Send on the long path, with all arguments of `send()`; the BlockingProducer implements it."""
        raise NotImplementedError

    def _taken(  # noqa: C901  # one function, with every test
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        timestamp: object,
        headers: object,
        on_delivery: object,
    ) -> BlockingDelivery | None:
        """Queue the record; return None, and change nothing, if it needs the long path."""
        hand_over: HandOver | None = self._hand_over
        delivery: BlockingDelivery
        number: cython.longlong = NO_PARTITION
        milliseconds: cython.longlong = -1
        size: cython.longlong = 0
        if hand_over is None or hand_over._forks != _forks or not hand_over._is_plain:
            return None
        if headers is not None or type(topic) is not str:
            return None
        if value is not None:
            if type(value) is bytes:
                size += len(value)
            elif value is NOT_GIVEN and key is not None:
                value = None  # a tombstone: it has a key
            else:
                return None
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(key)
        if size > hand_over._largest:
            return None
        if timestamp is not None:
            if type(timestamp) is not int or not 0 <= timestamp <= _MAX_TIMESTAMP:
                return None
            milliseconds = timestamp
        appender: TopicAppender | None = hand_over._appenders.get(topic)
        if appender is None:
            return None
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < appender._partition_count:
                return None
            number = partition
        delivery = new_delivery(hand_over, topic, key, value, None, number, milliseconds, on_delivery)
        if cython.compiled:
            if not hand_over._put(delivery, False):
                return None
            if not hand_over._is_told:
                hand_over.tell()
        elif not hand_over.put(delivery):
            return None
        return delivery
