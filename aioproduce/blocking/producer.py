"""`BlockingProducer`, the class for threads and scripts: its calls, and the `Session` that they use.

Invariants:

1. A session belongs to one process. A child process has none or, if requested, a new one at its first call.
2. With a `transactional.id`, a record belongs to the transaction that its thread began.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self, cast, final, overload

from aioproduce.blocking import lifetime
from aioproduce.blocking.sending import check_timeout
from aioproduce.blocking.transaction_calls import BlockingTransactionCalls
from aioproduce.config import configured
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import ConfigError, NotStartedError, ProducerClosedError, ProducerStateError
from aioproduce.producer.producer import Producer
from aioproduce.producer.value_types import K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce.blocking.session import Session
    from aioproduce.blocking.spooled import SpooledSession
    from aioproduce.blocking.way import Way
    from aioproduce.config import ProducerConfig
    from aioproduce.config.settings import PlainSettings
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.transaction_status import TransactionStatus
    from aioproduce.producer.value_types import KeyInput, ValueInput
    from aioproduce.records import BytesLike, PartitionInfo, SilentBroker
    from aioproduce.spool import Spool, SpoolHealth, TopicBacklog
    from aioproduce.spool.settings import SpoolLike


@final
class BlockingProducer(BlockingTransactionCalls[K, V]):
    """Sends records to Kafka from any number of threads, without an event loop.

    A thread of its own runs one `Producer`. `send()` hands over a record and returns a future with the interface
    of `concurrent.futures.Future`.

    Args:
        bootstrap_servers: As for `Producer`.
        restart_after_fork: Whether a forked child process starts its own producer at its first call; otherwise
            calls raise ForkedProcessError there.
        exit_timeout: Seconds that closing may take at the interpreter's exit if `close()` was not called.
        spool: A queue on disk, or the path of its directory. `send()` then returns when the record is on disk, and
            its delivery waits for the cluster for as long as it takes.
        key_serializer: As for `Producer`.
        value_serializer: As for `Producer`.
        **settings: As for `Producer`.

    Raises:
        ConfigError: If `Producer` raises it, or if `restart_after_fork` and a `transactional_id` are set.

    Example:
        >>> with BlockingProducer("localhost:9092") as producer:
        ...     delivery = producer.send("orders", b"42", key=b"customer-7")
        ...     print(delivery.result().offset)
    """

    __slots__ = ("_exit_timeout", "_is_closed", "_restarts", "_session", "_spool", "_spooled", "config")

    if TYPE_CHECKING:
        # What it sends is told by its serializers; the settings by `__init__`, whose errors are short.

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: None = None,
            value_serializer: None = None,
            **settings: Any,
        ) -> BlockingProducer[BytesLike, BytesLike]: ...

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: None = None,
            value_serializer: Callable[[ValueInput], bytes | None],
            **settings: Any,
        ) -> BlockingProducer[BytesLike, ValueInput]: ...

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: Callable[[KeyInput], bytes | None] | None = None,
            value_serializer: Callable[[ValueInput], bytes | None] | None = None,
            **settings: Any,
        ) -> BlockingProducer[KeyInput, ValueInput]: ...

        @overload
        def __new__(
            cls, bootstrap_servers: Mapping[str, object] | ProducerConfig, **settings: Any
        ) -> BlockingProducer[Any, Any]: ...

        def __new__(cls, *_: Any, **settings: Any) -> Any:  # noqa: D102
            raise NotImplementedError

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        restart_after_fork: bool = False,
        exit_timeout: float = 5.0,
        spool: SpoolLike | None = None,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        **settings: Unpack[PlainSettings],
    ) -> None:
        super().__init__()
        config = configured(
            bootstrap_servers, settings, key_serializer=key_serializer, value_serializer=value_serializer
        )
        self.config: ProducerConfig = Producer(config).config
        if restart_after_fork and self.config.transactional_id is not None:
            raise ConfigError(
                "restart_after_fork and transactional.id are both set: a child's producer with the same id would "
                "fence its parent's. Create a producer with an id of its own in each child",
                key="transactional.id",
            )
        self._spool: Spool | None = None
        self._spooled: SpooledSession | None = None
        if spool is not None:
            from aioproduce.spool import Spool, SpooledProducer

            self._spool = Spool.of(spool)
            SpooledProducer.of(self._spool, self.config)  # raises what it refuses, here
        self._restarts = restart_after_fork
        self._exit_timeout = exit_timeout
        self._session: Session | None = None
        self._is_closed = False

    # -- life ---

    def start(self, *, require_broker: bool = False) -> None:
        """Start the loop thread, without waiting for a broker by default.

        Args:
            require_broker: Whether to wait until a broker answers, at most `max.block.ms`.

        Raises:
            ProducerStateError: If it was started before.
            NoBrokerAvailableError: If `require_broker` is true and no broker answered in time.
        """
        with lifetime.restarting():
            if self._session is not None or self._spooled is not None or self._is_closed:
                raise ProducerStateError("a producer can be started only once: create a new one")
            if self._spool is not None:
                if require_broker:
                    raise ConfigError(
                        "require_broker: a producer with a queue on disk takes records without one; leave it out",
                        key="require_broker",
                    )
                self._begin_spooled(self._spool)
                return
            self._begin(require_broker=require_broker)

    def _begin(self, *, require_broker: bool) -> Session:
        from aioproduce.blocking.session import Session

        session = Session(self.config, self._exit_timeout)
        session.start(require_broker=require_broker)
        self._session = session
        if self.config.transactional_id is None:
            self._open_path(session.hand_over)
        return session

    def _begin_spooled(self, spool: Spool) -> SpooledSession:
        from aioproduce.blocking.spooled import SpooledSession

        session = SpooledSession(self.config, spool, self._exit_timeout)
        session.start()
        self._spooled = session
        return session

    def close(self, timeout: float | None = None) -> None:
        """Send accepted records, then end the loop thread. Further calls do nothing.

        Args:
            timeout: Seconds after which unacknowledged records fail with ForcedCloseError. `None` waits for every
                record, which `max.block.ms` and `delivery.timeout.ms` bound together; 0 drops all at once. With a
                queue on disk: seconds for forwarding, and the rest stays on disk; `with` gives it `exit_timeout`.

        Raises:
            ValueError: If the timeout is negative.
            LoopThreadError: If it is called in the loop thread.
        """
        check_timeout(timeout)
        session = self._session
        if session is not None and not session.hand_over.is_forked():
            session.close(timeout)
        if self._spooled is not None and not self._spooled.is_forked:
            self._spooled.close(timeout)
        self._is_closed = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # What a queue on disk cannot forward in time stays there: an outage must not keep a script from ending.
        self.close(None if self._spool is None else self._exit_timeout)

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not (session.is_over or session.hand_over.is_forked()):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            session.close_soon()
        spooled = getattr(self, "_spooled", None)
        if spooled is not None and not (spooled.is_over or spooled.is_forked):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            spooled.close_soon()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a BlockingProducer cannot be pickled or copied: create another one, BlockingProducer(producer.config)"
        )

    def __repr__(self) -> str:
        if not hasattr(self, "config"):  # in the traceback of a failed constructor
            return "<BlockingProducer, not made>"
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        is_new = self._session is None and self._spooled is None
        state = "new" if is_new else "closed" if self._is_closed else "running"
        return f"<BlockingProducer {self.config.client_id} -> {servers}, {state}>"

    def _running(self) -> Session:
        """Return the session for a call.

        Raises:
            NotStartedError: If the producer was not started.
            ProducerClosedError: If it was closed.
            ForkedProcessError: If it belongs to the parent process.
        """
        session = self._session
        if self._spool is not None and session is None:
            raise ProducerStateError(
                "a producer with a queue on disk does not have this call: use one without spool= for it"
            )
        if self._is_closed:
            raise ProducerClosedError("the producer is closed: create a new one to send again")
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

    def _queue(self) -> SpooledSession | None:
        """Return the session of a producer with a queue on disk; None for one without.

        Raises:
            ProducerStateError: As `_running()`.
        """
        if self._spool is None:
            return None
        session = self._spooled
        if self._is_closed:
            raise ProducerClosedError("the producer is closed: create a new one to send again")
        if session is None:
            raise NotStartedError(
                "the producer is not started: use `with producer:`, or call producer.start() first"
            )
        if session.is_forked:
            if not self._restarts:
                session.raise_forked()
            with lifetime.restarting():
                if self._spooled is session:
                    return self._begin_spooled(self._spool)
            return self._queue()
        return session

    # -- sending (`BlockingSending` has the calls) ---

    def _way_in(self) -> Way:
        session = self._running()
        return session.way if self.config.transactional_id is None else self._mine()._way_in()

    def _send_slowly(self, *record: Any, **named: Any) -> BlockingDelivery:
        queue = self._queue()
        if queue is not None:
            return cast("BlockingDelivery", queue.send_record(*record, **named))
        if self.config.transactional_id is None:
            return super()._send_slowly(*record, **named)
        topic, value, key, partition, timestamp, headers, timeout, on_delivery = record
        return self._mine().send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        )

    if not TYPE_CHECKING:  # its types are those of `BlockingSending`

        def send_many(self, topic, values, keys=None, **named):  # noqa: D102  # as inherited
            queue = self._queue()
            if queue is not None:
                return queue.send_many(topic, values, keys, **named)
            return super().send_many(topic, values, keys, **named)

    def flush(self, timeout: float | None = None) -> None:
        """Send accepted records without lingering, and wait until they have outcomes and their callbacks have run.

        Args:
            timeout: Seconds; `None` waits for all, which `max.block.ms` and `delivery.timeout.ms` bound.

        Raises:
            FlushTimeoutError: If not all have an outcome in time; they are still being sent.
            ValueError: If the timeout is negative.
            ProducerStateError: If `send()` would raise it. The error of a failed record is raised by its own
                future.
        """
        check_timeout(timeout)
        queue = self._queue()
        if queue is not None:
            queue.call(queue.producer.flush, timeout)
            return
        session = self._running()
        session.call(session.flush, timeout)

    # -- information ---

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, as `Producer.partitions_for()` does."""
        session = self._running()
        return session.call(session.producer.partitions_for, topic, timeout)

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics, as `Producer.metrics()` does, or `SpooledProducer.metrics()`."""
        if self._spooled is not None:
            return self._spooled.read(self._spooled.producer.metrics)
        session = self._session
        if session is None:
            return Producer(self.config).metrics()
        return session.read(session.producer.metrics)

    def transaction_status(self) -> TransactionStatus | None:
        """Return the state of the producer's transactions; as `Producer.transaction_status()`, in any thread.

        Returns:
            `None` if the producer has no `transactional.id`.
        """
        session = self._session
        if session is None:
            return Producer(self.config).transaction_status()
        return session.read(session.producer.transaction_status)

    def silent_brokers(self) -> list[SilentBroker]:
        """The brokers that stopped answering, as `Producer.silent_brokers()`."""
        if self._spooled is not None:
            return self._spooled.read(self._spooled.producer.silent_brokers)
        session = self._session
        return [] if session is None else session.read(session.producer.silent_brokers)

    @property
    def unobserved_failures(self) -> int:
        """The number of failed records whose future was not read and which had no callback."""
        return 0 if self._session is None else self._session.producer.unobserved_failures

    @property
    def outstanding_bytes(self) -> int:
        """The bytes of `buffer.memory` in use."""
        return 0 if self._session is None else self._session.producer.outstanding_bytes

    def backlog(self) -> dict[str, TopicBacklog]:
        """Return what waits in the queue on disk, by topic, as `SpooledProducer.backlog()`; nothing without one."""
        queue = self._spooled
        return {} if queue is None else queue.read(queue.producer.backlog)

    def health(self) -> SpoolHealth:
        """Return how the queue on disk is, as `SpooledProducer.health()`.

        Raises:
            ProducerStateError: If the producer was not started with a `spool`.
        """
        queue = self._spooled
        if queue is None:
            raise NotStartedError("the producer is not started, or was made without spool=")
        return queue.read(queue.producer.health)
