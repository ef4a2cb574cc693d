"""The transaction coordinators of a cluster: who may begin, extend and end which transaction.

Called by `transaction_apis` (clients), by `verification` (leaders of partitions) and by `transaction_admin`. It
repeats `TransactionCoordinator` of Apache Kafka 4.3.1 check by check, in both versions (KIP-890). The version of a
request selects the protocol; `transaction.version` applies to what a coordinator does by itself.

Invariants:
1. All coordinators share one memory: what Kafka keeps in `__transaction_state` survives every move here, too.
2. From the decision to the last marker clients get CONCURRENT_TRANSACTIONS. A new coordinator, once loaded, writes
   those markers again under its own coordinator epoch.
3. A transaction is ended at its time-out by a coordinator that runs, is not stalled, and has loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.coordinator_places import CoordinatorPlaces, partition_of
from aioproduce.testing.fake_cluster.partition import NEVER, NO_LEADER
from aioproduce.testing.fake_cluster.transaction_states import (
    EPOCH_BUMP,
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_PRODUCER,
    Place,
    Producer,
    Transaction,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.markers import MarkerWriter
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Action, Timers


class Answered(NamedTuple):
    """A coordinator's answer: an error code, and the producer that continues."""

    code: int
    producer: Producer = NO_PRODUCER


