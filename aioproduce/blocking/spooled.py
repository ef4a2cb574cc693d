"""A BlockingProducer's queue on disk: a loop thread with a `SpooledProducer`, and calls into it from other threads.

Created by `BlockingProducer.start()` if it was given a `Spool`, in place of a `Session`. All public methods may be
called in any thread.

Invariants:

1. `send()` returns when the record is on disk, or raises. So nothing waits between threads: there is no hand-over,
   no pump and nothing to lose at the exit. Calls of many threads share a sync.
2. A delivery that nobody reads costs nothing, as in `SpooledProducer`. Only a callback costs a task.
3. Nothing waits in the loop thread, because it would wait for itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, final

from aioproduce.blocking import lifetime
from aioproduce.drivers.loop_thread import LoopThread, ThreadEndedError, name_of, new_loop
from aioproduce.errors import (
    ForkedProcessError,
    LoopThreadError,
    ProducerClosedError,
    ProducerError,
)
from aioproduce.records import RecordMetadata
from aioproduce.spool import SpooledProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.config import ProducerConfig
    from aioproduce.spool import Spool, SpooledDeliveries, SpooledDelivery

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("aioproduce")

# Seconds of close() beyond its timeout: the last sync, and sockets that do not end.
_GRACE: Final = 15.0


@final
class SpooledSession:
    """A loop thread with a SpooledProducer.

    Args:
        config: The producer's settings.
        spool: The queue.
        exit_timeout: Seconds that closing may take at the interpreter's exit.

    Attributes:
        producer: The producer; only for the loop thread, except for reading.

    Raises:
        ConfigError: If a spooled producer refuses a setting.
    """

    __slots__ = ("_exit_timeout", "_is_over", "_pid", "_tells", "_thread", "producer")

    _thread: LoopThread

    def __init__(self, config: ProducerConfig, spool: Spool, exit_timeout: float) -> None:
        self.producer: SpooledProducer = SpooledProducer.of(spool, config)
        self._exit_timeout = exit_timeout
        self._pid = os.getpid()
        self._is_over = threading.Event()
        self._tells: set[asyncio.Task[None]] = set()

    # -- lifetime ---

    def start(self) -> None:
        """Start the loop thread and open the queue; this waits for no broker.

        Raises:
            SpoolDirectoryError: If the directory cannot be used.
        """
        self._thread = LoopThread(f"aioproduce spool loop {self.producer.config.client_id}", new_loop())
        try:
            self._thread.call(self.producer.start)
        except BaseException:
            self._over_now()
            raise
        lifetime.began(self)

    def close(self, timeout: float | None) -> None:
        """Close as `SpooledProducer.close()` does, and end the loop thread."""
        self._check_may_wait("close()")
        if self._is_over.is_set():
            return
        try:
            with contextlib.suppress(ThreadEndedError):
                self._thread.call(self._close, timeout)
        finally:
            self._over_now()

    async def _close(self, timeout: float | None) -> None:
        try:
            await self.producer.close(timeout)
        finally:
            if self._tells:  # each delivery has its outcome now
                await asyncio.wait(self._tells)

    def close_at_exit(self) -> None:
        """Close while the interpreter exits, in bounded time; what is not forwarded stays on disk."""
        if self.is_forked or self._is_over.is_set() or self._thread.is_here:
            return
        with contextlib.suppress(ThreadEndedError):
            closing = self._thread.submit(self._close, self._exit_timeout)
            concurrent.futures.wait([closing], self._exit_timeout + _GRACE)
            if not closing.done():
                _log.error(
                    "the interpreter is exiting, but the loop thread of a BlockingProducer is stuck: not closed"
                )
                return
            if (error := closing.exception()) is not None:
                _log.error("the queue on disk was not closed in order: %s", error)
        self._over_now()

    def close_soon(self) -> None:
        """Close without waiting: nobody holds this producer any more."""
        if not self._is_over.is_set() and not self.is_forked:
            closing = threading.Thread(
                target=self.close, args=(self._exit_timeout,), daemon=True, name="aioproduce close"
            )
            with contextlib.suppress(RuntimeError):  # the interpreter is exiting and starts no threads
                closing.start()

    def _over_now(self) -> None:
        self._is_over.set()
        lifetime.ended(self)
        self._thread.stop()
        self._thread.join()

    @property
    def is_over(self) -> bool:
        """Whether it was closed."""
        return self._is_over.is_set()

    @property
    def is_forked(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self._pid != os.getpid()

    def raise_forked(self) -> NoReturn:
        """Refuse the use of the parent process's objects."""
        raise ForkedProcessError(
            "this was created before fork(), and the loop thread is in the parent process: create a "
            "BlockingProducer in the child, or set restart_after_fork=True; only the parent can read its "
            "deliveries"
        )

    # -- calls ---

    def call(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run a coroutine function in the loop thread, and wait for its result.

        Raises:
            LoopThreadError: If it is called in the loop thread.
            ProducerClosedError: If the loop thread has ended.
        """
        self._check_may_wait(f"{name_of(function)}()")
        with contextlib.suppress(ThreadEndedError):
            return self._thread.call(function, *arguments, **named)
        raise ProducerClosedError("the producer is closed: create a new one to send again")

    def read(self, function: Callable[[], R]) -> R:
        """Return a value of the producer, read in the loop thread, or in this thread after that has ended."""
        if not self._is_over.is_set() and not self.is_forked:
            with contextlib.suppress(ThreadEndedError):
                return self._thread.ask(function)
        return function()

    def _check_may_wait(self, what: str) -> None:
        if self._thread.is_here:
            raise LoopThreadError(
                f"{what} would wait in the loop thread of this BlockingProducer, for that very thread: with a "
                "queue on disk a delivery callback may call nothing of it. Use another thread"
            )

    def send_record(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: Any,
        headers: Any,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> BlockingSpooledDelivery:
        """Put a record on disk; the arguments are those of `BlockingProducer.send()`.

        Raises:
            ProducerError: If `SpooledProducer.send()` raises it.
        """
        delivery = self.call(
            self.producer.send,
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
        )
        if on_delivery is not None:
            self._tell([delivery], on_delivery)
        return BlockingSpooledDelivery(self, delivery)

    def send_many(
        self,
        topic: str,
        values: Any,
        keys: Any,
        *,
        on_delivery: DeliveryCallback | None = None,
        **settings: Any,
    ) -> BlockingSpooledDeliveries:
        """Put many records on disk; the arguments are those of `BlockingProducer.send_many()`."""
        listed = list(values)  # read in this thread
        deliveries = self.call(
            self.producer.send_many, topic, listed, None if keys is None else list(keys), **settings
        )
        if on_delivery is not None:
            self._tell(list(deliveries), on_delivery)
        return BlockingSpooledDeliveries(self, deliveries)

    def wait(self, delivery: SpooledDelivery | SpooledDeliveries, timeout: float | None) -> None:
        """Wait until a delivery has its outcome.

        Raises:
            TimeoutError: If that takes longer than `timeout` seconds.
        """
        if self.is_forked:
            self.raise_forked()

        async def waiting() -> None:
            async with asyncio.timeout(timeout):
                with contextlib.suppress(ProducerError):  # the caller reads it
                    await delivery

        try:
            self.call(waiting)
        except ProducerClosedError:
            _log.debug("closed meanwhile: each delivery has its outcome", exc_info=True)

    # -- callbacks ---

    def later(self, delivery: SpooledDelivery, callback: Callable[[], object]) -> None:
        """Call a function in the loop thread after a delivery has its outcome."""

        async def telling() -> None:
            with contextlib.suppress(ProducerError):  # the callback reads it
                await delivery
            try:
                callback()
            except Exception:
                _log.exception("a delivery callback raised")

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(telling())
            self._tells.add(task)
            task.add_done_callback(self._tells.discard)

        self._thread.call_soon(begin)

    def _tell(self, deliveries: list[SpooledDelivery], on_delivery: DeliveryCallback) -> None:
        def telling(delivery: SpooledDelivery) -> None:
            try:
                metadata = delivery.result()
            except ProducerError as error:
                on_delivery(RecordMetadata(delivery.topic, -1, -1, -1, -1, -1), error)
            else:
                on_delivery(metadata, None)

        for delivery in deliveries:
            self.later(delivery, lambda delivery=delivery: telling(delivery))  # type: ignore[misc]  # a default binds it


@final
class BlockingSpooledDelivery:
    """The delivery by the cluster of a record that is on disk, with the calls of `concurrent.futures.Future`.

    `BlockingProducer.send()` returns it if the producer has a queue on disk. Nobody has to read it.

    Attributes:
        topic: The topic.
        spool_offset: The record's offset in the queue.
    """

    __slots__ = ("_delivery", "_session")

    def __init__(self, session: SpooledSession, delivery: SpooledDelivery) -> None:
        self._session = session
        self._delivery = delivery

    @property
    def topic(self) -> str:
        """The topic."""
        return self._delivery.topic

    @property
    def spool_offset(self) -> int:
        """The record's offset in the queue."""
        return self._delivery.spool_offset

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement of the cluster, and return the metadata.

        Raises:
            DeliveryError: If the record was not acknowledged.
            TimeoutError: If it has no outcome in time. The record is on disk, and is still being sent.
            LoopThreadError: If it would wait in the loop thread.
        """
        if not self._delivery.done():
            self._session.wait(self._delivery, timeout)
        return self._delivery.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result()` does; return the error, or None."""
        if not self._delivery.done():
            self._session.wait(self._delivery, timeout)
        try:
            self._delivery.result()
        except ProducerError as error:
            return error
        return None

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._delivery.done()

    def running(self) -> bool:
        """Return whether it is not."""
        return not self.done()

    def cancel(self) -> bool:
        """Return false: a record on disk is sent."""
        return False

    def cancelled(self) -> bool:
        """Return false."""
        return False

    def add_done_callback(self, callback: Callable[[BlockingSpooledDelivery], object]) -> None:
        """Call a function with this delivery, in the loop thread, when the outcome is known."""
        self._session.later(self._delivery, lambda: callback(self))

    def __repr__(self) -> str:
        state = "settled" if self.done() else "on disk"
        return f"<BlockingSpooledDelivery {self.topic} at {self.spool_offset}, {state}>"


@final
class BlockingSpooledDeliveries:
    """The deliveries of records that were put on disk together, in order."""

    __slots__ = ("_deliveries", "_session")

    def __init__(self, session: SpooledSession, deliveries: SpooledDeliveries) -> None:
        self._session = session
        self._deliveries = deliveries

    def __len__(self) -> int:
        return len(self._deliveries)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait until each record has its outcome; return the metadata.

        Raises:
            DeliveryError: If a record was not acknowledged; this is the error of the first one.
            TimeoutError: If not all have an outcome in time.
        """
        self._session.wait(self._deliveries, timeout)
        return [each.result() for each in self._deliveries]

    def wait(self, timeout: float | None = None) -> None:
        """Wait as `result()` does, and return nothing."""
        self.result(timeout)

    def __repr__(self) -> str:
        return f"<BlockingSpooledDeliveries of {len(self)} records>"
