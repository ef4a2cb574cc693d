"""Threads that compress batches while the event loop runs.

Made by a driver, which submits the core's `Compress` effects and reports their ends to the core. It works with any
event loop that can be called back from another thread.

Invariants:

1. Each job ends once, in the loop's thread: with the compressed bytes, with the codec's exception, or as not
   begun. By then no thread holds a view of the batch's records. This also applies to jobs that end after `close()`.
2. There is no thread before the first job, and there are at most `THREADS`. Idle ones end when the workers are
   closed or garbage-collected, or when the interpreter exits.
3. The threads are no daemons: a codec that returns into an interpreter that is shutting down would abort the
   process. `ThreadPoolExecutor` ends its threads before that. The exit waits for submitted jobs; the core submits
   at most a few milliseconds' work, or two batches.
4. No callback runs once the loop is closed.
5. If there are more threads than processors, the loop has priority (on Linux, where threads have priorities).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor, thread
from threading import Lock, get_native_id
from typing import TYPE_CHECKING, Final, TypeAlias, final

from aioproduce.core.batching.batch_compression import THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.effects import Compress

_NICENESS: Final = 10
"""The threads' nice value above the process's: they get a ninth of the loop's share of a contended processor."""

Finished: TypeAlias = "tuple[ProducerBatch, bytes | BaseException]"
"""The batch of a job, and its outcome."""


@final
class CompressionWorkers:
    """Runs compression jobs in the order of submission, several at a time.

    Args:
        call_in_loop: Calls a callable in the loop's thread, from any thread. Raises RuntimeError if the loop is
            closed.
        on_finished: Called in the loop's thread with the ended jobs.
        make_executor: Makes the executor at the first job.
    """

    __slots__ = (
        "_active",
        "_call_in_loop",
        "_executor",
        "_finished",
        "_is_told",
        "_jobs",
        "_lock",
        "_make_executor",
        "_on_finished",
    )

    def __init__(
        self,
        call_in_loop: Callable[[Callable[[], None]], object],
        on_finished: Callable[[Iterable[Finished]], None],
        make_executor: Callable[[], Executor],
    ) -> None:
        self._call_in_loop = call_in_loop
        self._on_finished = on_finished
        self._make_executor = make_executor
        self._executor: Executor | None = None
        self._lock = Lock()
        self._jobs: deque[Compress[ProducerBatch]] = deque()
        self._finished: list[Finished] = []
        self._active = 0
        self._is_told = False

    def submit(self, job: Compress[ProducerBatch]) -> None:
        """Compress a batch in a thread. Call this in the loop's thread."""
        with self._lock:
            self._jobs.append(job)
            if self._active == THREADS:
                return  # a busy worker takes the job
            self._active += 1
        if self._executor is None:
            self._executor = self._make_executor()
        try:
            self._executor.submit(self._work)
        except RuntimeError:
            if not _is_exiting():
                raise
            self._work()  # the interpreter starts no more threads: do the remaining work here

    def close(self) -> None:
        """End the threads without waiting, and jobs not begun at once. Call this in the loop's thread."""
        dropped = self._drop()
        if dropped:
            error = RuntimeError("compression has stopped")
            self._on_finished([(job.batch, error) for job in dropped])

    def _drop(self) -> list[Compress[ProducerBatch]]:
        with self._lock:
            dropped = list(self._jobs)
            self._jobs.clear()
        for job in dropped:
            job.records.release()
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        return dropped

    def _work(self) -> None:
        """Run jobs until none is left. It runs in a thread; one call for many jobs costs less."""
        while True:
            with self._lock:
                if not self._jobs:
                    self._active -= 1
                    return
                job = self._jobs.popleft()
            end = _run(job)
            del job
            self._tell(end)

    def _tell(self, end: Finished) -> None:
        with self._lock:
            self._finished.append(end)
            if self._is_told:
                return  # a report is already scheduled
            self._is_told = True
        try:
            self._call_in_loop(self._report)
        except RuntimeError:
            # The loop is closed, maybe under a running producer: nobody is left to notify.
            self._drop()

    def _report(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
            self._is_told = False
        self._on_finished(finished)


def compression_threads() -> Executor:
    """Make the thread pool of one producer."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="aioproduce compression", initializer=_step_back)


def _is_exiting() -> bool:
    """Return whether the interpreter exits and `concurrent.futures` has ended its threads (before `atexit`)."""
    return bool(getattr(thread, "_shutdown", False))


def _step_back() -> None:
    """Lower this thread's priority below all others, above all below the loop's."""
    if sys.platform == "linux":
        own = get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _NICENESS)


def _run(job: Compress[ProducerBatch]) -> Finished:
    try:
        return job.batch, job.codec.compress(job.records)
    except BaseException as error:
        # The core must learn of every end; a panic of cramjam's Rust is no Exception. The traceback would hold this
        # frame, and the frame the view of the records.
        return job.batch, error.with_traceback(None)
    finally:
        job.records.release()
