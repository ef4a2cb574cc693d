"""`SpooledProducer`: a producer whose records are on disk before `send()` returns.

Two producers do the work. The front one sends to the local broker, which is the disk; the back one sends to the
cluster what the forwarders read from the disk. So both ways have one path of a record, one bound of memory, and
one set of time-outs, and this module only joins them.

Invariants:

1. Nothing returns before the record is written (`os`, `interval`) or durable (`always`).
2. No outage of the cluster reaches the application: the back producer tries for as long as it runs, and what it
   has not sent is on disk.
3. The end of a part (the writer, a forwarder, a producer) by a bug is the end of the whole, and the next call
   raises it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, final

import anyio.to_thread

from aioproduce.config import configured
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    DeliveryError,
    FlushTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    SpoolFullError,
    SpoolStorageError,
)
from aioproduce.producer.interceptors import auditor_of
from aioproduce.producer.producer import Producer
from aioproduce.records import NOT_GIVEN
from aioproduce.spool.dead_letters import DeadLetters
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.forwarder import TopicForwarder
from aioproduce.spool.local_broker import ADDRESS, LocalBroker
from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.measuring import SpoolMeasures
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.settings import MAX_BYTES, SEGMENT_BYTES, SYNC_INTERVAL_MS, Spool, SpoolLike
from aioproduce.spool.spooled_delivery import SpooledDeliveries, SpooledDelivery, SpooledGroup
from aioproduce.spool.tasks import BackgroundTask, start_task
from aioproduce.spool.writer import FullPolicy, SpoolWriter, SyncPolicy
from aioproduce.wire.error_codes import POLICY_VIOLATION

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from aioproduce.config import ProducerConfig
    from aioproduce.drivers.base import Waiter
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.records import Headers, SilentBroker
    from aioproduce.spool.health import SpoolHealth, TopicBacklog

# More than the writer may take for one group; what it takes longer for is possibly stored.
_MARGIN: Final = 30.0
_FRONT_BATCH: Final = 256 * 1024
# Seconds that a forwarder waits for a topic or for room before it reports why.
_BACK_BLOCK: Final = 30.0
_FOR_EVER: Final = (2**31 - 1) / 1000
# Bytes of one topic under way to the cluster. All topics have a share of the buffer, so those without a leader
# leave room for the others.
_MOST_WINDOW: Final = 4 * 1024 * 1024
_LEAST_WINDOW: Final = 256 * 1024


@final
class SpooledProducer:
    """Sends records to Kafka by way of a queue on disk.

    `await send()` returns when the record is on disk; the cluster need not be there. The delivery that it
    returns may be awaited, too: for the acknowledgement of the cluster, whenever that comes. A record that a
    killed process left on disk is sent by the next one.

    Each record reaches the cluster at least once. It carries the header `ap.id`, 24 bytes that are the same each
    time it is sent.

    Args:
        bootstrap_servers: As for `Producer`.
        directory: The queue's directory, for this process alone; it is made if its parent exists.
        sync: When a record is durable: `"always"`, before `send()` returns, in groups of all that wait;
            `"interval"`, at most `sync_interval_ms` later; `"os"`, when the operating system writes its cache.
            The end of the process loses nothing with any of them.
        sync_interval_ms: For `sync="interval"`.
        max_bytes: The most bytes of the queue.
        when_full: `"block"`: `send()` waits for room, at most `max.block.ms`, first come, first served.
            `"reject"`: it raises at once.
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
        segment_bytes: int = SEGMENT_BYTES,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        **settings: Any,
    ) -> None:
        config = configured(
            bootstrap_servers, settings, key_serializer=key_serializer, value_serializer=value_serializer
        )
        _check(config)
        self.config: ProducerConfig = config
        spool = Spool(directory, sync, sync_interval_ms, max_bytes, when_full, segment_bytes)
        self._directory_path = spool.directory
        self._settings = spool.writer_settings()
        self._front: Producer[Any, Any] = Producer(_front_config(config))
        self._back: Producer[Any, Any] = Producer(_back_config(config))
        self._measures = SpoolMeasures(config, time.time)
        self._directory: SpoolDirectory | None = None
        self._forwarders: dict[str, TopicForwarder] = {}
        self._tasks: list[BackgroundTask] = []
        self._running_tasks = 0
        self._writer_ended = False
        self._failure: BaseException | None = None
        self._last_group: SpooledGroup | None = None
        self._changes: list[Waiter] = []

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
            **settings,
        )

    # -- life ---

    def _is_closed_by_its_owner(self) -> None:
        """Leave the report of what an open producer loses at the exit to the owner, who closes it after that."""
        for producer in (self._front, self._back):
            producer._life.is_closed_at_exit = True

    async def start(self) -> None:
        """Open the directory, and begin to forward what is in it. It waits for no broker.

        Raises:
            SpoolDirectoryError: if the directory cannot be used.
            SpoolInUseError: if another process uses it.
            ProducerStateError: if the producer was started before.
        """
        if self._directory is not None:
            raise ProducerStateError("a spooled producer is started once")
        self._directory = directory = await anyio.to_thread.run_sync(SpoolDirectory, self._directory_path)
        try:
            await self._back.start()
            self._back._life.reports.is_told = True  # what it gives up is on disk, and not lost
            self._driver = driver = self._back._life.driver
            self._writer = SpoolWriter(FileSystem(), directory.logs, self._settings, driver.call_in_loop)
            await anyio.to_thread.run_sync(self._writer.open)
            self._measures.now = driver.now
            self._measures.add_queue(self._writer, directory.path, directory.quarantine)
            self._writer.start(self._writer_has_ended)
        except BaseException:
            directory.close()
            await self._back.close(0)
            raise
        self._dead_letters = DeadLetters(directory.path, _in_thread)
        broker = LocalBroker(
            *(self._writer, driver.on_next_turn, time.monotonic, self.config.max_block, self._was_stored)
        )
        self._front._life.dial = broker.dial
        await self._front.start()
        for topic in self._writer.topics():
            self._forwarder(topic)

    async def close(self, timeout: float | None = 5.0) -> None:
        """Store what was sent, forward what is on disk, and close.

        Args:
            timeout: Seconds for forwarding; the rest stays on disk, for the next start. `None` waits until the
                queue is empty.

        Raises:
            BaseException: what ended a part of it before.
        """
        directory, self._directory = self._directory, None
        if directory is None:
            return
        try:
            await self._front.close()
            await self._drained(inf if timeout is None else self._driver.now() + timeout)
        finally:
            with self._driver.shielded():
                await self._end(directory)
        self._check_alive()

    async def _end(self, directory: SpoolDirectory) -> None:
        for task in self._tasks:
            task.cancel()
        await self._back.close(0)
        self._writer.close()
        while self._running_tasks or not self._writer_ended:
            waiter = self._driver.make_waiter()
            self._changes.append(waiter)
            await waiter.wait(inf)
        for forwarder in self._forwarders.values():
            forwarder.close()
        directory.close()

    def _is_drained(self) -> bool:
        return all(each.is_drained for each in self._forwarders.values())

    async def _drained(self, deadline: float) -> None:
        """Wait until the queue is empty, at most until the deadline."""
        while self._failure is None and not self._is_drained():
            waiter = self._driver.make_waiter()
            self._changes.append(waiter)
            if not await waiter.wait(deadline):
                return

    def _changed(self) -> None:
        """Notice that a forwarder has settled something, or that something has ended."""
        while self._changes:
            self._changes.pop().notify()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- sending ---

    async def send(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> SpooledDelivery:
        """Put one record on disk.

        A call that is cancelled, or that runs into a time-out of its caller, may have put it there.

        Args:
            topic: The topic.
            value: The value; None is a tombstone.
            key: The key, which chooses the partition.
            timestamp: Milliseconds since the epoch, or an aware datetime; now by default.
            headers: Pairs of name and value.
            timeout: Seconds for room in the buffer, instead of `max.block.ms`.

        Returns:
            The delivery by the cluster, which may be dropped.

        Raises:
            SpoolFullError: if the queue had no room in time. Nothing was stored.
            SpoolStorageError: if the disk failed; `possibly_stored` says whether the record may be in the queue.
            InvalidRecordError: as `Producer.send()`.
            MaxBlockTimeoutError: as `Producer.send()`.
            ProducerStateError: as `Producer.send()`.
        """
        self._check_alive()
        delivery = await self._front.send(
            topic, value, key, timestamp=timestamp, headers=headers, timeout=timeout
        )
        try:
            metadata = await delivery
        except DeliveryError as error:
            raise _stored_error(error) from error
        group, offset = self._last_group, metadata.offset
        if (
            group is None
            or not group.base_offset <= offset < group.end_offset
            or group.topic != metadata.topic
        ):
            group = self._last_group = self._forwarder(metadata.topic).group_at(offset)
        return SpooledDelivery(group, offset - group.base_offset)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
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
        with self._forwarder(topic).keeping_groups() as groups:
            deliveries = await self._front.send_many(
                topic, values, keys, timestamp=timestamp, headers=headers, timeout=timeout
            )
            try:
                await deliveries.wait()
            except DeliveryError as error:
                raise _stored_error(error) from error
        return SpooledDeliveries(deliveries, groups)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the queue is empty: each record has its outcome from the cluster.

        Args:
            timeout: Seconds; `None` waits for as long as it takes.

        Raises:
            FlushTimeoutError: if the queue was not empty in time. Forwarding goes on.
        """
        self._check_alive()
        deadline = inf if timeout is None else self._driver.now() + timeout
        await self._drained(deadline)
        self._check_alive()
        if not self._is_drained():
            raise FlushTimeoutError(
                f"the queue was not empty within {timeout} s; what it has is on disk, and is forwarded when the "
                "cluster takes it"
            )

    def backlog(self) -> dict[str, TopicBacklog]:
        """Return what waits in the queue, by topic. After the end it is what the next start forwards."""
        # Copied in one step: another thread may read this while a topic is added.
        return {topic: each.backlog() for topic, each in list(self._forwarders.items())}

    # -- measuring ---

    def health(self) -> SpoolHealth:
        """Return what waits in all, how fast it goes, and whether the queue takes records."""
        return self._measures.health(self.backlog(), self._failure, is_open=self._directory is not None)

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics of the producer that forwards, and of the queue: `spool-metrics`, by topic, too."""
        return self._measures.snapshot(self._back.metrics(), self.backlog(), self.health())

    def silent_brokers(self) -> list[SilentBroker]:
        """Return the brokers that stopped answering, as `Producer.silent_brokers()`."""
        return self._back.silent_brokers()

    # -- parts ---

    def _forwarder(self, topic: str) -> TopicForwarder:
        return self._forwarders.get(topic) or self._make_forwarder(topic)

    def _make_forwarder(self, topic: str) -> TopicForwarder:
        directory = self._directory
        if directory is None:
            raise ProducerClosedError("the spooled producer is closed")
        disk = FileSystem()
        reader = LogReader(
            disk,
            self._writer.directory_of(topic),
            self._writer.position(topic),
            Quarantine(disk, directory.quarantine),
        )
        forwarder = TopicForwarder(
            *(topic, self._writer, reader, self._back, directory.spool_id, self._window, self._dead_letters),
            *(_in_thread, self._changed, self._measures.topic(self._writer, topic)),
        )
        self._forwarders[topic] = forwarder
        for run in (forwarder.send_all, forwarder.settle_all):
            self._running_tasks += 1
            self._tasks.append(start_task(run, self._task_has_ended, f"aioproduce spool {topic}"))
        return forwarder

    def _window(self) -> int:
        share = self.config.buffer_memory // (1 + len(self._forwarders))
        return max(_LEAST_WINDOW, min(_MOST_WINDOW, share))

    def _was_stored(self, topic: str, base_offset: int, end_offset: int) -> None:
        self._forwarder(topic).stored(base_offset, end_offset)

    def _task_has_ended(self, error: BaseException | None) -> None:
        self._running_tasks -= 1
        self._has_ended(error)

    def _writer_has_ended(self, error: BaseException | None) -> None:
        self._writer_ended = True
        self._has_ended(error)

    def _has_ended(self, error: BaseException | None) -> None:
        if error is not None and self._failure is None and self._directory is not None:
            self._failure = error
            for forwarder in self._forwarders.values():
                forwarder.give_up(error)
        self._changed()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure


def _check(config: ProducerConfig) -> None:
    if config.acks == 0:
        raise ConfigError(
            "acks=0: a spooled producer removes from the disk what is acknowledged, and this acknowledges nothing; "
            "set acks to all",
            key="acks",
        )
    if config.transactional_id is not None:
        raise ConfigError(
            "transactional.id: a spooled producer does not take one: it sends at least once",
            key="transactional.id",
        )
    if auditor_of(config.interceptors) is not None:
        raise ConfigError(
            "interceptors: a spooled producer numbers its records itself, in the same header as an Auditor: leave "
            "the Auditor out",
            key="interceptors",
        )


def _front_config(config: ProducerConfig) -> ProducerConfig:
    """Return the settings of the producer that sends to the disk: no network, no retries that could store twice."""
    host, _, port = ADDRESS.partition(":")
    return replace(
        config,
        bootstrap_servers=((host, int(port)),),
        client_id=f"{config.client_id}-spool",
        security_protocol="PLAINTEXT",
        partitioner="uniform_sticky",
        batch_size=max(config.batch_size, _FRONT_BATCH),
        linger=0.0,
        compression_type="none",
        acks=-1,
        enable_idempotence=False,
        request_timeout=config.max_block + _MARGIN,
        delivery_timeout=config.max_block + _MARGIN,
        enable_metrics_push=False,
    )


def _back_config(config: ProducerConfig) -> ProducerConfig:
    """Return the settings of the producer that sends to the cluster: bytes as they are, for as long as it takes."""
    return replace(
        config,
        key_serializer=None,
        value_serializer=None,
        interceptors=(),
        on_delivery_error=None,
        delivery_timeout=_FOR_EVER,
        max_block=max(config.max_block, _BACK_BLOCK),
    )


def _stored_error(error: DeliveryError) -> SpoolFullError | SpoolStorageError:
    if isinstance(error, BrokerRejectedError) and error.code == POLICY_VIOLATION:
        return SpoolFullError(
            "the queue on disk is full, and no room became free in time; nothing was stored. Let the cluster take "
            "what is in it, or raise max_bytes"
        )
    return SpoolStorageError(
        f"the record could not be stored on disk: {error}", possibly_stored=error.possibly_written
    )


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)
