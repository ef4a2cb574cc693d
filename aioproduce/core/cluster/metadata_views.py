"""Views of topics and partitions that ClusterMetadata keeps up to date, and the types of its results.

ClusterMetadata makes and writes them. The Sender, the accumulator and the partitioner read them and may cache
the views.

1. `partitions[n].partition == n`, and `partition_count == len(partitions)`.
2. `available` lists exactly the partitions whose `leader_id` is not -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioproduce._native.collector import untrack
from aioproduce.wire import error_codes

if TYPE_CHECKING:
    from uuid import UUID

    from aioproduce.records import TopicPartition

__all__ = ["MetadataChange", "MetadataQuery", "PartitionView", "TopicView"]


class PartitionView:
    """The known metadata of one partition. Only ClusterMetadata writes it.

    Attributes:
        partition: Its number.
        leader_id: The leader's node id; -1 while there is none, or its address is unknown.
        leader_epoch: The newest leader epoch seen; -1 if the brokers do not report it.
        error_code: The partition's error code in the last answer, 0 for none.
        replicas: Node ids of its replicas.
        isr: Node ids of the in-sync replicas.
        reported_leader_id: The leader that the brokers reported, known node or not.
    """

    __slots__ = (
        "_reported_leader",
        "error_code",
        "isr",
        "leader_epoch",
        "leader_id",
        "partition",
        "replicas",
        "reported_leader_id",
    )

    def __init__(self, partition: int) -> None:
        self.partition: Final = partition
        self.leader_id: int = -1
        self.leader_epoch: int = -1
        self.error_code: int = error_codes.NONE
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.reported_leader_id: int = -1
        untrack(self)


class TopicView:
    """The known metadata of one wanted topic. A reader may set `used_at`; ClusterMetadata writes the rest.

    Attributes:
        name: Its name.
        topic_id: Its id, `None` from brokers older than 2.8.
        error_code: The topic's error code in the last answer, 0 for none.
        is_internal: Whether it is one of Kafka's internal topics.
        partition_count: The number of partitions; 0 before the first answer.
        partitions: The partitions, indexed by number.
        available: The numbers of the partitions that have a leader, ascending.
        used_at: When a record was last sent to it.
        is_answered: Whether any answer about it arrived, also an error.
        was_missing: Whether the last answer reported no such topic, and no earlier answer reported one.
    """

    __slots__ = (
        "available",
        "error_code",
        "is_answered",
        "is_internal",
        "name",
        "partition_count",
        "partitions",
        "topic_id",
        "used_at",
        "was_missing",
    )

    def __init__(self, name: str, used_at: float) -> None:
        self.name: Final = name
        self.was_missing: bool = False
        self.topic_id: UUID | None = None
        self.error_code: int = error_codes.NONE
        self.is_internal: bool = False
        self.partition_count: int = 0
        self.partitions: list[PartitionView] = []
        self.available: tuple[int, ...] = ()
        self.used_at: float = used_at
        self.is_answered: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether records can be assigned to its partitions."""
        return self.partition_count > 0 and self.error_code == error_codes.NONE


@dataclass(frozen=True, slots=True)
class MetadataQuery:
    """The content of the next metadata request.

    Attributes:
        topics: The topics; an empty tuple asks for the brokers only.
        is_full: Whether these are all wanted topics.
    """

    topics: tuple[str, ...]
    is_full: bool


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """The changes that an answer made.

    Attributes:
        topics: Wanted topics in the answer: each is usable now, or has a `topic_error()`. In rare cases it has
            neither, and the next update asks again.
        leaders: Partitions whose leader or leader epoch changed; a change from -1 to a leader counts.
        recreated: Topics whose id changed: the old topic and its log no longer exist.
        dropped: Topics that are no longer wanted, because they were idle too long.
        appeared: Topics that the previous answer reported as missing.
    """

    topics: tuple[str, ...] = ()
    leaders: tuple[TopicPartition, ...] = ()
    recreated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    appeared: tuple[str, ...] = ()
