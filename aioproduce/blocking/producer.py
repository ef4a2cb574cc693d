"""`BlockingProducer`, what threads and scripts import: the calls, and which `Session` they go to.

Invariants:

1. A session is of one process. In a child there is none, or, where that is asked for, a new one at the first
   call.
2. With a `transactional.id` a record goes the way of the transaction that its thread began, and no other.
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

    A thread of its own runs one `Producer`. `send()` hands a record over, and gives a future with the interface
    of `concurrent.futures.Future`.

    Args:
        bootstrap_servers: As of `Producer`.
        restart_after_fork: Whether a child process that `fork()` made starts a producer of its own, at its
            first call; otherwise calls raise ForkedProcessError there.
        exit_timeout: Seconds that closing may take when the interpreter exits and nobody called `close()`.
        key_serializer: As of `Producer`.
        value_serializer: As of `Producer`.
        **settings: As of `Producer`.

    Raises:
        ConfigError: as of `Producer`; or `restart_after_fork` and a `transactional_id`.

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
                "restart_after_fork is set, and transactional.id, too: a child's producer of the same id would "
                "fence its parent's. Make a producer with an id of its own in each child",
                key="transactional.id",
            )
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
        if self.config.transactional_id is None:
            self._open_path(session.hand_over)
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
        """Send everything accepted so far without lingering, and wait until it is settled and called back for.

        Args:
            timeout: Seconds; `None` waits for all, which `max.block.ms` and `delivery.timeout.ms` bound.

        Raises:
            FlushTimeoutError: not all was settled in time; it goes on.
            ValueError: the timeout is negative.
            ProducerStateError: as in `send()`. A record that failed raises from its own future, not from here.
        """
        check_timeout(timeout)
        session = self._running()
        session.call(session.flush, timeout)

    # -- asking ---

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, as `Producer.partitions_for()`."""
        session = self._running()
        return session.call(session.producer.partitions_for, topic, timeout)

    def metrics(self) -> MetricsSnapshot:
        """What is counted and measured, as `Producer.metrics()`."""
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
        """Records that failed and that nobody asked or was called back for."""
        return 0 if self._session is None else self._session.producer.unobserved_failures

    @property
    def outstanding_bytes(self) -> int:
        """Bytes of `buffer.memory` in use."""
        return 0 if self._session is None else self._session.producer.outstanding_bytes
