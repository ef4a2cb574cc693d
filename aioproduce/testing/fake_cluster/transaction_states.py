"""One transactional id: its producer id, its epoch, and the table of its transaction's states.

Called by `transaction_coordinator`, which decides; here is what follows. It repeats `TransactionMetadata` of Apache
Kafka 4.3.1, whose log is written in no time here: what is pending there never shows, but for the markers.

Invariants:
1. A state changes by the table alone; what the table does not have raises.
2. Epoch 32,767 fences and is never given to a client: after 32,766 comes another producer id, with epoch 0.
3. `last_epoch` is the epoch that a client may still name after it was raised for it (KIP-360, KIP-890); -1 if none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, final

from aioproduce.core.state_table import StateTable

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_ID: Final = -1
NO_EPOCH: Final = -1
# The maximum for clients: Kafka reserves the last epoch for fencing.
MAX_EPOCH: Final = 2**15 - 2
# The first transaction.version that raises the epoch at each end (KIP-890).
EPOCH_BUMP: Final = 2

Place: TypeAlias = tuple[str, int]
"""A partition, by topic and number; `__consumer_offsets` too."""


@final
@dataclass(slots=True)
class TransactionConfig:
    """The behaviour of coordinators. The fields may be changed at any time; all are in seconds.

    Attributes:
        max_timeout: `transaction.max.timeout.ms`.
        marker_delay: From the answer to EndTxn to the markers in the logs; meanwhile clients get
            CONCURRENT_TRANSACTIONS. 0 writes them before the answer.
        retry_backoff: `add.partitions.to.txn.retry.backoff.ms`: how long a broker that gets
            CONCURRENT_TRANSACTIONS for a Produce of `transaction.version` 2 waits before it asks again.
        retry_backoff_max: `add.partitions.to.txn.retry.backoff.max.ms`: how long it keeps asking.
        abort_interval: `transaction.abort.timed.out.transaction.cleanup.interval.ms`: 10 in Kafka. 0 ends a
            transaction at its time-out.
        id_expiration: `transactional.id.expiration.ms`.
        load_time: How long a newly elected coordinator answers COORDINATOR_LOAD_IN_PROGRESS.
    """

    max_timeout: float = 900.0
    marker_delay: float = 0.001
    retry_backoff: float = 0.02
    retry_backoff_max: float = 0.1
    abort_interval: float = 0.0
    id_expiration: float = 7 * 86_400.0
    load_time: float = 0.0


class TransactionState(Enum):
    """Kafka's states; the value is Kafka's name, as in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


_Event: TypeAlias = Literal["initialise", "add", "fence", "commit", "abort", "complete", "expire"]

_S = TransactionState
_AFTER_THE_END: Final[dict[_Event, TransactionState]] = {
    "initialise": _S.EMPTY,
    "add": _S.ONGOING,
    "abort": _S.PREPARE_ABORT,
    "expire": _S.DEAD,
}
TRANSACTION_STATES: Final[StateTable[TransactionState, _Event]] = StateTable(
    "the transaction of a transactional id",
    {
        _S.EMPTY: _AFTER_THE_END,
        _S.ONGOING: {
            "add": _S.ONGOING,
            "commit": _S.PREPARE_COMMIT,
            "abort": _S.PREPARE_ABORT,
            "fence": _S.PREPARE_EPOCH_FENCE,
        },
        _S.PREPARE_EPOCH_FENCE: {"abort": _S.PREPARE_ABORT},
        _S.PREPARE_COMMIT: {"complete": _S.COMPLETE_COMMIT},
        _S.PREPARE_ABORT: {"complete": _S.COMPLETE_ABORT},
        _S.COMPLETE_COMMIT: _AFTER_THE_END,
        _S.COMPLETE_ABORT: _AFTER_THE_END,
        _S.DEAD: {},
    },
)

_PREPARED: Final = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
_OPEN: Final = (_S.ONGOING, *_PREPARED)


