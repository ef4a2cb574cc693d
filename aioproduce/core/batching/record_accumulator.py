"""Accepted records, batched per partition, from the append to the outcome.

Called by the Producer (appends) and the Sender (drain, re-enqueue, expiry). `readiness` decides which batches can
be sent, and when; the accumulator reports every change to it.

Invariants:

1. `_incomplete` holds every batch whose futures are pending, until `settled()`.
2. A batch accepts appends only while it is the last of its partition's queue and no flush, drain or expiry
   closed it.
3. In a queue, batches that have a sequence come first, in the order of their sequences.
4. A batch owns one lease of the pool, and releases it when the batch is done, whatever its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, record_size_upper_bound
from aioproduce._native.record_numbers import STAMP_ROOM
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.core.batching.incomplete_batches import IncompleteBatches
from aioproduce.core.batching.producer_batch import BatchState, ProducerBatch
from aioproduce.core.batching.readiness import NOW, Readiness
from aioproduce.core.batching.topic_queues import PartitionQueue, TopicQueues
from aioproduce.errors import RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce._native._delivery_runtime import DeliveryRuntime
    from aioproduce._native.delivery import BatchResult, DeliveryFuture
    from aioproduce._native.record_batch import RecordBatchBuffer
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.core.batching.batch_compression import BatchCompression
    from aioproduce.core.batching.buffer_pool import BufferLease, BufferPool, OwnMemory
    from aioproduce.core.batching.partitioning import Partitioning
    from aioproduce.core.batching.record_audit import RecordAudit
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.batching.serialized_record import SerializedRecord
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.cluster.metadata_views import TopicView
    from aioproduce.core.retry import ExponentialBackoff
    from aioproduce.records import TopicPartition


class RecordAccumulator:
    """The batches of all accepted records, by partition.

    Args:
        pool: The source of memory.
        metadata: The partitions and their leaders.
        sequences: The idempotent protocol's state, or `None` without it.
        runtime: The driver's services for deliveries.
        compression: The compression of batches, or `None`.
        batch_size: Bytes of a batch (`batch.size`), before compression.
        linger: Seconds that a batch waits for more records.
        delivery_timeout: Seconds from the opening of a batch to the failure of its futures.
        max_request_size: Bytes of one request at most, except for a single larger batch.
        backoff: The delay before a retry.
        partitioning: Partition choice for records without a partition.
        audit: The source of record numbers; `None` if records are not numbered.
        audit_topic: The topic of the audit marks, whose records are never numbered.
        is_transactional: Whether batches belong to transactions.
    """

    __slots__ = (
        "_audit_topic",
        "_backoff",
        "_batch_size",
        "_compression",
        "_delivery_timeout",
        "_incomplete",
        "_is_transactional",
        "_linger",
        "_max_request_size",
        "_measure_each",
        "_metadata",
        "_next_batch_id",
        "_overhead",
        "_partitioning",
        "_pool",
        "_runtime",
        "_sequences",
        "_topics",
        "appenders",
        "audit",
        "readiness",
    )

    def __init__(
        self,
        *,
        pool: BufferPool,
        metadata: ClusterMetadata,
        sequences: Sequences | None,
        runtime: DeliveryRuntime,
        compression: BatchCompression | None,
        batch_size: int,
        linger: float,
        delivery_timeout: float,
        max_request_size: int,
        backoff: ExponentialBackoff,
        partitioning: Partitioning,
        audit: RecordAudit | None = None,
        audit_topic: str | None = None,
        is_transactional: bool = False,
    ) -> None:
        self._is_transactional = is_transactional
        self.audit: RecordAudit | None = audit
        self._audit_topic = audit_topic
        self._overhead = RECORD_BATCH_OVERHEAD + (0 if audit is None else STAMP_ROOM)
        self._metadata = metadata
        self._sequences = sequences
        self._runtime = runtime
        self._compression = compression
        self._batch_size = batch_size
        self._delivery_timeout = delivery_timeout
        self._max_request_size = max_request_size
        self._backoff = backoff
        self._partitioning = partitioning
        # Only if a batch may be larger than a request, a record that fits a batch can be too large for a request.
        self._measure_each = max_request_size < batch_size
        self._topics: dict[str, TopicQueues] = {}
        self.appenders: dict[str, TopicAppender] = {}
        """By topic: the fast path for records that need no decision. Only usable topics are here."""
        self._linger = linger
        self._pool = pool
        self.readiness: Readiness = Readiness(pool=pool, compression=compression, linger=linger)
        """The partitions that can be sent, now or at some instant."""
        self._incomplete = IncompleteBatches()
        self._next_batch_id = 0

    # -- appends ---

    def size_of(self, record: SerializedRecord) -> int:
        """Return the bytes to lease for a batch that begins with this record.

        Raises:
            RecordTooLargeError: if the record exceeds `max.request.size`.
        """
        size = self._overhead + record_size_upper_bound(record.key, record.value, record.headers)
        if size > self._max_request_size:
            raise RecordTooLargeError(
                f"the record takes up to {size} bytes, more than max.request.size={self._max_request_size}: "
                "raise max.request.size (and the topic's max.message.bytes), or send less at once",
                size=size,
                limit=self._max_request_size,
                limited_by="max.request.size",
            )
        return max(self._batch_size, size)

    def append(self, topic: TopicView, record: SerializedRecord, now: float) -> DeliveryFuture | None:
        """Append to the open batch of the record's partition, or to a new one if there is memory for it.

        A record that fits into an open batch is accepted even if the pool is full.

        Args:
            topic: The topic, as metadata knows it.
            record: The record.
            now: The current instant: batches without room for the record count as full from now on.

        Returns:
            The record's future, or `None` if the caller must wait for memory.

        Raises:
            RecordTooLargeError: if the record exceeds `max.request.size`, and no open batch may accept it.
        """
        queues = self._queues_of(topic)
        target = queues.partition_of(topic, record.partition, record.key)
        delivery = self._append_to_open(queues, target, topic, record, now)
        if delivery is None:
            lease = self._pool.try_allocate(self.size_of(record))
            if lease is not None:
                delivery = self._append_to_new(lease, queues, target, topic, record, now)
        return delivery

    def append_to_open(self, topic: TopicView, record: SerializedRecord, now: float) -> DeliveryFuture | None:
        """Append like `append()`, but never to a new batch: some partitioners choose again before one is opened."""
        queues = self._queues_of(topic)
        target = queues.partition_of(topic, record.partition, record.key)
        return self._append_to_open(queues, target, topic, record, now)

    def append_with(
        self, lease: BufferLease, topic: TopicView, record: SerializedRecord, now: float
    ) -> DeliveryFuture:
        """Append after a wait for memory: to a batch that was opened meanwhile, or else to a new one.

        This method owns the lease: it passes the lease to the new batch, or releases it.
        """
        try:
            queues = self._queues_of(topic)
            # Computed again: the topic may have got more partitions during the wait.
            target = queues.partition_of(topic, record.partition, record.key)
            delivery = self._append_to_open(queues, target, topic, record, now)
        except BaseException:
            lease.release()
            raise
        if delivery is None:
            return self._append_to_new(lease, queues, target, topic, record, now)
        lease.release()
        return delivery

    def _append_to_open(
        self, queues: TopicQueues, target: int | None, topic: TopicView, record: SerializedRecord, now: float
    ) -> DeliveryFuture | None:
        """Append to the open batch of the partition `target`; if that is `None`, of the keyless choice."""
        if self._measure_each:
            self.size_of(record)
        appender = queues.appender
        appender.set_partition_count(topic.partition_count)
        key, value, headers, timestamp = record.key, record.value, record.headers, record.timestamp
        if target is not None:
            queue = queues.partitions.get(target)
            if queue is None or queue.open is None:
                return None
            delivery = appender.append(target, timestamp, key, value, headers)
            if delivery is None:
                self._close_open_batch(queue, now)
            return delivery
        keyless = queues.keyless
        if appender.next_keyless() == NO_PARTITION:
            keyless.choose(topic, can_switch=False)
        while True:
            delivery = appender.append(NO_PARTITION, timestamp, key, value, headers)
            if delivery is not None:
                return delivery
            chosen = keyless.partition
            self._close_open_batch(queues.partitions.get(chosen), now)
            # All batches of this partition are full: a due switch may happen now (KIP-794).
            if keyless.choose(topic, can_switch=True) == chosen:
                return None

    def _append_to_new(
        self,
        lease: BufferLease,
        queues: TopicQueues,
        target: int | None,
        topic: TopicView,
        record: SerializedRecord,
        now: float,
    ) -> DeliveryFuture:
        """Append to a new batch, right after `_append_to_open()` returned `None`. This method owns the lease."""
        try:
            queue = queues.queue(queues.keyless.partition if target is None else target, self._metadata)
            batch = self._new_batch(queue, lease, now)
            batch.audit = queues.audit
            delivery = batch.try_append(record.timestamp, record.key, record.value, record.headers)
            if delivery is None:
                raise RuntimeError("a record did not fit into the buffer that was sized for it")
        except BaseException:
            lease.release()
            raise
        size = batch.records.size
        self._enqueue(batch, queue, size >= self._batch_size, now)
        if target is None:
            queues.appender.count_keyless(size)
            if queue.open is None:
                queues.keyless.choose(topic, can_switch=True)
        return delivery

    def _queues_of(self, topic: TopicView) -> TopicQueues:
        return self._topics.get(topic.name) or self._add_topic(topic)

    def _new_batch(self, queue: PartitionQueue, lease: BufferLease | OwnMemory, now: float) -> ProducerBatch:
        return ProducerBatch(
            queue.topic_partition,
            lease,
            lease.buffer,
            self._runtime,
            batch_id=self._next_batch_id,
            created_at=now,
            deadline=now + self._delivery_timeout,
        )

    def _enqueue(self, batch: ProducerBatch, queue: PartitionQueue, is_full: bool, now: float) -> None:
        self._next_batch_id += 1
        batch.closed_at = now if is_full else now + self._linger
        last = queue.batches.last
        if last is not None and last.closed_at > now:
            last.closed_at = now  # full, or this one would not have been opened
        self._incomplete.add(batch)
        queue.add(batch, is_full)
        self.readiness.tail_changed(queue, now)

    def append_batch(
        self,
        lease: BufferLease | OwnMemory,
        topic: TopicView,
        partition: int,
        records: RecordBatchBuffer,
        now: float,
    ) -> BatchResult:
        """Queue a batch that was made elsewhere, behind all earlier appends; it accepts no more records.

        The records are copied into the lease. This method owns the lease: the batch gets it, or it is released.
        """
        try:
            queue = self._queues_of(topic).queue(partition, self._metadata)
            batch = self._new_batch(queue, lease, now)
            batch.records = records.copy_into(lease.buffer)
        except BaseException:
            lease.release()
            raise
        self._close_open_batch(queue, now)
        self._enqueue(batch, queue, True, now)
        return batch.result

    def _add_topic(self, topic: TopicView) -> TopicQueues:
        audit = None if topic.name == self._audit_topic else self.audit
        queues = self._topics[topic.name] = TopicQueues(topic.name, self._partitioning, audit)
        self.topic_changed(topic.name)
        return queues

    def topic_changed(self, name: str) -> None:
        """Handle news of a topic from metadata: its partitions, or that it cannot be used at present."""
        queues = self._topics.get(name)
        if queues is None:
            return
        topic = self._metadata.topic(name)
        if topic is None:
            self.appenders.pop(name, None)
            return
        queues.appender.set_partition_count(topic.partition_count)
        queues.keyless.partitions_changed()
        if not self._measure_each:
            self.appenders[name] = queues.appender

    def _close_open_batch(self, queue: PartitionQueue | None, now: float) -> None:
        if queue is not None and queue.open is not None:
            queue.open.closed_at = min(queue.open.closed_at, now)
            queue.close_open()
            self.readiness.tail_changed(queue, NOW)

    # -- events of a partition ---

    def leader_changed(self, topic_partition: TopicPartition, now: float) -> None:
        """Handle a new leader, or a newer leader epoch, of a partition."""
        topic, partition = topic_partition
        if topic in self._topics:
            self._topics[topic].keyless.partitions_changed()
        queue = self._find(topic_partition)
        if queue is None:
            return
        queue.leader_id = self._metadata.leader_of(topic, partition)
        queue.leader_epoch = self._metadata.leader_epoch_of(topic, partition)
        self.readiness.reconsider(queue, now)

    def mute(self, topic_partition: TopicPartition) -> None:
        """Send nothing to this partition until `unmute()`: one request at a time keeps the order."""
        queue = self._find(topic_partition)
        if queue is not None:
            queue.is_muted = True
            self.readiness.reconsider(queue, NOW)

    def unmute(self, topic_partition: TopicPartition, now: float) -> None:
        """End `mute()`."""
        queue = self._find(topic_partition)
        if queue is not None:
            queue.is_muted = False
            self.readiness.reconsider(queue, now)

    def unblock(self, topic_partition: TopicPartition, now: float) -> None:
        """Handle a change of this partition's state in the idempotent protocol."""
        if self.readiness.has_blocked:
            queue = self._find(topic_partition)
            if queue is not None:
                self.readiness.unblock(queue, now)

    def _find(self, topic_partition: TopicPartition) -> PartitionQueue | None:
        queues = self._topics.get(topic_partition.topic)
        return None if queues is None else queues.partitions.get(topic_partition.partition)

    # -- drain ---

    def drain(self, node: int, now: float) -> list[ProducerBatch]:
        """Remove and return the batches for one request to a node: at most one of a partition, in turn.

        A served partition goes to the end of the line, so that none starves. When its turn comes again, every
        other partition was served: Kafka reads one batch of a partition from a request, and ignores the others.
        """
        drained: list[ProducerBatch] = []
        served: set[PartitionQueue] = set()
        size = 0
        for _ in range(self.readiness.ready.count(node)):
            queue = self.readiness.first(node, now)
            if queue is None or queue in served:
                break
            batch = queue.batches.first
            assert batch is not None, "a ready partition has a batch"
            if drained and size + batch.records.size > self._max_request_size:
                break
            served.add(queue)
            self.readiness.ready.remove(queue)
            topic = self._metadata.topic(batch.topic)
            batch.topic_id = None if topic is None else topic.topic_id
            if self._sequences is not None and not self._sequences.may_send(batch):
                self.readiness.block(queue)
                continue
            if self._compression is not None and not self._compression.prepare(queue, now):
                continue
            self._begin_attempt(queue, batch, now)
            drained.append(batch)
            size += batch.size
            if queue.batches.first is not None:
                self.readiness.reconsider(queue, now)
        return drained

    def _begin_attempt(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
        queue.take(batch)
        # Not when the batch is opened: the records appended since then use the topic, too.
        self._metadata.touch(batch.topic, now)
        # Not by `attempts`: a part of a split batch may begin with 0, but was sent within the original.
        batch.first_sent_at = min(batch.first_sent_at, now)
        if self._sequences is not None:
            self._sequences.assign_sequence(batch)
        batch.sent_leader_epoch = queue.leader_epoch
        batch.begin_attempt(self._is_transactional)

    def compressed(self, batch: ProducerBatch, records: bytes, now: float) -> None:
        """Accept the compressed records of a batch from another thread."""
        assert self._compression is not None
        if batch.state is BatchState.COMPRESSING:
            batch.end_compression(records, self._compression.codec.id)
        else:
            batch.release_abandoned()
        self._compression_ended(batch, now)

    def compression_failed(self, batch: ProducerBatch, now: float) -> None:
        """Free a failed batch whose compression in another thread has failed."""
        batch.release_abandoned()
        self._compression_ended(batch, now)

    def _compression_ended(self, batch: ProducerBatch, now: float) -> None:
        assert self._compression is not None
        self._compression.finished(batch)
        queue = self._find(batch.topic_partition)
        assert queue is not None
        self.readiness.reconsider(queue, now)

    def reenqueue(self, batch: ProducerBatch, now: float) -> None:
        """Queue a batch again after a retriable error, with a back-off."""
        batch.requeue(now + self._backoff.backoff(batch.attempts - 1))
        self.readiness.reconsider(self._put_back([batch]), now)

    def split_and_reenqueue(self, batch: ProducerBatch, now: float) -> None:
        """Split a batch that the broker found too large; its halves can be sent at once."""
        parts = batch.split()
        self._incomplete.replace(batch, parts)
        if self._sequences is not None:
            self._sequences.replace_by_parts(batch, parts)
        self.readiness.reconsider(self._put_back(parts), now)

    def _put_back(self, batches: Sequence[ProducerBatch]) -> PartitionQueue:
        queue = self._find(batches[0].topic_partition)
        assert queue is not None
        is_before = None if self._sequences is None else self._sequences.is_before
        for batch in reversed(batches):
            queue.put_back(batch, is_before)
        return queue

    # -- time ---

    def next_timer(self) -> float | None:
        """Return when `readiness.handle_timer()` or `expired()` has work next."""
        at = self.readiness.next_timer()
        oldest = self._incomplete.oldest
        return at if oldest is None or (at is not None and at < oldest.deadline) else oldest.deadline

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches whose delivery time-out has passed, queued or in flight; the Sender fails them."""
        return self._incomplete.expired(now)

    # -- the end of a batch ---

    def remove_queued(self, batch: ProducerBatch, now: float) -> None:
        """Remove a batch that failed before it could be sent (again) from its queue."""
        queue = self._find(batch.topic_partition)
        if queue is None or not batch.is_in_queue:
            return
        queue.take(batch)
        self._metadata.touch(batch.topic, now)
        self.readiness.reconsider(queue, now)

    def settled(self, batch: ProducerBatch) -> None:
        """Forget a batch whose futures have their outcome."""
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
    def oldest_incomplete(self) -> ProducerBatch | None:
        """The oldest batch with pending futures; its first record is the oldest of all."""
        return self._incomplete.oldest

    @property
    def oldest_incomplete_id(self) -> int:
        """The id of the oldest batch with pending futures; above all ids if there is none."""
        oldest = self._incomplete.oldest
        return self._next_batch_id if oldest is None else oldest.batch_id

    def begin_close(self, now: float) -> None:
        """Accept no more records, and let no batch linger."""
        self._pool.close()
        self.readiness.begin_close(now)

    def begin_flush(self, now: float) -> int:
        """Let every batch that exists now be sent without lingering.

        Returns:
            The flush is complete when `oldest_incomplete_id` has reached this id.
        """
        self.readiness.flush_before(self._next_batch_id, now)
        return self._next_batch_id
