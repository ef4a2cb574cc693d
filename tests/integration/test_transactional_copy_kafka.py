"""100,000 records through `examples/transactional_copy.py`, while brokers and copiers are killed: exactly once.

Three brokers (three replicas, two in sync), which are killed and bounced one after another. Two copiers in one
group, killed six times (SIGKILL): partitions go from one to the other and back. Records keep their partition, as
they keep their key. So at the end each partition of the target is that of the source, record by record and in
order, and the group's offsets are the ends of the source.

The control is aiokafka's own pair in the same plan: its consumer starts below transactions that are still open.
`pytest -s` shows the progress and a line of figures.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from aioproduce import Producer
from tests.integration.test_transactions_kafka import END_OF_PARTITION
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_tools import KafkaTools

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("minutes: brokers and copiers that are killed and started again"),
    pytest.mark.timeout(1200),
]

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "transactional_copy.py"
CONTROL = Path(__file__).parent / "aiokafka_copier.py"

COUNT = 100_000
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
)
KILLS = sum(event.startswith("kill") for event in PLAN)
SESSION_TIMEOUT = 6.0
# A bound for a hang: without progress for so long the copy has stopped.
PATIENCE = 180.0


@pytest.fixture(scope="module")
def three(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    directory = tmp_path_factory.mktemp("copy")
    with KafkaCluster(kafka_tools, directory, brokers=3, properties=properties) as cluster:
        yield cluster


@dataclass
class Copiers:
    """Two processes of a program; those that end by themselves are started again.

    Attributes:
        kills: How many were killed.
        ended: What those said last that ended by themselves.
    """

    program: Path
    arguments: tuple[str, str]
    environment: dict[str, str]
    directory: Path
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0
    kills: int = 0
    ended: list[str] = field(default_factory=list)

    def _log(self, number: int) -> Path:
        return self.directory / f"{number}.log"

    def start(self, number: int) -> None:
        self.started += 1
        own = {"TRANSACTIONAL_ID": f"{self.environment['GROUP']}-{number}"}
        with self._log(number).open("ab") as log:
            self.processes[number] = subprocess.Popen(
                [sys.executable, str(self.program), *self.arguments],
                env=os.environ | self.environment | own,
                stdout=log,
                stderr=log,
            )

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.wait()
        self.kills += 1

    async def keep(self) -> None:
        """Start again what has ended."""
        while True:
            await asyncio.sleep(0.5)
            for number, process in list(self.processes.items()):
                if process.poll() is not None:
                    self.ended.append(self._log(number).read_text().splitlines()[-1][:200])
                    self.start(number)

    def records(self) -> int:
        """How many records they say that they have committed."""
        return sum(
            int(line.split()[0])
            for path in self.directory.glob("*.log")
            for line in path.read_text().splitlines()
            if line.endswith(" records")
        )


@contextmanager
def copiers(cluster: KafkaCluster, program: Path, source: str, target: str) -> Iterator[Copiers]:
    environment = {
        "PYTHONPATH": str(ROOT),
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "GROUP": source,
        "SESSION_TIMEOUT_MS": str(int(SESSION_TIMEOUT * 1000)),
    }
    with tempfile.TemporaryDirectory() as directory:
        both = Copiers(program, (source, target), environment, Path(directory))
        try:
            both.start(1)
            both.start(2)
            yield both
        finally:
            for process in both.processes.values():
                process.kill()
                process.wait()


async def happens(cluster: KafkaCluster, both: Copiers, event: str) -> None:
    """Carry out one event of the plan."""
    match event.split():
        case ["bounce", "broker", number, *rest]:
            await asyncio.to_thread(cluster.bounce, int(number), hard=bool(rest))
            for topic in (*both.arguments, "__transaction_state", "__consumer_offsets"):
                await asyncio.to_thread(cluster.wait_until_in_sync, topic, 3)
        case ["kill", "copier", number, *rest]:
            both.kill(int(number))
            if rest:  # until the other one has its partitions
                await asyncio.sleep(SESSION_TIMEOUT + 1)
            both.start(int(number))
        case _:
            raise AssertionError(event)


async def send(producer: Producer, topic: str, first: int, count: int) -> None:
    """A part of the records, in bursts of a few transactions."""
    for start in range(first, first + count, 2_000):
        numbers = range(start, min(start + 2_000, first + count))
        values, keys = (
            [b"v%06d" % number for number in numbers],
            [b"%d" % (number % KEYS) for number in numbers],
        )
        await (await producer.send_many(topic, values, keys)).wait()
        await asyncio.sleep(0.3)


def committed(cluster: KafkaCluster, group: str) -> dict[int, int]:
    """The group's offsets, none of a transaction that is open."""
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = cluster.admin.list_consumer_group_offsets(asked, require_stable=True).values()
    places = found.result(60).topic_partitions or []
    return {place.partition: place.offset for place in places}


