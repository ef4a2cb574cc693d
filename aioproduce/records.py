"""The values of the API: records to send, partitions, and the metadata of acknowledged records.

Every layer uses them. The module imports nothing of ours. All values are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A key or a value without a serializer."""

Header: TypeAlias = tuple[str, bytes | None]
"""One record header: a name and a value. The value may be null, the name never."""

Headers: TypeAlias = Iterable[Header]
"""Record headers in order. A name may occur more than once (KIP-82)."""


class NotGiven(Enum):
    """The type of `NOT_GIVEN`."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Final = NotGiven.NOT_GIVEN
"""The value of a `send()` call without a value: `None` would be a tombstone."""


class TopicPartition(NamedTuple):
    """A topic's name and one partition's number in it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """One record to send, for `Producer.send()`.

    Args:
        topic: The topic's name.
        value: Bytes, `None` (a tombstone), or an object that the value serializer accepts.
        key: Bytes, `None`, or an object that the key serializer accepts. Records with the same key go to the same
            partition, in order.
        partition: The partition to send to; `None` lets the partitioner choose.
        timestamp: Milliseconds since the epoch, or an aware datetime; `None` means the time of `send()`.
        headers: `(name, value)` pairs.

    Example:
        >>> ProducerRecord(topic="orders", value=b"42", key=b"customer-7").topic
        'orders'
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | datetime | None = None
    headers: Headers | None = None


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record in the log.

    Attributes:
        topic: The topic's name.
        partition: The partition's number; -1 in the callback of a record for which no partition was chosen.
        offset: The record's offset; -1 if it is not known: with `acks=0`, and if the broker answered that it
            already has the record (DUPLICATE_SEQUENCE_NUMBER) without its offset.
        timestamp: Milliseconds since the epoch: the broker's append time if the topic has
            `message.timestamp.type=LogAppendTime`, else the record's own; -1 if not known.
        serialized_key_size: Bytes of the key; -1 for a null key.
        serialized_value_size: Bytes of the value; -1 for a null value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the offset is known."""
        return self.offset >= 0


class PartitionInfo(NamedTuple):
    """One partition in the cluster's metadata.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        leader: The leader's node id; -1 if there is none.
        replicas: Node ids of the replicas.
        in_sync_replicas: Node ids of the in-sync replicas.
    """

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class SilentBroker(NamedTuple):
    """A broker that stopped answering: requests wait for it, and no byte came for a second or more.

    Attributes:
        node_id: The broker's id; negative for a bootstrap server, before metadata says which broker it is.
        host: The broker's host.
        port: The broker's port.
        seconds: Seconds since its last byte.
        requests: Requests that wait for its answer; 0 while the producer reconnects to it.
        records: Accepted records without an outcome, in partitions that it leads.
    """

    node_id: int
    host: str
    port: int
    seconds: float
    requests: int
    records: int


class ClusterInfo(NamedTuple):
    """The cluster that `Producer.check()` found.

    Attributes:
        cluster_id: The cluster's id; `None` if the broker does not report one.
        brokers: Node id -> `host:port`.
    """

    cluster_id: str | None
    brokers: dict[int, str]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The position of a consumer group in one partition.

    Args:
        offset: The offset of the next record to read: that of the last processed record, plus 1.
        leader_epoch: The leader epoch of the last record read, if the consumer reports it (KIP-320); -1: not known.
        metadata: Any text, of at most the broker's `offset.metadata.max.bytes` (4096).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer group, and its member that read the input of a transaction (KIP-447).

    With a generation and a member, the broker refuses offsets from a member that lost its partitions to another.
    Without them (if the consumer assigned its partitions itself), it refuses nobody.

    Args:
        group_id: The group's name.
        generation_id: The generation of the group's latest rebalance; with KIP-848 the member's epoch; -1: none.
        member_id: The member's id; empty: none.
        group_instance_id: The instance id of a static member (KIP-345).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
