"""Admission of records: the bounded waits of `send()` for metadata and for memory.

Called by the Producer with checked, serialized records. Each call waits on a driver's waiter and checks again when
it wakes. A wait that reaches its bound raises an error that names the cause.

Invariants:

1. No method suspends after it has appended: the call that queued a record returns its future.
2. A call that leaves a wait, also by cancellation, removes its ticket or its place in the queue.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, final

from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.exchanges.telemetry import TelemetryState
from aioproduce.errors import (
    BufferExhaustedError,
    ClientInstanceIdError,
    InvalidTopicError,
    MetadataTimeoutError,
    NoBrokerAvailableError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from aioproduce.partitioners import ForeignPartitioner
from aioproduce.producer.input import check_partition, check_topic
from aioproduce.records import ClusterInfo
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from aioproduce._native.delivery import BatchResult, DeliveryFuture
    from aioproduce._native.record_batch import RecordBatchBuffer
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.buffer_pool import BufferLease
    from aioproduce.core.cluster.cluster_metadata import TopicView
    from aioproduce.core.sender import Sender
    from aioproduce.drivers.base import Driver
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.records import Header


@final
class Admission:
    """Appends records to the core; waits where that is needed and allowed.

    It calls a user's own partitioner once per record, when the topic is known, and again if the topic was recreated
    during a wait.

    Args:
        config: The settings.
        driver: The event loop's side.
        sender: The core.
        check_running: Raises if the producer is closed or dead; called after every wait.
        metrics: Records the waits.
    """

    __slots__ = ("_check_running", "_config", "_driver", "_metrics", "_partitioner", "_sender", "_waits")

    def __init__(
        self,
        config: ProducerConfig,
        driver: Driver,
        sender: Sender,
        check_running: Callable[[], None],
        metrics: ProducerMetrics,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._driver = driver
        self._sender = sender
        self._check_running = check_running
        self._partitioner = (
            None if isinstance(config.partitioner, str) else ForeignPartitioner(config.partitioner)
        )
        # Not a dict: finding its first item scans the deleted items at its front.
        self._waits: OrderedDict[object, float] = OrderedDict()

    @contextmanager
    def waiting(self, since: float) -> Iterator[None]:
        """Register a waiting call for `oldest_wait()` until the context ends."""
        call = object()
        self._waits[call] = since
        try:
            yield
        finally:
            del self._waits[call]

    def oldest_wait(self, now: float) -> float:
        """Return the seconds since the oldest waiting call began to wait; 0 if none waits."""
        since = next(iter(self._waits.values()), now)
        return max(now - since, 0.0)

    def append_at_once(self, record: SerializedRecord) -> DeliveryFuture | None:
        """Append without waiting, if the topic is known and there is an open batch or memory for one.

        It returns None if the user's partitioner must choose: `append_waiting()` and `append_now()` call that.
        """
        sender, partition = self._sender, record.partition
        view = sender.metadata.topic(record.topic)
        if view is None:
            return None
        if partition is None:
            if self._partitioner is not None:
                return None
        elif type(partition) is not int or not 0 <= partition < view.partition_count:
            return None
        delivery = sender.accumulator.append(view, record, self._driver.now())
        if sender.has_work:
            # Also if an open batch took the record: a full batch may be ready now.
            self._driver.wake()
        return delivery

    def append_plain(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp: int,
    ) -> DeliveryFuture | None:
        """Append a checked record for `SendPath`, which found no open batch with room for it.

        It returns None if `append_at_once()` would, or would raise: the long path decides, and reports the error.
        """
        try:
            # Not by its constructor, which is a call of Python code.
            record = tuple.__new__(SerializedRecord, (topic, key, value, headers, partition, timestamp))
            return self.append_at_once(record)
        except ProducerError:
            return None

    def append_now(self, record: SerializedRecord) -> DeliveryFuture:
        """Append without waiting, or raise the reason why that is impossible."""
        placed, delivery = record, None
        view = self._sender.metadata.topic(record.topic)
        if record.partition is None and self._partitioner is not None and view is not None:
            placed, delivery = self._choose(view, record)
        if delivery is None:
            delivery = self.append_at_once(placed)
        if delivery is None:
            self._refuse(record)
        return delivery

    def _choose(
        self, view: TopicView, record: SerializedRecord
    ) -> tuple[SerializedRecord, DeliveryFuture | None]:
        """Return the record with the user's choice of partition, and its delivery if an open batch accepted it.

        Only a partitioner with `on_new_batch` causes an append here.
        """
        partitioner, sender = self._partitioner, self._sender
        assert partitioner is not None
        partition = partitioner.partition(view.name, record.key, record.value, view)
        placed = record._replace(partition=partition)
        if not partitioner.hears_of_new_batches:
            return placed, None
        delivery = sender.accumulator.append_to_open(view, placed, self._driver.now())
        if delivery is None:
            partitioner.on_new_batch(view.name, view, partition)
            placed = record._replace(
                partition=partitioner.partition(view.name, record.key, record.value, view)
            )
        return placed, delivery

    async def append_waiting(self, record: SerializedRecord, timeout: float | None) -> DeliveryFuture:
        """Append; wait for the topic and for memory, with one bound for both together."""
        topic, partition, driver = record.topic, record.partition, self._driver
        check_topic(topic)
        if partition is not None:
            check_partition(partition)
        size = self._sender.accumulator.size_of(record)
        started_at = driver.now()
        deadline = self.deadline(started_at, timeout)
        with self.waiting(started_at):
            while True:
                view = await self.topic(topic, partition, started_at, deadline)
                placed, delivery = record, None
                if partition is None and self._partitioner is not None:
                    placed, delivery = self._choose(view, record)
                if delivery is None:
                    delivery = self.append_at_once(placed)
                if delivery is not None:
                    return delivery
                view.used_at = driver.now()  # a call that gets no memory has used its topic, too
                lease = await self._memory(size, started_at, deadline)
                if not self._still_has(view, placed.partition):
                    lease.release()
                    continue
                delivery = self._sender.accumulator.append_with(lease, view, placed, driver.now())
                driver.wake()
                return delivery

    async def append_batch(
        self, topic: str, partition: int, records: RecordBatchBuffer, timeout: float | None
    ) -> BatchResult:
        """Queue a ready-made batch; wait as `append_waiting()` does. Nothing suspends once the batch is queued."""
        check_topic(topic)
        check_partition(partition)
        driver, sender = self._driver, self._sender
        size = records.size
        for limited_by, limit in (
            ("max.request.size", self._config.max_request_size),
            ("buffer.memory", self._config.buffer_memory),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"the batch takes {size} bytes, more than {limited_by}={limit}: make smaller batches, or raise "
                    f"{limited_by}",
                    size=size,
                    limit=limit,
                    limited_by=limited_by,
                )
        # Charged like other batches: a smaller batch takes a whole buffer of the pool.
        charge = min(max(size, self._config.batch_size), self._config.buffer_memory)
        started_at = driver.now()
        deadline = self.deadline(started_at, timeout)
        with self.waiting(started_at):
            while True:
                view = await self.topic(topic, partition, started_at, deadline)
                lease = sender.pool.try_allocate(charge)
                if lease is None:
                    view.used_at = driver.now()
                    lease = await self._memory(charge, started_at, deadline, records.record_count)
                    if not self._still_has(view, partition):
                        lease.release()
                        continue
                result = sender.accumulator.append_batch(lease, view, partition, records, driver.now())
                driver.wake()
                return result

    def _still_has(self, view: TopicView, partition: int | None) -> bool:
        """Return whether topic and partition still exist: a recreated topic can have fewer partitions."""
        return self._sender.metadata.topic(view.name) is view and (
            partition is None or partition < view.partition_count
        )

    def _refuse(self, record: SerializedRecord) -> NoReturn:
        """Raise the reason why `append_at_once()` could not append."""
        topic, partition = record.topic, record.partition
        check_topic(topic)
        if partition is not None:
            check_partition(partition)
        sender, now = self._sender, self._driver.now()
        size = sender.accumulator.size_of(record)
        view = sender.metadata.topic(topic)
        if view is None:
            sender.metadata.want_topic(topic, now)
            sender.metadata_requests.request(now)
            self._driver.wake()
            self._raise_topic_error(topic)
            raise MetadataTimeoutError(
                f"the partitions of {topic!r} are not known yet, and try_send() does not wait. They were "
                "requested: try again, or use send()",
                waited=0.0,
                topic=topic,
            )
        if partition is not None and partition >= view.partition_count:
            raise _out_of_range(topic, partition, view)
        self._metrics.buffer_exhausted.record(1, now)
        raise BufferExhaustedError(
            f"buffer.memory={self._config.buffer_memory} has no room for {size} bytes now: try again later, use "
            "send(), or raise buffer.memory",
            waited=0.0,
            needed=size,
            available=sender.pool.available,
        )

    async def _memory(
        self, size: int, started_at: float, deadline: float, record_count: int = 1
    ) -> BufferLease:
        """Wait in line for `size` bytes of memory, for `record_count` records."""
        driver, pool = self._driver, self._sender.pool
        waiter = driver.make_waiter()
        ticket = pool.enqueue(size, waiter.notify)
        waits_since = driver.now()
        try:
            # The first waiter ends the lingering of open batches. Later waiters change nothing more.
            if pool.waiting == 1:
                self._sender.memory_exhausted(driver.now())
                driver.wake()
            if await waiter.wait(deadline):
                lease = pool.claim(ticket)
                try:
                    self._check_running()
                except BaseException:
                    lease.release()
                    raise
                return lease
        except ProducerClosedError:
            self._check_running()
            raise
        finally:
            pool.abandon(ticket)  # no effect if claimed
            now = driver.now()
            self._metrics.waited_for_memory(now - waits_since, now)
        waited = now - started_at
        self._metrics.buffer_exhausted.record(record_count, now)
        raise BufferExhaustedError(
            f"no room for {size} bytes became free within {waited:.3f} s (max.block.ms, or timeout=): "
            f"buffer.memory={self._config.buffer_memory} is held by records that are not acknowledged yet"
            f"{self._causes()}. Send less, raise buffer.memory or max.block.ms, or look at the brokers",
            waited=waited,
            needed=size,
            available=pool.available,
        )

    async def topic(self, topic: str, partition: int | None, started_at: float, deadline: float) -> TopicView:
        """Wait until the topic is known and has the given partition."""
        driver, sender = self._driver, self._sender
        asked_again = False
        while True:
            view = sender.metadata.topic(topic)
            if view is not None and (partition is None or partition < view.partition_count):
                return view
            if asked_again and view is not None:
                assert partition is not None
                raise _out_of_range(topic, partition, view)
            waiter = driver.make_waiter()
            waits_since = driver.now()
            ticket = sender.metadata_requests.await_topic(topic, waiter.notify, driver.now())
            if view is not None:
                asked_again = True  # the topic may have more partitions now
                sender.metadata_requests.request(driver.now())
            driver.wake()
            try:
                was_notified = await waiter.wait(deadline)
            finally:
                sender.metadata_requests.forget(ticket)
                self._metrics.spent("metadata-wait", driver.now() - waits_since)
            self._check_running()
            if sender.connections.fatal_error is not None and sender.metadata.version == 0:
                raise sender.connections.fatal_error
            self._raise_topic_error(topic)
            if not was_notified:
                raise self._metadata_timeout(topic, view, driver.now() - started_at)

    def _metadata_timeout(self, topic: str, view: TopicView | None, waited: float) -> MetadataTimeoutError:
        code = self._sender.metadata.topic_error(topic)
        if code == codes.UNKNOWN_TOPIC_OR_PARTITION:
            why = ": there is no such topic, or this client may not describe it. Create it, or check the name"
        elif code != codes.NONE:
            why = f": {codes.name_of(code)}: {codes.message_of(code)}"
        else:
            why = self._causes() or ": no broker answered"
        what = (
            f"the partitions of {topic!r}"
            if view is None
            else f"more than the {view.partition_count} known partitions of {topic!r}"
        )
        error = MetadataTimeoutError(
            f"{what} did not become known within {waited:.3f} s (max.block.ms, or timeout=){why}",
            waited=waited,
            topic=topic,
            code=code,
        )
        if code == codes.NONE and self._sender.connection_errors():
            error.__cause__ = self._no_broker("no broker reported the topic's partitions")
        return error

    def _raise_topic_error(self, topic: str) -> None:
        code = self._sender.metadata.topic_error(topic)
        if code == codes.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationError(
                f"the cluster denies access to topic {topic!r}: grant this principal Describe and Write on it",
                topic=topic,
            )
        if code == codes.INVALID_TOPIC_EXCEPTION:
            raise InvalidTopicError(
                f"the cluster refuses {topic!r} as the name of a topic: choose another one", topic=topic
            )

    def _no_broker(self, what: str) -> NoBrokerAvailableError:
        causes = self._sender.connection_errors()
        servers = ", ".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return NoBrokerAvailableError(
            f"{what} (bootstrap.servers={servers}){self._causes()}. Check the addresses, the network, and that "
            "the brokers' advertised.listeners can be reached from here",
            causes=causes,
        )

    def _causes(self) -> str:
        causes = self._sender.connection_errors()
        told = (cause if address in cause else f"{address}: {cause}" for address, cause in causes.items())
        return ": " + "; ".join(told) if causes else ""

    def deadline(self, now: float, timeout: float | None) -> float:
        """Return the time until which a call that begins now may wait: `max.block.ms`, or less."""
        bound = self._config.max_block
        if timeout is not None:
            if not timeout >= 0:
                raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
            bound = min(bound, timeout)
        return now + bound

    async def check(self, timeout: float, *, tries_each_once: bool = False) -> ClusterInfo:
        """Ask any broker for metadata, and wait for an answer."""
        driver, sender = self._driver, self._sender
        deadline = driver.now() + timeout
        version = sender.metadata.version
        while sender.metadata.version == version:
            waiter = driver.make_waiter()
            waits_since = driver.now()
            ticket = sender.metadata_requests.await_any(waiter.notify, driver.now())
            driver.wake()
            try:
                was_notified = await waiter.wait(deadline)
            finally:
                sender.metadata_requests.forget(ticket)
                self._metrics.spent("metadata-wait", driver.now() - waits_since)
            self._check_running()
            if sender.connections.fatal_error is not None:
                raise sender.connections.fatal_error
            refusal = sender.connections.security_error
            if refusal is not None and sender.metadata.version == version:
                raise refusal
            if not was_notified:
                raise self._no_broker(f"no broker answered within {timeout} s")
            has_failed = len(sender.connection_errors()) == len(sender.metadata.brokers)
            if tries_each_once and has_failed and sender.metadata.version == 0:
                raise self._no_broker("none of the bootstrap servers can be reached")
        return ClusterInfo(
            sender.metadata.cluster_id,
            {broker.node_id: f"{broker.host}:{broker.port}" for broker in sender.metadata.brokers},
        )

    async def client_instance_id(self, timeout: float) -> UUID:
        """Wait for the id that a broker assigns to this client."""
        telemetry = self._sender.telemetry
        if telemetry is None:
            raise ClientInstanceIdError(
                "the cluster assigns this client an id only with enable.metrics.push=true: set it"
            )
        waiter = self._driver.make_waiter()
        if telemetry.client_instance_id is None and telemetry.state is not TelemetryState.TERMINATED:
            telemetry.await_id(waiter.notify)
            try:
                await waiter.wait(self._driver.now() + timeout)
            finally:
                telemetry.forget(waiter.notify)
            self._check_running()
        if telemetry.client_instance_id is None:
            when = "will" if telemetry.state is TelemetryState.TERMINATED else f"did within {timeout} s"
            raise ClientInstanceIdError(
                f"no broker {when} assign this client an id{self._causes()}. Brokers do so since Kafka 3.7, if "
                "their metric.reporters names a plug-in that collects the metrics of clients (KIP-714)"
            )
        return telemetry.client_instance_id


def _out_of_range(topic: str, partition: int, view: TopicView) -> PartitionOutOfRangeError:
    return PartitionOutOfRangeError(
        f"topic {topic!r} has {view.partition_count} partition(s), 0 to {view.partition_count - 1}, and no "
        f"partition {partition}: name one of them, or leave partition out to let the producer choose",
        topic=topic,
        partition=partition,
        partition_count=view.partition_count,
    )
