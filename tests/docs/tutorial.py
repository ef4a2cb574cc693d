"""Follows docs/tutorial/index.md word for word: its files, its commands, in an empty folder.

Used by `test_tutorial.py` with the cluster in memory that the page starts, and with a real broker by
`tests/integration/test_tutorial_kafka.py`. Not followed: the making of an environment, whose packages are there
already, and Docker.

1. Only addresses are changed: the ports of the page, and the folder `~/orders`.
2. Every process that a block starts is ended here, also after a failure.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.docs.blocks import ROOT, Block, blocks_of
from tests.kafka_node import PORTS

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE: Final = ROOT / "docs" / "tutorial" / "index.md"
PATIENCE: Final = 120
"""Seconds; a bound for a hang."""


def free_port(following: int = 0) -> int:
    """Return a port that nobody listens on, with as many free ports after it.

    The port lies below those that Linux gives to connections by itself: between this call and its use, another
    test's connection would sooner or later take one of those.
    """
    while True:
        first = random.choice(PORTS)
        try:
            for port in range(first, first + following + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


class Server:
    """A command that runs until it is told to end, and what it said until then."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, words: str) -> None:
        """Wait until it has said that."""
        _until(lambda: words in self.said() or self._process.poll() is not None)
        assert words in self.said(), self.said()

    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        """Press Ctrl-C, and wait."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            return self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)


class Reader:
    """Somebody with the page and an empty folder."""

    def __init__(self, home: Path, kafka: str | None = None) -> None:
        self._home = home
        self.folder = home / "orders"
        self._port = free_port(following=2)
        self.kafka = kafka or f"localhost:{self._port}"
        self.http = f"localhost:{free_port()}"
        self._servers: list[Server] = []
        self._blocks = [block for block in blocks_of(PAGE) if block.kind == "extended"]
        commands = self.folder / ".venv" / "bin"
        commands.mkdir(parents=True)
        for name, module in (("python", ""), ("aioproduce", "-m aioproduce.cli"), ("uvicorn", "-m uvicorn")):
            command = commands / name
            command.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
            command.chmod(0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in reversed(self._servers):
            server.end()

    def block(self, words: str, number: int = 0) -> Block:
        """The page's block with these words; of several, by number."""
        return [block for block in self._blocks if words in block.text][number]

    def save(self, name: str) -> None:
        """Write the file that the page has."""
        page = PAGE.read_text()
        found = re.search(
            rf"Save this program as `~/orders/{re.escape(name)}`:\n\n.*?```python\n(.*?)```", page, re.DOTALL
        )
        assert found, name
        (self.folder / name).write_text(self._here(found[1]))

    def run(self, block: Block) -> str:
        """Run a block of the shell to its end; what it printed."""
        done = subprocess.run(
            ["bash", "-e", "-c", self._here(block.text)],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, block: Block) -> Server:
        """Run a block of the shell whose last command runs until Ctrl-C."""
        log = self._home / f"log-{len(self._servers)}"
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    "bash",
                    "-e",
                    "-c",
                    re.sub(r"^(\.venv\S+ .*)\Z", r"exec \1", self._here(block.text).strip(), flags=re.M),
                ],
                cwd=self.folder,
                env=self._environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        server = Server(process, log)
        self._servers.append(server)
        return server

    def _here(self, text: str) -> str:
        http = self.http.rpartition(":")[2]
        text = text.replace("localhost:9092", self.kafka).replace("localhost:8000", self.http)
        text = text.replace("--port 8000", f"--port {http}")
        return text.replace("dev --topic", f"dev --port {self._port} --topic")

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("KAFKA_", "AIOPRODUCE_"))
        }
        return kept | {
            "HOME": str(self._home),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka,
            "COLUMNS": "200",
        }
