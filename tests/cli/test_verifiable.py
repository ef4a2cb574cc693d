"""``python -m aioproduce.verifiable`` as a process, against FakeCluster: lines, options, exit codes, ends.

What Kafka's own tool does was found out by running it; ``integration/test_verifiable_kafka.py`` compares both on a
real broker. Here are the ends that need a broker which misbehaves, and every option without a Java.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.testing import FakeCluster
from aioproduce.wire.error_codes import NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED
from tests.cli.command import ENVIRONMENT, Outcome, finish

if TYPE_CHECKING:
    from pathlib import Path

SUCCESS = {"timestamp", "name", "key", "value", "offset", "topic", "partition"}
ERROR = {"timestamp", "name", "topic", "key", "value", "exception", "message"}
TOOL_DATA = {"timestamp", "name", "sent", "acked", "target_throughput", "avg_throughput"}


async def start_verifiable(*arguments: str, stdout: int = PIPE, unbuffered: str = "") -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioproduce.verifiable", *arguments),
        stdin=DEVNULL,
        stdout=stdout,
        stderr=PIPE,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
    )


async def run_verifiable(*arguments: str) -> Outcome:
    outcome = await finish(await start_verifiable(*arguments))
    assert "Traceback" not in outcome.err
    return outcome


async def next_event(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    event: dict[str, Any] = json.loads(await process.stdout.readline())
    return event


def events_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def checked(outcome: Outcome) -> list[dict[str, Any]]:
    """The lines of the records, of an output that begins and ends as it must."""
    first, *events, shutdown, tool_data = events_of(outcome.out)
    assert (first["name"], shutdown["name"], tool_data["name"]) == (
        "startup_complete",
        "shutdown_complete",
        "tool_data",
    )
    assert set(first) == set(shutdown) == {"timestamp", "name"}
    assert set(tool_data) == TOOL_DATA
    assert {event["name"] for event in events} <= {"producer_send_success", "producer_send_error"}
    acked = sum(event["name"] == "producer_send_success" for event in events)
    assert (tool_data["sent"], tool_data["acked"]) == (len(events), acked)
    return events


async def test_every_record_has_its_line_and_its_place_in_the_log(cluster: FakeCluster) -> None:
    outcome = await run_verifiable(
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--max-messages", "2000"
    )

    assert (outcome.code, outcome.err) == (0, "")
    events = checked(outcome)
    assert all(set(event) == SUCCESS for event in events)
    assert sorted(int(event["value"]) for event in events) == list(range(2000))
    told = {(event["partition"], event["offset"]): event["value"].encode() for event in events}
    assert told == {(record.partition, record.offset): record.value for record in cluster.records("t")}


async def test_prefix_keys_and_create_time(cluster: FakeCluster) -> None:
    outcome = await run_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "one", "--max-messages", "5"),
        *("--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "1000"),
        *("--throughput", "40"),
    )

    assert outcome.code == 0
    assert [(event["key"], event["value"]) for event in checked(outcome)] == [
        ("0", "7.0"),
        ("1", "7.1"),
        ("0", "7.2"),
        ("1", "7.3"),
        ("0", "7.4"),
    ]
    records = cluster.records("one")
    assert [(record.key, record.value) for record in records] == [
        (b"0", b"7.0"),
        (b"1", b"7.1"),
        (b"0", b"7.2"),
        (b"1", b"7.3"),
        (b"0", b"7.4"),
    ]
    times = [record.timestamp for record in records]
    assert times[0] == 1000
    # Record n comes (n - 1)/40 s after the first (Java's throttle lets two go at once), and its time is the sum
    # of how far the run was at each record before it: at least 0 + 0 + 25 + 50 ms for the last.
    assert times == sorted(times)
    assert times[-1] >= 1075


async def test_throughput_zero_waits_for_a_signal_after_two(cluster: FakeCluster) -> None:
    process = await start_verifiable(
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--throughput", "0"
    )
    start, first, second = [await next_event(process) for _ in range(3)]
    assert (start["name"], first["value"], second["value"]) == ("startup_complete", "0", "1")

    process.send_signal(signal.SIGTERM)
    outcome = await finish(process)

    assert outcome.code == 143
    assert [event["name"] for event in events_of(outcome.out)] == ["shutdown_complete", "tool_data"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_settles_what_was_sent(
    cluster: FakeCluster, number: signal.Signals, code: int, unbuffered: str
) -> None:
    """Also where it interrupts a write of many lines: none is cut."""
    process = await start_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t"), unbuffered=unbuffered
    )
    await next_event(process)
    first = await next_event(process)
    assert first["name"] == "producer_send_success"

    process.send_signal(number)
    outcome = await finish(process)

    assert outcome.code == code
    *events, shutdown, tool_data = events_of(outcome.out)
    assert (shutdown["name"], tool_data["name"]) == ("shutdown_complete", "tool_data")
    assert {event["name"] for event in events} <= {"producer_send_success"}
    assert tool_data["sent"] == tool_data["acked"] == len(events) + 1 == len(cluster.records("t"))


async def test_a_signal_while_no_broker_answers(cluster: FakeCluster, tmp_path: Path) -> None:
    """send() waits for metadata that never comes: the signal ends it, and the record's failure is told."""
    for broker in range(3):
        cluster.faults.stall(broker)
    config = tmp_path / "producer.properties"
    config.write_text("max.block.ms=3600000\n")
    process = await start_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--command-config", str(config))
    )
    assert (await next_event(process))["name"] == "startup_complete"

    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # changes nothing
    outcome = await finish(process)

    assert outcome.code in (130, 143)  # which of two that wait is heard first is the system's choice
    failed, _, tool_data = events_of(outcome.out)
    assert set(failed) == ERROR
    assert (failed["name"], failed["value"]) == ("producer_send_error", "0")
    assert failed["exception"] == "class aioproduce.errors.ProducerClosedError"
    assert (tool_data["sent"], tool_data["acked"]) == (1, 0)


