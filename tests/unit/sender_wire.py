"""What brokers read and write, for `sender_harness`: requests as they see them, and the bodies of their answers.

Batches are read by the broker model's own decoder, answers are encoded by kio: neither is the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioproduce.records import TopicPartition
from aioproduce.testing.fake_cluster.record_batch import decode_records, read_header
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
TOPIC = "test"


@dataclass(frozen=True)
class SentBatch:
    """One record batch of a Produce request, as a broker reads it."""

    content: bytes
    producer_id: int
    epoch: int
    sequence: int
    values: tuple[bytes | None, ...]

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in the idempotent protocol: (epoch, base sequence)."""
        return self.epoch, self.sequence


@dataclass(eq=False)
class Request:
    """One request that reached a broker and is not answered."""

    connection_id: int
    node_id: int
    api: int
    version: int
    correlation_id: int
    body: dict[str, Any]
    sent_at: float
    batches: dict[TopicPartition, SentBatch] = field(default_factory=dict)

    def batch(self, partition: int = 0, topic: str = TOPIC) -> SentBatch:
        return self.batches[TopicPartition(topic, partition)]

    @property
    def partitions(self) -> list[int]:
        return [partition for _, partition in self.batches]


@dataclass(eq=False)
class Topic:
    """A topic as the brokers have it: per partition the leader's node id and epoch."""

    topic_id: UUID | None
    leaders: list[tuple[int, int]]
    code: int = 0


def topic_id_of(number: int) -> UUID:
    return UUID(int=number)


def read_batches(body: Mapping[str, Any], topics: Mapping[str, Topic]) -> dict[TopicPartition, SentBatch]:
    """The batches of a Produce request, in its order."""
    batches: dict[TopicPartition, SentBatch] = {}
    for topic in body["topic_data"]:
        name = topic.get("name") or _name_of(topic["topic_id"], topics)
        for entry in topic["partition_data"]:
            content = bytes(entry["records"])
            header = read_header(content)
            values = tuple(record.value for record in decode_records(header, content))
            topic_partition = TopicPartition(name, entry["index"])
            assert topic_partition not in batches, "two batches of one partition in one request"
            batches[topic_partition] = SentBatch(
                content, header.producer_id, header.producer_epoch, header.base_sequence, values
            )
    return batches


def _name_of(topic_id: UUID, topics: Mapping[str, Topic]) -> str:
    return next((name for name, topic in topics.items() if topic.topic_id == topic_id), str(topic_id))


def api_versions_body(produce_versions: tuple[int, int], *, offers_telemetry: bool = False) -> dict[str, Any]:
    """The answer to ApiVersions."""
    offered = {
        ApiKey.PRODUCE: produce_versions,
        ApiKey.METADATA: (0, 12),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
    }
    if offers_telemetry:
        offered |= {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}
    return {
        "error_code": 0,
        "api_keys": [
            {"api_key": int(api), "min_version": lowest, "max_version": highest}
            for api, (lowest, highest) in offered.items()
        ],
        "supported_features": [],
        "finalized_features": [],
    }


def metadata_body(
    request: Request, brokers: Mapping[int, tuple[str, int]], topics: Mapping[str, Topic]
) -> dict[str, Any]:
    """The answer to Metadata."""
    asked = request.body["topics"]
    names = list(topics) if asked is None else [topic["name"] for topic in asked]
    return {
        "brokers": [_endpoint(node, host, port) for node, (host, port) in brokers.items()],
        "cluster_id": "harness",
        "controller_id": 0,
        "topics": [_topic_body(name, topics.get(name)) for name in names],
        "error_code": 0,
    }


def _endpoint(node: int, host: str, port: int) -> dict[str, Any]:
    return {"node_id": node, "host": host, "port": port, "rack": None}


def _topic_body(name: str, topic: Topic | None) -> dict[str, Any]:
    if topic is None:
        topic = Topic(None, [], code=3)
    return {
        "error_code": topic.code,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": epoch,
                "replica_nodes": (),
                "isr_nodes": (),
                "offline_replicas": (),
            }
            for index, (leader, epoch) in enumerate(topic.leaders)
        ],
    }


def produce_body(
    request: Request,
    code_of: Callable[[int], int],
    leaders: Mapping[int, tuple[int, int]],
    endpoints: Sequence[tuple[int, str, int]],
    *,
    throttle: float,
    offsets: Mapping[int, int],
    **fields: Any,
) -> dict[str, Any]:
    """The answer to Produce, for every partition of the request that is still in its body."""
    responses = []
    for topic in request.body["topic_data"]:
        partitions = []
        for entry in topic["partition_data"]:
            index = entry["index"]
            own = {"offset": offsets[index]} if index in offsets else {}
            partitions.append(
                _partition_answer(index, code_of(index), leaders.get(index), **{**fields, **own})
            )
        responses.append(
            {
                "name": topic.get("name"),
                "topic_id": topic.get("topic_id"),
                "partition_responses": partitions,
            }
        )
    return {
        "responses": responses,
        "throttle_time": throttle,
        "node_endpoints": [_endpoint(*endpoint) for endpoint in endpoints],
    }


def _partition_answer(
    index: int, code: int = 0, leader: tuple[int, int] | None = None, **fields: Any
) -> dict[str, Any]:
    """One partition of a Produce answer."""
    offset = fields.pop("offset", 0)
    answer: dict[str, Any] = {
        "index": index,
        "error_code": code,
        "base_offset": offset if code == 0 else -1,
        "log_append_time": -1,
        "log_start_offset": 0 if code == 0 else -1,
        "record_errors": (),
        "error_message": None,
        **fields,
    }
    if leader is not None:
        answer["current_leader"] = {"leader_id": leader[0], "leader_epoch": leader[1]}
    return answer
