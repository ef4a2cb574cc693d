"""The requests of a transaction: content, recipient, and the interpretation of the answer.

The transaction manager makes them, one at a time. A step knows its request and its answer. The manager decides what
an answer means for the transaction (`answers` has the table).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from aioproduce.core.transactions.answers import Action, action_for
from aioproduce.core.transactions.coordinators import GROUP, TRANSACTION, CoordinatorKey
from aioproduce.core.transactions.endings import is_still_ours, outcome_of
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_init_producer_id
from aioproduce.wire.transaction_requests import (
    encode_add_offsets_to_txn,
    encode_add_partitions_to_txn,
    encode_describe_transactions,
    encode_end_txn,
    encode_find_coordinator,
    encode_txn_offset_commit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproduce.core.batching.producer_batch import ProducerIdAndEpoch
    from aioproduce.core.effects import Buffer
    from aioproduce.core.transactions.transaction import GroupOffsets
    from aioproduce.errors import TransactionOutcome
    from aioproduce.records import TopicPartition

LAST_OF_VERSION_1: Final[dict[ApiKey, int]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
"""Later versions of these requests mean transaction.version 2, regardless of the cluster's feature."""

_FIRST_OF_MEMBERS: Final = 3
"""The first version of TxnOffsetCommit that names the calling member (KIP-447, Kafka 2.5)."""

_GRAVITY: Final = (
    Action.FATAL,
    Action.FENCED,
    Action.ABORTABLE,
    Action.FIND,
    Action.RETRY,
    Action.RETRY_SOON,
    Action.DONE,
)


class Who:
    """The sender of requests: the names that each of them contains.

    Attributes:
        client_id: Kafka's `client.id`.
        transactional_id: Kafka's `transactional.id`.
        timeout: Seconds for which a transaction may be open.
        producer: The producer id and epoch.
    """

    __slots__ = ("client_id", "producer", "timeout", "transactional_id")

    def __init__(
        self, client_id: str, transactional_id: str, timeout: float, producer: ProducerIdAndEpoch
    ) -> None:
        self.client_id: str = client_id
        self.transactional_id: str = transactional_id
        self.timeout: float = timeout
        self.producer: ProducerIdAndEpoch = producer

    @property
    def coordinator(self) -> CoordinatorKey:
        """The key of the transactional id's coordinator."""
        return CoordinatorKey(TRANSACTION, self.transactional_id)


class Step:
    """One request.

    Attributes:
        api: Its API.
        version: The version of its transaction.
        coordinator: Its recipient; for a FindCoordinator, the transaction's coordinator.
        may_register: Whether the coordinator may know of the transaction once this is sent.
        is_optional: Whether a broker may lack support for it.
    """

    __slots__ = ("coordinator", "version", "who")

    api: ClassVar[ApiKey]
    may_register: ClassVar[bool] = False
    is_optional: ClassVar[bool] = False

    def __init__(self, who: Who, version: int, coordinator: CoordinatorKey | None = None) -> None:
        self.who: Who = who
        self.version: int = version
        self.coordinator: CoordinatorKey = who.coordinator if coordinator is None else coordinator

    @property
    def max_version(self) -> int | None:
        """The highest version of the request that may be used."""
        return LAST_OF_VERSION_1.get(self.api) if self.version == 1 else None

    @property
    def min_version(self) -> int:
        """The lowest version of the request that has all needed fields."""
        return 0

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        raise NotImplementedError

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Return the action for the answer's gravest code, the code, and its subject in words."""
        return action_for(self.api, response.error_code), response.error_code, ""


def _gravest(api: ApiKey, results: Mapping[TopicPartition, int]) -> tuple[Action, int, str]:
    failed = {each: code for each, code in results.items() if action_for(api, code) is not Action.DONE}
    # Some partitions were not attempted because of another one, whose code is the cause.
    causes = {each: code for each, code in failed.items() if code != codes.OPERATION_NOT_ATTEMPTED} or failed
    if not causes:
        return Action.DONE, codes.NONE, ""
    gravest = min(causes, key=lambda each: _GRAVITY.index(action_for(api, causes[each])))
    return action_for(api, causes[gravest]), causes[gravest], str(gravest)


