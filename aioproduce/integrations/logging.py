"""A handler of the standard library's `logging` that ships records to Kafka, and holds up nobody.

Used by applications, also by way of `logging.config.dictConfig()`. It ships in one of two ways:

- with brokers of its own (`KafkaLogHandler("logs", "localhost:9092")`): a thread with an event loop and a
  producer, made at the first record. Works anywhere: scripts, before any loop runs, after one has ended, beside
  any framework. Its buffer is its own: a flood of logs cannot crowd out the application's records.
- by the application's producer (`async with handler.shipping(producer):`): no thread. Until then, and after,
  records wait in the queue.

Invariants:

1. `emit()` formats, appends to a bounded queue, and returns: whatever thread or loop it is called in, and
   whatever the brokers do. What does not fit is counted, and said: in Kafka by a record in its place, in the
   log by a warning at a bounded rate, at the end on stderr.
2. No record of the shipping itself is shipped: not those of the handler's own thread, nor, where the
   application's producer ships, those of the loggers `aioproduce`. Other handlers get them.
3. `flush()` and `close()` are bounded, and wait for no thread that waits for them.
4. A child after fork() begins with an empty queue and a thread and producer of its own: its parent ships the
   parent's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.config import configured
from aioproduce.integrations.log_format import JsonFormatter
from aioproduce.integrations.log_queue import LogQueue
from aioproduce.integrations.log_shipper import LogShipper
from aioproduce.integrations.log_thread import LogThread, load
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from typing import Unpack

    from aioproduce.config import ProducerConfig
    from aioproduce.config.settings import ProducerSettings

__all__ = ["JsonFormatter", "KafkaLogHandler", "LogCounts"]

_OWN_LOGGERS: Final = "aioproduce"


@final
@dataclass(frozen=True, slots=True)
class LogCounts:
    """What became of the records that the handler was given.

    Attributes:
        shipped: Acknowledged by Kafka.
        waiting: In the queue.
        dropped: Found no room in it, or came after `close()`.
        failed: Accepted by the producer and not acknowledged, or refused by it.
    """

    shipped: int
    waiting: int
    dropped: int
    failed: int


class KafkaLogHandler(logging.Handler):
    """Ships log records to a topic.

    Args:
        topic: The topic.
        bootstrap_servers: As for Producer: the handler's own producer. `None`: the application's, by
            `shipping()`.
        level: As for any handler.
        capacity: How many records wait at most.
        max_bytes: How many bytes they have together at most.
        flush_timeout: Seconds that `flush()` waits at most.
        close_timeout: Seconds that `close()` waits at most until what was logged is acknowledged.
        **settings: The own producer's settings, as for Producer: `linger_ms=100`, `compression_type="lz4"`.

    Raises:
        ConfigError: as the Producer's constructor.
        ValueError: a number is out of range, or there are settings and no brokers.

    Example:
        >>> handler = KafkaLogHandler("logs", "localhost:9092", linger_ms=100)
        >>> logging.getLogger("shop").addHandler(handler)
        >>> logging.getLogger("shop").removeHandler(handler)
        >>> handler.close()
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        level: int | str = logging.NOTSET,
        capacity: int = 10_000,
        max_bytes: int = 8 * 1024 * 1024,
        flush_timeout: float = 5.0,
        close_timeout: float = 5.0,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(level)
        if capacity < 1 or max_bytes < 1:
            raise ValueError(f"capacity and max_bytes must be 1 or more, not {capacity} and {max_bytes}")
        for name, seconds in (("flush_timeout", flush_timeout), ("close_timeout", close_timeout)):
            if not 0 <= seconds <= threading.TIMEOUT_MAX:
                raise ValueError(f"{name} must be a number of seconds, 0 or more, not {seconds}")
        if bootstrap_servers is None and settings:
            raise ValueError(
                f"settings of a producer without its brokers: {', '.join(sorted(settings))}. Give "
                "bootstrap_servers for a producer of the handler's own"
            )
        # Refused here, where somebody sees it, and not in a thread later.
        self._config = (
            None if bootstrap_servers is None else Producer(configured(bootstrap_servers, settings)).config
        )
        if self._config is not None:
            load(self._config)
        self._topic = topic
        self._flush_timeout = flush_timeout
        self._close_timeout = close_timeout
        self._queue = LogQueue(capacity, max_bytes)
        self._thread: LogThread | None = None
        self._shipper: LogShipper | None = None
        self._shipper_thread = 0
        self._is_closed = False
        self._late = 0
        self._past_shipped = 0
        self._past_failed = 0
        self._default_formatter = JsonFormatter()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork(weakref.ref(self)))

    # -- logging's side ---

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler's, but records of the shipping itself are passed over, before any lock is taken.

        `logging.shutdown()` holds the handler's lock while it waits for the shipping thread.
        """
        if self._is_own(record):
            return False
        return bool(super().handle(record))

    def _is_own(self, record: logging.LogRecord) -> bool:
        if self._config is not None:
            thread = self._thread
            return thread is not None and thread.is_here
        return record.name == _OWN_LOGGERS or record.name.startswith(_OWN_LOGGERS + ".")

    def format(self, record: logging.LogRecord) -> str:
        """By the handler's formatter, or as JSON where it has none."""
        return (self.formatter or self._default_formatter).format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Never waits; what finds no room is counted."""
        if self._is_closed:
            self._late += 1
            return
        try:
            line = self.format(record).encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        self._queue.put(line)
        if self._config is not None and self._thread is None:
            try:
                self._start_thread(self._config)
            except OSError:  # no descriptor is left for an event loop
                self.handleError(record)

    def _start_thread(self, config: ProducerConfig) -> None:
        self._thread = thread = LogThread(lambda: Producer(config), self._shipper_by, self._thread_ended)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter ends and starts no threads any more; close() tells what is left.
            self._thread = None
        except OSError:
            self._thread = None
            raise

    def _thread_ended(self, thread: LogThread, shipper: LogShipper | None) -> None:
        """In that thread: it was closed, or its producer died; the next record starts another."""
        self._keep_counts(shipper)
        if self._thread is thread:
            self._thread = None

    def _keep_counts(self, shipper: LogShipper | None) -> None:
        if shipper is not None:
            self._past_shipped += shipper.shipped
            self._past_failed += shipper.failed

    def _shipper_by(self, producer: Producer[Any, Any]) -> LogShipper:
        return LogShipper(self._queue, producer, self._topic, self._notice_of)

    def _notice_of(self, count: int) -> bytes | None:
        """The record that tells of dropped ones, in their place."""
        notice = logging.LogRecord(
            "aioproduce.logging",
            logging.WARNING,
            __file__,
            0,
            "%d log record(s) were dropped: the queue was full",
            (count,),
            None,
        )
        notice.dropped = count
        try:
            return self.format(notice).encode("utf-8", "backslashreplace")
        except Exception:
            # The user's formatter wants fields that only the application's records have.
            self.handleError(notice)
            return None

    # -- by the application's producer ---

    @contextlib.asynccontextmanager
    async def shipping(self, producer: Producer[Any, Any]) -> AsyncIterator[None]:
        """Ship by this running producer, and what waits already, until the block ends; then flush.

        The flush takes `flush_timeout` at most. What is logged later waits in the queue.

        Args:
            producer: A running producer of this event loop.

        Raises:
            RuntimeError: the handler has brokers of its own, or ships by another producer already.

        Example:
            >>> async with handler.shipping(producer):  # doctest: +SKIP
            ...     await serve()
        """
        if self._config is not None:
            raise RuntimeError(
                "this handler has a producer of its own: leave out bootstrap_servers to ship by another"
            )
        if self._shipper is not None:
            raise RuntimeError("this handler ships by another producer already: one at a time")
        self._shipper = shipper = self._shipper_by(producer)
        self._shipper_thread = threading.get_ident()
        running = asyncio.get_running_loop().create_task(shipper.run(), name="aioproduce: ship log records")
        try:
            yield
        finally:
            await shipper.end(running, self._flush_timeout)
            self._shipper = None
            self._keep_counts(shipper)

    # -- the end ---

    def flush(self) -> None:
        """Wait until what was logged before is acknowledged, `flush_timeout` seconds at most.

        Returns at once where it could only wait for itself: on the event loop whose producer ships.
        """
        thread = self._thread
        if thread is not None:
            thread.flush(self._flush_timeout)
            return
        shipper = self._shipper
        if shipper is not None and threading.get_ident() != self._shipper_thread:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nothing is shipped any more
                flushing = asyncio.run_coroutine_threadsafe(shipper.flush(), shipper.loop)
                try:
                    flushing.result(self._flush_timeout)
                except concurrent.futures.TimeoutError:
                    flushing.cancel()
                except Exception as error:
                    logging.getLogger("aioproduce.logging").warning("not flushed: %s", error)

    def close(self) -> None:
        """Ship what was logged, `close_timeout` seconds at most; what is left then is told on stderr.

        What is logged afterwards is dropped, and counted.
        """
        if not self._is_closed:
            self._is_closed = True
            thread = self._thread
            if thread is not None:
                thread.close(self._close_timeout)
            lost = self._queue.accepted - self.counts().shipped
            # `logging` itself may be half taken down, and this handler the only one.
            if (lost or self._queue.dropped) and self._shipper is None and sys.stderr is not None:
                print(
                    f"aioproduce: {lost} log record(s) for {self._topic!r} were not shipped, and "
                    f"{self._queue.dropped} found no room",
                    file=sys.stderr,
                )
        super().close()

    def counts(self) -> LogCounts:
        """What became of the records so far."""
        thread = self._thread
        shipper = self._shipper if thread is None else thread.shipper
        return LogCounts(
            shipped=self._past_shipped + (0 if shipper is None else shipper.shipped),
            waiting=len(self._queue),
            dropped=self._queue.dropped + self._late,
            failed=self._past_failed + (0 if shipper is None else shipper.failed),
        )

    def _forked(self) -> None:
        self._queue.reset()
        self._thread = None
        self._shipper = None
        self._late = self._past_shipped = self._past_failed = 0


def _after_fork(handler: weakref.ref[KafkaLogHandler]) -> Any:
    def forked() -> None:
        found = handler()
        if found is not None:
            found._forked()

    return forked
