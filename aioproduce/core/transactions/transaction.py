"""One transaction from beginning to end: its content, and the knowledge of its outcome.

Owned by the transaction manager. Nothing carries over: offsets, partitions and doubts of one transaction never
reach the next. (Java sends offsets whose commit failed with the next transaction.)
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, TypeAlias, final

from aioproduce.core.transactions import refusals
from aioproduce.core.transactions.operation import Operation
from aioproduce.core.transactions.steps import (
    AddOffsetsStep,
    AddPartitionsStep,
    EndTxnStep,
    TxnOffsetCommitStep,
)
from aioproduce.errors import TransactionOutcome
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.core.batching.record_audit import RecordAudit
    from aioproduce.core.transactions.endings import Verdict
    from aioproduce.core.transactions.steps import Step, Who
    from aioproduce.errors import TransactionError
    from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition

Offsets: TypeAlias = "Mapping[TopicPartition, OffsetAndMetadata]"
"""The offset of the next record to read, by partition."""


Outcomes = Counter[TransactionOutcome]
"""The number of transactions by outcome."""

OnEnded: TypeAlias = "Callable[[TransactionOutcome | None, BaseException | None], object]"
"""Called with the outcome of a transaction, and the error if there was one."""


@final
class GroupOffsets:
    """Offsets of one group, to be committed with the transaction; one call of `send_offsets()`.

    Attributes:
        group: The group and its calling member.
        offsets: By partition, without those that the coordinator has accepted.
        operation: The operation of the call.
        asked_at: When the call was made.
    """

    __slots__ = ("asked_at", "group", "offsets", "operation")

    def __init__(self, group: GroupMetadata, offsets: Offsets, operation: Operation, now: float) -> None:
        self.group: GroupMetadata = group
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = dict(offsets)
        self.operation: Operation = operation
        self.asked_at: float = now


@final
class Transaction:
    """The content and state of a transaction.

    Attributes:
        version: 1, or 2 (KIP-890 part 2), for its beginning and its end.
        first_sent_at: When the coordinator may first have learned of it; infinity before.
        deadline: When the coordinator is about to abort it, by this producer's clock.
        wanted: Partitions that records wait for (version 1).
        partitions: Those that the coordinator knows of (version 1).
        offsets: The offsets not committed yet, in the order of the calls.
        groups: Groups that the coordinator knows of (version 1).
        has_doubt: Whether the outcome of one of its requests is unknown: it may arrive late.
        is_unconfirmed: Whether an EndTxn was sent and its outcome is unknown.
        is_prepared: Whether somebody else may end it too: its PreparedTransaction was returned.
        is_resumed: Whether another process prepared it.
        was_fenced: Whether a broker called its epoch old, after a time-out or for another producer.
        is_probed: Whether an abort is sent to find out the outcome of a commit.
        error: Why it can only be aborted.
        outcome: Its outcome; `None` until that is known.
        commits_at: When it commits by itself; infinity: never. Such a transaction also aborts by itself.
        whole: Ends with the outcome, if the transaction commits by itself; else `None`.
        on_ended: Called once with the outcome (`None` if it is not known yet) and the error; or `None`.
        outcomes: Counts the producer's transactions by outcome; this one counts once.
    """

    __slots__ = (
        "_audit",
        "_timeout",
        "commits_at",
        "deadline",
        "error",
        "first_sent_at",
        "groups",
        "has_doubt",
        "is_prepared",
        "is_probed",
        "is_resumed",
        "is_unconfirmed",
        "offsets",
        "on_ended",
        "outcome",
        "outcomes",
        "partitions",
        "version",
        "wanted",
        "was_fenced",
        "whole",
    )

    deadline: float
    first_sent_at: float
    has_doubt: bool
    is_prepared: bool
    is_probed: bool
    is_resumed: bool
    is_unconfirmed: bool
    was_fenced: bool

    def __init__(
        self,
        version: int,
        timeout: float,
        outcomes: Outcomes,
        commits_at: float = inf,
        audit: RecordAudit | None = None,
    ) -> None:
        self.version: int = version
        self._audit = audit
        if audit is not None:
            audit.transaction_began()
        self.first_sent_at = self.deadline = inf
        self._timeout = timeout
        self.wanted: dict[TopicPartition, None] = {}
        self.partitions: set[TopicPartition] = set()
        self.offsets: list[GroupOffsets] = []
        self.groups: set[str] = set()
        self.has_doubt = self.is_unconfirmed = self.is_probed = self.was_fenced = False
        self.is_prepared = self.is_resumed = False
        self.error: TransactionError | None = None
        self.outcome: TransactionOutcome | None = None
        self.outcomes: Outcomes = outcomes
        self.on_ended: OnEnded | None = None
        self.commits_at: float = commits_at
        self.whole: Operation | None = Operation("commit") if commits_at < inf else None

    @classmethod
    def resumed(cls, version: int, now: float, outcomes: Outcomes) -> Transaction:
        """Return a transaction that another process prepared."""
        transaction = cls(version, inf, outcomes)
        transaction.is_prepared = transaction.is_resumed = True
        transaction.sent(now)
        return transaction

    @property
    def is_known_to_the_coordinator(self) -> bool:
        """Whether a request may have registered it: then it must be ended at the coordinator."""
        return self.first_sent_at < inf

    def sent(self, now: float) -> None:
        """Note that the coordinator may know of it from now on."""
        if now < self.first_sent_at:
            self.first_sent_at, self.deadline = now, now + self._timeout

    def open_for(self, now: float) -> float:
        """Return the seconds since the coordinator may know of it; 0 before, and once it has its outcome."""
        return 0.0 if self.outcome is not None else max(now - self.first_sent_at, 0.0)

    def fenced(self, now: float) -> None:
        """Note that a broker called its epoch old."""
        self.was_fenced = True
        self.sent(now)

    def next_step(self, who: Who, *, is_aborting: bool) -> Step | None:
        """Return the next request before its end (partitions, a group, a group's offsets), or `None`."""
        if self.wanted and not is_aborting:
            return AddPartitionsStep(who, self.version, list(self.wanted))
        for offsets in self.offsets:
            if self.version == 1 and offsets.group.group_id not in self.groups:
                return AddOffsetsStep(who, self.version, offsets)
            return TxnOffsetCommitStep(who, self.version, offsets)
        return None

    def added(self, results: Mapping[TopicPartition, int], now: float) -> list[TopicPartition]:
        """Accept the coordinator's code for each partition; return those that may be sent to now."""
        added = [partition for partition, code in results.items() if code == codes.NONE]
        for topic_partition in added:
            self.wanted.pop(topic_partition, None)
            self.partitions.add(topic_partition)
            self.sent(now)
        return added

    def step_done(self, step: Step, now: float) -> None:
        """Accept that a step succeeded."""
        if isinstance(step, AddOffsetsStep):
            self.groups.add(step.offsets.group.group_id)
            self.sent(now)
        elif isinstance(step, TxnOffsetCommitStep) and step.offsets in self.offsets:
            self.offsets.remove(step.offsets)
            step.offsets.operation.end()

    def step_in_doubt(self, step: Step, now: float) -> None:
        """Note that the coordinator may have executed a step."""
        if step.may_register or isinstance(step, EndTxnStep):
            self.has_doubt = True
            self.sent(now)
        if isinstance(step, EndTxnStep) and step.committed:
            self.is_unconfirmed = True

    def verdict(self, *, is_commit: bool) -> Verdict:
        """Return the verdict of its EndTxn."""
        if is_commit:
            return "commit"
        if self.is_probed:
            return "probe"
        return "abort prepared" if self.is_prepared else "abort"

    def wants_new_epoch(self, version: int, *, has_one: bool) -> bool:
        """Return whether the next transaction needs an epoch that neither late requests nor anybody else has.

        Args:
            version: The version of the next transaction.
            has_one: Whether the end of this one brought an epoch. If a broker called this producer fenced, an
                abort may bring the epoch of the producer that fenced it and ended a transaction with version 1.
        """
        if self.is_resumed:
            return False
        if self.is_prepared and version == 1:
            # Another holder of its PreparedTransaction could end the next one, or confuse the ends of the two.
            return True
        return self.was_fenced or (not has_one and (self.has_doubt or version != self.version))

    @property
    def outcome_when_fenced(self) -> TransactionOutcome:
        """The outcome after a fence: aborted by the new producer, unknown if a commit may have come first."""
        is_decided_before = self.is_unconfirmed or self.is_prepared
        return TransactionOutcome.UNKNOWN if is_decided_before else TransactionOutcome.ABORTED

    def drop(self, error: TransactionError) -> None:
        """Drop all pending requests; the waiters for offsets get the error."""
        for offsets in self.offsets:
            offsets.operation.end(error)
        self.offsets.clear()
        self.wanted.clear()

    def fail(self, error: TransactionError) -> None:
        """Note the error after which it can only be aborted."""
        self.error = error
        if error.code == codes.UNKNOWN_PRODUCER_ID:
            self.has_doubt = True  # with the same id and epoch the next one would fail in the same way
        self.drop(error)

    def given_up(self, error: TransactionError) -> None:
        """Give it up; the error holds what is known of its outcome."""
        self.drop(error)
        self.ended(error, error.outcome)

    def ended(self, error: TransactionError | None, outcome: TransactionOutcome | None) -> None:
        """Note the outcome, or that nobody asks for it any more; a known outcome stays."""
        if self.outcome is None and outcome is not None:
            self.outcome = outcome
            self.outcomes[outcome] += 1
        if self._audit is not None:
            self._audit.transaction_ended(outcome)
            self._audit = None  # a second call may come when the audit belongs to the next one
        self._tell_ended(error or self.error)
        if self.whole is not None:
            if (
                outcome is TransactionOutcome.ABORTED
            ):  # also by a close: those who wait for the whole did not ask for the abort
                error = error or self.error or refusals.aborted_meanwhile()
            self.whole.end(error or self.error, outcome)

    def _tell_ended(self, error: TransactionError | None) -> None:
        on_ended, self.on_ended = self.on_ended, None
        if on_ended is not None:
            on_ended(self.outcome, error)

    def wake(self) -> None:
        """Wake all waiters after the sender's death."""
        self._tell_ended(self.error)
        for offsets in self.offsets:
            offsets.operation.wake()
        if self.whole is not None:
            self.whole.wake()

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch of this partition may be sent; with version 1 it must be registered first."""
        if self.version > 1 or topic_partition in self.partitions:
            return True
        self.wanted[topic_partition] = None
        return False
