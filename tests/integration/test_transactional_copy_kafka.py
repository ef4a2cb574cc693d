"""100,000 records through `examples/transactional_copy.py`, while brokers and copiers are killed: exactly once.

Three brokers (three replicas, two in sync), which are killed and bounced one after another. Two copiers in one
group, killed six times (SIGKILL): partitions go from one to the other and back. Records keep their partition, as
they keep their key. So at the end each partition of the target is that of the source, record by record and in
order, and the group's offsets are the ends of the source.

1. Nothing happens after a time, everything at a count: a watcher reads the target, open transactions too, and the
   next event comes when it has seen so many records. A kill follows a read at once, so it meets open transactions.
2. Waits are bounded by counts: so many looks of the watcher in a row that find nothing new, so many restarts.
3. The verdict is that of confluent-kafka's consumer with `read_committed`, up to the high watermark.

The control is aiokafka's own pair in the same plan: its consumer starts below transactions that are still open.
Five runs with 100,000 records each on two busy cores: 81 to 125 s, 145 to 150 transactions, 2,250 to 4,500 aborted
records in the log, no record twice, none missing, all in order.

`AIOPRODUCE_COPY_RECORDS=10000 pytest -s` is a quick try, and shows the progress and a line of figures.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from aioproduce import Producer
from tests.integration.test_transactions_kafka import END_OF_PARTITION
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.kafka_tools import KafkaTools

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("kills and restarts brokers and copiers for minutes"),
    pytest.mark.timeout(1800),
]

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "transactional_copy.py"
CONTROL = Path(__file__).parent / "aiokafka_copier.py"

COUNT = int(os.environ.get("AIOPRODUCE_COPY_RECORDS", "100000"))
PARTITIONS = 6
KEYS = 48
PLAN = (
    "kill copier 1",
    "bounce broker 1 hard",
    "kill copier 2",
    "bounce broker 2",
    "kill copier 1 and wait",
    "bounce broker 3 hard",
    "kill copier 2 and wait",
    "bounce broker 1",
    "kill copier 1",
    "kill copier 2",
    # What would come twice comes with the next transactions.
    "nothing",
)
KILLS = sum(event.startswith("kill") for event in PLAN)
STOPS = (
    "stop copier 1 past its session",
    "stop copier 2 past its transaction",
    "stop copier 1 past its transaction",
    "stop copier 2 past its session",
    "nothing",
)
"""What becomes of a process that was suspended, and that goes on when another one has its partitions."""
SESSION_TIMEOUT_MS = 6_000
# What a killed copier left open holds its partitions up for so long, where nobody with its name starts.
TRANSACTION_TIMEOUT_MS = 20_000
# Seconds that a look waits for the first record.
LOOK = 0.5
# Looks in a row without anything new: then the copy has stopped.
IDLE_LOOKS = 360
# Looks at the end, in which nothing may come any more.
LAST_LOOKS = 10
# Runs of the control: one of them has to show a duplicate.
CONTROL_RUNS = 8
# A copier that ends by itself is started again so often.
RESTARTS = 200


@pytest.fixture(scope="module")
def three(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers that lose nothing when one of them is killed."""
    properties = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    directory = tmp_path_factory.mktemp("copy")
    with KafkaCluster(kafka_tools, directory, brokers=3, properties=properties) as cluster:
        yield cluster


@contextmanager
def reader(cluster: KafkaCluster, topic: str, isolation: str) -> Iterator[Consumer]:
    """confluent-kafka's consumer of a whole topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        yield consumer
    finally:
        consumer.close()


@dataclass
class Watcher:
    """What is in the target so far, of open and aborted transactions too.

    Attributes:
        values: Those seen, each once.
    """

    consumer: Consumer
    values: set[bytes] = field(default_factory=set)

    def look(self) -> None:
        """Wait for a record, no longer than a look lasts, and take those that are there with it."""
        first = self.consumer.poll(LOOK)
        for message in [] if first is None else [first, *self.consumer.consume(5_000, 0)]:
            error, value = message.error(), message.value()
            if error is None and value is not None:
                self.values.add(value)
            elif error is not None and error.code() != END_OF_PARTITION and not error.retriable():
                raise KafkaException(error)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Look until something is so; fail after too many looks that find nothing new."""
        idle = 0
        while not await asyncio.to_thread(is_so):
            before = len(self.values)
            await asyncio.to_thread(self.look)
            idle = 0 if len(self.values) > before else idle + 1
            assert idle < IDLE_LOOKS, f"the copy has stopped at {before} records"

    async def has_seen(self, count: int) -> None:
        await self.until(lambda: len(self.values) >= count)


