"""Each broker's outdated view of the cluster.

Called by `model` (changes), `cluster_apis` (Metadata) and `produce` (hints of KIP-951). A broker learns of a change
after `delay`, or not at all while its metadata is frozen. Only the brokers' answers are late: they accept and
refuse by the real state.

Invariants:
1. Without a delay and without a frozen broker nothing is copied: answers are made from the state itself.
2. An unfrozen broker knows at once what the others know; its answers never go back to an older state, unless the
   delay is increased.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.partition import NO_LEADER

if TYPE_CHECKING:
    from uuid import UUID

    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.state import ClusterState, TopicState


@final
@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment, as in Metadata."""

    brokers: list[dict[str, Any]]
    controller_id: int
    topics: dict[str, dict[str, Any]]
    names: dict[UUID, str]


@final
@dataclass(slots=True, eq=False, repr=False)
class MetadataViews:
    """The views of the brokers.

    Args:
        state: The real state.
        faults: Whose metadata is frozen.

    Attributes:
        delay: Seconds until brokers learn of a change; `set_delay` changes it.
    """

    _state: ClusterState
    _faults: Faults
    delay: float = 0.0
    # (time of the change, view), oldest first; the last one is the real state. Empty without a delay.
    _history: deque[tuple[float, View]] = field(default_factory=deque)
    _frozen: dict[int, View] = field(default_factory=dict)

    def set_delay(self, seconds: float, now: float) -> None:
        """Change the delay; all brokers learn the present state."""
        self.delay = seconds
        self._history.clear()
        if seconds > 0:
            self._history.append((now - seconds, describe(self._state)))

    def changed(self, now: float) -> None:
        """Handle a change of the real state."""
        if self.delay <= 0:
            return
        self._history.append((now, describe(self._state)))
        while len(self._history) > 1 and self._history[1][0] + self.delay <= now:
            self._history.popleft()

    def faults_changed(self, now: float) -> None:
        """Handle metadata that was frozen or unfrozen."""
        for broker_id in self._state.brokers:
            if not self._faults.has_frozen_metadata(broker_id):
                self._frozen.pop(broker_id, None)
            elif broker_id not in self._frozen:
                self._frozen[broker_id] = self.of(broker_id, now) or describe(self._state)

    def of(self, broker_id: int, now: float) -> View | None:
        """Return a broker's view; `None` if it is the real state."""
        frozen = self._frozen.get(broker_id)
        if frozen is not None or not self._history:
            return frozen
        while len(self._history) > 1 and self._history[1][0] + self.delay <= now:
            self._history.popleft()
        return self._history[0][1]

    def leader(self, broker_id: int, partition: PartitionState, now: float) -> dict[str, Any]:
        """Return leader and epoch of a partition, in a broker's view."""
        view = self.of(broker_id, now)
        known: dict[str, Any] = {} if view is None else view.topics.get(partition.topic, {})
        partitions = known.get("partitions", ())
        if partition.partition < len(partitions):
            described = partitions[partition.partition]
            return {"leader_id": described["leader_id"], "leader_epoch": described["leader_epoch"]}
        return {"leader_id": partition.leader_id, "leader_epoch": partition.leader_epoch}


def describe(state: ClusterState) -> View:
    """Return a copy of the real state."""
    return View(
        describe_brokers(state),
        state.controller_id,
        {name: describe_topic(state, topic) for name, topic in state.topics.items()},
        {topic.topic_id: name for name, topic in state.topics.items()},
    )


def describe_brokers(state: ClusterState) -> list[dict[str, Any]]:
    """Return the running brokers, for Metadata."""
    return [
        {"node_id": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
        for broker in state.running_brokers
    ]


def describe_topic(state: ClusterState, topic: TopicState) -> dict[str, Any]:
    """Return one topic, for Metadata."""
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "partitions": [_describe_partition(state, partition) for partition in topic.partitions],
    }


def _describe_partition(state: ClusterState, partition: PartitionState) -> dict[str, Any]:
    brokers = state.brokers
    has_leader = partition.leader_id != NO_LEADER
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": partition.partition,
        "leader_id": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": state.isr(partition),
        "offline_replicas": [replica for replica in partition.replicas if not brokers[replica].is_running],
    }
