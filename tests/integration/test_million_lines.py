"""The main job end to end: a file of many lines through the CLI into three real brokers, read back by Kafka.

Three brokers, six partitions, replication 3, acks=all, the CLI as a process of its own. By default there are
100,000 lines; ``AIOPRODUCE_LINES=1000000 pytest tests/integration/test_million_lines.py -s`` is the project's
figure, and prints how fast it was.

1. Every line is told from every other by its number, so that lost and duplicated ones are counted exactly.
2. The log is streamed from Kafka's ConsoleConsumer: nothing of it is held but one bit per line and key.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.extended(
    "sends a million lines if requested; the CLI with the embedded cluster stays in the gate"
)

LINES = int(os.environ.get("AIOPRODUCE_LINES", "100000"))
PARTITIONS = 6
KEYS = 5000
VALUE_SIZE = 100


@dataclass(slots=True)
class Found:
    """What the log held."""

    seen: bytearray = field(default_factory=lambda: bytearray(LINES))
    per_partition: Counter[bytes] = field(default_factory=Counter)
    key_partitions: dict[bytes, bytes] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)
    damaged: int = 0
    duplicated: int = 0
    disordered: int = 0
    moved: int = 0

    @property
    def lost(self) -> int:
        """Lines that are not there."""
        return self.seen.count(0)

    def add(self, partition: bytes, key: bytes, value: bytes) -> None:
        """Take in one record."""
        number = int(value.split(b" ", 1)[0])
        if (key, value) != key_and_value(number):
            self.damaged += 1
            return
        self.duplicated += self.seen[number]
        self.seen[number] = 1
        self.per_partition[partition] += 1
        self.moved += self.key_partitions.setdefault(key, partition) != partition
        self.disordered += number < self.latest.get(key, -1)
        self.latest[key] = number


def key_and_value(number: int) -> tuple[bytes, bytes]:
    return b"key-%d" % (number * 7919 % KEYS), (b"%d " % number).ljust(VALUE_SIZE, b"x")


async def send_by_cli(cluster: KafkaCluster, topic: str, file: Path) -> dict[str, Any]:
    """Run the CLI to its end, and return its report."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioproduce.cli", "send", topic, str(file)),
        *("--bootstrap-server", cluster.bootstrap_servers, "--key-separator", "|"),
        *("--acks", "all", "--json", "--no-progress"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    report: dict[str, Any] = json.loads(printed)
    return report


async def consumed_by_kafka(
    cluster: KafkaCluster, topic: str, count: int
) -> AsyncIterator[tuple[bytes, bytes, bytes]]:
    """Partition, key and value of each record, as ConsoleConsumer prints them."""
    properties = ["print.partition=true", "print.key=true"]
    process = await asyncio.create_subprocess_exec(
        *cluster.tools.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(count)),
            *(word for each in properties for word in ("--formatter-property", each)),
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            partition, key, value = line.rstrip(b"\n").split(b"\t")
            yield partition, key, value
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.timeout(1800)
async def test_every_line_of_a_file_is_in_the_log_once(
    kafka3: KafkaCluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    await asyncio.to_thread(kafka3.create_topic, topic_name, partitions=PARTITIONS, replication=3)
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"%s|%s\n" % key_and_value(number) for number in range(LINES)))

    report = await send_by_cli(kafka3, topic_name, file)

    assert (report["sent"], report["acknowledged"], report["failed"]) == (LINES, LINES, 0)
    # Exactly as many as the end offsets say, so that duplicates would be read as well.
    offsets = await asyncio.to_thread(kafka3.offsets, topic_name)
    assert sum(end - first for first, end in offsets.values()) == LINES
    found = Found()
    async for partition, key, value in consumed_by_kafka(kafka3, topic_name, LINES):
        found.add(partition, key, value)
    figures = {
        "lines": LINES,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "out of order": found.disordered,
        "records_per_second": report["records_per_second"],
    }
    for name, value in figures.items():
        record_property(name, value)
    with capsys.disabled():
        print(
            f"\n{LINES} lines: lost {found.lost}, duplicated {found.duplicated}, keyed records out of order "
            f"{found.disordered}; per partition {sorted(found.per_partition.values())};"
            f" {report['records_per_second']:,.0f} records/s acknowledged"
        )

    assert (found.damaged, found.lost, found.duplicated) == (0, 0, 0)
    assert (found.disordered, found.moved) == (0, 0)
    assert len(found.key_partitions) == min(KEYS, LINES)
    assert len(found.per_partition) == PARTITIONS
