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
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from aioproduce.drivers.loop_thread import LoopThread, ThreadBusyError, ThreadEndedError

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.integrations.log_shipper import LogShipper
    from aioproduce.producer.producer import Producer

_log = logging.getLogger("aioproduce.logging")

_T = TypeVar("_T")

# Seconds that a fork() waits at most. The resolver holds its locks while it reads a file, at the longest.
_FORK_PATIENCE: Final = 0.5


def load(config: ProducerConfig) -> None:
    """Import all that a producer of this configuration loads when it starts, some 100 ms (invariant 3)."""
    from aioproduce._native.record_batch import load_crc32c
    from aioproduce.compression import codec_for
    from aioproduce.drivers import asyncio as _driver  # noqa: F401
    from aioproduce.drivers import choice as _choice  # noqa: F401
    from aioproduce.installation import tell_if_interpreted
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
        make_shipper: Makes what ships by it.
        on_end: Called in the thread when it ends.

    Attributes:
        shipper: What ships, once it does.
    """

    def __init__(
        self,
        make_producer: Callable[[], Producer[Any, Any]],
        make_shipper: Callable[[Producer[Any, Any]], LogShipper],
        on_end: Callable[[LogThread, LogShipper | None], None],
    ) -> None:
        self._make_producer = make_producer
        self._make_shipper = make_shipper
        self._on_end = on_end
        self._is_up = threading.Event()
        self._closing = asyncio.Event()
        self._close_until = 0.0
        self._thread: LoopThread | None = None
        self.shipper: LogShipper | None = None

    @property
    def is_here(self) -> bool:
        """Whether this is called in the thread."""
        return self._thread is not None and self._thread.is_here

    def start(self) -> None:
        """Start it, without waiting until it ships.

        Raises:
            RuntimeError: the interpreter starts no threads any more.
            OSError: there is no descriptor left for an event loop.
        """
        self._thread = LoopThread("aioproduce logging", _make_loop())
        self._thread.submit(self._ship).add_done_callback(self._ended)

    def flush(self, timeout: float) -> None:
        """Wait until what was logged before is settled, for so many seconds at most."""
        if self._thread is None or not self._is_up.wait(timeout) or self.shipper is None:
            return
        try:
            flushing = self._thread.submit(self.shipper.flush)
        except ThreadEndedError:
            return
        try:
            self._thread.result(flushing, timeout)
        except ThreadBusyError:
            pass  # as promised: so many seconds at most
        except Exception as error:
            _log.warning("not flushed: %s", error)

    def close(self, timeout: float) -> None:
        """Ship what there is and end, within so many seconds."""
        if self._thread is None or self._thread.is_here:
            return  # it cannot wait for itself
        self._close_until = time.monotonic() + timeout
        self._thread.call_soon(self._closing.set)
        # A little more: its own bound is that one.
        self._thread.join(timeout + 1.0)

    # -- the thread ---

    def _ended(self, shipping: Future[None]) -> None:
        error = shipping.exception()
        if error is not None:
            # Its own logs are for the other handlers; nobody else will say that nothing is shipped any more.
            _log.error(
                "the thread that ships log records ended by an error; the next record starts another",
                exc_info=error,
            )
        self._is_up.set()
        self._on_end(self, self.shipper)
        if self._thread is not None:
            self._thread.stop()

    async def _ship(self) -> None:
        loop = asyncio.get_running_loop()
        producer = self._make_producer()
        await producer.start()
        try:
            self.shipper = self._make_shipper(producer)
            shipping = loop.create_task(self.shipper.run())
            closing = loop.create_task(self._closing.wait())
            self._is_up.set()
            await asyncio.wait([shipping, closing], return_when=asyncio.FIRST_COMPLETED)
            closing.cancel()
            await self.shipper.end(shipping, self._left())
            await producer.close(self._left())
        finally:
            await producer.close(0)

    def _left(self) -> float:
        """Seconds that `close()` leaves; none without it."""
        return max(self._close_until - time.monotonic(), 0.0)


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


def _make_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_InThisThread())
    # What the driver asks a loop for: see `drivers.asyncio`.
    loop.make_executor = _InThisThread  # type: ignore[attr-defined]  # no loop has it by itself
    return loop


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
