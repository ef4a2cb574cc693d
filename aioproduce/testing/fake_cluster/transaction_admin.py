"""ListTransactions, DescribeTransactions, DescribeProducers, WriteTxnMarkers: the APIs of `kafka-transactions.sh`.

Called by `apis`. Only WriteTxnMarkers changes anything: an operator's abort of a transaction that its coordinator
has forgotten (KIP-664).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.control_batch import Marker
from aioproduce.testing.fake_cluster.coordinator_places import OFFSETS_TOPIC
from aioproduce.testing.fake_cluster.state import is_legal_topic
from aioproduce.testing.fake_cluster.transaction_states import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange
    from aioproduce.testing.fake_cluster.markers import MarkerWriter
    from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator
    from aioproduce.testing.fake_cluster.transaction_states import Place, Transaction

_NAMES = {state.value for state in TransactionState}


@final
@dataclass(slots=True, eq=False, repr=False)
class TransactionAdmin:
    """Answers the requests of operators."""

    _state: ClusterState
    _coordinator: TransactionCoordinator
    _markers: MarkerWriter
    _offsets: PendingOffsets
    _wall_ms: Callable[[float], int]

    def list_transactions(self, exchange: Exchange, now: float, code: int) -> Body:
        """Answer ListTransactions: the transactions that this broker coordinates."""
        body, places = exchange.body, self._coordinator.places
        if code == ErrorCode.none and any(map(places.is_loading, places.led_by(exchange.broker_id))):
            code = ErrorCode.coordinator_load_in_progress
        try:
            pattern = re.compile(body.get("transactional_id_pattern") or "")
        except re.error:
            code = code or ErrorCode.invalid_regular_expression
        if code != ErrorCode.none:
            return {"error_code": code, "unknown_state_filters": (), "transaction_states": ()}

        def is_wanted(transaction: Transaction) -> bool:
            ids, states = body["producer_id_filters"], body["state_filters"]
            longest = body.get("duration_filter", -1)
            return (
                (not ids or transaction.producer_id in ids)
                and (not states or transaction.state.value in states)
                and (longest < 0 or self._running_ms(transaction, now) > longest)
                and (not pattern.pattern or pattern.fullmatch(transaction.transactional_id) is not None)
            )

        return {
            "error_code": code,
            "unknown_state_filters": [each for each in body["state_filters"] if each not in _NAMES],
            "transaction_states": [
                {
                    "transactional_id": transaction.transactional_id,
                    "producer_id": transaction.producer_id,
                    "transaction_state": transaction.state.value,
                }
                for transaction in self._coordinator.known(now)
                if self._coordinator.coordinator(transaction.transactional_id) == exchange.broker_id
                and is_wanted(transaction)
            ],
        }

    def describe_transactions(self, exchange: Exchange, now: float) -> Body:
        """Answer DescribeTransactions, by transactional id."""
        return {
            "transaction_states": [
                self._describe(exchange, transactional_id, now)
                for transactional_id in exchange.body["transactional_ids"]
            ]
        }

    def describe_producers(self, exchange: Exchange) -> Body:
        """Answer DescribeProducers: what the leaders of partitions know of their producers."""
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        self._describe_producers(exchange, topic["name"], index)
                        for index in topic["partition_indexes"]
                    ],
                }
                for topic in exchange.body["topics"]
            ]
        }

    def write_markers(self, exchange: Exchange, now: float) -> Body:
        """WriteTxnMarkers."""
        return {
            "markers": [
                {
                    "producer_id": entry["producer_id"],
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {
                                    "partition_index": index,
                                    "error_code": self._write(exchange, entry, (topic["name"], index), now),
                                }
                                for index in topic["partition_indexes"]
                            ],
                        }
                        for topic in entry["topics"]
                    ],
                }
                for entry in exchange.body["markers"]
            ]
        }

    # Inside

    def _describe(self, exchange: Exchange, transactional_id: str, now: float) -> dict[str, Any]:
        code: int = ErrorCode.invalid_request
        if self._state.is_transactional_id_denied(transactional_id):
            code = ErrorCode.transactional_id_authorization_failed
        elif transactional_id:
            code = self._coordinator.refusal(transactional_id, exchange.broker_id)
        transaction = self._coordinator.find(transactional_id, now) if code == ErrorCode.none else None
        if transaction is None:
            return {
                "error_code": code or ErrorCode.transactional_id_not_found,
                "transactional_id": transactional_id,
                "transaction_state": "",
                "transaction_timeout": 0,
                "transaction_start_time": 0,
                "producer_id": 0,
                "producer_epoch": 0,
                "topics": (),
            }
        topics: dict[str, list[int]] = {}
        for topic, index in transaction.partitions:
            if not self._state.is_hidden(topic):
                topics.setdefault(topic, []).append(index)
        started_at = transaction.started_at
        return {
            "error_code": ErrorCode.none,
            "transactional_id": transactional_id,
            "transaction_state": transaction.state.value,
            "transaction_timeout": transaction.timeout,
            "transaction_start_time": -1 if started_at is None else self._wall_ms(started_at),
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.epoch,
            "topics": [{"topic": topic, "partitions": found} for topic, found in topics.items()],
        }

    def _describe_producers(self, exchange: Exchange, topic: str, index: int) -> dict[str, Any]:
        partition = self._state.partition(topic, index)
        code = ErrorCode.none
        if not is_legal_topic(topic):
            code = ErrorCode.invalid_topic_exception
        elif self._state.is_denied(topic):
            code = ErrorCode.topic_authorization_failed
        elif partition is None:
            code = ErrorCode.unknown_topic_or_partition
        elif partition.leader_id != exchange.broker_id:
            code = ErrorCode.not_leader_or_follower
        if code != ErrorCode.none or partition is None:
            return {"partition_index": index, "error_code": code, "active_producers": ()}
        log = partition.log
        return {
            "partition_index": index,
            "error_code": code,
            "active_producers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": entry.epoch,
                    "last_sequence": entry.last_sequence,
                    "last_timestamp": entry.timestamp,
                    "coordinator_epoch": entry.coordinator_epoch,
                    "current_txn_start_offset": log.transactions.open.get(producer_id, -1),
                }
                for producer_id, entry in log.producers.entries.items()
            ],
        }

    def _write(self, exchange: Exchange, entry: dict[str, Any], place: Place, now: float) -> int:
        marker = Marker(
            entry["producer_id"],
            entry["producer_epoch"],
            entry["transaction_result"],
            entry["coordinator_epoch"],
            entry.get("transaction_version", 0),
        )
        if place[0] == OFFSETS_TOPIC:
            is_here = exchange.broker_id == self._state.controller_id
            return self._offsets.complete(place[1], marker) if is_here else ErrorCode.not_leader_or_follower
        partition = self._state.partition(*place)
        if partition is not None and partition.leader_id != exchange.broker_id:
            return ErrorCode.not_leader_or_follower
        return self._markers.write(place, marker, now)[0]

    def _running_ms(self, transaction: Transaction, now: float) -> float:
        """Return the age as Kafka computes it: a transaction without a start began at -1 ms since the epoch."""
        if transaction.started_at is None:
            return self._wall_ms(now) + 1
        return (now - transaction.started_at) * 1000
