"""``python -m aioproduce.verifiable`` compared with Kafka's own VerifiableProducer, on the same real broker.

1. Both get the same arguments; what they print is compared line by line in shape: events in their order, keys,
   types, and what is the same for any producer (values, keys, topic, counts, exit code).
2. What ours wrote is read back by Kafka's VerifiableConsumer and ConsoleConsumer, at the places that ours told.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command import ENVIRONMENT
from tests.gate.marks import others_extended

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

JAVA = "org.apache.kafka.tools.VerifiableProducer"
OURS = (sys.executable, "-m", "aioproduce.verifiable")

Shape = list[tuple[tuple[str, str], ...]]


async def run_tool(
    *command: str, stop_with: signal.Signals | None = None, lines_first: int = 0
) -> tuple[int | None, list[str]]:
    """Run one to its end, or send a signal after so many lines; exit code and lines."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=ENVIRONMENT
    )
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode() for _ in range(lines_first)]
    if stop_with is not None:
        process.send_signal(stop_with)
    out, _ = await process.communicate()
    return process.returncode, [*lines, *out.decode().splitlines()]


async def run_both(
    cluster: KafkaCluster, *arguments: str, stop_with: signal.Signals | None = None, lines_first: int = 0
) -> tuple[list[str], list[str]]:
    """Java's lines and ours, after a look at the exit codes."""
    words = ("--bootstrap-server", cluster.bootstrap_servers, *arguments)
    java = await run_tool(*cluster.tools.command(JAVA, *words), stop_with=stop_with, lines_first=lines_first)
    ours = await run_tool(*OURS, *words, stop_with=stop_with, lines_first=lines_first)
    assert ours[0] == java[0]
    return java[1], ours[1]


def shape(lines: list[str]) -> Shape:
    """Each line as its keys (timestamp and name first, as in both) with the types of their values."""
    shapes: Shape = []
    for line in lines:
        event = json.loads(line)
        (first, second), rest = list(event)[:2], sorted(list(event)[2:])
        shapes.append(tuple((key, type(event[key]).__name__) for key in (first, second, *rest)))
    return shapes


def same_for_all(lines: list[str]) -> list[dict[str, Any]]:
    """Each line without what differs from run to run; the records' lines ordered by number."""
    changing = {"timestamp", "offset", "partition", "avg_throughput", "exception", "message"}
    first, *records, shutdown, tool_data = [
        {key: value for key, value in json.loads(line).items() if key not in changing} for line in lines
    ]
    records.sort(key=lambda event: int(event["value"].rpartition(".")[2]))
    return [first, *records, shutdown, tool_data]


def compare(java: list[str], ours: list[str]) -> None:
    assert shape(ours) == shape(java)
    assert same_for_all(ours) == same_for_all(java)


@pytest.mark.parametrize(
    "arguments",
    others_extended(
        [
            ("--max-messages", "20"),
            ("--max-messages", "0"),
            ("--max-messages", "3", "--acks", "0"),
            (
                *("--max-messages", "5", "--repeating-keys", "3", "--value-prefix", "7"),
                *("--message-create-time", "1000", "--throughput", "50", "--acks", "1"),
            ),
        ],
        keep=[("--max-messages", "20")],
        reason="starts two JVMs of Kafka's own tool for each case",
    ),
    ids=" ".join,
)
async def test_lines_are_javas(kafka1: KafkaCluster, topic_name: str, arguments: tuple[str, ...]) -> None:
    await asyncio.to_thread(kafka1.create_topic, topic_name, partitions=3)

    java, ours = await run_both(kafka1, "--topic", topic_name, *arguments)

    compare(java, ours)


@pytest.mark.extended("starts JVMs of Kafka's own tool; its ordinary lines stay in the gate")
async def test_failures_are_told_as_java_tells_them(
    kafka1: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(kafka1.create_topic, topic_name)
    config = tmp_path / "producer.properties"
    config.write_text("max.request.size=70\n")

    java, ours = await run_both(
        *(kafka1, "--topic", topic_name, "--max-messages", "2", "--repeating-keys", "2"),
        *("--producer.config", str(config)),
    )

    assert ours.pop(0) == java.pop(0)  # that the option is deprecated
    compare(java, ours)
    assert [json.loads(line)["name"] for line in ours[1:3]] == ["producer_send_error"] * 2
    kinds = [json.loads(lines[1])["exception"] for lines in (java, ours)]
    assert [kind.rpartition(".")[0] for kind in kinds] == [
        "class org.apache.kafka.common.errors",
        "class aioproduce.errors",
    ]


@pytest.mark.parametrize(
    "number",
    others_extended(
        [signal.SIGTERM, signal.SIGINT], keep=[signal.SIGTERM], reason="one signal stays in the gate"
    ),
)
async def test_signals_end_both_alike(kafka1: KafkaCluster, topic_name: str, number: signal.Signals) -> None:
    await asyncio.to_thread(kafka1.create_topic, topic_name)

    java, ours = await run_both(
        kafka1, "--topic", topic_name, "--throughput", "100", stop_with=number, lines_first=20
    )

    not_sent = []
    for lines in (java, ours):
        _, *records, shutdown, tool_data = (json.loads(line) for line in lines)
        assert (shutdown["name"], tool_data["name"]) == ("shutdown_complete", "tool_data")
        not_sent.append([event for event in records if event["name"] != "producer_send_success"])
    of_java, of_ours = not_sent
    assert of_ours == []
    # Its main thread may be in a send() when its shutdown hook closes the producer: 4 of 12 runs at 5,000/s.
    assert all("producer" in event["message"].lower() and "closed" in event["message"] for event in of_java)
    assert len(of_java) <= 1
    assert (shape(ours)[:20], shape(ours)[-2:]) == (shape(java)[:20], shape(java)[-2:])


@pytest.mark.extended("starts JVMs of Kafka's own tool; its ordinary lines stay in the gate")
async def test_wrong_usage_ends_both_alike(kafka1: KafkaCluster) -> None:
    for words in (("--topic", "t", "--acks", "2"), ("--max-messages", "1"), ("--help",)):
        java, ours = await run_both(kafka1, *words)
        assert bool(java) == bool(ours)  # the help goes to standard output, complaints do not


async def test_kafkas_consumers_find_what_ours_told(kafka1: KafkaCluster, topic_name: str) -> None:
    count = 3000
    await asyncio.to_thread(kafka1.create_topic, topic_name, partitions=3)

    code, lines = await run_tool(
        *(*OURS, "--bootstrap-server", kafka1.bootstrap_servers, "--topic", topic_name),
        *("--max-messages", f"{count}", "--repeating-keys", "10", "--value-prefix", "1"),
    )

    assert code == 0
    told = {
        (event["partition"], event["offset"], event["key"], event["value"])
        for event in map(json.loads, lines[1:-2])
    }
    assert {value for *_, value in told} == {f"1.{number}" for number in range(count)}
    consumed = await asyncio.to_thread(kafka1.console_consume, topic_name)
    assert {
        (record.partition, record.offset, (record.key or b"").decode(), (record.value or b"").decode())
        for record in consumed
    } == told
    assert await read_by_verifiable_consumer(kafka1, topic_name, count) == told


async def read_by_verifiable_consumer(
    cluster: KafkaCluster, topic: str, count: int
) -> set[tuple[int, int, str, str]]:
    _, lines = await run_tool(
        *cluster.tools.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", topic),
            *("--max-messages", f"{count}", "--verbose"),
        )
    )
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        (event["partition"], event["offset"], event["key"], event["value"])
        for event in events
        if event["name"] == "record_data"
    }
