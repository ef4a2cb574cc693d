"""One transaction, from begin to end: what is in it, and what is known of its fate.

Owned by the transaction manager. Nothing of it outlives it: offsets, partitions and doubts of one transaction are
never those of the next (in Java offsets whose commit failed go out with the next transaction's).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.core.transactions.operation import Operation
    from aioproduce.errors import TransactionError
    from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition


@final
class GroupOffsets:
    """Offsets of one group, to be committed with the transaction; one call of `send_offsets()`.

    Attributes:
        group: The group, and who in it asks.
        offsets: By partition; those that the coordinator has taken are taken out.
        operation: Of the call.
        is_added: Whether the transaction's coordinator knows of the group (version 1).
        asked_at: When they were first asked to be taken; infinity before.
    """

    __slots__ = ("asked_at", "group", "is_added", "offsets", "operation")

    def __init__(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], operation: Operation
    ) -> None:
        self.group = group
        self.offsets = dict(offsets)
        self.operation = operation
        self.is_added = False
        self.asked_at = inf


@final
class Transaction:
    """What is in one.

    Attributes:
        version: 1, or 2 (KIP-890 part 2), in which it was begun and is ended.
        began_at: When `begin()` was called.
        first_sent_at: When the coordinator may first have heard of it; infinity before.
        wanted: Partitions that records wait for (version 1).
        partitions: Those that the coordinator knows of (version 1).
        offsets: What is not committed yet, in the order of the calls.
        groups: Groups that the coordinator knows of (version 1).
        has_doubt: Whether the outcome of any of its requests is unknown: one may arrive late.
        is_unconfirmed: Whether an EndTxn was sent and its outcome is unknown.
        is_probed: Whether an abort is asked for to hear what became of a commit.
        error: Why it can only be aborted.
    """

    __slots__ = (
        "began_at",
        "error",
        "first_sent_at",
        "groups",
        "has_doubt",
        "is_probed",
        "is_unconfirmed",
        "offsets",
        "partitions",
        "version",
        "wanted",
    )

    def __init__(self, version: int, began_at: float) -> None:
        self.version = version
        self.began_at = began_at
        self.first_sent_at = inf
        self.wanted: dict[TopicPartition, None] = {}
        self.partitions: set[TopicPartition] = set()
        self.offsets: list[GroupOffsets] = []
        self.groups: set[str] = set()
        self.has_doubt = self.is_unconfirmed = self.is_probed = False
        self.error: TransactionError | None = None

    @property
    def is_known_to_the_coordinator(self) -> bool:
        """Whether anything was sent that may have registered it: it must be ended there."""
        return self.first_sent_at < inf

    def sent(self, now: float) -> None:
        """The coordinator knows of it now, or may know of it."""
        self.first_sent_at = min(self.first_sent_at, now)

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent; with version 1 the coordinator is to know of it first."""
        if self.version > 1 or topic_partition in self.partitions:
            return True
        self.wanted[topic_partition] = None
        return False
