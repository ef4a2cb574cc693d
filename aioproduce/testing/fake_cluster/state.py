"""The shared state of a cluster's brokers: brokers, topics, leaders, producer ids.

Called by the handlers of every API and by the controls of `FakeCluster`. It is also the controller, without delay:
a stopped broker is known to be stopped, and every broker acts on every change at once (Metadata can lag:
`views`).

Invariants:
1. A partition's leader is a running broker among its replicas, or -1. Each change of leader raises the epoch.
2. Without `replication` any running replica may lead, and has everything. With it only an ISR member may, unless an
   unclean election is configured or requested (`partition` says what is lost then).
3. Everything is derived from arguments and counters: the same calls give the same ids, order and leaders.
4. `changed` is called after each change of a leader, an ISR or a log's end that happens here, always without a
   time: the change may happen outside of every fact.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from aioproduce.testing.fake_cluster.log import PartitionLog, TopicConfig
from aioproduce.testing.fake_cluster.partition import NO_LEADER, PartitionState, Replicas, ReplicationConfig
from aioproduce.testing.fake_cluster.transaction_states import TransactionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Real ones are random, so no client may depend on their form. The top half says "fake" in traces.
_TOPIC_ID_BASE: Final = 0xFA4E_0000_0000_4000_8000 << 48
_FIRST_PRODUCER_ID: Final = 1000
# Kafka's is an offset in the metadata log.
_FIRST_FEATURES_EPOCH: Final = 100


@final
@dataclass(slots=True)
class BrokerState:
    """One broker: its address, and whether it runs."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_running: bool = True


@final
@dataclass(slots=True)
class TopicState:
    """One topic."""

    name: str
    topic_id: uuid.UUID
    config: TopicConfig
    partitions: list[PartitionState] = field(default_factory=list)


