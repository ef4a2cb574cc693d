"""A handler of the standard library's `logging` that sends records to Kafka without blocking its callers.

Used by applications, also through `logging.config.dictConfig()`. It sends in one of two ways:

- With its own brokers (`KafkaLogHandler("logs", "localhost:9092")`): a thread with an event loop and a producer,
  started at the first record. It works anywhere: in scripts, before an event loop runs, after one has ended, with
  any framework. Its buffer is its own: a flood of logs cannot displace the application's records.
- With the application's producer (`async with handler.shipping(producer):`): without a thread. Before and after
  that, records wait in the queue.

Invariants:

1. `emit()` formats, appends to a bounded queue and returns, in any thread or loop and in any state of the brokers.
   Records that do not fit are counted and reported: in Kafka by a record in their place, in the log by a warning at
   a bounded rate, at the end on stderr.
2. Records about the sending itself are not sent: those of the handler's own thread, with a queue on disk those of
   the logger `aioproduce.spool` and, with the application's producer, those of the loggers `aioproduce`. Other
   handlers receive them.
3. `flush()` and `close()` are bounded, and do not wait for a thread that waits for them.
4. A child after fork() begins with an empty queue and starts its own thread and producer. The parent sends the
   parent's records.
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
from aioproduce.integrations.log_shipper import LogShipper, Shipper, SpoolShipper
from aioproduce.integrations.log_thread import LogThread, load
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from typing import Unpack

    from aioproduce.config import ProducerConfig
    from aioproduce.config.settings import ProducerSettings
    from aioproduce.spool import SpooledProducer
    from aioproduce.spool.settings import SpoolLike

__all__ = ["JsonFormatter", "KafkaLogHandler", "LogCounts"]

_OWN_LOGGERS: Final = "aioproduce"
_SPOOL_LOGGER: Final = "aioproduce.spool"


@final
@dataclass(frozen=True, slots=True)
class LogCounts:
    """The outcomes of the handler's records.

    Attributes:
        shipped: Records that Kafka acknowledged, or with a queue on disk: that are there.
        waiting: Records in the queue.
        dropped: Records that did not fit into the queue, or came after `close()`.
        failed: Records that the producer refused, or accepted without an acknowledgement.
    """

    shipped: int
    waiting: int
    dropped: int
    failed: int


class KafkaLogHandler(logging.Handler):
    """Sends log records to a topic.

    Args:
        topic: The topic.
        bootstrap_servers: As for Producer, for the handler's own producer. `None`: the application's producer,
            with `shipping()`.
        level: As for any handler.
        capacity: Maximum number of waiting records.
        max_bytes: Maximum bytes of all waiting records together.
        flush_timeout: Maximum seconds that `flush()` waits.
        close_timeout: Maximum seconds that `close()` waits until all records are acknowledged.
        spool: A queue on disk for the handler's own producer, or the path of its directory: records are kept there
            through an outage, and through the end of the process.
        **settings: Settings of the handler's own producer, as for Producer: `linger_ms=100`,
            `compression_type="lz4"`.

    Raises:
        ConfigError: If the Producer's constructor raises it.
        ValueError: If a number is out of range, or if there are settings but no brokers.

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
        spool: SpoolLike | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(level)
        if capacity < 1 or max_bytes < 1:
            raise ValueError(f"capacity and max_bytes must be 1 or more, not {capacity} and {max_bytes}")
        for name, seconds in (("flush_timeout", flush_timeout), ("close_timeout", close_timeout)):
            if not 0 <= seconds <= threading.TIMEOUT_MAX:
                raise ValueError(f"{name} must be a number of seconds, 0 or more, not {seconds}")
        if bootstrap_servers is None and spool is not None:
            raise ValueError(
                "spool= is for the handler's own producer: set bootstrap_servers, or pass a SpooledProducer to "
                "shipping()"
            )
        if bootstrap_servers is None and settings:
            raise ValueError(
                f"there are producer settings without brokers: {', '.join(sorted(settings))}. Set "
                "bootstrap_servers to give the handler its own producer"
            )
        # Errors are raised here, where they are seen, and not later in a thread.
        self._config = (
            None if bootstrap_servers is None else Producer(configured(bootstrap_servers, settings)).config
        )
        self._spool = spool
        if self._config is not None:
            load(self._config, has_spool=spool is not None)
            self._make_producer()
        self._topic = topic
        self._flush_timeout = flush_timeout
        self._close_timeout = close_timeout
        self._queue = LogQueue(capacity, max_bytes)
        self._thread: LogThread | None = None
        self._shipper: Shipper | None = None
        self._shipper_thread = 0
        self._is_closed = False
        self._late = 0
        self._past_shipped = 0
        self._past_failed = 0
        self._default_formatter = JsonFormatter()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork(weakref.ref(self)))

    # -- interface of logging ---

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record as any handler does, but skip records about the sending itself before taking any lock.

        `logging.shutdown()` holds the handler's lock while it waits for the sending thread.
        """
        if self._is_own(record):
            return False
        return bool(super().handle(record))

    def _is_own(self, record: logging.LogRecord) -> bool:
        if self._config is not None:
            if self._spool is not None and record.name.startswith(_SPOOL_LOGGER):
                return True  # those of its writer's thread: each line that the disk refuses would make another one
            thread = self._thread
            return thread is not None and thread.is_here
        return record.name == _OWN_LOGGERS or record.name.startswith(_OWN_LOGGERS + ".")

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with the handler's formatter, or as JSON if it has none."""
        return (self.formatter or self._default_formatter).format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record without waiting; count it if it does not fit."""
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
                self._start_thread()
            except OSError:  # no file descriptor is left for an event loop
                self.handleError(record)

    def _make_producer(self) -> Producer[Any, Any] | SpooledProducer:
        if self._spool is None:
            return Producer(self._config)
        from aioproduce.spool import SpooledProducer

        return SpooledProducer.of(self._spool, self._config)

    def _start_thread(self) -> None:
        self._thread = thread = LogThread(self._make_producer, self._shipper_by, self._thread_ended)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is exiting and starts no threads; close() reports what is left.
            self._thread = None
        except OSError:
            self._thread = None
            raise

    def _thread_ended(self, thread: LogThread, shipper: Shipper | None) -> None:
        """Handle the end of the thread, within it: after a close or a failure; the next record starts another."""
        self._keep_counts(shipper)
        if self._thread is thread:
            self._thread = None

    def _keep_counts(self, shipper: Shipper | None) -> None:
        if shipper is not None:
            self._past_shipped += shipper.shipped
            self._past_failed += shipper.failed

    def _shipper_by(self, producer: Producer[Any, Any] | SpooledProducer) -> Shipper:
        if isinstance(producer, Producer):
            return LogShipper(self._queue, producer, self._topic, self._notice_of)
        return SpoolShipper(self._queue, producer, self._topic, self._notice_of)

    def _notice_of(self, count: int) -> bytes | None:
        """Return the record that reports dropped ones, in their place."""
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
            # The user's formatter needs fields that only the application's records have.
            self.handleError(notice)
            return None

    # -- with the application's producer ---

    @contextlib.asynccontextmanager
    async def shipping(self, producer: Producer[Any, Any] | SpooledProducer) -> AsyncIterator[None]:
        """Send waiting and new records through this running producer until the block ends, and then flush.

        The flush takes at most `flush_timeout`. Later records wait in the queue.

        Args:
            producer: A running producer of this event loop.

        Raises:
            RuntimeError: If the handler has its own brokers, or already uses another producer.

        Example:
            >>> async with handler.shipping(producer):  # doctest: +SKIP
            ...     await serve()
        """
        if self._config is not None:
            raise RuntimeError(
                "this handler has a producer of its own: omit bootstrap_servers to use another"
            )
        if self._shipper is not None:
            raise RuntimeError("this handler already uses another producer: use only one at a time")
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
        """Wait until all earlier records are acknowledged, at most `flush_timeout` seconds.

        It returns at once on the event loop of the sending producer, where it would wait for itself.
        """
        thread = self._thread
        if thread is not None:
            thread.flush(self._flush_timeout)
            return
        shipper = self._shipper
        if shipper is not None and threading.get_ident() != self._shipper_thread:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nothing is sent any more
                flushing = asyncio.run_coroutine_threadsafe(shipper.flush(), shipper.loop)
                try:
                    flushing.result(self._flush_timeout)
                except concurrent.futures.TimeoutError:
                    flushing.cancel()
                except Exception as error:
                    logging.getLogger("aioproduce.logging").warning("not flushed: %s", error)

    def close(self) -> None:
        """Send the waiting records for at most `close_timeout` seconds, and report the rest on stderr.

        Later records are dropped and counted.
        """
        if not self._is_closed:
            self._is_closed = True
            thread = self._thread
            if thread is not None:
                thread.close(self._close_timeout)
            lost = self._queue.accepted - self.counts().shipped
            # `logging` itself may be partly shut down, and this may be the only handler.
            if (lost or self._queue.dropped) and self._shipper is None and sys.stderr is not None:
                print(
                    f"aioproduce: {lost} log record(s) for {self._topic!r} were not sent, and "
                    f"{self._queue.dropped} did not fit into the queue",
                    file=sys.stderr,
                )
        super().close()

    def counts(self) -> LogCounts:
        """Return the outcomes so far."""
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
