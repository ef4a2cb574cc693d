"""The `Producer` behind the drop-in for aiokafka's producer.

Owned by `AIOKafkaProducer`. Nothing here refers to that object, so that an unreferenced one is collected and warns.
The fast path of `send()` is compiled and used while the producer runs; this module has the slow path.

Invariants:

1. Only aiokafka's errors leave this module (`aiokafka_errors`).
2. A failed start leaves nothing running and may be repeated: aiokafka's users do so in a loop.
3. A call before the start or after the end raises, and does not wait.
4. Any task may send in the open transaction, as in aiokafka. This object holds the `Transaction` and sends in it.
   Direct calls of `Producer.send()` are only for the task that began it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from aiokafka.util import commit_structure_validate

from aioproduce._native.send_path import SendPath
from aioproduce.compat.aiokafka_errors import outcomes, theirs, translated, whole
from aioproduce.errors import (
    NoBrokerAvailableError,
    ProducerClosedError,
    ProducerError,
    TransactionStateError,
)
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.config import ProducerConfig
    from aioproduce.producer.batches import BatchBuilder
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.transactions import Transaction


@final
class AiokafkaPath(SendPath):
    """A Producer behind aiokafka's interface.

    Args:
        config: The settings.
        key_serializer: Called with every key, including None, as in aiokafka.
        value_serializer: Called with every value, including None.
    """

    def __init__(
        self,
        config: ProducerConfig,
        key_serializer: Callable[[Any], Any] | None,
        value_serializer: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__()
        self.config = config
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        # Serializers must be called for each record.
        self._has_short_way = key_serializer is None and value_serializer is None
        self._producer = self._make()
        self._is_started = False
        self._is_closing = False
        self._ended = asyncio.Event()
        self._transaction: Transaction[Any, Any] | None = None
        self._sending_task: object = None

    def _make(self) -> Producer[Any, Any]:
        producer = Producer(self.config)
        producer._lend(self if self._has_short_way else None, outcomes(is_acknowledged=self.config.acks != 0))
        return producer

    # -- life ---

    async def start(self) -> None:
        """Start as `AIOKafkaProducer.start()` does."""
        if self._is_closing:
            raise theirs.ProducerClosed("a stopped producer cannot be started again: create another one")
        if self._is_started:
            return
        producer = self._producer
        try:
            await producer.start()
            await producer.check(self.config.request_timeout, tries_each_once=True)
            if self.config.transactional_id is not None:
                await producer.init_transactions()
        except BaseException as error:
            self._producer = self._make()
            await producer.close(0)
            if isinstance(error, NoBrokerAvailableError):
                servers = ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
                raise theirs.KafkaConnectionError(f"Unable to bootstrap from {servers}: {error}") from error
            raise translated(error)  # noqa: B904  # already has its cause
        self._is_started = True

    async def stop(self) -> None:
        """Stop as `AIOKafkaProducer.stop()` does."""
        self._is_closing = True
        try:
            await self._producer.close()
        finally:
            self._ended.set()

    async def flush(self) -> None:
        """Flush as `AIOKafkaProducer.flush()` does."""
        if self._is_started and not self._is_closing:
            try:
                await self._producer.flush()
            except ProducerClosedError:
                pass  # stopped meanwhile; stop() waits for the same records
            except ProducerError as error:
                raise translated(error)  # noqa: B904
        if self._is_closing:
            await self._ended.wait()

    def producer(self) -> Producer[Any, Any]:
        """Return the running producer; raise if it was stopped or not started."""
        if self._is_closing:
            raise theirs.ProducerClosed("the producer is stopped: create another one to send again")
        if not self._is_started:
            raise theirs.IllegalStateError("the producer is not started: await producer.start() first")
        return self._producer

    # -- sending ---

    async def _send_slowly(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        timeout: float | None,  # noqa: ARG002  # aiokafka has neither
        on_delivery: Any,  # noqa: ARG002
    ) -> DeliveryFuture:
        if value is None and key is None:
            raise AssertionError("Need at least one: key or value")
        if self._has_short_way and self._is_started and self._turn_is_due():
            await self._give_turn()
        producer = self.producer()
        if self.key_serializer is not None:
            key = self.key_serializer(key)
        if self.value_serializer is not None:
            value = self.value_serializer(value)
        _check_partition(partition)
        try:
            return await self._way_of(producer).send(
                topic, value, key, partition=partition, timestamp=whole(timestamp), headers=headers or None
            )
        except ProducerError as error:
            raise translated(error)  # noqa: B904  # already has its cause

    async def _give_turn(self) -> None:
        """Yield to the event loop if it is due, for a single task that sends without pause; see `Producer`."""
        task = asyncio.current_task()
        if task is self._sending_task:
            await asyncio.sleep(0)
        else:
            self._put_turn_off()
        self._sending_task = task

    def create_batch(self) -> BatchBuilder[Any, Any]:
        """Return an empty batch of aioproduce."""
        return self._producer.create_batch()

    async def send_batch(self, batch: BatchBuilder[Any, Any], topic: Any, partition: Any) -> Deliveries:
        """Send a batch."""
        producer = self.producer()
        _check_partition(partition)
        try:
            return await self._way_of(producer).send_batch(batch, topic, partition=partition)
        except ProducerError as error:
            raise translated(error)  # noqa: B904

    # -- transactions ---

    def _way_of(self, producer: Producer[Any, Any]) -> Producer[Any, Any] | Transaction[Any, Any]:
        """Return the open transaction, or the producer, which refuses records if it needs a transaction."""
        transaction = self._transaction
        return producer if transaction is None or not transaction.is_open else transaction

    async def begin(self) -> None:
        """Begin as `AIOKafkaProducer.begin_transaction()` does."""
        producer = self.producer()
        try:
            self._transaction = await producer.begin_transaction()
        except ProducerError as error:
            raise _refused(error)  # noqa: B904

    async def commit(self) -> None:
        """Commit as `AIOKafkaProducer.commit_transaction()` does."""
        producer = self.producer()
        try:
            await producer.commit_transaction()
        except ProducerError as error:
            raise _refused(error)  # noqa: B904

    async def abort(self) -> None:
        """Abort as `AIOKafkaProducer.abort_transaction()` does."""
        producer = self.producer()
        try:
            await producer.abort_transaction()
        except ProducerError as error:
            raise _refused(error)  # noqa: B904

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction to abort."""
        return self._transaction is not None and self._transaction.can_abort

    async def send_offsets(self, offsets: Any, group_id: Any) -> None:
        """Send offsets as `AIOKafkaProducer.send_offsets_to_transaction()` does."""
        self.producer()
        transaction = self._transaction
        if transaction is None or not transaction.is_open:
            raise theirs.IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        wanted = commit_structure_validate(offsets)
        try:
            await transaction.send_offsets(wanted, group_id)
        except ProducerError as error:
            raise translated(error)  # noqa: B904

    # -- requests ---

    async def partitions_for(self, topic: Any) -> set[int]:
        """Return the partitions of a topic."""
        try:
            return {found.partition for found in await self.producer().partitions_for(topic)}
        except ProducerError as error:
            raise translated(error)  # noqa: B904

    async def cluster(self) -> dict[int, tuple[str, int]]:
        """Ask the cluster for its brokers: broker id -> host and port."""
        try:
            found = await self.producer().check(self.config.request_timeout)
        except ProducerError as error:
            raise translated(error)  # noqa: B904
        addresses = {broker: address.rpartition(":") for broker, address in found.brokers.items()}
        return {broker: (host, int(port)) for broker, (host, _, port) in addresses.items()}


def _refused(error: ProducerError) -> BaseException:
    """Return the error for a failed begin or end; aiokafka asserts if the call does not fit the state."""
    if not isinstance(error, TransactionStateError):
        return translated(error)
    refused: BaseException = AssertionError(f"Invalid state transition: {error}")
    if error.recover == "init":
        # The coordinator's timeout with transaction.version 1, which ends aiokafka's producers, too.
        refused = theirs.ProducerFenced("a transaction timed out: stop this producer, and create another one")
    refused.__cause__ = error
    return refused


def _check_partition(partition: object) -> None:
    if partition is None:
        return
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise TypeError(f"partition must be an int or None, not {type(partition).__name__}")
    if partition < 0:
        raise AssertionError(f"partition must be 0 or more, not {partition}")
