"""Threads that compress batches while the event loop goes on.

Made by a driver, which submits the core's `Compress` effects and reports their ends to it. Any event loop will do
that can be called back from another thread.

Invariants:

1. Each job ends once, in the loop's thread: with the compressed bytes, or with what the codec raised, or as not
   begun. By then no thread holds a view of the batch's records. That goes for jobs that end after `close()`, too.
2. There is no thread before the first job, and there are `THREADS` at most. Idle ones end when the workers are
   closed, when the interpreter exits, or when the workers are forgotten.
3. The threads are no daemons: a codec that comes back into an interpreter that is half gone would abort the
   process. They are `ThreadPoolExecutor`'s, which has them end before that. What the exit waits for is what was
   submitted, and the core does not submit more than a few milliseconds' work, or two batches.
4. Nobody is called back once the loop is closed.
5. Where there are more threads than processors, the loop goes first (on Linux, where a thread has a priority).
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
"""What the threads' is more than the process's own: a ninth of the loop's share of a processor that both want."""

Finished: TypeAlias = "tuple[ProducerBatch, bytes | BaseException]"
"""The batch of a job, and its outcome."""


@final
class CompressionWorkers:
    """Runs compression jobs, in the order of their submission, some at a time.

    Args:
        call_in_loop: Has a callable called in the loop's thread; called from any thread. Raises RuntimeError if
            the loop is closed.
        on_finished: Called in the loop's thread with the jobs that ended.
        make_executor: Makes what runs the jobs, when the first one comes.
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
        """Have a batch compressed. Called in the loop's thread."""
        with self._lock:
            self._jobs.append(job)
            if self._active == THREADS:
                return  # who is at work takes it up
            self._active += 1
        if self._executor is None:
            self._executor = self._make_executor()
        try:
            self._executor.submit(self._work)
        except RuntimeError:
            if not _is_exiting():
                raise
            self._work()  # no thread begins anything any more: what is left is done here

    def close(self) -> None:
        """Let the threads end, without waiting for them; jobs that none has begun end now. In the loop's thread."""
        dropped = self._drop()
        if dropped:
            error = RuntimeError("nothing is compressed any more")
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
        """Take jobs until there are none. Runs in a thread, which costs less than to be called for each."""
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
                return  # the loop has not come to those before it
            self._is_told = True
        try:
            self._call_in_loop(self._report)
        except RuntimeError:
            # The loop is closed, maybe under a running producer: nobody is left to be told.
            self._drop()

    def _report(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
            self._is_told = False
        self._on_finished(finished)


def compression_threads() -> Executor:
    """The threads of one producer."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="aioproduce compression", initializer=_step_back)


def _is_exiting() -> bool:
    """Whether the interpreter exits, and `concurrent.futures` has ended its threads (before `atexit`)."""
    return bool(getattr(thread, "_shutdown", False))


def _step_back() -> None:
    """Run when no thread of usual priority wants the processor, the loop's above all."""
    if sys.platform == "linux":
        own = get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _NICENESS)


def _run(job: Compress[ProducerBatch]) -> Finished:
    try:
        return job.batch, job.codec.compress(job.records)
    except BaseException as error:
        # Whatever it is (a panic of cramjam's Rust is no Exception), the core must hear of the end. Its traceback
        # would hold this frame, and that the view of the records.
        return job.batch, error.with_traceback(None)
    finally:
        job.records.release()