@final
class ClusterState:
    """Brokers, topics and the ids that the cluster assigns.

    Args:
        brokers: All brokers, running or not.
        cluster_id: Kafka's id of the cluster.
        default_partitions: For topics that are created on demand.
        replication_factor: The maximum; never more than there are brokers.
        default_config: For topics created without a configuration.
        auto_create_topics: `auto.create.topics.enable`.
        announce_created_topics_late: Answer the request that creates a topic on demand with LEADER_NOT_AVAILABLE,
            as Kafka does; the next one finds the topic.
        replication: Simulate every replica of every topic created later; by default replicas have everything at
            once.
        transaction_version: The finalized level of `transaction.version`.
        transactions: How transaction coordinators behave.

    Attributes:
        features_epoch: Rises with each change of a feature's level.
        brokers: All brokers by id.
        topics: All topics by name, in order of creation.
        changed: Called with a partition that has changed (set by the model).
        described: Called after each change that Metadata shows (set by the model).
    """

    __slots__ = (
        "_denied_groups",
        "_denied_topics",
        "_denied_transactional_ids",
        "_next_producer_id",
        "_topic_count",
        "_topics_by_id",
        "announce_created_topics_late",
        "auto_create_topics",
        "brokers",
        "changed",
        "cluster_id",
        "default_config",
        "default_partitions",
        "described",
        "features_epoch",
        "replication",
        "replication_factor",
        "topics",
        "transaction_version",
        "transactions",
    )

    def __init__(
        self,
        brokers: Sequence[BrokerState],
        *,
        cluster_id: str = "aioproduce-fake-cluster",
        default_partitions: int = 4,
        replication_factor: int = 3,
        default_config: TopicConfig | None = None,
        auto_create_topics: bool = True,
        announce_created_topics_late: bool = False,
        replication: ReplicationConfig | None = None,
        transaction_version: int = 2,
        transactions: TransactionConfig | None = None,
    ) -> None:
        self.brokers: dict[int, BrokerState] = {broker.broker_id: broker for broker in brokers}
        self.cluster_id: str = cluster_id
        self.default_partitions: int = default_partitions
        self.replication_factor: int = replication_factor
        self.default_config: TopicConfig = default_config or TopicConfig()
        self.auto_create_topics: bool = auto_create_topics
        self.announce_created_topics_late: bool = announce_created_topics_late
        self.replication: ReplicationConfig | None = replication
        self.changed: Callable[[PartitionState], None] = lambda _: None
        self.described: Callable[[], None] = lambda: None
        self.topics: dict[str, TopicState] = {}
        self._topics_by_id: dict[uuid.UUID, TopicState] = {}
        self._topic_count = 0
        self._next_producer_id = _FIRST_PRODUCER_ID
        self._denied_topics: dict[str, bool] = {}  # whether clients may describe them
        self._denied_groups: set[str] = set()
        self._denied_transactional_ids: set[str] = set()
        self.features_epoch: int = _FIRST_FEATURES_EPOCH
        self.transaction_version: int = transaction_version
        self.transactions: TransactionConfig = transactions or TransactionConfig()

    # Brokers

    @property
    def running_brokers(self) -> list[BrokerState]:
        """The brokers that Metadata shows."""
        return [broker for broker in self.brokers.values() if broker.is_running]

    @property
    def controller_id(self) -> int:
        """The running broker with the lowest id, or -1; it is also the group coordinator."""
        return min((broker.broker_id for broker in self.running_brokers), default=-1)

    def set_running(self, broker_id: int, is_running: bool) -> None:
        """Start or stop a broker, and elect leaders for its partitions."""
        broker = self.brokers[broker_id]
        if broker.is_running == is_running:
            return
        broker.is_running = is_running
        for partition in self.partitions():
            has_left = not is_running and partition.leave_isr(broker_id)
            has_changed = self._elect(partition)
            if has_left or has_changed or broker_id in partition.replicas:
                self.changed(partition)
        self.described()

    def advertise(self, broker_id: int, host: str, port: int) -> None:
        """Change the address of a broker in Metadata."""
        broker = self.brokers[broker_id]
        broker.host, broker.port = host, port
        self.described()

    # Topics

    def topic_by_id(self, topic_id: uuid.UUID | None) -> TopicState | None:
        """Return the topic; `None` if it is unknown or deleted."""
        return None if topic_id is None else self._topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """Return the partition, or `None`."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def partitions(self) -> Iterator[PartitionState]:
        """Yield every partition of every topic."""
        for topic in self.topics.values():
            yield from topic.partitions

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: TopicConfig | None = None,
    ) -> TopicState:
        """Create a topic with leaders spread over the running brokers.

        Raises:
            ValueError: If the name is in use or not legal, or the number of partitions is below 1.
        """
        count = self.default_partitions if partitions is None else partitions
        if name in self.topics:
            raise ValueError(f"topic {name!r} already exists")
        if not is_legal_topic(name):
            raise ValueError(f"{name!r} is not a legal topic name")
        if count < 1:
            raise ValueError("a topic must have at least one partition")
        self._topic_count += 1
        topic = TopicState(
            name, uuid.UUID(int=_TOPIC_ID_BASE + self._topic_count), config or self.default_config
        )
        self.topics[name] = topic
        self._topics_by_id[topic.topic_id] = topic
        self._grow(topic, count, replication_factor or self.replication_factor)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; one of the same name that is created later has another topic id."""
        topic = self.topics.pop(name)
        del self._topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            self.changed(partition)
        self.described()

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        topic = self.topics[name]
        if total <= len(topic.partitions):
            raise ValueError(f"topic {name!r} has already {len(topic.partitions)} partitions")
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def configure_topic(self, name: str, **changes: object) -> None:
        """Change fields of the topic's `TopicConfig`; they apply at once, also to waiting producers."""
        topic = self.topics[name]
        topic.config = replace(topic.config, **changes)  # type: ignore[arg-type]  # replace() checks the names
        for partition in topic.partitions:
            partition.log.config = topic.config
            self._elect(partition)
            self.changed(partition)
        self.described()

    def deny_topic(self, name: str, is_denied: bool = True, *, may_describe: bool = False) -> None:
        """Answer TOPIC_AUTHORIZATION_FAILED for this topic, or stop doing so (False).

        Args:
            name: The topic.
            is_denied: Whether it is denied from now on.
            may_describe: Whether clients may still request its metadata: they have Describe, but neither Read nor
                Write.
        """
        if is_denied:
            self._denied_topics[name] = may_describe
        else:
            self._denied_topics.pop(name, None)

    def is_denied(self, name: str) -> bool:
        """Return whether clients may neither read nor write this topic."""
        return name in self._denied_topics

    def is_hidden(self, name: str) -> bool:
        """Return whether clients may not even request this topic's metadata."""
        return name in self._denied_topics and not self._denied_topics[name]

    # Leaders

    def move_leader(self, topic: str, partition: int, to_broker: int) -> None:
        """Make `to_broker` the leader; if it is not a replica, it becomes one, with everything.

        Raises:
            ValueError: If it is not running, or is a replica that is not in sync (see `elect_unclean`).
        """
        state = self.require_partition(topic, partition)
        self._require_running(to_broker)
        if to_broker not in state.replicas:
            state.add_replica(to_broker)
        elif to_broker not in self.isr(state):
            raise ValueError(f"broker {to_broker} is not in sync for {topic}-{partition}: {self.isr(state)}")
        state.is_leader_pinned = False
        state.lead_by(to_broker)
        self._announce(state)

    def take_leader(self, topic: str, partition: int) -> None:
        """Leave the partition without a leader until `elect_leader` or `move_leader`."""
        state = self.require_partition(topic, partition)
        state.is_leader_pinned = True
        state.lead_by(NO_LEADER)
        self._announce(state)

    def elect_leader(self, topic: str, partition: int) -> None:
        """Undo `take_leader`: the first running replica in sync becomes the leader."""
        state = self.require_partition(topic, partition)
        state.is_leader_pinned = False
        self._elect(state)
        self._announce(state)

    def elect_unclean(self, topic: str, partition: int, broker_id: int | None = None) -> int:
        """Make a running replica the leader even if it is not in sync; what it lacks is lost.

        Args:
            topic: The topic.
            partition: Its partition.
            broker_id: The new leader; by default the first running replica, in assignment order, that is not the
                leader.

        Returns:
            The new leader, which is the whole ISR until others have caught up with it.

        Raises:
            ValueError: If there is no such running replica.
        """
        state = self.require_partition(topic, partition)
        running = [replica for replica in state.replicas if self.brokers[replica].is_running]
        candidates = [
            replica
            for replica in running
            if (replica != state.leader_id if broker_id is None else replica == broker_id)
        ]
        if not candidates:
            raise ValueError(f"no replica of {topic}-{partition} can be elected: {running} are running")
        state.is_leader_pinned = False
        self._lead_unclean(state, candidates[0])
        self._announce(state)
        return candidates[0]

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Remove every batch that reaches beyond `offset` from every replica, as an unclean leader election does.

        The leader's epoch rises.
        """
        state = self.require_partition(topic, partition)
        state.truncate(offset)
        self._announce(state)

    def isr(self, partition: PartitionState) -> tuple[int, ...]:
        """Return the replicas in sync; without replication, the running ones."""
        if partition.tracked is not None:
            return partition.tracked.isr
        return tuple(replica for replica in partition.replicas if self.brokers[replica].is_running)

    def require_partition(self, topic: str, partition: int) -> PartitionState:
        """Return the partition; `KeyError` if it does not exist."""
        state = self.partition(topic, partition)
        if state is None:
            raise KeyError(f"there is no partition {topic}-{partition}")
        return state

    # Producers

    def new_producer_id(self) -> tuple[int, int]:
        """Return a new, unique (producer id, epoch)."""
        self._next_producer_id += 1
        return self._next_producer_id - 1, 0

    # Features and permissions

    def set_transaction_version(self, level: int) -> None:
        """Finalize `transaction.version` at another level, higher or lower, as `kafka-features.sh` does.

        Raises:
            ValueError: If it is not 0, 1 or 2.
        """
        if level not in (0, 1, 2):
            raise ValueError(f"transaction.version must be 0, 1 or 2, not {level}")
        if level != self.transaction_version:
            self.transaction_version = level
            self.features_epoch += 1

    def deny_group(self, group_id: str, is_denied: bool = True) -> None:
        """Answer GROUP_AUTHORIZATION_FAILED for this consumer group, or stop doing so (False)."""
        (self._denied_groups.add if is_denied else self._denied_groups.discard)(group_id)

    def is_group_denied(self, group_id: str) -> bool:
        """Return whether clients may not use this group."""
        return group_id in self._denied_groups

    def deny_transactional_id(self, transactional_id: str, is_denied: bool = True) -> None:
        """Answer TRANSACTIONAL_ID_AUTHORIZATION_FAILED for this id, or stop doing so (False)."""
        denied = self._denied_transactional_ids
        (denied.add if is_denied else denied.discard)(transactional_id)

    def is_transactional_id_denied(self, transactional_id: str) -> bool:
        """Return whether clients may not use this transactional id."""
        return transactional_id in self._denied_transactional_ids

    def _grow(self, topic: TopicState, total: int, replication_factor: int) -> None:
        broker_ids = sorted(self.brokers)
        factor = min(replication_factor, len(broker_ids))
        for index in range(len(topic.partitions), total):
            # The preferred leaders of a topic's partitions rotate over the brokers; each topic starts at another
            # broker.
            first = self._topic_count - 1 + index
            replicas = tuple(broker_ids[(first + step) % len(broker_ids)] for step in range(factor))
            partition = PartitionState(topic.name, index, replicas, PartitionLog(topic.config))
            if self.replication is not None:
                partition.tracked = Replicas(replicas)
                for replica in replicas:
                    if not self.brokers[replica].is_running:
                        partition.leave_isr(replica)
            topic.partitions.append(partition)
            self._elect(partition)
            partition.leader_epoch = 0
        self.described()

    def _elect(self, partition: PartitionState) -> bool:
        """Elect a leader if the present one may not lead. Return whether the leader changed."""
        if partition.is_leader_pinned:
            return False
        before = partition.leader_epoch
        running = [replica for replica in partition.replicas if self.brokers[replica].is_running]
        isr = self.isr(partition)
        clean = [replica for replica in running if replica in isr]
        if partition.leader_id not in clean:
            if clean:
                partition.lead_by(clean[0])
            elif running and partition.log.config.unclean_leader_election:
                self._lead_unclean(partition, running[0])
            else:
                partition.lead_by(NO_LEADER)
        return partition.leader_epoch != before

    def _lead_unclean(self, partition: PartitionState, broker_id: int) -> None:
        partition.lead_by(broker_id)
        if partition.tracked is not None:
            partition.tracked.isr = (broker_id,)

    def _require_running(self, broker_id: int) -> None:
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.is_running:
            raise ValueError(f"there is no running broker {broker_id}")

    def _announce(self, partition: PartitionState) -> None:
        self.changed(partition)
        self.described()


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka allows this topic name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")
