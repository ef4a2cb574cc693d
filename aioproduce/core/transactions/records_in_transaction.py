"""The open transaction as its records see it: whether they may be sent, and what happened to them.

Made by the transaction manager; reports failures to it. `core.batching.produce_transaction` names the callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.core.transactions import refusals
from aioproduce.core.transactions.answers import PRODUCE_FATAL
from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.transactions.transaction_manager import TransactionManager
    from aioproduce.errors import DeliveryError
    from aioproduce.records import TopicPartition

_State = TransactionState
_SENDING: Final = frozenset({_State.IN_TRANSACTION, _State.PREPARED, _State.COMMITTING})
_LAST_PRODUCE_OF_VERSION_1: Final = 11


@final
class RecordsInTransaction:
    """Implements `ProduceTransaction`.

    Args:
        manager: Owns the transaction.
        accumulator: Owns the records.
    """

    __slots__ = ("_accumulator", "_manager")

    def __init__(self, manager: TransactionManager, accumulator: RecordAccumulator) -> None:
        self._manager = manager
        self._accumulator = accumulator

    @property
    def is_open_for_retries(self) -> bool:
        """Whether a failed batch may be tried again."""
        return self._manager.state in _SENDING

    @property
    def has_checked_beginnings(self) -> bool:
        """Whether brokers accept only sequence 0 as the first of a partition: with version 2 (KIP-890)."""
        transaction = self._manager.transaction
        return transaction is not None and transaction.version > 1

    def lets_send(self, now: float) -> bool:
        """Return whether records may be sent at all: not within the pause or while a new epoch is awaited."""
        return self._manager.state in _SENDING and now >= self._manager.pause.until

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch of this partition may be sent now."""
        transaction = self._manager.transaction
        if transaction is None:
            return False
        if transaction.admits(topic_partition):
            return True
        self._accumulator.readiness.has_news = True  # the next step asks for the partition
        return False

    def max_produce_version(self, otherwise: int | None) -> int | None:
        """Return the highest version of Produce to use, if the topics' metadata allows `otherwise`."""
        transaction = self._manager.transaction
        assert transaction is not None
        return _LAST_PRODUCE_OF_VERSION_1 if transaction.version == 1 else otherwise

    def produced(self, now: float) -> None:
        """Note that a Produce request was sent."""
        transaction = self._manager.transaction
        assert transaction is not None
        transaction.sent(now)
        self._manager.pause.produced(now)

    def answered_produce(self, now: float) -> None:
        """Note that a Produce request was answered."""
        if self._manager.state is not _State.IN_TRANSACTION:
            self._manager.has_news = True  # it may be the last answer that the end waits for
        self._manager.pause.answered(now)

    def is_doubtful(self) -> None:
        """Note that the outcome of a Produce request is unknown: it may arrive late."""
        if self._manager.transaction is not None:
            self._manager.transaction.has_doubt = True

    def delivery_failed(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        """Fail the transaction because a batch of it failed."""
        manager = self._manager
        if batch.state is BatchState.ABANDONED or batch.possibly_written:
            self.is_doubtful()
        if batch.last_code == codes.INVALID_PRODUCER_EPOCH and manager.transaction is not None:
            manager.transaction.fenced(now)
        if batch.last_code in PRODUCE_FATAL:
            manager.die(refusals.from_produce(batch.last_code, error), now)
        elif manager.transaction is not None and manager.state is not _State.ABORTING:
            manager.fail(refusals.delivery_failed(error), now)

    def refused(self, error: BaseException, now: float) -> None:
        """Fail the transaction because a record that its sender counts as sent is in no batch."""
        self._manager.fail(refusals.delivery_failed(error), now)
