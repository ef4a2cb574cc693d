"""The values that go in and come out: what is sent, where to, and what the broker said of it.

Called by every floor; imports nothing of ours. All are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""What a key or a value is where no serializer makes it."""

Header: TypeAlias = tuple[str, bytes | None]
"""One record header: a name and its value; a header may have a null value, never a null name."""

Headers: TypeAlias = Iterable[Header]
"""Record headers in order; a name may come more than once (KIP-82)."""


class NotGiven(Enum):
    """The type of `NOT_GIVEN`."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Final = NotGiven.NOT_GIVEN
"""Stands for the value of a `send()` that names none: `None` would be a tombstone."""


class TopicPartition(NamedTuple):
    """A topic's name and one partition's number in it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """One record to send, as `Producer.send()` takes it whole.

    Args:
        topic: The topic's name.
        value: The value; bytes, `None` (a tombstone), or whatever the value serializer takes.
        key: The key, likewise. Records of one key go to one partition, in order.
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
    """Where an acknowledged record lies in the log.

    Attributes:
        topic: The topic's name.
        partition: The partition's number; -1 in the callback of a record that never got one.
        offset: The record's offset, or -1 when it is not known: with `acks=0`, and when the broker answered
            that it already has the record (DUPLICATE_SEQUENCE_NUMBER) without saying where.
        timestamp: Milliseconds since the epoch: the broker's append time where the topic has
            `message.timestamp.type=LogAppendTime`, else the record's own; -1 when not known.
        serialized_key_size: Bytes of the key, -1 for a null key.
        serialized_value_size: Bytes of the value, -1 for a null value.
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
        """Whether the broker told the offset."""
        return self.offset >= 0


class PartitionInfo(NamedTuple):
    """One partition as the cluster's metadata has it.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        leader: The leader's node id, -1 while there is none.
        replicas: Node ids of the replicas.
        in_sync_replicas: Node ids of those that keep up.
    """

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class SilentBroker(NamedTuple):
    """A broker that stopped answering: requests wait for it, and for a second or more no byte came.

    Attributes:
        node_id: The broker's id; negative for a bootstrap server, before metadata says which broker it is.
        host: Where it listens.
        port: Its port.
        seconds: For how long it has said nothing.
        requests: Requests that wait for its answer; 0 while it is being connected to again.
        records: Accepted records without an outcome whose partitions it leads.
    """

    node_id: int
    host: str
    port: int
    seconds: float
    requests: int
    records: int


class ClusterInfo(NamedTuple):
    """What `Producer.check()` found.

    Attributes:
        cluster_id: The cluster's id, `None` from brokers that do not tell.
        brokers: Node id -> `host:port`.
    """

    cluster_id: str | None
    brokers: dict[int, str]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """How far a consumer group has come in one partition.

    Args:
        offset: Of the next record to read: the last one that was processed, plus 1.
        leader_epoch: Of the last record that was read, where the consumer tells (KIP-320); -1: not known.
        metadata: A text of one's own, at most the broker's `offset.metadata.max.bytes` (4096).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer group, and who in it has read what a transaction is made of (KIP-447).

    With a generation and a member the broker refuses offsets of one that has lost its partitions to another.
    Without them (a consumer that assigned its partitions itself) nobody is refused.

    Args:
        group_id: The group's name.
        generation_id: Of the group's latest rebalance; the member's epoch with KIP-848; -1: none.
        member_id: The member's id; empty: none.
        group_instance_id: Of a static member (KIP-345).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
