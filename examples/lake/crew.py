"""The processes of the story: starts them, kills them, and leaves none running.

Used by `story`.

1. A process is ended by its pid, together with all that it started; never by a name.
2. Each process has a session of its own. A Ctrl-C in the terminal reaches only the story, which ends the processes
   in order.
3. If `setpriv` exists, the kernel kills the processes when the story dies.
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
    """A process ended with an unexpected code. The text holds the end of its standard error."""


class Crew:
    """Processes by name.

    Args:
        folder: The folder for their output.
        directory: Their working directory.
        environment: Their whole environment.
    """

    def __init__(self, folder: Path, directory: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._directory = directory
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> int:
        """Start a process under a name and return its pid. A dead process may have had the same name."""
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
        """Return the file of its standard error."""
        return self._folder / f"{name}.log"

    def printed(self, name: str) -> str:
        """Return its standard output."""
        return (self._folder / f"{name}.out").read_text()

    def tail(self, name: str, size: int = 3_000) -> str:
        """Return the end of its standard error."""
        return self.log(name).read_bytes()[-size:].decode(errors="replace")

    def is_running(self, name: str) -> bool:
        """Return whether it runs."""
        return self._processes[name].poll() is None

    def family(self, name: str) -> list[int]:
        """Return its pid and those of all that it started: for a Spark driver, the JVM and the Python workers."""
        return family(self._processes[name].pid)

    def kill(self, name: str) -> None:
        """Send SIGKILL to the process and all that it started: they get no chance to finish."""
        process = self._processes[name]
        kill_family(process.pid)
        process.wait()

    def interrupt(self, name: str) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self._processes[name].send_signal(signal.SIGINT)

    def wait(self, name: str, *, codes: tuple[int, ...] = (0,), while_waiting: Callable[[], None]) -> int:
        """Wait for its end and return its exit code.

        Raises:
            CrewError: if it ended with a code that is not in `codes`.
        """
        process = self._processes[name]
        while process.poll() is None:
            while_waiting()
            time.sleep(POLL_INTERVAL)
        self.check(name, codes)
        return process.returncode

    def check(self, name: str, codes: tuple[int, ...] = (0,)) -> None:
        """Check that it runs, or ended with one of these codes.

        Raises:
            CrewError: if it ended with another code.
        """
        code = self._processes[name].poll()
        if code is not None and code not in codes:
            raise CrewError(f"{name} ended with {code}:\n{self.tail(name)}")

    def close(self) -> None:
        """End all processes that still run; safe to repeat."""
        for name, process in self._processes.items():
            if process.poll() is None:
                self.kill(name)
        self._processes.clear()
