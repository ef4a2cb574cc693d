"""`aioproduce perf` when something is wrong: options, cluster, records, the user's patience."""

from __future__ import annotations

import importlib.util
import signal
import socket
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from typer.testing import CliRunner

from aioproduce.cli import perf_payloads
from aioproduce.cli.app import app
from aioproduce.cli.perf_command import _check_plot
from aioproduce.errors import ConfigError
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import INVALID_RECORD
from tests.cli.command import finish, run_cli, start_cli
from tests.cli.perf_lines import read
from tests.cli.test_bad_input import flat
from tests.gate.marks import most_extended

SIZE = ("--record-size", "10")


@pytest.mark.parametrize(
    ("arguments", "cause", "remedy"),
    most_extended(
        [
            ([*SIZE, "--num-records", "0"], "--num-records 0", "give 1 or more"),
            ([*SIZE, "--num-records", "-5"], "--num-records -5", "give 1 or more"),
            (["--record-size", "0"], "--record-size 0", "give 1 byte or more"),
            (["--record-size", "-1"], "--record-size -1", "give 1 byte or more"),
            (["--record-size", "1048576"], "more than max.request.size=1048576", "raise max.request.size"),
            (
                ["--record-size", "99999", "--command-property", "buffer.memory=40000", "batch.size=1"],
                "more than buffer.memory=40000",
                "raise buffer.memory",
            ),
            ([*SIZE, "--payload-monotonic"], "--record-size and --payload-monotonic", "exactly one of"),
            ([*SIZE, "--payload-file", "full"], "--record-size and --payload-file", "exactly one of"),
            ([], "none was given", "exactly one of --record-size, --payload-file, --payload-monotonic"),
            (["--payload-file", "empty"], "holds no payload", "put one or more into it"),
            (["--payload-file", "newline"], "holds no payload", "put one or more into it"),
            (["--payload-file", "missing"], "cannot read --payload-file", "No such file"),
            (["--payload-file", "."], "cannot read --payload-file", "directory"),
            (["--payload-file", "full", "--payload-delimiter", "("], "no regular expression", "missing )"),
            (
                ["--payload-file", "full", "--payload-delimiter", "x*"],
                "matches the empty string",
                "give one or more",
            ),
            (["--payload-file", "huge"], "the largest payload of --payload-file", "raise max.request.size"),
            ([*SIZE, "--throughput", "0"], "--throughput 0", "-1 for no limit"),
            ([*SIZE, "--throughput", "nan"], "--throughput nan", "-1 for no limit"),
            ([*SIZE, "--throughput", "fast"], "--throughput", "as a number"),
            ([*SIZE, "--warmup-records", "100"], "--warmup-records 100", "fewer than --num-records 100"),
            ([*SIZE, "--warmup-records", "-1"], "--warmup-records -1", "give 0 or more"),
            ([*SIZE, "--reporting-interval", "0"], "--reporting-interval 0", "give 1 millisecond or more"),
            ([*SIZE, "--timeout", "nan"], "--timeout", "greater than or equal to 0"),
            ([*SIZE, "--transactional-id", "x"], "--transactional-id", "without transactions; leave it out"),
            (
                [*SIZE, "--transaction-duration-ms", "9"],
                "--transaction-duration-ms",
                "without transactions; leave",
            ),
            ([*SIZE, "--producer-props", "transactional.id=x"], "transactional.id", "transaction"),
            ([*SIZE, "--producer-props", "linger.m=5"], "linger.m", "did you mean 'linger.ms'?"),
            ([*SIZE, "--producer-props", "acks=all", "linger.ms"], "'linger.ms'", "takes key=value"),
            (
                [*SIZE, "--producer-props", "a=b", "--command-property", "c=d"],
                "are the same",
                "give one of them",
            ),
            ([*SIZE, "--producer.config", "a", "--command-config", "b"], "are the same", "give one of them"),
            ([*SIZE, "--producer.config", "missing"], "'missing' cannot be read", "No such file"),
            ([*SIZE, "--plot", "out.gif"], "--plot out.gif", "must end in .svg or .png"),
            ([*SIZE, "--plot", "no/such/out.svg"], "there is no folder", "make it, or name another"),
            ([*SIZE, "--plot", "folder.svg"], "is a folder", "name a file in it"),
            ([*SIZE, "extra"], "extra", "unexpected extra argument"),
        ],
        one_in=4,
        reason="starts a process for each case",
    ),
)
async def test_wrong_usage_sends_nothing(
    cluster: FakeCluster,
    tmp_path: Path,
    arguments: list[str],
    cause: str,
    remedy: str,
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "newline").write_bytes(b"\n")
    (tmp_path / "full").write_bytes(b"payload\n")
    (tmp_path / "huge").write_bytes(b"small\n" + b"x" * 2_000_000)
    (tmp_path / "folder.svg").mkdir()
    # Not the directory of the process under test: a checkout that is not installed is found in this one.
    files = {"empty", "newline", "full", "missing", "huge", "folder.svg"}
    arguments = [str(tmp_path / one) if one in files else one for one in arguments]
    count = () if "--num-records" in arguments else ("--num-records", "100")

    outcome = await run_cli("perf", "--topic", "t", "-b", cluster.bootstrap_servers, *count, *arguments)

    assert outcome.code == 2
    assert cause in flat(outcome.err).replace(f"{tmp_path}/", "")
    assert remedy in flat(outcome.err)
    assert [line for line in outcome.out.splitlines() if "ayload" not in line and "read:" not in line] == []
    assert cluster.requests.count() == 0


