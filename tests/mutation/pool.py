"""Children: a fork for each job, and an end for those that hang.

1. A child reports by lines of JSON on a pipe. Whatever it says before it ends is kept, however it ends.
2. A child says by `{"limits": [cpu, wall], ...}` how long its next step may take. The kernel ends it after so much
   processor time, the parent after so much time by the clock: a mutant that waits for ever has no processor time.
3. A child is a process group of its own, and is ended with all that it started.
4. The parent never runs a test, and has no threads: a fork copies neither locks that are held nor loops that run.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Job = TypeVar("Job")
Message = dict[str, Any]

_MEMORY: Final = 3 << 30
"""How many bytes of addresses a child may add: a mutant that appends for ever ends by that."""


@dataclass(slots=True)
class Child(Generic[Job]):
    """A process that does one job.

    Attributes:
        job: What it does.
        pid: The process, and its group.
        messages: What it reported.
        is_hung: Whether it was ended because a step took too long.
        status: As `os.waitpid` tells it, when it ended.
        seconds: How long it took, by the clock.
        cpu: How much of a processor it and its children took, in seconds.
    """

    job: Job
    pid: int
    pipe: int
    began_at: float
    deadline: float
    messages: list[Message] = field(default_factory=list)
    unread: bytes = b""
    is_hung: bool = False
    status: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    def take(self, data: bytes) -> None:
        """Keep what it reports."""
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "limits" in message:
                self.deadline = time.monotonic() + message["limits"][1]
            self.messages.append(message)

    def end(self) -> None:
        """Wait until it is gone, and all that it started."""
        os.close(self.pipe)
        with contextlib.suppress(ProcessLookupError):  # it made no group yet, or is gone
            os.killpg(self.pid, signal.SIGKILL)
        _, self.status, usage = os.wait4(self.pid, 0)
        self.cpu = usage.ru_utime + usage.ru_stime
        is_out_of_time = os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGPROF
        self.is_hung = self.is_hung or is_out_of_time
        self.seconds = time.monotonic() - self.began_at


def in_children(
    jobs: Iterable[Job],
    run: Callable[[Job, Callable[[Message], None]], None],
    workers: int,
    first_limit: float = 60,
) -> Iterator[Child[Job]]:
    """Do each job in a child, some at a time; children come in the order of their ends.

    Jobs that are added while a child's end is looked at are done, too.
    """
    waiting = iter(jobs)
    selector = selectors.DefaultSelector()
    children: dict[int, Child[Job]] = {}
    try:
        while True:
            while len(children) < workers and (job := next(waiting, None)) is not None:
                child = _fork(job, run, first_limit)
                children[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            if not children:
                return
            for child in _ended(selector, children):
                selector.unregister(child.pipe)
                del children[child.pipe]
                child.end()
                yield child
    finally:
        for child in children.values():
            child.end()
        selector.close()


def _ended(selector: selectors.BaseSelector, children: dict[int, Child[Job]]) -> Iterator[Child[Job]]:
    patience = min(child.deadline for child in children.values()) - time.monotonic()
    for key, _ in selector.select(max(patience, 0.0)):
        child = children[key.fd]
        data = os.read(key.fd, 1 << 20)
        if data:
            child.take(data)
        else:
            yield child
    now = time.monotonic()
    for child in [each for each in children.values() if each.deadline <= now]:
        child.is_hung = True
        yield child


def _fork(job: Job, run: Callable[[Job, Callable[[Message], None]], None], limit: float) -> Child[Job]:
    readable, writable = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _be_child(job, run, writable)
    os.close(writable)
    now = time.monotonic()
    return Child(job, pid, readable, now, now + limit)


def _be_child(job: Job, run: Callable[[Job, Callable[[Message], None]], None], pipe: int) -> None:
    """Do the job and end, without what an interpreter does at its end."""

    def send(message: Message) -> None:
        if "limits" in message:
            signal.setitimer(signal.ITIMER_PROF, message["limits"][0])
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(pipe, data) :]

    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        with open("/proc/self/statm", encoding="ascii") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run(job, send)
    except BaseException:
        os.write(pipe, json.dumps({"failed": traceback.format_exc()}).encode() + b"\n")
        os._exit(1)
    os._exit(0)
