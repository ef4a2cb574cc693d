"""Metrics of several worker processes, collected in a directory: each writes a file, the scraped process reads all.

Used by services with gunicorn or uvicorn workers, where a scrape reaches a random worker and prometheus_client's
multiprocess mode ignores collectors. Needs no library; the reader is `WorkersCollector`.

A worker claims the lowest free number with a lock that the kernel releases when the process ends, however it ends.
A worker that replaces another therefore continues with its number (for Prometheus, a counter that was reset), and
there are never more series than concurrent workers.

Invariants:

1. A file is always complete: it is written under another name and renamed.
2. The file of a dead process is ignored and needs no cleaning up: its lock is free.
3. A forked child of a worker holds none of its locks.
"""

from __future__ import annotations

import json
import logging
import os
import time
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import WorkerSlotError
from aioproduce.metrics import Histogram, Metric, MetricKind, MetricsSnapshot
from aioproduce.reporters.periodic import PeriodicReporter, in_a_thread

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # asked for below

if TYPE_CHECKING:
    from aioproduce.reporters.sources import Measured

_log = logging.getLogger("aioproduce")

_FORMAT: Final = 1
_MOST_WORKERS: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Worker:
    """The last report of one worker process.

    Attributes:
        number: Its number in the directory, from 0 on.
        age: Seconds since the report.
        snapshots: The snapshots of its producers.
    """

    number: int
    age: float
    snapshots: list[MetricsSnapshot]


@final
class WorkerFile(PeriodicReporter):
    """Writes this process's metrics to the workers' directory during its `async with`.

    Args:
        *producers: Producers; other workers may use the same client ids.
        directory: A directory on a local disk or, better, in memory (`/run`, `/dev/shm`); created if missing.
        period: Seconds between two writes, which is the maximum age of a scraped value.

    Raises:
        ValueError: If the period is not above 0.
        WorkerSlotError: If the `async with` cannot write to the directory, or if this is Windows.

    Example:
        >>> async with Producer("localhost:9092") as producer:
        ...     async with WorkerFile(producer, directory="/run/app/kafka-metrics"):
        ...         await serve(producer)
    """

    def __init__(self, *producers: Measured, directory: str | os.PathLike[str], period: float = 2.0) -> None:
        super().__init__(period, is_at_once=True)
        self._producers = producers
        self._directory = Path(directory)
        self._slot: _Slot | None = None

    @property
    def number(self) -> int:
        """This worker's number, during the `async with`."""
        if self._slot is None:
            raise RuntimeError("a WorkerFile has a number only within its `async with`")
        return self._slot.number

    def _prepare(self) -> None:
        self._slot = _Slot(self._directory)

    async def __aexit__(self, *raised: object) -> None:
        try:
            await super().__aexit__(*raised)
        finally:
            if self._slot is not None:
                self._slot.release()

    async def _report(self) -> None:
        assert self._slot is not None
        text = json.dumps(
            {"format": _FORMAT, "snapshots": [_as_json(each.metrics()) for each in self._producers]}
        )
        await in_a_thread(self._slot.write, text)


def read_workers(directory: str | os.PathLike[str]) -> list[Worker]:
    """Return the last reports of live workers, sorted by number; none if there is no such directory."""
    workers = []
    for lock in Path(directory).glob("worker-*.lock"):
        values = lock.with_suffix(".json")
        try:
            if not _is_held(lock):
                continue
            age = max(time.time() - values.stat().st_mtime, 0.0)
            content = json.loads(values.read_bytes())
        except FileNotFoundError:
            continue  # it is starting or ending
        except ValueError as error:
            _bounded_log.warning(
                str(values), time.monotonic(), "%s is not a worker's metrics: %s", values, error
            )
            continue
        if content.get("format") != _FORMAT:
            _bounded_log.warning(
                str(values), time.monotonic(), "%s was written by another version of aioproduce", values
            )
            continue
        number = int(lock.stem.removeprefix("worker-"))
        workers.append(Worker(number, age, [_snapshot(each) for each in content["snapshots"]]))
    return sorted(workers, key=lambda worker: worker.number)


_bounded_log = BoundedLog(_log, 60.0)


@final
class _Slot:
    """A number in the directory, and the lock that reserves it.

    Raises:
        WorkerSlotError: If there is none.
    """

    def __init__(self, directory: Path) -> None:
        if fcntl is None:
            raise WorkerSlotError(
                "workers' metrics need locks that end with their process, which Windows does not have: let "
                "each worker listen on a port of its own",
                directory=str(directory),
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.number, self._descriptor = _claim(directory)
            self._values = directory / f"worker-{self.number}.json"
            self._values.unlink(missing_ok=True)  # left by a dead worker
        except OSError as error:
            raise WorkerSlotError(
                f"{directory} cannot hold the workers' metrics ({error}): name a local directory that each worker "
                "may write to",
                directory=str(directory),
            ) from error
        _held.add(self)

    def write(self, text: str) -> None:
        """Replace the previous report."""
        replacement = self._values.with_suffix(".new")
        replacement.write_text(text, encoding="utf-8")
        replacement.replace(self._values)

    def release(self) -> None:
        """Remove the report, and leave the number to another worker."""
        self._values.unlink(missing_ok=True)
        self._values.with_suffix(".new").unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock; in a forked child only close its copy, because the parent still holds the lock."""
        if self._descriptor >= 0:
            _held.discard(self)
            os.close(self._descriptor)
            self._descriptor = -1


_held: weakref.WeakSet[_Slot] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for slot in list(_held):
        slot.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _claim(directory: Path) -> tuple[int, int]:
    for number in range(_MOST_WORKERS):
        descriptor = os.open(
            directory / f"worker-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)  # another worker's, or being read: try the next number
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return number, descriptor
    raise OSError(f"all of its {_MOST_WORKERS} places are taken")


def _is_held(lock: Path) -> bool:
    """Return whether the process that claimed it is alive."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _as_json(snapshot: MetricsSnapshot) -> dict[str, Any]:
    return {
        "taken_at_ms": snapshot.taken_at_ms,
        "metrics": [
            [each.group, each.name, each.tags, each.description, each.unit, each.kind.value, each.value]
            for each in snapshot
        ],
        "histograms": [asdict(each) for each in snapshot.histograms],
    }


def _snapshot(told: dict[str, Any]) -> MetricsSnapshot:
    return MetricsSnapshot(
        [
            Metric(group, name, tags, description, unit, MetricKind(kind), value)
            for group, name, tags, description, unit, kind, value in told["metrics"]
        ],
        [
            Histogram(**{**each, "bounds": tuple(each["bounds"]), "counts": tuple(each["counts"])})
            for each in told["histograms"]
        ],
        told["taken_at_ms"],
    )
