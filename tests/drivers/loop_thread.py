"""An asyncio loop on a thread of its own, and a FakeCluster there: what tests under trio talk to.

1. The cluster is touched in its own thread only. `Aside` stands for it, or for a part of it: what is asked of it is
   asked there, and waited for; a method that is a coroutine there is to be awaited here.
2. Its values (records, requests, connections) are handed out as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from typing import TYPE_CHECKING, Any, Self

import trio

from aioproduce.testing import FakeCluster
from aioproduce.testing.fake_cluster.connections import RequestLog
from aioproduce.testing.fake_cluster.faults import Fault, Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Future

_PARTS = (FakeCluster, RequestLog, Faults, Fault)


class LoopThread:
    """`with LoopThread() as thread:` runs a loop until its end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="the brokers' loop")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run it there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it there, and wait for what it gives."""

        async def call() -> Any:
            return function(*arguments)

        return self.submit(call()).result()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    async def settle(self) -> None:
        """Until no task is left but this: asyncio forgets a connection that it takes while its listener closes."""
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _drain(self) -> None:
        sockets = self.loop._selector.get_map()  # type: ignore[attr-defined]
        while len(sockets) > 1:  # noqa: ASYNC110 (one is the loop's own; of the others the peers are gone)
            await asyncio.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self.submit(self._drain()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Aside:
    """What is in the loop's thread, as if it were here."""

    def __init__(self, thread: LoopThread, there: object) -> None:
        self._thread = thread
        self._there = there

    def __getattr__(self, name: str) -> Any:
        return self._here(self._thread.call(self._value, name))

    def _value(self, name: str) -> Any:
        value = getattr(self._there, name)
        return list(value) if isinstance(value, list) else value

    def _here(self, value: Any) -> Any:
        if isinstance(value, _PARTS):
            return Aside(self._thread, value)
        if inspect.iscoroutinefunction(value):
            return lambda *arguments, **named: self._awaited(value(*arguments, **named))
        if inspect.ismethod(value):
            return lambda *arguments, **named: self._here(
                self._thread.call(lambda: value(*arguments, **named))
            )
        return value

    async def _awaited(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await trio.to_thread.run_sync(self._thread.submit(coroutine).result)


@contextlib.contextmanager
def cluster_aside(*arguments: Any, **settings: Any) -> Iterator[Any]:
    """A FakeCluster (its arguments) on a thread of its own; nothing may be connected to it at the end."""
    with LoopThread() as thread:
        cluster = thread.call(lambda: FakeCluster(*arguments, **settings))
        thread.submit(cluster.start()).result()
        try:
            yield Aside(thread, cluster)
        finally:
            thread.submit(_close(thread, cluster)).result()
        assert cluster.connections == []


async def _close(thread: LoopThread, cluster: FakeCluster) -> None:
    await thread.settle()
    await cluster.close()
