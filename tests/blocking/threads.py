"""A FakeCluster for tests without an event loop, and what they do with threads.

1. Nothing here waits for time: a wait that should end and does not is the test's own time-out, hours on this scale.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self

from aioproduce.drivers.loop_thread import LoopThread
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

PATIENCE = 120.0
"""Far above what any of it takes: a bound for a hang, not a budget."""


class ThreadedCluster:
    """A FakeCluster that runs in a thread of its own; everything about it is asked there."""

    def __init__(self, topics: dict[str, int], **settings: Any) -> None:
        self.cluster = FakeCluster(1, topics=topics, auto_create_topics=False, **settings)

    def __enter__(self) -> Self:
        self._thread = LoopThread("the brokers' loop", asyncio.new_event_loop())
        self._thread.call(self.cluster.start)
        self.bootstrap_servers = self.call(lambda cluster: cluster.bootstrap_servers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.call(self.cluster.close)
        self._thread.stop()
        self._thread.join()

    def call(self, function: Callable[[FakeCluster], Any]) -> Any:
        """What a function makes of the cluster, in the cluster's thread."""
        return self._thread.ask(lambda: function(self.cluster))

    def records(self, topic: str = "t", partition: int | None = None) -> list[Any]:
        """What the log holds."""
        found: list[Any] = self.call(lambda cluster: cluster.records(topic, partition))
        return found

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Answer nothing until the block ends, or `resume()`."""
        self.call(lambda cluster: cluster.faults.stall(next(iter(cluster.ports))))
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """Answer again."""
        self.call(lambda cluster: cluster.faults.resume(next(iter(cluster.ports))))


def in_threads(functions: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run functions at once, each in a thread; gives what they gave, in order, or raises what one raised."""
    functions = list(functions)
    gate = threading.Barrier(len(functions))
    given: list[Any] = [None] * len(functions)
    raised: list[BaseException] = []

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            gate.wait()
            given[index] = function()
        except BaseException as error:
            raised.append(error)

    threads = [
        threading.Thread(target=run, args=(index, function), name=f"test {index}")
        for index, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return given


class Caller:
    """A call in a thread of its own, which may wait.

    Attributes:
        thread: The thread.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._given: Any = None
        self._raised: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="test caller")
        self.thread.start()

    def _run(self) -> None:
        try:
            self._given = self._function()
        except BaseException as error:
            self._raised = error

    def outcome(self) -> Any:
        """What the call gave; raises what it raised."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "hangs"
        if self._raised is not None:
            raise self._raised
        return self._given
