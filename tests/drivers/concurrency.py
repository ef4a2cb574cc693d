"""Tasks, waiting and time for tests that run on asyncio, uvloop and trio: one body, and the running loop's means.

On asyncio each name is asyncio's own. Under trio:

1. `spawn()` starts a task in the test's nursery (`in_nursery()`), which is there as long as the test. What such a
   task raises is kept for the task that awaits it. A cancelled one then raises `asyncio.CancelledError`, like a
   task of asyncio: a name that tests share and that trio itself never sees.
2. Tasks begin in the order in which they were spawned, one in a turn: trio's own order is drawn by lot.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.to_thread
import trio
import trio.testing

from aioproduce.testing import FakeCluster
from tests.drivers.loop_thread import Aside, cluster_aside

T = TypeVar("T")


def is_trio() -> bool:
    """Whether this is a task of trio's."""
    return trio.lowlevel.in_trio_task()


class Spawned(Generic[T]):
    """What tests use of `asyncio.Task`, of a task of trio's."""

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Be the task."""
        try:
            with self._scope:
                self._result = await self._awaitable
        except Exception as error:
            self._error = error
        finally:
            if self._scope.cancelled_caught:
                self._error = asyncio.CancelledError()
            self._ended.set()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def cancel(self) -> bool:
        """Cancel what it waits for; False if it has ended."""
        self._scope.cancel()
        return not self.done()

    def cancelled(self) -> bool:
        """Whether that ended it."""
        return isinstance(self._error, asyncio.CancelledError)

    def result(self) -> T:
        """What it returned; raises what it raised."""
        assert self.done(), "it has not ended"
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def exception(self) -> BaseException | None:
        """What it raised."""
        assert self.done(), "it has not ended"
        return self._error

    async def _wait(self) -> T:
        await self._ended.wait()
        return self.result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()


class _Nursery:
    """The test's nursery, and a task in it that starts the others in order."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._waiting: deque[Spawned[Any]] = deque()
        self._is_starting = False

    def start(self, spawned: Spawned[Any]) -> None:
        self._waiting.append(spawned)
        if not self._is_starting:
            self._is_starting = True
            self._nursery.start_soon(self._start_all)

    async def begun(self) -> None:
        """All that was spawned has taken its first step."""
        while self._is_starting:
            await trio.lowlevel.checkpoint()

    async def _start_all(self) -> None:
        try:
            while self._waiting:
                self._nursery.start_soon(self._waiting.popleft().run)
                await trio.lowlevel.checkpoint()
        finally:
            self._is_starting = False


_nursery: ContextVar[_Nursery] = ContextVar("the test's nursery")


@contextlib.asynccontextmanager
async def in_nursery() -> AsyncIterator[None]:
    """Around a test under trio: what it spawned must have ended by its end."""
    async with trio.open_nursery() as nursery:
        _nursery.set(_Nursery(nursery))
        yield
        await trio.testing.wait_all_tasks_blocked()
        left = [task.name for task in nursery.child_tasks]
        nursery.cancel_scope.cancel()
    assert not left, f"left behind: {left}"


def spawn(awaitable: Awaitable[T]) -> asyncio.Task[T]:
    """A task, begun soon. (To type checkers asyncio's: tests use what both have.)"""
    if not is_trio():
        return cast("asyncio.Task[T]", asyncio.ensure_future(awaitable))
    spawned = Spawned(awaitable)
    _nursery.get().start(spawned)
    return cast("asyncio.Task[T]", spawned)


async def gather(*awaitables: Awaitable[Any], return_exceptions: bool = False) -> list[Any]:
    """The results in order; the first error is raised, and the rest goes on."""
    if not is_trio():
        return cast(
            "list[Any]", await asyncio.gather(*awaitables, return_exceptions=cast(Any, return_exceptions))
        )
    results: list[Any] = []
    for task in [each if isinstance(each, Spawned) else spawn(each) for each in awaitables]:
        try:
            results.append(await task)
        except (Exception, asyncio.CancelledError) as error:
            if not return_exceptions:
                raise
            results.append(error)
    return results


async def sleep(seconds: float) -> None:
    """So long; 0 is one turn of the loop, and what was spawned before has had its first."""
    if is_trio():
        await _nursery.get().begun()
    await anyio.sleep(seconds)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError if what is in it takes longer."""
    if not is_trio():
        async with asyncio.timeout(seconds):
            yield
    else:
        with anyio.fail_after(seconds):
            yield


async def wait_for(awaitable: Awaitable[T], seconds: float) -> T:
    """The same of one awaitable, which is cancelled."""
    if not is_trio():
        return await asyncio.wait_for(awaitable, seconds)
    try:
        with anyio.fail_after(seconds):
            return await awaitable
    except TimeoutError:
        if isinstance(awaitable, Spawned):
            awaitable.cancel()
            await awaitable._ended.wait()
        raise


async def to_thread(function: Callable[..., T], *arguments: Any) -> T:
    """In another thread."""
    return await anyio.to_thread.run_sync(function, *arguments)


async def rest() -> None:
    """Until no task has anything left to do but to wait; on asyncio, more turns than any of ours needs."""
    if is_trio():
        await trio.testing.wait_all_tasks_blocked()
    else:
        for _ in range(10):
            await asyncio.sleep(0)


def run_asyncio(coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """Under trio, a coroutine that is asyncio's own (a client that judges), in a thread of its own."""
    return to_thread(asyncio.run, coroutine) if is_trio() else coroutine


def senders() -> list[Any]:
    """The tasks of producers' senders that have not ended."""
    if not is_trio():
        return [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproduce sender")]
    return [task for task in all_tasks() if task.name.startswith("aioproduce sender")]


def all_tasks() -> set[Any]:
    """Every task that there is, but for whatever trio itself runs."""
    if not is_trio():
        return set(asyncio.all_tasks())
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return set(_below(root))


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _below(child)


@contextlib.asynccontextmanager
async def fake_cluster(*arguments: Any, **settings: Any) -> AsyncIterator[FakeCluster]:
    """One of the test's own, on this loop or, under trio, on another thread."""
    if is_trio():
        with cluster_aside(*arguments, **settings) as aside:
            yield aside
    else:
        async with FakeCluster(*arguments, **settings) as started:
            yield started


def at_brokers(cluster: FakeCluster | Aside, action: Callable[[FakeCluster], None]) -> None:
    """Do something to the cluster's own parts, in its thread."""
    if isinstance(cluster, Aside):
        there = cast(FakeCluster, cluster._there)
        cluster._thread.ask(lambda: action(there))
    else:
        action(cluster)


def loop_here() -> object:
    """What runs here: asyncio's loop, or trio's token."""
    return trio.lowlevel.current_trio_token() if is_trio() else asyncio.get_running_loop()


def assert_in_order(found: Iterable[Any], expected: Iterable[Any]) -> None:
    """As many tasks were to send them: each in its turn. Those of one turn trio takes in either order."""
    if is_trio():
        assert sorted(found) == sorted(expected)
    else:
        assert list(found) == list(expected)


def kill_sender() -> None:
    """Cancel the one that there is, from outside: as test frameworks do on asyncio, the end of a run under trio."""
    [sender] = senders()
    if is_trio():
        [nursery] = sender.child_nurseries
        nursery.cancel_scope.cancel()
    else:
        sender.cancel()


KILLED = (asyncio.CancelledError, trio.RunFinishedError)
"""What a sender died of that was cancelled so."""

HANDLE_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
"""What a delivery raises whose own `cancel()` was called."""
