"""The transactional calls of confluent-kafka's producer, on aioproduce's own transactions.

Inherited by `confluent.AIOProducer`.

Invariants:

1. A message belongs to the transaction that was open when any task called `produce()`, or it fails. It never
   belongs to the next one.
2. A transaction with a failed message is not committed, even if the message never reached the producer.
3. A call that timed out or was cancelled only stops waiting. Other calls raise `_CONFLICT` until the same call has
   returned the result.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aioproduce.compat.confluent_errors import KafkaError, KafkaException, transaction_exception
from aioproduce.compat.confluent_way import Way
from aioproduce.errors import (
    ProducerError,
    TransactionError,
    TransactionOutcome,
    TransactionTimedOutError,
    TransactionUnconfirmedError,
)

from confluent_kafka import TopicPartition  # isort: skip  # confluent_errors reports a missing extra

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce.compat.confluent_options import ConfluentOptions
    from aioproduce.compat.confluent_waiting import WaitingMessages
    from aioproduce.producer.producer import Producer
    from aioproduce.producer.transactions import Transaction

_FOREVER: Final = -1.0


class TransactionalCalls:
    """Transactions, with confluent-kafka's calls and errors."""

    _on_failure: Callable[[KafkaError], None] | None
    _options: ConfluentOptions
    _producer: Producer[Any, Any]
    _waiting: WaitingMessages
    _way: Way
    _untold: str | None
    """A call whose result was not returned yet."""
    _check_open: Callable[[str], None]
    flush: Callable[[], Coroutine[Any, Any, int]]

    async def init_transactions(self, timeout: float = _FOREVER) -> None:
        """Get a producer id, and abort the open transaction of a predecessor with the same `transactional.id`.

        Args:
            timeout: Seconds; -1 waits for `transaction.timeout.ms`. This holds for all following methods.

        Raises:
            KafkaException: If there was no answer in time (`_TIMED_OUT`); `error.args[0].retriable()` is then true,
                and the same call again continues to wait. If the cluster refuses; the error is then fatal. If it
                was called before (`_STATE`), or without a `transactional.id` (`_NOT_CONFIGURED`).
        """
        self._check_callable("init_transactions")

        async def init() -> None:
            self._untold = "init_transactions"
            await self._producer.init_transactions()

        await self._ask(init, timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction, in which any task may produce.

        Raises:
            KafkaException: If `init_transactions()` was not called, or if another transaction is open (`_STATE`).
        """
        self._check_callable("begin_transaction")
        try:
            transaction = await self._producer.begin_transaction()
        except ProducerError as error:
            raise self._exception(error)  # noqa: B904  # already has its cause
        self._way = Way(transaction.send, transaction)

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = _FOREVER
    ) -> None:
        """Commit a consumer group's offsets with the open transaction.

        Args:
            positions: The next offset to read of each partition; entries without an offset are skipped.
            group_metadata: The result of the consumer's `consumer_group_metadata()`.
            timeout: Seconds.

        Raises:
            TypeError: If the positions or the metadata have the wrong type.
            KafkaException: If no transaction is open (`_STATE`), or if it can only be aborted;
                `error.args[0].txn_requires_abort()` is then true.
        """
        if not isinstance(positions, list) or not all(isinstance(one, TopicPartition) for one in positions):
            raise TypeError("requires list of TopicPartition")
        if not isinstance(group_metadata, bytes):
            raise TypeError(
                f"expected the result of consumer_group_metadata(), not {type(group_metadata).__name__}"
            )
        self._check_callable("send_offsets_to_transaction")
        wanted = [position for position in positions if position.offset >= 0]
        transaction = self._transaction("send_offsets_to_transaction")

        async def send_offsets() -> None:
            await transaction.send_offsets(wanted, group_metadata)

        await self._within(timeout, send_offsets)

    async def commit_transaction(self, timeout: float = _FOREVER) -> None:
        """Flush, and make all of the transaction visible.

        Args:
            timeout: Seconds.

        Raises:
            KafkaException: If there was no answer in time (`_TIMED_OUT`); `error.args[0].retriable()` is then true,
                the commit continues, and the same call again waits for it. If a message or offsets failed;
                `txn_requires_abort()` is then true: call `abort_transaction()`. If another producer with the same
                `transactional.id` has taken over (`_FENCED`); the error is then fatal. If no transaction is open
                (`_STATE`).
        """
        self._check_callable("commit_transaction")
        transaction, way = self._transaction("commit_transaction"), self._way

        async def commit() -> None:
            if self._untold is None:
                way.check()
                await way.all_in()
                await self._waiting.drained(None)
                way.check()
            self._untold = "commit_transaction"
            await transaction.commit()

        await self._ask(commit, timeout)

    async def abort_transaction(self, timeout: float = _FOREVER) -> None:
        """Hide all of the transaction from readers of committed messages.

        Unsent messages fail with `_PURGE_QUEUE`; the call waits for those in flight.

        Args:
            timeout: Seconds.

        Raises:
            KafkaException: If there was no answer in time (`_TIMED_OUT`); `error.args[0].retriable()` is then true.
                If another producer has taken over; the error is then fatal. If no transaction is open (`_STATE`).
        """
        self._check_callable("abort_transaction")
        transaction, way = self._transaction("abort_transaction"), self._way
        if way.is_aborted:
            way.is_aborted = False
            return

        async def abort() -> None:
            if transaction.can_abort:
                await self._waiting.drop(_purged)
            self._untold = "abort_transaction"
            try:
                await transaction.abort()
            except TransactionTimedOutError as error:
                if error.recover != "begin":
                    raise
                # The coordinator has already aborted it, which is the requested result.

        await self._ask(abort, timeout)

    def _check_callable(self, call: str) -> None:
        if self._options.config.transactional_id is None:
            text = f"{call}(): transactions need a transactional.id: set it"
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, text))
        self._check_open(call)
        if self._untold is not None and self._untold != call:
            text = f"{call}(): call {self._untold}() again first to get its result"
            raise KafkaException(KafkaError(KafkaError._CONFLICT, text, False, True))

    def _transaction(self, call: str) -> Transaction[Any, Any]:
        transaction = self._way.transaction
        if transaction is None:
            text = f"{call}(): there is no open transaction: call begin_transaction() first"
            raise KafkaException(KafkaError(KafkaError._STATE, text))
        return transaction

    async def _ask(self, ask: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Make a call that continues by itself once it has begun."""
        try:
            await self._within(timeout, ask)
        except KafkaException as error:
            if not error.args[0].retriable():
                self._untold = None
            raise
        self._untold = None

    async def _within(self, timeout: float, ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
        config = self._options.config
        bound = config.transaction_timeout if timeout < 0 else timeout
        try:
            async with asyncio.timeout(bound):
                while True:
                    try:
                        return await ask()
                    except TransactionUnconfirmedError:
                        pass  # max.block.ms is over but this call's timeout is not: continue to wait
        except ProducerError as error:
            raise self._exception(error)  # noqa: B904  # already has its cause
        except TimeoutError as error:
            text = f"there was no answer within {bound:g} s: repeat the call to continue waiting"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, False, True)) from error

    def _exception(self, error: ProducerError) -> KafkaException:
        """Return the exception, and report a fatal one to `error_cb`."""
        exception = transaction_exception(error)
        failure = exception.args[0]
        if self._on_failure is not None:
            self._on_failure(failure)
        is_over = isinstance(error, TransactionError) and error.outcome is TransactionOutcome.ABORTED
        if is_over and failure.txn_requires_abort():
            self._way.is_aborted = True
        return exception


def _purged() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._PURGE_QUEUE, "abort_transaction() was called"))
