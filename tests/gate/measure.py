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
   long a thread or a process was in the queue when it ends; what began and ended in between is estimated by
   how often it was switched (`_Delays`), the share of the estimate is told (`Stretch.guessed`), and whoever
   judges allows for it. Time that a hypervisor gave to another machine is subtracted as well.
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

TOKEN_NAME: Final = "AIOPRODUCE_GATE_TREE"
"""In the environment of all that this process starts: by it a process is known whose parent has ended."""

PREEMPTED_S: Final = 0.003
"""How long a preempted thread waits for its next turn, until that has been seen: a turn of one other."""
REMEMBERED: Final = 200
"""From how many switches the mean delay is taken."""
LOST_CPU_S: Final = 0.001
"""Processor time of ended threads that is not worth an estimate."""

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_NS: Final = 1e-9


@dataclass(slots=True)
class Process:
    """A descendant that lives, and what of it has been counted.

    Attributes:
        started: When, in ticks since the machine started; with the number it names one process.
        cpu: Its own processor time.
        ended: That of its children that ended and that it has waited for.
        threads: Time in the run queue by thread.
        owner: Who pays for it when it runs beside a test that does not use it; None: whatever test runs.
        is_orphan: Nobody of the tree will wait for it.
    """

    pid: int
    started: int
    parent: int
    cpu: float = 0.0
    ended: float = 0.0
    threads: dict[int, float] = field(default_factory=dict)
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


@dataclass(slots=True)
class _Switches:
    """How often threads gave the processor away (`free`), and how often it was taken from them."""

    free: int
    taken: int

    def __sub__(self, other: _Switches) -> _Switches:
        return _Switches(self.free - other.free, self.taken - other.taken)


class _Delays:
    """How long a thread waits in the run queue for its next turn, learned from the one that is always watched.

    A thread that ended leaves behind how often it was switched, and not how long it waited. The measuring thread
    was switched on the same machine a moment ago: a thread that wants to run all the time waits as long after a
    preemption as that one did, within a third (tried with none to four others for two processors).
    """

    __slots__ = ("_free", "_taken")

    def __init__(self) -> None:
        # Sums of delays and of switches.
        self._free = (0.0, 1.0)
        self._taken = (PREEMPTED_S * 10, 10.0)

    def learn(self, delay: float, switches: _Switches) -> None:
        if switches.taken and switches.taken >= switches.free:
            after_free = switches.free * self._free[0] / self._free[1]
            self._taken = self._sum(self._taken, max(0.0, delay - after_free), switches.taken)
        elif switches.free and not switches.taken:
            self._free = self._sum(self._free, delay, switches.free)

    @staticmethod
    def _sum(before: tuple[float, float], delay: float, count: int) -> tuple[float, float]:
        sum_of, counted = before[0] + delay, before[1] + count
        # Halved, so that what was long ago counts for little.
        return (sum_of / 2, counted / 2) if counted > REMEMBERED else (sum_of, counted)

    def of(self, switches: _Switches) -> float:
        """How long threads waited that were switched so often."""
        return (
            switches.free * self._free[0] / self._free[1] + switches.taken * self._taken[0] / self._taken[1]
        )


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


def _thread(pid: int, thread: int) -> tuple[float, float] | None:
    """Processor time of a thread and its time in the run queue."""
    text = _read(f"/proc/{pid}/task/{thread}/schedstat")
    if not text:
        return None
    cpu, queue, _turns = map(int, text.split())
    return cpu * _NS, queue * _NS


