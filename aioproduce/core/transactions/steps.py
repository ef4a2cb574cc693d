"""The requests of a transaction: what each says, to whom, and what is to be looked at in its answer.

Made by the transaction manager, one at a time. A step knows its request and its answer; what an answer means for
the transaction is the manager's (`answers` has the table).
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
"""Later versions of these requests mean transaction.version 2, whatever the cluster's feature is."""

_FIRST_OF_MEMBERS: Final = 3
"""The version of TxnOffsetCommit from which on it says which member asks (KIP-447, Kafka 2.5)."""

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
    """Whose requests they are: the names that every one of them carries.

    Attributes:
        client_id: Kafka's `client.id`.
        transactional_id: Kafka's `transactional.id`.
        timeout: Seconds that a transaction may be open.
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
        """Of the transactional id."""
        return CoordinatorKey(TRANSACTION, self.transactional_id)


class Step:
    """One request.

    Attributes:
        api: Which.
        version: Of the transaction that it belongs to.
        coordinator: Whom it is sent to, or, by a FindCoordinator, the transaction's.
        may_register: Whether the coordinator knows of the transaction once it was sent.
        is_optional: Whether a broker that does not know the request is no reason to give up.
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
        """The last version of the request that may be used."""
        return LAST_OF_VERSION_1.get(self.api) if self.version == 1 else None

    @property
    def min_version(self) -> int:
        """The first version of the request that says what is to be said."""
        return 0

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
        raise NotImplementedError

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """What the answer calls for, by its gravest code: the action, the code, and what it is about."""
        return action_for(self.api, response.error_code), response.error_code, ""


def _gravest(api: ApiKey, results: Mapping[TopicPartition, int]) -> tuple[Action, int, str]:
    failed = {each: code for each, code in results.items() if action_for(api, code) is not Action.DONE}
    # Some partitions were not attempted because of another one: the code of that one is the cause.
    causes = {each: code for each, code in failed.items() if code != codes.OPERATION_NOT_ATTEMPTED} or failed
    if not causes:
        return Action.DONE, codes.NONE, ""
    gravest = min(causes, key=lambda each: _GRAVITY.index(action_for(api, causes[each])))
    return action_for(api, causes[gravest]), causes[gravest], str(gravest)


@final
class FindCoordinatorStep(Step):
    """Which broker coordinates this?"""

    __slots__ = ("key",)

    api = ApiKey.FIND_COORDINATOR

    def __init__(self, who: Who, key: CoordinatorKey) -> None:
        super().__init__(who, 0)
        self.key: CoordinatorKey = key

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
        return [
            encode_find_coordinator(
                version, correlation_id, self.who.client_id, self.key.name, key_type=self.key.kind
            )
        ]

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """As `Step` has it."""
        action, code, _ = super().judge(response)
        return action, code, self.key.text


@final
class InitProducerIdStep(Step):
    """A producer id, or a new epoch of the one that there is (KIP-360)."""

    __slots__ = ()

    api = ApiKey.INIT_PRODUCER_ID

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
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
        """As `Step` has it."""
        action, code, _ = super().judge(response)
        return action, code, self.coordinator.text


