"""What ClusterMetadata tells: views of a topic and its partitions that it keeps up to date, and its answers.

Made and written by ClusterMetadata; read by the Sender, the accumulator and the partitioner, which may cache
the views.

1. `partitions[n].partition == n`, and `partition_count == len(partitions)`.
2. `available` lists exactly the partitions whose `leader_id` is not -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from aioproduce.wire import error_codes

if TYPE_CHECKING:
    from uuid import UUID

    from aioproduce.records import TopicPartition

__all__ = ["MetadataChange", "MetadataQuery", "PartitionView", "TopicView"]


@final
class PartitionView:
    """What is known of one partition. Read it; only ClusterMetadata writes it.

    Attributes:
        partition: Its number.
        leader_id: The leader's node id; -1 while there is none, or none that we know the address of.
        leader_epoch: The newest leader epoch seen, -1 where the brokers do not tell.
        error_code: The partition's error code in the last answer, 0 for none.
        replicas: Node ids of its replicas.
        isr: Node ids of those in sync.
        reported_leader_id: The leader as the brokers said, whether we know that node or not.
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


@final
class TopicView:
    """What is known of one wanted topic. Read it, and set `used_at` on use; the rest is ClusterMetadata's.

    Attributes:
        name: Its name.
        topic_id: Its id, `None` from brokers older than 2.8.
        error_code: The topic's error code in the last answer, 0 for none.
        is_internal: Whether it is one of Kafka's own.
        partition_count: How many partitions it has; 0 until an answer came.
        partitions: Each partition, at the index of its number.
        available: The numbers of the partitions that have a leader, ascending.
        used_at: When it was last sent to.
        is_answered: Whether any answer about it came, be it an error.
        was_missing: Whether the last answer said that there is no such topic, and none before it knew one.
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
    """What the next metadata request shall ask.

    Attributes:
        topics: The topics; none at all asks for the brokers only.
        is_full: Whether these are all that are wanted.
    """

    topics: tuple[str, ...]
    is_full: bool


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """What an answer brought.

    Attributes:
        topics: Wanted topics that were answered: each is usable now, or has a `topic_error()`, or (rarely)
            neither, and will be asked for again.
        leaders: Partitions whose leader, or its epoch, is another than before; -1 to a leader counts.
        recreated: Topics whose id changed: the old topic and its log are gone.
        dropped: Topics that were not used for so long that they are not wanted any more.
        appeared: Topics that were not there in the answer before this one.
    """

    topics: tuple[str, ...] = ()
    leaders: tuple[TopicPartition, ...] = ()
    recreated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    appeared: tuple[str, ...] = ()
