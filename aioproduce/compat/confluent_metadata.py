"""The cluster's metadata in confluent-kafka's classes.

Used by `confluent.AIOProducer.list_topics()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError

    from aioproduce.records import ClusterInfo, PartitionInfo


def cluster_metadata(
    cluster: ClusterInfo, topic: str, partitions: Iterable[PartitionInfo], error: KafkaError | None
) -> ClusterMetadata:
    """Return the metadata of the cluster and of one topic.

    Args:
        cluster: Its id and brokers.
        topic: The topic.
        partitions: The topic's partitions; empty if it is unknown.
        error: The reason if it is unknown.
    """
    # The stubs give attributes that are initially None no other type.
    metadata: Any = ClusterMetadata()
    metadata.cluster_id = cluster.cluster_id
    for node_id, address in cluster.brokers.items():
        broker: Any = BrokerMetadata()
        broker.id = node_id
        host, _, port = address.rpartition(":")
        broker.host, broker.port = host, int(port)
        metadata.brokers[node_id] = broker
    described = TopicMetadata()
    described.topic = topic
    described.error = error
    for info in partitions:
        partition = PartitionMetadata()
        partition.id = info.partition
        partition.leader = info.leader
        partition.replicas = list(info.replicas)
        partition.isrs = list(info.in_sync_replicas)
        described.partitions[info.partition] = partition
    metadata.topics[topic] = described
    made: ClusterMetadata = metadata
    return made
