"""Transactions a second, by size, compared with confluent-kafka and Java: `python -m benchmarks.transactions`.

One real Kafka broker, records of 100 bytes, one partition, in one run and interleaved. A reader of committed
records reads every run's topic: records that it does not get do not count.

1. One transaction after another, of 1 to 100,000 records: ours (up to 100 records by `send()`, more by
   `send_many()`), confluent-kafka's and those of Kafka's Java producer, whose JVM runs through all rounds.
2. Records a second with a commit each 500 ms, compared with the idempotent producer without transactions. They
   run in pairs and the ratio of each pair counts: a broker's rate on a shared machine changes within a minute.
3. 1,000 tasks that each send one record again and again by `group_commit(0.05)`; a transaction for each record is
   the first row of 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import uvloop
from rich.console import Console
from rich.table import Table

from aioproduce import Producer
from tests.integration.test_transactions_kafka import read
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import KafkaInstall, find_or_install
from tests.kafka_tools import KafkaTools

SIZES: Final = (1, 10, 100, 1_000, 10_000, 100_000)
VALUE: Final = bytes(100)
TASKS: Final = 1_000
PAIRS: Final = 4
"""Of point 2, in each round."""
SHARE: Final = "each 500 ms by idempotent"
_numbers: Final = count()

Figures = dict[str, Any]


class Site:
    """A broker, a separate topic for each run, and the JVMs of Java's producers."""

    def __init__(self, cluster: KafkaCluster, install: KafkaInstall, jvms: ExitStack) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self._install = install
        self._jvms = jvms
        self._of_size: dict[int, subprocess.Popen[str]] = {}

    def jvm(self, size: int) -> subprocess.Popen[str]:
        """That of Java's producer for transactions of this size."""
        if size not in self._of_size:
            source = Path(__file__).with_name("clients") / "TransactionalClient.java"
            install, arguments = self._install, [self.servers, str(size), str(len(VALUE))]
            command = [install.java, "-Xmx512m", "-cp", install.classpath, str(source), *arguments]
            self._of_size[size] = self._jvms.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
        return self._of_size[size]

    def topic(self) -> str:
        """A new one."""
        name = f"t{next(_numbers)}"
        self.cluster.create_topic(name, partitions=1)
        return name

    def check(self, topic: str, records: int) -> None:
        """Check that this number of records is committed.

        Raises:
            AssertionError: if it is not.
        """
        found = len(read(self.servers, topic))
        assert found == records, f"{found} records are committed, and not {records}"
        self.cluster.delete_topic(topic)  # a run leaves half a gigabyte


async def ours(site: Site, size: int, seconds: float) -> float:
    """Transactions a second."""
    topic, done = site.topic(), 0
    async with Producer(site.servers, transactional_id=topic, batch_size=65_536) as producer:
        values = [VALUE] * size
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            async with producer.transaction() as txn:
                if size <= 100:
                    for value in values:
                        await txn.send(topic, value)
                else:
                    await txn.send_many(topic, values)
            done += 1
        took = time.perf_counter() - began
    await asyncio.to_thread(site.check, topic, done * size)
    return done / took


async def confluents(site: Site, size: int, seconds: float) -> float:
    """Transactions a second."""
    return await asyncio.to_thread(_confluents, site, size, seconds)


def _confluents(site: Site, size: int, seconds: float) -> float:
    topic, done = site.topic(), 0
    settings: dict[str, Any] = {
        "bootstrap.servers": site.servers,
        "transactional.id": topic,
        "linger.ms": 0,
        "batch.size": 65_536,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic, VALUE)
        producer.commit_transaction(60)
        done += 1
    took = time.perf_counter() - began
    site.check(topic, done * size)
    return done / took


async def javas(site: Site, size: int, seconds: float) -> float:
    """Transactions a second."""
    return await asyncio.to_thread(_javas, site, size, seconds)


def _javas(site: Site, size: int, seconds: float) -> float:
    topic, jvm = site.topic(), site.jvm(size)
    assert jvm.stdin is not None
    assert jvm.stdout is not None
    print(topic, seconds, file=jvm.stdin, flush=True)
    done, took = jvm.stdout.readline().split()
    site.check(topic, int(done) * size)
    return int(done) / float(took)


async def each_half_second(site: Site, seconds: float) -> float:
    """Records a second, committed each 500 ms."""
    topic, sent = site.topic(), 0
    async with Producer(site.servers, transactional_id=topic, batch_size=65_536) as producer:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            async with producer.transaction() as txn:
                until = time.perf_counter() + 0.5
                while time.perf_counter() < until:
                    await txn.send_many(topic, [VALUE] * 1_000)
                    sent += 1_000
        took = time.perf_counter() - began
    await asyncio.to_thread(site.check, topic, sent)
    return sent / took


