"""`BlockingProducer`, the class for threads and scripts: its calls, and the `Session` that they use.

Invariants:

1. A session belongs to one process. A child process has none or, if requested, a new one at its first call.
2. With a `transactional.id`, a record belongs to the transaction that its thread began.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self, final, overload

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
    from aioproduce.blocking.way import Way
    from aioproduce.config import ProducerConfig
    from aioproduce.config.settings import PlainSettings
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.transaction_status import TransactionStatus
    from aioproduce.producer.value_types import KeyInput, ValueInput
    from aioproduce.records import BytesLike, PartitionInfo, SilentBroker


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

    __slots__ = ("_exit_timeout", "_is_closed", "_restarts", "_session", "config")

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
            if self._session is not None or self._is_closed:
                raise ProducerStateError("a producer can be started only once: create a new one")
            self._begin(require_broker=require_broker)

    def _begin(self, *, require_broker: bool) -> Session:
        from aioproduce.blocking.session import Session

        session = Session(self.config, self._exit_timeout)
        session.start(require_broker=require_broker)
        self._session = session
        if self.config.transactional_id is None:
            self._open_path(session.hand_over)
        return session

    def close(self, timeout: float | None = None) -> None:
        """Send accepted records, then end the loop thread. Further calls do nothing.

        Args:
            timeout: Seconds after which unacknowledged records fail with ForcedCloseError. `None` waits for every
                record, which `max.block.ms` and `delivery.timeout.ms` bound together; 0 drops all at once.

        Raises:
            ValueError: If the timeout is negative.
            LoopThreadError: If it is called in the loop thread.
        """
        check_timeout(timeout)
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
            "a BlockingProducer cannot be pickled or copied: create another one, BlockingProducer(producer.config)"
        )

    def __repr__(self) -> str:
        if not hasattr(self, "config"):  # in the traceback of a failed constructor
            return "<BlockingProducer, not made>"
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        state = "new" if self._session is None else "closed" if self._is_closed else "running"
        return f"<BlockingProducer {self.config.client_id} -> {servers}, {state}>"

    def _running(self) -> Session:
        """Return the session for a call.

        Raises:
            NotStartedError: If the producer was not started.
            ProducerClosedError: If it was closed.
            ForkedProcessError: If it belongs to the parent process.
        """
        session = self._session
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

    # -- sending (`BlockingSending` has the calls) ---

    def _way_in(self) -> Way:
        session = self._running()
        return session.way if self.config.transactional_id is None else self._mine()._way_in()

    def _send_slowly(self, *record: Any, **named: Any) -> BlockingDelivery:
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
        session = self._running()
        session.call(session.flush, timeout)

    # -- information ---

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, as `Producer.partitions_for()` does."""
        session = self._running()
        return session.call(session.producer.partitions_for, topic, timeout)

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics, as `Producer.metrics()` does."""
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
