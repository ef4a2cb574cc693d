"""Transactions as tasks use them: begin, send, commit or abort, each call with its bound.

`Producer.transaction()` makes a `Transaction`. The core (`core.transactions`) sends the requests. The calls here
wait for it, for at most `max.block.ms`, and keep tasks apart.

Invariants:

1. A transaction belongs to the task that began it: the Producer's own calls send in it for that task alone. Any
   task of the loop that has the `Transaction` object can send with it.
2. A record is appended in the same step that checks that its transaction is open, so it never gets into the next.
3. A call that reaches its bound or is cancelled stops only its own wait: the commit or abort goes on. The same call
   again waits for it or reports its result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Self, final

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import TransactionError, TransactionStateError
from aioproduce.producer.bulk import Bulk
from aioproduce.producer.offsets import read_group, read_offsets
from aioproduce.producer.operations import untold, wait_for
from aioproduce.producer.prepared_transaction import PreparedTransaction
from aioproduce.producer.sending import Sending
from aioproduce.producer.transaction_life import TransactionLife
from aioproduce.producer.value_types import K, V

if TYPE_CHECKING:
    from types import TracebackType

    from aioproduce._native.send_path import SendPath
    from aioproduce.config import ProducerConfig
    from aioproduce.core.transactions.operation import Operation
    from aioproduce.core.transactions.transaction import Transaction as CoreTransaction
    from aioproduce.core.transactions.transaction_manager import TransactionManager
    from aioproduce.errors import TransactionOutcome
    from aioproduce.producer.input import RecordInput
    from aioproduce.producer.interceptors import Interceptors, WatchedTransaction
    from aioproduce.producer.life import ProducerLife
    from aioproduce.records import GroupMetadata

_log = logging.getLogger("aioproduce.transactions")


@final
class Transactions:
    """The transactions of one producer.

    Args:
        life: The producer's life.
        record_input: The producer's serializers.
        interceptors: The producer's interceptors, or `None`.

    Attributes:
        current: The latest transaction.
        group: The group commit that begins and ends the transactions, or `None`.
        lent_to: The fast path of another library's API, open while a transaction is; or `None`.
    """

    __slots__ = ("_init", "_input", "_interceptors", "_life", "current", "group", "lent_to")

    def __init__(
        self, life: ProducerLife, record_input: RecordInput, interceptors: Interceptors | None
    ) -> None:
        self._life = life
        self._input = record_input
        self._interceptors = interceptors
        self.current: Transaction[Any, Any] | None = None
        self.group: object = None
        self.lent_to: SendPath | None = None
        self._init: Operation | None = None

    @property
    def paths(self) -> list[SendPath]:
        """The fast paths for records that need no decision, open while a transaction is."""
        return [path for path in (self.current, self.lent_to) if path is not None]

    @property
    def manager(self) -> TransactionManager:
        """The core's transaction manager."""
        manager = self._life.sender.transactions
        assert manager is not None
        return manager

    def new(self) -> Transaction[Any, Any]:
        """Return a transaction that is not begun yet."""
        return Transaction(self, self._life, self._input, self._interceptors)

    def owned(self) -> Transaction[Any, Any]:
        """Return the open transaction that the calling task began.

        Raises:
            TransactionStateError: if none is open, or another task began it.
        """
        self._life.check_callable()
        current = self.current
        if current is None or not self.manager.is_open:
            raise self.manager.refusal()
        if current._task is not self._life.driver.current_task():
            raise TransactionStateError(
                "another task began the open transaction: send with its Transaction object, txn.send(), or use one "
                "producer per task",
                recover="begin",
            )
        return current

    def owned_life(self) -> TransactionLife:
        """Return the life of the calling task's transaction."""
        return self.owned()._life

    async def init(self) -> None:
        """Get a producer id; wait for at most `max.block.ms`."""
        self._life.check_callable()
        self.manager.on_change = self._changed
        self._init = untold(self._init, "init") or self.manager.init()
        await self.wait(self._init)

    def _changed(self) -> None:
        if not self.manager.is_open:
            for path in self.paths:
                path._shut_path()

    def opened(self, transaction: Transaction[Any, Any], commits_at: float = inf) -> CoreTransaction:
        """Open a transaction in the core at once; the previous one has ended."""
        core = self.manager.begin(commits_at)
        self.current = transaction
        transaction._open(core)
        return core

    async def begin(self, transaction: Transaction[Any, Any]) -> None:
        """Open a transaction in the core, after the end of the previous one."""
        self._life.check_callable()
        if self.group is not None:
            raise TransactionStateError(
                "a group commit uses this producer's transactions: send with it, or use another producer",
                recover="new producer",
            )
        while (pending := self.manager.pending) is not None:
            # Its result goes to the call that began it.
            await self.wait(pending, tells=False)
        self.opened(transaction)

    async def wait(self, operation: Operation, *, tells: bool = True) -> None:
        """Wait for an operation; see `wait_for()`."""
        await wait_for(operation, self._life, tells=tells)


