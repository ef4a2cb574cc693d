"""The main job from end to end: send a text file from the command line, and read it back with another client.

    make demo                                  # or: python examples/demo.py [FILE]

It starts the embedded cluster (3 brokers on loopback), sends the file with `aioproduce send` in another process,
reads the topic back with aiokafka's consumer, and compares line by line. The exit code is 0 only if every line was
acknowledged and read back once: lost = duplicated = 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from rich import box
from rich.console import Console
from rich.table import Table

from aioproduce.testing import FakeCluster

TOPIC = "demo"
PARTITIONS = 6
ACCESS_LOG = Path(__file__).parent / "data" / "access_log.txt"


@dataclass(frozen=True)
class Verdict:
    """The comparison of the topic with the file."""

    read_back: int
    lost: int
    duplicated: int
    foreign: int
    out_of_order: int
    per_partition: dict[int, int]


async def send_file(servers: str, file: Path) -> tuple[int, dict[str, Any]]:
    """Run `aioproduce send` as a user would; its progress bar goes to our terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioproduce.cli", "send", TOPIC, str(file)),
        *("--bootstrap-server", servers, "--acks", "all", "--progress", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(output) if output else {}


async def read_back(servers: str) -> dict[int, list[bytes]]:
    """Read the whole topic with aiokafka; return the values of each partition in log order."""
    values: dict[int, list[bytes]] = defaultdict(list)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                values[partition.partition].extend(record.value for record in records)
    finally:
        await consumer.stop()
    return values


def compare(lines: list[bytes], partitions: dict[int, list[bytes]]) -> Verdict:
    """Compare both sides as multisets, and the order within each partition with the file's."""
    expected = Counter(lines)
    found = Counter(value for values in partitions.values() for value in values)
    extra = found - expected
    duplicated = sum(count for line, count in extra.items() if line in expected)
    place = {line: number for number, line in enumerate(lines)}
    out_of_order = 0
    if len(place) == len(lines):  # with repeated lines, a line's place in the file is ambiguous
        for values in partitions.values():
            places = [place[value] for value in values if value in place]
            out_of_order += sum(after < before for before, after in pairwise(places))
    return Verdict(
        read_back=found.total(),
        lost=(expected - found).total(),
        duplicated=duplicated,
        foreign=extra.total() - duplicated,
        out_of_order=out_of_order,
        per_partition={number: len(partitions.get(number, [])) for number in range(PARTITIONS)},
    )


def table(sent: dict[str, Any], verdict: Verdict) -> Table:
    shown = Table(box=box.ROUNDED, show_header=False, title="aioproduce send, read back with aiokafka")
    shown.add_column(style="bold")
    shown.add_column(justify="right")
    shown.add_row("sent", f"{sent['sent']:,}")
    shown.add_row("acknowledged", f"{sent['acknowledged']:,}")
    shown.add_row("read back", f"{verdict.read_back:,}")
    for name, count in (
        ("lost", verdict.lost),
        ("duplicated", verdict.duplicated),
        ("not from the file", verdict.foreign),
        ("out of order", verdict.out_of_order),
    ):
        shown.add_row(name, f"[{'green' if count == 0 else 'bold red'}]{count:,}[/]")
    shown.add_section()
    for partition, count in verdict.per_partition.items():
        shown.add_row(f"partition {partition}", f"{count:,}")
    shown.add_section()
    shown.add_row("records/s", f"{sent['records_per_second']:,.0f}")
    latency = sent["latency_ms"] or {"p50": 0.0, "p99": 0.0}
    shown.add_row("p50 acknowledge latency", f"{latency['p50']:.1f} ms")
    shown.add_row("p99 acknowledge latency", f"{latency['p99']:.1f} ms")
    return shown


async def demo(file: Path, content: bytes) -> int:
    console = Console()
    lines = [line for line in content.split(b"\n") if line.strip()]  # `send` skips blank lines
    if not lines:
        console.print(f"{file} is empty: nothing to show")
        return 2
    async with FakeCluster(3, topics={TOPIC: PARTITIONS}) as cluster:
        servers = cluster.bootstrap_servers
        console.print(f"3 brokers in memory: {servers}")
        console.print(f"sending {file.name}: {len(lines):,} lines, {len(content):,} bytes")
        exit_code, sent = await send_file(servers, file)
        if not sent:
            console.print("[bold red]aioproduce send did not run[/]")
            return exit_code or 1
        partitions = await read_back(servers)
    verdict = compare(lines, partitions)
    console.print(table(sent, verdict))
    is_complete = (
        exit_code == 0
        and sent["sent"] == sent["acknowledged"] == verdict.read_back == len(lines)
        and verdict.lost == verdict.duplicated == verdict.foreign == verdict.out_of_order == 0
    )
    console.print(
        "[green]every line came back once[/]"
        if is_complete
        else "[bold red]the topic differs from the file[/]"
    )
    return 0 if is_complete else 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=ACCESS_LOG,
        help="a text file (default: the access log in examples/data)",
    )
    file: Path = parser.parse_args().file
    if not file.is_file():
        parser.error(f"no such file: {file}")
    sys.exit(asyncio.run(demo(file, file.read_bytes())))


if __name__ == "__main__":
    main()
