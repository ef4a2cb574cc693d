"""A thread with its own event loop and producer, for a handler with its own brokers.

Created by `KafkaLogHandler` at the first record.

Invariants:

1. It is a daemon thread that `close()` joins in bounded time. `logging.shutdown()` calls that at the interpreter's
   exit, which would already have waited for non-daemon threads without limit.
2. Nothing on its loop needs another thread, because executors accept no work at that time. Names are resolved and
   batches compressed in this thread, which has nothing else to do.
3. Nothing is imported in it, because `load()` has done so: a fork() during an import leaves the child with
   incomplete modules.
4. However it ends, the handler is called once.
5. A fork() waits while the thread is in the C library's resolver or in a codec. Otherwise the child would inherit
   their locks, held by a thread that it does not have, and could never resolve a name. The wait is short: the
   resolver holds no lock while it waits for a name server.
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
    from aioproduce.integrations.log_shipper import Shipper
    from aioproduce.producer.producer import Producer
    from aioproduce.spool import SpooledProducer

_log = logging.getLogger("aioproduce.logging")

_T = TypeVar("_T")

# Maximum seconds that a fork() waits. The resolver holds its locks at most while it reads a file.
_FORK_PATIENCE: Final = 0.5


def load(config: ProducerConfig, *, has_spool: bool = False) -> None:
    """Import all modules that a producer of this configuration loads at its start, some 100 ms (invariant 3)."""
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
    "localhost".encode("idna")  # loads the codec for resolving names
    if has_spool:
        import anyio._backends._asyncio  # noqa: F401  # anyio imports it at its first use of a thread

        import aioproduce.spool  # noqa: F401


@final
class LogThread:
    """Sends the lines of one queue until it is closed.

    Args:
        make_producer: Creates the producer, in the thread.
        make_shipper: Creates the shipper for a producer.
        on_end: Called in the thread when it ends.

    Attributes:
        shipper: The shipper, once it runs.
    """

    def __init__(
        self,
        make_producer: Callable[[], Producer[Any, Any] | SpooledProducer],
        make_shipper: Callable[[Any], Shipper],
        on_end: Callable[[LogThread, Shipper | None], None],
    ) -> None:
        self._make_producer = make_producer
        self._make_shipper = make_shipper
        self._on_end = on_end
        self._is_up = threading.Event()
        self._closing = asyncio.Event()
        self._close_until = 0.0
        self._thread: LoopThread | None = None
        self.shipper: Shipper | None = None

    @property
    def is_here(self) -> bool:
        """Whether the current thread is this one."""
        return self._thread is not None and self._thread.is_here

    def start(self) -> None:
        """Start the thread without waiting for the producer.

        Raises:
            RuntimeError: If the interpreter does not start threads any more.
            OSError: If no file descriptor is left for an event loop.
        """
        self._thread = LoopThread("aioproduce logging", _make_loop())
        self._thread.submit(self._ship).add_done_callback(self._ended)

    def flush(self, timeout: float) -> None:
        """Wait until all earlier lines are acknowledged or failed, at most this time in seconds."""
        if self._thread is None or not self._is_up.wait(timeout) or self.shipper is None:
            return
        try:
            flushing = self._thread.submit(self.shipper.flush)
        except ThreadEndedError:
            return
        try:
            self._thread.result(flushing, timeout)
        except ThreadBusyError:
            pass  # the time is over
        except Exception as error:
            _log.warning("not flushed: %s", error)

    def close(self, timeout: float) -> None:
        """Send the remaining lines and end, within this time in seconds."""
        if self._thread is None or self._thread.is_here:
            return  # it cannot wait for itself
        self._close_until = time.monotonic() + timeout
        self._thread.call_soon(self._closing.set)
        # A little more than its own limit.
        self._thread.join(timeout + 1.0)

    # -- the thread ---

    def _ended(self, shipping: Future[None]) -> None:
        error = shipping.exception()
        if error is not None:
            # The thread's own log records go only to the other handlers, and nothing else reports its end.
            _log.error(
                "the thread that sends log records failed; the next record starts another one",
                exc_info=error,
            )
        self._is_up.set()
        self._on_end(self, self.shipper)
        if self._thread is not None:
            self._thread.stop()

    async def _ship(self) -> None:
        loop = asyncio.get_running_loop()
        producer = self._make_producer()
        producer._is_closed_by_its_owner()  # `logging.shutdown()` closes the handler
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
        """Return the remaining seconds of `close()`; 0 if it was not called."""
        return max(self._close_until - time.monotonic(), 0.0)


@final
class _ForkGate:
    """Makes such a thread and a fork() wait for each other (invariant 5)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the state in a child, which has none of these threads."""
        self._turn = threading.Condition()
        self._inside = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Prevent a fork() for a short time."""
        with self._turn:
            self._inside += 1
        try:
            yield
        finally:
            with self._turn:
                self._inside -= 1
                self._turn.notify_all()

    def shut(self) -> None:
        """Before a fork(), let no thread enter, and wait until those inside have left."""
        self._turn.acquire()
        self._turn.wait_for(lambda: not self._inside, _FORK_PATIENCE)

    def open(self) -> None:
        """After a fork(), let threads enter again, in the parent."""
        self._turn.release()


_gate: Final = _ForkGate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_gate.shut, after_in_parent=_gate.open, after_in_child=_gate.reset)


def _make_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_InThisThread())
    # The attribute of a loop that the driver uses: see `drivers.asyncio`.
    loop.make_executor = _InThisThread  # type: ignore[attr-defined]  # no loop has it by itself
    return loop


@final
class _InThisThread(ThreadPoolExecutor):
    """An executor without threads: `submit()` runs the function before it returns."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run the function."""
        done: Future[_T] = Future()
        try:
            with _gate.inside():
                done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
