"""Compression workers without a loop: what is told of jobs that ended, and how often."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, cast

from aioproduce.core.effects import Compress
from aioproduce.drivers.compression_workers import CompressionWorkers

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.batching.producer_batch import ProducerBatch


class AtOnce(Executor):
    """Runs a job before `submit()` returns, as a thread does that is quicker than the loop."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Reversing:
    """A codec whose work can be seen."""

    id = 1
    name = "reversing"

    def compress(self, data: memoryview) -> bytes:
        return bytes(data)[::-1]


def job(name: str, records: bytes) -> Compress[ProducerBatch]:
    """A job; workers only hand the batch on, so a name does for it."""
    return Compress(cast(Any, name), cast(Any, Reversing()), memoryview(records))


def test_jobs_that_end_before_the_loop_comes_round_are_told_of_together() -> None:
    turns: list[Callable[[], None]] = []
    told: list[list[Any]] = []
    workers = CompressionWorkers(turns.append, lambda finished: told.append(list(finished)), AtOnce)
    workers.submit(job("first", b"abc"))
    workers.submit(job("second", b"def"))
    [turn] = turns
    turn()
    assert told == [[("first", b"cba"), ("second", b"fed")]]
    # The loop has come round: the next end is reported again.
    workers.submit(job("third", b"ghi"))
    [_, turn] = turns
    turn()
    assert told[1:] == [[("third", b"ihg")]]