async def test_nothing_says_where_the_cluster_is() -> None:
    outcome = await run_cli("perf", "--topic", "t", "--num-records", "1", *SIZE)

    assert outcome.code == 2
    for way in ("--bootstrap-server", "AIOPRODUCE_BOOTSTRAP_SERVERS", "--command-config", "aioproduce dev"):
        assert way in outcome.err


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, package: str | None = None) -> None:
        assert name == "matplotlib"

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ConfigError, match=r"pip install 'aioproduce\[plot\]'"):
        _check_plot("out.svg")


def test_records_that_memory_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(count: int) -> bytearray:
        raise MemoryError

    monkeypatch.setattr(perf_payloads, "_random_letters", refuse)
    runner = CliRunner()
    arguments = ("--topic", "t", "--num-records", "1", "--record-size", "2147483000", "-b", "localhost:1")
    raised = ("--producer-props", "max.request.size=2147483647", "buffer.memory=4294967296")
    outcome = runner.invoke(app, ["perf", *arguments, *raised])
    assert outcome.exit_code == 2
    assert "--record-size 2147483000: this machine has no memory" in outcome.stderr
    assert "make them smaller" in outcome.stderr


async def test_nobody_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        outcome = await run_cli(
            *("perf", "--topic", "t", "--num-records", "1", *SIZE, "-b", f"127.0.0.1:{port}"),
            *("--timeout", "1", "--json"),
        )

    assert outcome.code == 1
    assert f"127.0.0.1:{port}" in outcome.err
    assert outcome.json["stopped_by"]["error"] == "NoBrokerAvailableError"
    assert outcome.json["total"] is None


async def test_an_unknown_topic(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *("perf", "--topic", "nowhere", "--num-records", "1", *SIZE, "-b", cluster.bootstrap_servers),
        *("--timeout", "1"),
    )

    assert outcome.code == 1
    assert "nowhere" in outcome.err
    assert outcome.out == ""


async def test_records_that_fail_are_counted_and_have_no_latency(cluster: FakeCluster) -> None:
    # One answer refuses a batch; batch.size=1 makes a batch of each record.
    cluster.faults.fail_produce(INVALID_RECORD, times=3, topic="one")

    outcome = await run_cli(
        *("perf", "--topic", "one", "--num-records", "20", *SIZE, "-b", cluster.bootstrap_servers),
        *("--producer-props", "batch.size=1", "enable.idempotence=false"),
    )

    assert outcome.code == 1
    assert read(outcome.out).totals[0][0] == "17"
    assert len(cluster.records("one")) == 17
    assert "3 record(s) failed, " in outcome.err


async def test_all_fail(cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(INVALID_RECORD, times=None)

    outcome = await run_cli(
        *("perf", "--topic", "one", "--num-records", "500", *SIZE, "-b", cluster.bootstrap_servers, "--json"),
    )

    assert outcome.code == 1
    assert (outcome.json["acknowledged"], outcome.json["failed"]) == (0, 500)
    assert outcome.json["total"]["latency_ms"] is None
    assert sum(outcome.json["errors"].values()) == 500
    assert sum(slot["failed"] for slot in outcome.json["timeline"]) == 500


async def test_a_buffer_that_stays_full(cluster: FakeCluster) -> None:
    # Nothing is answered, and there is room for three: the fourth and fifth are refused after max.block.ms.
    cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)

    outcome = await run_cli(
        *("perf", "--topic", "one", "--num-records", "5", "--record-size", "10000", "--json"),
        *("-b", cluster.bootstrap_servers, "--producer-props", "buffer.memory=32768", "max.block.ms=500"),
        *("batch.size=1", "linger.ms=0", "request.timeout.ms=1500", "delivery.timeout.ms=2000"),
    )

    assert outcome.code == 1
    answer = outcome.json
    assert (answer["sent"], answer["acknowledged"], answer["failed"]) == (5, 0, 5)
    assert answer["errors"]["BufferExhaustedError"] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_the_sending_and_reports(
    cluster: FakeCluster, consumer: AIOKafkaConsumer, number: signal.Signals, code: int
) -> None:
    process = await start_cli(
        *("perf", "--topic", "one", "--num-records", "1000000", *SIZE, "-b", cluster.bootstrap_servers),
        *("--throughput", "1000", "--json"),
    )
    await consumer.getone()

    process.send_signal(number)
    outcome = await finish(process)

    assert outcome.code == code
    answer = outcome.json
    assert answer["signal"] == number.name
    assert 0 < answer["acknowledged"] == answer["sent"] == len(cluster.records("one")) < 1_000_000
    assert answer["total"]["records"] == answer["acknowledged"]


async def test_a_second_signal_does_not_wait(cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
    cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
    process = await start_cli(
        *(
            "perf",
            "--topic",
            "one",
            "--num-records",
            "1000",
            *SIZE,
            "-b",
            cluster.bootstrap_servers,
            "--json",
        ),
        *("--timeout", "600"),
    )
    await consumer.getone()
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert b"SIGINT: waiting at most 600 s" in await process.stderr.readline()

    process.send_signal(signal.SIGINT)
    outcome = await finish(process)

    assert outcome.code == 1
    answer = outcome.json
    assert answer["failed"] == answer["sent"] > 0
    assert answer["acknowledged"] == 0
