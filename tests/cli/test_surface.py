"""What is alike for all commands: help, version, exit codes, early Ctrl-C; and `aioproduce config`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aioproduce import __version__
from aioproduce.cli.app import app
from aioproduce.cli.check import Findings, Step, Trial
from aioproduce.cli.check_view import problem_lines
from aioproduce.cli.exit_codes import EPILOG, MEANINGS, ExitCode, exit_code_of
from aioproduce.cli.help_texts import WIDEST
from aioproduce.cli.spool import spool
from aioproduce.cli.txn import txn
from aioproduce.config import KEYS
from aioproduce.errors import AuthenticationError, InvalidTopicError, ProducerError, TlsError
from aioproduce.testing import FakeCluster
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "send-files.md"
COMMANDS = [
    "",
    "send",
    "perf",
    "check",
    "config",
    "dev",
    "dashboard",
    "top",
    "txn list",
    "txn abort",
    "spool dump",
]


def flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


# -- help and version ---


@pytest.mark.extended(
    "starts a process for each case; `test_help_and_version_need_no_cluster` stays in the gate"
)
@pytest.mark.parametrize("command", COMMANDS)
async def test_help_can_be_read_in_a_wide_terminal(command: str) -> None:
    outcome = await run_cli(*command.split(), "--help", environment={"COLUMNS": "425"})

    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= WIDEST
    # The same table everywhere, with a line for each code.
    told = re.findall(r"^ +(\d+)  (\S.*?) *$", outcome.out, re.MULTILINE)
    assert [(int(code), text) for code, text in told] == list(MEANINGS.items())


def test_every_command_has_the_table() -> None:
    commands = [*app.registered_commands, *txn.registered_commands, *spool.registered_commands]
    assert len(commands) == 18
    assert {command.epilog for command in commands} == {EPILOG}


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(int(code), text) for code, text in rows] == list(MEANINGS.items())
    assert set(MEANINGS) == set(ExitCode)


@pytest.mark.parametrize("arguments", [["-v"], ["-V"]])
async def test_the_version_by_a_short_name(arguments: list[str]) -> None:
    outcome = await run_cli(*arguments)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"aioproduce {__version__}")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproduce", "config", "acks", "--json"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [row["key"] for row in json.loads(done.stdout)] == ["acks"]


# -- exit codes ---


def test_what_stopped_a_command_has_one_code_in_every_command() -> None:
    for error, code in (
        (TlsError("no", reason="no"), 3),
        (AuthenticationError("no", mechanism="PLAIN"), 4),
        (InvalidTopicError("no", topic="a b"), 2),
        (ProducerError("no"), 1),
    ):
        assert exit_code_of(error) == code


@pytest.mark.extended(
    "starts two processes; `test_consecutive_ports_and_one_that_is_taken` stays in the gate"
)
async def test_a_port_in_use_is_the_same_everywhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in (["dev", "--brokers", "1"], ["dashboard", "--demo"]):
            outcome = await run_cli(*command, "--port", port)
            assert outcome.code == 2
            assert "--port 0" in outcome.err


# -- Ctrl-C ---


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to another process")
async def test_ctrl_c_while_it_imports_says_nothing(tmp_path: Path) -> None:
    # A stand-in for typer, whose import takes as long as the test wants.
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    (tmp_path / "typer.py").write_text(f"open({str(begun)!r}, 'w').close()\nimport time\ntime.sleep(3600)\n")
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "--help"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        # A shell's background job ignores SIGINT, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    await asyncio.to_thread(begun.read_bytes)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert (out, err) == (b"", b"")
    assert process.returncode == -signal.SIGINT  # which a shell shows as 130


# -- check ---


def test_brokers_that_fail_of_the_same_share_a_line() -> None:
    same, other = Step("metadata", False, "no such {} topic"), Step("connect", False, "refused")
    trials = [
        Trial(address, False, (node,), (step,))
        for node, (address, step) in enumerate([("a:1", same), ("b:1", other), ("c:1", same)])
    ]

    assert list(problem_lines(Findings(None, {}, tuple(trials)))) == [
        "error: a:1, c:1 fail at metadata: no such {} topic",
        "error: b:1 fails at connect: refused",
    ]


# -- config ---


@pytest.mark.parametrize("name", ["linger.ms", "linger_ms", "AIOPRODUCE_LINGER_MS", "LINGER"])
async def test_a_setting_is_explained(name: str) -> None:
    outcome = await run_cli("config", name)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("linger.ms\n")
    facts = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", outcome.out, re.MULTILINE))
    assert facts["default"] == "5"  # Java's since Kafka 4.0 (KIP-1030)
    assert facts["in Python"] == "Producer(linger_ms=...)"
    assert facts["in Java"].startswith("linger.ms")
    assert "AIOPRODUCE_LINGER_MS" in facts["environment"]
    assert "milliseconds" in facts["values"]


@pytest.mark.extended("starts processes; the test above stays in the gate")
async def test_settings_by_a_part_of_their_names() -> None:
    found = await run_cli("config", "ssl.truststore")
    wrong = await run_cli("config", "ligner.ms")
    unknown = await run_cli("config", "zzz")
    refused = await run_cli("config", "metric.reporters")
    several = await run_cli("config", "acks", "batch.size", "--json")

    assert [line.split()[0] for line in found.out.splitlines() if line[:1].strip()] == [
        key for key in KEYS if "ssl.truststore" in key
    ]
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean linger.ms" in wrong.err
    assert (unknown.code, unknown.err) == (
        2,
        "error: there is no setting 'zzz': `aioproduce config` lists all keys\n",
    )
    assert refused.code == 0
    assert [row["key"] for row in json.loads(several.out)] == ["acks", "batch.size"]


# -- without a reader ---


async def test_a_full_disk_and_a_closed_output_are_errors(cluster: FakeCluster) -> None:
    process = await asyncio.create_subprocess_shell(
        f'echo line | "$PYTHON" -m aioproduce send t -b {cluster.bootstrap_servers} >&-',
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHON": sys.executable},
    )
    _, err = await process.communicate()

    assert (process.returncode, err) == (7, b"error: standard output is closed\n")
    assert len(cluster.records("t")) == 1
