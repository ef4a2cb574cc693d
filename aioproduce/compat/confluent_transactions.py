"""The transactional calls of confluent-kafka's producer, on aioproduce's own transactions.

Inherited by `confluent.AIOProducer`.

Invariants:

1. A message goes with the transaction that was open when `produce()` was called, whichever task called it, or it
   fails: never with the next one.
2. A transaction of which a message failed is not committed, also where the message never got to the producer.
3. A call that ran out of time, or was cancelled, stops waiting and nothing else. The others raise `_CONFLICT` until
   the same call has told how it ended.
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

from confluent_kafka import TopicPartition  # isort: skip  # confluent_errors tells of the extra where it is missing

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
    """A call that was begun, and that nobody has heard the end of."""
    _check_open: Callable[[str], None]
    flush: Callable[[], Coroutine[Any, Any, int]]

    async def init_transactions(self, timeout: float = _FOREVER) -> None:
        """Get a producer id; this aborts what an earlier producer of the same `transactional.id` left open.

        Args:
            timeout: Seconds; -1 waits for `transaction.timeout.ms`. So of all that follow.

        Raises:
            KafkaException: `error.args[0].retriable()` is true where no answer came in time (`_TIMED_OUT`): the
                same call again waits on. Fatal where the cluster refuses. `_STATE` where it was called before,
                `_NOT_CONFIGURED` without a `transactional.id`.
        """
        self._check_callable("init_transactions")

        async def init() -> None:
            self._untold = "init_transactions"
            await self._producer.init_transactions()

        await self._ask(init, timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction, in which any task produces.

        Raises:
            KafkaException: `_STATE` before `init_transactions()`, and while another one is open.
        """
        self._check_callable("begin_transaction")
        try:
            transaction = await self._producer.begin_transaction()
        except ProducerError as error:
            raise self._exception(error)  # noqa: B904  # it has its cause
        self._way = Way(transaction.send, transaction)

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = _FOREVER
    ) -> None:
        """Commit a consumer group's offsets with the open transaction.

        Args:
            positions: The next offset to read of each partition; those without an offset are left out.
            group_metadata: What the consumer's `consumer_group_metadata()` gives.
            timeout: Seconds.

        Raises:
            TypeError: the positions or the metadata are none.
            KafkaException: `_STATE` where no transaction is open; `error.args[0].txn_requires_abort()` is true
                where the transaction can only be aborted.
        """
        if not isinstance(positions, list) or not all(isinstance(one, TopicPartition) for one in positions):
            raise TypeError("requires list of TopicPartition")
        if not isinstance(group_metadata, bytes):
            raise TypeError(
                f"expected what consumer_group_metadata() gives, not {type(group_metadata).__name__}"
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
            KafkaException: `error.args[0].retriable()` is true where no answer came in time (`_TIMED_OUT`): the
                commit goes on, and the same call again waits for it. `txn_requires_abort()` is true where a message
                or offsets failed: call `abort_transaction()`. Fatal where another producer of the same
                `transactional.id` has taken over (`_FENCED`). `_STATE` where no transaction is open.
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
        """Let no reader of committed messages see any of the transaction.

        Messages that were not sent fail with `_PURGE_QUEUE`; those on their way are waited for.

        Args:
            timeout: Seconds.

        Raises:
            KafkaException: `error.args[0].retriable()` is true where no answer came in time (`_TIMED_OUT`). Fatal
                where another producer has taken over. `_STATE` where no transaction is open.
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
                # The coordinator was first: it is aborted, which is what was asked for.

        await self._ask(abort, timeout)

    def _check_callable(self, call: str) -> None:
        if self._options.config.transactional_id is None:
            text = f"{call}(): the producer has no transactions: set transactional.id"
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, text))
        self._check_open(call)
        if self._untold is not None and self._untold != call:
            text = f"{call}(): call {self._untold}() again first, which has not told yet how it ended"
            raise KafkaException(KafkaError(KafkaError._CONFLICT, text, False, True))

    def _transaction(self, call: str) -> Transaction[Any, Any]:
        transaction = self._way.transaction
        if transaction is None:
            text = f"{call}(): no transaction was begun: call begin_transaction() first"
            raise KafkaException(KafkaError(KafkaError._STATE, text))
        return transaction

    async def _ask(self, ask: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Make a call that goes on by itself once it is begun."""
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
                        pass  # max.block.ms is over, and this call's time is not: wait on
        except ProducerError as error:
            raise self._exception(error)  # noqa: B904  # it has its cause
        except TimeoutError as error:
            text = f"no answer came within {bound:g} s: the same call again waits on"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, False, True)) from error

    def _exception(self, error: ProducerError) -> KafkaException:
        """What is raised; `error_cb` hears of what is fatal."""
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
