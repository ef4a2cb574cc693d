"""What a user can get wrong: one line on standard error that names cause and remedy, and nothing half done."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from aioproduce.testing import FakeCluster
from aioproduce.wire.error_codes import TOPIC_AUTHORIZATION_FAILED
from tests.cli.command import ENVIRONMENT, finish, run_cli, start_cli
from tests.drivers.producing import until
from tests.gate.marks import most_extended


def flat(text: str) -> str:
    """Without the frames and line breaks of usage errors."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    most_extended(
        [
            (["-X", "linger.m=5"], "did you mean 'linger.ms'?"),
            (["-X", "linger.ms=-5"], "linger.ms"),
            (["-X", "linger.ms"], "-X takes key=value"),
            (["-X", "enable.idempotence=true", "--acks", "1"], "enable.idempotence"),
            (["--compression", "brotli"], "compression.type='brotli'"),
            (["--config", "no-such.properties"], "'no-such.properties' cannot be read: No such file"),
            (["--header", "no equals sign"], "--header takes name=value, not 'no equals sign'"),
            (["--format", "lines", "--key-field", "a"], "--key-field needs --format json"),
            (["-K", "\\d"], "has a backslash that means nothing"),
            (["--format", "json", "--key-field", "a..b"], "has an empty part"),
            (["--format", "json", "-K", ";"], "use --key-field"),
            (["-K", ""], "one or more characters"),
            (["--partition", "-1"], "'--partition'"),
            (["--rate", "0"], "'--rate'"),
            (["--rate", "inf"], "inf is not a number"),
            (["--timeout", "nan"], "'--timeout'"),
            (
                ["no-such-file", "/"],
                "cannot read 'no-such-file': No such file or directory; '/' is a directory",
            ),
            (["-", "-"], "standard input (-) can be read once only"),
            (["--no-such-option"], "--no-such-option"),
        ],
        one_in=3,
        reason="starts a process for each case",
    ),
)
async def test_wrong_usage_sends_nothing(cluster: FakeCluster, arguments: list[str], message: str) -> None:
    outcome = await run_cli("send", "t", "-b", cluster.bootstrap_servers, *arguments, stdin=b"line\n")

    assert outcome.code == 2
    assert message in flat(outcome.err)
    assert outcome.out == ""
    assert cluster.requests.count() == 0


async def test_nothing_says_where_the_cluster_is() -> None:
    outcome = await run_cli("send", "t", stdin=b"line\n")

    assert outcome.code == 2
    assert "--bootstrap-server" in outcome.err
    assert "AIOPRODUCE_BOOTSTRAP_SERVERS" in outcome.err


async def test_closed_standard_input(cluster: FakeCluster) -> None:
    process = await asyncio.create_subprocess_shell(
        f'exec "$PYTHON" -m aioproduce.cli send t -b {cluster.bootstrap_servers} <&-',
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHON": sys.executable},
    )
    outcome = await finish(process)

    assert outcome.code == 2
    assert "standard input is closed: name a file" in outcome.err


@pytest.mark.parametrize(
    ("line", "message"),
    most_extended(
        [
            (b'{"a": }', "is not JSON: Expecting value at column 7"),
            (b'{"a": NaN}', "is not JSON: NaN is not JSON"),
            (b'{"a": "\xff"}', "is not UTF-8 (byte 8)"),
            (b"[1, 2]", "is JSON, but not an object: '[1, 2]'"),
            (b'{"b": 1}', "has no field 'a' to take the key from"),
            (b'{"a": {"b": 1}}', "has an object in 'a'"),
            (b'{"a": [1]}', "has an array in 'a'"),
            (b'{"a": "\\ud800"}', "a lone surrogate"),
            ("\ufeff{}".encode(), "byte order mark"),
            pytest.param(
                b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply", id="nested"
            ),
        ],
        one_in=3,
        reason="starts a process for each case",
    ),
)
async def test_a_bad_json_line_stops_the_run_and_is_named(
    cluster: FakeCluster, tmp_path: Path, line: bytes, message: str
) -> None:
    file = tmp_path / "events.json"
    good = [b'{"a": "%d"}' % number for number in range(600)]
    file.write_bytes(b"\n".join([*good, line, b'{"a": "never sent"}']))

    outcome = await run_cli(
        *("send", "t", str(file), "--format", "json", "--key-field", "a", "--json"),
        *("-b", cluster.bootstrap_servers),
    )

    assert outcome.code == 2
    assert f"error: {file}, line 601: " in outcome.err
    assert message in outcome.err
    # What was before it is acknowledged, what is after it was not touched.
    assert outcome.json["sent"] == outcome.json["acknowledged"] == 600
    assert sorted(record.value or b"" for record in cluster.records("t")) == sorted(good)
    stopped_by = outcome.json["stopped_by"]
    assert (stopped_by["file"], stopped_by["line"]) == (str(file), 601)


async def test_bad_lines_are_skipped_and_counted(cluster: FakeCluster) -> None:
    lines = [b"k;good" if number % 3 else b"bad" for number in range(30)]

    outcome = await run_cli(
        *("send", "t", "-K", ";", "--on-error", "skip", "--json", "-b", cluster.bootstrap_servers),
        stdin=b"\n".join(lines),
    )

    assert outcome.code == 6
    summary = outcome.json
    assert (summary["sent"], summary["acknowledged"], summary["rejected_lines"]) == (20, 20, 10)
    assert summary["errors"] == {"BadLineError": 10}
    assert [problem["line"] for problem in summary["problems"]] == [1, 4, 7, 10, 13]
    cause = "has no key separator ';'"
    assert summary["causes"] == [{"what": "rejected", "error": "BadLineError", "cause": cause, "count": 10}]
    assert outcome.err == (
        f"error: <stdin>, lines 1, 4, 7, 10, 13: {cause}\n"
        f"error: in total 10 lines were rejected: BadLineError: {cause}\n"
    )


