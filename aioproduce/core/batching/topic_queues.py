"""The queues of one topic: its partitions' batches, and the partition choice for the next record.

Called by the RecordAccumulator, which owns one `TopicQueues` per topic. The topic's `TopicAppender` keeps the
decisions, so a record that needs no decision does not run this code.

Invariants:

1. `PartitionQueue.open` and the appender agree: a batch is open in both or in neither.
2. In a queue, batches that have a sequence come first, in the order of their sequences. Without idempotence, all
   batches are in the order of their creation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce._native.collector import untrack
from aioproduce._native.key_hash import UNDECIDED, partition_of
from aioproduce.core.batching.batch_queue import BatchQueue
from aioproduce.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.core.batching.keyless_choice import KeylessChoice
    from aioproduce.core.batching.partitioning import Partitioning
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_audit import RecordAudit
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.cluster.metadata_views import TopicView

NO_LEADER: Final = -1


class PartitionQueue:
    """The batches of one partition, the oldest first.

    Attributes:
        open: The last batch, while it accepts appends.
        ready_node: The node of the ready queue that holds this partition (`NO_LEADER`: the leaderless), or `None`.
        is_muted: Whether a request of this partition is in flight and order forbids another.
        is_blocked: Whether the idempotent protocol forbids to send now; an event of that protocol ends it.
    """

    __slots__ = (
        "appender",
        "batches",
        "is_blocked",
        "is_muted",
        "leader_epoch",
        "leader_id",
        "open",
        "ready_node",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, appender: TopicAppender, leader_id: int, leader_epoch: int
    ) -> None:
        self.topic_partition: TopicPartition = topic_partition
        untrack(topic_partition)
        self.appender: TopicAppender = appender
        self.batches: BatchQueue = BatchQueue()
        self.open: ProducerBatch | None = None
        self.leader_id: int = leader_id
        self.leader_epoch: int = leader_epoch
        self.ready_node: int | None = None
        self.is_muted: bool = False
        self.is_blocked: bool = False

    def add(self, batch: ProducerBatch, is_full: bool) -> None:
        """Append a new batch; it accepts records unless it is full already."""
        self.batches.append(batch)
        if is_full:
            batch.close_for_appends()
        else:
            self.open = batch
            self.appender.open(batch.partition, batch.records, batch.result)

    def close_open(self) -> bool:
        """Close the open batch for appends; return whether there was one."""
        if self.open is None:
            return False
        self.open.close_for_appends()
        self.appender.close(self.open.partition)
        self.open = None
        return True

    def put_back(
        self, batch: ProducerBatch, is_before: Callable[[ProducerBatch, ProducerBatch], bool] | None
    ) -> None:
        """Put a batch behind those with earlier sequences, or behind older ones if there are no sequences.

        Without sequences no order is promised, but a lost connection need not reverse the order of its requests.
        """
        other = self.batches.first
        while other is not None:
            if is_before is None:
                if other.batch_id >= batch.batch_id:
                    break
            elif not other.has_sequence or not is_before(other, batch):
                break
            other = other.behind
        self.batches.insert(batch, other)

    def take(self, batch: ProducerBatch) -> None:
        """Remove a batch that is sent or has failed."""
        if self.open is batch:
            self.close_open()
        self.batches.remove(batch)


class TopicQueues:
    """One topic's queues, by partition, and the partition choice for its next records.

    Attributes:
        keyless: Partition choice for records whose key decides nothing.
        audit: The source of the record numbers; `None` if the topic's records are not numbered.
    """

    __slots__ = ("_key_rule", "_name", "appender", "audit", "keyless", "partitions")

    def __init__(self, name: str, partitioning: Partitioning, audit: RecordAudit | None = None) -> None:
        self._name = name
        self._key_rule = partitioning.key_rule
        self.appender: TopicAppender = partitioning.make_appender()
        self.audit: RecordAudit | None = audit
        if audit is not None:
            self.appender.set_numbers(audit.numbers)
        self.partitions: dict[int, PartitionQueue] = {}
        self.keyless: KeylessChoice = partitioning.make_choice(self.appender, self.partitions)

    def partition_of(self, view: TopicView, partition: int | None, key: bytes | None) -> int | None:
        """Return the partition that the caller or the key decides; `None` if neither does."""
        if partition is not None:
            return partition
        decided = partition_of(self._key_rule, key, view.partition_count)
        return None if decided == UNDECIDED else decided

    def queue(self, partition: int, metadata: ClusterMetadata) -> PartitionQueue:
        """Return the partition's queue; create it if there is none."""
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(
                TopicPartition(self._name, partition),
                self.appender,
                metadata.leader_of(self._name, partition),
                metadata.leader_epoch_of(self._name, partition),
            )
        return queue
