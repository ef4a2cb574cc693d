"""`SpooledProducer`: a producer whose records are on disk before `send()` returns.

Two producers do the work. The front one sends to the local broker, which is the disk; the queue's own one sends to
the cluster what is read from the disk. So both ways have one path of a record, one bound of memory, and one set of
time-outs, and this module only joins them. It also joins the queues of dead workers, which `adoption` forwards.

Invariants:

1. Nothing returns before the record is written (`os`, `interval`) or durable (`always`).
2. No outage of the cluster reaches the application: a queue's producer tries for as long as it runs, and what it
   has not sent is on disk.
3. The end of a part (the writer, a forwarder, a producer) by a bug is the end of the whole, and the next call
   raises it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Self, final

import anyio
import anyio.to_thread

from aioproduce._native.stored_send import StoredPath
from aioproduce.config import configured
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import (
    DeliveryError,
    FlushTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    SpoolFullError,
    SpoolStorageError,
)
from aioproduce.producer.input import check_partition, header_list
from aioproduce.producer.producer import Producer
from aioproduce.spool.adoption import Adoption
from aioproduce.spool.changes import Changes
from aioproduce.spool.front import check_config, front_config, stored_error
from aioproduce.spool.health import combined
from aioproduce.spool.local_broker import LocalBroker
from aioproduce.spool.measuring import SpoolMeasures
from aioproduce.spool.queue_opening import opened
from aioproduce.spool.service_directory import ServiceDirectory
from aioproduce.spool.settings import MAX_BYTES, SEGMENT_BYTES, SYNC_INTERVAL_MS, Spool, SpoolLike
from aioproduce.spool.spool_queue import Forwarding, SpoolQueue
from aioproduce.spool.spooled_delivery import SpooledDeliveries, SpooledGroup
from aioproduce.spool.tasks import start_task
from aioproduce.spool.topic_queue import PARTITION_HEADER
from aioproduce.spool.transactional_forwarder import LostPosition
from aioproduce.spool.writer_settings import FullPolicy, SyncPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from aioproduce.config import ProducerConfig
    from aioproduce.drivers.base import Driver
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.records import Header, Headers, SilentBroker
    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.health import SpoolHealth, TopicBacklog
    from aioproduce.spool.topic_queue import TopicQueue
    from aioproduce.spool.writer import SpoolWriter


@final
class SpooledProducer(StoredPath):
    """Sends records to Kafka by way of a queue on disk.

    `await send()` returns when the record is on disk; the cluster need not be there. The delivery that it
    returns may be awaited, too: for the acknowledgement of the cluster, whenever that comes. A record that a
    killed process left on disk is sent by the next one.

    Each record reaches the cluster at least once, or exactly once. It carries the header `ap.id`, 24 bytes that are
    the same each time it is sent.

    Args:
        bootstrap_servers: As for `Producer`.
        directory: The directory of the service's queues; it is made if its parent exists. Each process takes a
            queue of its own in it, and forwards the queues whose processes are gone.
        sync: When a record is durable: `"always"`, before `send()` returns, in groups of all that wait;
            `"interval"`, at most `sync_interval_ms` later; `"os"`, when the operating system writes its cache.
            The end of the process loses nothing with any of them.
        sync_interval_ms: For `sync="interval"`.
        max_bytes: The most bytes of the queue.
        when_full: `"block"`: `send()` waits for room, at most `max.block.ms`, first come, first served.
            `"reject"`: it raises at once. `"drop_oldest"`: the oldest records make room; they are counted.
        max_age_ms: The most milliseconds that a record waits; then it is dropped, and counted. None: no limit.
        exactly_once: Whether the cluster gets each record once, by transactions, also across restarts.
            Readers must set `isolation.level=read_committed`.
        lost_position: For `exactly_once`, if the cluster has forgotten which records it has: `"resume"` from what
            is known here, or `"refuse"`.
        direct: Whether a record goes to the disk and to the cluster at a time while nothing waits in front of it:
            `send()` returns when the first of them has it. What the cluster acknowledges first is not written.
            Not with `exactly_once`.
        dead_letter_topic: Where records go that can never be sent to their topic. They are in a table of the queue
            until the cluster has them. None: they stay there.
        segment_bytes: The most bytes of a file. A file is removed when all its records are forwarded.
        key_serializer: As for `Producer`.
        value_serializer: As for `Producer`.
        **settings: As for `Producer`. `delivery.timeout.ms` bounds nothing here: a record is sent until it is
            acknowledged.

    Raises:
        ConfigError: if a setting is refused.

    Example:
        >>> async def main():
        ...     async with SpooledProducer("localhost:9092", directory="/var/spool/orders") as producer:
        ...         await producer.send("orders", b"42", key=b"customer-7")  # on disk
    """

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        directory: str | os.PathLike[str],
        sync: str | SyncPolicy = SyncPolicy.ALWAYS,
        sync_interval_ms: float = SYNC_INTERVAL_MS,
        max_bytes: int = MAX_BYTES,
        when_full: str | FullPolicy = FullPolicy.BLOCK,
        max_age_ms: float | None = None,
        exactly_once: bool = False,
        lost_position: str | LostPosition = LostPosition.RESUME,
        direct: bool = False,
        dead_letter_topic: str | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        **settings: Any,
    ) -> None:
        config = configured(
            bootstrap_servers, settings, key_serializer=key_serializer, value_serializer=value_serializer
        )
        check_config(config)
        self.config: ProducerConfig = config
        spool = Spool(
            *(
                directory,
                sync,
                sync_interval_ms,
                max_bytes,
                when_full,
                segment_bytes,
                max_age_ms,
                exactly_once,
            ),
            lost_position,
            direct,
            dead_letter_topic,
        )
        self._directory_path = spool.directory
        self._settings = spool.writer_settings()
        self._forwarding = Forwarding(
            *(config, spool.exactly_once, LostPosition(spool.lost_position), spool.direct),
            spool.dead_letter_topic,
        )
        # Refuses settings that a queue's producer cannot have; its metrics are shown while a queue has none.
        self._template: Producer[bytes, bytes] = self._forwarding.producer(bytes(16))
        self._front: Producer[Any, Any] = Producer(front_config(config))
        super().__init__(self._front)
        self._measures = SpoolMeasures(config, time.time)
        self._service: ServiceDirectory | None = None
        self._queue: SpoolQueue | None = None
        self._adoption: Adoption | None = None
        self._starting: anyio.Event | None = None  # while it starts; a close waits for its end
        self._is_closed = False
        self._is_ending = False
        self._is_over = False
        # Told when a forwarder has settled something, and when something has ended.
        self._changes = Changes(lambda: self._driver)

    @classmethod
    @hides_arguments
    def of(
        cls,
        spool: SpoolLike,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Any,
    ) -> Self:
        """Return a producer with this queue.

        Args:
            spool: The queue, or the path of its directory.
            bootstrap_servers: As for `Producer`.
            **settings: As for `Producer`.

        Raises:
            ConfigError: if a setting is refused.
        """
        queue = Spool.of(spool)
        return cls(
            bootstrap_servers,
            directory=queue.directory,
            sync=queue.sync,
            sync_interval_ms=queue.sync_interval_ms,
            max_bytes=queue.max_bytes,
            when_full=queue.when_full,
            segment_bytes=queue.segment_bytes,
            max_age_ms=queue.max_age_ms,
            exactly_once=queue.exactly_once,
            lost_position=queue.lost_position,
            direct=queue.direct,
            dead_letter_topic=queue.dead_letter_topic,
            **settings,
        )

    # -- life ---

    def _is_closed_by_its_owner(self) -> None:
        """Leave the report of what an open producer loses at the exit to the owner, who closes it after that."""
        self._front._life.is_closed_at_exit = True
        self._forwarding = replace(self._forwarding, is_closed_at_exit=True)

    async def start(self) -> None:
        """Open a queue, and begin to forward what is in it. It waits for no broker.

        Raises:
            SpoolDirectoryError: if the directory cannot be used.
            ProducerStateError: if the producer was started before.
        """
        if self._service is not None or self._starting is not None:
            raise ProducerStateError("a spooled producer is started once")
        self._starting = has_ended = anyio.Event()
        try:
            await self._start()
        finally:
            self._starting = None
            has_ended.set()

    async def _start(self) -> None:
        self._service = service = await anyio.to_thread.run_sync(ServiceDirectory, self._directory_path)
        try:
            self._queue = queue = await opened(service.take, self._queue_in)
        except BaseException:
            self._service = None
            raise
        broker = LocalBroker(
            *(queue.writer, self._on_next_turn, time.monotonic, self.config.max_block),
            *(queue.arrived, queue.was_stored),
        )
        self._front._life.dial = broker.dial
        try:
            await self._front.start()
        except BaseException:
            self._queue = None
            queue.directory.close()
            raise
        self._measures.now = self._driver.now
        try:
            await queue.start()
        except BaseException:
            self._is_closed = self._is_ending = self._is_over = True
            with self._driver.shielded():
                try:
                    await self._front.close(0)
                finally:
                    await queue.end()
            raise
        self._adoption = Adoption(
            *(service, self._queue_in, self._driver, self._changes),
            *(self._measures.remove_queue, self._forwarding.gives_up_after, self._has_failed),
        )

    def _queue_in(self, directory: SpoolDirectory) -> SpoolQueue:
        return SpoolQueue(
            *(directory, self._settings, self._forwarding, lambda: self._driver, self._measures),
            *(self._changes.tell, self._has_failed),
        )

    @property
    def _driver(self) -> Driver:
        return self._front._life.driver

    def _on_next_turn(self, callback: Callable[[], None]) -> None:
        self._driver.on_next_turn(callback)

    async def close(self, timeout: float | None = 5.0) -> None:
        """Store what was sent, forward what is on disk, and close. A close during a start waits for its end.

        Args:
            timeout: Seconds for forwarding; the rest stays on disk, for the next start. `None` waits until the
                queue is empty.

        Raises:
            BaseException: what ended a part of it before.
        """
        if self._starting is not None:
            await self._starting.wait()
        if self._queue is None or self._is_closed:
            return
        self._is_closed = True
        if self._adoption is not None:
            self._adoption.take_no_more()
        try:
            await self._front.close()
            await self._drained(inf if timeout is None else self._driver.now() + timeout)
        finally:
            # A task of its own: a close that is cancelled must not leave a part running.
            self._is_ending = True
            start_task(self._end, self._has_ended, "aioproduce spool end")
            with self._driver.shielded():
                while not self._is_over:
                    await self._changes.wait(inf)
        self._check_alive()

    async def _end(self) -> None:
        if self._adoption is not None:
            await self._adoption.end()
        if self._queue is not None:
            await self._queue.end()

    def _has_ended(self, error: BaseException | None) -> None:
        self._is_over = True
        self._failure = self._failure or error
        self._changes.tell()

    def _is_drained(self) -> bool:
        return all(queue.is_drained for queue in self._queues())

    def _queues(self) -> list[SpoolQueue]:
        """Return its own queue and the one that it adopted, as far as they are there."""
        adopted = None if self._adoption is None else self._adoption.queue
        return [queue for queue in (self._queue, adopted) if queue is not None]

    async def _drained(self, deadline: float) -> None:
        """Wait until the queue is empty, at most until the deadline."""
        if not self._is_ending:
            for queue in self._queues():
                queue.hasten()
        while self._failure is None and not self._is_over and not self._is_drained():
            if not await self._changes.wait(deadline):
                return

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- sending ---

    def _group_at(self, topic: str, offset: int) -> SpooledGroup:
        assert self._queue is not None
        return self._queue.topic(topic).group_at(offset)  # also while it is closed: the record is on disk

    def _stored_error(self, error: DeliveryError) -> SpoolFullError | SpoolStorageError:
        return stored_error(error)

    def _with_partition(self, headers: Headers | None, partition: int) -> list[Header]:
        return _with_partition(headers, partition)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> SpooledDeliveries:
        """Put many records on disk, in their order; see `Producer.send_many()` for the arguments.

        Returns:
            Their deliveries by the cluster, which may be dropped.

        Raises:
            PartialSendError: as `Producer.send_many()`.
            SpoolFullError: as `send()`. Records before the one that found no room are stored.
            SpoolStorageError: as `send()`.
        """
        self._check_alive()
        if partition is not None:
            headers = _with_partition(headers, partition)
        with self._topic(topic).keeping_groups() as groups:
            deliveries = await self._front.send_many(
                topic, values, keys, timestamp=timestamp, headers=headers, timeout=timeout
            )
            try:
                await deliveries.wait()
            except DeliveryError as error:
                raise stored_error(error) from error
        return SpooledDeliveries(deliveries, groups)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the queue is empty: each record has its outcome from the cluster.

        Args:
            timeout: Seconds; `None` waits for as long as it takes.

        Raises:
            FlushTimeoutError: if the queue was not empty in time. Forwarding goes on.
            ProducerStateError: if the producer was not started.
            ProducerClosedError: if the producer was closed before the queue was empty.
        """
        self._check_alive()
        if self._queue is None:
            self._front._life.check_callable()  # names the state
        deadline = inf if timeout is None else self._driver.now() + timeout
        await self._drained(deadline)
        self._check_alive()
        if self._is_drained():
            return
        if self._is_over:
            raise ProducerClosedError(
                "the spooled producer was closed before its queue was empty; what it has is on disk, and the next "
                "producer with this directory sends it"
            )
        raise FlushTimeoutError(
            f"the queue was not empty within {timeout} s; what it has is on disk, and is forwarded when the "
            "cluster takes it"
        )

    def backlog(self) -> dict[str, TopicBacklog]:
        """Return what waits, by topic, also in a queue that is adopted."""
        found: dict[str, TopicBacklog] = {}
        for queue in self._queues():
            for topic, backlog in queue.backlog().items():
                found[topic] = combined([found[topic], backlog]) if topic in found else backlog
        return found

    # -- measuring ---

    def health(self) -> SpoolHealth:
        """Return what waits in all, how fast it goes, and whether the queue takes records."""
        is_open = self._queue is not None and not self._is_closed
        return self._measures.health(self.backlog(), self._failure, is_open=is_open)

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics of the producer that forwards, and of the queue: `spool-metrics`, by topic, too."""
        return self._measures.snapshot(self._back.metrics(), self.backlog(), self.health())

    def silent_brokers(self) -> list[SilentBroker]:
        """Return the brokers that stopped answering, as `Producer.silent_brokers()`."""
        return self._back.silent_brokers()

    @property
    def _back(self) -> Producer[bytes, bytes]:
        producer = None if self._queue is None else self._queue.producer
        return producer or self._template

    # -- parts ---

    @property
    def _writer(self) -> SpoolWriter:
        """The writer of its own queue (for tests)."""
        assert self._queue is not None
        return self._queue.writer

    def _topic(self, topic: str) -> TopicQueue:
        if self._queue is None or self._is_closed:
            self._front._life.check_callable()  # names the state
            raise ProducerClosedError("the spooled producer is closed")
        return self._queue.topic(topic)

    def _has_failed(self, error: BaseException) -> None:
        if self._failure is None and not self._is_ending:
            self._failure = error
            for queue in self._queues():
                queue.give_up(error)
        self._changes.tell()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure


def _with_partition(headers: Headers | None, partition: int) -> list[Header]:
    """Return the headers and the chosen partition, which the forwarder takes out again."""
    check_partition(partition)
    chosen = (PARTITION_HEADER, partition.to_bytes(4, "big"))
    return [*((headers and header_list(headers)) or ()), chosen]
