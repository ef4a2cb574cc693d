"""What a stretch of time cost this process and all that it started: processor time, run queue, and waiting.

Used by the plugin of the gate (`meter.py`), which asks at the borders of tests and fixtures. Linux only:
where `/proc` does not tell a thread's time in the run queue, `Tree.is_possible()` is False and nobody
measures.

The tree is this process, with all of its threads, and every process that descends from it, alive or ended.
One whose parent has ended belongs to it still: it was known before, or its environment names us.

**Processor time** is that of the tree: this process (threads that ended included), descendants that live (a
broker, a JVM, a Chromium), and descendants that ended.

**Waiting** is the time in which nothing of the tree ran or wanted to run. The kernel gives sums and no
instants, so what is reported is a lower bound: `wall - sum over threads and descendants of (processor time +
time in the run queue)`, never below zero. It is exact where one thing runs at a time, as in nearly every
test, and too small where several do.

1. Load on the machine does not make waiting grow. A thread that wants to run is either on a processor or in
   the run queue, and both are subtracted; so load moves time from one to the other. The kernel forgets how
   long a thread was in the queue when it ends. Children and threads of this process are looked at before
   (`endings.py`). The other threads of a child, and its children, are taken to have waited for a second of
   processor time as long as others of the tree did lately. How much of the sum is such an estimate is told
   (`Stretch.guessed`), and the judge allows for it. Time that a hypervisor gave to
   another machine is subtracted as well.
2. A second of processor time is counted once. While a process lives it is read from `/proc`, in ticks of 10
   ms; when it ends, its parent's sum of ended children grows by what was counted already, and only the rest
   is new.
3. A reading costs some 50 microseconds: processes are looked for only when the kernel has made a new one, and
   threads of a descendant are read only if it used processor time.
4. Waiting for a disk is waiting. A paused process (SIGSTOP) waits.

Not seen: a process that outlives its parent, was never seen with it, and was forked without a new program or
given another environment.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from tests.gate.endings import Endings, times_of

TOKEN_NAME: Final = "AIOPRODUCE_GATE_TREE"
"""In the environment of all that this process starts: by it a process is known whose parent has ended."""

LOST_CPU_S: Final = 0.001
"""Processor time of threads that ended, and that nobody saw, which is not worth an estimate."""
NOBODY: Final = object()
"""The owner of a process that was there before anything was measured: what it does is nobody's cost."""
REMEMBERED_S: Final = 1.0
"""From how much processor time the share of the run queue is learned."""

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_NS: Final = 1e-9


@dataclass(slots=True)
class Process:
    """A descendant that lives, and what of it has been counted.

    Attributes:
        started: When, in ticks since the machine started; with the number it names one process.
        cpu: Its own processor time.
        ended: That of its children that ended and that it has waited for.
        threads: Processor time and time in the run queue by thread.
        owner: The owner that pays when it runs during a test that does not use it; None: the running test;
            `NOBODY`: nobody.
        is_orphan: Nobody of the tree will wait for it.
    """

    pid: int
    started: int
    parent: int
    cpu: float = 0.0
    ended: float = 0.0
    threads: dict[int, tuple[float, float]] = field(default_factory=dict)
    owner: object = None
    is_orphan: bool = False


@dataclass(slots=True)
class Stretch:
    """What happened between two readings, in seconds.

    Attributes:
        cpu: Of this process and of descendants that ended.
        queue: Time in the run queue of the same.
        guessed: How much of `queue` is an estimate, which may be wrong by a half.
        stolen: What a hypervisor took, for one processor.
        living: Owner, processor time and run queue of each descendant that lives and did something.
    """

    wall: float
    cpu: float
    queue: float
    guessed: float
    stolen: float
    living: list[tuple[object, float, float]]


class _Contention:
    """How long what wants to run waits in the run queue for a second of processor time, as seen lately."""

    __slots__ = ("_cpu", "_queue")

    def __init__(self) -> None:
        self._cpu = self._queue = 0.0

    def learn(self, cpu: float, queue: float) -> None:
        self._cpu += max(0.0, cpu)
        self._queue += queue
        while self._cpu > REMEMBERED_S:
            # Halved, so that what was long ago counts for little.
            self._cpu /= 2
            self._queue /= 2

    def queue_of(self, cpu: float) -> float:
        return cpu * self._queue / self._cpu if self._cpu > 0 else 0.0


