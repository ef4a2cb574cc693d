"""Fetch v4 to v18 and ListOffsets v1 to v10, with which consumers read a log.

Used by `apis`, and called when the high watermark has risen: consumers read up to there, or up to the last stable
offset with isolation level read_committed. Fetch waits until `min_bytes` are available or `max_wait` is over.

Invariants:
1. An answer has only whole batches, and the first one even if it is larger than the limits (KIP-74).
2. Sessions (KIP-227) are never granted: the answer's session id is 0, as from Kafka when its cache is full, so
   every request names all its partitions.
3. A waiting fetch costs nothing until one of its partitions grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.exchange import Answer, Body, Exchange, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce.testing.fake_cluster.log import StoredBatch
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Timer, Timers

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_READ_COMMITTED: Final = 1


@final
@dataclass(slots=True, eq=False)
class _WaitingFetch:
    exchange: Exchange
    partitions: list[PartitionState]
    timer: Timer | None = None


@final
@dataclass(slots=True, eq=False, repr=False)
class FetchHandler:
    """Answers Fetch and ListOffsets."""

    _state: ClusterState
    _timers: Timers
    _wall_ms: Callable[[float], int]
    _answer: Answer
    _waiting: dict[tuple[str, int], list[_WaitingFetch]] = field(default_factory=dict)

    def handle(self, exchange: Exchange, now: float) -> Body | Outcome:
        """Answer the request, or wait for enough bytes."""
        body = exchange.body
        if body.get("session_id", 0) != 0:
            return _fetch_answer((), ErrorCode.fetch_session_id_not_found)
        self._apply_retention(body["topics"], exchange, now)
        answer, size, is_final = self._read(exchange)
        if is_final or size >= body["min_bytes"] or body["max_wait"] <= 0:
            return answer
        self._wait(exchange, now)
        return Outcome.LATER

    def committed(self, partition: PartitionState, now: float) -> None:
        """Check the fetches that wait for this partition again: there is more to read, or another leader."""
        key = (partition.topic, partition.partition)
        for waiting in tuple(self._waiting.get(key, ())):
            answer, size, is_final = self._read(waiting.exchange)
            if is_final or size >= waiting.exchange.body["min_bytes"]:
                self._finish(waiting, answer, now)

    def list_offsets(self, exchange: Exchange) -> Body:
        """Answer ListOffsets: earliest, latest, or by timestamp."""
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        self._list_offset(exchange, topic["name"], entry) for entry in topic["partitions"]
                    ],
                }
                for topic in exchange.body["topics"]
            ]
        }

    def _apply_retention(self, topics: list[dict[str, Any]], exchange: Exchange, now: float) -> None:
        """Apply retention for the time since the last append."""
        for topic in topics:
            name = self._name(exchange, topic)
            found = None if name is None else self._state.topics.get(name)
            if found is not None and found.config.retention_seconds is not None:
                for partition in found.partitions:
                    partition.log.apply_retention(self._wall_ms(now), partition.high_watermark)

    def _wait(self, exchange: Exchange, now: float) -> None:
        waiting = _WaitingFetch(exchange, [])
        for topic in exchange.body["topics"]:
            name = self._name(exchange, topic)
            for entry in topic["partitions"]:
                partition = None if name is None else self._state.partition(name, entry["partition"])
                if partition is not None:
                    waiting.partitions.append(partition)
                    self._waiting.setdefault((partition.topic, partition.partition), []).append(waiting)
        waiting.timer = self._timers.call_at(
            now + exchange.body["max_wait"] / 1000, lambda at: self._finish(waiting, None, at)
        )

    def _finish(self, waiting: _WaitingFetch, answer: Body | None, now: float) -> None:
        for partition in waiting.partitions:
            key = (partition.topic, partition.partition)
            others = self._waiting[key]
            others.remove(waiting)
            if not others:
                del self._waiting[key]
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._answer(waiting.exchange, answer or self._read(waiting.exchange)[0], now)

    def _read(self, exchange: Exchange) -> tuple[Body, int, bool]:
        """Return the current answer, its bytes of records, and whether waiting longer is pointless."""
        budget = exchange.body["max_bytes"]
        total = 0
        is_final = not exchange.body["topics"]
        responses = []
        for topic in exchange.body["topics"]:
            name = self._name(exchange, topic)
            partitions = []
            for entry in topic["partitions"]:
                partition = None if name is None else self._state.partition(name, entry["partition"])
                code = self._fetch_error(exchange, name, partition, entry)
                batches: list[StoredBatch] = []
                if code == ErrorCode.none and partition is not None:
                    limit = min(entry["partition_max_bytes"], budget - total)
                    batches = partition.log.read(
                        entry["fetch_offset"],
                        limit,
                        committed=_end_for(exchange, partition),
                        at_least_one=total == 0,
                    )
                else:
                    is_final = True
                answer = _partition_answer(exchange, entry, code, partition, batches)
                total += len(answer["records"])
                partitions.append(answer)
            responses.append(
                {"topic": topic.get("topic"), "topic_id": topic.get("topic_id"), "partitions": partitions}
            )
        return _fetch_answer(responses, ErrorCode.none), total, is_final

    def _name(self, exchange: Exchange, topic: dict[str, Any]) -> str | None:
        if exchange.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
            name: str = topic["topic"]
            return name
        found = self._state.topic_by_id(topic["topic_id"])
        return None if found is None else found.name

    def _fetch_error(
        self, exchange: Exchange, name: str | None, partition: PartitionState | None, entry: dict[str, Any]
    ) -> int:
        if name is None:
            return ErrorCode.unknown_topic_id
        code = self._partition_error(exchange, name, partition, entry.get("current_leader_epoch", -1))
        if code != ErrorCode.none or partition is None:
            return code
        if not partition.log.start_offset <= entry["fetch_offset"] <= partition.log.end_offset:
            return ErrorCode.offset_out_of_range
        return ErrorCode.none

    def _partition_error(
        self, exchange: Exchange, name: str, partition: PartitionState | None, leader_epoch: int
    ) -> int:
        if self._state.is_denied(name):
            return ErrorCode.topic_authorization_failed
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if partition.leader_id != exchange.broker_id:
            return ErrorCode.not_leader_or_follower
        if leader_epoch != -1 and leader_epoch < partition.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if leader_epoch > partition.leader_epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none

    def _list_offset(self, exchange: Exchange, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        partition = self._state.partition(name, entry["partition_index"])
        code = self._partition_error(exchange, name, partition, entry.get("current_leader_epoch", -1))
        offset, timestamp, epoch = -1, -1, -1
        if code == ErrorCode.none and partition is not None:
            epoch = partition.leader_epoch
            wanted = entry["timestamp"]
            end = _end_for(exchange, partition)
            if wanted == _LATEST:
                offset = end
            elif wanted in (_EARLIEST, _EARLIEST_LOCAL):
                offset = partition.log.start_offset
            else:
                log = partition.log
                found = log.newest() if wanted == _MAX_TIMESTAMP else log.first_at_or_after(wanted)
                if found is not None and found[0] < end:
                    offset, timestamp = found
        return {
            "partition_index": entry["partition_index"],
            "error_code": code,
            "timestamp": timestamp,
            "offset": offset,
            "leader_epoch": epoch,
        }


def _fetch_answer(responses: Sequence[dict[str, Any]], code: int) -> Body:
    return {"error_code": code, "session_id": 0, "responses": responses}


def _is_read_committed(exchange: Exchange) -> bool:
    return bool(exchange.body.get("isolation_level", 0) == _READ_COMMITTED)


def _end_for(exchange: Exchange, partition: PartitionState) -> int:
    """Return how far this client may read."""
    return partition.last_stable_offset if _is_read_committed(exchange) else partition.high_watermark


def _partition_answer(
    exchange: Exchange,
    entry: dict[str, Any],
    code: int,
    partition: PartitionState | None,
    batches: list[StoredBatch],
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "partition_index": entry["partition"],
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": () if _is_read_committed(exchange) else None,
        "records": batches[0].content if len(batches) == 1 else b"".join(each.content for each in batches),
    }
    if partition is None:
        return answer
    if code == ErrorCode.none:
        answer["high_watermark"] = partition.high_watermark
        answer["last_stable_offset"] = partition.last_stable_offset
        answer["log_start_offset"] = partition.log.start_offset
        if batches and _is_read_committed(exchange):
            end = batches[-1].last_offset + 1
            aborted = partition.log.transactions.aborted_between(entry["fetch_offset"], end)
            answer["aborted_transactions"] = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted
            ]
    elif code in (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch):
        answer["current_leader"] = {"leader_id": partition.leader_id, "leader_epoch": partition.leader_epoch}
    return answer