class Producer(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = Producer(NO_ID, NO_EPOCH)


@final
@dataclass(slots=True, eq=False)
class Transaction:
    """The coordinator's state of one transactional id.

    Attributes:
        timeout: `transaction.timeout.ms` of its producer, in seconds.
        previous_id: The producer id before the last change.
        next_id: The producer id after the markers are written; -1: the same.
        last_epoch: See the module.
        partitions: The partitions in the transaction; each is removed when its marker is written.
        version: The `transaction.version` in which the transaction ends.
        started_at: When its first partition was added.
        updated_at: When anything last changed.
    """

    transactional_id: str
    producer_id: int
    timeout: float
    updated_at: float
    epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    next_id: int = NO_ID
    last_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: dict[Place, None] = field(default_factory=dict)
    version: int = 0
    started_at: float | None = None

    @property
    def producer(self) -> Producer:
        """The producer id and epoch."""
        return Producer(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether the epoch can no longer be raised for a client."""
        return self.epoch >= MAX_EPOCH

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and its markers are being written."""
        return self.state in _PREPARED

    @property
    def is_open(self) -> bool:
        """Whether readers may have to wait for it."""
        return self.state in _OPEN

    @property
    def is_commit(self) -> bool:
        """Whether a prepared or complete transaction is committed."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def initialise(self, producer: Producer, last_epoch: int, timeout: float, now: float) -> None:
        """Handle InitProducerId: there is no transaction, and this is the producer."""
        self._move("initialise", now)
        self.producer_id, self.epoch = producer
        self.last_epoch = last_epoch
        self.timeout = timeout
        self.partitions = {}
        self.started_at = None

    def add(self, partitions: Iterable[Place], version: int, now: float) -> None:
        """Add partitions to the transaction; the first of them begins it."""
        if self.state is not TransactionState.ONGOING:
            self.started_at = now
        self._move("add", now)
        self.partitions.update(dict.fromkeys(partitions))
        self.version = version

    def fence(self) -> None:
        """Invalidate the present epoch for all producers; an abort follows."""
        self.state = TRANSACTION_STATES.after(self.state, "fence", self.transactional_id)

    def prepare(self, is_commit: bool, version: int, next_id: int, now: float) -> None:
        """Decide the transaction; from version 2 on this raises the epoch.

        Args:
            is_commit: Whether it is committed.
            version: The `transaction.version` in which it ends.
            next_id: The next producer id, if this one has no epochs left; else -1.
            now: The time.
        """
        is_fenced = self.state is TransactionState.PREPARE_EPOCH_FENCE
        if self.started_at is None or self.state not in (_S.ONGOING, _S.PREPARE_EPOCH_FENCE):
            self.started_at = now
        self._move("commit" if is_commit else "abort", now)
        if version >= EPOCH_BUMP:
            self.last_epoch = self.epoch
            self.epoch = min(self.epoch + 1, MAX_EPOCH + 1)
        elif is_fenced:
            self.last_epoch = NO_EPOCH
            self.epoch = min(self.epoch + 1, MAX_EPOCH + 1)
        self.version = version
        self.next_id = next_id

    def complete(self, now: float) -> None:
        """Note that all markers are written."""
        self._move("complete", now)
        self.producer_id, self.epoch = self.producer_after
        self.next_id = NO_ID
        self.partitions = {}

    @property
    def producer_after(self) -> Producer:
        """A prepared transaction's producer id and epoch after its markers are written."""
        return self.producer if self.next_id == NO_ID else Producer(self.next_id, 0)

    def expire(self, now: float) -> None:
        """Note that `transactional.id.expiration.ms` has passed."""
        self._move("expire", now)

    def _move(self, event: _Event, now: float) -> None:
        self.state = TRANSACTION_STATES.after(self.state, event, self.transactional_id)
        self.previous_id = self.producer_id
        self.updated_at = now