@dataclass
class Copiers:
    """Two processes of a program; one that ends by itself is started again, one that was killed when it is told.

    Attributes:
        kills: How many were killed.
        ended: What those said last that ended by themselves.
    """

    program: Path
    arguments: tuple[str, str]
    environment: dict[str, str]
    directory: Path
    processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    allowed: dict[int, asyncio.Event] = field(default_factory=dict)
    started: int = 0
    kills: int = 0
    ended: list[str] = field(default_factory=list)

    def _log(self, number: int) -> Path:
        return self.directory / f"{number}.log"

    async def keep(self, number: int) -> None:
        """Run one of them again and again; killed with it."""
        own = {"TRANSACTIONAL_ID": f"{self.environment['GROUP']}-{number}"}
        self.allowed[number] = asyncio.Event()
        self.allowed[number].set()
        while True:
            self.started += 1
            with self._log(number).open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, str(self.program), *self.arguments),
                    env=os.environ | self.environment | own,
                    stdout=log,
                    stderr=log,
                )
            self.processes[number] = process
            try:
                if not self.allowed[number].is_set():  # killed while it began
                    process.kill()
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if self.allowed[number].is_set():
                self.ended += [line[:200] for line in self._log(number).read_text().splitlines()[-1:]]
                assert self.started < RESTARTS, f"they end again and again: {Counter(self.ended)}"
            await self.allowed[number].wait()

    async def kill(self, number: int) -> None:
        self.allowed[number].clear()
        process = self.processes[number]
        if process.returncode is None:
            process.kill()
        await process.wait()
        self.kills += 1

    def start(self, number: int) -> None:
        self.allowed[number].set()

    def signal(self, number: int, which: signal.Signals) -> None:
        process = self.processes[number]
        if process.returncode is None:
            process.send_signal(which)

    def _lines(self) -> list[str]:
        return [line for path in self.directory.glob("*.log") for line in path.read_text().splitlines()]

    def transactions(self) -> list[int]:
        """How many records each transaction had that they say they have committed."""
        return [int(line.split()[0]) for line in self._lines() if line.endswith(" records")]

    def failures(self) -> Counter[str]:
        """How often each error of a transaction ended one."""
        names = [line.partition(":")[0] for line in self._lines()]
        return Counter(name for name in names if name.isidentifier() and name.endswith("Error"))


