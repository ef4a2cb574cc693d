"""The open transaction as its records see it: whether they may be sent, and what is to be known of them.

Made by the transaction manager, which it tells of failures. See `core.batching.produce_transaction` for who asks.
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
        """Whether what failed is worth another attempt."""
        return self._manager.state in _SENDING

    @property
    def has_checked_beginnings(self) -> bool:
        """Whether brokers accept sequence 0 alone as the first of a partition: with version 2 they do (KIP-890)."""
        transaction = self._manager.transaction
        return transaction is not None and transaction.version > 1

    def lets_send(self, now: float) -> bool:
        """Whether records may go out at all: not within the pause, and not while a new epoch is on its way."""
        return self._manager.state in _SENDING and now >= self._manager.pause.until

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent now."""
        transaction = self._manager.transaction
        if transaction is None:
            return False
        if transaction.admits(topic_partition):
            return True
        self._accumulator.readiness.has_news = True  # to be asked for in the next step
        return False

    def max_produce_version(self, otherwise: int | None) -> int | None:
        """The last version of Produce that may be used, where what is known of topics allows `otherwise`."""
        transaction = self._manager.transaction
        assert transaction is not None
        return _LAST_PRODUCE_OF_VERSION_1 if transaction.version == 1 else otherwise

    def produced(self, now: float) -> None:
        """A Produce request went out."""
        transaction = self._manager.transaction
        assert transaction is not None
        transaction.sent(now)
        self._manager.pause.produced(now)

    def answered_produce(self, now: float) -> None:
        """A Produce request is answered."""
        if self._manager.state is not _State.IN_TRANSACTION:
            self._manager.has_news = True  # it may be the last that an end waits for
        self._manager.pause.answered(now)

    def is_doubtful(self) -> None:
        """The outcome of a Produce request is unknown: it may arrive late."""
        if self._manager.transaction is not None:
            self._manager.transaction.has_doubt = True

    def delivery_failed(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        """A record of the transaction failed."""
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
        """A record that its sender counts as sent came into no batch."""
        self._manager.fail(refusals.delivery_failed(error), now)
