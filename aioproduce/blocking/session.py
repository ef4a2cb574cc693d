"""One run of a BlockingProducer in one process: the loop thread, its Producer, and the way between threads.

Created by `BlockingProducer.start()`, and again in a child process if that is requested. Its public methods are
called in any thread. Methods that run in the loop thread are `async` or documented so.

Invariants:

1. No call waits without a bound, or for a loop thread that has ended (`LoopThread`).
2. Whatever ends the loop thread (close, a failure of the Producer's sender, an error in the loop), every record
   gets an outcome and every waiting thread is woken (`_run()`).
3. Nothing waits in the loop thread, because it would wait for itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, final

from aioproduce.blocking import lifetime
from aioproduce.blocking.pump import forced_close
from aioproduce.blocking.way import Way
from aioproduce.drivers.loop_thread import LoopThread, ThreadEndedError, name_of, new_loop
from aioproduce.errors import (
    FlushTimeoutError,
    ForkedProcessError,
    LoopThreadError,
    ProducerClosedError,
    SenderDiedError,
)
from aioproduce.producer.producer import Producer
from aioproduce.producer.producer_states import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.hand_over import HandOver
    from aioproduce.blocking.transactions import BlockingTransaction
    from aioproduce.config import ProducerConfig
    from aioproduce.producer.deliveries import Deliveries

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("aioproduce")

# The maximum seconds of close() beyond its timeout (`producer.life`): for sockets that do not end, slow
# compression, and the same for the Sender of an audited producer's marks.
_GRACE: Final = 15.0


@final
class Session:
    """A loop thread with a Producer.

    Args:
        config: Its settings.
        exit_timeout: Seconds that closing may take at the interpreter's exit.

    Attributes:
        config: As passed.
        producer: The Producer; only for the loop thread.
        way: The way of its records.
        hand_over: The queue of records for the loop thread.
        current: The last transaction.
        ways: The ways of transactions whose deliveries may still be read; only for the loop thread.
    """

    __slots__ = (
        "_closing",
        "_death",
        "_exit_timeout",
        "_is_over",
        "_over",
        "_thread",
        "config",
        "current",
        "hand_over",
        "producer",
        "way",
        "ways",
    )

    hand_over: HandOver
    way: Way
    _thread: LoopThread

    def __init__(self, config: ProducerConfig, exit_timeout: float) -> None:
        self.config: ProducerConfig = config
        self._exit_timeout = exit_timeout
        self.producer: Producer[Any, Any] = Producer(config)
        self.current: BlockingTransaction[Any, Any] | None = None
        self.ways: weakref.WeakSet[Way] = weakref.WeakSet()
        self._death: BaseException | None = None
        self._closing: asyncio.Task[Any] | None = None
        self._is_over = threading.Event()
        self._over: concurrent.futures.Future[None] | None = None

    # -- lifetime, called by other threads ---

    def start(self, *, require_broker: bool) -> None:
        """Start the loop thread and the Producer.

        Raises:
            NoBrokerAvailableError: If `Producer.start()` raises it.
        """
        self._thread = LoopThread(f"aioproduce loop {self.config.client_id}", new_loop())
        try:
            self._thread.call(self._set_up, require_broker)
            self._over = self._thread.submit(self._run)
        except BaseException:
            self._over_now()
            raise
        lifetime.began(self)

    def close(self, timeout: float | None) -> None:
        """Close the Producer as `Producer.close()` does, and end the loop thread."""
        self.check_may_wait("close()")
        if not self._is_over.is_set():
            try:
                self.call(self._close, timeout)
            except (ProducerClosedError, SenderDiedError):
                _log.debug("closed or failed meanwhile: nothing is left to close", exc_info=True)
            self._over_now()

    def close_at_exit(self) -> None:
        """Close while the interpreter exits, in bounded time, whatever the loop thread is doing."""
        if self.hand_over.is_forked() or self._is_over.is_set() or self.is_loop_thread():
            return
        life = self.producer._life
        failed_before = self.producer.unobserved_failures
        life.reports.is_told = True  # by the one line below
        try:
            closing = self._thread.submit(self._close, self._exit_timeout)
        except ThreadEndedError:
            return  # it failed, and has settled everything
        concurrent.futures.wait([closing], self._exit_timeout + _GRACE)
        if not closing.done():
            _log.error(
                "the interpreter is exiting, but the loop thread of a BlockingProducer is stuck: not closed"
            )
            return
        self._over_now()
        failed = max(self.producer.unobserved_failures - failed_before, life.given_up.count)
        if failed:
            _log.error(
                "BlockingProducer %r was still open when the process ended, and %d record(s) failed within the "
                "%g s that it then had. %s Close it before: use `with producer:`, or producer.close()",
                self.config.client_id,
                failed,
                self._exit_timeout,
                life.given_up,
            )

    def close_soon(self) -> None:
        """Close without waiting: nobody holds this producer any more."""
        if not self._is_over.is_set() and not self.hand_over.is_forked():
            closing = threading.Thread(target=self.close, args=(None,), daemon=True, name="aioproduce close")
            with contextlib.suppress(RuntimeError):  # the interpreter is exiting and starts no threads
                closing.start()

    @property
    def is_over(self) -> bool:
        """Whether it was closed."""
        return self._is_over.is_set()

    def _over_now(self) -> None:
        """Wait for the imminent end of the loop thread's work and of the thread."""
        if self._over is not None:
            concurrent.futures.wait([self._over])
        self._is_over.set()
        lifetime.ended(self)
        self._thread.stop()
        self._thread.join()

    # -- the loop thread ---

    async def _set_up(self, require_broker: bool) -> None:
        producer = self.producer
        await producer.start(require_broker=require_broker)
        self.way = Way(self, producer, self.ended_error)
        self.hand_over = self.way.hand_over

    async def _run(self) -> None:
        try:
            await self.way.pump.run()
        except ProducerClosedError:
            _log.debug("closed while records waited for room", exc_info=True)
        except BaseException as error:
            self._death = error
            raise
        finally:
            await self._end()

    async def _end(self) -> None:
        """Settle everything, whatever the cause of the end (invariant 2)."""
        self.way.shut()
        if self.current is not None:
            await self.current._drop()
        try:
            await self.producer.close(0)
        finally:
            for way in (self.way, *self.ways):
                await way.pump.end(self._why_over)

    def _why_over(self, entry: BlockingDelivery) -> BaseException:
        return forced_close(entry) if self._death is None else self.ended_error()

    async def _close(self, timeout: float | None) -> None:
        """Close the Producer as `Producer.close()` does, after the records that were handed over."""
        if self._closing is not None:
            # Another call is closing it already, and this one limits its time.
            if timeout is not None and not (await asyncio.wait([self._closing], timeout=timeout))[0]:
                self._closing.cancel()
            return
        self._closing = asyncio.current_task()
        self.way.shut()
        began_at = time.monotonic()
        try:
            if self.current is not None:
                await self.current._closing(timeout)
            if timeout != 0 and await self.way.pump.through(timeout):
                left = None if timeout is None else max(timeout - (time.monotonic() - began_at), 0.0)
                await self.producer.close(left)
            else:
                await self.producer.close(0)
        except BaseException:
            # Cancelled (Ctrl-C, or a second close): records that wait for room must not wait any longer.
            await self.producer.close(0)
            raise
        finally:
            self.way.pump.stop()

    # -- calls ---

    def call(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run a coroutine function in the loop thread, and wait for its result.

        Raises:
            LoopThreadError: If it is called in the loop thread.
            ProducerClosedError: If the loop thread has ended.
            SenderDiedError: If the loop thread failed.
        """
        self.check_may_wait(f"{name_of(function)}()")
        with contextlib.suppress(ThreadEndedError):
            return self._thread.call(function, *arguments, **named)
        raise self.ended_error()

    def submit(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Run a coroutine function in the loop thread, if that is still running, without waiting for it."""
        with contextlib.suppress(ThreadEndedError):
            self._thread.submit(function, *arguments)

    def is_loop_thread(self) -> bool:
        """Return whether the current thread is the loop thread."""
        return self._thread.is_here

    def check_may_wait(self, what: str) -> None:
        """Refuse to wait in the loop thread."""
        if self.is_loop_thread():
            raise LoopThreadError(
                f"{what} would wait in the loop thread of this BlockingProducer, for that very thread: a delivery "
                "callback may call send() while there is room, but nothing that waits. Use another thread"
            )

    def raise_forked(self) -> NoReturn:
        """Refuse the use of the parent process's objects."""
        raise ForkedProcessError(
            "this was created before fork(), and the loop thread is in the parent process: create a "
            "BlockingProducer in the child, or set restart_after_fork=True; only the parent can read its "
            "deliveries"
        )

    def ended_error(self) -> SenderDiedError | ProducerClosedError:
        """Return the reason why nothing can be sent any more."""
        if self._death is not None or self.producer._life.state is ProducerState.DIED:
            died = SenderDiedError("the loop thread failed: create a new producer")
            died.__cause__ = self._death
            return died
        return ProducerClosedError("the producer is closed: create a new one to send again")

    async def flush(self, timeout: float | None) -> None:
        """Flush as `Producer.flush()` does, after the records that were handed over."""
        began_at = time.monotonic()
        left = timeout
        for way in (self.way, *self.ways):
            if not await way.pump.through(left):
                raise FlushTimeoutError(
                    f"not every record had an outcome within {timeout} s; the rest are still being sent: "
                    "flush again, or check their futures"
                )
            left = None if timeout is None else max(timeout - (time.monotonic() - began_at), 0.0)
        await self.producer.flush(left)

    def read(self, function: Callable[[], R]) -> R:
        """Return a value of the Producer, read in the loop thread, or in this thread after that has ended."""
        if not self._is_over.is_set() and not self.hand_over.is_forked():
            with contextlib.suppress(ThreadEndedError):
                return self._thread.ask(function)
        return function()

    def settle(
        self, ask: Callable[[Deliveries], Coroutine[Any, Any, Any]], part: Deliveries, timeout: float | None
    ) -> Any:
        """Return the result of deliveries after all of them are settled.

        Raises:
            TimeoutError: If that took longer than `timeout` seconds.
        """

        async def asking() -> Any:
            async with asyncio.timeout(timeout):
                return await ask(part)

        if self.hand_over.is_forked():
            self.raise_forked()
        if not self._is_over.is_set():
            try:
                return self.call(asking)
            except (ProducerClosedError, SenderDiedError):
                self._over_now()
        settled = ask(part)
        try:
            settled.send(None)
        except StopIteration as stop:
            return stop.value
        settled.close()
        raise self.ended_error()

    def refused(self) -> None:
        """Count a record whose `send()` raised."""
        self._thread.call_soon(self.producer._life.refused)