@asynccontextmanager
async def copiers(cluster: KafkaCluster, program: Path, source: str, target: str) -> AsyncIterator[Copiers]:
    """Both run meanwhile, and have ended afterwards."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "GROUP": source,
        "SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
        "TRANSACTION_TIMEOUT_MS": str(TRANSACTION_TIMEOUT_MS),
    }
    with tempfile.TemporaryDirectory() as directory:
        both = Copiers(program, (source, target), environment, Path(directory))
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(both.keep(number)) for number in (1, 2)]
            yield both
            for keeper in keepers:
                keeper.cancel()


@dataclass
class Course:
    """The plan while it runs: records are sent in steps, and each step is seen before the next one."""

    cluster: KafkaCluster
    both: Copiers
    watcher: Watcher
    producer: Producer
    source: str
    plan: tuple[str, ...]
    sent: int = 0

    async def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        values, keys = (
            [b"v%06d" % number for number in numbers],
            [b"%d" % (number % KEYS) for number in numbers],
        )
        await (await self.producer.send_many(self.source, values, keys)).wait()
        self.sent += count

    async def happens(self, event: str, count: int) -> None:
        """Carry out one event of the plan in the midst of the copying of a part of the records."""
        first = count // 2
        # Each time elsewhere in the part.
        reached = self.sent + first * (self.plan.index(event) + 1) // (len(self.plan) + 1)
        await self.send(first)
        await self.watcher.has_seen(reached)
        match event.split():
            case ["bounce", "broker", number, *rest]:
                end = self.cluster.kill if rest else self.cluster.terminate
                await asyncio.to_thread(end, int(number))
                await self.send(count - first)
                await self.watcher.has_seen(self.sent - count // 4)  # by two brokers
                await asyncio.to_thread(self.cluster.start, int(number))
                await self.watcher.has_seen(self.sent)
                for topic in (*self.both.arguments, "__transaction_state", "__consumer_offsets"):
                    await asyncio.to_thread(self.cluster.wait_until_in_sync, topic, 3)
            case ["kill", "copier", number, *rest]:
                await self.both.kill(int(number))
                if rest:  # the other one has all partitions before this one comes again
                    await self.watcher.has_seen(self.sent)
                self.both.start(int(number))
                await self.send(count - first)
                await self.watcher.has_seen(self.sent)
            case ["stop", "copier", number, "past", "its", what]:
                self.both.signal(int(number), signal.SIGSTOP)
                try:
                    await self.send(count - first)
                    await self.watcher.has_seen(self.sent)  # the other one has all partitions
                    if what == "transaction":
                        await self.watcher.until(self.nothing_is_open)
                finally:
                    self.both.signal(int(number), signal.SIGCONT)
            case _:
                await self.send(count - first)
                await self.watcher.has_seen(self.sent)

    def nothing_is_open(self) -> bool:
        """Whether no transaction is open in the target: the coordinator has aborted what a process left open."""
        target = self.both.arguments[1]
        asked = {TopicPartition(target, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        stable = self.cluster.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        ends = self.cluster.offsets(target)
        return all(found.result(60).offset == ends[place.partition][1] for place, found in stable.items())


def committed(cluster: KafkaCluster, group: str) -> dict[int, int]:
    """The group's offsets, none of a transaction that is open."""
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = cluster.admin.list_consumer_group_offsets(asked, require_stable=True).values()
    places = found.result(60).topic_partitions or []
    return {place.partition: place.offset for place in places}


def read(cluster: KafkaCluster, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """The values of each partition, from the beginning to the high watermark.

    A consumer of committed records says that a partition ends where the first open transaction begins. So its
    place there has to be the high watermark, as its leader knows it.
    """
    ends = {number: end for number, (_, end) in cluster.offsets(topic).items()}
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    places = dict.fromkeys(found, 0)
    idle = 0
    with reader(cluster, topic, isolation) as consumer:
        while places != ends:
            messages = consumer.consume(5_000, LOOK)
            idle = 0 if messages else idle + 1
            assert idle < IDLE_LOOKS, f"a last stable offset that does not move on: {places} of {ends}"
            for message in messages:
                partition, error, value = message.partition(), message.error(), message.value()
                offset = message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    assert value is not None
                    found[partition].append(value)
                elif error.code() == END_OF_PARTITION:
                    places[partition] = offset
                else:
                    raise KafkaException(error)
    return found


@dataclass
class Copy:
    """What a plan has left.

    Attributes:
        source: Each partition's values, as they should be in the target.
        target: Those that readers of committed records see.
        written: How many records the target has, aborted ones too.
        transactions: How many records each committed transaction had.
        failures: What the others failed with.
    """

    source: dict[int, list[bytes]]
    target: dict[int, list[bytes]]
    written: int
    seconds: float
    copiers: Copiers
    transactions: list[int]
    failures: Counter[str]

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for values in self.target.values() for count in Counter(values).values())

    @property
    def missing(self) -> int:
        wanted = {value for values in self.source.values() for value in values}
        return len(wanted - {value for values in self.target.values() for value in values})

    @property
    def aborted(self) -> int:
        return self.written - sum(map(len, self.target.values()))

    def __str__(self) -> str:
        return (
            f"{sum(map(len, self.source.values()))} records in {self.seconds:.0f} s: {self.duplicates} twice, "
            f"{self.missing} missing, {'' if self.target == self.source else 'not '}in order; "
            f"{len(self.transactions)} transactions of up to {max(self.transactions)} records, "
            f"failed ones: {dict(self.failures)}, {self.aborted} aborted records in the log; "
            f"{self.copiers.kills} copiers killed, {len(self.copiers.ended)} ended by themselves, "
            f"{self.copiers.started} started"
        )


