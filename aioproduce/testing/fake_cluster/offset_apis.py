"""OffsetCommit, TxnOffsetCommit, OffsetFetch, and FindCoordinator.

Used by `apis`. `groups` decides who may commit for a group; `pending_offsets` holds the committed offsets.

Invariants:
1. TxnOffsetCommit asks the transaction coordinator as Produce does: from v5 on it adds the group's partition of
   `__consumer_offsets` to the transaction, before it has that verified.
2. OffsetFetch with `require_stable` (KIP-447) answers UNSTABLE_OFFSET_COMMIT if a transaction is not decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.coordinator_places import OFFSETS_TOPIC, partition_of
from aioproduce.testing.fake_cluster.transaction_states import Producer
from aioproduce.testing.fake_cluster.verification import operation_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange
    from aioproduce.testing.fake_cluster.groups import GroupCoordinator
    from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator
    from aioproduce.testing.fake_cluster.verification import TransactionVerifier

# offset.metadata.max.bytes
_MAX_METADATA: Final = 4096
_GROUP, _TRANSACTION = 0, 1
_FIRST_VERSION_WITH_LOADING: Final = 2
_FIRST_VERSION_WITH_ABORTABLE: Final = 4


@final
@dataclass(slots=True, eq=False, repr=False)
class OffsetApis:
    """Answers the requests of consumers and transactional producers about offsets."""

    _state: ClusterState
    _groups: GroupCoordinator
    _offsets: PendingOffsets
    _verifier: TransactionVerifier

    def commit(self, exchange: Exchange, now: float) -> Body:
        """OffsetCommit."""
        code = self._groups.check_commit(exchange, now)

        def commit_one(topic: str, entry: dict[str, Any]) -> int:
            index = entry["partition_index"]
            if code == ErrorCode.none and self._state.partition(topic, index) is None:
                return ErrorCode.unknown_topic_or_partition
            if code == ErrorCode.none:
                self._offsets.commit(exchange.body["group_id"], (topic, index), *_offset_of(entry))
            return code

        return _by_partition(exchange, commit_one)

    def commit_in_transaction(self, exchange: Exchange, now: float, code: int) -> Body:
        """Handle TxnOffsetCommit; `code` is a scripted one."""
        body = exchange.body
        if code == ErrorCode.none:
            code = self._refusal(body)
        here = {
            (topic["name"], entry["partition_index"])
            for topic in body["topics"]
            for entry in topic["partitions"]
            if self._place_error(topic["name"], entry["partition_index"]) == ErrorCode.none
        }
        if code == ErrorCode.none and here:
            code = self._may_commit(exchange, now)
        if (
            exchange.api_version < _FIRST_VERSION_WITH_LOADING
            and code == ErrorCode.coordinator_load_in_progress
        ):
            code = ErrorCode.coordinator_not_available
        is_refused = self._refusal(body) != ErrorCode.none
        producer = Producer(body["producer_id"], body["producer_epoch"])

        def commit_one(topic: str, entry: dict[str, Any]) -> int:
            place = topic, entry["partition_index"]
            if place not in here and not is_refused:
                return self._place_error(*place)
            if code != ErrorCode.none:
                return code
            if len(entry["committed_metadata"] or "") > _MAX_METADATA:
                return ErrorCode.offset_metadata_too_large
            self._offsets.commit_in_transaction(producer, body["group_id"], place, *_offset_of(entry))
            return ErrorCode.none

        return _by_partition(exchange, commit_one)

    def fetch(self, exchange: Exchange) -> Body:
        """Answer OffsetFetch, for one group or (v8 and later) several."""
        body = exchange.body
        is_stable = bool(body.get("require_stable", False))
        wanted = body.get("groups")
        if wanted is None:
            return self._offsets_of(exchange, body["group_id"], body["topics"], is_stable)
        return {
            "groups": [
                {
                    "group_id": entry["group_id"],
                    **self._offsets_of(exchange, entry["group_id"], entry["topics"], is_stable),
                }
                for entry in wanted
            ]
        }

    # Internals

    def _refusal(self, body: Any) -> int:
        if self._state.is_transactional_id_denied(body["transactional_id"]):
            return ErrorCode.transactional_id_authorization_failed
        if self._state.is_group_denied(body["group_id"]):
            return ErrorCode.group_authorization_failed
        return ErrorCode.none

    def _place_error(self, topic: str, index: int) -> int:
        if self._state.is_denied(topic):
            return ErrorCode.topic_authorization_failed
        if self._state.partition(topic, index) is None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none

    def _may_commit(self, exchange: Exchange, now: float) -> int:
        body = exchange.body
        group_id: str = body["group_id"]
        code = self._groups.refusal(group_id, exchange.broker_id)
        if code != ErrorCode.none or not group_id:
            return code or ErrorCode.invalid_group_id
        place = OFFSETS_TOPIC, partition_of(group_id)
        errors = self._verifier.ask(
            body["transactional_id"],
            Producer(body["producer_id"], body["producer_epoch"]),
            {place: (self._offsets.producers_of(group_id), -1)},
            operation_of(exchange.api_version, _FIRST_VERSION_WITH_ABORTABLE),
            now,
        )
        code = errors.get(place, ErrorCode.none)
        if code == ErrorCode.network_exception:
            return ErrorCode.coordinator_load_in_progress
        return code or self._groups.check_transactional_commit(exchange)

    def _offsets_of(
        self, exchange: Exchange, group_id: str, topics: list[dict[str, Any]] | None, is_stable: bool
    ) -> dict[str, Any]:
        code = self._groups.refusal(group_id, exchange.broker_id)
        if code == ErrorCode.none and not group_id and "groups" not in exchange.body:
            code = ErrorCode.invalid_group_id
        offsets = self._offsets.committed.get(group_id, {})
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for name, index in offsets:
                by_topic.setdefault(name, []).append(index)
            topics = [{"name": name, "partition_indexes": found} for name, found in by_topic.items()]
        answers = []
        for topic in topics if code == ErrorCode.none else ():
            partitions = []
            for index in topic["partition_indexes"]:
                place = topic["name"], index
                is_unstable = is_stable and self._offsets.is_unstable(group_id, place)
                found = None if is_unstable else offsets.get(place)
                partitions.append(
                    {
                        "partition_index": index,
                        "committed_offset": -1 if found is None else found.offset,
                        "committed_leader_epoch": -1 if found is None else found.leader_epoch,
                        "metadata": "" if found is None else found.metadata,
                        "error_code": ErrorCode.unstable_offset_commit if is_unstable else ErrorCode.none,
                    }
                )
            answers.append({"name": topic["name"], "partitions": partitions})
        return {"topics": answers, "error_code": code}


def find_coordinator(
    state: ClusterState, transactions: TransactionCoordinator, exchange: Exchange, code: int
) -> Body:
    """Answer FindCoordinator, for one key or (v4 and later) several: of a group, or of a transactional id."""
    body = exchange.body
    key_type = body.get("key_type", _GROUP)
    keys = body.get("coordinator_keys", ())
    found = [_coordinator(state, transactions, key_type, key, code) for key in keys]
    if keys or "key" not in body:
        return {"coordinators": found}
    return _coordinator(state, transactions, key_type, body["key"], code)


def _coordinator(
    state: ClusterState, transactions: TransactionCoordinator, key_type: int, key: str, code: int
) -> dict[str, Any]:
    broker_id = state.controller_id
    if code == ErrorCode.none:
        if key_type == _TRANSACTION:
            broker_id = transactions.coordinator(key)
            if state.is_transactional_id_denied(key):
                code = ErrorCode.transactional_id_authorization_failed
        elif key_type != _GROUP:
            code = ErrorCode.invalid_request
        elif state.is_group_denied(key):
            code = ErrorCode.group_authorization_failed
    broker = state.brokers.get(broker_id)
    if code == ErrorCode.none and broker is None:
        code = ErrorCode.coordinator_not_available
    if code != ErrorCode.none or broker is None:
        nowhere = {"node_id": -1, "host": "", "port": -1}
        return {"key": key, "error_code": code, "error_message": None, **nowhere}
    place = {"node_id": broker.broker_id, "host": broker.host, "port": broker.port}
    return {"key": key, "error_code": ErrorCode.none, "error_message": None, **place}


def _offset_of(entry: dict[str, Any]) -> tuple[int, int, str | None]:
    return entry["committed_offset"], entry.get("committed_leader_epoch", -1), entry["committed_metadata"]


def _by_partition(exchange: Exchange, commit_one: Callable[[str, dict[str, Any]], int]) -> Body:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": entry["partition_index"],
                        "error_code": commit_one(topic["name"], entry),
                    }
                    for entry in topic["partitions"]
                ],
            }
            for topic in exchange.body["topics"]
        ]
    }
