"""A RecordAccumulator on a virtual clock, with real metadata, pool and back-off, and the test as its Sender.

Used by the accumulator's unit tests and by its state machine. Time is `now`, in seconds; nothing sleeps. Batches
are read back by aiokafka's decoder, never by the code that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from aiokafka.record.default_records import DefaultRecordBatch

from aioproduce._native.key_hash import MURMUR2, NO_HASH
from aioproduce.core.batching.batch_compression import BatchCompression
from aioproduce.core.batching.buffer_pool import BufferPool
from aioproduce.core.batching.partitioning import Partitioning
from aioproduce.core.batching.producer_batch import BatchState, ProducerBatch
from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import DeliveryError
from aioproduce.partitioners import Keyless
from aioproduce.records import TopicPartition
from aioproduce.wire.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.compression import Codec
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.cluster.cluster_metadata import TopicView
    from aioproduce.records import Header

TOPIC = "test"
KEY = b"key"
VALUE = b"value"
OVERHEAD = 61
"""Bytes of a record batch v2 before its records."""


class NoLoopRuntime:
    """What deliveries need, where nobody awaits them."""

    def __init__(self) -> None:
        self.unobserved = 0

    def get_loop(self) -> NoReturn:
        raise NotImplementedError

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Any) -> None:
        callback(argument)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> NoReturn:
        raise error

    def cancelled_error(self, message: object) -> BaseException:
        return KeyboardInterrupt(message)

    def invalid_state_error(self, message: str) -> BaseException:
        return LookupError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        self.unobserved += count


def in_turn() -> Callable[[int], int]:
    """0, 1, 2, ... in place of chance, as the Java tests' SequentialPartitioner."""
    numbers = count()
    return lambda n: next(numbers) % n


def delivery_error(text: str = "failed") -> DeliveryError:
    """Any reason for a batch to fail."""
    return DeliveryError(
        text, topic_partition=TopicPartition(TOPIC, 0), possibly_written=False, attempts=1, retriable=False
    )


