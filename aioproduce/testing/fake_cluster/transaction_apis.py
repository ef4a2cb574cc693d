"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: requests of transactional producers.

Called by `apis`. The checks of the broker itself are here: permissions, whether it is the coordinator, and which
codes a client of that version knows. `transaction_coordinator` decides the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.coordinator_places import OFFSETS_TOPIC, partition_of
from aioproduce.testing.fake_cluster.transaction_coordinator import Answered
from aioproduce.testing.fake_cluster.transaction_states import EPOCH_BUMP, NO_PRODUCER, Place, Producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator

# The versions from which clients know PRODUCER_FENCED; before, the code is INVALID_PRODUCER_EPOCH.
_FENCED_SINCE_INIT: Final = 4
_FENCED_SINCE: Final = 2
# The first versions in which clients end and extend transactions of version 2.
_FIRST_BUMPING_END: Final = 5
_FIRST_BUMPING_ADD: Final = 4


@final
@dataclass(slots=True, eq=False, repr=False)
class TransactionApis:
    """Answers the requests of transactional producers."""

    _state: ClusterState
    _coordinator: TransactionCoordinator

    def init_producer_id(self, exchange: Exchange, now: float, code: int) -> Body:
        """Answer InitProducerId, also of idempotent producers: these get a new id each time, whatever they send."""
        answered = Answered(code)
        if code == ErrorCode.none:
            answered = self._init_producer_id(exchange, now)
        return {
            "error_code": _known(answered.code, exchange, _FENCED_SINCE_INIT),
            "producer_id": answered.producer.producer_id,
            "producer_epoch": answered.producer.epoch,
        }

    def add_partitions(self, exchange: Exchange, now: float, code: int) -> Body:
        """Answer AddPartitionsToTxn, of clients (v0 to v3) and of other brokers (v4 and later)."""
        body = exchange.body
        if exchange.api_version < _FIRST_BUMPING_ADD:
            topics = body["v3_and_below_topics"]
            asked = {name[len("v3_and_below_") :]: value for name, value in body.items()}
            return {"results_by_topic_v3_and_below": self._add(exchange, asked, topics, now, code)}
        return {
            "error_code": ErrorCode.none,
            "results_by_transaction": [
                {
                    "transactional_id": each["transactional_id"],
                    "topic_results": self._add(exchange, each, each["topics"], now, code),
                }
                for each in body["transactions"]
            ],
        }

    def add_offsets(self, exchange: Exchange, now: float, code: int) -> Body:
        """Answer AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction."""
        body = exchange.body
        if code == ErrorCode.none:
            code = self._refusal(exchange, body["transactional_id"])
        if code == ErrorCode.none and self._state.is_group_denied(body["group_id"]):
            code = ErrorCode.group_authorization_failed
        if code == ErrorCode.none:
            place = OFFSETS_TOPIC, partition_of(body["group_id"])
            code = self._coordinator.add_partitions(
                body["transactional_id"], _producer(body), [place], 0, now
            )
        return {"error_code": _known(code, exchange, _FENCED_SINCE)}

    def end(self, exchange: Exchange, now: float, code: int) -> Body:
        """Answer EndTxn: from v5 on the transaction ends as one of version 2, and the answer has the next epoch."""
        body = exchange.body
        transactional_id = body["transactional_id"]
        if code == ErrorCode.none:
            code = self._refusal(exchange, transactional_id)
        answered = Answered(code)
        if code == ErrorCode.none:
            is_bumping = exchange.api_version >= _FIRST_BUMPING_END
            answered = self._coordinator.end(
                transactional_id,
                _producer(body),
                EPOCH_BUMP if is_bumping else 0,
                now,
                is_commit=body["committed"],
            )
        return {
            "error_code": _known(answered.code, exchange, _FENCED_SINCE),
            "producer_id": answered.producer.producer_id,
            "producer_epoch": answered.producer.epoch,
        }

    # Inside

    def _init_producer_id(self, exchange: Exchange, now: float) -> Answered:
        body = exchange.body
        transactional_id = body["transactional_id"]
        claimed = Producer(body.get("producer_id", -1), body.get("producer_epoch", -1))
        if transactional_id is not None and self._state.is_transactional_id_denied(transactional_id):
            return Answered(ErrorCode.transactional_id_authorization_failed)
        if claimed != NO_PRODUCER and -1 in claimed:
            return Answered(ErrorCode.invalid_request)
        if transactional_id is None:
            return Answered(ErrorCode.none, Producer(*self._state.new_producer_id()))
        if not transactional_id:
            return Answered(ErrorCode.invalid_request)
        timeout = body["transaction_timeout"] / 1000
        if not 0 < timeout <= self._state.transactions.max_timeout:
            return Answered(ErrorCode.invalid_transaction_timeout)
        code = self._coordinator.refusal(transactional_id, exchange.broker_id)
        if code != ErrorCode.none:
            return Answered(code)
        return self._coordinator.init_producer_id(
            transactional_id, timeout, None if claimed == NO_PRODUCER else claimed, now
        )

    def _refusal(self, exchange: Exchange, transactional_id: str) -> int:
        if self._state.is_transactional_id_denied(transactional_id):
            return ErrorCode.transactional_id_authorization_failed
        if not transactional_id:
            return ErrorCode.invalid_request
        return self._coordinator.refusal(transactional_id, exchange.broker_id)

    def _add(
        self,
        exchange: Exchange,
        asked: Mapping[str, Any],
        topics: list[dict[str, Any]],
        now: float,
        code: int,
    ) -> list[dict[str, Any]]:
        places = [(topic["name"], index) for topic in topics for index in topic["partitions"]]
        codes = dict.fromkeys(places, code)
        if code == ErrorCode.none:
            codes = self._codes(exchange, asked, places, now)
        return [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {
                        "partition_index": index,
                        "partition_error_code": _known(codes[topic["name"], index], exchange, _FENCED_SINCE),
                    }
                    for index in topic["partitions"]
                ],
            }
            for topic in topics
        ]

    def _codes(
        self, exchange: Exchange, asked: Mapping[str, Any], places: list[Place], now: float
    ) -> dict[Place, int]:
        transactional_id = asked["transactional_id"]
        if self._state.is_transactional_id_denied(transactional_id):
            return dict.fromkeys(places, ErrorCode.transactional_id_authorization_failed)
        codes = {place: self._place_error(place) for place in places}
        if any(codes.values()):
            return {place: code or ErrorCode.operation_not_attempted for place, code in codes.items()}
        code = self._refusal(exchange, transactional_id)
        if code != ErrorCode.none:
            return dict.fromkeys(places, code)
        producer = _producer(asked)
        if asked.get("verify_only"):
            return {
                place: self._coordinator.verify_partition(transactional_id, producer, place, now)
                for place in places
            }
        version = EPOCH_BUMP if exchange.api_version >= _FIRST_BUMPING_ADD else 0
        code = self._coordinator.add_partitions(transactional_id, producer, places, version, now)
        return dict.fromkeys(places, code)

    def _place_error(self, place: Place) -> int:
        topic, index = place
        if topic == OFFSETS_TOPIC:
            return ErrorCode.none
        if self._state.is_denied(topic):
            return ErrorCode.topic_authorization_failed
        if self._state.partition(topic, index) is None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none


def _producer(body: Mapping[str, Any]) -> Producer:
    return Producer(body["producer_id"], body["producer_epoch"])


def _known(code: int, exchange: Exchange, fenced_since: int) -> int:
    """Return the code as clients of that version know it."""
    if code == ErrorCode.producer_fenced and exchange.api_version < fenced_since:
        return ErrorCode.invalid_producer_epoch
    return code
