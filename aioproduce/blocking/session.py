"""One run of a BlockingProducer, in one process: the loop thread, the Producer in it, and the way between.

Made by `BlockingProducer.start()`, and again in a child process where that is asked for. Its public methods are
called in any thread; what runs in the loop thread is `async`, or says so.

Invariants:

1. No call waits without a bound, or for a loop thread that is gone (`LoopThread`).
2. Whatever ends the loop thread (close, the death of the Producer's sender, an error in the loop), every record
   is settled and every thread that waits is woken (`_run()`).
3. Nothing waits in the loop thread: it would wait for itself.
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
from aioproduce.producer.life import ProducerState
from aioproduce.producer.producer import Producer

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

# What close() takes beyond its time-out at most (`producer.life`): sockets that do not end, compression that takes
# long, and the same of the Sender of an audited producer's marks.
_GRACE: Final = 15.0


@final
class Session:
    """A loop thread with a Producer.

    Args:
        config: Its settings.
        exit_timeout: Seconds that it may take when the interpreter exits.

    Attributes:
        config: As given.
        producer: The Producer; only for the loop thread.
        way: That of its records.
        hand_over: Where they are put.
        current: The transaction that was begun last.
        ways: Those of transactions whose deliveries may still be asked for; only for the loop thread.
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

    # -- its life, from the threads that call ---

    def start(self, *, require_broker: bool) -> None:
        """Start the loop thread and the Producer.

        Raises:
            NoBrokerAvailableError: as `Producer.start()`.
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
        """As `Producer.close()`, and end the loop thread."""
        self.check_may_wait("close()")
        if not self._is_over.is_set():
            try:
                self.call(self._close, timeout)
            except (ProducerClosedError, SenderDiedError):
                _log.debug("closed meanwhile, or dead: there is nothing left to close", exc_info=True)
            self._over_now()

    def close_at_exit(self) -> None:
        """Close while the interpreter exits: in bounded time, whatever the loop thread is at."""
        if self.hand_over.is_forked() or self._is_over.is_set() or self.is_loop_thread():
            return
        life = self.producer._life
        failed_before = self.producer.unobserved_failures
        life.reports.is_told = True  # by the one line below
        try:
            closing = self._thread.submit(self._close, self._exit_timeout)
        except ThreadEndedError:
            return  # it died, and has settled everything
        concurrent.futures.wait([closing], self._exit_timeout + _GRACE)
        if not closing.done():
            _log.error(
                "the interpreter exits, and the loop thread of a BlockingProducer is stuck: not closed"
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
        """Close, without waiting for it: nobody has this producer any more."""
        if not self._is_over.is_set() and not self.hand_over.is_forked():
            closing = threading.Thread(target=self.close, args=(None,), daemon=True, name="aioproduce close")
            with contextlib.suppress(RuntimeError):  # the interpreter exits, and begins no threads any more
                closing.start()

    @property
    def is_over(self) -> bool:
        """Whether it was closed."""
        return self._is_over.is_set()

    def _over_now(self) -> None:
        """Wait for the end of what runs in the loop thread, which is on its way, and for the thread's."""
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
        """Settle everything, whatever the end is (invariant 2)."""
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
        """As `Producer.close()`; what was handed over goes first."""
        if self._closing is not None:
            # Somebody is at it already; this bounds it.
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
            # Given up (Ctrl-C, or a second close): what still waits for room must not go on waiting.
            await self.producer.close(0)
            raise
        finally:
            self.way.pump.stop()

    # -- calls ---

    def call(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run a coroutine function in the loop thread, and wait for what it gives.

        Raises:
            LoopThreadError: called in the loop thread.
            ProducerClosedError: the loop thread has ended; SenderDiedError if it died.
        """
        self.check_may_wait(f"{name_of(function)}()")
        with contextlib.suppress(ThreadEndedError):
            return self._thread.call(function, *arguments, **named)
        raise self.ended_error()

    def submit(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Run a coroutine function in the loop thread, if that still runs, and do not wait for it."""
        with contextlib.suppress(ThreadEndedError):
            self._thread.submit(function, *arguments)

    def is_loop_thread(self) -> bool:
        """Whether this is called in the loop thread."""
        return self._thread.is_here

    def check_may_wait(self, what: str) -> None:
        """Refuse to wait in the loop thread."""
        if self.is_loop_thread():
            raise LoopThreadError(
                f"{what} would wait in the loop thread of this BlockingProducer, for that very thread: a delivery "
                "callback may send() while there is room, and nothing that waits. Have another thread do it"
            )

    def raise_forked(self) -> NoReturn:
        """Refuse what is of the parent process."""
        raise ForkedProcessError(
            "this was made before fork(), and the loop thread is in the parent process: make a BlockingProducer in "
            "the child, or give it restart_after_fork=True; deliveries of the parent are the parent's to ask"
        )

    def ended_error(self) -> SenderDiedError | ProducerClosedError:
        """Why nothing can be sent any more."""
        if self._death is not None or self.producer._life.state is ProducerState.DIED:
            died = SenderDiedError("the loop thread died; make a new producer")
            died.__cause__ = self._death
            return died
        return ProducerClosedError("the producer is closed: make a new one to send again")

    async def flush(self, timeout: float | None) -> None:
        """As `Producer.flush()`; what was handed over goes first."""
        began_at = time.monotonic()
        left = timeout
        for way in (self.way, *self.ways):
            if not await way.pump.through(left):
                raise FlushTimeoutError(
                    f"not every record was settled within {timeout} s; the rest goes on: flush again, or look at "
                    "their futures"
                )
            left = None if timeout is None else max(timeout - (time.monotonic() - began_at), 0.0)
        await self.producer.flush(left)

    def read(self, function: Callable[[], R]) -> R:
        """What a function reads of the Producer: in the loop thread, or here once there is none."""
        if not self._is_over.is_set() and not self.hand_over.is_forked():
            with contextlib.suppress(ThreadEndedError):
                return self._thread.ask(function)
        return function()

    def settle(
        self, ask: Callable[[Deliveries], Coroutine[Any, Any, Any]], part: Deliveries, timeout: float | None
    ) -> Any:
        """Ask deliveries for what there is when all of them are settled.

        Raises:
            TimeoutError: that took longer than `timeout` seconds.
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
