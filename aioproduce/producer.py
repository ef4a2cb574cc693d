"""The producer that people import: an async context manager around the core and a driver.

It checks what users hand in, waits on their behalf (for metadata, for memory), and keeps the promise that no
call outlives its bound. All sending is the core's business.

Invariants:

1. `send()` that raises has queued nothing; `send()` that returns has queued the record exactly once. So has a
   cancelled one: while it waits nothing is queued, and it does not suspend after the record is.
2. Whatever waits here is woken by what it waits for, by close and by the sender's death, and re-checks.
3. With the topic known and room in the buffer `send()` does not suspend, but for one turn of the loop after
   about 1 ms of uninterrupted sending: a loop that only sends must not starve acknowledgements and timers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.bulk import Bulk
from aioproduce.bulk_calls import BulkCalls
from aioproduce.config import ProducerConfig, dotted_keys, load_properties
from aioproduce.core.record_input import RecordInput, check_topic, header_list, timestamp_ms
from aioproduce.errors import (
    FlushTimeoutError,
    ProducerError,
)
from aioproduce.interceptors import Interceptors
from aioproduce.producer_life import ProducerLife, ProducerState
from aioproduce.records import ClusterInfo, PartitionInfo, ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import Headers

_log = logging.getLogger("aioproduce")

# The clock is read once in so many sends (a power of 2), and the loop gets its turn when so much has passed.
_SENDS_PER_CLOCK: Final = 16
_TURN: Final = 0.001
# Kafka's int32: larger ones would not fit the short way's C integer; the long way refuses them by name.
_MAX_PARTITION: Final = 2**31 - 1

OnDelivery = Callable[[RecordMetadata, BaseException | None], object]


@final
class Producer(BulkCalls):
    """Sends records to Kafka.

    `await send()` means accepted: the record has its place in a bounded buffer. Awaiting what it returns means
    acknowledged. Every accepted record is acknowledged or fails within `delivery.timeout.ms`.

    Args:
        bootstrap_servers: `"host:port,..."`, a list of `"host:port"`, a mapping of Kafka's dotted keys, or a
            ProducerConfig.
        **settings: Kafka's producer keys with underscores for dots, e.g. `linger_ms=5`, `compression_type="lz4"`.
            `docs/configuration.md` lists them all.

    Raises:
        ConfigError: a key is unknown or refused, a value out of range, or two are at odds.

    Example:
        >>> async def main():
        ...     async with Producer("localhost:9092", linger_ms=5) as producer:
        ...         delivery = await producer.send("orders", b"42", key=b"customer-7")
        ...         metadata = await delivery
        ...         print(metadata.partition, metadata.offset)
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: object,
    ) -> None:
        self.config = _config(bootstrap_servers, settings)
        self._interceptors = Interceptors(self.config.interceptors) if self.config.interceptors else None
        self._input = RecordInput(self.config)
        self._has_serializers = (
            self.config.key_serializer is not None or self.config.value_serializer is not None
        )
        self._life = ProducerLife(self.config)
        self._bulk = Bulk(
            self._life,
            self._input,
            self._interceptors,
            heed_turn=self._heed_turn_of_bulk,
            send=self.send,
        )
        self._sends = 0
        self._turn_began_at = 0.0
        self._sending_task: object = None

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], **settings: object) -> Self:
        """A producer configured by a Java `.properties` file; keyword settings go before the file's.

        Raises:
            ConfigError: as the constructor, or the file cannot be read or parsed.
        """
        return cls(load_properties(path), **settings)

    # -- life ---

    async def start(self, *, require_broker: bool = False) -> None:
        """Start the sender on the running event loop. Does not wait for a broker unless asked.

        Args:
            require_broker: Wait until a broker answers, at most `max.block.ms`.

        Raises:
            ProducerStateError: it was started before.
            NoBrokerAvailableError: `require_broker` was asked and none answered in time.
        """
        self._life.start()
        if require_broker:
            try:
                await self.check(self.config.max_block)
            except BaseException:
                await self.close(0)
                raise

    async def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then close the connections.

        Args:
            timeout: Seconds; what is not acknowledged by then fails with ForcedCloseError. `None` waits for
                every record, which `delivery.timeout.ms` bounds; 0 gives up on all at once.

        Raises:
            ValueError: the timeout is negative.
        """
        _check_timeout(timeout)
        await self._life.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"<Producer {self.config.client_id} -> {servers}, {self._life.state.name.lower()}>"

    # -- sending ---

    async def send(  # noqa: C901  # one frame, with every test of the fast path in it
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> DeliveryFuture:
        """Accept one record: wait until its topic is known and the buffer has room for it.

        Args:
            topic: The topic, or a whole ProducerRecord.
            value: Bytes, None (a tombstone), or whatever the value serializer takes.
            key: Likewise; records of one key go to one partition, in order.
            partition: The partition; `None` lets the partitioner choose.
            timestamp: Milliseconds since the epoch or an aware datetime; `None` means now.
            headers: `(name, value)` pairs.
            timeout: Seconds to wait at most, where that is less than `max.block.ms`. It bounds this call only,
                never the record: `delivery.timeout.ms` does that.
            on_delivery: Called once on the event loop with `(metadata, None)` or, on failure,
                `(metadata with offset -1, error)`. An error in it is logged.

        Returns:
            The record's future: await it for its RecordMetadata or its DeliveryError.

        Raises:
            InvalidRecordError: this record can never be sent.
            MaxBlockTimeoutError: the topic or the buffer kept it waiting too long.
            TopicAuthorizationError: the cluster denies the topic.
            ProducerStateError: not started, closed, or in the wrong place.
        """
        # The order of these lines, and what they do not call, is the cost of a record: measure before a change.
        life = self._life
        if life.running_loop() is not life.loop:
            life.check_callable()
        if self._sends % _SENDS_PER_CLOCK == 0:
            await self._heed_turn()
        self._sends += 1
        if topic.__class__ is not str or self._interceptors is not None:
            return await self._send_record(
                topic, value, key, partition, timestamp, headers, timeout, on_delivery
            )
        if value is not None and (value.__class__ is not bytes or self._has_serializers):
            value = self._input.value(topic, value)
        if key is not None and (key.__class__ is not bytes or self._has_serializers):
            key = self._input.key(topic, key)
        if headers is not None:
            headers = header_list(headers)
        created = time.time_ns() // 1_000_000 if timestamp is None else timestamp_ms(timestamp)
        delivery: DeliveryFuture | None = None
        appender = life.appenders.get(topic)
        if appender is not None:
            if partition is None:
                delivery = appender.append(NO_PARTITION, created, key, value, headers)
            elif partition.__class__ is int and 0 <= partition <= _MAX_PARTITION:
                delivery = appender.append(partition, created, key, value, headers)
        if delivery is None:
            admission = life.admission
            delivery = admission.append_at_once(topic, key, value, headers, partition, created)
            if delivery is None:
                delivery = await admission.append_waiting(
                    topic, key, value, headers, partition, created, timeout
                )
        if on_delivery is not None:
            delivery.add_delivery_callback(on_delivery)
        return delivery

    async def send_and_wait(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordMetadata:
        """`send()`, then await the acknowledgement.

        `timeout` bounds the waiting for room and metadata, as in `send()`, not that for the acknowledgement.

        Returns:
            Where the record lies.

        Raises:
            DeliveryError: it was not acknowledged; and what `send()` raises.
        """
        return await (
            await self.send(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                timeout=timeout,
                on_delivery=on_delivery,
            )
        )

    def try_send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> DeliveryFuture:
        """Accept one record without ever waiting.

        Raises:
            BufferExhaustedError: there is no room now.
            MetadataTimeoutError: the topic is not known yet; it is being asked for, so try again later.
            InvalidRecordError: as in `send()`.
            ProducerStateError: as in `send()`.
        """
        self._life.check_callable()
        record = self._as_record(topic, value, key, partition, timestamp, headers)
        try:
            serialized = self._input.read(record, time.time_ns() // 1_000_000)
            delivery = self._life.admission.append_at_once(*serialized)
            if delivery is None:
                self._life.admission.refuse(*serialized)
        except ProducerError as error:
            self._tell_refused(record, error)
            raise
        self._add_callbacks(delivery, on_delivery)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything accepted so far without lingering, and wait until it is settled and called back for.

        Args:
            timeout: Seconds; `None` waits for all, which `delivery.timeout.ms` bounds.

        Raises:
            FlushTimeoutError: not all was settled in time; it goes on.
            ValueError: the timeout is negative.
            ProducerStateError: as in `send()`. A record that failed raises from its own future, not from here.
        """
        self._life.check_callable()
        _check_timeout(timeout)
        driver = self._life.driver
        now = driver.now()
        waiter = driver.make_waiter()
        self._life.sender.begin_flush(waiter.notify, now)
        driver.wake()
        if not await waiter.wait(inf if timeout is None else now + timeout):
            raise FlushTimeoutError(
                f"not every record was settled within {timeout} s; the rest goes on: flush again, or look at "
                "their futures"
            )
        # What is flushed has had its callbacks, as in Java; the sender task may not have come to them yet.
        self._life.run_callbacks()
        if self._life.state is ProducerState.DIED:
            self._life.check_running()

    # -- asking ---

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic.

        Args:
            topic: The topic.
            timeout: Seconds; `max.block.ms` by default.

        Raises:
            MetadataTimeoutError: the cluster did not tell in time; other errors as in `send()`.
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

    async def check(self, timeout: float = 10.0) -> ClusterInfo:
        """Ask the cluster who it is: the answer to "can we reach it, and if not, why".

        Args:
            timeout: Seconds.

        Raises:
            NoBrokerAvailableError: no broker answered in time; `causes` has the reason for each address.
            UnsupportedVersionError: a broker that this client cannot work with.
        """
        self._life.check_callable()
        _check_timeout(timeout)
        return await self._life.admission.check(timeout)

    @property
    def unobserved_failures(self) -> int:
        """Records that failed and that nobody awaited or was called back for."""
        return self._life.reports.unobserved_failures

    @property
    def outstanding_bytes(self) -> int:
        """Bytes of `buffer.memory` in use: open batches, queued, in flight and awaiting a retry."""
        return 0 if self._life.state is ProducerState.NEW else self._life.sender.pool.outstanding

    # -- records as objects: interceptors, try_send ---

    def _as_record(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
    ) -> ProducerRecord:
        if isinstance(topic, ProducerRecord):
            if any(given is not None for given in (value, key, partition, timestamp, headers)):
                raise TypeError("send() takes a ProducerRecord whole: put value, key, ... into the record")
            record = topic
        else:
            record = ProducerRecord(
                topic=topic, value=value, key=key, partition=partition, timestamp=timestamp, headers=headers
            )
        return record if self._interceptors is None else self._interceptors.on_send(record)

    async def _send_record(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: OnDelivery | None,
    ) -> DeliveryFuture:
        record = self._as_record(topic, value, key, partition, timestamp, headers)
        try:
            serialized = self._input.read(record, time.time_ns() // 1_000_000)
            delivery = self._life.admission.append_at_once(*serialized)
            if delivery is None:
                delivery = await self._life.admission.append_waiting(*serialized, timeout)
        except ProducerError as error:
            self._tell_refused(record, error)
            raise
        self._add_callbacks(delivery, on_delivery)
        return delivery

    def _tell_refused(self, record: ProducerRecord, error: ProducerError) -> None:
        if self._interceptors is not None:
            self._interceptors.on_refused(record, error)

    def _add_callbacks(self, delivery: DeliveryFuture, on_delivery: OnDelivery | None) -> None:
        if self._interceptors is not None:
            delivery.add_delivery_callback(self._interceptors.on_acknowledgement)
        if on_delivery is not None:
            delivery.add_delivery_callback(on_delivery)

    async def _heed_turn(self) -> None:
        """Give the loop a turn if it has had none for about a millisecond of sending (invariant 3).

        Only a task that sends on and on is asked to: a thousand tasks that send once each suspend by
        themselves, and are to keep their order.
        """
        driver = self._life.driver
        task = driver.current_task()
        if self._sends and task is self._sending_task and driver.now() - self._turn_began_at >= _TURN:
            await driver.yield_once()
            self._life.check_running()
        if self._sends == 0:
            self._turn_began_at = driver.now()
            driver.on_next_turn(self._turn_came)
        self._sending_task = task

    async def _heed_turn_of_bulk(self) -> None:
        """The same, from the bulk calls; each that asks counts as a send."""
        await self._heed_turn()
        self._sends += 1

    def _turn_came(self) -> None:
        self._sends = 0
        self._sending_task = None


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")


def _config(
    servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None,
    settings: Mapping[str, object],
) -> ProducerConfig:
    if isinstance(servers, ProducerConfig):
        if settings:
            raise TypeError("a ProducerConfig is complete: give the settings to its constructor instead")
        return servers
    merged: dict[str, object] = {}
    if isinstance(servers, Mapping):
        merged.update(servers)
    elif servers is not None:
        merged["bootstrap.servers"] = servers
    merged.update(dotted_keys(settings))
    return ProducerConfig.from_mapping(merged)
