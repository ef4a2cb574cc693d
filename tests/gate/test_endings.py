"""A watched wait is the wait that it was, and tells of the child that it took away; threads tell of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

if sys.platform != "linux":
    pytest.skip("looks at children in /proc", allow_module_level=True)

from tests.gate.endings import Endings, times_of

PYTHON = (sys.executable, "-I", "-S", "-c")


@pytest.fixture
def endings() -> Iterator[Endings]:
    waitpid, poll = os.waitpid, subprocess.Popen._internal_poll  # type: ignore[attr-defined]
    run_thread = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    watching = Endings()
    assert os.waitpid is not waitpid
    yield watching
    watching.close()
    assert os.waitpid is waitpid
    assert subprocess.Popen._internal_poll is poll  # type: ignore[attr-defined]
    assert threading.Thread._bootstrap_inner is run_thread  # type: ignore[attr-defined]


def started(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PYTHON, code], stdin=subprocess.PIPE)


def test_a_wait_for_a_child(endings: Endings) -> None:
    child = started("import time, sys\nwhile time.process_time() < 0.05: pass\nsys.exit(3)")

    with child:
        assert child.wait() == 3

    ((pid, (cpu, queue)),) = endings.children().items()
    assert pid == child.pid
    assert 0.04 < cpu < 0.15
    assert queue >= 0
    assert endings.children() == {}
    assert times_of(child.pid, child.pid) is None


def test_a_poll_waits_for_nobody(endings: Endings) -> None:
    with started("import sys; sys.stdin.read()") as child:
        assert child.poll() is None
        assert endings.children() == {}
        assert child.stdin is not None
        child.stdin.close()
        # Until it has ended, which only a wait that leaves it can tell.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.poll() == 0
        assert list(endings.children()) == [child.pid]
        assert child.poll() == 0
        assert endings.children() == {}


@pytest.mark.parametrize("options", [0, os.WNOHANG, os.WUNTRACED])
def test_the_results_are_those_of_the_system(endings: Endings, options: int) -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(os.getpid(), options)
    # It lives until it is killed, whatever standard input is: pytest-xdist's workers have none.
    child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    if options == os.WNOHANG:
        assert os.waitpid(child, options) == (0, 0)
    os.kill(child, 9)
    while (answer := os.waitpid(child, options)) == (0, 0):
        pass

    assert answer[0] == child
    assert os.waitstatus_to_exitcode(answer[1]) == -9
    with pytest.raises(ChildProcessError):
        os.waitpid(child, options)


def test_a_thread_tells_of_itself(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)

    def burn_and_fail() -> None:
        while time.thread_time() < 0.05:
            pass
        raise ValueError

    thread = threading.Thread(target=burn_and_fail)
    thread.start()
    thread.join()

    ((number, (cpu, queue)),) = endings.threads().items()
    assert number == thread.native_id
    # The kernel's figure of a thread that runs is that of its last turn, at most 10 ms ago.
    assert 0.03 < cpu < 0.1
    assert queue >= 0
    assert [arguments.exc_type for arguments in hooked] == [ValueError]
    assert endings.threads() == {}
