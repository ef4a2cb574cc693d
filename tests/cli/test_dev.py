"""`aioproduce dev`, `check` and `config`."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from aioproduce.config import KEYS
from aioproduce.testing import FakeCluster
from tests.cli.command import finish, run_cli, start_cli

CONFIGURATION = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


@pytest.mark.extended("starts five processes; the text output stays in the gate")
async def test_a_cluster_until_ctrl_c() -> None:
    process = await start_cli(
        "dev", "--port", "0", "--brokers", "2", "--topic", "a:5", "--topic", "b", "--json"
    )
    assert process.stdout is not None
    told = json.loads(await process.stdout.readline())
    servers = told["bootstrap_servers"]
    assert len(servers.split(",")) == 2
    assert told["topics"] == {"a": 5, "b": 6}

    sent = await run_cli("send", "a", "-b", servers, "--json", stdin=b"1\n2\n3\n")
    assert (sent.code, sent.json["acknowledged"]) == (0, 3)
    created = await run_cli("send", "created", "-b", servers, "--json", stdin=b"4\n")
    assert created.code == 0
    checked = await run_cli("check", "-b", servers, "--json")
    assert checked.code == 0
    assert sorted(checked.json["brokers"].values()) == sorted(servers.split(","))
    consumer = AIOKafkaConsumer("a", bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        assert {(await consumer.getone()).value for _ in range(3)} == {b"1", b"2", b"3"}
    finally:
        await consumer.stop()

    process.send_signal(signal.SIGINT)
    outcome = await finish(process)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


async def test_what_it_tells_people() -> None:
    process = await start_cli("dev", "--port", "0", "--topic", "orders:3")
    assert process.stdout is not None
    assert b"3 brokers in memory" in await process.stdout.readline()
    await process.stdout.readline()
    line = (await process.stdout.readline()).decode()
    assert line.startswith("bootstrap servers: 127.0.0.1:")
    servers = line.removeprefix("bootstrap servers: ").strip()
    assert (await run_cli("send", "orders", "-b", servers, stdin=b"1\n2\n")).code == 0

    process.send_signal(signal.SIGTERM)
    outcome = await finish(process)

    assert outcome.code == 0
    assert f"aioproduce send orders -b {servers}" in outcome.out
    assert "  orders: 2 records\n" in outcome.out


async def test_consecutive_ports_and_one_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        outcome = await run_cli("dev", "--brokers", "1", "--port", str(port))

    assert outcome.code == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in outcome.err
    assert "--port 0" in outcome.err


@pytest.mark.extended("starts a process for each case")
async def test_topics_that_cannot_be() -> None:
    for topic, reason in (("a:0", "name:partitions"), ("a:x", "name:partitions"), ("a b", "a b")):
        outcome = await run_cli("dev", "--port", "0", "--topic", topic)
        assert outcome.code == 2
        assert reason in outcome.err
    outcome = await run_cli("dev", "--port", "0", "--topic", "a", "--topic", "a:2")
    assert (outcome.code, outcome.err) == (2, "error: topic 'a' is named twice\n")


async def test_check_for_people(cluster: FakeCluster) -> None:
    outcome = await run_cli("check", environment={"AIOPRODUCE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})

    assert (outcome.code, outcome.err) == (0, "")
    assert "answers, 3 broker(s):" in outcome.out
    for node, port in cluster.ports.items():
        assert f"  {node}: 127.0.0.1:{port}\n" in outcome.out


async def test_the_key_table() -> None:
    page = await run_cli("config")
    rows = await run_cli("config", "--json")

    assert page.code == 0
    assert [line.split(" (")[0] for line in page.out.splitlines() if line[:1].strip()] == list(KEYS)
    assert max(map(len, page.out.splitlines())) <= 100
    assert rows.code == 0
    table = {row["key"]: row for row in json.loads(rows.out)}
    assert table.keys() == KEYS.keys()
    assert table["linger.ms"]["default"] == 5
    assert table["acks"]["is_refused"] is False
