"""`python -m tests.gate.program CASE ...`: a process of its own does something, measures itself, and prints JSON.

Of its own, since the process of the tests has descendants that nobody of these cases started. Every figure is
printed next to the target of the case, so the clocks of the kernel are the judge: a loop ends when
`time.thread_time()` says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.gate.measure import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

BURNT: Final = 0.1
"""Seconds of processor time that a case uses in one place."""
SLEPT: Final = 0.3

# -S and -E: such a child starts in a hundredth of a second.
PYTHON: Final = (sys.executable, "-I", "-S", "-c")
BURN: Final = f"import time\nwhile time.process_time() < {BURNT}: pass\n"
# It says that it is done, and lives until its standard input ends.
BURN_AND_LIVE: Final = f"{BURN}import sys\nprint('burnt', flush=True)\nsys.stdin.read()"


def burn() -> None:
    """Use processor time in this thread."""
    end = time.thread_time() + BURNT
    while time.thread_time() < end:
        pass


def in_a_thread() -> None:
    """The same in a thread that ends."""
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()


def in_a_child() -> None:
    """The same in a child that ends."""
    subprocess.run([*PYTHON, BURN], check=True)


def sleep() -> None:
    """Wait, and do nothing else."""
    time.sleep(SLEPT)


class Living:
    """A process that has used processor time and lives: a child, its child, or one whose parent has ended."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._write: int | None = None

    def child(self) -> None:
        self.process = subprocess.Popen(
            [*PYTHON, BURN_AND_LIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def grandchild(self) -> None:
        """A child starts it and waits for nothing."""
        stdin, self._write = os.pipe()
        stdout, told = os.pipe()
        script = f"import subprocess, sys\nsubprocess.Popen({[*PYTHON, BURN_AND_LIVE]!r})"
        subprocess.run([*PYTHON, script], stdin=stdin, stdout=told, check=True)
        os.read(stdout, 100)

    def unawaited(self) -> None:
        """A child and its child, whose end the kernel tells nobody: its time is in no sum."""
        stdin, self._write = os.pipe()
        script = (
            "import os, signal, subprocess, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            f"subprocess.Popen({[*PYTHON, BURN_AND_LIVE]!r})\nos.close(1)\ntime.sleep(60)"
        )
        self.process = subprocess.Popen([*PYTHON, script], stdin=stdin, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end_of_unawaited(self) -> None:
        """The child's child ends, and another child works."""
        assert self.process is not None
        assert self.process.stdout is not None
        assert self._write is not None
        os.close(self._write)
        self.process.stdout.read()
        in_a_child()
        self.process.kill()
        self.process.wait()

    def nothing_more(self) -> None:
        """What was counted while it lived must not be counted again."""
        sleep()

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()


LIVING: Final = Living()
CASES: Final[dict[str, Callable[[], None]]] = {
    "burn": burn,
    "thread": in_a_thread,
    "child": in_a_child,
    "sleep": sleep,
    "living child": LIVING.child,
    "living grandchild": LIVING.grandchild,
    "living unawaited": LIVING.unawaited,
    "end of the unawaited": LIVING.end_of_unawaited,
    "nothing more": LIVING.nothing_more,
    "its end": LIVING.end,
}


def main() -> None:
    """Run cases one after the other; `cpu=N` binds this process to one processor."""
    tree = Tree()
    for name in sys.argv[1:]:
        if name.startswith("cpu="):
            os.sched_setaffinity(0, {int(name.removeprefix("cpu="))})
            continue
        tree.read()
        CASES[name]()
        stretch = tree.read()
        cpu = stretch.cpu + sum(cpu for _, cpu, _ in stretch.living)
        busy = stretch.queue + stretch.stolen + cpu + sum(queue for _, _, queue in stretch.living)
        print(json.dumps({"cpu": cpu, "wall": stretch.wall, "waiting": max(0.0, stretch.wall - busy)}))


if __name__ == "__main__":
    main()