class Tree:
    """This process and its descendants, read from time to time by the thread that made this object."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._thread = threading.get_native_id()
        self._schedstat = _Kept(f"/proc/self/task/{self._thread}/schedstat")
        self._loadavg = _Kept("/proc/loadavg")
        self._machine = _Kept("/proc/stat")
        self._delays = _Delays()
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
        self._switches = self._own_switches = self._ended_switches = _Switches(0, 0)
        # What is there already is nobody's cost.
        self.read()
        self._stolen = self._stolen_until_now()
        self._newborn.clear()

    @staticmethod
    def is_possible() -> bool:
        """Whether this system tells what is needed."""
        text = _read(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        return text is not None and len(text.split()) == 3 and os.path.exists("/proc/loadavg")

    def close(self) -> None:
        """Leave the environment and the open files as they were."""
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
        own_cpu, own_queue, guessed = self._read_own()
        living, gone, came_back = self._read_living()
        ended_cpu, ended_queue = self._read_ended(gone, came_back)
        guessed += ended_queue
        return Stretch(
            wall,
            own_cpu + ended_cpu,
            own_queue + guessed,
            guessed,
            self._read_stolen(now, wall),
            living,
        )

    def _read_own(self) -> tuple[float, float, float]:
        """Processor time and run queue of this process's threads; an estimate for those that ended."""
        cpu, own_cpu = time.process_time(), time.thread_time()
        queue = int(self._schedstat.read().split()[1]) * _NS
        usage, own_usage = (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_THREAD),
        )
        switches = _Switches(usage.ru_nvcsw, usage.ru_nivcsw)
        own_switches = _Switches(own_usage.ru_nvcsw, own_usage.ru_nivcsw)

        spent, own_spent, waited = cpu - self._cpu, own_cpu - self._own_cpu, queue - self._own_queue
        switched = own_switches - self._own_switches
        of_others = (switches - self._switches) - switched
        self._delays.learn(waited, switched)
        self._cpu, self._own_cpu, self._own_queue = cpu, own_cpu, queue
        self._switches, self._own_switches = switches, own_switches

        others_cpu, others_queue = self._read_other_threads()
        lost, guessed = spent - own_spent - others_cpu, 0.0
        if lost > LOST_CPU_S:
            guessed = self._delays.of(of_others) * lost / (lost + others_cpu)
        return spent, waited + others_queue, guessed

    def _read_other_threads(self) -> tuple[float, float]:
        threads = _numbers(f"/proc/{self._me}/task")
        if len(threads) == 1 and not self._threads:
            return 0.0, 0.0
        cpu = queue = 0.0
        found = {}
        for thread in threads:
            if thread != self._thread and (times := _thread(self._me, thread)) is not None:
                found[thread] = times
                before = self._threads.get(thread, (0.0, 0.0))
                if times[0] < before[0]:
                    before = (0.0, 0.0)  # another thread of that number
                cpu += times[0] - before[0]
                queue += times[1] - before[1]
        self._threads = found
        return cpu, queue

    def _read_living(self) -> tuple[list[tuple[object, float, float]], float, float]:
        """Look at every descendant.

        Returns: What the living did; what was counted of those that are gone and waited for; what the
        living's sums of ended children grew by.
        """
        self._find_new()
        did: list[tuple[object, float, float]] = []
        gone = came_back = 0.0
        for process in list(self._living.values()):
            now = _stat(process.pid)
            if now is None or now.started != process.started:
                del self._living[process.pid]
                if not process.is_orphan:
                    gone += process.cpu + process.ended
                continue
            came_back += now.ended - process.ended
            process.is_orphan = now.parent != self._me and now.parent not in self._living
            if now.cpu != process.cpu:
                did.append((process.owner, now.cpu - process.cpu, self._queue_of(process)))
            process.cpu, process.ended = now.cpu, now.ended
        return did, gone, came_back

    def _queue_of(self, process: Process) -> float:
        """How long its threads waited in the run queue since they were last read."""
        queue = 0.0
        found = {}
        for thread in _numbers(f"/proc/{process.pid}/task"):
            if (times := _thread(process.pid, thread)) is not None:
                found[thread] = times[1]
                queue += max(0.0, times[1] - process.threads.get(thread, 0.0))
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
        # A child may have a smaller number than its parent: numbers begin anew.
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

    def _read_ended(self, gone: float, came_back: float) -> tuple[float, float]:
        """Processor time of descendants that ended, less what was counted before; an estimated run queue."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended, switches = usage.ru_utime + usage.ru_stime, _Switches(usage.ru_nvcsw, usage.ru_nivcsw)
        here, switched = ended - self._ended, switches - self._ended_switches
        self._ended, self._ended_switches = ended, switches
        new = max(0.0, here + came_back - gone)
        if new <= LOST_CPU_S or here <= 0:
            return new, 0.0
        return new, self._delays.of(switched) * min(1.0, new / here)

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
