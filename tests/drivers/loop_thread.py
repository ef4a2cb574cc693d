"""An asyncio loop on a thread of its own, and a FakeCluster there: what tests under trio talk to.

1. The cluster is touched in its own thread only. `Aside` stands for it, or for a part of it: what is asked of it is
   asked there, and waited for; a method that is a coroutine there is to be awaited here.
2. Its values (records, requests, connections) are handed out as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import trio

from aioproduce.drivers.loop_thread import LoopThread
from aioproduce.testing import FakeCluster
from aioproduce.testing.fake_cluster.connections import RequestLog
from aioproduce.testing.fake_cluster.faults import Fault, Faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

_PARTS = (FakeCluster, RequestLog, Faults, Fault)


async def _settle() -> None:
    """Until no task is left but this: asyncio forgets a connection that it takes while its listener closes."""
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _drain() -> None:
    sockets = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    while len(sockets) > 1:  # noqa: ASYNC110 (one is the loop's own; of the others the peers are gone)
        await asyncio.sleep(0.001)


@contextlib.contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """A loop thread, until the end; by then its peers have closed their sockets."""
    thread = LoopThread("the brokers' loop", asyncio.new_event_loop())
    try:
        yield thread
    finally:
        thread.call(_drain)
        thread.stop()
        thread.join()


class Aside:
    """What is in the loop's thread, as if it were here."""

    def __init__(self, thread: LoopThread, there: object) -> None:
        self._thread = thread
        self._there = there

    def __getattr__(self, name: str) -> Any:
        return self._here(self._thread.ask(lambda: self._value(name)))

    def _value(self, name: str) -> Any:
        value = getattr(self._there, name)
        return list(value) if isinstance(value, list) else value

    def _here(self, value: Any) -> Any:
        if isinstance(value, _PARTS):
            return Aside(self._thread, value)
        if inspect.iscoroutinefunction(value):
            return lambda *arguments, **named: self._awaited(self._thread.submit(value, *arguments, **named))
        if inspect.ismethod(value):
            return lambda *arguments, **named: self._here(
                self._thread.ask(lambda: value(*arguments, **named))
            )
        return value

    async def _awaited(self, call: Future[Any]) -> Any:
        return await trio.to_thread.run_sync(call.result)


@contextlib.contextmanager
def cluster_aside(*arguments: Any, **settings: Any) -> Iterator[Any]:
    """A FakeCluster (its arguments) on a thread of its own; nothing may be connected to it at the end."""
    with loop_thread() as thread:
        cluster = thread.ask(lambda: FakeCluster(*arguments, **settings))
        thread.call(cluster.start)
        try:
            yield Aside(thread, cluster)
        finally:
            thread.call(_settle)
            thread.call(cluster.close)
        assert cluster.connections == []
