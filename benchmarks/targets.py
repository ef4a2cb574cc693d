"""The targets of the clients: the null broker, a FakeCluster, a real Kafka; each counts the records that it has.

Called by the runner, in the parent process.

1. A count is the broker's own: the records since `begin()`, by the ends of its logs. It never comes from a client.
2. Real Kafka keeps its data in a temporary folder and drops old segments by itself, so that a long comparison does
   not fill the disk; end offsets count all records written, dropped or not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.broker import BrokerProcess, broker_process
from benchmarks.cases import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from benchmarks.broker_counts import BrokerCounts
    from benchmarks.null_broker import NullBroker
    from tests.kafka_cluster import KafkaCluster

KAFKA_SETTINGS = {
    "min.insync.replicas": "2",
    "log.segment.bytes": str(64 * 2**20),
    "log.retention.bytes": str(64 * 2**20),
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}
# Brokers that run for minutes: both of the JVM's compilers, and a heap that suits Kafka.
KAFKA_JVM_FLAGS = ("-Xms512m", "-Xmx512m", "-Dkafka.log.level=WARN")


class Target(Protocol):
    """Brokers, and what they have got."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str: ...

    def begin(self) -> None:
        """Count from here on."""

    def count(self) -> int:
        """The records of the topic since `begin()`."""

    def shape(self) -> dict[str, float]:
        """Return the sizes of batches and requests as figures; empty if they are not known."""


class FakeTarget:
    """A FakeCluster, for machines without a C compiler. It is Python, so it is often the limit."""

    name = "fake cluster"

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.bootstrap_servers = process.bootstrap_servers
        self._before = 0

    def begin(self) -> None:
        self._before = self.process.count(TOPIC)

    def count(self) -> int:
        return self.process.count(TOPIC) - self._before

    def shape(self) -> dict[str, float]:
        return {}


class NullTarget:
    """The null broker in C."""

    name = "null broker"

    def __init__(self, broker: NullBroker) -> None:
        self.broker = broker
        self.bootstrap_servers = broker.bootstrap_servers
        self._cpu_before = 0.0

    def begin(self) -> None:
        self.broker.reset()
        self._cpu_before = self.broker.cpu_seconds()

    def count(self) -> int:
        return self.broker.records()

    def shape(self) -> dict[str, float]:
        stats = self.broker.stats()
        if not stats["batches"]:
            return {}
        return {
            "records_per_batch": stats["records"] / stats["batches"],
            "batches_per_request": stats["batches"] / stats["requests"],
            "broker_cpu_seconds_per_million": (stats["cpu_seconds"] - self._cpu_before)
            / stats["records"]
            * 1e6,
        }


class KafkaTarget:
    """A real cluster of three brokers: replication 3, two replicas in sync at least."""

    name = "real Kafka, 3 replicas"

    def __init__(self, cluster: KafkaCluster, counts: BrokerCounts) -> None:
        self._cluster = cluster
        self._counts = counts
        self.bootstrap_servers = cluster.bootstrap_servers
        self._before = 0
        self._counts_before = counts.read(TOPIC)

    def _ends(self) -> int:
        return sum(end for _, end in self._cluster.offsets(TOPIC).values())

    def begin(self) -> None:
        self._before = self._ends()
        self._counts_before = self._counts.read(TOPIC)

    def count(self) -> int:
        return self._ends() - self._before

    def shape(self) -> dict[str, float]:
        return (self._counts.read(TOPIC) - self._counts_before).figures()


@contextmanager
def _on_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Pin child processes started in the context; other threads of this process than the caller keep theirs."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def null_target(
    cores: tuple[int, ...] = (),
    *,
    partitions: int = PARTITIONS,
    topics: Mapping[str, int] | None = None,
    brokers: int = 1,
    delay: float = 0.0,
    is_tls: bool = False,
) -> Iterator[NullTarget]:
    """The null broker, on these processors."""
    from benchmarks.certificate import certificate
    from benchmarks.null_broker import null_broker

    with ExitStack() as stack:
        with _on_cores(cores):
            made = null_broker(
                topics=dict(topics or {TOPIC: partitions}),
                brokers=brokers,
                delay=delay,
                certificate=certificate().broker if is_tls else None,
            )
            broker = stack.enter_context(made)
        yield NullTarget(broker)


@contextmanager
def fake_target(cores: tuple[int, ...] = ()) -> Iterator[FakeTarget]:
    """Run a FakeCluster in a separate process, on these processors."""
    with ExitStack() as stack:
        with _on_cores(cores):
            process = stack.enter_context(broker_process(topic=TOPIC, partitions=PARTITIONS))
        yield FakeTarget(process)


@contextmanager
def kafka_target() -> Iterator[KafkaTarget]:
    """Run three real brokers. They may use every processor: three of them would starve on one.

    Raises:
        KafkaUnavailableError: if there is no Java or Maven.
    """
    from benchmarks.broker_counts import BrokerCounts
    from tests.kafka_cluster import KafkaCluster
    from tests.kafka_install import find_or_install
    from tests.kafka_tools import KafkaTools

    with tempfile.TemporaryDirectory(prefix="aioproduce-bench-") as folder:
        install = find_or_install()
        tools = KafkaTools(install)
        with KafkaCluster(
            tools, Path(folder), brokers=3, properties=KAFKA_SETTINGS, jvm_flags=KAFKA_JVM_FLAGS
        ) as cluster:
            cluster.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
            pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]
            with BrokerCounts(install, pids) as counts:
                yield KafkaTarget(cluster, counts)
