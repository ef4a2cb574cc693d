"""One event loop in one thread for each Python worker process, and its producers.

Used by `task`. Spark forks worker processes and gives each many tasks, one after the other. The loop thread and the
producers stay from task to task, so that only the first waits for connections and metadata.

Invariants:

1. A runtime belongs to one process. After a fork the child creates its own. It keeps what it inherited without
   touching it, because closing a copied selector or socket would affect the parent's.
2. A producer belongs to one configuration. A producer with a failed write is dropped, and the next task starts with
   a new one. If there are more than `_MOST_PRODUCERS`, the least recently used one is dropped, too. (Spark's own
   cache also has configurations as keys: a bad cached producer there served the retry, SPARK-27042.)
3. When the loop thread ends, its waiters are woken: nobody waits for a loop that no longer exists.
4. `Runtime.here()` is called by one thread, as Spark does: a worker runs one task at a time.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeAlias, TypeVar, final

from aioproduce.drivers.loop_thread import LoopThread, ThreadBusyError, ThreadEndedError, new_loop
from aioproduce.producer.producer import Producer
from aioproduce.spark.errors import LoopEndedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")
ProducerKey: TypeAlias = tuple[tuple[str, str], ...]
"""A producer's settings: Kafka's dotted keys and texts, sorted."""

_log = logging.getLogger("aioproduce.spark")

# If settings keep changing, e.g. a `client.id` for each write, the most recently used ones are kept.
_MOST_PRODUCERS: Final = 8
_START_BOUND: Final = 30.0
_CLOSE_BOUND: Final = 10.0


@final
class Runtime:
    """The loop thread of this process.

    Attributes:
        pid: The id of its process.
    """

    _here: ClassVar[Runtime | None] = None
    _left: ClassVar[list[Runtime]] = []

    def __init__(self) -> None:
        self.pid: int = os.getpid()
        self._producers: dict[ProducerKey, Producer] = {}  # the most recently used one comes last
        self._thread = LoopThread("aioproduce-spark", new_loop())

    @classmethod
    def here(cls) -> Runtime:
        """Return the runtime of this process; create one if there is none, or only the parent's or a dead one."""
        found = cls._here
        if found is not None and (found.pid != os.getpid() or not found.is_alive):
            cls._left.append(found)
            found = None
        if found is None:
            found = cls._here = cls()
        return found

    @property
    def is_alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread.is_alive

    # -- calls from the task's thread ---

    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Start a coroutine function in the loop thread.

        Raises:
            LoopEndedError: If the thread has ended.
        """
        try:
            return self._thread.submit(function, *args, **kwargs)
        except ThreadEndedError as error:
            raise _ended() from error

    def result(self, future: Future[T], timeout: float) -> T:
        """Return the result of a coroutine.

        Args:
            future: The result of `submit()`.
            timeout: Seconds after which the loop is considered stuck: more than the coroutine itself takes.

        Raises:
            LoopEndedError: If the thread ended meanwhile, or did not answer in time.
        """
        try:
            return self._thread.result(future, timeout)
        except ThreadEndedError as error:
            raise _ended() from error
        except ThreadBusyError as error:
            raise LoopEndedError(
                f"the event loop of worker process {self.pid} has not answered for {timeout:g} s: it is blocked, "
                "or the machine is overloaded. The task fails and is retried in another process"
            ) from error

    def run(
        self,
        timeout: float,
        function: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a coroutine function in the loop thread, as `submit()` and `result()` do."""
        return self.result(self.submit(function, *args, **kwargs), timeout)

    def producer(self, key: ProducerKey) -> Producer[Any, Any]:
        """Return the started producer with these settings.

        Raises:
            ConfigError: If the settings are not valid.
            LoopEndedError: If the thread has ended.
        """
        found = self._producers.pop(key, None)
        if found is None:
            while len(self._producers) >= _MOST_PRODUCERS:
                self.drop(next(iter(self._producers)))  # idle: nothing is in flight when a task ends
            found = self.run(_START_BOUND, _started, key)
        self._producers[key] = found
        return found

    def drop(self, key: ProducerKey) -> None:
        """Close the producer with these settings at once, dropping everything that it has not sent."""
        producer = self._producers.pop(key, None)
        if producer is None or not self.is_alive:
            return
        try:
            self.run(_CLOSE_BOUND, producer.close, 0)
        except Exception:
            # The write has already failed with a reason, which this must not hide.
            _log.warning("a producer of a failed write could not be closed and is abandoned", exc_info=True)

    def close(self) -> None:
        """Close all producers and end the thread. Tasks do not need it: worker processes just end."""
        if Runtime._here is self:
            Runtime._here = None
        if self.pid != os.getpid():
            Runtime._left.append(self)
            return
        for key in list(self._producers):
            self.drop(key)
        self._thread.stop()
        self._thread.join(_CLOSE_BOUND)


async def _started(key: ProducerKey) -> Producer[Any, Any]:
    producer = Producer(dict(key))
    await producer.start()
    return producer


def _ended() -> LoopEndedError:
    return LoopEndedError(
        "the event loop's thread of this worker process ended while the task waited for it. The task fails and is "
        "retried"
    )