async def idempotent(site: Site, seconds: float) -> float:
    """Records a second, without transactions."""
    topic, sent = site.topic(), 0
    async with Producer(site.servers, batch_size=65_536) as producer:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            await producer.send_many(topic, [VALUE] * 1_000)
            sent += 1_000
        await producer.flush()
        took = time.perf_counter() - began
    await asyncio.to_thread(site.check, topic, sent)
    return sent / took


async def grouped(site: Site, seconds: float) -> float:
    """Committed records a second, of tasks that share transactions."""
    topic, sent = site.topic(), 0

    async def task(send: Callable[[str, bytes], Awaitable[object]]) -> None:
        nonlocal sent
        while time.perf_counter() - began < seconds:
            await send(topic, VALUE)
            sent += 1

    async with (
        Producer(site.servers, transactional_id=topic) as producer,
        producer.group_commit(0.05) as group,
    ):
        began = time.perf_counter()
        await asyncio.gather(*(task(group.send) for _ in range(TASKS)))
        took = time.perf_counter() - began
    await asyncio.to_thread(site.check, topic, sent)
    return sent / took


async def _measure(site: Site, rounds: int, seconds: float, console: Console) -> dict[str, Figures]:
    cases: dict[str, Callable[[], Awaitable[float]]] = {}
    for size in SIZES:
        cases[f"ours {size}"] = lambda size=size: ours(site, size, seconds)  # type: ignore[misc]  # binds `size`
        cases[f"confluent {size}"] = lambda size=size: confluents(site, size, seconds)  # type: ignore[misc]  # binds `size`
        cases[f"java {size}"] = lambda size=size: javas(site, size, seconds)  # type: ignore[misc]  # binds `size`
    cases["group commit"] = lambda: grouped(site, seconds)
    pair = {
        "each 500 ms": lambda: each_half_second(site, seconds),
        "idempotent": lambda: idempotent(site, seconds),
    }
    found: dict[str, list[float]] = {name: [] for name in (*cases, *pair, SHARE)}

    async def run(name: str, case: Callable[[], Awaitable[float]]) -> None:
        found[name].append(await case())
        console.print(f"{name}, run {len(found[name])}: {found[name][-1]:,.1f}")

    for _ in range(rounds):
        for name, case in cases.items():
            await run(name, case)
        for turn in range(PAIRS):
            # Each of the two goes first in turn: the first one finds a broker that has rested.
            for name in sorted(pair, reverse=bool(turn % 2)):
                await run(name, pair[name])
            found[SHARE].append(found["each 500 ms"][-1] / found["idempotent"][-1])
    return {
        name: {
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "rounds": values,
        }
        for name, values in found.items()
    }


def _table(figures: dict[str, Figures]) -> Table:
    table = Table("records a transaction", "ours, txn/s", "confluent", "ratio", "Java", "ratio")
    for size in SIZES:
        mine, theirs, javas = (figures[f"{who} {size}"]["median"] for who in ("ours", "confluent", "java"))
        ratios = f"{mine / theirs:.2f}", f"{mine / javas:.2f}"
        table.add_row(f"{size:,}", f"{mine:,.1f}", f"{theirs:,.1f}", ratios[0], f"{javas:,.1f}", ratios[1])
    return table


def main() -> int:
    """Measure, and print a table; `--json` for a program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--transaction-version", type=int, default=2, choices=(1, 2))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    console = Console(stderr=True)
    features, install = {"transaction.version": str(given.transaction_version)}, find_or_install()
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaCluster(KafkaTools(install), Path(directory), features=features) as cluster,
        ExitStack() as jvms,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(_measure(Site(cluster, install, jvms), given.rounds, given.seconds, console))
    if given.json:
        print(json.dumps({"python": platform.python_version(), "figures": figures}))
        return 0
    out = Console()
    out.print(_table(figures))
    share = figures[SHARE]["median"]
    out.print(f"a commit each 500 ms: {share:.2f} of the idempotent producer's records/s (wanted: 0.9)")
    group, alone = figures["group commit"]["median"], figures["ours 1"]["median"]
    out.print(
        f"group commit: {group:,.0f} records/s, {group / alone:.0f} x a transaction for each (wanted: 50)"
    )
    for who, wanted in (("confluent", 2), ("java", 1.2)):
        ratio = figures["ours 1000"]["median"] / figures[f"{who} 1000"]["median"]
        out.print(f"1,000 records a transaction: {ratio:.2f} x {who}'s (wanted: {wanted})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
