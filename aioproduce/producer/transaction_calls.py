"""The Producer's calls for transactions, with their documentation; `Transactions` implements them.

`Producer` inherits this class and creates its attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.errors import TransactionStateError
from aioproduce.producer.value_types import Generic, K, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioproduce.producer.group_commit import GroupCommit
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_status import TransactionStatus
    from aioproduce.producer.transactions import Transaction, Transactions
    from aioproduce.records import GroupMetadata


class TransactionCalls(Generic[K, V]):
    """The calls of `Producer` for transactions."""

    __slots__ = ()

    _life: ProducerLife
    _transactions: Transactions | None

    def transaction(self) -> Transaction[K, V]:
        """Return a transaction to use as a context: `async with producer.transaction() as txn:`.

        The end of the body commits it, and an exception aborts it. One is open at a time; the next begins when the
        previous one has its outcome.

        Raises:
            TransactionStateError: if the producer has no `transactional.id` or is not started.
        """
        return self._of_transactions().new()

    def group_commit(self, interval: float = 0.1, records: int = 10_000) -> GroupCommit[K, V]:
        """Return a context whose transactions many tasks share: `async with producer.group_commit() as group:`.

        Args:
            interval: Maximum seconds that a transaction is open; it ends earlier when nobody has sent for a tenth
                of that.
            records: Number of records after which a transaction ends earlier.

        Raises:
            TransactionStateError: if the producer has no `transactional.id`.
            ValueError: if `interval` or `records` is not above 0.
        """
        from aioproduce.producer.group_commit import GroupCommit

        return GroupCommit(self._of_transactions(), self._life, interval=interval, records=records)

    async def init_transactions(self) -> None:
        """Get a new producer id, if an error has `recover="init"`; `start()` gets the first one.

        Raises:
            TransactionsUnavailableError: if the cluster assigns none.
            TransactionUnconfirmedError: if no answer came within `max.block.ms`.
        """
        await self._of_transactions().init()

    async def begin_transaction(self) -> Transaction[K, V]:
        """Begin a transaction of the calling task; until its end the task's `send()` calls send in it."""
        return await self._of_transactions().new().begin()

    async def commit_transaction(self) -> None:
        """Commit the latest transaction; see `Transaction.commit()`."""
        await self._begun().commit()

    async def abort_transaction(self) -> None:
        """Abort the latest transaction; see `Transaction.abort()`."""
        await self._begun().abort()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[object, object] | Iterable[object], group: GroupMetadata | str | object
    ) -> None:
        """Commit a group's offsets with the open transaction; see `Transaction.send_offsets()`."""
        await self._of_transactions().owned().send_offsets(offsets, group)

    def transaction_status(self) -> TransactionStatus | None:
        """Return the status of transactions, for a health check or a log; `None` without a `transactional.id`.

        It may be called at any time, also before the start and after the end.

        Example:
            >>> producer.transaction_status().state.name
            'READY'
        """
        from aioproduce.producer.transaction_status import status_of

        return status_of(self._life)

    def _of_transactions(self) -> Transactions:
        if self._transactions is None:
            raise TransactionStateError(
                "this producer has no transactions: set transactional.id", recover="new producer"
            )
        return self._transactions

    def _begun(self) -> Transaction[Any, Any]:
        current = self._of_transactions().current
        if current is None:
            raise TransactionStateError(
                "no transaction is open: call begin_transaction() first", recover="begin"
            )
        return current
