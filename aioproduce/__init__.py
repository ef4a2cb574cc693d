"""aioproduce: an asyncio-native Kafka producer.

    from aioproduce import Producer

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("orders", b"42")  # accepted
        metadata = await delivery                        # acknowledged

All public names are here and in `aioproduce.errors`. Each is loaded at its first use, so that importing the package
is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from aioproduce.version import VERSION as __version__

if TYPE_CHECKING:
    from aioproduce import errors as errors
    from aioproduce._native.blocking_delivery import BlockingDelivery as BlockingDelivery
    from aioproduce._native.delivery import DeliveryFuture as DeliveryFuture
    from aioproduce.blocking import BlockingDeliveries as BlockingDeliveries
    from aioproduce.blocking import BlockingProducer as BlockingProducer
    from aioproduce.config import ProducerConfig as ProducerConfig
    from aioproduce.config import load_properties as load_properties
    from aioproduce.config.settings import ProducerSettings as ProducerSettings
    from aioproduce.installation import BuildInfo as BuildInfo
    from aioproduce.installation import build_info as build_info
    from aioproduce.producer.batches import BatchBuilder as BatchBuilder
    from aioproduce.producer.deliveries import Deliveries as Deliveries
    from aioproduce.producer.group_commit import GroupCommit as GroupCommit
    from aioproduce.producer.prepared_transaction import PreparedTransaction as PreparedTransaction
    from aioproduce.producer.producer import Producer as Producer
    from aioproduce.producer.transactional_pool import TransactionalPool as TransactionalPool
    from aioproduce.producer.transactions import Transaction as Transaction
    from aioproduce.records import ClusterInfo as ClusterInfo
    from aioproduce.records import GroupMetadata as GroupMetadata
    from aioproduce.records import OffsetAndMetadata as OffsetAndMetadata
    from aioproduce.records import PartitionInfo as PartitionInfo
    from aioproduce.records import ProducerRecord as ProducerRecord
    from aioproduce.records import RecordMetadata as RecordMetadata
    from aioproduce.records import SilentBroker as SilentBroker
    from aioproduce.records import TopicPartition as TopicPartition


_HOMES: Final = {
    "BatchBuilder": "aioproduce.producer.batches",
    "BlockingDeliveries": "aioproduce.blocking",
    "BlockingDelivery": "aioproduce._native.blocking_delivery",
    "BlockingProducer": "aioproduce.blocking",
    "BuildInfo": "aioproduce.installation",
    "ClusterInfo": "aioproduce.records",
    "Deliveries": "aioproduce.producer.deliveries",
    "DeliveryFuture": "aioproduce._native.delivery",
    "GroupCommit": "aioproduce.producer.group_commit",
    "GroupMetadata": "aioproduce.records",
    "OffsetAndMetadata": "aioproduce.records",
    "PartitionInfo": "aioproduce.records",
    "PreparedTransaction": "aioproduce.producer.prepared_transaction",
    "Producer": "aioproduce.producer.producer",
    "ProducerConfig": "aioproduce.config",
    "ProducerRecord": "aioproduce.records",
    "ProducerSettings": "aioproduce.config.settings",
    "RecordMetadata": "aioproduce.records",
    "SilentBroker": "aioproduce.records",
    "TopicPartition": "aioproduce.records",
    "Transaction": "aioproduce.producer.transactions",
    "TransactionalPool": "aioproduce.producer.transactional_pool",
    "build_info": "aioproduce.installation",
    "load_properties": "aioproduce.config",
}

__all__ = ["__version__", "errors", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("aioproduce.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aioproduce' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
