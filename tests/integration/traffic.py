"""Records on their way while something happens to the brokers, and the judgement of what became of them.

Used by the integration tests of the producer. Every value tells the record's number in send order, so a log that
somebody else read back says by itself what is lost, duplicated or out of order (the oracle of the fault tests:
L, A, D, O and X).

1. The number of a record is its place in send order; its key, where it has one, is that number modulo ``keys``.
   Before the number stands the name of the traffic, so that several can share a topic.
2. An outcome is taken from ``on_delivery``. No outcome at all, and a second one, fail the test at the end.
3. Nothing here waits for time to pass but the pace of the traffic itself: what a test waits for is
   acknowledgements, ``await traffic.acknowledged(100)``.
4. Every outcome must be there by delivery.timeout.ms; ``settle()`` gives a busy machine ``PATIENCE`` more.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from aioproduce import Producer, RecordMetadata
    from tests.kafka_tools import ConsumedRecord

# Some 1,500 records a second: several batches in flight at any moment, and a log that is quickly read back.
BURST = 15
PAUSE = 0.01
# Beyond delivery.timeout.ms: for a machine that is busy with three brokers, not for the producer.
PATIENCE = 60.0


class LogRecord(Protocol):
    """A record as somebody read it back: Kafka's console consumer, or `FakeCluster.records()`."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


@dataclass(slots=True)
class Verdict:
    """What is wrong with a log, by the numbers of the records; nothing, if all are empty.

    Attributes:
        lost: Acknowledged, and not in the log.
        misplaced: Acknowledged at an offset at which the log has something else.
        unplaced: Acknowledged without an offset.
        duplicated: More than once in the log.
        disordered: Behind a record of their partition that was sent later. A repetition is none if it repeats,
            from some record on and to its end, what the log held: a batch that was retried at once.
        undead: In the log, although they were reported as certainly not written.
        foreign: In the log, and never sent.
    """

    lost: list[int] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    unplaced: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    undead: list[int] = field(default_factory=list)
    foreign: list[bytes | None] = field(default_factory=list)


class _Order:
    """Whether the numbers of one partition rise, but for repetitions of what came last."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._places: dict[int, int] = {}
        self._next = 0

    def takes(self, number: int) -> bool:
        """Take the next number of the log; says whether it is in its place."""
        place = self._places.get(number)
        if place is None:
            is_in_place = self._next == len(self._numbers) and number > (self._numbers or [-1])[-1]
            self._places[number] = len(self._numbers)
            self._numbers.append(number)
            self._next = len(self._numbers)
            return is_in_place
        # A repetition begins behind all that is there, and then goes on to its end.
        is_in_place = self._next in (place, len(self._numbers))
        self._next = place + 1
        return is_in_place


class Traffic:
    """Sends numbered records until its block ends, whatever happens meanwhile; then all have their outcome.

    Without the block it sends what ``send()`` is told to, and ``settle()`` ends it.

    Args:
        producer: A running producer.
        topic: The topic.
        keys: How many different keys; 0 for records without.
        name: The first word of every value; without blanks.
    """

    def __init__(self, producer: Producer, topic: str, *, keys: int = 20, name: str = "record") -> None:
        self.producer = producer
        self._topic = topic
        self._keys = keys
        self._name = name.encode()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []
        self.sent = 0
        self.acked: dict[int, RecordMetadata] = {}
        self.failed: dict[int, BaseException] = {}
        self._settled_again: list[int] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"traffic to {self._topic}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._stopping.set()
        if kind is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            return
        await self._task
        await self.settle()

    async def settle(self) -> None:
        """Flush, and check that every record has got exactly one outcome, in time, and all memory is back."""
        await self.producer.flush(self.producer.config.delivery_timeout + PATIENCE)
        assert len(self.acked) + len(self.failed) == self.sent
        assert self._settled_again == []
        assert self.producer.outstanding_bytes == 0

    async def send(self, count: int, *, size: int = 0) -> None:
        """Send the next records, each value filled up to ``size`` bytes, without waiting for their outcome."""
        for _ in range(count):
            number = self.sent
            key = b"key-%d" % (number % self._keys) if self._keys else None
            value = b"%s %d " % (self._name, number)
            await self.producer.send(
                self._topic,
                value.ljust(size, b"."),
                key,
                on_delivery=functools.partial(self._settled, number),
            )
            self.sent += 1

    async def acknowledged(self, count: int) -> None:
        """Wait until so many records more than now are acknowledged."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((len(self.acked) + count, watcher))
        assert self._task is not None
        # A traffic that died would acknowledge nothing more: its error is the test's.
        await asyncio.wait([watcher, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not watcher.done():
            await self._task
            raise AssertionError("the traffic ended before that many records were acknowledged")

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self.send(BURST)
            await asyncio.sleep(PAUSE)

    def _settled(self, number: int, metadata: RecordMetadata, error: BaseException | None) -> None:
        if number in self.acked or number in self.failed:
            self._settled_again.append(number)  # an assertion would be logged by the producer, and pass
            return
        if error is not None:
            self.failed[number] = error
            return
        self.acked[number] = metadata
        for target, watcher in self._watchers:
            if len(self.acked) >= target and not watcher.done():
                watcher.set_result(None)
        self._watchers = [watched for watched in self._watchers if not watched[1].done()]

    def judge(self, records: Iterable[LogRecord]) -> Verdict:
        """Compare the outcomes with a log of this traffic alone; each partition's records are in order."""
        verdict = Verdict()
        places: dict[int, list[tuple[int, int]]] = {}
        orders: dict[int, _Order] = {}
        for record in records:
            number = self._number(record.value)
            if not 0 <= number < self.sent:
                verdict.foreign.append(record.value)
                continue
            if number in places:
                verdict.duplicated.append(number)
            if not orders.setdefault(record.partition, _Order()).takes(number):
                verdict.disordered.append(number)
            places.setdefault(number, []).append((record.partition, record.offset))
        for number, metadata in self.acked.items():
            if number not in places:
                verdict.lost.append(number)
            elif metadata.offset < 0:
                verdict.unplaced.append(number)
            elif (metadata.partition, metadata.offset) not in places[number]:
                verdict.misplaced.append(number)
        for number, error in self.failed.items():
            if isinstance(error, DeliveryError) and not error.possibly_written and number in places:
                verdict.undead.append(number)
        return verdict

    def highest_offset(self, partition: int) -> int:
        """The highest acknowledged offset of a partition, -1 without one."""
        offsets = (told.offset for told in self.acked.values() if told.partition == partition)
        return max(offsets, default=-1)

    def errors(self) -> Sequence[str]:
        """The different errors, for an assertion that there are none."""
        return sorted({f"{type(error).__name__}: {error}" for error in self.failed.values()})

    def _number(self, value: bytes | None) -> int:
        """The number in a value; -1 if it is none of this traffic's."""
        name, number, _ = (b"" if value is None else value).split(b" ", 2)
        return int(number) if name == self._name else -1


def by_name(records: Iterable[ConsumedRecord]) -> dict[str, list[ConsumedRecord]]:
    """The records of several traffics in one topic, each by the first word of its value."""
    found: dict[str, list[ConsumedRecord]] = {}
    for record in records:
        assert record.value is not None
        found.setdefault(record.value.split()[0].decode(), []).append(record)
    return found
