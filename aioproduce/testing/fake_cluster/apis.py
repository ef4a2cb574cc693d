"""All supported APIs: the handler of each, and the assembly of the handlers.

Created by `model`, which handles connections and time; nothing here does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.testing.fake_cluster import cluster_apis
from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS, MetadataHandler
from aioproduce.testing.fake_cluster.fetch import FetchHandler
from aioproduce.testing.fake_cluster.groups import GroupCoordinator
from aioproduce.testing.fake_cluster.markers import MarkerWriter
from aioproduce.testing.fake_cluster.offset_apis import OffsetApis, find_coordinator
from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
from aioproduce.testing.fake_cluster.produce import ProduceHandler
from aioproduce.testing.fake_cluster.replicator import Replicator
from aioproduce.testing.fake_cluster.telemetry import TelemetryCollector
from aioproduce.testing.fake_cluster.transaction_admin import TransactionAdmin
from aioproduce.testing.fake_cluster.transaction_apis import TransactionApis
from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator
from aioproduce.testing.fake_cluster.verification import TransactionVerifier
from aioproduce.testing.fake_cluster.views import MetadataViews
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.testing.fake_cluster.exchange import Answer, Exchange, Handler
    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Action, Timers


@final
class BrokerApis:
    """The handlers of all APIs except logins.

    Args:
        state: The cluster.
        faults: Scripted codes, and stalled brokers.
        timers: The model's.
        wall_ms: `now` -> milliseconds since the epoch.
        answer: Answers a request that has waited.
        described: Called when the content of Metadata has changed.
        plan: Schedules an action for now, for calls without a time.

    Attributes:
        versions: The versions that each broker advertises and accepts.
        telemetry: The metrics that clients pushed.
        groups: Consumer groups.
        offsets: Their committed offsets.
        transactions: Transactional ids.
        views: The brokers' views of the cluster.
        replicator: Followers.
    """

    def __init__(
        self,
        state: ClusterState,
        faults: Faults,
        timers: Timers,
        *,
        wall_ms: Callable[[float], int],
        answer: Answer,
        described: Callable[[], None],
        plan: Callable[[Action], None],
    ) -> None:
        self._state = state
        self._faults = faults
        self.versions: Final[dict[int, dict[int, tuple[int, int]]]] = {
            broker_id: dict(BROKER_VERSIONS) for broker_id in state.brokers
        }
        self.telemetry: TelemetryCollector = TelemetryCollector()
        self.views: MetadataViews = MetadataViews(state, faults)
        self.replicator: Replicator = Replicator(state, faults, timers, self._committed, described)
        self.groups: GroupCoordinator = GroupCoordinator(state, timers, answer)
        self.offsets: PendingOffsets = PendingOffsets()
        self._markers = MarkerWriter(
            state,
            faults,
            timers,
            self.offsets,
            wall_ms,
            self.replicator.appended,
            lambda partition: self.transactions.places.leader(partition),
        )
        self.transactions: TransactionCoordinator = TransactionCoordinator(
            state, faults, timers, self._markers, plan
        )
        verifier = TransactionVerifier(state, faults, self.transactions)
        self._produce = ProduceHandler(
            state, faults, timers, self.views, verifier, wall_ms, self.replicator.appended, answer
        )
        self._fetch = FetchHandler(state, timers, wall_ms, answer)
        self._metadata = MetadataHandler(state, faults, self.views)
        self._offset_apis = OffsetApis(state, self.groups, self.offsets, verifier)
        self._transaction_apis = TransactionApis(state, self.transactions)
        self._admin = TransactionAdmin(state, self.transactions, self._markers, self.offsets, wall_ms)

    def handlers(self) -> Mapping[int, Handler]:
        """The handler of each API."""
        state, code, groups, transactions = self._state, self._code, self.groups, self._transaction_apis
        return {
            ApiKey.PRODUCE: self._produce.handle,
            ApiKey.FETCH: self._fetch.handle,
            ApiKey.LIST_OFFSETS: lambda exchange, _: self._fetch.list_offsets(exchange),
            ApiKey.METADATA: self._metadata.handle,
            ApiKey.OFFSET_COMMIT: self._offset_apis.commit,
            ApiKey.OFFSET_FETCH: lambda exchange, _: self._offset_apis.fetch(exchange),
            ApiKey.FIND_COORDINATOR: lambda exchange, _: find_coordinator(
                state, self.transactions, exchange, code(exchange)
            ),
            ApiKey.JOIN_GROUP: groups.join,
            ApiKey.HEARTBEAT: groups.heartbeat,
            ApiKey.LEAVE_GROUP: groups.leave,
            ApiKey.SYNC_GROUP: groups.sync,
            ApiKey.API_VERSIONS: lambda exchange, _: cluster_apis.api_versions(
                state, exchange, self.versions[exchange.broker_id], code(exchange)
            ),
            ApiKey.CREATE_TOPICS: lambda exchange, _: cluster_apis.create_topics(state, exchange),
            ApiKey.DELETE_TOPICS: lambda exchange, _: cluster_apis.delete_topics(state, exchange),
            ApiKey.INIT_PRODUCER_ID: lambda exchange, now: transactions.init_producer_id(
                exchange, now, code(exchange)
            ),
            ApiKey.ADD_PARTITIONS_TO_TXN: lambda exchange, now: transactions.add_partitions(
                exchange, now, code(exchange)
            ),
            ApiKey.ADD_OFFSETS_TO_TXN: lambda exchange, now: transactions.add_offsets(
                exchange, now, code(exchange)
            ),
            ApiKey.TXN_OFFSET_COMMIT: lambda exchange, now: self._offset_apis.commit_in_transaction(
                exchange, now, code(exchange)
            ),
            ApiKey.END_TXN: lambda exchange, now: transactions.end(exchange, now, code(exchange)),
            ApiKey.WRITE_TXN_MARKERS: self._admin.write_markers,
            ApiKey.LIST_TRANSACTIONS: lambda exchange, now: self._admin.list_transactions(
                exchange, now, code(exchange)
            ),
            ApiKey.DESCRIBE_TRANSACTIONS: self._admin.describe_transactions,
            ApiKey.DESCRIBE_PRODUCERS: lambda exchange, _: self._admin.describe_producers(exchange),
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: lambda exchange, _: self.telemetry.get_subscriptions(
                exchange, code(exchange)
            ),
            ApiKey.PUSH_TELEMETRY: lambda exchange, now: self.telemetry.push(exchange, code(exchange), now),
        }

    def partition_changed(self, partition: PartitionState) -> None:
        """Handle a change of a partition's leader, ISR or end: decide waiting requests now, answer later."""
        self._produce.settle(partition)

    def changed_partition(self, partition: PartitionState, now: float) -> None:
        """Handle the consequences of such a change for followers, answers and markers."""
        if partition.tracked is not None:
            self.replicator.partition_changed(partition, now)
            self._produce.answer_settled(partition, now)
        self._markers.look_again(now)

    @property
    def has_markers(self) -> bool:
        """Whether markers are waiting to be written."""
        return self._markers.is_busy

    def brokers_changed(self, now: float) -> None:
        """Handle that a broker stopped or started."""
        self.replicator.faults_changed(now)
        self.transactions.places.brokers_changed()
        self.transactions.look_again(now)

    def faults_changed(self, now: float) -> None:
        """Handle that a broker was stalled, paused or resumed."""
        self.replicator.faults_changed(now)
        self.transactions.look_again(now)

    def _code(self, exchange: Exchange) -> int:
        return self._faults.take_top_level_code(exchange.api_key, exchange.broker_id)

    def _committed(self, partition: PartitionState, now: float) -> None:
        """Handle that there is more to read, or news for a waiting request."""
        if self._produce.settle(partition):
            self._produce.answer_settled(partition, now)
        if self._markers.is_busy:
            self._markers.committed(partition, now)
        self._fetch.committed(partition, now)
