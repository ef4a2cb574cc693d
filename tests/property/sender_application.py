"""What sits above the core in `test_sender`: records, waits for memory, flushes, and what each of them is promised.

1. A record is settled once, at its deadline at the latest (the harness counts the callbacks).
2. A flush is told once: not before every record that was accepted before it is settled; and at once when the
   batches are that existed then, with what came into the open ones since.
3. A wait for memory ends by a grant, by its own giving up, or by the producer's closing; never by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import ProducerClosedError
from aioproduce.records import TopicPartition
from tests.unit.sender_harness import Record

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.core.batching.buffer_pool import BufferLease, BufferWaiter
    from aioproduce.core.cluster.cluster_metadata import TopicView
    from tests.unit.sender_harness import SenderHarness


@dataclass(eq=False)
class Flush:
    """One call of flush: the records that were pending, and the ids of their batches."""

    records: list[Record]
    batches: set[int]
    told: int = 0


@dataclass(eq=False)
class MemoryWait:
    """A `send()` that waits for memory."""

    waiter: BufferWaiter
    view: TopicView
    place: TopicPartition
    value: bytes
    wakes: list[None] = field(default_factory=list)


class Application:
    """One user of a Sender.

    Args:
        harness: The Sender and its brokers.
        places: The partitions that it writes to.
    """

    def __init__(self, harness: SenderHarness, places: list[TopicPartition]) -> None:
        self.h = harness
        self.accepted: dict[TopicPartition, list[tuple[bytes, Record]]] = {place: [] for place in places}
        self.waits: list[MemoryWait] = []
        self.flushes: list[Flush] = []
        self._numbers = 0

    # -- records ---

    def send(
        self,
        place: TopicPartition,
        text: bytes = b"",
        *,
        key: bytes | None = None,
        is_chained: bool = False,
    ) -> Record | None:
        """Accept one record, or begin to wait for memory; none where the topic is not known at present.

        Args:
            place: Where to.
            text: What makes the value long.
            key: The record's key: the partition, of the same topic, is the partitioner's choice then.
            is_chained: Whether its delivery callback sends another one.
        """
        if self.h.sender.metadata.topic(place.topic) is None:
            self.h.want(place.topic)
            return None
        value = b"%d" % self._numbers + text
        self._numbers += 1
        if not self.has_room:
            self._wait(place, value)
            return None
        record = self.h.append(place.partition if key is None else None, value, topic=place.topic, key=key)
        assert key is not None or record.delivery.partition == place.partition
        self._accepted(record, TopicPartition(place.topic, record.delivery.partition), value)
        if is_chained:
            record.delivery._add_delivery_callback(lambda metadata, error: self._send_next(place))
        return record

    def _send_next(self, place: TopicPartition) -> None:
        if self.h.sender.is_accepting:
            self.send(place, b" chained")

    def _accepted(self, record: Record, place: TopicPartition, value: bytes) -> None:
        self.accepted[place].append((value, record))

    # -- memory ---

    @property
    def has_room(self) -> bool:
        """Whether a record can be accepted without waiting; else nobody goes ahead of those who wait."""
        pool = self.h.sender.pool
        return not pool.waiting and not pool.reserved and pool.available >= self.h.config.batch_size

    def _wait(self, place: TopicPartition, value: bytes) -> None:
        wakes: list[None] = []
        waiter = self.h.sender.pool.enqueue(self.h.config.batch_size, lambda: wakes.append(None))
        view = self.h.sender.metadata.topic(place.topic)
        assert view is not None
        self.waits.append(MemoryWait(waiter, view, place, value, wakes))
        self.h.sender.memory_exhausted(self.h.now)

    def end_wait(self, choice: int, *, may_give_up: bool) -> None:
        """A woken sender continues, perhaps late; or a waiting one gives up."""
        wait = self.waits[choice % len(self.waits)]
        pool = self.h.sender.pool
        if wait.waiter.is_granted and not may_give_up:
            self.waits.remove(wait)
            assert len(wait.wakes) == 1
            lease = pool.claim(wait.waiter)
            self._append_with(lease, wait)
        elif wait.waiter.is_closed:
            self.waits.remove(wait)
            with pytest.raises(ProducerClosedError):
                pool.claim(wait.waiter)
        elif may_give_up:
            self.waits.remove(wait)
            pool.abandon(wait.waiter)

    def _append_with(self, lease: BufferLease, wait: MemoryWait) -> None:
        h = self.h
        delivery: DeliveryFuture = h.sender.accumulator.append_with(
            lease,
            wait.view,
            SerializedRecord(wait.view.name, None, wait.value, None, wait.place.partition, 0),
            h.now,
        )
        record = Record(delivery, h.now)
        delivery._add_delivery_callback(lambda metadata, error: h._settled(record, metadata, error))
        h.records.append(record)
        self._accepted(record, wait.place, wait.value)

    def end_waits(self) -> None:
        """All who were woken go on."""
        while any(wait.waiter.is_granted or wait.waiter.is_closed for wait in self.waits):
            for wait in list(self.waits):
                if wait.waiter.is_granted or wait.waiter.is_closed:
                    self.end_wait(self.waits.index(wait), may_give_up=False)
            self.h.run()

    # -- flushes ---

    def flush(self) -> None:
        """Begin one."""
        flush = Flush(
            [record for record in self.h.records if not record.delivery.done()], self._pending_batches()
        )
        self.flushes.append(flush)
        self.h.sender.begin_flush(lambda: self._flushed(flush), self.h.now)

    def _flushed(self, flush: Flush) -> None:
        flush.told += 1
        assert all(record.delivery.done() for record in flush.records)

    def check_flushes(self) -> None:
        """Who waits for nothing any more has been told; nobody was told twice."""
        pending = self._pending_batches()
        for flush in self.flushes:
            assert flush.told == flush.batches.isdisjoint(pending)

    def _pending_batches(self) -> set[int]:
        return {batch.batch_id for batch in self.h.sender.accumulator.incomplete}

    def check_all_is_over(self) -> None:
        """Everything that was promised was kept."""
        assert all(len(record.outcomes) == 1 for record in self.h.records)
        assert all(flush.told == 1 for flush in self.flushes)
