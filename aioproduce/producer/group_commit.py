"""Many tasks, one transaction after another: `send()` returns when the transaction with its record is committed.

Made by `Producer.group_commit()`. Who sends first begins a transaction; the core commits it when its time is over,
or aborts it where a record failed. A service that does a transaction for each request does some hundred a second.

Invariants:

1. A record is in one transaction, and its sender is told what became of that one.
2. No task leads: whoever is cancelled takes nothing with it but its own wait. Its record stays in the transaction.
3. While a transaction is being ended nothing is added: who comes waits for the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from aioproduce._native._error_copies import copy_of
from aioproduce.errors import TransactionError, TransactionStateError, TransactionUnconfirmedError
from aioproduce.producer.operations import wait_for

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from aioproduce.core.transactions.operation import Operation
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transactions import Transaction, Transactions
    from aioproduce.records import Headers, ProducerRecord, RecordMetadata


@final
class GroupCommit:
    """Sends in transactions that tasks share.

    Args:
        transactions: The producer's.
        life: The producer's.
        interval: Seconds that a transaction is open for at most.
        records: Records after which it is ended earlier.

    Example:
        >>> async def main():
        ...     async with Producer("localhost:9092", transactional_id="orders-1") as producer:
        ...         async with producer.group_commit(interval=0.05) as group:
        ...             metadata = await group.send("orders", b"42")  # committed
    """

    __slots__ = ("_count", "_current", "_interval", "_life", "_records", "_transactions", "_whole")

    def __init__(
        self, transactions: Transactions, life: ProducerLife, *, interval: float, records: int
    ) -> None:
        if not interval > 0:
            raise ValueError(f"interval is {interval!r}: give seconds above 0")
        if records < 1:
            raise ValueError(f"records is {records!r}: give 1 or more")
        self._transactions = transactions
        self._life = life
        self._interval = interval
        self._records = records
        self._current: Transaction | None = None
        self._whole: Operation | None = None
        self._count = 0

    async def send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until its transaction is committed.

        Args:
            topic: As in `Producer.send()`; so are the others.
            value: Likewise.
            key: Likewise.
            partition: Likewise.
            timestamp: Likewise.
            headers: Likewise.

        Raises:
            TransactionFailedError: A record of the transaction failed, of whoever sent it: all of it is aborted.
                Send again.
            TransactionTimedOutError: The coordinator aborted it. Send again.
            TransactionUnconfirmedError: No answer came in time: whether it is committed is not known yet.
            ProducerError: As in `Producer.send()`.
        """
        while True:
            transaction, whole = await self._join()
            try:
                delivery = await transaction.send(
                    topic, value, key, partition=partition, timestamp=timestamp, headers=headers
                )
            except TransactionStateError:
                # It waited for room, and the transaction ended meanwhile; nothing was queued.
                if transaction.is_open or self._transactions.manager.error is not None:
                    raise
                continue
            break
        self._count += 1
        if self._count >= self._records and transaction.is_open:
            self._transactions.manager.commit(self._life.driver.now())
        try:
            await self._wait(whole)
        finally:
            if delivery.done() and not delivery.cancelled():
                delivery.exception()  # who sent it is told of the transaction, which tells of this
        return delivery.result()

    async def _join(self) -> tuple[Transaction, Operation]:
        """The open transaction, begun where there is none."""
        self._life.check_callable()
        if self._transactions.group is not self:
            raise TransactionStateError(
                "the group commit is not open: use it as a context, `async with producer.group_commit() as group:`",
                recover="begin",
            )
        manager = self._transactions.manager
        while self._current is None or self._whole is None or not self._current.is_open:
            pending = manager.pending
            if pending is not None:
                await wait_for(pending, self._life, tells=False)
            elif manager.wants_init:
                await self._transactions.init()
            else:
                self._current, self._count = self._transactions.new(), 0
                self._transactions.opened(self._current, self._life.driver.now() + self._interval)
                assert manager.transaction is not None
                self._whole = manager.transaction.whole
                self._life.driver.wake()
        return self._current, self._whole

    async def _wait(self, whole: Operation) -> None:
        """Wait for the end: its time, all records, and the coordinator's answer, each with its bound."""
        config, driver = self._life.config, self._life.driver
        waiter = driver.make_waiter()
        whole.when_done(waiter.notify)
        driver.wake()
        try:
            await waiter.wait(driver.now() + self._interval + config.delivery_timeout + config.max_block)
        finally:
            whole.forget(waiter.notify)
        if not whole.is_done:
            self._life.check_running()
            raise TransactionUnconfirmedError(
                "no answer came for the commit in time; the producer goes on asking, and the outcome is not known",
                recover="begin",
            )
        if whole.error is not None:
            error = copy_of(whole.error)
            if isinstance(error, TransactionError):
                error.outcome = whole.outcome
                if error.recover == "abort":
                    error.recover = "begin"  # the core has aborted it
            raise error

    async def __aenter__(self) -> Self:
        self._life.check_callable()
        if self._transactions.group is not None:
            raise TransactionStateError("the producer has a group commit already", recover="new producer")
        self._transactions.group = self
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit what is open, and wait for it; what became of it is for those who sent."""
        transaction, whole = self._current, self._whole
        self._transactions.group = None
        if transaction is None or whole is None or whole.is_done:
            return
        if transaction.is_open:
            self._transactions.manager.commit(self._life.driver.now())
            self._life.driver.wake()
        if isinstance(error, GeneratorExit):
            return
        with self._life.driver.shielded():
            await wait_for(whole, self._life, tells=False)