class AccumulatorHarness:
    """One accumulator for `TOPIC`.

    Args:
        leaders: The leader's node id of each partition of `TOPIC`; -1 for none.
        batch_size: Bytes of a batch.
        memory: Bytes of the pool.
        linger: Seconds.
        delivery_timeout: Seconds.
        max_request_size: Bytes.
        retry_backoff: Seconds, initial and maximum.
        jitter: What stands in for chance in back-off, from 0 to 1; 0.5 is none.
        choices: What stands in for chance in the partitioner.
        ignore_keys: Whether keys have no say.
        keyless: The rule for records without a key.
        is_adaptive: Whether partitions with more to send get less.
        availability_timeout: Seconds after which a broker that keeps batches waiting is left out.
        rack: Where keyless records shall stay.
        racks: The rack of each broker.
    """

    def __init__(
        self,
        leaders: Sequence[int] = (0, 0, 1),
        *,
        batch_size: int = 1024,
        memory: int = 64 * 1024,
        linger: float = 0.01,
        delivery_timeout: float = 3.2,
        max_request_size: int = 2**20,
        retry_backoff: tuple[float, float] = (0.1, 1.0),
        jitter: float = 0.5,
        codec: Codec | None = None,
        sequences: Sequences | None = None,
        choices: Callable[[int], int] | None = None,
        ignore_keys: bool = False,
        keyless: Keyless = Keyless.UNIFORM_STICKY,
        is_adaptive: bool = False,
        availability_timeout: float = 0.0,
        rack: str | None = None,
        racks: Sequence[str | None] = (None,) * 4,
    ) -> None:
        self.now = 1000.0
        self.jitter = jitter
        backoff = ExponentialBackoff(*retry_backoff, random=lambda: self.jitter)
        self.pool = BufferPool(memory, batch_size)
        self.metadata = ClusterMetadata(
            bootstrap=[("b", 9092)],
            max_age=1e9,
            max_idle=1e9,
            backoff=backoff,
            recovery_strategy="none",
            rebootstrap_trigger=1e9,
            now=self.now,
        )
        self.runtime = NoLoopRuntime()
        self.compression = None if codec is None else BatchCompression(codec)
        self.partitioning = Partitioning(
            NO_HASH if ignore_keys else MURMUR2,
            keyless,
            self.metadata,
            batch_size=batch_size,
            random=choices or in_turn(),
            is_adaptive=is_adaptive,
            availability_timeout=availability_timeout,
            rack=rack,
        )
        self.racks = list(racks)
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            metadata=self.metadata,
            sequences=sequences,
            runtime=self.runtime,
            compression=self.compression,
            batch_size=batch_size,
            linger=linger,
            delivery_timeout=delivery_timeout,
            max_request_size=max_request_size,
            backoff=backoff,
            partitioning=self.partitioning,
        )
        self.leaders = {TOPIC: [(leader, 1) for leader in leaders]}
        self.refresh()

    # -- metadata ---

    def refresh(self) -> None:
        """The cluster tells what is in `leaders`: per topic and partition a node id and an epoch."""
        for topic in self.leaders:
            self.metadata.want_topic(topic, self.now)
        self.metadata.request_update(self.now)
        self.metadata.begin_update(self.now)
        topics = [
            TopicMetadata(
                topic,
                None,
                0 if partitions else 3,
                False,
                tuple(
                    PartitionMetadata(number, 0 if node >= 0 else 5, node, epoch, (), ())
                    for number, (node, epoch) in enumerate(partitions)
                ),
            )
            for topic, partitions in self.leaders.items()
        ]
        brokers = tuple(BrokerAddress(node, f"b{node}", 9092, rack) for node, rack in enumerate(self.racks))
        change = self.metadata.update(MetadataResponse(0.0, 0, brokers, None, 0, tuple(topics)), self.now)
        for topic in change.topics:
            self.accumulator.topic_changed(topic)
        for topic_partition in change.leaders:
            self.accumulator.leader_changed(topic_partition, self.now)

    def move(self, partition: int, node: int, epoch: int | None = None, topic: str = TOPIC) -> None:
        """Another leader, of the next epoch unless told."""
        old = self.leaders[topic][partition][1]
        self.leaders[topic][partition] = (node, old + 1 if epoch is None else epoch)
        self.refresh()

    @property
    def view(self) -> TopicView:
        found = self.metadata.topic(TOPIC)
        assert found is not None
        return found

    # -- what send() does ---

    def try_append(
        self,
        partition: int | None = None,
        *,
        key: bytes | None = KEY,
        value: bytes | None = VALUE,
        headers: Sequence[Header] | None = None,
        timestamp: int = 0,
        topic: str = TOPIC,
    ) -> DeliveryFuture | None:
        """Append if there is an open batch or memory."""
        view = self.metadata.topic(topic)
        assert view is not None
        appender = self.accumulator.appenders.get(topic)
        if appender is not None:
            delivery = appender.append(-1 if partition is None else partition, timestamp, key, value, headers)
            if delivery is not None:
                return delivery
        record = SerializedRecord(topic, key, value, headers, partition, timestamp)
        return self.accumulator.append(view, record, self.now)

    def append(self, partition: int | None = None, **record: Any) -> DeliveryFuture:
        """Append; the test knows that there is room."""
        delivery = self.try_append(partition, **record)
        assert delivery is not None
        return delivery

    # -- what the Sender does ---

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.accumulator.readiness.handle_timer(self.now)

    def ready(self) -> set[int]:
        """The nodes with something to send, now."""
        self.accumulator.readiness.handle_timer(self.now)
        return set(self.accumulator.readiness.ready.nodes)

    def drain(self, node: int = 0) -> list[ProducerBatch]:
        """One request's worth for a node; other threads, if there is anything for them, are quick."""
        drained = self.accumulator.drain(node, self.now)
        if self._finish_compression() and not drained:
            return self.accumulator.drain(node, self.now)
        return drained

    def _finish_compression(self) -> bool:
        if self.compression is None or not self.compression.effects:
            return False
        while self.compression.effects:
            job = self.compression.effects.popleft()
            self.accumulator.compressed(job.batch, job.codec.compress(job.records), self.now)
        return True

    def succeed(self, batch: ProducerBatch, offset: int = 0, log_append_time: int = -1) -> None:
        """The broker acknowledges."""
        batch.succeed(offset, log_append_time)
        self.accumulator.settled(batch)

    def fail(self, batch: ProducerBatch, error: DeliveryError | None = None) -> None:
        """Give up a batch, wherever it is, as the Sender does; in flight it is left to be answered."""
        if batch.state is BatchState.QUEUED:
            self.accumulator.remove_queued(batch, self.now)
        batch.fail(error or delivery_error())
        self.accumulator.settled(batch)

    def expire(self) -> list[ProducerBatch]:
        """Fail what is due."""
        expired = self.accumulator.expired(self.now)
        for batch in expired:
            self.fail(batch)
        return expired

    def next_timer_in(self) -> float | None:
        """Seconds until the accumulator wants to be called."""
        at = self.accumulator.next_timer()
        return None if at is None else at - self.now


def partitions(batches: Sequence[ProducerBatch]) -> list[int]:
    """Where the batches go."""
    return [batch.partition for batch in batches]


def wire_bytes(batch: ProducerBatch) -> bytes:
    """What goes out for a sealed batch."""
    return b"".join(batch.buffers)


def records(batch: ProducerBatch) -> list[tuple[Any, ...]]:
    """The sealed batch as aiokafka reads it: offset, timestamp, key, value, headers."""
    decoded = DefaultRecordBatch(wire_bytes(batch))
    assert decoded.validate_crc()
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in decoded]
