"""The Produce API, v3 to v13.

Used by `apis`. The order of the checks is Kafka's: the transactional id, the transaction (`verification`), acks,
topic (by name, or by id from v13 on), authorization, leadership (with KIP-951's hint from v10 on),
`min.insync.replicas`, then the batch itself (`log`).

Invariants:
1. acks=0 is never answered. On any error the connection is closed instead, as in Kafka: the client has no other way
   to learn that its metadata is old.
2. acks=1 is answered at once. acks=all waits until the high watermark of every partition of the request is beyond
   its batch, including duplicates. For each partition, the wait can end earlier with another leader
   (NOT_LEADER_OR_FOLLOWER) or after the request's `timeout` (REQUEST_TIMED_OUT). Either way the batch is in the
   log, and its fate is open.
3. If a request names a partition twice, the last of its batches is kept, and it is answered once.
4. A transactional batch is appended only if its partition is in the producer's transaction: up to v11 the client
   has added it, from v12 on the broker does. If the last transaction's markers are not written yet, the broker
   asks again every `retry_backoff` seconds for at most `retry_backoff_max`, and then answers
   CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.exchange import Answer, Body, Exchange, Outcome
from aioproduce.testing.fake_cluster.failures import RefusedError
from aioproduce.testing.fake_cluster.record_batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    read_header,
)
from aioproduce.testing.fake_cluster.transaction_states import Place, Producer
from aioproduce.testing.fake_cluster.verification import Operation, operation_of
from aioproduce.testing.fake_cluster.views import describe_brokers
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.testing.fake_cluster.faults import Fault, Faults
    from aioproduce.testing.fake_cluster.log import Appended
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.record_batch import BatchHeader
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Timer, Timers
    from aioproduce.testing.fake_cluster.verification import TransactionVerifier
    from aioproduce.testing.fake_cluster.views import MetadataViews

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
# The low byte of a batch's attributes.
_FLAGS: Final = 22
_REFUSED: Final = "The partition is not in a transaction of this producer that may be appended to."
_CODES_WITH_LOG_START: Final = (
    ErrorCode.invalid_timestamp,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.unknown_producer_id,
)
"""For these codes a broker reports where its log begins, from which a client learns whether it was forgotten."""

_FIRST_VERSION_WITH_ABORTABLE: Final = 11
_UNREACHED_COORDINATOR: Final = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
"""The codes that become NOT_ENOUGH_REPLICAS for old clients, which would not retry on the actual ones."""

_LEADER_CODES: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


@final
@dataclass(slots=True, eq=False)
class _UnsettledBatch:
    """A batch that is appended and not yet committed; `answer` is its partition's part of the response."""

    partition: PartitionState
    committed_at: int
    answer: dict[str, Any]


@final
@dataclass(slots=True, eq=False)
class _WaitingProduce:
    exchange: Exchange
    responses: list[dict[str, Any]]
    unsettled: list[_UnsettledBatch]
    places: tuple[tuple[str, int], ...]
    timer: Timer | None = None


