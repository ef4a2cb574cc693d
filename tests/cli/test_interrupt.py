"""Signals and broken pipes: nothing accepted is lost unreported, and no run hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from aioproduce._native.key_hash import partition_for_key
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.cli.command import finish, start_cli


async def feed(process: Process, content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(content)
    await process.stdin.drain()


async def message(process: Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.readline()).decode()


def keys_of_two_brokers(cluster: FakeCluster) -> tuple[bytes, bytes]:
    """Keys of two records whose partitions have different leaders."""
    by_leader = {cluster.leader("t", partition_for_key(b"%d" % key, 6)): b"%d" % key for key in range(100)}
    return by_leader[0], by_leader[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_flushes_and_reports(
    cluster: FakeCluster, consumer: AIOKafkaConsumer, number: signal.Signals, code: int
) -> None:
    # A linger that nobody would wait for: what is acknowledged was flushed by the signal.
    process = await start_cli(
        *("send", "t", "-b", cluster.bootstrap_servers, "--json", "-K", ";", "-X", "linger.ms=60000")
    )
    # The last one is above batch.size and goes at once, to another broker than those before it, which stay.
    small, large = keys_of_two_brokers(cluster)
    big = b"x" * 20_000
    await feed(process, b"".join(small + b";" + line + b"\n" for line in (b"one", b"two", b"three")))
    await feed(process, large + b";" + big + b"\n")
    assert (await consumer.getone()).value == big

    process.send_signal(number)
    outcome = await finish(process)

    assert outcome.code == code
    summary = outcome.json
    assert summary["sent"] == summary["acknowledged"] == 4
    assert summary["signal"] == number.name
    assert f"{number.name}: waiting at most 10 s for 3 records" in outcome.err
    assert sorted(record.value or b"" for record in cluster.records("t")) == [b"one", b"three", b"two", big]


async def test_a_signal_before_anything_is_sent(cluster: FakeCluster) -> None:
    process = await start_cli("send", "t", "-b", cluster.bootstrap_servers, "--json", "--progress")
    assert process.stderr is not None
    await process.stderr.readuntil(b"acked")  # the bar is there: signals are heard

    process.send_signal(signal.SIGINT)
    outcome = await finish(process)

    assert outcome.code == 130
    assert outcome.json["sent"] == 0


async def test_a_signal_while_no_broker_answers(cluster: FakeCluster) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    process = await start_cli(
        *("send", "t", "-b", cluster.bootstrap_servers, "--json", "--timeout", "3600", "--progress")
    )
    assert process.stderr is not None
    await process.stderr.readuntil(b"acked")

    process.send_signal(signal.SIGINT)
    outcome = await finish(process)

    assert outcome.code == 130


async def test_what_is_not_acknowledged_in_time_is_reported(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
    process = await start_cli("send", "one", "-b", cluster.bootstrap_servers, "--json", "--timeout", "0.3")
    await feed(process, b"written\n")
    assert (await consumer.getone()).value == b"written"  # and never acknowledged

    process.send_signal(signal.SIGINT)
    outcome = await finish(process)

    assert outcome.code == 1
    summary = outcome.json
    assert (summary["sent"], summary["acknowledged"], summary["failed"]) == (1, 0, 1)
    assert summary["possibly_written"] == 1
    assert summary["signal"] == "SIGINT"
    assert "error: <stdin>, line 1: " in outcome.err


async def test_a_second_signal_does_not_wait(cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
    cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
    process = await start_cli("send", "one", "-b", cluster.bootstrap_servers, "--json", "--timeout", "3600")
    await feed(process, b"written\n")
    await consumer.getone()

    process.send_signal(signal.SIGINT)
    assert "once more to give them up" in await message(process)
    process.send_signal(signal.SIGINT)
    outcome = await finish(process)

    assert outcome.code == 1
    assert outcome.json["failed"] == 1


async def test_a_signal_during_the_last_flush(cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
    cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
    process = await start_cli("send", "one", "-b", cluster.bootstrap_servers, "--json", "--timeout", "0.3")
    await feed(process, b"written\n")
    assert process.stdin is not None
    process.stdin.close()
    await consumer.getone()

    process.send_signal(signal.SIGTERM)
    outcome = await finish(process)

    assert outcome.code == 1
    assert outcome.json["signal"] == "SIGTERM"


@pytest.mark.parametrize("flags", [[], ["--json"]])
async def test_a_broken_pipe_does_not_hide_what_was_sent(cluster: FakeCluster, flags: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await start_cli("send", "t", "-b", cluster.bootstrap_servers, *flags, stdout=writer)
    os.close(writer)

    outcome = await finish(process, b"a\nb\n")

    # As with any program behind `| head`: the code of SIGPIPE, and no word. The records are acknowledged.
    assert (outcome.code, outcome.err) == (141, "")
    assert len(cluster.records("t")) == 2


async def test_a_progress_bar_that_nobody_reads_does_not_end_the_run(cluster: FakeCluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await start_cli(
        *(
            "send",
            "t",
            "-b",
            cluster.bootstrap_servers,
            "--json",
            "--progress",
            "-K",
            ";",
            "--on-error",
            "skip",
        ),
        stderr=writer,
    )
    os.close(writer)

    outcome = await finish(process, b"no key\n" + b"a;b\n" * 100)

    assert outcome.code == 6
    assert outcome.json["acknowledged"] == 100
    assert outcome.json["rejected_lines"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
async def test_a_full_disk_under_standard_output(cluster: FakeCluster) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    process = await start_cli("send", "t", "-b", cluster.bootstrap_servers, "--json", stdout=full)
    os.close(full)

    outcome = await finish(process, b"a\n")

    assert (outcome.code, outcome.err) == (
        7,
        "error: cannot write to standard output: No space left on device\n",
    )


async def test_a_broken_pipe_of_the_key_table() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await start_cli("config", stdin=DEVNULL, stdout=writer)
    os.close(writer)

    outcome = await finish(process)

    assert (outcome.code, outcome.err) == (141, "")


async def test_an_input_pipe_that_pauses(cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
    process = await start_cli("send", "one", "-b", cluster.bootstrap_servers, "--json", stdin=PIPE)

    for line in (b"first", b"second", b"third"):
        await feed(process, line + b"\n")
        # Acknowledged and readable while the pipe is open and says nothing more.
        assert (await asyncio.wait_for(consumer.getone(), 60)).value == line
    outcome = await finish(process, b"last")

    assert outcome.code == 0
    assert json.loads(outcome.out)["sent"] == 4
