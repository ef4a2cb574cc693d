"""`BlockingProducer`, what threads and scripts import: the calls, and which `Session` they go to.

Invariants:

1. `send()` that raises has handed nothing over; `send()` that returns has, exactly once.
2. A session is of one process. In a child there is none, or, where that is asked for, a new one at the first
   call.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast, final

from aioproduce._native.blocking_delivery import new_delivery
from aioproduce._native.hand_over import BlockingPath
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.blocking import lifetime
from aioproduce.blocking.deliveries import BlockingDeliveries
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import (
    NotStartedError,
    PartialSendError,
    ProducerClosedError,
    ProducerError,
    ProducerStateError,
)
from aioproduce.producer.bulk import partial_send
from aioproduce.producer.input import check_partition, check_topic, header_list
from aioproduce.producer.interceptors import tell_refused
from aioproduce.producer.producer import Producer
from aioproduce.producer.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.blocking.session import Session
    from aioproduce.config import ProducerConfig
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.interceptors import OnOutcome
    from aioproduce.records import Headers, PartitionInfo, ProducerRecord, RecordMetadata

# Rows that `send_many()` takes from its iterables at once: a hand-over costs as much as a hundred records.
_ROWS: Final = 4096


@final
class BlockingProducer(BlockingPath):
    """Sends records to Kafka from any number of threads, without an event loop.

    A thread of its own runs one `Producer`. `send()` hands a record over, and gives a future with the interface
    of `concurrent.futures.Future`.

    Args:
        bootstrap_servers: As of `Producer`.
        restart_after_fork: Whether a child process that `fork()` made starts a producer of its own, at its
            first call; otherwise calls raise ForkedProcessError there.
        exit_timeout: Seconds that closing may take when the interpreter exits and nobody called `close()`.
        **settings: As of `Producer`.

    Raises:
        ConfigError: as of `Producer`.

    Example:
        >>> with BlockingProducer("localhost:9092") as producer:  # doctest: +SKIP
        ...     delivery = producer.send("orders", b"42", key=b"customer-7")
        ...     print(delivery.result().offset)
    """

    # As `Producer`: CPython 3.12 and later look `send` up anew for each record where the `__dict__` is filled.
    __slots__ = (
        # Interpreted, BlockingPath has them already.
        *(() if BlockingPath.__dictoffset__ else ("__dict__", "__weakref__")),
        "_exit_timeout",
        "_is_closed",
        "_restarts",
        "_session",
        "config",
    )

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        restart_after_fork: bool = False,
        exit_timeout: float = 5.0,
        **settings: object,
    ) -> None:
        super().__init__()
        self.config = Producer(bootstrap_servers, **settings).config
        self._restarts = restart_after_fork
        self._exit_timeout = exit_timeout
        self._session: Session | None = None
        self._is_closed = False

    # -- life ---

    def start(self, *, require_broker: bool = False) -> None:
        """Start the loop thread. Does not wait for a broker unless asked.

        Args:
            require_broker: Wait until a broker answers, at most `max.block.ms`.

        Raises:
            ProducerStateError: it was started before.
            NoBrokerAvailableError: `require_broker` was asked and none answered in time.
        """
        with lifetime.restarting():
            if self._session is not None or self._is_closed:
                raise ProducerStateError("a producer is started once; make a new one")
            self._begin(require_broker=require_broker)

    def _begin(self, *, require_broker: bool) -> Session:
        from aioproduce.blocking.session import Session

        session = Session(self.config, self._exit_timeout)
        session.start(require_broker=require_broker)
        self._session = session
        self.open_path(session.hand_over)
        return session

    def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then end the loop thread. Again, it does nothing.

        Args:
            timeout: Seconds; what is not acknowledged by then fails with ForcedCloseError. `None` waits for every
                record, which `max.block.ms` and `delivery.timeout.ms` bound together; 0 gives up on all at once.

        Raises:
            ValueError: the timeout is negative.
            LoopThreadError: called in the loop thread.
        """
        _check_timeout(timeout)
        session = self._session
        if session is not None and not session.hand_over.is_forked():
            session.close(timeout)
        self._is_closed = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not (session.is_over or session.hand_over.is_forked()):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            session.close_soon()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a BlockingProducer is neither pickled nor copied: make another one, BlockingProducer(producer.config)"
        )

    def __repr__(self) -> str:
        if not hasattr(self, "config"):  # in the traceback of a constructor that failed
            return "<BlockingProducer, not made>"
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        state = "new" if self._session is None else "closed" if self._is_closed else "running"
        return f"<BlockingProducer {self.config.client_id} -> {servers}, {state}>"

    def _running(self) -> Session:
        """The session that a call is for.

        Raises:
            NotStartedError: there is none yet.
            ProducerClosedError: or not any more.
            ForkedProcessError: or it is the parent's.
        """
        session = self._session
        if self._is_closed:
            raise ProducerClosedError("the producer is closed: make a new one to send again")
        if session is None:
            raise NotStartedError(
                "the producer is not started: use `with producer:`, or call producer.start() first"
            )
        if session.hand_over.is_forked():
            if not self._restarts:
                session.raise_forked()
            with lifetime.restarting():
                if self._session is session:
                    return self._begin(require_broker=False)
            return self._running()
        return session

    # -- sending (`send()` is in BlockingPath) ---

    def send_and_wait(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordMetadata:
        """`send()`, then wait for the acknowledgement.

        `timeout` bounds the waiting for room and metadata, as in `send()`, not that for the acknowledgement.

        Raises:
            DeliveryError: it was not acknowledged; and what `send()` raises.
        """
        return self.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        ).result()

    def _send_slowly(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> BlockingDelivery:
        session = self._running()
        producer = session.producer
        bound = self.config.max_block
        if timeout is not None:
            _check_timeout(timeout)
            bound = min(bound, timeout)
        record: ProducerRecord | None = None
        on_outcome: OnOutcome | None = None
        try:
            record, on_outcome = producer._as_record(topic, value, key, partition, timestamp, headers)
            serialized = producer._input.read_record(record, time.time_ns() // 1_000_000)
            name, key, value, given, number, milliseconds = serialized
            check_topic(name)
            if number is not None:
                check_partition(number)
            size = producer._life.sender.accumulator.size_of(serialized)
            listed = None if given is None else list(given)
            delivery = new_delivery(
                session.hand_over,
                name,
                key,
                value,
                listed,
                NO_PARTITION if number is None else number,
                milliseconds,
                _both(on_outcome, on_delivery),
            )
            if size <= self.config.buffer_memory and session.hand_over.knows(name, number):
                session.put(delivery, bound)
            else:
                session.call(session.accept, delivery, bound)
        except BaseException as error:
            if isinstance(error, ProducerError):
                session.refused()
            if record is not None and on_outcome is not None:
                tell_refused(record, on_outcome, error)
            raise
        return delivery

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> BlockingDeliveries:
        """Accept many records of one topic, waiting for room as `send()` does.

        Args:
            topic: The topic.
            values: The values, from any iterable; it is asked in this thread, for some at a time.
            keys: As many keys as values, or None.
            partition: Of all of them.
            timestamp: Of all of them.
            headers: Of all of them.
            timeout: Seconds to wait at most each time, where that is less than `max.block.ms`.
            on_delivery: Called once per record, in the loop thread.

        Returns:
            One handle for all.

        Raises:
            PartialSendError: a record could not be accepted, or there were not as many keys as values; those
                before it are accepted and are in the error's `deliveries`.
            ProducerStateError: as in `send()`; of a call that was never allowed, there is no first part.
        """
        session = self._running()
        session.check_may_wait("send_many()")
        rows = Rows(values, keys)
        deliveries = BlockingDeliveries(session)
        settings: dict[str, Any] = {
            "partition": partition,
            "timestamp": timestamp,
            "headers": headers if headers is None else header_list(headers),
            "timeout": timeout,
            "on_delivery": on_delivery,
        }
        try:
            while True:
                taken, taken_keys, failure = rows.take(_ROWS)
                if taken:
                    send = partial(session.send_many, **settings)
                    deliveries.add(session.call(send, topic, taken, taken_keys))
                if failure is not None:
                    raise failure
                if len(taken) < _ROWS:
                    return deliveries
        except Exception as error:
            if isinstance(error, PartialSendError):
                deliveries.add(cast("Deliveries", error.deliveries))
                cause = error.__cause__
                assert isinstance(cause, Exception)
                error = cause
            raise partial_send("send_many", deliveries, error) from error  # type: ignore[arg-type]

    def flush(self, timeout: float | None = None) -> None:
        """Send everything accepted so far without lingering, and wait until it is settled and called back for.

        Args:
            timeout: Seconds; `None` waits for all, which `max.block.ms` and `delivery.timeout.ms` bound.

        Raises:
            FlushTimeoutError: not all was settled in time; it goes on.
            ValueError: the timeout is negative.
            ProducerStateError: as in `send()`. A record that failed raises from its own future, not from here.
        """
        _check_timeout(timeout)
        session = self._running()
        session.call(session.flush, timeout)

    # -- asking ---

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, as `Producer.partitions_for()`."""
        session = self._running()
        return session.call(session.producer.partitions_for, topic, timeout)  # type: ignore[no-any-return]

    def metrics(self) -> MetricsSnapshot:
        """What is counted and measured, as `Producer.metrics()`."""
        session = self._session
        if session is None:
            return Producer(self.config).metrics()
        return session.read(session.producer.metrics)  # type: ignore[no-any-return]

    @property
    def unobserved_failures(self) -> int:
        """Records that failed and that nobody asked or was called back for."""
        return 0 if self._session is None else self._session.producer.unobserved_failures

    @property
    def outstanding_bytes(self) -> int:
        """Bytes of `buffer.memory` in use."""
        return 0 if self._session is None else self._session.producer.outstanding_bytes


def _both(on_outcome: OnOutcome | None, on_delivery: DeliveryCallback | None) -> DeliveryCallback | None:
    if on_outcome is None or on_delivery is None:
        return on_outcome or on_delivery

    def both(metadata: RecordMetadata, error: BaseException | None) -> None:
        on_outcome(metadata, error)  # logs its own errors
        on_delivery(metadata, error)

    return both


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
