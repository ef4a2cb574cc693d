"""A thread with an event loop and a producer of its own, for a handler that has brokers of its own.

Made by `KafkaLogHandler` at the first record.

Invariants:

1. It is a daemon that `close()` joins, in bounded time: `logging.shutdown()` calls that at the interpreter's
   exit, when threads that are no daemons would have been waited for already, without end.
2. Nothing on its loop needs another thread: at that time no executor takes work any more. Names are resolved,
   and batches compressed, in this thread, which has nothing else to do.
3. Nothing is imported in it: `load()` did that before. A fork() while a thread imports leaves the child with
   modules that are half there.
4. Whatever ends it, the handler is told once.
5. A fork() waits while it is in the C library's resolver, or in a codec: a child gets the locks in there as they
   are, held by a thread that it does not have, and its own first name is never resolved. It waits for a moment
   only: a name server that does not answer is waited for with no lock held.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from aioproduce.integrations.log_shipper import LogShipper

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.integrations.log_queue import LogQueue
    from aioproduce.producer.producer import Producer

_log = logging.getLogger("aioproduce.logging")

_T = TypeVar("_T")

# Seconds that a fork() waits at most. The resolver holds its locks while it reads a file, at the longest.
_FORK_PATIENCE: Final = 0.5


def load(config: ProducerConfig) -> None:
    """Import all that a producer of this configuration loads when it starts, some 100 ms (invariant 3)."""
    from aioproduce._native._installation import tell_if_interpreted
    from aioproduce._native.record_batch import load_crc32c
    from aioproduce.compression import codec_for
    from aioproduce.drivers import asyncio as _driver  # noqa: F401
    from aioproduce.wire.preload import preload

    tell_if_interpreted()
    preload()
    load_crc32c()
    codec = codec_for(config.compression_type)
    if codec is not None:
        codec.compress(memoryview(b"codecs import their libraries at the first use"))
    "localhost".encode("idna")  # a codec that is loaded when the first name is resolved


@final
class LogThread:
    """Ships one queue until it is closed.

    Args:
        make_producer: Makes the producer, in the thread.
        queue: Where lines come from.
        topic: Where they go.
        notice_of: Makes a line that tells of so many dropped ones.
        on_end: Called in the thread when it ends.

    Attributes:
        ident: The thread's, once it runs.
        shipper: What ships, once it does.
    """

    def __init__(
        self,
        make_producer: Callable[[], Producer],
        queue: LogQueue,
        topic: str,
        notice_of: Callable[[int], bytes | None],
        on_end: Callable[[LogThread, LogShipper | None], None],
    ) -> None:
        self._make_producer = make_producer
        self._queue = queue
        self._topic = topic
        self._notice_of = notice_of
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="aioproduce logging", daemon=True)
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._close_seconds = 0.0
        self._is_closing = False
        self.shipper: LogShipper | None = None

    @property
    def ident(self) -> int | None:
        """The thread's identity."""
        return self._thread.ident

    def start(self) -> None:
        """Start it, without waiting until it ships.

        Raises:
            RuntimeError: the interpreter starts no threads any more.
        """
        self._thread.start()

    def flush(self, timeout: float) -> None:
        """Wait until what was logged before is settled, for so many seconds at most."""
        if not self._is_up.wait(timeout) or self._loop is None or self.shipper is None:
            return
        try:
            flushing = asyncio.run_coroutine_threadsafe(self.shipper.flush(), self._loop)
        except RuntimeError:
            return  # it has ended
        try:
            flushing.result(timeout)
        except concurrent.futures.TimeoutError:
            flushing.cancel()
        except (concurrent.futures.CancelledError, Exception) as error:
            _log.warning("not flushed: %s", error)

    def close(self, timeout: float) -> None:
        """Ship what there is and end, within so many seconds."""
        if threading.get_ident() == self.ident:
            return  # it cannot wait for itself
        until = time.monotonic() + timeout
        self._is_closing = True
        if self._is_up.wait(timeout) and self._loop is not None and self._closing is not None:
            self._close_seconds = max(until - time.monotonic(), 0.0)
            try:
                self._loop.call_soon_threadsafe(self._closing.set)
            except RuntimeError:
                return  # it has ended
        # A little more: its own bound is that one.
        self._thread.join(max(until - time.monotonic(), 0.0) + 1.0)

    # -- the thread ---

    def _run(self) -> None:
        try:
            loop = asyncio.new_event_loop()
            loop.set_default_executor(_InThisThread())
            # What the driver asks a loop for: see `drivers.asyncio`.
            loop.make_executor = _InThisThread  # type: ignore[attr-defined]
            try:
                loop.run_until_complete(self._ship())
            finally:
                loop.close()
        except BaseException:
            # Its own logs are for the other handlers; nobody else will say that nothing is shipped any more.
            _log.exception(
                "the thread that ships log records ended by an error; the next record starts another"
            )
        finally:
            self._is_up.set()
            self._on_end(self, self.shipper)

    async def _ship(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        producer = self._make_producer()
        await producer.start()
        try:
            self.shipper = LogShipper(self._queue, producer, self._topic, self._notice_of)
            shipping = self._loop.create_task(self.shipper.run())
            closing = self._loop.create_task(self._closing.wait())
            self._is_up.set()
            if self._is_closing:  # nobody waited so long
                self._closing.set()
            await asyncio.wait([shipping, closing], return_when=asyncio.FIRST_COMPLETED)
            until = self._loop.time() + self._close_seconds
            closing.cancel()
            await self.shipper.end(shipping, self._close_seconds)
            await producer.close(max(until - self._loop.time(), 0.0))
        finally:
            await producer.close(0)


@final
class _ForkGate:
    """Where such a thread and a fork() let each other pass (invariant 5)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nobody is inside: in a child, which has none of these threads."""
        self._turn = threading.Condition()
        self._inside = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """No fork() meanwhile, for a moment."""
        with self._turn:
            self._inside += 1
        try:
            yield
        finally:
            with self._turn:
                self._inside -= 1
                self._turn.notify_all()

    def shut(self) -> None:
        """Before a fork(): nobody enters any more, and those inside leave."""
        self._turn.acquire()
        self._turn.wait_for(lambda: not self._inside, _FORK_PATIENCE)

    def open(self) -> None:
        """After it, in the parent."""
        self._turn.release()


_gate: Final = _ForkGate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_gate.shut, after_in_parent=_gate.open, after_in_child=_gate.reset)


@final
class _InThisThread(ThreadPoolExecutor):
    """An executor without threads: what is submitted is done before `submit()` returns."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Do it."""
        done: Future[_T] = Future()
        try:
            with _gate.inside():
                done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
