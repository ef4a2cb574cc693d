"""The public `Producer`: an async context manager around the core and a driver.

It checks the user's input, waits for metadata and memory, and ensures that no call outlives its bound. The core
does all sending.

Invariants:

1. Each wait ends with its event, with close or with the sender's death, and then checks the state again.
2. With a `transactional.id`, a record is sent only in the open transaction of the task that sends it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast, final, overload

from aioproduce.config import ProducerConfig, configured, load_properties
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import FlushTimeoutError
from aioproduce.producer.bulk import Bulk
from aioproduce.producer.gauges import oldest_record_age, silent_brokers
from aioproduce.producer.input import RecordInput, check_topic
from aioproduce.producer.interceptors import make_interceptors
from aioproduce.producer.life import ProducerLife
from aioproduce.producer.producer_states import ProducerState
from aioproduce.producer.sending import OnDelivery as OnDelivery
from aioproduce.producer.sending import Sending
from aioproduce.producer.transaction_calls import TransactionCalls
from aioproduce.producer.transaction_life import OwnersLife
from aioproduce.producer.transactions import Transactions
from aioproduce.producer.value_types import K, V
from aioproduce.records import ClusterInfo, PartitionInfo, SilentBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Unpack
    from uuid import UUID

    from aioproduce._native._delivery_runtime import TellingRuntime
    from aioproduce._native.send_path import SendPath
    from aioproduce._native.tuple_outcomes import TupleOutcomes
    from aioproduce.config.settings import PlainSettings, ProducerSettings
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.value_types import KeyInput, ValueInput
    from aioproduce.records import BytesLike

_log = logging.getLogger("aioproduce")


@final
class Producer(Sending[K, V], TransactionCalls[K, V]):
    """Sends records to Kafka.

    `await send()` returns when the record is accepted into a bounded buffer. Awaiting the future that it returns
    waits for the acknowledgement. Every accepted record is acknowledged or fails within `delivery.timeout.ms`.

    Args:
        bootstrap_servers: `"host:port,..."`, a list of `"host:port"`, a mapping of Kafka's dotted keys, or a
            ProducerConfig.
        key_serializer: Makes the bytes of a key; without one, keys are bytes.
        value_serializer: Makes the bytes of a value; without one, values are bytes.
        **settings: Kafka's producer keys with underscores for dots, e.g. `linger_ms=5`, `compression_type="lz4"`.
            `docs/reference/configuration.md` lists them all.

    Raises:
        ConfigError: if a key is unknown or refused, a value is out of range, or two settings contradict each other.

    Example:
        >>> async def main():
        ...     async with Producer("localhost:9092", linger_ms=5) as producer:
        ...         delivery = await producer.send("orders", b"42", key=b"customer-7")
        ...         metadata = await delivery
        ...         print(metadata.partition, metadata.offset)
    """

    __slots__ = ("_body", "_is_lent", "_lent_to", "_outcomes", "_transactions")

    _life: ProducerLife

    if TYPE_CHECKING:
        # The serializers decide the types. `__init__` checks the settings, because its type errors are short.

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: None = None,
            value_serializer: None = None,
            **settings: Any,
        ) -> Producer[BytesLike, BytesLike]: ...

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: None = None,
            value_serializer: Callable[[ValueInput], bytes | None],
            **settings: Any,
        ) -> Producer[BytesLike, ValueInput]: ...

        @overload
        def __new__(
            cls,
            bootstrap_servers: str | Sequence[str] | None = None,
            *,
            key_serializer: Callable[[KeyInput], bytes | None] | None = None,
            value_serializer: Callable[[ValueInput], bytes | None] | None = None,
            **settings: Any,
        ) -> Producer[KeyInput, ValueInput]: ...

        @overload
        def __new__(
            cls, bootstrap_servers: Mapping[str, object] | ProducerConfig, **settings: Any
        ) -> Producer[Any, Any]: ...

        def __new__(cls, *_: Any, **settings: Any) -> Any:  # noqa: D102
            raise NotImplementedError

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        **settings: Unpack[PlainSettings],
    ) -> None:
        super().__init__()
        self.config: ProducerConfig = configured(
            bootstrap_servers, settings, key_serializer=key_serializer, value_serializer=value_serializer
        )
        self._interceptors = make_interceptors(self.config.interceptors)
        self._input = RecordInput(self.config)
        self._life = ProducerLife(self.config, self._is_open)
        self._way_in = self._life
        self._transactions: Transactions | None = None
        if self.config.transactional_id is not None:
            self._transactions = Transactions(self._life, self._input, self._interceptors)
            self._way_in = OwnersLife(self._life, self._transactions.owned_life)
        self._bulk = Bulk(
            self._way_in,
            self._input,
            self._interceptors,
            batch_size=self.config.batch_size,
            heed_turn=self._heed_turn,
            send=self.send,
        )
        self._sending_task: object = None
        self._body: AbstractContextManager[object] = nullcontext()
        self._is_lent = False
        self._lent_to: SendPath | None = None
        self._outcomes: TupleOutcomes | None = None

    @classmethod
    @hides_arguments
    def from_properties(
        cls, path: str | os.PathLike[str], **settings: Unpack[ProducerSettings]
    ) -> Producer[Any, Any]:
        """Return a producer configured by a Java `.properties` file; keyword settings override the file's.

        Raises:
            ConfigError: as in the constructor, and if the file cannot be read or parsed.
        """
        return cls(load_properties(path), **settings)

    # -- life ---

    async def start(self, *, require_broker: bool = False) -> None:
        """Start the sender on the running event loop. It waits for a broker only with `require_broker`.

        Args:
            require_broker: Wait until a broker answers, at most `max.block.ms`.

        Raises:
            ProducerStateError: if the producer was started before.
            NoBrokerAvailableError: if `require_broker` is set and no broker answered in time.
            TransactionError: if there is a `transactional.id` and no producer id came within `max.block.ms`.
        """
        self._life.start()
        try:
            if require_broker:
                await self.check(self.config.max_block)
            if self._transactions is not None and not self._is_lent:
                await self._transactions.init()
        except BaseException:
            await self.close(0)
            raise

    async def close(self, timeout: float | None = None) -> None:
        """Send all accepted records, then close the connections.

        Args:
            timeout: Seconds; records that are not acknowledged by then fail with ForcedCloseError. `None` waits
                for every record, at most `delivery.timeout.ms`; 0 fails all records at once.

        Raises:
            ValueError: if the timeout is negative.
        """
        _check_timeout(timeout)
        await self._life.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        self._body = self._life.body()
        self._body.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:  # for type checkers: it swallows no error of the body
        """Close the producer; raise SenderDiedError if the sender died and no other error reports it."""
        try:
            await self.close()
        except BaseException as failure:
            if not self._body.__exit__(type(failure), failure, failure.__traceback__):
                raise
            is_over = False  # the sender died during the close and ended it; the body's own error stands
        else:
            is_over = bool(self._body.__exit__(kind, error, traceback))
        if is_over or error is None:
            self._life.check_alive()
        return is_over

    def __reduce__(self) -> NoReturn:
        # A copy would append records to the original's batches and miss its close.
        raise TypeError("a Producer cannot be pickled or copied: make another one, Producer(producer.config)")

    def __repr__(self) -> str:
        if not hasattr(self, "_life"):  # in the traceback of a constructor that failed
            return "<Producer, not made>"
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"<Producer {self.config.client_id} -> {servers}, {self._life.state.name.lower()}>"

    def _is_open(self, is_open: bool) -> None:
        """Open the fast path of `send()` while the producer runs; shut it otherwise."""
        if is_open:
            driver = self._life.driver
            if self._outcomes is not None:
                cast("TellingRuntime", driver.runtime).outcomes = self._outcomes
            for path in (self, self._lent_to):
                if path is not None:
                    path._open_path(
                        self._life.appenders,
                        driver.is_running,
                        driver.on_turn,
                        self._life.admission.append_plain,
                        is_plain=self._interceptors is None and not self._input.has_serializers,
                        wall_ms=driver.wall_ms,
                    )
        # A transactional producer checks for each record which task's transaction is open.
        if not is_open or self._transactions is not None:
            self._shut_path()
            if self._lent_to is not None:
                self._lent_to._shut_path()

    def _lend(self, path: SendPath | None = None, outcomes: TupleOutcomes | None = None) -> None:
        """Serve users of another library's API (`aioproduce.compat`). Call it before the start.

        With a `transactional.id`, `start()` then gets no producer id; `init_transactions()` gets it. Any task may
        send in the open transaction through `path`.

        Args:
            path: A path that opens and shuts with this producer's, or with its transactions'; None for none.
            outcomes: The classes that deliveries return instead of our own; None keeps our own.
        """
        self._is_lent = True
        self._lent_to = path
        self._outcomes = outcomes
        if self._transactions is not None:
            self._transactions.lent_to = path

    async def flush(self, timeout: float | None = None) -> None:
        """Send all accepted records without lingering; wait until they are settled and their callbacks have run.

        A record's failure is raised by its own future, not by `flush()`.

        Args:
            timeout: Seconds; `None` waits for every record, at most `delivery.timeout.ms`.

        Raises:
            FlushTimeoutError: if not every record was settled in time; sending goes on.
            ValueError: if the timeout is negative.
            ProducerStateError: as in `send()`.
        """
        self._life.check_callable()
        _check_timeout(timeout)
        driver = self._life.driver
        now = driver.now()
        waiter = driver.make_waiter()
        self._life.sender.begin_flush(waiter.notify, now)
        driver.wake()
        try:
            is_done = await waiter.wait(inf if timeout is None else now + timeout)
        finally:
            self._life.metrics.spent("flush", driver.now() - now)
        if not is_done:
            raise FlushTimeoutError(
                f"not every record was settled within {timeout} s; sending goes on: flush again, or await the "
                "records' futures"
            )
        # As in Java, flush() returns after the callbacks; the sender task may not have run them yet.
        self._life.run_callbacks()
        if self._life.state is ProducerState.DIED:
            self._life.check_running()

    # -- asking ---

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic.

        Args:
            topic: The topic.
            timeout: Seconds; `max.block.ms` by default.

        Raises:
            MetadataTimeoutError: if the partitions did not become known in time. Other errors are as in `send()`.
        """
        self._life.check_callable()
        check_topic(topic)
        started_at = self._life.driver.now()
        admission = self._life.admission
        view = await admission.topic(topic, None, started_at, admission.deadline(started_at, timeout))
        return [
            PartitionInfo(topic, partition.partition, partition.leader_id, partition.replicas, partition.isr)
            for partition in view.partitions
        ]

    async def check(self, timeout: float = 10.0, *, tries_each_once: bool = False) -> ClusterInfo:
        """Return the cluster's id and brokers, or raise the reason why the cluster cannot be reached.

        Args:
            timeout: Seconds.
            tries_each_once: Raise as soon as every bootstrap server was tried and none could be reached, if the
                cluster was never reached before.

        Raises:
            NoBrokerAvailableError: if no broker answered in time; `causes` has the reason for each address.
            UnsupportedVersionError: if this client cannot work with a broker.
        """
        self._life.check_callable()
        _check_timeout(timeout)
        return await self._life.admission.check(timeout, tries_each_once=tries_each_once)

    async def client_instance_id(self, timeout: float = 10.0) -> UUID:
        """Return the id that identifies this producer's metrics in the cluster (KIP-714).

        A broker assigns it with the first connection. The cluster's operator finds the producer's metrics by it. It
        never changes, and each producer has its own.

        Args:
            timeout: Seconds.

        Raises:
            ClientInstanceIdError: if no broker assigned one in time, or `enable.metrics.push` is false.
            ProducerStateError: as in `send()`.

        Example:
            >>> await producer.client_instance_id()  # doctest: +SKIP
            UUID('b69cc35a-7a54-4790-aa69-cc2bd4ee4538')
        """
        self._life.check_callable()
        _check_timeout(timeout)
        return await self._life.admission.client_instance_id(timeout)

    @property
    def unobserved_failures(self) -> int:
        """Number of failed records that nobody awaited and that had no delivery callback."""
        return self._life.unobserved_failures

    @property
    def outstanding_bytes(self) -> int:
        """Bytes of `buffer.memory` in use by open, queued, in-flight and retried batches; 0 after sender death."""
        return self._life.sender.pool.outstanding if self._life.was_started else 0

    @property
    def outstanding_records(self) -> int:
        """Number of accepted records that are neither acknowledged nor failed yet.

        Reading it counts batch by batch, not record by record: about a microsecond for every few batches.
        """
        return self._life.outstanding_records

    def _is_closed_by_its_owner(self) -> None:
        """Leave the report of what an open producer loses at the exit to the owner, who closes it after that."""
        self._life.is_closed_at_exit = True

    @property
    def abandoned_records(self) -> int:
        """Number of accepted records that were dropped because a close ran out of time or the sender died."""
        self._life.look_for_end()
        return self._life.abandoned_records

    @property
    def waiting_sends(self) -> int:
        """Number of `send()` calls that wait for room in the buffer."""
        return self._life.sender.pool.waiting if self._life.was_started else 0

    @property
    def oldest_record_age(self) -> float:
        """Seconds since the oldest record without an outcome was accepted; 0 if there is none.

        `delivery.timeout.ms` bounds it. Reading it costs a microsecond, for any number of records.
        """
        life = self._life
        return oldest_record_age(life.sender, life.driver.now()) if life.was_started else 0.0

    @property
    def oldest_send_wait(self) -> float:
        """Seconds that the oldest waiting `send()` has waited for its topic or for room; 0 if none waits.

        `max.block.ms` bounds it.
        """
        life = self._life
        return life.admission.oldest_wait(life.driver.now()) if life.was_started else 0.0

    def silent_brokers(self) -> list[SilentBroker]:
        """Return the brokers that stopped answering: requests wait, and no byte came for a second or more.

        Records for other brokers are still sent. With `acks=0` Produce requests have no answers, so they never make
        a broker silent.

        Example:
            >>> for broker in producer.silent_brokers():
            ...     print(broker.node_id, f"{broker.host}:{broker.port}", broker.seconds, broker.records)
        """
        life = self._life
        return silent_brokers(life.sender, life.driver.now()) if life.was_started and not life.is_over else []

    @property
    def state(self) -> ProducerState:
        """State of the producer: NEW, RUNNING, CLOSING, CLOSED, or DIED (stopped by a bug or its loop's end)."""
        self._life.look_for_end()
        return self._life.state

    def metrics(self) -> MetricsSnapshot:
        """Return the current values of all metrics, by Kafka's names.

        It may be called at any time, also before the start and after the end. It takes about 400 microseconds, plus
        25 for each topic and broker: call it once a second, not for each record.

        Example:
            >>> producer.metrics().value("record-error-total")
            0.0
        """
        return self._life.read_metrics()


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
