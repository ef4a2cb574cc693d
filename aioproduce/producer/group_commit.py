"""Many tasks, one transaction after another: `send()` returns when the transaction with its record is committed.

Made by `Producer.group_commit()`. The first task that sends begins a transaction. The core commits it when its time
is over, or aborts it if a record failed. One transaction for each request would allow only some hundred requests a
second.

Its time is over after `interval`, or when nobody has sent for a tenth of that: tasks that all wait for their commit
send nothing more, and need not wait for the rest of the interval.

Invariants:

1. A record is in one transaction, and its sender gets the outcome of that transaction.
2. No task leads: a cancelled task ends only its own wait. Its record stays in the transaction.
3. Nothing is added to a transaction that is ending: later senders wait for the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce.errors import TransactionError, TransactionStateError, TransactionUnconfirmedError
from aioproduce.portable_error import copy_of
from aioproduce.producer.operations import wait_for
from aioproduce.producer.value_types import Generic, K, V
from aioproduce.records import NOT_GIVEN, NotGiven

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from aioproduce.core.transactions.operation import Operation
    from aioproduce.core.transactions.transaction import Transaction as CoreTransaction
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transactions import Transaction, Transactions
    from aioproduce.records import Headers, ProducerRecord, RecordMetadata


_CALM: Final = 0.1
"""Share of the interval: after so long without a record, the transaction ends."""


@final
class _Shared:
    """The current shared transaction.

    Attributes:
        transaction: The transaction of all tasks.
        core: The core's side of it.
        whole: An operation that ends when the transaction has its outcome.
        ends_at: The latest time of its commit.
        count: The number of its records.
    """

    __slots__ = ("core", "count", "ends_at", "transaction", "whole")

    def __init__(self, transaction: Transaction[Any, Any], core: CoreTransaction) -> None:
        assert core.whole is not None
        self.transaction = transaction
        self.core = core
        self.whole = core.whole
        self.ends_at = core.commits_at
        self.count = 0


@final
class GroupCommit(Generic[K, V]):
    """Sends in transactions that tasks share.

    Args:
        transactions: The producer's transactions.
        life: The producer's life.
        interval: Maximum seconds that a transaction is open; it ends earlier when nobody has sent for a tenth of
            that.
        records: Number of records after which a transaction ends earlier.

    Example:
        >>> async def main():
        ...     async with Producer("localhost:9092", transactional_id="orders-1") as producer:
        ...         async with producer.group_commit(interval=0.05) as group:
        ...             metadata = await group.send("orders", b"42")  # committed
    """

    __slots__ = ("_interval", "_life", "_records", "_shared", "_transactions")

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
        self._shared: _Shared | None = None

    async def send(
        self,
        topic: str | ProducerRecord,
        value: V | NotGiven | None = NOT_GIVEN,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until its transaction is committed.

        Args:
            topic: As in `Producer.send()`.
            value: As in `Producer.send()`.
            key: As in `Producer.send()`.
            partition: As in `Producer.send()`.
            timestamp: As in `Producer.send()`.
            headers: As in `Producer.send()`.

        Raises:
            TransactionFailedError: if any task's record in the transaction failed; the transaction is aborted.
                Send again.
            TransactionTimedOutError: if the coordinator aborted it. Send again.
            TransactionUnconfirmedError: if no answer came in time; its outcome is not known yet.
            ProducerError: as in `Producer.send()`.
        """
        while True:
            shared = await self._join()
            try:
                delivery = await shared.transaction.send(
                    topic, value, key, partition=partition, timestamp=timestamp, headers=headers
                )
            except TransactionStateError:
                # The transaction ended while the send waited for room; nothing was queued.
                if shared.transaction.is_open or self._transactions.manager.error is not None:
                    raise
                continue
            break
        self._joined(shared)
        try:
            await self._wait(shared.whole)
        finally:
            if delivery.done() and not delivery.cancelled():
                delivery.exception()  # observed: the transaction's error reports it to the sender
        return delivery.result()

    async def _join(self) -> _Shared:
        """Return the open transaction; begin one if there is none."""
        self._life.check_callable()
        if self._transactions.group is not self:
            raise TransactionStateError(
                "the group commit is not open: use it as a context, `async with producer.group_commit() as group:`",
                recover="begin",
            )
        manager = self._transactions.manager
        while (shared := self._shared) is None or not shared.transaction.is_open:
            pending = manager.pending
            if pending is not None:
                await wait_for(pending, self._life, tells=False)
            elif manager.wants_init:
                await self._transactions.init()
            else:
                transaction = self._transactions.new()
                core = self._transactions.opened(transaction, self._life.driver.now() + self._interval)
                self._shared = _Shared(transaction, core)
                self._life.driver.wake()
        return shared

    def _joined(self, shared: _Shared) -> None:
        """Count one more record; end the transaction if it is full, else set the time of its commit."""
        now = self._life.driver.now()
        shared.count += 1
        if shared.count >= self._records and shared.transaction.is_open:
            self._transactions.manager.commit(now)
        else:
            shared.core.commits_at = min(shared.ends_at, now + _CALM * self._interval)

    async def _wait(self, whole: Operation) -> None:
        """Wait for the outcome; the bound adds up the interval, the deliveries and the coordinator's answer."""
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
                "no answer came for the commit in time, so its outcome is not known yet. The producer keeps "
                "asking; sending the record again can duplicate it",
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
            raise TransactionStateError(
                "the producer has a group commit already: send with that one, or use another producer",
                recover="new producer",
            )
        self._transactions.group = self
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit the open transaction and wait for it; its outcome goes to the senders."""
        shared = self._shared
        self._transactions.group = None
        if shared is None or shared.whole.is_done or self._life.is_over:
            return
        if shared.transaction.is_open:
            self._transactions.manager.commit(self._life.driver.now())
            self._life.driver.wake()
        if isinstance(error, GeneratorExit):
            return
        with self._life.driver.shielded():
            await wait_for(shared.whole, self._life, tells=False)