@final
class Transaction(Sending[K, V]):
    """Records, and offsets of consumer groups, that become visible together or not at all.

    `Producer.transaction()` makes it. As a context it begins, commits at the end of its body, and aborts if an
    exception leaves the body. It has the Producer's calls for sending.

    Attributes:
        config: The producer's settings.

    Example:
        >>> async def main():
        ...     async with Producer("localhost:9092", transactional_id="orders-1") as producer:
        ...         async with producer.transaction() as txn:
        ...             await txn.send("orders", b"42")
        ...             await txn.send("payments", b"17")
        ...         print(txn.outcome)
    """

    __slots__ = ("_core", "_ending", "_is_prepared", "_preparing", "_task", "_transactions", "_watched")

    _life: TransactionLife

    def __init__(
        self,
        transactions: Transactions,
        life: ProducerLife,
        record_input: RecordInput,
        interceptors: Interceptors | None,
    ) -> None:
        super().__init__()
        self._transactions = transactions
        self._core: CoreTransaction | None = None
        self._ending: Operation | None = None
        self._preparing: Operation | None = None
        self._is_prepared = False
        self._watched: WatchedTransaction | None = None
        self._task: object = None
        self.config: ProducerConfig = life.config
        self._input = record_input
        self._interceptors = interceptors
        self._sending_task = None
        self._life = self._way_in = TransactionLife(life, self._check_open)
        self._bulk = Bulk(
            self._life,
            record_input,
            interceptors,
            batch_size=self.config.batch_size,
            heed_turn=self._heed_turn,
            send=self.send,
        )

    @property
    def outcome(self) -> TransactionOutcome | None:
        """Outcome of the transaction; `None` while it is not known yet."""
        if self._ending is not None and self._ending.outcome is not None:
            return self._ending.outcome
        return None if self._core is None else self._core.outcome

    @property
    def is_open(self) -> bool:
        """Whether records can be sent in the transaction."""
        manager = self._transactions.manager
        return self._core is not None and manager.transaction is self._core and manager.is_open

    @property
    def can_abort(self) -> bool:
        """Whether `abort()` is allowed."""
        manager = self._transactions.manager
        is_current = self._core is not None and manager.transaction is self._core
        return is_current and manager.can_abort and not self._life.is_over

    def _check_open(self) -> None:
        if self.is_open:
            return
        manager = self._transactions.manager
        if self._core is None:
            raise TransactionStateError(
                "the transaction is not begun: use it as a context, `async with producer.transaction() as txn:`",
                recover="begin",
            )
        if manager.transaction is self._core:
            raise manager.refusal()
        raise TransactionStateError(
            "this transaction has ended: begin another one", recover="begin", outcome=self.outcome
        )

    async def begin(self) -> Self:
        """Begin the transaction for the calling task, after the end of the previous one.

        Raises:
            TransactionStateError: if another transaction is open, or this one was begun before.
            TransactionError: if the producer cannot begin a transaction.
        """
        if self._core is not None:
            raise TransactionStateError(
                "a transaction is begun once: make another by producer.transaction()", recover="begin"
            )
        await self._transactions.begin(self)
        return self

    def _open(self, core: CoreTransaction) -> None:
        """Note that it is open for the calling task (for `Transactions`)."""
        self._core = core
        driver = self._life.driver
        self._task = driver.current_task()
        if self._interceptors is not None:
            self._watched = self._interceptors.transaction_began(self._transactions.manager.transactional_id)
            core.on_ended = self._watched.ended
        for path in self._transactions.paths:
            path._open_path(
                self._life.appenders,
                driver.is_running,
                driver.on_turn,
                self._life.admission.append_plain,
                is_plain=self._interceptors is None and not self._input.has_serializers,
                wall_ms=driver.wall_ms,
            )

    def _record_refused(self, error: BaseException) -> None:
        """Allow only an abort: a record that its sender counts as sent is not in it (for `blocking`)."""
        if self.is_open:
            self._transactions.manager.records.refused(error, self._life.driver.now())
            self._life.driver.wake()

    async def commit(self) -> None:
        """Send the remaining records and commit the transaction; wait for at most `max.block.ms`.

        The commit goes on if this call stops waiting. The same call again waits for its outcome. No other call is
        allowed until then.

        Raises:
            TransactionFailedError: if a record or an offset failed; abort the transaction.
            TransactionTimedOutError: if it was open for too long; it is aborted.
            TransactionUnconfirmedError: if no answer came in time; make the same call again.
            ProducerFencedError: if another producer has taken over.
            TransactionStateError: if it is not open.
        """
        ending = untold(self._ending, "commit")
        if ending is None:
            self._check_mine("commit")
            ending = self._ending = self._transactions.manager.commit(self._life.driver.now())
            self._preparing = None
        await self._wait(ending)

    async def prepare(self) -> PreparedTransaction:
        """Write all records to the log and return the transaction's identity; wait for at most `max.block.ms`.

        Any process that has the identity can commit or abort. After `transaction.timeout.ms` the broker aborts a
        transaction that has not ended. Initialising a producer of this `transactional.id` before the end also
        aborts it.

        Raises:
            TransactionFailedError: if a record or an offset failed; abort the transaction.
            TransactionUnconfirmedError: if not all records are in the log yet; make the same call again to wait.

        Example:
            >>> prepared = await txn.prepare()
            >>> await PreparedTransaction.from_bytes(prepared.to_bytes()).commit("localhost:9092")
        """
        self._check_mine("prepare")
        manager, core = self._transactions.manager, self._core
        assert core is not None
        producer_id, epoch = manager.producer
        self._preparing = untold(self._preparing, "prepare") or manager.prepare(self._life.driver.now())
        await self._wait(self._preparing)
        if manager.transaction is not core or manager.state is not TransactionState.PREPARED:
            raise manager.refusal("prepare")  # another task or a close has ended it
        is_empty = not core.is_known_to_the_coordinator
        self._is_prepared = core.is_prepared = True
        return PreparedTransaction(
            manager.transactional_id, producer_id, epoch, core.version, is_empty=is_empty
        )

    async def abort(self) -> None:
        """Abort the transaction, so that no reader of committed records sees it; wait for at most `max.block.ms`.

        Records that were not sent fail with TransactionAbortedError. The abort waits for records in flight, which
        keep their acknowledgement: they are in the log, but no reader of committed records sees them.

        Raises:
            TransactionUnconfirmedError: if no answer came in time; make the same call again.
            ProducerFencedError: if another producer has taken over.
            TransactionStateError: if it is not open, or its commit has no outcome yet.
        """
        ending = untold(self._ending, "abort")
        if ending is None:
            self._check_mine("abort")
            ending = self._ending = self._transactions.manager.abort(self._life.driver.now())
            self._preparing = None
        await self._wait(ending)

    async def _wait(self, operation: Operation) -> None:
        self._life.check_place()
        await self._transactions.wait(operation)

    def _check_mine(self, call: str) -> None:
        self._life.check_place()
        if self._life.is_over:
            self._life.check_running()
        manager = self._transactions.manager
        if self._core is None or (manager.transaction is not self._core and manager.error is None):
            raise TransactionStateError(
                f"{call}() is not possible: this transaction is not open",
                recover="begin",
                outcome=self.outcome,
            )

    async def send_offsets(
        self,
        offsets: Mapping[object, object] | Iterable[object],
        group: GroupMetadata | str | object,
    ) -> None:
        """Commit a consumer group's offsets with the transaction; wait for at most `max.block.ms`.

        Args:
            offsets: The offset of the next record to read, an int or an OffsetAndMetadata, by TopicPartition or
                `(topic, partition)`; or confluent-kafka's list of TopicPartitions.
            group: A GroupMetadata, the result of confluent-kafka's `consumer_group_metadata()`, or the name of a
                group whose consumer assigns its partitions itself.

        Raises:
            TransactionFailedError: if the group's coordinator refused them; abort the transaction.
            TypeError: if `offsets` or `group` has another type.
            ValueError: if an offset is below 0, or the group has a generation and no member.
        """
        self._life.check_callable()
        wanted, asking = read_offsets(offsets), read_group(group)
        manager = self._transactions.manager
        await self._transactions.wait(manager.send_offsets(wanted, asking, self._life.driver.now()))

    async def __aenter__(self) -> Self:
        await self.begin()
        if self._watched is not None:
            self._watched.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._body_ended(error)
        finally:
            if self._watched is not None:
                self._watched.leave()

    async def _body_ended(self, error: BaseException | None) -> None:
        if self._ending is not None and (self._ending.outcome is not None or self._ending.kind == "abort"):
            return
        if error is None and self._is_prepared:
            return
        if error is not None:
            await self._abort_for(error)
            return
        try:
            await self.commit()
        except TransactionError as failure:
            if failure.recover == "abort":
                refused = await self._abort_for(failure)
                failure.outcome = self.outcome
                failure.recover = "begin" if refused is None else refused.recover
            raise

    async def _abort_for(self, error: BaseException) -> TransactionError | None:
        """Abort after an error of the body; log and return the abort's error, since the body's is raised."""
        if not self.can_abort or isinstance(error, GeneratorExit):
            return None
        try:
            with self._life.driver.shielded():
                await self.abort()
        except TransactionError as failure:
            _log.warning("%s: the abort after an error failed: %s", self.config.transactional_id, failure)
            return failure
        return None

    def __repr__(self) -> str:
        state = "open" if self.is_open else self.outcome.value if self.outcome is not None else "not open"
        return f"<Transaction of {self.config.transactional_id}, {state}>"