@final
class AddPartitionsStep(Step):
    """With version 1: the partitions that records are for, before the first of them."""

    __slots__ = ("partitions",)

    api = ApiKey.ADD_PARTITIONS_TO_TXN
    may_register = True

    def __init__(self, who: Who, version: int, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(who, version)
        self.partitions: Sequence[TopicPartition] = partitions

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
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
        """As `Step` has it."""
        return _gravest(self.api, response.partitions)


@final
class AddOffsetsStep(Step):
    """With version 1: a group whose offsets are to come."""

    __slots__ = ("offsets",)

    api = ApiKey.ADD_OFFSETS_TO_TXN
    may_register = True

    def __init__(self, who: Who, version: int, offsets: GroupOffsets) -> None:
        super().__init__(who, version)
        self.offsets: GroupOffsets = offsets

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
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
        """As `Step` has it."""
        action, code, _ = super().judge(response)
        return action, code, f"the group {self.offsets.group.group_id!r}"


@final
class TxnOffsetCommitStep(Step):
    """A group's offsets, to its own coordinator."""

    __slots__ = ("offsets",)

    api = ApiKey.TXN_OFFSET_COMMIT
    may_register = True

    def __init__(self, who: Who, version: int, offsets: GroupOffsets) -> None:
        super().__init__(who, version, CoordinatorKey(GROUP, offsets.group.group_id))
        self.offsets: GroupOffsets = offsets

    @property
    def min_version(self) -> int:
        """As `Step` has it: by an earlier one a member that has lost its partitions would not be refused."""
        group = self.offsets.group
        is_member = group.generation_id >= 0 or group.member_id != "" or group.group_instance_id is not None
        return _FIRST_OF_MEMBERS if is_member else 0

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
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
        """As `Step` has it."""
        offsets = self.offsets.offsets
        for topic_partition, code in response.partitions.items():
            if code == codes.NONE:
                offsets.pop(topic_partition, None)
        action, code, what = _gravest(self.api, response.partitions)
        if action is Action.DONE and offsets:
            # Left out of the answer: asked for again.
            return Action.RETRY, codes.UNKNOWN_SERVER_ERROR, str(next(iter(offsets)))
        return action, code, f"{self.coordinator.text} for {what}"


@final
class EndTxnStep(Step):
    """The verdict."""

    __slots__ = ("committed",)

    api = ApiKey.END_TXN

    def __init__(self, who: Who, version: int, *, committed: bool) -> None:
        super().__init__(who, version)
        self.committed: bool = committed

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
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
    """What the coordinator knows of the transactional id."""

    __slots__ = ()

    api = ApiKey.DESCRIBE_TRANSACTIONS

    def encode(self, version: int, correlation_id: int) -> Sequence[Buffer]:
        """The request."""
        return [
            encode_describe_transactions(
                version, correlation_id, self.who.client_id, [self.who.transactional_id]
            )
        ]


@final
class DescribeTransactionStep(_DescribeStep):
    """With version 1: what the coordinator knows of a transaction that it calls fenced."""

    __slots__ = ()

    is_optional = True

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """As `Step` has it."""
        found = response.transactions.get(self.who.transactional_id)
        code = codes.NONE if found is None else found.error_code
        return action_for(self.api, code), code, ""

    def is_still_ours(self, response: Any) -> bool:
        """Whether nobody has taken over; a broker that cannot be asked (`None`) has called the producer fenced."""
        if response is None:
            return False
        return is_still_ours(self.who.producer, response.transactions.get(self.who.transactional_id))


@final
class OutcomeStep(_DescribeStep):
    """What became of a prepared transaction? Nothing is changed."""

    __slots__ = ()

    def judge(self, response: Any) -> tuple[Action, int, str]:
        """As `Step` has it; an id that is denied ends the call, as nothing is told of it."""
        found = response.transactions.get(self.who.transactional_id)
        code = codes.UNKNOWN_SERVER_ERROR if found is None else found.error_code
        if code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return Action.FATAL, code, self.coordinator.text
        return action_for(self.api, code), code, self.coordinator.text

    def outcome(self, response: Any) -> TransactionOutcome | None:
        """What became of it; `None` while it is open."""
        found = response.transactions.get(self.who.transactional_id)
        return outcome_of(self.who.producer, self.version, found)


@final
class MarkersStep(_DescribeStep):
    """Are the markers of the transaction before written? Nothing depends on it but a pause."""

    __slots__ = ()

    is_optional = True

    def judge(self, response: Any) -> tuple[Action, int, str]:  # noqa: ARG002
        """Whatever is answered, it is not asked again for that."""
        return Action.DONE, codes.NONE, ""

    def are_written(self, response: Any) -> bool | None:
        """Whether they are; `None` where it is not told."""
        found = None if response is None else response.transactions.get(self.who.transactional_id)
        if found is None or found.error_code != codes.NONE:
            return None
        return not found.state.startswith("Prepare")