@pytest.mark.parametrize("size", [1_100_000, 5_000_000])  # within the chunks that are held, and beyond
@pytest.mark.parametrize("on_error", ["stop", "skip"])
async def test_a_line_that_is_too_large(cluster: FakeCluster, size: int, on_error: str) -> None:
    outcome = await run_cli(
        *("send", "one", "-b", cluster.bootstrap_servers, "--on-error", on_error, "--json"),
        stdin=b"before\n" + b"x" * size + b"\nafter",
    )

    assert outcome.code == (2 if on_error == "stop" else 6)
    assert "error: <stdin>, line 2: " in outcome.err
    assert "max.request.size=1048576" in outcome.err
    expected = [b"before"] if on_error == "stop" else [b"before", b"after"]
    assert [record.value for record in cluster.records("one")] == expected
    assert outcome.json["rejected_lines"] == 1


async def test_no_broker() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for command, begin in (
            (["send", "t"], "error: no broker answered within 0.5 s"),
            (["check"], f"error: {address} fails at connect: "),
        ):
            outcome = await run_cli(*command, "-b", address, "--timeout", "0.5", stdin=b"line\n")

            assert outcome.code == 1
            assert (outcome.out == "") is (command[0] == "send")
            assert outcome.err.startswith(begin)
            assert address in outcome.err
            assert "refused" in outcome.err.lower() or "111" in outcome.err
            assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("on_error", ["stop", "skip"])
async def test_a_cluster_that_goes_away_is_the_cause(cluster: FakeCluster, on_error: str) -> None:
    process = await start_cli(
        *("send", "one", "-b", cluster.bootstrap_servers, "--json", "--rate", "100", "--on-error", on_error),
        *("-X", "delivery.timeout.ms=400", "-X", "request.timeout.ms=300", "-X", "linger.ms=0"),
    )
    assert process.stdin is not None
    process.stdin.write(b"acknowledged\n")
    await process.stdin.drain()
    await until(lambda: cluster.records("one"))
    await cluster.close()

    outcome = await finish(process, b"".join(b"line %d\n" % number for number in range(200)))

    assert outcome.code == 1
    counts = {cause["cause"]: cause["count"] for cause in outcome.json["causes"]}
    assert sum(counts.values()) == outcome.json["failed"] > 5
    refused = sum(count for cause, count in counts.items() if "Connection refused" in cause)
    assert refused > 5
    assert not any("leader" in cause for cause in counts)
    assert "in total" in outcome.err
    assert "no known leader" not in outcome.err
    # There never was a connection to lose.
    assert "lost the connection: cannot connect" not in outcome.err


async def test_unknown_topic(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        "send", "nowhere", "-b", cluster.bootstrap_servers, "--timeout", "0.5", "--json", stdin=b"line\n"
    )

    assert outcome.code == 1
    assert "there is no such topic" in outcome.err
    assert outcome.json["sent"] == 0
    assert outcome.json["stopped_by"]["error"] == "MetadataTimeoutError"


async def test_topic_that_is_denied_or_has_no_legal_name(cluster: FakeCluster) -> None:
    cluster.deny_topic("t")
    denied = await run_cli("send", "t", "-b", cluster.bootstrap_servers, stdin=b"line\n")
    illegal = await run_cli("send", "a b", "-b", cluster.bootstrap_servers, stdin=b"line\n")

    assert denied.code == 5
    assert "grant this principal Describe and Write" in denied.err
    assert illegal.code == 2
    assert "'a b'" in illegal.err


async def test_partition_that_is_not_there(cluster: FakeCluster) -> None:
    outcome = await run_cli("send", "t", "-p", "6", "-b", cluster.bootstrap_servers, stdin=b"line\n")

    assert outcome.code == 2
    assert "topic 't' has 6 partition(s), 0 to 5, and no partition 6" in outcome.err
    assert cluster.records("t") == []


async def test_records_that_the_broker_refuses(cluster: FakeCluster) -> None:
    cluster.configure_topic("one", max_message_bytes=1000)
    lines = [b"a", b"b" * 2000, b"c"]

    outcome = await run_cli(
        *("send", "one", "-b", cluster.bootstrap_servers, "--on-error", "skip", "--json"),
        *("-X", "max.in.flight.requests.per.connection=1", "-X", "linger.ms=0", "-X", "batch.size=1"),
        stdin=b"\n".join(lines),
    )

    assert outcome.code == 1
    summary = outcome.json
    assert (summary["sent"], summary["acknowledged"], summary["failed"]) == (3, 2, 1)
    assert "error: <stdin>, line 2: " in outcome.err
    assert [record.value for record in cluster.records("one")] == [b"a", b"c"]


async def test_the_first_failure_ends_the_run(cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(TOPIC_AUTHORIZATION_FAILED, times=None)
    process = await start_cli("send", "t", "-b", cluster.bootstrap_servers, "--json")
    assert process.stdin is not None
    assert process.stderr is not None

    # The input never ends by itself: it is the failure that does it.
    async def feed() -> None:
        assert process.stdin is not None
        try:
            while True:
                process.stdin.write(b"line\n" * 1000)
                await process.stdin.drain()
        except ConnectionError:
            pass

    feeding = asyncio.create_task(feed())
    assert process.stdout is not None
    out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    await process.wait()
    await feeding

    assert process.returncode == 1
    assert b"error: <stdin>, lines 1, 2, 3, 4, 5: t-" in err
    assert b"TOPIC_AUTHORIZATION_FAILED" in err
    assert b'"acknowledged": 0' in out
    assert cluster.records("t") == []