def read(cluster: KafkaCluster, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """The values of each partition, from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        deadline = time.monotonic() + PATIENCE
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, (
                f"only {ended} ended: a last stable offset that does not move on"
            )
            for message in consumer.consume(5_000, 0.2):
                partition, error, value = message.partition(), message.error(), message.value()
                assert partition is not None
                if error is None:
                    assert value is not None
                    found[partition].append(value)
                elif error.code() == END_OF_PARTITION:
                    ended.add(partition)
    finally:
        consumer.close()
    return found


@dataclass
class Copy:
    """What a plan has left.

    Attributes:
        source: Each partition's values, as they should be in the target.
        target: Those that readers of committed records see.
        written: How many records the target has, aborted ones too.
    """

    source: dict[int, list[bytes]]
    target: dict[int, list[bytes]]
    written: int
    seconds: float
    copiers: Copiers

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for values in self.target.values() for count in Counter(values).values())

    @property
    def missing(self) -> int:
        wanted = {value for values in self.source.values() for value in values}
        return len(wanted - {value for values in self.target.values() for value in values})

    def __str__(self) -> str:
        return (
            f"{sum(map(len, self.source.values()))} records in {self.seconds:.0f} s: {self.duplicates} twice, "
            f"{self.missing} missing, {self.target == self.source} in order; "
            f"{self.written - sum(map(len, self.target.values()))} aborted ones in the log; "
            f"{self.copiers.kills} copiers killed, {len(self.copiers.ended)} ended by themselves, "
            f"{self.copiers.started} started, {sum('bounce' in event for event in PLAN)} brokers bounced"
        )


async def copied(cluster: KafkaCluster, program: Path, source: str) -> Copy:
    """The plan: each part of the records is sent while its event happens; then the copiers come to the end."""
    target = f"{source}-out"
    for topic in (source, target):
        await asyncio.to_thread(cluster.create_topic, topic, partitions=PARTITIONS)
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)

    with copiers(cluster, program, source, target) as both:
        keeper = asyncio.create_task(both.keep())
        try:
            async with Producer(cluster.bootstrap_servers) as producer:
                part = COUNT // len(PLAN)
                for number, event in enumerate(PLAN):
                    sending = asyncio.create_task(send(producer, source, number * part, part))
                    await asyncio.sleep(0.5 + 0.1 * number)  # into the bursts, each time elsewhere
                    await happens(cluster, both, event)
                    await sending
                    tell(f"{event}; {both.records()} of {(number + 1) * part} records copied")
            ends = {number: end for number, (_, end) in cluster.offsets(source).items()}
            before, deadline = -1, time.monotonic() + PATIENCE
            while (now := await asyncio.to_thread(committed, cluster, source)) != ends:
                if sum(now.values()) != before:
                    before, deadline = sum(now.values()), time.monotonic() + PATIENCE
                    tell(f"offsets up to {before} of {sum(ends.values())}")
                assert time.monotonic() < deadline, f"no progress: {now} of {ends}; ended: {both.ended}"
                await asyncio.sleep(0.5)
            # What would come twice comes within the next transactions: there are none.
            await asyncio.sleep(3)
        finally:
            keeper.cancel()
    tell("all offsets are committed")
    expected = {number: [value.upper() for value in found] for number, found in read(cluster, source).items()}
    written = sum(map(len, read(cluster, target, "read_uncommitted").values()))
    return Copy(expected, read(cluster, target), written, time.monotonic() - begun, both)


async def test_each_record_once_and_in_order(three: KafkaCluster, topic_name: str) -> None:
    copy = await copied(three, OURS, topic_name)
    print(f"aioproduce and confluent-kafka: {copy}; ended: {copy.copiers.ended}")
    assert copy.copiers.kills == KILLS == 6
    assert sum(map(len, copy.source.values())) == COUNT
    assert (copy.duplicates, copy.missing) == (0, 0)
    assert copy.target == copy.source


async def test_aiokafkas_own_pair_copies_twice(three: KafkaCluster, topic_name: str) -> None:
    """The control: the plan does meet transactions that are open, or nobody could see anything of it."""
    copy = await copied(three, CONTROL, topic_name)
    print(f"aiokafka: {copy}; ended: {Counter(copy.copiers.ended)}")
    assert copy.duplicates > 0
