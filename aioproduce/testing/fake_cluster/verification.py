"""The requests of a partition's leader to the transaction coordinator before it appends (KIP-890).

Called by `produce` and by `offset_apis`. For old requests the coordinator verifies that the client has added the
partition; for those of `transaction.version` 2 it adds it. The request's version decides, not the cluster's
`transaction.version`, as on a 4.x broker.

Invariants:
1. A producer with an open transaction in a partition is not verified: only its marker ends the transaction.
2. If a coordinator cannot be asked, the answer is Kafka's: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
   NETWORK_EXCEPTION for a stalled one, but without Kafka's wait of `request.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.coordinator_places import OFFSETS_TOPIC
from aioproduce.testing.fake_cluster.failures import SequenceError
from aioproduce.testing.fake_cluster.partition import NO_LEADER
from aioproduce.testing.fake_cluster.producer_state import ProducerState
from aioproduce.testing.fake_cluster.transaction_states import EPOCH_BUMP, Place, Producer

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator

Asked: TypeAlias = Mapping[Place, tuple[ProducerState, int]]
"""The producers of each partition, and their first sequences to append."""


class Operation(Enum):
    """How a request's version treats a partition that is not in the transaction."""

    VERIFY = auto()
    """Refuse with a code from before KIP-890."""
    VERIFY_ABORTABLE = auto()
    """Refuse with TRANSACTION_ABORTABLE."""
    ADD = auto()
    """Add it."""


def operation_of(version: int, first_abortable: int) -> Operation:
    """Return the operation of a request's version.

    Args:
        version: The request's version.
        first_abortable: The first version of its API that knows TRANSACTION_ABORTABLE; the next one adds.
    """
    if version < first_abortable:
        return Operation.VERIFY
    return Operation.VERIFY_ABORTABLE if version == first_abortable else Operation.ADD


@final
@dataclass(slots=True, eq=False, repr=False)
class TransactionVerifier:
    """Asks the coordinator for the leaders of partitions."""

    _state: ClusterState
    _faults: Faults
    _coordinator: TransactionCoordinator

    def ask(
        self, transactional_id: str, producer: Producer, asked: Asked, operation: Operation, now: float
    ) -> dict[Place, int]:
        """Verify or add partitions. Return an error code for each that must not be appended to."""
        errors: dict[Place, int] = {}
        unknown: list[Place] = []
        version = EPOCH_BUMP if operation is Operation.ADD else 0
        for place, (producers, sequence) in asked.items():
            try:
                if producers.needs_verification(*producer, sequence, version):
                    unknown.append(place)
            except SequenceError as refusal:
                errors[place] = refusal.code
        for place in unknown:
            code = self._ask_for(transactional_id, producer, place, unknown, operation, now)
            if code != ErrorCode.none:
                errors[place] = code
        return errors

    def _ask_for(
        self,
        transactional_id: str,
        producer: Producer,
        place: Place,
        together: list[Place],
        operation: Operation,
        now: float,
    ) -> int:
        code = self._out_of_reach(transactional_id)
        if code != ErrorCode.none:
            return code
        if operation is Operation.ADD:
            code = self._add(transactional_id, producer, place, together, now)
        else:
            code = self._coordinator.verify_partition(transactional_id, producer, place, now)
        if code == ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        if code == ErrorCode.transaction_abortable and operation is Operation.VERIFY:
            return ErrorCode.invalid_txn_state
        return code

    def _add(
        self, transactional_id: str, producer: Producer, place: Place, together: list[Place], now: float
    ) -> int:
        missing = [each for each in together if not self._exists(each)]
        if missing:
            is_missing = place in missing
            return ErrorCode.unknown_topic_or_partition if is_missing else ErrorCode.operation_not_attempted
        return self._coordinator.add_partitions(transactional_id, producer, together, EPOCH_BUMP, now)

    def _exists(self, place: Place) -> bool:
        return place[0] == OFFSETS_TOPIC or self._state.partition(*place) is not None

    def _out_of_reach(self, transactional_id: str) -> int:
        broker_id = self._coordinator.coordinator(transactional_id)
        if broker_id == NO_LEADER:
            return ErrorCode.coordinator_not_available
        if self._faults.is_stalled(broker_id):
            return ErrorCode.network_exception
        return self._coordinator.refusal(transactional_id, broker_id)