@final
@dataclass(slots=True, eq=False, repr=False)
class TransactionCoordinator:
    """All transactional ids of the cluster.

    Args:
        state: The cluster: its `transaction.version`, its `TransactionConfig`, and its producer ids.
        faults: Which brokers are stalled.
        timers: For time-outs and loading.
        markers: Writes them.
        plan: Plans an action for now, for calls without a time.

    Attributes:
        transactions: Every known transactional id, in order of its first InitProducerId.
        places: Which broker coordinates which ids.
    """

    _state: ClusterState
    _faults: Faults
    _timers: Timers
    _markers: MarkerWriter
    _plan: Callable[[Action], None]
    transactions: dict[str, Transaction] = field(default_factory=dict)
    places: CoordinatorPlaces = field(init=False)
    _looks_at: float = NEVER

    def __post_init__(self) -> None:
        self.places = CoordinatorPlaces(self._state, self._elected)

    # Requests of clients

    def refusal(self, transactional_id: str, broker_id: int) -> int:
        """Return the error code of a broker that does not coordinate this id, or not yet; else 0."""
        return self.places.refusal(partition_of(transactional_id), broker_id)

    def find(self, transactional_id: str, now: float) -> Transaction | None:
        """Return the transaction of an id; `None` if it is unknown or expired."""
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and self._is_expired(transaction, now):
            transaction.expire(now)
            del self.transactions[transactional_id]
            return None
        return transaction

    def known(self, now: float) -> list[Transaction]:
        """Return all that have not expired."""
        found = (self.find(transactional_id, now) for transactional_id in tuple(self.transactions))
        return [transaction for transaction in found if transaction is not None]

    def init_producer_id(
        self, transactional_id: str, timeout: float, claimed: Producer | None, now: float
    ) -> Answered:
        """Assign a producer to a transactional id; an open transaction of another producer is aborted first.

        Args:
            transactional_id: Not empty.
            timeout: `transaction.timeout.ms`, in seconds; already checked against the maximum.
            claimed: The producer that the client continues (KIP-360); `None` for a new client.
            now: The time.
        """
        transaction = self.find(transactional_id, now)
        if transaction is None:
            new_id = self._state.new_producer_id()[0]
            transaction = Transaction(transactional_id, new_id, timeout, now)
            self.transactions[transactional_id] = transaction
        if transaction.is_prepared:
            return Answered(ErrorCode.concurrent_transactions)
        if claimed is not None and not _may_claim(transaction, claimed):
            return Answered(ErrorCode.producer_fenced)
        if transaction.state is TransactionState.ONGOING:
            # The client never gets the epoch that fences: it asks again, and gets its own.
            self._abort(transaction, now)
            return Answered(ErrorCode.concurrent_transactions)
        return self._initialise(transaction, timeout, claimed, now)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[Place], version: int, now: float
    ) -> int:
        """Add partitions to a transaction, and begin it if necessary. Return an error code."""
        transaction, code = self._owned(transactional_id, producer, now, is_pending_first=True)
        if transaction is None:
            return code
        wanted = tuple(partitions)
        is_new = any(place not in transaction.partitions for place in wanted)
        if transaction.state is not TransactionState.ONGOING or is_new:
            transaction.add(wanted, version, now)
            self._look_by(self._ends_at(transaction))
        return ErrorCode.none

    def verify_partition(self, transactional_id: str, producer: Producer, place: Place, now: float) -> int:
        """Check that a partition is in the transaction (KIP-890, part 1). Return NONE or TRANSACTION_ABORTABLE."""
        transaction, code = self._owned(transactional_id, producer, now, is_pending_first=False)
        if transaction is None:
            return code
        return ErrorCode.none if place in transaction.partitions else ErrorCode.transaction_abortable

    def end(
        self, transactional_id: str, producer: Producer, version: int, now: float, *, is_commit: bool
    ) -> Answered:
        """Commit or abort, for a client's EndTxn of this `transaction.version`."""
        transaction = self.find(transactional_id, now)
        if transaction is None:
            return Answered(ErrorCode.invalid_producer_id_mapping)
        if version < EPOCH_BUMP:
            return self._end_v1(transaction, producer, is_commit, now)
        return self._end_v2(transaction, producer, version, is_commit, now)

    # Changes of coordinators

    def move(self, transactional_id: str, to_broker: int) -> None:
        """Make a running broker the coordinator of an id, and of all others in the same partition.

        Raises:
            ValueError: If it is not running.
        """
        broker = self._state.brokers.get(to_broker)
        if broker is None or not broker.is_running:
            raise ValueError(f"there is no running broker {to_broker}")
        self.places.move(partition_of(transactional_id), to_broker)

    def take(self, transactional_id: str) -> None:
        """Leave an id without a coordinator until `give_back` or `move`."""
        self.places.take(partition_of(transactional_id))

    def give_back(self, transactional_id: str) -> None:
        """Undo `take`."""
        self.places.give_back(partition_of(transactional_id))

    def coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates an id, or -1."""
        return self.places.leader(partition_of(transactional_id))

    def look_again(self, now: float) -> None:
        """Retry what a broker could not do before: end transactions past their time-out, write markers."""
        self._look(now)
        self._markers.look_again(now)

    # Inside

    def _owned(
        self, transactional_id: str, producer: Producer, now: float, *, is_pending_first: bool
    ) -> tuple[Transaction | None, int]:
        """Return the transaction if this producer may add to it now, else an error code."""
        transaction = self.find(transactional_id, now)
        if transaction is None:
            return None, ErrorCode.invalid_producer_id_mapping
        if transaction.is_prepared and is_pending_first:
            return None, ErrorCode.concurrent_transactions
        if transaction.producer_id != producer.producer_id:
            return None, ErrorCode.invalid_producer_id_mapping
        if transaction.epoch != producer.epoch:
            return None, ErrorCode.producer_fenced
        if transaction.is_prepared:
            return None, ErrorCode.concurrent_transactions
        return transaction, ErrorCode.none

    def _initialise(
        self, transaction: Transaction, timeout: float, claimed: Producer | None, now: float
    ) -> Answered:
        epoch = transaction.epoch
        last_epoch = NO_EPOCH if claimed is None else epoch
        producer = Producer(transaction.producer_id, epoch + 1)
        is_current = claimed is None or epoch == NO_EPOCH or claimed.epoch == epoch
        if transaction.is_exhausted:
            if not is_current:
                # Kafka fails its own check here (IllegalStateException).
                return Answered(ErrorCode.unknown_server_error)
            producer = Producer(*self._state.new_producer_id())
        elif claimed is not None and not is_current:
            if claimed.epoch != transaction.last_epoch:
                return Answered(ErrorCode.producer_fenced)
            # The epoch was already raised for this client, which did not get the answer.
            producer, last_epoch = transaction.producer, transaction.last_epoch
        transaction.initialise(producer, last_epoch, timeout, now)
        return Answered(ErrorCode.none, producer)

    def _end_v1(self, transaction: Transaction, producer: Producer, is_commit: bool, now: float) -> Answered:
        if transaction.producer_id != producer.producer_id:
            return Answered(ErrorCode.invalid_producer_id_mapping)
        if transaction.epoch != producer.epoch:
            return Answered(ErrorCode.producer_fenced)
        if transaction.is_prepared:
            return Answered(ErrorCode.concurrent_transactions)
        if transaction.state is TransactionState.ONGOING:
            self._decide(transaction, is_commit, 0, now)
            return Answered(ErrorCode.none)
        is_again = transaction.state is _complete(is_commit)
        return Answered(ErrorCode.none if is_again else ErrorCode.invalid_txn_state)

    def _end_v2(
        self, transaction: Transaction, producer: Producer, version: int, is_commit: bool, now: float
    ) -> Answered:
        if transaction.is_prepared:
            return Answered(ErrorCode.concurrent_transactions)
        state = transaction.state
        is_over = state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        is_rotated = (
            transaction.previous_id == producer.producer_id
            and producer.epoch == MAX_EPOCH
            and transaction.epoch == 0
        )
        if transaction.producer_id != producer.producer_id and not is_rotated:
            return Answered(ErrorCode.invalid_producer_id_mapping)
        is_retry = is_over and (is_rotated or transaction.epoch == producer.epoch + 1)
        if transaction.epoch != producer.epoch and not is_retry:
            return Answered(ErrorCode.producer_fenced)
        if is_retry:
            is_same = state is _complete(is_commit)
            return Answered(ErrorCode.none, transaction.producer) if is_same else _INVALID_STATE
        if state is not TransactionState.ONGOING and is_commit:
            return _INVALID_STATE
        return Answered(ErrorCode.none, self._decide(transaction, is_commit, version, now))

    def _abort(self, transaction: Transaction, now: float) -> None:
        """End a transaction in place of its producer, with an epoch that the producer does not have."""
        transaction.fence()
        self._decide(transaction, False, self._state.transaction_version, now)

    def _decide(self, transaction: Transaction, is_commit: bool, version: int, now: float) -> Producer:
        """Prepare the end, and have the markers written. Return the producer that continues afterwards."""
        next_id = NO_ID
        if version >= EPOCH_BUMP and transaction.is_exhausted:
            next_id = self._state.new_producer_id()[0]
        transaction.prepare(is_commit, version, next_id, now)
        producer = transaction.producer_after
        self._write_markers(transaction, now)
        return producer

    def _write_markers(self, transaction: Transaction, now: float) -> None:
        partition = partition_of(transaction.transactional_id)
        self._markers.begin(transaction, partition, self.places.epoch(partition), now)

    # Time-outs

    def _ends_at(self, transaction: Transaction) -> float:
        """Return when the coordinator finds an open transaction past its time-out."""
        if transaction.started_at is None or transaction.state is not TransactionState.ONGOING:
            return NEVER
        over_at = transaction.started_at + transaction.timeout
        interval = self._state.transactions.abort_interval
        return over_at if interval <= 0 else math.ceil(over_at / interval) * interval

    def _look_by(self, at: float) -> None:
        if at < self._looks_at:
            self._looks_at = at
            self._timers.call_at(at, self._look_at)

    def _look_at(self, now: float) -> None:
        if now >= self._looks_at:
            self._looks_at = NEVER
            self._look(now)

    def _look(self, now: float) -> None:
        for transaction in tuple(self.transactions.values()):
            at = self._ends_at(transaction)
            if at > now:
                self._look_by(at)
            elif self._is_able(partition_of(transaction.transactional_id)):
                self._abort(transaction, now)

    def _is_able(self, partition: int) -> bool:
        leader = self.places.leader(partition)
        return (
            leader != NO_LEADER
            and not self.places.is_loading(partition)
            and not self._faults.is_stalled(leader)
        )

    def _is_expired(self, transaction: Transaction, now: float) -> bool:
        has_ended = not transaction.is_open
        return has_ended and transaction.updated_at + self._state.transactions.id_expiration <= now

    # Moves

    def _elected(self, partition: int) -> None:
        """Load the partition on its new leader, then continue what the previous one had decided."""
        self._markers.cancel(partition)
        if self.places.leader(partition) == NO_LEADER:
            return
        epoch, load_time = self.places.epoch(partition), self._state.transactions.load_time
        if load_time <= 0:
            self.places.loaded(partition, epoch)
            self._plan(lambda now: self._resume(partition, epoch, now))
        else:
            self._plan(lambda now: self._load_by(now + load_time, partition, epoch))

    def _load_by(self, at: float, partition: int, epoch: int) -> None:
        self._timers.call_at(at, lambda now: self._load(partition, epoch, now))

    def _load(self, partition: int, epoch: int, now: float) -> None:
        if self.places.loaded(partition, epoch):
            self._resume(partition, epoch, now)

    def _resume(self, partition: int, epoch: int, now: float) -> None:
        if self.places.epoch(partition) != epoch:
            return
        for transaction in self.transactions.values():
            if transaction.is_prepared and partition_of(transaction.transactional_id) == partition:
                self._write_markers(transaction, now)
        self._look(now)


_INVALID_STATE = Answered(ErrorCode.invalid_txn_state)


def _may_claim(transaction: Transaction, claimed: Producer) -> bool:
    """Return whether a client's id is, or just was, that of its transactional id."""
    return (
        transaction.epoch == NO_EPOCH
        or claimed.producer_id == transaction.producer_id
        or (claimed.producer_id == transaction.previous_id and claimed.epoch >= MAX_EPOCH)
    )


def _complete(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
