"""Runs the command line as users do: in a process, with a cluster that lives in the test."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from typing import Any

COMMAND = (sys.executable, "-m", "aioproduce.cli")
# A user's own settings must not reach the tests; help texts and tables are laid out for 100 columns.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in {"AIOPRODUCE_BOOTSTRAP_SERVERS", "COLUMNS"}
} | {"COLUMNS": "100", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it is to be."""
        answer = json.loads(self.out)
        assert isinstance(answer, dict)
        return answer


async def start_cli(*arguments: str, stdin: int = PIPE, stdout: int = PIPE, stderr: int = PIPE) -> Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdin=stdin, stdout=stdout, stderr=stderr, env=ENVIRONMENT
    )


async def finish(process: Process, stdin: bytes | None = None) -> Outcome:
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Outcome(process.returncode, (out or b"").decode(), (err or b"").decode())


async def run_cli(
    *arguments: str, stdin: bytes | None = None, environment: dict[str, str] | None = None
) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=ENVIRONMENT | (environment or {}),
    )
    outcome = await finish(process, stdin)
    assert "Traceback" not in outcome.err
    return outcome