async def copied(
    cluster: KafkaCluster, program: Path, source: str, plan: tuple[str, ...] = PLAN, records: int = COUNT
) -> Copy:
    """The plan: each event happens while a part of the records is copied; then the copiers come to the end."""
    target = f"{source}-out"
    part = records // len(plan)
    sizes = [part] * (len(plan) - 1) + [records - part * (len(plan) - 1)]
    for topic in (source, target):
        await asyncio.to_thread(cluster.create_topic, topic, partitions=PARTITIONS)
    begun = time.monotonic()
    with reader(cluster, target, "read_uncommitted") as consumer:
        watcher = Watcher(consumer)
        async with (
            Producer(cluster.bootstrap_servers, delivery_timeout_ms=300_000) as producer,
            copiers(cluster, program, source, target) as both,
        ):
            course = Course(cluster, both, watcher, producer, source, plan)
            for event, count in zip(plan, sizes, strict=True):
                await course.happens(event, count)
                passed, seen = time.monotonic() - begun, len(watcher.values)
                print(f"{passed:6.1f} s  {event}; {seen} of {course.sent} records seen", flush=True)
            offsets = await asyncio.to_thread(cluster.offsets, source)
            ends = {number: end for number, (_, end) in offsets.items()}
            await watcher.until(lambda: committed(cluster, source) == ends)
            for _ in range(LAST_LOOKS):
                await asyncio.to_thread(watcher.look)
            assert committed(cluster, source) == ends
            transactions, failures = both.transactions(), both.failures()
    expected = {number: [value.upper() for value in found] for number, found in read(cluster, source).items()}
    written = sum(map(len, read(cluster, target, "read_uncommitted").values()))
    seconds = time.monotonic() - begun
    return Copy(expected, read(cluster, target), written, seconds, both, transactions, failures)


async def test_each_record_once_and_in_order(three: KafkaCluster, topic_name: str) -> None:
    copy = await copied(three, OURS, topic_name)
    print(f"aioproduce and confluent-kafka: {copy}; ended: {copy.copiers.ended}")
    assert copy.copiers.kills == KILLS == 6
    assert sum(map(len, copy.source.values())) == COUNT
    assert max(copy.transactions) <= 750
    assert copy.aborted > 0, "no kill met an open transaction"
    assert (copy.duplicates, copy.missing) == (0, 0)
    assert copy.target == copy.source


async def test_a_copier_that_was_suspended_writes_nothing_twice(three: KafkaCluster, topic_name: str) -> None:
    """It goes on with a transaction whose partitions are another copier's, or which was aborted meanwhile."""
    copy = await copied(three, OURS, topic_name, STOPS, COUNT // 5)
    print(f"suspended copiers: {copy}; ended: {copy.copiers.ended}")
    assert copy.aborted > 0, "no stop met an open transaction"
    assert sum(copy.failures.values()) > 0, "no suspended copier was refused"
    assert (copy.duplicates, copy.missing) == (0, 0)
    assert copy.target == copy.source


async def test_aiokafkas_own_pair_copies_twice(three: KafkaCluster, topic_name: str) -> None:
    """The control: the plan does meet transactions that are open, or nobody could see anything of it.

    A copy comes twice if a partition moves while its old owner has a transaction open which it commits later. Not
    every run meets that: of the first five with 100,000 records three had duplicates (750, 0, 1500, 0, 103).
    `test_where_consumers_begin_kafka.py` shows the same without chance.
    """
    for run in range(CONTROL_RUNS):
        copy = await copied(three, CONTROL, f"{topic_name}-{run}")
        print(f"aiokafka, run {run + 1}: {copy}; ended: {Counter(copy.copiers.ended)}")
        if copy.duplicates:
            break
    assert copy.duplicates > 0
