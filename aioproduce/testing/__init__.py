"""For tests and development of programs that use the producer: a Kafka cluster and a schema registry in memory.

Imported by users' tests and by `aioproduce dev`, never by the producer. All names here are public.
"""

from __future__ import annotations

from aioproduce.testing.cluster_thread import ClusterThread
from aioproduce.testing.fake_cluster.cluster import FakeCluster, FakeRecord, FakeTransaction
from aioproduce.testing.fake_cluster.connections import BrokerSideConnection, ReceivedRequest, RequestLog
from aioproduce.testing.fake_cluster.faults import AnswerFault, Fault, Faults
from aioproduce.testing.fake_cluster.log import StoredBatch, TopicConfig
from aioproduce.testing.fake_cluster.model import ClusterModel
from aioproduce.testing.fake_cluster.partition import PartitionState, Replicas, ReplicationConfig
from aioproduce.testing.fake_cluster.security import FakeSecurity, FakeTls, token_for
from aioproduce.testing.fake_cluster.state import BrokerState, ClusterState
from aioproduce.testing.fake_cluster.telemetry import TelemetryPush
from aioproduce.testing.fake_cluster.transaction_states import TransactionConfig
from aioproduce.testing.fake_registry import FakeSchemaRegistry, RegistryRequest
from aioproduce.testing.produced import ANY, Produced

__all__ = [
    "ANY",
    "AnswerFault",
    "BrokerSideConnection",
    "BrokerState",
    "ClusterModel",
    "ClusterState",
    "ClusterThread",
    "FakeCluster",
    "FakeRecord",
    "FakeSchemaRegistry",
    "FakeSecurity",
    "FakeTls",
    "FakeTransaction",
    "Fault",
    "Faults",
    "PartitionState",
    "Produced",
    "ReceivedRequest",
    "RegistryRequest",
    "Replicas",
    "ReplicationConfig",
    "RequestLog",
    "StoredBatch",
    "TelemetryPush",
    "TopicConfig",
    "TransactionConfig",
    "token_for",
]
