"""The Produce API, v3 to v13.

Called by `model`. Order of the checks as in Kafka: acks, topic (by name, or by id from v13), authorisation,
leadership (with KIP-951's hint from v10), then the batch itself (`log`).

Invariants:
1. acks=0 is never answered. If anything was wrong with it, the connection is closed instead, as Kafka does:
   the client has no other way to learn that its metadata is old.
2. acks=1 and acks=all are the same here: there is one replica, and it is never behind.
3. Transactional batches are refused (INVALID_TXN_STATE): transactions are not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.exchange import Body, Exchange, Outcome
from aioproduce.testing.fake_cluster.failures import RefusedError
from aioproduce.testing.fake_cluster.record_batch import HEADER_BYTES, NO_TIMESTAMP, read_header
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.testing.fake_cluster.faults import Fault, Faults
    from aioproduce.testing.fake_cluster.log import Appended
    from aioproduce.testing.fake_cluster.state import ClusterState, PartitionState

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_LEADER_CODES: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


@final
class ProduceHandler:
    """Answers Produce.

    Args:
        state: The cluster.
        faults: Asked for each partition.
        wall_ms: `now` -> milliseconds since the epoch.
        appended: Called with (partition, now) after each append: waiting fetches look again.
    """

    __slots__ = ("_appended", "_faults", "_state", "_wall_ms")

    def __init__(
        self,
        state: ClusterState,
        faults: Faults,
        wall_ms: Callable[[float], int],
        appended: Callable[[PartitionState, float], None],
    ) -> None:
        self._state = state
        self._faults = faults
        self._wall_ms = wall_ms
        self._appended = appended

    def handle(self, exchange: Exchange, now: float) -> Body | Outcome:
        """Append what the request brings."""
        acks = exchange.body["acks"]
        responses = []
        for topic in exchange.body["topic_data"]:
            name, unknown = self._resolve(exchange, topic)
            partitions = [
                self._answer_partition(exchange, name, unknown, entry, acks, now)
                for entry in topic["partition_data"]
            ]
            responses.append(
                {
                    "name": topic.get("name"),
                    "topic_id": topic.get("topic_id"),
                    "partition_responses": partitions,
                }
            )
        answers = [answer for response in responses for answer in response["partition_responses"]]
        if acks == 0:
            has_failed = any(answer["error_code"] for answer in answers)
            return Outcome.CLOSE if has_failed else Outcome.NO_ANSWER
        return {"responses": responses, "node_endpoints": self._endpoints(answers)}

    def _resolve(self, exchange: Exchange, topic: dict[str, Any]) -> tuple[str | None, int]:
        """The topic's name, and the error code for a topic that is not there."""
        if exchange.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
            return topic["name"], ErrorCode.unknown_topic_or_partition
        found = self._state.topic_by_id(topic["topic_id"])
        return (None if found is None else found.name), ErrorCode.unknown_topic_id

    def _answer_partition(
        self, exchange: Exchange, name: str | None, unknown: int, entry: dict[str, Any], acks: int, now: float
    ) -> dict[str, Any]:
        index = entry["index"]
        partition = None if name is None else self._state.partition(name, index)
        fault = self._faults.take_code(ApiKey.PRODUCE, exchange.broker_id, name, index)
        try:
            if fault is not None and not fault.is_after_append:
                raise _scripted(fault)
            if acks not in (-1, 0, 1):
                raise RefusedError(ErrorCode.invalid_required_acks, f"acks={acks}")
            if name is not None and self._state.is_denied(name):
                raise RefusedError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
            if partition is None:
                known = name is not None and name in self._state.topics
                raise RefusedError(
                    ErrorCode.unknown_topic_or_partition if known else unknown,
                    "This server does not host this topic-partition.",
                )
            appended = self._append(exchange, partition, entry["records"], now)
            if fault is not None:
                raise _scripted(fault)
        except RefusedError as refusal:
            return self._refused(index, partition, refusal)
        return {
            "index": index,
            "error_code": ErrorCode.none,
            "base_offset": appended.base_offset,
            "log_append_time": appended.append_time,
            "log_start_offset": partition.log.start_offset,
            "record_errors": (),
        }

    def _append(
        self, exchange: Exchange, partition: PartitionState, records: bytes | None, now: float
    ) -> Appended:
        if partition.leader_id != exchange.broker_id:
            raise RefusedError(
                ErrorCode.not_leader_or_follower,
                f"Partition {partition.topic}-{partition.partition} is not led by broker {exchange.broker_id}",
            )
        content = records or b""
        if len(content) >= HEADER_BYTES and read_header(content).is_transactional:
            raise RefusedError(ErrorCode.invalid_txn_state, "FakeCluster does not model transactions")
        appended = partition.log.append(
            content,
            produce_version=exchange.api_version,
            leader_epoch=partition.leader_epoch,
            wall_ms=self._wall_ms(now),
        )
        if not appended.is_duplicate:
            self._appended(partition, now)
        return appended

    def _refused(self, index: int, partition: PartitionState | None, refusal: RefusedError) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "index": index,
            "error_code": refusal.code,
            "base_offset": -1,
            "log_append_time": NO_TIMESTAMP,
            "log_start_offset": -1,
            "record_errors": [
                {"batch_index": batch_index, "batch_index_error_message": message}
                for batch_index, message in refusal.record_errors
            ],
            "error_message": str(refusal) or None,
        }
        if partition is not None and refusal.code in _LEADER_CODES:
            answer["current_leader"] = {
                "leader_id": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
            }
        return answer

    def _endpoints(self, answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The addresses of the leaders that the answers name (KIP-951)."""
        leaders = {
            answer["current_leader"]["leader_id"]: None for answer in answers if "current_leader" in answer
        }
        return [
            {"node_id": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
            for broker in self._state.running_brokers
            if broker.broker_id in leaders
        ]


def _scripted(fault: Fault) -> RefusedError:
    return RefusedError(fault.code, fault.message or "", fault.record_errors)