class _Kept:
    """A file of `/proc` that stays open: a reading costs a microsecond instead of five."""

    __slots__ = ("_file",)

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int = 4096) -> bytes:
        return os.pread(self._file, size, 0)

    def close(self) -> None:
        os.close(self._file)


def _read(path: str) -> bytes | None:
    """The file, or None: whatever it tells of has ended."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(file, 65536)
    except OSError:
        return None
    finally:
        os.close(file)


def _numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> Process | None:
    """What the kernel tells of a process now."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name, in parentheses, may have spaces and parentheses; field 3 of proc(5) follows it.
    fields = text[text.rindex(b")") + 2 :].split()
    user, system, ended_user, ended_system = map(int, fields[11:15])
    return Process(
        pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        cpu=(user + system) * _TICK_S,
        ended=(ended_user + ended_system) * _TICK_S,
    )


class Tree:
    """This process and its descendants, read from time to time by the thread that made this object."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._thread = threading.get_native_id()
        self._schedstat = _Kept(f"/proc/self/task/{self._thread}/schedstat")
        self._loadavg = _Kept("/proc/loadavg")
        self._machine = _Kept("/proc/stat")
        self._endings = Endings()
        self._contention = _Contention()
        self._living: dict[int, Process] = {}
        self._seen: set[int] = set()
        self._newest = b""
        self._newborn: list[Process] = []
        mine = _stat(self._me)
        assert mine is not None
        self._token = f"{self._me}.{mine.started}"
        self._before = os.environ.get(TOKEN_NAME)
        os.environ[TOKEN_NAME] = self._token
        self._threads: dict[int, tuple[float, float]] = {}
        self._wall = self._stolen_at = time.perf_counter()
        self._cpu = self._own_cpu = self._own_queue = self._ended = self._stolen = 0.0
        self.read()
        self._stolen = self._stolen_until_now()
        self.adopt(NOBODY)

    @staticmethod
    def is_possible() -> bool:
        """Whether this system tells what is needed."""
        text = _read(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        return text is not None and len(text.split()) == 3 and os.path.exists("/proc/loadavg")

    def close(self) -> None:
        """Leave the environment, the open files and the functions as they were."""
        self._endings.close()
        if self._before is None:
            os.environ.pop(TOKEN_NAME, None)
        else:
            os.environ[TOKEN_NAME] = self._before
        for kept in (self._schedstat, self._loadavg, self._machine):
            kept.close()

    def adopt(self, owner: object) -> bool:
        """Give the processes that were born since the last call to an owner; say if any lives."""
        born = [process for process in self._newborn if self._living.get(process.pid) is process]
        self._newborn.clear()
        for process in born:
            process.owner = owner
        return bool(born)

    def read(self) -> Stretch:
        """What happened since the last reading."""
        now = time.perf_counter()
        wall, self._wall = now - self._wall, now
        own_cpu, own_queue, own_unseen = self._read_own()
        living, gone, came_back = self._read_living()
        ended_cpu, ended_queue, ended_unseen = self._read_ended(gone, came_back)
        cpu, queue = own_cpu + ended_cpu, own_queue + ended_queue
        unseen = own_unseen + ended_unseen
        self._contention.learn(cpu - unseen, queue)
        guessed = self._contention.queue_of(unseen) if unseen > LOST_CPU_S else 0.0
        return Stretch(wall, cpu, queue + guessed, guessed, self._read_stolen(now, wall), living)

    def _read_own(self) -> tuple[float, float, float]:
        """Processor time of this process; run queue of its threads that were seen; and what was not seen."""
        cpu, own_cpu = time.process_time(), time.thread_time()
        queue = int(self._schedstat.read().split()[1]) * _NS
        spent, own_spent, waited = cpu - self._cpu, own_cpu - self._own_cpu, queue - self._own_queue
        self._cpu, self._own_cpu, self._own_queue = cpu, own_cpu, queue

        others_cpu, others_queue = self._read_other_threads()
        return spent, waited + others_queue, max(0.0, spent - own_spent - others_cpu)

    def _read_other_threads(self) -> tuple[float, float]:
        threads = _numbers(f"/proc/{self._me}/task")
        ended = self._endings.threads()
        if len(threads) == 1 and not self._threads and not ended:
            return 0.0, 0.0
        found = {}
        for thread in threads:
            if thread != self._thread and (times := times_of(self._me, thread)) is not None:
                found[thread] = times
        cpu = queue = 0.0
        for thread, times in {**ended, **found}.items():
            before = self._threads.get(thread, (0.0, 0.0))
            if times[0] < before[0]:
                before = (0.0, 0.0)  # another thread of that number
            cpu += times[0] - before[0]
            queue += times[1] - before[1]
        self._threads = found
        return cpu, queue

    def _read_living(self) -> tuple[list[tuple[object, float, float]], list[Process], float]:
        """Look at every descendant.

        Returns:
            What the living did; those that are gone; what the living's sums of ended children grew by.
        """
        self._find_new()
        did: list[tuple[object, float, float]] = []
        gone: list[Process] = []
        came_back = 0.0
        for process in list(self._living.values()):
            now = _stat(process.pid)
            if now is None or now.started != process.started:
                gone.append(self._living.pop(process.pid))
                continue
            came_back += now.ended - process.ended
            process.is_orphan = now.parent != self._me and now.parent not in self._living
            if now.cpu != process.cpu and process.owner is not NOBODY:
                did.append((process.owner, now.cpu - process.cpu, self._queue_of(process)))
            process.cpu, process.ended = now.cpu, now.ended
        return did, gone, came_back

    def _queue_of(self, process: Process) -> float:
        """How long its threads waited in the run queue since they were last read."""
        queue = 0.0
        found = {}
        for thread in _numbers(f"/proc/{process.pid}/task"):
            if (times := times_of(process.pid, thread)) is not None:
                found[thread] = times
                queue += max(0.0, times[1] - process.threads.get(thread, (0.0, 0.0))[1])
        process.threads = found
        return queue

    def _find_new(self) -> None:
        """Look for descendants that were not there before."""
        newest = self._loadavg.read().split()[4]
        if newest == self._newest:
            return
        self._newest = newest
        listed = set(_numbers("/proc"))
        strange = {pid: found for pid in listed - self._seen if (found := _stat(pid)) is not None}
        self._seen = listed
        strange.pop(self._me, None)
        # A child may have a smaller number than its parent: numbers start again.
        while ours := [each for each in strange.values() if self._is_ours(each)]:
            for found in ours:
                del strange[found.pid]
                # All that it has cost is new; of one that was there before us, nothing will be asked.
                born = Process(found.pid, found.started, found.parent)
                self._living[found.pid] = born
                self._newborn.append(born)

    def _is_ours(self, process: Process) -> bool:
        if process.parent == self._me or process.parent in self._living:
            return True
        environment = _read(f"/proc/{process.pid}/environ")
        return environment is not None and f"{TOKEN_NAME}={self._token}".encode() in environment.split(b"\0")

    def _read_ended(self, gone: list[Process], came_back: float) -> tuple[float, float, float]:
        """What descendants that ended did since they were counted last: the same three figures."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        here = usage.ru_utime + usage.ru_stime - self._ended
        self._ended += here
        # Who ended without anybody of the tree waiting for it is in no sum.
        counted = sum(process.cpu + process.ended for process in gone if not process.is_orphan)
        before = {process.pid: process.threads.get(process.pid, (0.0, 0.0)) for process in gone}
        nobodys = {process.pid for process in gone if process.owner is NOBODY}
        seen_cpu = seen_queue = 0.0
        for pid, (cpu, queue) in self._endings.children().items():
            if pid not in self._living and pid not in nobodys:
                seen_cpu += cpu - before.get(pid, (0.0, 0.0))[0]
                seen_queue += queue - before.get(pid, (0.0, 0.0))[1]
        # A process whose living parent ignores SIGCHLD was counted, too, and is in no sum. What was seen of others
        # must not vanish behind it.
        new = max(seen_cpu, here + came_back - counted)
        return new, seen_queue, new - seen_cpu

    def _read_stolen(self, now: float, wall: float) -> float:
        """What a hypervisor took from one processor, in proportion; a short stretch is passed over."""
        if wall < 0.02:
            return 0.0
        stolen = self._stolen_until_now()
        since, at = stolen - self._stolen, now - self._stolen_at
        self._stolen, self._stolen_at = stolen, now
        return since * wall / at if at > 0 else 0.0

    def _stolen_until_now(self) -> float:
        fields = self._machine.read(256).split(b"\n", 1)[0].split()
        return int(fields[8]) * _TICK_S / (os.cpu_count() or 1) if len(fields) > 8 else 0.0