@final
class FindCoordinatorStep(Step):
    """FindCoordinator: the broker that coordinates a key."""

    __slots__ = ("key",)

    api = ApiKey.FIND_COORDINATOR

    def __init__(self, who: Who, key: CoordinatorKey) -> None:
        super().__init__(who, 0)
        self.key: CoordinatorKey = key

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        return [
            encode_find_coordinator(
                version, correlation_id, self.who.client_id, self.key.name, key_type=self.key.kind
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        action, code, _ = super().judge(response)
        return action, code, self.key.text


@final
class InitProducerIdStep(Step):
    """InitProducerId: a producer id, or a new epoch of the current one (KIP-360)."""

    __slots__ = ()

    api = ApiKey.INIT_PRODUCER_ID

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        who = self.who
        return [
            encode_init_producer_id(
                version,
                correlation_id,
                who.client_id,
                transactional_id=who.transactional_id,
                transaction_timeout=who.timeout,
                producer_id=who.producer.producer_id,
                producer_epoch=who.producer.epoch,
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        action, code, _ = super().judge(response)
        return action, code, self.coordinator.text


@final
class AddPartitionsStep(Step):
    """AddPartitionsToTxn, version 1 only: the records' partitions, before the first record."""

    __slots__ = ("partitions",)

    api = ApiKey.ADD_PARTITIONS_TO_TXN
    may_register = True

    def __init__(self, who: Who, version: int, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(who, version)
        self.partitions: Sequence[TopicPartition] = partitions

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        who = self.who
        return [
            encode_add_partitions_to_txn(
                version,
                correlation_id,
                who.client_id,
                transactional_id=who.transactional_id,
                producer_id=who.producer.producer_id,
                producer_epoch=who.producer.epoch,
                partitions=self.partitions,
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        return _gravest(self.api, response.partitions)


@final
class AddOffsetsStep(Step):
    """AddOffsetsToTxn, version 1 only: the group, before its offsets."""

    __slots__ = ("offsets",)

    api = ApiKey.ADD_OFFSETS_TO_TXN
    may_register = True

    def __init__(self, who: Who, version: int, offsets: GroupOffsets) -> None:
        super().__init__(who, version)
        self.offsets: GroupOffsets = offsets

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        who = self.who
        return [
            encode_add_offsets_to_txn(
                version,
                correlation_id,
                who.client_id,
                transactional_id=who.transactional_id,
                producer_id=who.producer.producer_id,
                producer_epoch=who.producer.epoch,
                group_id=self.offsets.group.group_id,
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        action, code, _ = super().judge(response)
        return action, code, f"the group {self.offsets.group.group_id!r}"


@final
class TxnOffsetCommitStep(Step):
    """TxnOffsetCommit: a group's offsets, to the group's coordinator."""

    __slots__ = ("offsets",)

    api = ApiKey.TXN_OFFSET_COMMIT
    may_register = True

    def __init__(self, who: Who, version: int, offsets: GroupOffsets) -> None:
        super().__init__(who, version, CoordinatorKey(GROUP, offsets.group.group_id))
        self.offsets: GroupOffsets = offsets

    @property
    def min_version(self) -> int:
        """The lowest version: an earlier one does not detect a member that lost its partitions."""
        group = self.offsets.group
        is_member = group.generation_id >= 0 or group.member_id != "" or group.group_instance_id is not None
        return _FIRST_OF_MEMBERS if is_member else 0

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        who = self.who
        return [
            encode_txn_offset_commit(
                version,
                correlation_id,
                who.client_id,
                transactional_id=who.transactional_id,
                producer_id=who.producer.producer_id,
                producer_epoch=who.producer.epoch,
                group=self.offsets.group,
                offsets=self.offsets.offsets,
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        offsets = self.offsets.offsets
        for topic_partition, code in response.partitions.items():
            if code == codes.NONE:
                offsets.pop(topic_partition, None)
        action, code, what = _gravest(self.api, response.partitions)
        if action is Action.DONE and offsets:
            # The answer left some out: send them again.
            return Action.RETRY, codes.UNKNOWN_SERVER_ERROR, str(next(iter(offsets)))
        return action, code, f"{self.coordinator.text} for {what}"


@final
class EndTxnStep(Step):
    """EndTxn: commit or abort."""

    __slots__ = ("committed",)

    api = ApiKey.END_TXN

    def __init__(self, who: Who, version: int, *, committed: bool) -> None:
        super().__init__(who, version)
        self.committed: bool = committed

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        who = self.who
        return [
            encode_end_txn(
                version,
                correlation_id,
                who.client_id,
                transactional_id=who.transactional_id,
                producer_id=who.producer.producer_id,
                producer_epoch=who.producer.epoch,
                committed=self.committed,
            )
        ]


class _DescribeStep(Step):
    """DescribeTransactions: the coordinator's state of the transactional id."""

    __slots__ = ()

    api = ApiKey.DESCRIBE_TRANSACTIONS

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """Return the encoded request."""
        return [
            encode_describe_transactions(
                version, correlation_id, self.who.client_id, [self.who.transactional_id]
            )
        ]


@final
class DescribeTransactionStep(_DescribeStep):
    """DescribeTransactions, version 1 only: the state of a transaction that the coordinator calls fenced."""

    __slots__ = ()

    is_optional = True

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does."""
        found = response.transactions.get(self.who.transactional_id)
        code = codes.NONE if found is None else found.error_code
        return action_for(self.api, code), code, ""

    def is_still_ours(self, response: Any) -> bool:
        """Return whether nobody has taken over; if the broker cannot be asked (`None`), the fence counts."""
        if response is None:
            return False
        return is_still_ours(self.who.producer, response.transactions.get(self.who.transactional_id))


@final
class OutcomeStep(_DescribeStep):
    """DescribeTransactions: the outcome of a prepared transaction; changes nothing."""

    __slots__ = ()

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """Judge as `Step` does; a denied id ends the call, since the broker reports nothing about it."""
        found = response.transactions.get(self.who.transactional_id)
        code = codes.UNKNOWN_SERVER_ERROR if found is None else found.error_code
        if code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return Action.FATAL, code, self.coordinator.text
        return action_for(self.api, code), code, self.coordinator.text

    def outcome(self, response: Any) -> TransactionOutcome | None:
        """Return the outcome; `None` while the transaction is open."""
        found = response.transactions.get(self.who.transactional_id)
        return outcome_of(self.who.producer, self.version, found)


@final
class MarkersStep(_DescribeStep):
    """DescribeTransactions: whether the last transaction's markers are written; only the pause uses it."""

    __slots__ = ()

    is_optional = True

    def judge(self, response: Any) -> tuple[Action, int, str]:  # noqa: ARG002
        """Return `DONE` for any answer: this is not retried as a failure."""
        return Action.DONE, codes.NONE, ""

    def are_written(self, response: Any) -> bool | None:
        """Return whether they are written; `None` if the broker does not report it."""
        found = None if response is None else response.transactions.get(self.who.transactional_id)
        if found is None or found.error_code != codes.NONE:
            return None
        return not found.state.startswith("Prepare")
