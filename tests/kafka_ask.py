"""What a broker itself says about its cluster: a few requests, encoded and decoded by kio, one connection each.

Used by ``KafkaCluster`` to find out when a node is ready and what a log holds. librdkafka's admin client would
answer from its cache just when leaders have moved, and our own client is what is being tested.

1. A question goes to one node and is answered from that node's own view.
2. Asking creates nothing: no topic is auto-created.
3. A node that cannot be reached, closes, or does not answer in time is an ``OSError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.request import TopicRequest as ProducersTopic
from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v0.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v0.request import TopicData as QuorumTopic
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.list_offsets.v1.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v1.response import ListOffsetsResponse
from kio.schema.metadata.v4.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader
from kio.static.primitive import i32, i64

from aioproduce.drivers.blocking_client import BlockingConnection
from tests.wire_oracle import request_frame

Response = TypeVar(
    "Response",
    DescribeProducersResponse,
    DescribeQuorumResponse,
    GetTelemetrySubscriptionsResponse,
    ListOffsetsResponse,
    MetadataResponse,
)

Request: TypeAlias = (
    DescribeProducersRequest
    | DescribeQuorumRequest
    | GetTelemetrySubscriptionsRequest
    | ListOffsetsRequest
    | MetadataRequest
)

# Per connection attempt and answer on loopback. A stalled node takes connections and never answers.
TIMEOUT = 5.0

EARLIEST = i64(-2)
LATEST = i64(-1)

# What a partition answers while its leadership moves; anything else is final.
UNSETTLED = frozenset(
    {ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition}
)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as one node sees it; the leader is -1 where it knows none."""

    leader: int
    isr: frozenset[int]


def broker_ids(port: int) -> set[int]:
    """The ids of the brokers that a node lists; it hides those that are fenced."""
    response = _ask(port, MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse)
    return {int(broker.node_id) for broker in response.brokers}


def partition_states(port: int, topic: str) -> dict[int, PartitionState]:
    """A topic's partitions; empty if the node does not know the topic."""
    asked = (MetadataRequestTopic(name=TopicName(topic)),)
    response = _ask(port, MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse)
    return {
        int(partition.partition_index): PartitionState(
            int(partition.leader_id), frozenset(int(node_id) for node_id in partition.isr_nodes)
        )
        for entry in response.topics
        for partition in entry.partitions
    }


def offset_of(port: int, topic: str, partition: int, which: i64) -> int | None:
    """A leader's first offset or its high watermark; ``None`` if it does not lead the partition (yet).

    Raises:
        ValueError: The node answered with an error that time does not mend.
    """
    asked = ListOffsetsPartition(partition_index=i32(partition), timestamp=which)
    topics = (ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),)
    response = _ask(port, ListOffsetsRequest(replica_id=BrokerId(-1), topics=topics), ListOffsetsResponse)
    ((answer,),) = (entry.partitions for entry in response.topics)
    if answer.error_code in UNSETTLED:
        return None
    if answer.error_code is not ErrorCode.none:
        raise ValueError(f"offsets of {topic}-{partition} from port {port}: {answer.error_code.name}")
    return int(answer.offset)


def quorum_leader(port: int) -> int:
    """The id of the active controller, as the controllers themselves know it; -1 while there is none."""
    partition = QuorumPartition(partition_index=i32(0))
    topic = QuorumTopic(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    response = _ask(port, DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse)
    if response.error_code is not ErrorCode.none:
        return -1
    ((answer,),) = (entry.partitions for entry in response.topics)
    return int(answer.leader_id)


def active_producers(port: int, topic: str, partition: int = 0) -> set[int]:
    """The ids of the producers that a partition's leader remembers."""
    topics = (ProducersTopic(name=TopicName(topic), partition_indexes=(i32(partition),)),)
    response = _ask(port, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
    ((answer,),) = (entry.partitions for entry in response.topics)
    if answer.error_code is not ErrorCode.none:
        raise ValueError(f"producers of {topic}-{partition} from port {port}: {answer.error_code.name}")
    return {int(producer.producer_id) for producer in answer.active_producers}


def wanted_metrics(port: int, client_id: str) -> set[str]:
    """The prefixes of the metrics that a node asks a client of that name for (KIP-714)."""
    request = GetTelemetrySubscriptionsRequest(client_instance_id=None)
    response = _ask(port, request, GetTelemetrySubscriptionsResponse, client_id)
    return set(response.requested_metrics)


def _ask(
    port: int,
    request: Request,
    response_type: type[Response],
    client_id: str = "tests",
) -> Response:
    with BlockingConnection("127.0.0.1", port, TIMEOUT) as connection:
        frame = connection.exchange(request_frame(request, client_id=client_id))
    # Four bytes of correlation id come first, and no tagged fields in a flexible answer; a connection with one
    # request needs not compare it.
    response, _ = entity_reader(response_type)(bytes(frame), 5 if request.__flexible__ else 4)
    return response
