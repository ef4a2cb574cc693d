"""What the brokers of a cluster share: brokers, topics, leaders, producer ids.

Called by the handlers of every API and by `FakeCluster`'s controls. It plays the controller too, in no time at
all: every change is known to every broker at once.

Invariants:
1. A partition's leader is a running broker among its replicas, or -1. Each change of leader raises the epoch.
2. Replicas hold the same log at every moment (there is one): no replication lag, and the ISR is every replica
   that runs.
3. Everything is derived from arguments and counters: the same calls give the same ids, order and leaders.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from aioproduce.testing.fake_cluster.log import PartitionLog, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NO_LEADER: Final = -1
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Real ones are random, so nobody may rely on their look. The top half says "fake" to whoever reads a trace.
_TOPIC_ID_BASE: Final = 0xFA4E_0000_0000_4000_8000 << 48
_FIRST_PRODUCER_ID: Final = 1000


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
class PartitionState:
    """One partition: its log, replicas and leader."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log: PartitionLog
    leader_id: int = NO_LEADER
    leader_epoch: int = 0
    is_leader_pinned: bool = False
    """A test took the leader away or chose it: no election until it says so."""

    def lead_by(self, broker_id: int) -> None:
        """Change the leader, or take it away with -1."""
        if broker_id != self.leader_id:
            self.leader_id = broker_id
            self.leader_epoch += 1


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
    """Brokers, topics and the ids that the cluster gives out.

    Args:
        brokers: All brokers, running or not.
        cluster_id: Kafka's id of the cluster.
        default_partitions: For topics that are created on demand.
        replication_factor: At most; never more than there are brokers.
        default_config: For topics made without one.
        auto_create_topics: `auto.create.topics.enable`.
        announce_created_topics_late: A topic that was just created on demand answers LEADER_NOT_AVAILABLE to
            the request that created it, as Kafka does; the next one finds it.
    """

    __slots__ = (
        "_brokers",
        "_denied_topics",
        "_epochs",
        "_next_producer_id",
        "_topic_count",
        "_topics",
        "_topics_by_id",
        "announce_created_topics_late",
        "auto_create_topics",
        "cluster_id",
        "default_config",
        "default_partitions",
        "replication_factor",
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
    ) -> None:
        self._brokers = {broker.broker_id: broker for broker in brokers}
        self.cluster_id = cluster_id
        self.default_partitions = default_partitions
        self.replication_factor = replication_factor
        self.default_config = default_config or TopicConfig()
        self.auto_create_topics = auto_create_topics
        self.announce_created_topics_late = announce_created_topics_late
        self._topics: dict[str, TopicState] = {}
        self._topics_by_id: dict[uuid.UUID, TopicState] = {}
        self._topic_count = 0
        self._next_producer_id = _FIRST_PRODUCER_ID
        self._epochs: dict[str, tuple[int, int]] = {}
        self._denied_topics: dict[str, None] = {}

    # Brokers

    @property
    def brokers(self) -> Mapping[int, BrokerState]:
        """All brokers by id."""
        return self._brokers

    @property
    def running_brokers(self) -> list[BrokerState]:
        """Those that metadata shows."""
        return [broker for broker in self._brokers.values() if broker.is_running]

    @property
    def controller_id(self) -> int:
        """The running broker with the lowest id, or -1; it is the group coordinator as well."""
        return min((broker.broker_id for broker in self.running_brokers), default=-1)

    def set_running(self, broker_id: int, is_running: bool) -> None:
        """Start or stop a broker, and elect leaders for what it led or can lead."""
        self._brokers[broker_id].is_running = is_running
        for partition in self.partitions():
            self._elect(partition)

    # Topics

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """All topics by name, in order of creation."""
        return self._topics

    def topic_by_id(self, topic_id: uuid.UUID | None) -> TopicState | None:
        """The topic, unless it is unknown or was deleted."""
        return None if topic_id is None else self._topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The partition, if there is one."""
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def partitions(self) -> Iterator[PartitionState]:
        """Every partition of every topic."""
        for topic in self._topics.values():
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
            ValueError: The name is taken or not legal, or the number of partitions is below 1.
        """
        count = self.default_partitions if partitions is None else partitions
        if name in self._topics:
            raise ValueError(f"topic {name!r} exists")
        if not is_legal_topic(name):
            raise ValueError(f"{name!r} is no legal topic name")
        if count < 1:
            raise ValueError("a topic has at least one partition")
        self._topic_count += 1
        topic = TopicState(
            name, uuid.UUID(int=_TOPIC_ID_BASE + self._topic_count), config or self.default_config
        )
        self._topics[name] = topic
        self._topics_by_id[topic.topic_id] = topic
        self._grow(topic, count, replication_factor or self.replication_factor)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic; one of the same name that is created later has another id and empty logs."""
        topic = self._topics.pop(name)
        del self._topics_by_id[topic.topic_id]

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        topic = self._topics[name]
        if total <= len(topic.partitions):
            raise ValueError(f"topic {name!r} has {len(topic.partitions)} partitions already")
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def configure_topic(self, name: str, **changes: object) -> None:
        """Change fields of the topic's `TopicConfig`."""
        topic = self._topics[name]
        topic.config = replace(topic.config, **changes)  # type: ignore[arg-type]
        for partition in topic.partitions:
            partition.log.config = topic.config

    def deny_topic(self, name: str, is_denied: bool) -> None:
        """Answer TOPIC_AUTHORIZATION_FAILED for this topic, or no longer."""
        if is_denied:
            self._denied_topics[name] = None
        else:
            self._denied_topics.pop(name, None)

    def is_denied(self, name: str) -> bool:
        """Whether clients may not use this topic."""
        return name in self._denied_topics

    # Leaders

    def move_leader(self, topic: str, partition: int, to_broker: int) -> None:
        """Make `to_broker` the leader; it becomes a replica if it was none."""
        state = self.require_partition(topic, partition)
        broker = self._brokers.get(to_broker)
        if broker is None or not broker.is_running:
            raise ValueError(f"there is no running broker {to_broker}")
        if to_broker not in state.replicas:
            state.replicas = (*state.replicas, to_broker)
        state.is_leader_pinned = False
        state.lead_by(to_broker)

    def take_leader(self, topic: str, partition: int) -> None:
        """Leave the partition without a leader until `elect_leader` or `move_leader`."""
        state = self.require_partition(topic, partition)
        state.is_leader_pinned = True
        state.lead_by(NO_LEADER)

    def elect_leader(self, topic: str, partition: int) -> None:
        """Undo `take_leader`: the first running replica leads."""
        state = self.require_partition(topic, partition)
        state.is_leader_pinned = False
        self._elect(state)

    def isr(self, partition: PartitionState) -> tuple[int, ...]:
        """The replicas that run."""
        return tuple(replica for replica in partition.replicas if self._brokers[replica].is_running)

    def require_partition(self, topic: str, partition: int) -> PartitionState:
        """The partition; `KeyError` where there is none."""
        state = self.partition(topic, partition)
        if state is None:
            raise KeyError(f"there is no partition {topic}-{partition}")
        return state

    # Producers

    def new_producer_id(self) -> tuple[int, int]:
        """A (producer id, epoch) that nobody has."""
        self._next_producer_id += 1
        return self._next_producer_id - 1, 0

    def transactional_producer(self, transactional_id: str) -> tuple[int, int] | None:
        """The current (producer id, epoch) of a transactional id."""
        return self._epochs.get(transactional_id)

    def set_transactional_producer(self, transactional_id: str, producer: tuple[int, int]) -> None:
        """Remember it: older epochs are fenced."""
        self._epochs[transactional_id] = producer

    def _grow(self, topic: TopicState, total: int, replication_factor: int) -> None:
        broker_ids = sorted(self._brokers)
        factor = min(replication_factor, len(broker_ids))
        for index in range(len(topic.partitions), total):
            # The preferred leaders of a topic's partitions go round the brokers, from another one per topic.
            first = self._topic_count - 1 + index
            replicas = tuple(broker_ids[(first + step) % len(broker_ids)] for step in range(factor))
            partition = PartitionState(topic.name, index, replicas, PartitionLog(topic.config))
            topic.partitions.append(partition)
            self._elect(partition)
            partition.leader_epoch = 0

    def _elect(self, partition: PartitionState) -> None:
        if partition.is_leader_pinned:
            return
        isr = self.isr(partition)
        if partition.leader_id not in isr:
            partition.lead_by(isr[0] if isr else NO_LEADER)


def is_legal_topic(name: str) -> bool:
    """Kafka's rule for topic names."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")
