"""The last look at a child and at a thread: how long it was in the run queue, before the kernel forgets it.

Used by `measure.py`. A child that has ended is kept by the kernel until its parent waits for it, and with it
what `/proc` tells of its main thread. So `os.waitpid` first waits without taking the child away, looks, and then
does what it always did; and so does `Popen.poll`, which keeps the function that it was made with. A thread of
`threading` looks at itself as the last thing that it does.

1. The caller sees no difference: the same result, the same error, and it is blocked as long.
2. Not seen: a child that something else waits for (uvloop, or another process), all threads of a child but its
   main thread, and threads that were not started by `threading` (librdkafka's).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable

_NS: Final = 1e-9


def times_of(pid: int, thread: int) -> tuple[float, float] | None:
    """Processor time of a thread and its time in the run queue; None if it is gone."""
    try:
        file = os.open(f"/proc/{pid}/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        cpu, queue, _turns = os.read(file, 200).split()
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    return int(cpu) * _NS, int(queue) * _NS


Times = dict[int, tuple[float, float]]
"""Processor time and time in the run queue, by the number of a process or of a thread."""


class Endings:
    """Watches the waits of this process for its children, and the ends of its threads."""

    def __init__(self) -> None:
        self._children: Times = {}
        self._threads: Times = {}
        self._me = os.getpid()
        self._waitpid = os.waitpid
        self._poll: Callable[..., int | None] = subprocess.Popen._internal_poll  # type: ignore[attr-defined]
        self._patches = contextlib.ExitStack()
        self._patches.enter_context(mock.patch.object(os, "waitpid", self._watched_waitpid))
        watched_poll, thread_ends = self._watched_poll, self._thread_ends
        run_thread: Callable[..., None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def _internal_poll(popen: subprocess.Popen[Any], *arguments: Any, **named: Any) -> int | None:
            return watched_poll(popen, *arguments, **named)

        def _bootstrap_inner(thread: threading.Thread) -> None:
            try:
                run_thread(thread)
            finally:
                thread_ends()

        self._patches.enter_context(mock.patch.object(subprocess.Popen, "_internal_poll", _internal_poll))
        self._patches.enter_context(mock.patch.object(threading.Thread, "_bootstrap_inner", _bootstrap_inner))

    def close(self) -> None:
        """Watch no longer."""
        self._patches.close()

    def children(self) -> Times:
        """The main threads of children that were waited for since the last call."""
        seen, self._children = self._children, {}
        return seen

    def threads(self) -> Times:
        """Threads that ended since the last call; one of them may be there for another moment."""
        seen, self._threads = self._threads, {}
        return seen

    def _thread_ends(self) -> None:
        number = threading.get_native_id()
        if (times := times_of(self._me, number)) is not None:
            self._threads[number] = times

    def _watched_waitpid(self, pid: int, options: int, /) -> tuple[int, int]:
        if options in (0, os.WNOHANG):
            self._look(pid, options)
        return self._waitpid(pid, options)

    def _watched_poll(self, popen: subprocess.Popen[Any], *arguments: Any, **named: Any) -> int | None:
        if popen.returncode is None:
            self._look(popen.pid, os.WNOHANG)
        return self._poll(popen, *arguments, **named)

    def _look(self, pid: int, options: int) -> None:
        if pid <= 0 and pid != -1:
            return
        kind, number = (os.P_PID, pid) if pid > 0 else (os.P_ALL, 0)
        try:
            ended = os.waitid(kind, number, os.WEXITED | os.WNOWAIT | options)
        except ChildProcessError:
            return  # The wait itself will say so.
        if ended is not None and (times := times_of(ended.si_pid, ended.si_pid)) is not None:
            self._children[ended.si_pid] = times