@final
@dataclass(slots=True, eq=False, repr=False)
class ProduceHandler:
    """Answers Produce.

    Args:
        state: The cluster.
        faults: Checked for each partition.
        timers: For requests that wait.
        views: The brokers' views of leaders, for the hints of KIP-951.
        verifier: Asks transaction coordinators.
        wall_ms: `now` -> milliseconds since the epoch.
        appended: Called with (partition, now) after each append: followers fetch it, waiting consumers check
            again.
        answer: Answers a request that has waited.
    """

    _state: ClusterState
    _faults: Faults
    _timers: Timers
    _views: MetadataViews
    _verifier: TransactionVerifier
    _wall_ms: Callable[[float], int]
    _appended: Callable[[PartitionState, float], None]
    _answer: Answer
    _waiting: dict[tuple[str, int], list[_WaitingProduce]] = field(default_factory=dict)

    def handle(self, exchange: Exchange, now: float) -> Body | Outcome:
        """Append the request's batches; answer, or wait until they are committed."""
        transactional = list(self._transactional(exchange))
        if not transactional:
            return self._append_all(exchange, {}, now)
        transactional_id = exchange.body["transactional_id"]
        code: int = ErrorCode.none
        if transactional_id is None or self._state.is_transactional_id_denied(transactional_id):
            code = ErrorCode.transactional_id_authorization_failed
        elif len({(header.producer_id, header.producer_epoch) for _, header in transactional}) > 1:
            code = ErrorCode.invalid_producer_id_mapping
        if code != ErrorCode.none:
            return self._append_all(exchange, dict.fromkeys(self._places(exchange), code), now)
        return self._verify(exchange, transactional, now, now)

    def _verify(
        self, exchange: Exchange, batches: list[tuple[Place, BatchHeader]], since: float, now: float
    ) -> Body | Outcome:
        """Let the coordinator verify or add the partitions of transactional batches, then append."""
        led = {}
        for place, header in batches:
            partition = self._state.partition(*place)
            if partition is not None and partition.leader_id == exchange.broker_id:
                led[place] = partition.log.producers, header.base_sequence
        operation = operation_of(exchange.api_version, _FIRST_VERSION_WITH_ABORTABLE)
        header = batches[0][1]
        errors = self._verifier.ask(
            exchange.body["transactional_id"],
            Producer(header.producer_id, header.producer_epoch),
            led,
            operation,
            now,
        )
        if operation is Operation.ADD and ErrorCode.concurrent_transactions in errors.values():
            config = self._state.transactions
            if exchange.body["acks"] != 0 and now - since < config.retry_backoff_max:
                self._timers.call_at(
                    now + config.retry_backoff, lambda at: self._verify_again(exchange, batches, since, at)
                )
                return Outcome.LATER
        for place, code in errors.items():
            is_told = operation is Operation.ADD or code != ErrorCode.concurrent_transactions
            if code in _UNREACHED_COORDINATOR or not is_told:
                errors[place] = ErrorCode.not_enough_replicas
        return self._append_all(exchange, errors, now)

    def _verify_again(
        self, exchange: Exchange, batches: list[tuple[Place, BatchHeader]], since: float, now: float
    ) -> None:
        outcome = self._verify(exchange, batches, since, now)
        if not isinstance(outcome, Outcome):
            self._answer(exchange, outcome, now)

    def _append_all(self, exchange: Exchange, refused: dict[Place, int], now: float) -> Body | Outcome:
        """Append to all partitions except those that are refused, each with its code."""
        acks = exchange.body["acks"]
        responses = []
        unsettled: list[_UnsettledBatch] = []
        for topic in exchange.body["topic_data"]:
            name, unknown = self._resolve(exchange, topic)
            partitions = [
                self._answer_partition(exchange, name, unknown, entry, refused, unsettled, now)
                for entry in {entry["index"]: entry for entry in topic["partition_data"]}.values()
            ]
            responses.append(
                {
                    "name": topic.get("name"),
                    "topic_id": topic.get("topic_id"),
                    "partition_responses": partitions,
                }
            )
        if acks == 0:
            answers = [answer for response in responses for answer in response["partition_responses"]]
            has_failed = any(answer["error_code"] for answer in answers)
            return Outcome.CLOSE if has_failed else Outcome.NO_ANSWER
        if unsettled:
            places = dict.fromkeys((batch.partition.topic, batch.partition.partition) for batch in unsettled)
            self._wait(_WaitingProduce(exchange, responses, unsettled, tuple(places)), now)
            return Outcome.LATER
        return self._body(responses)

    def settle(self, partition: PartitionState) -> bool:
        """Decide what can be decided for the batches that wait for this partition.

        Called at every change of its leader, high watermark or configuration, before anything else happens to it.
        It needs no time, because nothing is sent here.

        Returns:
            Whether `answer_settled` has something to do.
        """
        has_settled = False
        for waiting in self._waiting.get((partition.topic, partition.partition), ()):
            for batch in tuple(waiting.unsettled):
                if batch.partition is partition and self._is_settled(waiting.exchange, batch):
                    waiting.unsettled.remove(batch)
                    has_settled = True
        return has_settled

    def answer_settled(self, partition: PartitionState, now: float) -> None:
        """Answer the requests without any waiting batch."""
        for waiting in tuple(self._waiting.get((partition.topic, partition.partition), ())):
            if not waiting.unsettled:
                self._finish(waiting, now)

    def _wait(self, waiting: _WaitingProduce, now: float) -> None:
        for key in waiting.places:
            self._waiting.setdefault(key, []).append(waiting)
        waiting.timer = self._timers.call_at(
            now + max(waiting.exchange.body["timeout"], 0) / 1000, lambda at: self._time_out(waiting, at)
        )

    def _is_settled(self, exchange: Exchange, batch: _UnsettledBatch) -> bool:
        partition, answer = batch.partition, batch.answer
        if self._state.partition(partition.topic, partition.partition) is not partition:
            answer["error_code"] = ErrorCode.unknown_topic_or_partition
        elif partition.leader_id != exchange.broker_id:
            answer["error_code"] = ErrorCode.not_leader_or_follower
            answer["current_leader"] = {
                "leader_id": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
            }
        elif partition.high_watermark < batch.committed_at:
            return False
        elif len(self._state.isr(partition)) < partition.min_insync:
            answer["error_code"] = ErrorCode.not_enough_replicas_after_append
        return True

    def _time_out(self, waiting: _WaitingProduce, now: float) -> None:
        for batch in waiting.unsettled:
            batch.answer["error_code"] = ErrorCode.request_timed_out
        self._finish(waiting, now)

    def _finish(self, waiting: _WaitingProduce, now: float) -> None:
        for key in waiting.places:
            others = self._waiting[key]
            others.remove(waiting)
            if not others:
                del self._waiting[key]
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._answer(waiting.exchange, self._body(waiting.responses), now)

    def _body(self, responses: list[dict[str, Any]]) -> Body:
        return {"responses": responses, "node_endpoints": self._endpoints(responses)}

    def _resolve(self, exchange: Exchange, topic: dict[str, Any]) -> tuple[str | None, int]:
        """Return the topic's name, and the error code for a missing topic."""
        if exchange.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
            return topic["name"], ErrorCode.unknown_topic_or_partition
        found = self._state.topic_by_id(topic["topic_id"])
        return (None if found is None else found.name), ErrorCode.unknown_topic_id

    def _transactional(self, exchange: Exchange) -> Iterator[tuple[Place, BatchHeader]]:
        """Yield the transactional batches of a request, with their partitions."""
        for topic in exchange.body["topic_data"]:
            for entry in topic["partition_data"]:
                content = entry["records"] or b""
                if len(content) < HEADER_BYTES or not content[_FLAGS] & TRANSACTIONAL_FLAG:
                    continue
                header = read_header(content)
                name = self._resolve(exchange, topic)[0]
                if header.producer_id != NO_PRODUCER_ID and name is not None:
                    yield (name, entry["index"]), header

    def _places(self, exchange: Exchange) -> Iterator[Place]:
        """Yield every partition of a request."""
        for topic in exchange.body["topic_data"]:
            name = self._resolve(exchange, topic)[0]
            if name is not None:
                yield from ((name, entry["index"]) for entry in topic["partition_data"])

    def _answer_partition(
        self,
        exchange: Exchange,
        name: str | None,
        unknown: int,
        entry: dict[str, Any],
        refused: dict[Place, int],
        unsettled: list[_UnsettledBatch],
        now: float,
    ) -> dict[str, Any]:
        index, acks = entry["index"], exchange.body["acks"]
        partition = None if name is None else self._state.partition(name, index)
        fault = self._faults.take_code(ApiKey.PRODUCE, exchange.broker_id, name, index)
        try:
            if fault is not None and not fault.is_after_append:
                raise _scripted(fault)
            if name is not None and (name, index) in refused:
                raise RefusedError(refused[name, index], _REFUSED)
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
        except RefusedError as refusal:
            return self._refused(exchange, index, partition, refusal, now)
        answer = {
            "index": index,
            "error_code": ErrorCode.none,
            "base_offset": appended.base_offset,
            "log_append_time": appended.append_time,
            "log_start_offset": partition.log.start_offset,
            "record_errors": (),
        }
        if fault is not None:
            # A batch in the log has its offset, as in Kafka, whatever the code is.
            answer.update(_error_fields(_scripted(fault)))
        elif acks == -1 and partition.high_watermark <= appended.last_offset:
            unsettled.append(_UnsettledBatch(partition, appended.last_offset + 1, answer))
        return answer

    def _append(
        self, exchange: Exchange, partition: PartitionState, records: bytes | None, now: float
    ) -> Appended:
        if partition.leader_id != exchange.broker_id:
            raise RefusedError(
                ErrorCode.not_leader_or_follower,
                f"Partition {partition.topic}-{partition.partition} is not led by broker {exchange.broker_id}",
            )
        if exchange.body["acks"] == -1 and partition.log.config.min_insync_replicas > 1:
            isr = self._state.isr(partition)
            if len(isr) < partition.min_insync:
                raise RefusedError(
                    ErrorCode.not_enough_replicas,
                    f"The size of the current ISR {isr} is insufficient to satisfy the min.isr requirement of "
                    f"{partition.min_insync} for partition {partition.topic}-{partition.partition}",
                )
        wall_ms = self._wall_ms(now)
        appended = partition.log.append(
            records or b"",
            produce_version=exchange.api_version,
            leader_epoch=partition.leader_epoch,
            wall_ms=wall_ms,
        )
        if not appended.is_duplicate:
            self._appended(partition, now)
            partition.log.apply_retention(wall_ms, partition.high_watermark)
        return appended

    def _refused(
        self,
        exchange: Exchange,
        index: int,
        partition: PartitionState | None,
        refusal: RefusedError,
        now: float,
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "index": index,
            "base_offset": -1,
            "log_append_time": NO_TIMESTAMP,
            "log_start_offset": -1,
            **_error_fields(refusal),
        }
        if partition is not None and refusal.code in _CODES_WITH_LOG_START:
            answer["log_start_offset"] = partition.log.start_offset
        if partition is not None and refusal.code in _LEADER_CODES:
            answer["current_leader"] = self._views.leader(exchange.broker_id, partition, now)
        return answer

    def _endpoints(self, responses: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the addresses of the leaders in the answers (KIP-951)."""
        leaders = {
            answer["current_leader"]["leader_id"]: None
            for response in responses
            for answer in response["partition_responses"]
            if "current_leader" in answer
        }
        if not leaders:
            return []
        return [broker for broker in describe_brokers(self._state) if broker["node_id"] in leaders]


def _error_fields(refusal: RefusedError) -> dict[str, Any]:
    return {
        "error_code": refusal.code,
        "record_errors": [
            {"batch_index": batch_index, "batch_index_error_message": message}
            for batch_index, message in refusal.record_errors
        ],
        "error_message": str(refusal) or None,
    }


def _scripted(fault: Fault) -> RefusedError:
    return RefusedError(fault.code, fault.message or "", fault.record_errors)
