"""Accepted records, batched per partition, and which of them are ready to be sent.

Called by the Producer (appends) and the Sender (drain, re-enqueue, expiry). Java scans every partition at each
wake-up; here readiness is an event: whatever makes a batch sendable puts its partition into the ready queue of
its leader, and what only time makes sendable waits in a heap of deadlines.

Invariants:

1. A partition is in at most one ready queue, that of its leader; or among the leaderless; or blocked by the
   idempotent protocol; or waiting for an instant in `_deadlines`; or has nothing to send.
2. `_incomplete` holds every batch whose futures are pending, until `settled()`.
3. A batch is appended to only while it is the last of its partition's queue and no flush, drain or expiry
   closed it.
4. In a queue, batches that have a sequence come first, in the order of their sequences.
5. A batch owns one lease of the pool, given back when the batch is done, whatever path it took.
6. Only the first batch of a queue is sent, and only compressed: one that another thread still compresses holds
   up those behind it, however ready they are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, record_size_upper_bound
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.incomplete_batches import IncompleteBatches
from aioproduce.core.producer_batch import BatchState, ProducerBatch
from aioproduce.core.ready_queues import ReadyQueues
from aioproduce.core.topic_queues import NO_LEADER, PartitionQueue, TopicQueues
from aioproduce.errors import RecordTooLargeError
from aioproduce.partitioners import BuiltInPartitioner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import BatchResult, DeliveryFuture
    from aioproduce._native.record_batch import RecordBatchBuffer
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.core.batch_compression import BatchCompression
    from aioproduce.core.buffer_pool import BufferLease, BufferPool
    from aioproduce.core.cluster_metadata import ClusterMetadata, TopicView
    from aioproduce.core.retry import ExponentialBackoff
    from aioproduce.core.transaction_manager import TransactionManager
    from aioproduce.records import Header, TopicPartition

_NOW: Final = float("-inf")


@final
class RecordAccumulator:
    """Batches records and tells which batches can be sent.

    Args:
        pool: Where the memory comes from.
        metadata: Who leads which partition.
        transactions: The idempotent protocol's state, or `None` without it.
        runtime: What deliveries need of the driver.
        compression: Where and when batches are compressed, or `None`.
        batch_size: Bytes of a batch (`batch.size`), before compression.
        linger: Seconds that a batch waits for more records.
        delivery_timeout: Seconds from the opening of a batch to the failure of its futures.
        max_request_size: Bytes of one request at most, except for a single larger batch.
        backoff: The delay before a retry.
        random: `random(n)` gives an integer from 0 to n - 1.
        ignore_keys: Whether keys have no say in the choice of the partition (`partitioner.ignore.keys`).
    """

    __slots__ = (
        "_backoff",
        "_batch_size",
        "_blocked",
        "_compression",
        "_deadlines",
        "_delivery_timeout",
        "_flush_before",
        "_ignore_keys",
        "_incomplete",
        "_is_closing",
        "_linger",
        "_lingering",
        "_max_request_size",
        "_measure_each",
        "_metadata",
        "_next_batch_id",
        "_pool",
        "_random",
        "_ready",
        "_runtime",
        "_topics",
        "_transactions",
        "appenders",
        "has_new_leaderless",
        "has_news",
    )

    def __init__(
        self,
        *,
        pool: BufferPool,
        metadata: ClusterMetadata,
        transactions: TransactionManager | None,
        runtime: DeliveryRuntime,
        compression: BatchCompression | None,
        batch_size: int,
        linger: float,
        delivery_timeout: float,
        max_request_size: int,
        backoff: ExponentialBackoff,
        random: Callable[[int], int],
        ignore_keys: bool = False,
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._transactions = transactions
        self._runtime = runtime
        self._compression = compression
        self._batch_size = batch_size
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._max_request_size = max_request_size
        self._backoff = backoff
        self._random = random
        self._ignore_keys = ignore_keys
        # A batch may hold records that a request may not: only then each record must be measured.
        self._measure_each = max_request_size < batch_size
        self._topics: dict[str, TopicQueues] = {}
        self.appenders: dict[str, TopicAppender] = {}
        """By topic: the way of records that need no decision. Only topics that can be used are here."""
        self._ready = ReadyQueues()
        self._blocked: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._deadlines: Deadlines[PartitionQueue] = Deadlines()
        self._lingering: OrderedDict[PartitionQueue, None] = OrderedDict()
        self._incomplete = IncompleteBatches()
        self._next_batch_id = 0
        self._flush_before = 0
        self._is_closing = False
        self.has_news = False
        """Set when something became ready or a deadline appeared; the Sender clears it when it has looked."""
        self.has_new_leaderless = False
        """Set when a partition without a leader got something to send; cleared by the Sender likewise."""

    # -- appends ---

    def size_of(self, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> int:
        """Bytes to lease for a batch that begins with this record.

        Raises:
            RecordTooLargeError: the record exceeds `max.request.size`.
        """
        record = RECORD_BATCH_OVERHEAD + record_size_upper_bound(key, value, headers)
        if record > self._max_request_size:
            raise RecordTooLargeError(
                f"the record takes up to {record} bytes, more than max.request.size={self._max_request_size}: "
                "raise max.request.size (and the topic's max.message.bytes), or send less at once",
                size=record,
                limit=self._max_request_size,
                limited_by="max.request.size",
            )
        return max(self._batch_size, record)

    def append(
        self,
        topic: TopicView,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
    ) -> DeliveryFuture | None:
        """Append to a batch that is open already, which takes no memory.

        Args:
            topic: The topic, as metadata knows it.
            partition: The partition, or `None` for the key or the partitioner to choose.
            timestamp: Milliseconds since the epoch.
            key: The serialized key.
            value: The serialized value.
            headers: The headers.

        Returns:
            The record's future, or `None` if a new batch must be opened.
        """
        if self._measure_each:
            self.size_of(key, value, headers)
        queues = self._topics.get(topic.name)
        if queues is None:
            return None
        queues.appender.set_partition_count(topic.partition_count)
        target = queues.partition_of(topic, partition, key)
        if target is not None:
            delivery = queues.appender.append(target, timestamp, key, value, headers)
            if delivery is None:
                self._close_open_batch(queues.partitions.get(target))
            return delivery
        sticky = queues.choose(topic, can_switch=False) if queues.appender.is_share_used else queues.sticky
        while True:
            delivery = queues.appender.append(NO_PARTITION, timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            self._close_open_batch(queues.partitions.get(sticky))
            # All batches of this partition are full: the moment at which a due switch may happen (KIP-794).
            before, sticky = sticky, queues.choose(topic, can_switch=True)
            if sticky == before:
                return None

    def append_new_batch(
        self,
        lease: BufferLease,
        topic: TopicView,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        now: float,
    ) -> DeliveryFuture:
        """Append to a new batch, right after `append()` gave `None`.

        The lease passes to this method: it becomes the new batch's, or is released on an error.
        """
        try:
            queues = self._topics.get(topic.name) or self._add_topic(topic)
            target = queues.partition_of(topic, partition, key)
            is_sticky = target is None
            if target is None:
                target = queues.sticky if queues.sticky >= 0 else queues.choose(topic, can_switch=True)
            queue = queues.queue(target, self._metadata)
            batch = ProducerBatch(
                queue.topic_partition,
                lease,
                lease.buffer,
                self._runtime,
                batch_id=self._next_batch_id,
                created_at=now,
                deadline=now + self._delivery_timeout,
            )
            delivery = batch.try_append(timestamp, key, value, headers)
        except BaseException:
            if not lease.is_released:
                lease.release()
            raise
        if delivery is None:
            lease.release()
            raise RuntimeError("a record did not fit into the buffer that was sized for it")
        size = batch.records.size
        self._enqueue(batch, queue, is_full=size >= self._batch_size, now=now)
        if is_sticky:
            queues.appender.add_sticky_bytes(size)
            if queue.open is None:
                queues.choose(topic, can_switch=True)
        return delivery

    def append_with(
        self,
        lease: BufferLease,
        topic: TopicView,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        now: float,
    ) -> DeliveryFuture:
        """Append after a wait for memory: to a batch that was opened meanwhile, or else to a new one."""
        try:
            delivery = self.append(topic, partition, timestamp, key, value, headers)
        except BaseException:
            lease.release()
            raise
        if delivery is None:
            return self.append_new_batch(lease, topic, partition, timestamp, key, value, headers, now)
        lease.release()
        return delivery

    def _enqueue(self, batch: ProducerBatch, queue: PartitionQueue, *, is_full: bool, now: float) -> None:
        self._next_batch_id += 1
        self._incomplete.add(batch)
        queue.add(batch, is_full=is_full)
        self._metadata.touch(batch.topic, now)
        self._tail_changed(queue, now)

    def append_batch(
        self, lease: BufferLease, topic: TopicView, partition: int, records: RecordBatchBuffer, now: float
    ) -> BatchResult:
        """Queue a batch that was made elsewhere, behind what was appended before; nothing is added to it.

        The records are copied into the lease, which passes to this method: it becomes the batch's, or is released.
        """
        try:
            queues = self._topics.get(topic.name) or self._add_topic(topic)
            queue = queues.queue(partition, self._metadata)
            batch = ProducerBatch(
                queue.topic_partition,
                lease,
                lease.buffer,
                self._runtime,
                batch_id=self._next_batch_id,
                created_at=now,
                deadline=now + self._delivery_timeout,
            )
            batch.records = records.copy_into(lease.buffer)
        except BaseException:
            lease.release()
            raise
        self._close_open_batch(queue)
        self._enqueue(batch, queue, is_full=True, now=now)
        return batch.result

    def _add_topic(self, topic: TopicView) -> TopicQueues:
        partitioner = BuiltInPartitioner(topic.name, max(self._batch_size, 1), self._random)
        queues = TopicQueues(topic.name, partitioner, ignore_keys=self._ignore_keys)
        self._topics[topic.name] = queues
        self.topic_changed(topic.name)
        return queues

    def topic_changed(self, name: str) -> None:
        """Metadata told of this topic: how many partitions it has, or that it cannot be used at present."""
        queues = self._topics.get(name)
        if queues is None:
            return
        topic = self._metadata.topic(name)
        if topic is None:
            self.appenders.pop(name, None)
            return
        queues.appender.set_partition_count(topic.partition_count)
        if not self._measure_each:
            self.appenders[name] = queues.appender

    def _close_open_batch(self, queue: PartitionQueue | None) -> None:
        if queue is not None and queue.close_open():
            self._tail_changed(queue, _NOW)

    def _tail_changed(self, queue: PartitionQueue, now: float) -> None:
        """The last batch was added, or closed: which matters where it is the first, or is compressed ahead."""
        if len(queue.batches) == 1 or self._compression is not None:
            self.has_news = True
            self.reconsider(queue, now)

    # -- readiness ---

    def reconsider(self, queue: PartitionQueue, now: float) -> None:
        """Something about this partition changed: see whether, or when, its first batch can be sent."""
        at = self._sendable_at(queue)
        if self._compression is not None and queue.batches:
            is_ready = at is not None and (at == _NOW or at <= now)
            self._compression.look_ahead(queue, is_ready=is_ready)
            if is_ready and self._compression.awaits(queue.batches[0]):
                at = None
        if at is not None and at > now and at != _NOW:
            self._ready.remove(queue)
            self._lingering[queue] = None
            self._deadlines.reschedule(queue, at)
            self.has_news = True
            return
        self._lingering.pop(queue, None)
        self._deadlines.cancel(queue)
        if at is None:
            self._ready.remove(queue)
        else:
            self._mark_ready(queue)

    def _sendable_at(self, queue: PartitionQueue) -> float | None:
        """When the first batch can be sent: an instant, `_NOW`, or `None` if no passing of time brings it."""
        if not queue.batches or queue.is_muted or queue.is_blocked:
            return None
        head = queue.batches[0]
        if head.attempts:
            # A newer leader than the one that refused it is worth an attempt at once (KIP-951).
            return _NOW if queue.leader_epoch > head.sent_leader_epoch else head.retry_at
        if (
            not head.is_open
            or head.batch_id < self._flush_before
            or self._is_closing
            or self._pool.is_exhausted
        ):
            return _NOW
        return head.created_at + self._linger

    def _mark_ready(self, queue: PartitionQueue) -> None:
        if self._ready.add(queue):
            self.has_news = True
            if queue.ready_node == NO_LEADER:
                self.has_new_leaderless = True

    @property
    def ready_nodes(self) -> Iterable[int]:
        """The nodes that lead a partition with a batch to send."""
        return self._ready.nodes

    @property
    def has_ready(self) -> bool:
        """Whether there are any such nodes."""
        return bool(self._ready)

    @property
    def leaderless_topics(self) -> list[str]:
        """The topics that have something to send to a partition without a known leader."""
        return self._ready.leaderless_topics

    def leader_changed(self, topic_partition: TopicPartition, now: float) -> None:
        """Metadata knows another leader, or a newer epoch, of this partition."""
        queue = self._find(topic_partition)
        if queue is None:
            return
        topic, partition = topic_partition
        queue.leader_id = self._metadata.leader_of(topic, partition)
        queue.leader_epoch = self._metadata.leader_epoch_of(topic, partition)
        self.reconsider(queue, now)

    def memory_exhausted(self, now: float) -> None:
        """A `send()` began to wait for memory: no batch lingers any longer."""
        lingering, self._lingering = self._lingering, OrderedDict()
        for queue in lingering:
            self.reconsider(queue, now)

    def mute(self, topic_partition: TopicPartition) -> None:
        """Send nothing of this partition until `unmute()`: one request at a time keeps the order."""
        queue = self._find(topic_partition)
        if queue is not None:
            queue.is_muted = True
            self.reconsider(queue, _NOW)

    def unmute(self, topic_partition: TopicPartition, now: float) -> None:
        """End `mute()`."""
        queue = self._find(topic_partition)
        if queue is not None:
            queue.is_muted = False
            self.reconsider(queue, now)

    def unblock(self, topic_partition: TopicPartition, now: float) -> None:
        """The idempotent protocol's state of this partition changed."""
        queue = self._find(topic_partition)
        if queue is not None:
            self._unblock(queue, now)

    def unblock_all(self, now: float) -> None:
        """The producer id or epoch changed."""
        for queue in list(self._blocked):
            self._unblock(queue, now)

    def _unblock(self, queue: PartitionQueue, now: float) -> None:
        if queue.is_blocked:
            queue.is_blocked = False
            del self._blocked[queue]
            self.reconsider(queue, now)

    def _find(self, topic_partition: TopicPartition) -> PartitionQueue | None:
        queues = self._topics.get(topic_partition.topic)
        return None if queues is None else queues.partitions.get(topic_partition.partition)

    # -- drain ---

    def drain(self, node: int, now: float) -> list[ProducerBatch]:
        """Take what one request to a node can carry: at most one batch of a partition, the ready ones in turn.

        A partition that was served goes to the end of the line, so that none starves.
        """
        drained: list[ProducerBatch] = []
        size = 0
        for _ in range(self._ready.count(node)):
            queue = self._ready.first(node)
            if queue is None:
                break
            at = self._sendable_at(queue)
            if at is None or at > now:
                self.reconsider(queue, now)  # it was ready because someone waited for memory
                continue
            batch = queue.batches[0]
            if drained and size + batch.records.size > self._max_request_size:
                break
            self._ready.remove(queue)
            if self._transactions is not None and not self._transactions.may_send(batch):
                queue.is_blocked = True
                self._blocked[queue] = None
                continue
            if self._compression is not None and not self._compression.prepare(queue, now):
                continue
            self._begin_attempt(queue, batch)
            drained.append(batch)
            size += batch.size
            if queue.batches:
                self.reconsider(queue, now)
        return drained

    def _begin_attempt(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.take(batch)
        if self._transactions is not None:
            self._transactions.assign_sequence(batch)
        batch.sent_leader_epoch = queue.leader_epoch
        topic = self._metadata.topic(batch.topic)
        batch.topic_id = None if topic is None else topic.topic_id
        batch.begin_attempt()

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """Another thread has compressed a batch that a `Compress` effect named."""
        assert self._compression is not None
        if batch.state is BatchState.COMPRESSING:
            batch.end_compression(records, self._compression.codec.id)
        else:
            batch.release_abandoned()
        self._compression_ended(batch, now)

    def compression_failed(self, batch: ProducerBatch, now: float) -> None:
        """Another thread could not compress a batch, which was given up, and is done with it."""
        batch.release_abandoned()
        self._compression_ended(batch, now)

    def _compression_ended(self, batch: ProducerBatch, now: float) -> None:
        assert self._compression is not None
        self._compression.finished(batch)
        queue = self._find(batch.topic_partition)
        assert queue is not None
        self.reconsider(queue, now)

    def reenqueue(self, batch: ProducerBatch, now: float) -> None:
        """Queue a batch again after a retriable error, backing off."""
        batch.requeue(now + self._backoff.backoff(batch.attempts - 1))
        self.reconsider(self._put_back([batch]), now)

    def split_and_reenqueue(self, batch: ProducerBatch, now: float) -> None:
        """Queue the halves of a batch that the broker found too large, to be sent at once."""
        parts = batch.split()
        self._incomplete.replace(batch, parts)
        if self._transactions is not None:
            self._transactions.replace_by_parts(batch, parts)
        self.reconsider(self._put_back(parts), now)

    def _put_back(self, batches: Sequence[ProducerBatch]) -> PartitionQueue:
        queue = self._find(batches[0].topic_partition)
        assert queue is not None
        is_before = None if self._transactions is None else self._transactions.is_before
        for batch in reversed(batches):
            queue.put_back(batch, is_before)
        return queue

    # -- time ---

    def handle_timer(self, now: float) -> None:
        """Move what linger or back-off held up, and whose time has come, to the ready queues."""
        for queue in self._deadlines.pop_due(now):
            self.reconsider(queue, now)

    def next_timer(self) -> float | None:
        """When `handle_timer()` or `expired()` has something to do next."""
        at = self._deadlines.next_at()
        oldest = self._incomplete.oldest
        return at if oldest is None or (at is not None and at < oldest.deadline) else oldest.deadline

    def expired(self, now: float) -> list[ProducerBatch]:
        """Batches whose delivery time-out has passed, queued or in flight; the Sender fails them."""
        return self._incomplete.expired(now)

    # -- the end of a batch ---

    def remove_queued(self, batch: ProducerBatch, now: float) -> None:
        """Take a batch that failed before it could be sent (again) out of its queue."""
        queue = self._find(batch.topic_partition)
        if queue is None or not batch.is_in_queue:
            return
        queue.take(batch)
        self.reconsider(queue, now)

    def settled(self, batch: ProducerBatch) -> None:
        """The futures of this batch have their outcome."""
        self._incomplete.remove(batch)

    @property
    def incomplete(self) -> list[ProducerBatch]:
        """Every batch whose futures are pending, the oldest first."""
        return self._incomplete.all()

    @property
    def has_incomplete(self) -> bool:
        """Whether any accepted record has no outcome yet."""
        return bool(self._incomplete)

    @property
    def oldest_incomplete_id(self) -> int:
        """The id of the oldest batch with pending futures; beyond all ids when there is none."""
        oldest = self._incomplete.oldest
        return self._next_batch_id if oldest is None else oldest.batch_id

    def begin_flush(self, now: float) -> int:
        """Let every batch that exists now be sent without lingering.

        Returns:
            The id below which `oldest_incomplete_id` must not be any more for the flush to be complete.
        """
        self._flush_before = self._next_batch_id
        self.memory_exhausted(now)
        return self._flush_before

    def begin_close(self, now: float) -> None:
        """Let nothing linger any more."""
        self._is_closing = True
        self.memory_exhausted(now)
