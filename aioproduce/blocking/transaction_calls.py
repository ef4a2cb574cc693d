"""The public calls of BlockingProducer for transactions, implemented by `BlockingTransaction`.

`BlockingProducer` inherits this class and provides what it uses.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from aioproduce.blocking.sending import BlockingSending
from aioproduce.errors import TransactionStateError
from aioproduce.producer.value_types import K, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioproduce.blocking.group_commit import BlockingGroupCommit
    from aioproduce.blocking.session import Session
    from aioproduce.blocking.transactions import BlockingTransaction
    from aioproduce.config import ProducerConfig
    from aioproduce.records import GroupMetadata


class BlockingTransactionCalls(BlockingSending[K, V]):
    """The calls of `BlockingProducer` for transactions."""

    __slots__ = ()

    config: ProducerConfig

    def transaction(self) -> BlockingTransaction[K, V]:
        """Return a transaction, to be used as a context manager: `with producer.transaction() as txn:`.

        It is committed at the end of the body, and aborted after any exception, including KeyboardInterrupt. Only
        one is open at a time.

        Raises:
            TransactionStateError: If the producer has no `transactional.id`.
            ProducerStateError: If it is not started, closed, or the parent process's.
        """
        from aioproduce.blocking.transactions import BlockingTransaction

        return BlockingTransaction(self._of_transactions())

    def group_commit(self, interval: float = 0.1, records: int = 10_000) -> BlockingGroupCommit:
        """Share one transaction after another among many threads: `with producer.group_commit() as group:`.

        Args:
            interval: Seconds for which a transaction is open at most; `group.send()` takes about as long.
            records: Number of records after which a transaction is committed earlier.

        Raises:
            TransactionStateError: If the producer has no `transactional.id`.
            ValueError: If `interval` or `records` is not above 0.
        """
        from aioproduce.blocking.group_commit import BlockingGroupCommit

        session = self._of_transactions()
        return BlockingGroupCommit(session, session.producer.group_commit(interval, records))

    def init_transactions(self) -> None:
        """Get a new producer id, if an error says `recover="init"`; `start()` has got the first one.

        Raises:
            TransactionsUnavailableError: If the cluster assigns none.
            TransactionUnconfirmedError: If there was no answer within `max.block.ms`.
        """
        session = self._of_transactions()
        session.call(session.producer.init_transactions)

    def begin_transaction(self) -> BlockingTransaction[K, V]:
        """Begin a transaction of the calling thread, to which `send()` and the other sending calls then belong."""
        return self.transaction().begin()

    def commit_transaction(self) -> None:
        """Commit this thread's last transaction; see `BlockingTransaction.commit()`."""
        self._mine().commit()

    def abort_transaction(self) -> None:
        """Abort this thread's last transaction; see `BlockingTransaction.abort()`."""
        self._mine().abort()

    def send_offsets_to_transaction(
        self, offsets: Mapping[object, object] | Iterable[object], group: GroupMetadata | str | object
    ) -> None:
        """Commit a group's offsets with the open transaction; see `BlockingTransaction.send_offsets()`."""
        self._mine().send_offsets(offsets, group)

    def _mine(self) -> BlockingTransaction[Any, Any]:
        """Return the calling thread's last transaction.

        Raises:
            TransactionStateError: If there is none, or if another thread began it.
        """
        current = self._of_transactions().current
        if current is None:
            raise TransactionStateError("no transaction was begun", recover="begin")
        if current._owner is not threading.current_thread():
            what = "the open transaction is another thread's" if current.is_open else "no transaction is open"
            raise TransactionStateError(
                f"{what}: use the transaction object that this thread was given, txn.send(), or begin one here",
                recover="begin",
            )
        return current

    def _of_transactions(self) -> Session:
        session = self._running()
        if self.config.transactional_id is None:
            raise TransactionStateError(
                "this producer has no transactional.id: set it", recover="new producer"
            )
        return session

    def _running(self) -> Session:
        raise NotImplementedError
