"""The known metadata of the cluster: brokers, and the partitions and leaders of each topic in use.

The Sender sends the metadata requests that this asks for, and reports the answers. `send()` looks up a topic's
partitions and marks it as wanted. This module decides when an update is due and what to ask. The connections choose
the broker.

Updates are full (all wanted topics) or partial (only topics without a good answer). A full one is due when an error
made all metadata suspect, or `max_age` has passed. A partial one is due for new topics, and for those whose last
answer was a transient error.

Invariants:

1. The leader epoch orders the metadata of a partition: an older one never replaces a newer one, whichever
   broker answered last. A changed topic id (the topic was deleted and created again) and a re-bootstrap
   (maybe to another cluster) reset the order.
2. `leader_id` is a broker that `broker()` knows, or -1. A partition without leader keeps its topic usable.
3. At most one update is in flight; `next_update_at()` is `None` then. At any other time it is an instant that
   only a call of a method with `now` can move: back-off is drawn once per event, not per call.
4. Failed updates, and a run of answers with nothing new, back off exponentially. Only a topic that was never
   asked for skips the back-off, once.
5. Views change in place: a `TopicView` stays the topic's own from `want_topic()` until the topic is dropped,
   so that it may be cached (its `PartitionView`s only until the topic is created again).
6. A topic's partitions are counted, never derived from a partition's number, so a hostile number cannot make
   memory grow.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Final

from aioproduce.core.cluster.metadata_views import MetadataChange, MetadataQuery, PartitionView, TopicView
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes
from aioproduce.wire.messages import BrokerAddress, TopicMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from aioproduce.config import ProducerConfig
    from aioproduce.core.retry import ExponentialBackoff
    from aioproduce.wire.messages import MetadataResponse, PartitionMetadata

__all__ = ["ClusterMetadata", "MetadataChange", "MetadataQuery", "PartitionView", "TopicView"]


class ClusterMetadata:
    """The brokers, the wanted topics, and the schedule of metadata updates.

    Args:
        bootstrap: `(host, port)` of the bootstrap brokers; they get the node ids -1, -2, ...
        max_age: Seconds after which a full update is due (`metadata.max.age.ms`).
        max_idle: Seconds without use after which a topic is dropped (`metadata.max.idle.ms`).
        backoff: The back-off between updates that fail, or that bring nothing new.
        recovery_strategy: `"rebootstrap"` or `"none"` (`metadata.recovery.strategy`, KIP-899).
        rebootstrap_trigger: Seconds without a successful update, while one is due, after which to return to
            `bootstrap` (`metadata.recovery.rebootstrap.trigger.ms`, KIP-1102).
        now: Monotonic seconds.
    """

    __slots__ = (
        "_allowed_at",
        "_attempt_started_at",
        "_backoff",
        "_bootstrap",
        "_brokers",
        "_equivalent_answers",
        "_failures",
        "_full_due_at",
        "_in_flight",
        "_is_bootstrapping",
        "_is_rebootstrap_demanded",
        "_max_age",
        "_max_idle",
        "_names",
        "_partial_due_at",
        "_pending",
        "_rebootstrap_trigger",
        "_strategy",
        "_topics",
        "cluster_id",
        "last_success_at",
        "version",
    )

    def __init__(
        self,
        *,
        bootstrap: Sequence[tuple[str, int]],
        max_age: float,
        max_idle: float,
        backoff: ExponentialBackoff,
        recovery_strategy: str,
        rebootstrap_trigger: float,
        now: float,
    ) -> None:
        if not bootstrap:
            raise ValueError("At least one bootstrap broker is needed")
        if recovery_strategy not in ("rebootstrap", "none"):
            raise ValueError(f"The recovery strategy is 'rebootstrap' or 'none', not {recovery_strategy!r}")
        self._bootstrap: Final = {
            -1 - index: BrokerAddress(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap)
        }
        self._max_age: Final = max_age
        self._max_idle: Final = max_idle
        self._backoff: Final = backoff
        self._strategy: Final = recovery_strategy
        self._rebootstrap_trigger: Final = rebootstrap_trigger

        self.cluster_id: str | None = None
        self.version: int = 0
        self.last_success_at: float | None = None
        self._brokers: dict[int, BrokerAddress] = self._bootstrap
        self._is_bootstrapping = True
        self._topics: dict[str, TopicView] = {}
        self._names: dict[UUID, str] = {}

        self._in_flight: MetadataQuery | None = None
        # Topics of the next partial update, until they have a good or a final answer; a dict keeps the order.
        self._pending: dict[str, None] = {}
        self._partial_due_at = now
        self._full_due_at = now
        self._allowed_at = now
        self._failures = 0
        self._equivalent_answers = 0
        self._attempt_started_at: float | None = None
        self._is_rebootstrap_demanded = False

    # ---- What is known -------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView | None:
        """Return the topic if records can be assigned to its partitions, else `None`."""
        view = self._topics.get(name)
        return view if view is not None and view.is_usable else None

    def topic_error(self, name: str) -> int:
        """Return the topic's error code in the last answer; 0 for no error, or no answer yet."""
        view = self._topics.get(name)
        return error_codes.NONE if view is None else view.error_code

    def is_known(self, name: str) -> bool:
        """Return whether `topic()` is not `None`."""
        return self.topic(name) is not None

    def is_wanted(self, name: str) -> bool:
        """Return whether the topic is asked for: from `want_topic()` until it was idle too long."""
        return name in self._topics

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; `None` also for a re-created topic's former id."""
        return self._names.get(topic_id)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of the partition's leader; -1 if none is known."""
        view = self._partition(topic, partition)
        return -1 if view is None else view.leader_id

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """Return the newest leader epoch seen of the partition; -1 if none."""
        view = self._partition(topic, partition)
        return -1 if view is None else view.leader_epoch

    def broker(self, node_id: int) -> BrokerAddress | None:
        """Return the node's address, or `None`."""
        return self._brokers.get(node_id)

    @property
    def brokers(self) -> tuple[BrokerAddress, ...]:
        """The brokers to ask: the bootstrap brokers until the first answer, then those of the last answer."""
        return tuple(self._brokers.values())

    def age(self, now: float) -> float:
        """Return the seconds since the last good answer; NaN before the first."""
        return nan if self.last_success_at is None else now - self.last_success_at

    @property
    def is_bootstrapping(self) -> bool:
        """Whether `brokers` are the bootstrap brokers."""
        return self._is_bootstrapping

    # ---- What is wanted ------------------------------------------------------------------------------------

    def want_topic(self, name: str, now: float) -> None:
        """Mark a topic as used, and ask for it if there is no good answer yet.

        A topic that was never asked for is asked for at once. One whose last answer was an error is asked for
        again, with back-off. The next `MetadataChange` with the topic tells whether the error persists; the
        earlier `topic_error()` does not.
        """
        view = self._topics.get(name)
        if view is None:
            self._topics[name] = TopicView(name, now)
            self._allowed_at = min(self._allowed_at, now)
            self._equivalent_answers = 0
            self._ask_again(name, now)
            return
        view.used_at = now
        if not view.is_usable:
            self._ask_again(name, now)

    def touch(self, name: str, now: float) -> None:
        """Mark a wanted topic as used."""
        view = self._topics.get(name)
        if view is not None:
            view.used_at = now

    def request_update(self, now: float) -> None:
        """Request a full update: an error showed that the metadata is stale. Back-off still applies."""
        self._full_due_at = min(self._full_due_at, now)

    # ---- Updates -------------------------------------------------------------------------------------------

    def next_update_at(self) -> float | None:
        """Return when the next metadata request may be sent; `None` while one is in flight."""
        if self._in_flight is not None:
            return None
        due_at = min(self._full_due_at, self._partial_due_at) if self._pending else self._full_due_at
        return max(due_at, self._allowed_at)

    def begin_update(self, now: float) -> MetadataQuery:
        """Record that a metadata request is being sent; `update()` or `update_failed()` must follow.

        Raises:
            RuntimeError: if one is in flight already.
        """
        if self._in_flight is not None:
            raise RuntimeError("A metadata update is in flight already")
        if self._attempt_started_at is None:
            self._attempt_started_at = now
        is_full = now >= self._full_due_at or not self._pending
        if self.last_success_at is not None and now - self.last_success_at >= self._max_age:
            self._equivalent_answers = 0  # after so long an unchanged answer is normal
        self._in_flight = MetadataQuery(tuple(self._topics if is_full else self._pending), is_full)
        return self._in_flight

    def update_failed(self, now: float) -> None:
        """Record that no answer arrived: the connection was lost, or none was available."""
        self._in_flight = None  # what it asked for is still due, or pending
        if self._attempt_started_at is None:
            self._attempt_started_at = now
        self._failures += 1
        self._equivalent_answers = 0
        self._allowed_at = now + self._backoff.backoff(self._failures - 1)

    def update(self, response: MetadataResponse, now: float) -> MetadataChange:
        """Apply an answer.

        An answer without brokers, as a starting broker sends it, counts as a failed update. So does one that
        demands a re-bootstrap; `needs_rebootstrap()` is true after it.

        Raises:
            RuntimeError: if no update is in flight.
        """
        query = self._in_flight
        if query is None:
            raise RuntimeError("A metadata answer arrived while no update was in flight")
        is_demanded = response.error_code == error_codes.REBOOTSTRAP_REQUIRED
        brokers = {broker.node_id: broker for broker in response.brokers if broker.node_id >= 0}
        if not brokers or (is_demanded and self._strategy == "rebootstrap"):
            self._is_rebootstrap_demanded = self._is_rebootstrap_demanded or is_demanded
            self.update_failed(now)
            return MetadataChange()
        self._in_flight = None
        self._failures = 0
        self._attempt_started_at = None
        self._is_rebootstrap_demanded = False
        self.version += 1
        self._equivalent_answers += 1  # anything new in the answer resets it to 0
        if query.is_full:
            self.last_success_at = now
            self._full_due_at = now + self._max_age
        if response.cluster_id is not None:
            self.cluster_id = response.cluster_id
        has_same_nodes = self._brokers.keys() == brokers.keys()
        self._brokers = brokers
        self._is_bootstrapping = False
        change = self._take_topics(query, response, now, has_same_nodes=has_same_nodes)
        has_new_topics = any(not self._topics[name].is_answered for name in self._pending)
        self._allowed_at = (
            now if has_new_topics else now + self._backoff.backoff(max(self._equivalent_answers - 1, 0))
        )
        return change

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]] | Mapping[tuple[str, int], tuple[int, int]],
        endpoints: Iterable[BrokerAddress],
    ) -> list[TopicPartition]:
        """Apply the new leaders that a produce response named (KIP-951).

        Args:
            leaders: Partition -> (leader's node id, its epoch). A leader is ignored if it is not newer than
                the known one, if its address is in neither `endpoints` nor the metadata, or if the partition
                is unknown.
            endpoints: The leaders' addresses, which replace the known ones.

        Returns:
            The partitions whose leader was replaced.
        """
        brokers = self._brokers | {address.node_id: address for address in endpoints if address.node_id >= 0}
        changed: dict[TopicPartition, None] = {}
        for (topic, partition), (leader_id, leader_epoch) in leaders.items():
            view = None if self._is_bootstrapping else self._partition(topic, partition)
            is_newer = view is not None and leader_epoch > view.leader_epoch
            if view is None or not is_newer or leader_id not in brokers:
                continue
            view.reported_leader_id = leader_id
            view.leader_epoch = leader_epoch
            changed[TopicPartition(topic, partition)] = None
        if changed:
            has_same_nodes = self._brokers.keys() == brokers.keys()
            self._brokers = brokers
            touched = {self._topics[topic]: None for topic, _ in changed}
            self._settle(touched if has_same_nodes else self._topics.values(), changed)
        return list(changed)

    # ---- Re-bootstrap (KIP-899, KIP-1102) ------------------------------------------------------------------

    @property
    def can_rebootstrap(self) -> bool:
        """Whether a return to the bootstrap brokers is allowed and would change anything.

        The caller does it when none of `brokers` can be reached.
        """
        return self._strategy == "rebootstrap" and not self._is_bootstrapping

    def is_late(self, due_at: float | None, now: float) -> bool:
        """Return whether `needs_rebootstrap()` may be true: an update is due, in flight or failed. Cheap.

        Args:
            due_at: The result of `next_update_at()`.
            now: The current instant.
        """
        if self._is_rebootstrap_demanded or self._attempt_started_at is not None:
            return True
        return due_at is None or due_at <= now

    def rebootstrap_at(self) -> float | None:
        """Return when `needs_rebootstrap()` becomes true if no update succeeds before; `None` for never."""
        if self._strategy != "rebootstrap":
            return None
        started_at = self._attempt_started_at
        if started_at is None:
            started_at = self.next_update_at()
        return None if started_at is None else started_at + self._rebootstrap_trigger

    def needs_rebootstrap(self, now: float) -> bool:
        """Return whether to call `rebootstrap()`: a broker demanded it, or updates failed for too long."""
        if self._strategy != "rebootstrap":
            return False
        at = self.rebootstrap_at()
        return self._is_rebootstrap_demanded or (at is not None and now >= at)

    def rebootstrap(self, now: float) -> MetadataChange:
        """Return to the bootstrap brokers and forget all leaders. The caller closes all connections.

        Topics keep their partition counts, so that `send()` still accepts records as in any outage. They lose
        their leader epochs: this may be another cluster, so the first answer counts. (Java forgets the topics
        and keeps the epochs, so it ignores a restored cluster until its epochs have caught up.)

        Returns:
            The partitions that lost their leader.
        """
        self._brokers = self._bootstrap
        self._is_bootstrapping = True
        self._is_rebootstrap_demanded = False
        self._attempt_started_at = now
        for view in self._topics.values():
            for partition in view.partitions:
                partition.leader_epoch = partition.reported_leader_id = -1
        changed: dict[TopicPartition, None] = {}
        self._settle(self._topics.values(), changed)
        self.request_update(now)
        return MetadataChange(leaders=tuple(changed))

    # ---- Inside --------------------------------------------------------------------------------------------

    def _partition(self, topic: str, partition: int) -> PartitionView | None:
        """Return the view of one partition of a usable topic, or `None`."""
        view = self.topic(topic)
        if view is None or not 0 <= partition < view.partition_count:
            return None
        return view.partitions[partition]

    def _ask_again(self, name: str, now: float) -> None:
        """Add a topic to the next partial update."""
        if not self._pending:
            self._partial_due_at = now
        self._pending[name] = None

    def _take_topics(
        self, query: MetadataQuery, response: MetadataResponse, now: float, *, has_same_nodes: bool
    ) -> MetadataChange:
        """Apply the topics of a good answer; the brokers are applied already."""
        answered: dict[str, TopicView] = {}
        first_answered: set[str] = set()
        recreated: list[str] = []
        appeared: list[str] = []
        leaders: dict[TopicPartition, None] = {}
        # Brokers answer for each requested topic. A topic that an answer leaves out counts as unknown.
        named = {topic.name for topic in response.topics}
        missing = [
            TopicMetadata(name, None, error_codes.UNKNOWN_TOPIC_OR_PARTITION)
            for name in query.topics
            if name not in named
        ]
        for topic in (*response.topics, *missing):
            view = None if topic.name is None else self._topics.get(topic.name)
            if view is None:
                continue  # dropped, or never asked for
            answered[view.name] = view
            if not view.is_answered:
                first_answered.add(view.name)
            was_missing = view.was_missing
            if self._take_topic(view, topic, leaders):
                recreated.append(view.name)
            if was_missing and view.error_code == error_codes.NONE:
                appeared.append(view.name)
        dropped = [
            view.name
            for view in answered.values()
            # A topic that is answered for the first time has waiters, even if it was wanted long ago.
            if now - view.used_at >= self._max_idle and view.name not in first_answered
        ]
        for name in dropped:
            view = answered.pop(name)
            # Records may be in flight: the sender must learn that the leader is no longer known.
            leaders.update(_led(view, 0))
            self._drop(view)
        for view in answered.values():
            if self._is_worth_asking_again(view):
                self._ask_again(view.name, now)
            else:
                self._pending.pop(view.name, None)
        self._settle(answered.values() if has_same_nodes else self._topics.values(), leaders)
        return MetadataChange(
            tuple(answered), tuple(leaders), tuple(recreated), tuple(dropped), tuple(appeared)
        )

    def _take_topic(self, view: TopicView, topic: TopicMetadata, leaders: dict[TopicPartition, None]) -> bool:
        """Apply the answer about one topic; return whether the topic was created again since the last."""
        view.is_answered = True
        view.error_code = topic.error_code
        view.is_internal = topic.is_internal
        # Brokers before KRaft report LEADER_NOT_AVAILABLE for a topic that they are about to create.
        is_missing = topic.error_code in (
            error_codes.UNKNOWN_TOPIC_OR_PARTITION,
            error_codes.LEADER_NOT_AVAILABLE,
        )
        view.was_missing = is_missing and view.topic_id is None and not view.partitions
        if topic.error_code != error_codes.NONE:
            # The id and the epochs stay: they order the answers after the error.
            return False
        old_id, new_id = view.topic_id, topic.topic_id
        if new_id != old_id:
            self._set_topic_id(view, new_id)
            if new_id is not None:
                # Another topic of the same name, whose epochs start again.
                leaders.update(_led(view, 0))
                view.partitions.clear()
        # The number of a topic's partitions only grows: an answer with fewer is stale.
        count = len({metadata.partition for metadata in topic.partitions})
        if new_id is None:
            leaders.update(_led(view, count))
            del view.partitions[count:]
        view.partitions.extend(PartitionView(number) for number in range(len(view.partitions), count))
        view.partition_count = len(view.partitions)
        for metadata in topic.partitions:
            if 0 <= metadata.partition < view.partition_count:
                partition = view.partitions[metadata.partition]
                old_epoch = partition.leader_epoch
                self._take_partition(partition, metadata)
                if partition.leader_epoch != old_epoch:
                    leaders[TopicPartition(view.name, metadata.partition)] = None
        return new_id is not None and old_id is not None and new_id != old_id

    def _set_topic_id(self, view: TopicView, topic_id: UUID | None) -> None:
        if view.topic_id is not None and self._names.get(view.topic_id) == view.name:
            del self._names[view.topic_id]
        if topic_id is not None:
            self._names[topic_id] = view.name
        view.topic_id = topic_id

    def _take_partition(self, view: PartitionView, metadata: PartitionMetadata) -> None:
        """Apply the answer about one partition, unless a newer one is known."""
        known = (view.reported_leader_id, view.leader_epoch)
        if 0 <= metadata.leader_epoch < view.leader_epoch:
            return
        view.leader_epoch = metadata.leader_epoch
        view.reported_leader_id = metadata.leader_id
        view.error_code = metadata.error_code
        view.replicas = metadata.replicas
        view.isr = metadata.isr
        if (view.reported_leader_id, view.leader_epoch) != known:
            self._equivalent_answers = 0

    @staticmethod
    def _is_worth_asking_again(view: TopicView) -> bool:
        """Return whether the last answer about a topic is expected to change soon."""
        if view.error_code != error_codes.NONE:
            return view.error_code in error_codes.INVALID_METADATA
        return view.partition_count == 0 or any(
            partition.error_code in error_codes.INVALID_METADATA for partition in view.partitions
        )

    def _drop(self, view: TopicView) -> None:
        """Drop a topic."""
        del self._topics[view.name]
        self._pending.pop(view.name, None)
        self._set_topic_id(view, None)

    def _settle(self, views: Iterable[TopicView], changed: dict[TopicPartition, None]) -> None:
        """Set as leaders the reported nodes with a known address, in usable topics; add changes to `changed`."""
        brokers = self._brokers
        for view in views:
            is_usable = view.is_usable
            for partition in view.partitions:
                reported = partition.reported_leader_id
                leader_id = reported if is_usable and reported in brokers else -1
                if leader_id != partition.leader_id:
                    partition.leader_id = leader_id
                    changed[TopicPartition(view.name, partition.partition)] = None
            view.available = tuple(p.partition for p in view.partitions if p.leader_id >= 0)


def _led(view: TopicView, start: int) -> dict[TopicPartition, None]:
    """Return the partitions from `start` on that have a leader, which they are about to lose."""
    return {TopicPartition(view.name, p.partition): None for p in view.partitions[start:] if p.leader_id >= 0}


def make_cluster_metadata(config: ProducerConfig, backoff: ExponentialBackoff, now: float) -> ClusterMetadata:
    """Return the initial metadata from the settings: the bootstrap servers."""
    return ClusterMetadata(
        bootstrap=config.bootstrap_servers,
        max_age=config.metadata_max_age,
        max_idle=config.metadata_max_idle,
        backoff=backoff,
        recovery_strategy=config.metadata_recovery_strategy,
        rebootstrap_trigger=config.metadata_rebootstrap_trigger,
        now=now,
    )
