"""`aioproduce send` when all goes well: what arrives, and what is reported. Read back with librdkafka."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from aioproduce.testing import FakeCluster
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli

SUMMARY = {
    "topic": str,
    "acks": int,
    "sent": int,
    "acknowledged": int,
    "failed": int,
    "possibly_written": int,
    "rejected_lines": int,
    "blank_lines": int,
    "left_out": int,
    "bytes": int,
    "seconds": float,
    "records_per_second": float,
    "latency_ms": dict,
    "errors": dict,
    "causes": list,
    "problems": list,
    "stopped_by": type(None),
    "next_line": type(None),
    "signal": type(None),
    "exit_code": int,
}


async def read_back(cluster: FakeCluster, topic: str, count: int) -> list[Message]:
    """`count` records of a topic as librdkafka sees them; by partition, then by offset."""

    def consume() -> list[Message]:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
        try:
            partitions = len(cluster.topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            messages: list[Message] = []
            while len(messages) < count:
                for message in consumer.consume(count - len(messages), timeout=1.0):
                    assert message.error() is None
                    messages.append(message)
            return messages
        finally:
            consumer.close()

    messages = await asyncio.to_thread(consume)
    assert len(cluster.records(topic)) == count  # and nothing came after them
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


async def test_every_line_of_a_file_arrives_once(cluster: FakeCluster, tmp_path: Path) -> None:
    lines = [b"line %06d" % number for number in range(20_000)]
    file = tmp_path / "lines.txt"
    file.write_bytes(b"\n".join(lines) + b"\n")

    outcome = await run_cli("send", "t", str(file), "-b", cluster.bootstrap_servers, "--json")

    assert outcome.code == 0
    assert outcome.err == ""
    messages = await read_back(cluster, "t", len(lines))
    assert Counter(message.value() for message in messages) == Counter(lines)
    assert {message.key() for message in messages} == {None}
    summary = outcome.json
    assert {key: type(value) for key, value in summary.items()} == SUMMARY
    assert summary["sent"] == summary["acknowledged"] == len(lines)
    assert summary["failed"] == summary["rejected_lines"] == summary["exit_code"] == 0
    assert summary["bytes"] == sum(map(len, lines))
    latency = summary["latency_ms"]
    # Above 8192 records one in 2, 4, ... is measured.
    assert 4096 <= latency["samples"] <= 8192
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]


async def test_lines_are_bytes_between_newlines(cluster: FakeCluster) -> None:
    content = b"plain\ncarriage return\r\n  \xff\xfe not UTF-8\n\ttab \x00 zero\nno newline"

    outcome = await run_cli("send", "one", "-b", cluster.bootstrap_servers, "--json", stdin=content)

    assert outcome.code == 0
    messages = await read_back(cluster, "one", 5)
    assert [message.value() for message in messages] == content.split(b"\n")


@pytest.mark.parametrize("arguments", [[], ["--format", "json"], ["-K", "\\t"]])
async def test_blank_lines_are_passed_over_and_counted_in_every_format(
    cluster: FakeCluster, arguments: list[str]
) -> None:
    line = b"{}" if "json" in arguments else b"key\tvalue"
    content = b"\n" + line + b"\n\n \t\r\n" + line + b"\n\n"

    outcome = await run_cli(
        "send", "one", "-b", cluster.bootstrap_servers, "--json", *arguments, stdin=content
    )

    assert (outcome.code, outcome.json["sent"], outcome.json["rejected_lines"]) == (0, 2, 0)
    assert outcome.json["blank_lines"] == 4
    assert len(cluster.records("one")) == 2


async def test_files_and_standard_input_in_their_order(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a1\na2")
    (tmp_path / "b").write_bytes(b"b1\n")
    (tmp_path / "empty").touch()

    outcome = await run_cli(
        *("send", "one", str(tmp_path / "a"), str(tmp_path / "empty"), "-", str(tmp_path / "b")),
        *("-b", cluster.bootstrap_servers, "--json"),
        stdin=b"stdin",
    )

    assert outcome.code == 0
    assert [record.value for record in cluster.records("one")] == [b"a1", b"a2", b"stdin", b"b1"]


async def test_nothing_to_send_is_not_an_error(cluster: FakeCluster) -> None:
    outcome = await run_cli("send", "t", "-b", cluster.bootstrap_servers, "--json", stdin=b"")

    assert outcome.code == 0
    assert outcome.json["sent"] == 0
    assert outcome.json["latency_ms"] is None


async def test_a_line_longer_than_a_chunk_and_many_chunks(cluster: FakeCluster) -> None:
    lines = [b"x" * 3_000_000, b"short", b"y" * 1_500_000, b"z" * 100] * 2

    outcome = await run_cli(
        *("send", "one", "-b", cluster.bootstrap_servers, "--json"),
        *("-X", "max.request.size=4000000"),
        stdin=b"\n".join(lines),
    )

    assert outcome.code == 1  # the topic's own limit of 1 MiB is the broker's to say
    cluster.configure_topic("one", max_message_bytes=4_000_000)
    outcome = await run_cli(
        *("send", "one", "-b", cluster.bootstrap_servers, "--json"),
        *("-X", "max.request.size=4000000"),
        stdin=b"\n".join(lines),
    )
    assert outcome.code == 0
    assert [record.value for record in cluster.records("one")][-len(lines) :] == lines


async def test_json_lines_with_keys_headers_and_compression(cluster: FakeCluster) -> None:
    lines = [
        b'{"user": {"id": "ana"}, "n": 1}',
        b' {"user": {"id": 12.50}, "n": 2} ',
        b'{"user": {"id": 123456789012345678901234567890}}',
        b'{"user": {"id": true}}',
        b'{"user": {"id": null}}',
        '{"user": {"id": "José"}}'.encode(),
    ]

    outcome = await run_cli(
        *(
            "send",
            "t",
            "-b",
            cluster.bootstrap_servers,
            "--json",
            "--key-field",  # which says that the lines are JSON
            "user.id",
        ),
        *("--header", "source=test", "-H", "empty=", "-H", "twice==", "--compression", "zstd"),
        stdin=b"\n".join(lines) + b"\n\n",  # a blank line at the end is no line
    )

    assert (outcome.code, outcome.json["sent"], outcome.json["rejected_lines"]) == (0, len(lines), 0)
    messages = await read_back(cluster, "t", len(lines))
    assert {message.value(): message.key() for message in messages} == {
        lines[0]: b"ana",
        lines[1]: b"12.50",
        lines[2]: b"123456789012345678901234567890",
        lines[3]: b"true",
        lines[4]: None,
        lines[5]: "José".encode(),
    }
    for message in messages:
        assert message.headers() == [("source", b"test"), ("empty", b""), ("twice", b"=")]
    codecs = {batch.header.attributes & 7 for number in range(6) for batch in cluster.log("t", number)}
    assert codecs == {4}


async def test_keys_before_a_separator_keep_their_order(cluster: FakeCluster) -> None:
    lines = [b"key%d\tvalue %d\twith a tab" % (number % 10, number) for number in range(1000)]

    outcome = await run_cli(
        "send", "t", "-b", cluster.bootstrap_servers, "-K", "\\t", "--json", stdin=b"\n".join(lines)
    )

    assert outcome.code == 0
    messages = await read_back(cluster, "t", len(lines))
    by_key: dict[bytes, list[bytes]] = {}
    for message in messages:
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        by_key.setdefault(bytes(key), []).append(bytes(value))
    for digit in range(10):
        expected = [line.partition(b"\t")[2] for line in lines[digit::10]]
        assert by_key[b"key%d" % digit] == expected


async def test_partition_and_acks(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *("send", "t", "-b", cluster.bootstrap_servers, "-p", "4", "--acks", "0"), stdin=b"a\nb\n"
    )

    assert outcome.code == 0
    assert "no broker confirms" in outcome.out
    assert [record.value for record in cluster.records("t", 4)] == [b"a", b"b"]


async def test_settings_from_everywhere_and_which_goes_first(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text(
        "bootstrap.servers=localhost:1\ncompression.type=gzip\nclient.id=from-file\nacks=1\n"
        # What a file of a Java program has; lines are bytes all the same.
        "value.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )

    outcome = await run_cli(
        *("send", "one", "--config", str(file), "-z", "lz4", "-X", "compression.type=snappy", "--json"),
        stdin=b"a line that compresses" * 10,
        environment={"AIOPRODUCE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
    )

    assert outcome.code == 0
    assert outcome.json["acks"] == 1
    assert cluster.log("one")[0].header.attributes & 7 == 2
    assert {entry.client_id for entry in cluster.requests.entries()} == {"from-file"}


async def test_rate_is_not_exceeded(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *("send", "t", "-b", cluster.bootstrap_servers, "--rate", "50", "--json"),
        stdin=b"".join(b"%d\n" % number for number in range(20)),
    )

    assert outcome.code == 0
    # The last of 20 may leave 20/50 s after the first, less the group that goes at once.
    assert outcome.json["seconds"] >= 18 / 50


async def test_the_summary_for_people(cluster: FakeCluster) -> None:
    outcome = await run_cli("send", "t", "-b", cluster.bootstrap_servers, stdin=b"a\nb\n")

    assert outcome.code == 0
    rows = {tuple(line.split()[:2]) for line in outcome.out.splitlines() if line.strip()}
    assert {("sent", "2"), ("acknowledged", "2"), ("failed", "0")} <= rows
    assert "p99 latency" in outcome.out
    assert "2 records measured" in outcome.out


async def test_a_progress_bar_on_a_terminal_only(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"line\n" * 5000)
    terminal, standard_error = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "send", "t", str(file), "-b", cluster.bootstrap_servers, "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=standard_error,
        env=ENVIRONMENT | {"TERM": "xterm"},
    )
    os.close(standard_error)

    shown = asyncio.create_task(asyncio.to_thread(_read_terminal, terminal))
    out, _ = await process.communicate()

    assert process.returncode == 0
    assert json.loads(out)["sent"] == 5000
    bar = await shown
    assert "lines.txt" in bar
    assert "25.0/25.0 kB" in bar
    assert "5,000 acked" in bar


def _read_terminal(terminal: int) -> str:
    content = b""
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(65536)
            except OSError:  # what Linux says when the other side is closed
                part = b""
            if not part:
                return content.decode()
            content += part


async def test_progress_that_is_redirected_has_nothing_that_moves_a_cursor(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        "send", "t", "-b", cluster.bootstrap_servers, "--json", "--progress", stdin=b"a\nb\n"
    )

    assert outcome.code == 0
    assert re.fullmatch(r"<stdin>, 0 acked 0/s\n<stdin>, 2 acked [\d,]+/s\n", outcome.err)


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["send", "-h"], ["dev", "-h"]])
async def test_help_and_version_need_no_cluster(arguments: list[str]) -> None:
    outcome = await run_cli(*arguments)

    assert (outcome.code, outcome.err) == (0, "")
    assert "aioproduce" in outcome.out
