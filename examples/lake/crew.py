"""The processes of the story: started, killed, and in the end all gone.

Used by `story`.

1. A process is ended by its pid and with all that it started; none by a name.
2. Each has a session of its own, so that a Ctrl-C in the terminal reaches the story alone, which ends them in
   order.
3. Where `setpriv` exists the kernel kills them with the story.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.processes import family, kill_family

POLL_INTERVAL: Final = 0.1
END_TIMEOUT: Final = 60.0


class CrewError(Exception):
    """A process ended otherwise than it should have; the text holds the end of what it said."""


class Crew:
    """Processes by name.

    Args:
        folder: For what they print.
        directory: Where they run.
        environment: Theirs, whole.
    """

    def __init__(self, folder: Path, directory: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._directory = directory
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> int:
        """Start a process under a name, which a dead one may have had before; returns its pid."""
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with open(self.log(name), "ab") as log, open(self._folder / f"{name}.out", "ab") as out:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """What it says on standard error."""
        return self._folder / f"{name}.log"

    def printed(self, name: str) -> str:
        """What it said on standard output."""
        return (self._folder / f"{name}.out").read_text()

    def tail(self, name: str, size: int = 3_000) -> str:
        """The end of what it said on standard error."""
        return self.log(name).read_bytes()[-size:].decode(errors="replace")

    def is_running(self, name: str) -> bool:
        """Whether it lives."""
        return self._processes[name].poll() is None

    def family(self, name: str) -> list[int]:
        """Its pid, and those of all that it started: for a Spark driver, the JVM and its Python workers."""
        return family(self._processes[name].pid)

    def kill(self, name: str) -> None:
        """SIGKILL to the whole family: nothing of it is told."""
        process = self._processes[name]
        kill_family(process.pid)
        process.wait()

    def interrupt(self, name: str) -> None:
        """What Ctrl-C does."""
        self._processes[name].send_signal(signal.SIGINT)

    def wait(self, name: str, *, codes: tuple[int, ...] = (0,), while_waiting: Callable[[], None]) -> int:
        """Wait for its end.

        Raises:
            CrewError: It ended with another code than these.
        """
        process = self._processes[name]
        while process.poll() is None:
            while_waiting()
            time.sleep(POLL_INTERVAL)
        self.check(name, codes)
        return process.returncode

    def check(self, name: str, codes: tuple[int, ...] = (0,)) -> None:
        """Nothing happens while it lives, or if it ended with one of these codes.

        Raises:
            CrewError: It ended with another one.
        """
        code = self._processes[name].poll()
        if code is not None and code not in codes:
            raise CrewError(f"{name} ended with {code}:\n{self.tail(name)}")

    def close(self) -> None:
        """End all that still run; safe to repeat."""
        for name, process in self._processes.items():
            if process.poll() is None:
                self.kill(name)
        self._processes.clear()
