"""Requests for metadata, their answers, and the waiters for topics.

`ClusterMetadata` decides what is due. This module requests it over the least loaded connection, and reports moved
leaders to the accumulator.

Invariants:

1. One request is in flight at most; its answer, or the loss of its connection, ends it.
2. A waiter is notified once: by an answer about its topic, or by `wake_all()`.
3. If no known broker can be reached, the client starts again from the bootstrap servers (KIP-899).
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.wire.messages import MetadataResponse

_log = logging.getLogger("aioproduce.sender")

_ANY_TOPIC: Final = ""
"""No topic has this name: its waiters wait for any metadata."""


@final
class TopicWaiter:
    """A waiter for news of a topic."""

    __slots__ = ("notify", "topic")

    def __init__(self, topic: str, notify: Callable[[], None]) -> None:
        self.topic: str = topic
        self.notify: Callable[[], None] = notify


class MetadataRequests(Exchange):
    """The exchange of metadata requests.

    Attributes:
        has_news: Set when metadata was asked for; `advance()` clears it.
    """

    __slots__ = (
        "_accumulator",
        "_bounded_log",
        "_client_id",
        "_connections",
        "_metadata",
        "_waiters",
        "has_news",
    )

    awaits_connection: bool
    timer_at: float

    def __init__(
        self,
        client_id: str,
        metadata: ClusterMetadata,
        accumulator: RecordAccumulator,
        connections: BrokerConnections,
        bounded_log: BoundedLog,
    ) -> None:
        super().__init__()
        self._client_id = client_id
        self._metadata = metadata
        self._accumulator = accumulator
        self._connections = connections
        self._bounded_log = bounded_log
        self._waiters: dict[str, dict[TopicWaiter, None]] = {}
        self.has_news: bool = False

    # -- who waits ---

    def await_any(self, notify: Callable[[], None], now: float) -> TopicWaiter:
        """Request metadata, and notify when any answer came."""
        self.request(now)
        return self._add(_ANY_TOPIC, notify)

    def await_topic(self, topic: str, notify: Callable[[], None], now: float) -> TopicWaiter:
        """Ask for a topic, and notify when an answer about it came."""
        self.want_topic(topic, now)
        return self._add(topic, notify)

    def want_topic(self, topic: str, now: float) -> None:
        """Ask for a topic that is not known yet, within the back-off, without a waiter."""
        self._metadata.want_topic(topic, now)
        due_at = self._metadata.next_update_at()
        # No news if a step is due by then anyway: otherwise a caller that asks in each step keeps the core busy.
        if due_at is not None and due_at < self.timer_at and not self.awaits_connection:
            self.has_news = True

    def _add(self, topic: str, notify: Callable[[], None]) -> TopicWaiter:
        waiter = TopicWaiter(topic, notify)
        self._waiters.setdefault(topic, {})[waiter] = None
        return waiter

    def forget(self, waiter: TopicWaiter) -> None:
        """Remove a waiter; nothing happens if it was notified already."""
        waiters = self._waiters.get(waiter.topic)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[waiter.topic]

    def wake_all(self) -> None:
        """Notify all waiters, for any topic."""
        waiting, self._waiters = self._waiters, {}
        for waiters in waiting.values():
            for waiter in waiters:
                waiter.notify()

    def tell_of_failure(self) -> None:
        """Notify the waiters for any answer that an address could not be reached; they may wait again."""
        for waiter in self._waiters.pop(_ANY_TOPIC, ()):
            waiter.notify()

    def request(self, now: float) -> None:
        """Ask again for metadata that may be out of date, within the back-off."""
        self._metadata.request_update(now)
        self.has_news = True

    # -- asking ---

    def advance(self, now: float) -> None:
        """Send a request if one is due and a broker can accept it."""
        metadata = self._metadata
        self.has_news = self.awaits_connection = False
        self.timer_at = inf
        if self._accumulator.readiness.has_new_leaderless:
            self._accumulator.readiness.has_new_leaderless = False
            self._ask_for_leaders(now)
        due_at = metadata.next_update_at()
        if metadata.is_late(due_at, now) and metadata.needs_rebootstrap(now):
            self._rebootstrap("no metadata for metadata.recovery.rebootstrap.trigger.ms", now)
            due_at = metadata.next_update_at()
        if due_at is None:
            return
        if due_at > now:
            self.timer_at = due_at
            return
        connection = self._connections.least_loaded(metadata.brokers, now)
        if (
            connection is None
            and metadata.can_rebootstrap
            and self._connections.all_unavailable(metadata.brokers, now)
        ):
            self._rebootstrap("none of the known brokers can be reached", now)
            connection = self._connections.least_loaded(metadata.brokers, now)
        if connection is None:
            # A connection that becomes ready or may be tried causes a step; only time can call for a re-bootstrap.
            self.awaits_connection = True
            at = metadata.rebootstrap_at()
            self.timer_at = inf if at is None else at
            return
        self._ask(connection, now)

    def _ask(self, connection: BrokerConnection, now: float) -> None:
        query = self._metadata.begin_update(now)
        connection.send(
            ApiKey.METADATA,
            lambda version, correlation_id: [
                encode_metadata(
                    version, correlation_id, self._client_id, query.topics, allow_auto_topic_creation=True
                )
            ],
            self,
            now,
        )

    def _ask_for_leaders(self, now: float) -> None:
        topics = self._accumulator.readiness.ready.leaderless_topics
        for topic in topics:
            self._metadata.want_topic(topic, now)
        if topics:
            self._metadata.request_update(now)

    def _rebootstrap(self, reason: str, now: float) -> None:
        self._bounded_log.warning("rebootstrap", now, "starting again from bootstrap.servers: %s", reason)
        for broker in self._metadata.brokers:
            connection = self._connections.connection(broker.node_id)
            if connection is not None:
                self._connections.close(connection.connection_id, reason, now)
        for topic_partition in self._metadata.rebootstrap(now).leaders:
            self._accumulator.leader_changed(topic_partition, now)

    # -- answers ---

    def answered(self, response: MetadataResponse, now: float) -> bool:
        """Apply an answer and notify its waiters."""
        # An append to an open batch does not touch its topic, and neither does a send that waits.
        for topic in (*self._waiters, *{batch.topic for batch in self._accumulator.incomplete}):
            self._metadata.touch(topic, now)
        change = self._metadata.update(response, now)
        for topic in (*change.topics, *change.dropped):
            self._accumulator.topic_changed(topic)
        for topic in change.appeared:
            self._tell_appeared(topic)
        for topic_partition in change.leaders:
            self._accumulator.leader_changed(topic_partition, now)
        if self._accumulator.readiness.ready.leaderless_topics:
            self._ask_for_leaders(now)
        if not self._metadata.is_bootstrapping:
            # Bootstrap connections end when idle; the brokers' own are used from here on.
            self._connections.retain([broker.node_id for broker in self._metadata.brokers])
        for topic in (*change.topics, _ANY_TOPIC):
            for waiter in self._waiters.pop(topic, ()):
                waiter.notify()
        return False

    def _tell_appeared(self, name: str) -> None:
        """Log that a topic was created; that happens once for each topic."""
        view = self._metadata.topic(name)
        if view is not None:
            _log.info(
                "topic %r did not exist when the producer asked for it, but exists now, with %d partition(s) and "
                "%d replica(s). Unless somebody else created it, the broker did (auto.create.topics.enable). "
                "If the name is a mistake, delete the topic",
                name,
                view.partition_count,
                len(view.partitions[0].replicas) if view.partitions else 0,
            )

    def lost(self, loss: Lost, now: float) -> None:
        """Ask again, within the back-off: no answer will come."""
        self._metadata.update_failed(now)

    def broker_lost(self, now: float) -> None:
        """Ask for metadata after any lost connection: its broker may be gone, and then its leaders move."""
        self._metadata.request_update(now)
        if self._metadata.version == 0 or self._connections.security_error is not None:
            self.tell_of_failure()

    def begin_close(self, now: float) -> None:
        """Wake all waiters: no more records are accepted."""
        self.wake_all()