async def test_failures_have_their_lines_and_change_no_exit_code(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("max.block.ms=50\n")
    outcome = await run_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "nowhere", "--max-messages", "2"),
        *("--repeating-keys", "1", "--command-config", str(config)),
    )

    assert outcome.code == 0
    events = checked(outcome)
    assert [(event["name"], event["key"], event["value"]) for event in events] == [
        ("producer_send_error", "0", "0"),
        ("producer_send_error", "0", "1"),
    ]
    assert all(set(event) == ERROR and event["topic"] == "nowhere" for event in events)
    assert {event["exception"] for event in events} == {"class aioproduce.errors.MetadataTimeoutError"}


@pytest.mark.parametrize(
    ("code", "is_appended", "possibly_written"),
    [(REQUEST_TIMED_OUT, True, True), (TOPIC_AUTHORIZATION_FAILED, False, False)],
)
async def test_whether_a_failed_record_may_be_written_is_told_when_asked_for(
    cluster: FakeCluster, code: int, is_appended: bool, possibly_written: bool
) -> None:
    cluster.faults.fail_produce(code, times=1, topic="one", after_append=is_appended)
    outcome = await run_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "one", "--max-messages", "1"),
        "--aioproduce-possibly-written",
    )

    (event,) = checked(outcome)
    assert set(event) == ERROR | {"possibly_written"}
    assert event["exception"] == "class aioproduce.errors.BrokerRejectedError"
    assert event["possibly_written"] is possibly_written
    assert len(cluster.records("one")) == is_appended


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (None, "producer_send_error"),
        ("--command-config", "producer_send_success"),
        ("--producer.config", "producer_send_success"),
    ],
)
async def test_no_retries_as_in_java_unless_the_file_says_so(
    option: str | None, name: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    config = tmp_path / "producer.properties"
    config.write_text(
        "retries=2147483647\nvalue.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )
    cluster.faults.fail_produce(NOT_LEADER_OR_FOLLOWER, times=1, topic="one")
    outcome = await run_verifiable(
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "one", "--max-messages", "1"),
        *(() if option is None else (option, str(config))),
    )

    lines = outcome.out.splitlines()
    if option == "--producer.config":
        assert lines.pop(0).startswith("Option --producer.config has been deprecated")
    assert json.loads(lines[1])["name"] == name


async def test_the_file_goes_before_the_options(cluster: FakeCluster, tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text(f"acks=0\nbootstrap.servers={cluster.bootstrap_servers}\n")
    outcome = await run_verifiable(
        *("--bootstrap-server", "127.0.0.1:1", "--topic", "one", "--max-messages", "1", "--acks", "-1"),
        *("--command-config", str(config)),
    )

    assert [event["offset"] for event in checked(outcome)] == [-1]  # acks=0 tells no offset


WHERE = ("--topic", "t", "--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (WHERE[:2], "--bootstrap-server"),
        (WHERE[2:], "--topic"),
        ((*WHERE, "--acks", "2"), "--acks"),
        ((*WHERE, "--acks", "all"), "--acks"),
        ((*WHERE, "--max-messages", "3000000000"), "--max-messages"),
        ((*WHERE, "--value-prefix", "a"), "--value-prefix"),
        ((*WHERE, "--producer.config", "a", "--command-config", "b"), "mutually exclusive"),
        ((*WHERE, "--command-config", "no-such-file"), "no-such-file"),
        ((*WHERE, "--max", "1"), "--max"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
async def test_wrong_usage_ends_with_1(arguments: tuple[str, ...], complaint: str) -> None:
    outcome = await run_verifiable(*arguments)

    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err


async def test_a_bad_setting_ends_with_1(tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("acks=7\n")
    outcome = await run_verifiable(
        "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--command-config", str(config)
    )

    assert (outcome.code, outcome.out) == (1, "")
    assert "acks" in outcome.err


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--help"], 1), (["-h"], 1)])
async def test_help_has_every_option_and_javas_exit_code(arguments: list[str], code: int) -> None:
    outcome = await run_verifiable(*arguments)

    assert (outcome.code, outcome.err) == (code, "")
    for option in (
        *("--topic", "--bootstrap-server", "--max-messages", "--throughput", "--acks", "--producer.config"),
        *("--message-create-time", "--value-prefix", "--repeating-keys", "--command-config"),
    ):
        assert option in outcome.out


async def test_a_reader_that_goes_away_ends_the_run(cluster: FakeCluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await start_verifiable(
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", stdout=writer
    )
    os.close(writer)

    outcome = await finish(process)

    assert outcome.code == 1
    assert outcome.err == "error: cannot write to standard output: Broken pipe\n"
