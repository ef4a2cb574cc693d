"""Transactions for threads, around a `Transaction` of the loop thread, with a way of their own.

Created by `BlockingProducer.transaction()`. Public methods are called in any thread. Methods that run in the loop
thread are `async` or documented so.

Invariants:

1. All records handed over before the end was requested belong to the transaction, or fail it. None gets into the
   next one: the way is first shut, then emptied, and only then the core is asked to end the transaction.
2. A transaction belongs to the thread that began it: the BlockingProducer's own calls use it only for that thread.
   Any thread that has the `BlockingTransaction` can send in it.
3. An end runs in its own task. A call that stops waiting for it (Ctrl-C) does not stop it; the same call again
   waits for it, or returns its result.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, final

from aioproduce.blocking.pump import not_in_transaction
from aioproduce.blocking.sending import BlockingSending
from aioproduce.blocking.way import Way
from aioproduce.errors import (
    ProducerError,
    TransactionError,
    TransactionStateError,
    TransactionUnconfirmedError,
)
from aioproduce.producer.offsets import read_group, read_offsets
from aioproduce.producer.value_types import K, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce.blocking.session import Session
    from aioproduce.errors import TransactionOutcome
    from aioproduce.producer.prepared_transaction import PreparedTransaction
    from aioproduce.producer.transactions import Transaction
    from aioproduce.records import GroupMetadata

_log = logging.getLogger("aioproduce.transactions")

_Kind: TypeAlias = Literal["commit", "abort", "prepare"]


@final
class _Ending:
    """A call that ends the transaction, in the loop thread.

    Attributes:
        kind: The kind of end.
        task: The task that carries it out.
        is_told: Whether its result was returned to a caller.
    """

    __slots__ = ("is_told", "kind", "task")

    def __init__(self, kind: _Kind, task: asyncio.Task[PreparedTransaction | None]) -> None:
        self.kind = kind
        self.task = task
        self.is_told = False


@final
class BlockingTransaction(BlockingSending[K, V]):
    """Records, and offsets of consumer groups, that become visible together or not at all.

    Created by `BlockingProducer.transaction()`. As a context manager it begins, commits at the end of its body, and
    aborts if the body raises. It has the BlockingProducer's sending calls.

    Example:
        >>> with BlockingProducer("localhost:9092", transactional_id="orders-1") as producer:
        ...     with producer.transaction() as txn:
        ...         txn.send("orders", b"42")
        ...         txn.send("payments", b"17")
        ...     print(txn.outcome)
    """

    __slots__ = (
        "_ending",
        "_is_dropped",
        "_is_prepared",
        "_owner",
        "_pumping",
        "_session",
        "_transaction",
        "_way",
    )

    _pumping: asyncio.Task[None]
    _transaction: Transaction[Any, Any]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._way: Way | None = None
        self._ending: _Ending | None = None
        self._is_dropped = False
        self._is_prepared = False
        self._owner: threading.Thread | None = None

    @property
    def outcome(self) -> TransactionOutcome | None:
        """The outcome; `None` while it is unknown."""
        return None if self._way is None else self._transaction.outcome

    # -- public calls, from any thread ---

    def begin(self) -> Self:
        """Open it for the calling thread, after the end of the previous one, within at most twice `max.block.ms`.

        Raises:
            TransactionStateError: If another one is open, or if this one was begun before.
            TransactionError: If the producer cannot begin one.
        """
        self._check_process()
        if self._way is not None:
            raise TransactionStateError(
                "a transaction can be begun only once: create another with producer.transaction()",
                recover="begin",
            )
        try:
            self._session.call(self._begin, threading.current_thread())
        except BaseException:
            # Ctrl-C may come after it was opened, and then nothing else would end it.
            self._session.submit(self._abort_unheard)
            raise
        return self

    def commit(self) -> None:
        """Send the remaining records, and make all of it visible; wait at most twice `max.block.ms`.

        A commit continues if the call stops waiting. The same call again waits for its outcome; no other call is
        possible meanwhile.

        Raises:
            TransactionFailedError: If a record or an offset failed: abort it.
            TransactionTimedOutError: If it was open for too long, and was aborted.
            TransactionUnconfirmedError: If there is no answer yet.
            ProducerFencedError: If another producer has taken over.
            TransactionStateError: If it is not open.
            LoopThreadError: If it is called in the loop thread.
        """
        self._end("commit")

    def abort(self) -> None:
        """Hide all of it from readers of committed records; wait at most `max.block.ms`.

        Unsent records fail with TransactionAbortedError.

        Raises:
            TransactionUnconfirmedError: If there is no answer yet.
            ProducerFencedError: If another producer has taken over.
            TransactionStateError: If it is not open, or if its commit is unconfirmed.
            LoopThreadError: If it is called in the loop thread.
        """
        self._end("abort")

    def prepare(self) -> PreparedTransaction:
        """Write all of it to the log, and leave its end to the holder of the result.

        As `Transaction.prepare()`. The methods of the result are coroutines:
        `asyncio.run(prepared.commit("localhost:9092"))`.

        Raises:
            TransactionFailedError: If a record or an offset failed: abort it.
            TransactionUnconfirmedError: If not all of it is in the log yet; the same call again continues to wait.
        """
        prepared = self._end("prepare")
        assert prepared is not None
        self._is_prepared = True
        return prepared

    def send_offsets(
        self,
        offsets: Mapping[object, object] | Iterable[object],
        group: GroupMetadata | str | object,
    ) -> None:
        """Commit a consumer group's offsets with it, as `Transaction.send_offsets()`, within `max.block.ms`.

        Raises:
            TransactionFailedError: If the group's coordinator refused them: abort the transaction.
            TypeError: If the arguments are not offsets and a group.
        """
        self._way_in()
        wanted, asking = read_offsets(offsets), read_group(group)
        self._session.call(self._transaction.send_offsets, wanted, asking)

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.outcome is not None or (self._ending is not None and self._ending.kind == "abort"):
            return
        if error is not None:
            self._abort_for(error)
            return
        if self._is_prepared:
            return
        try:
            self.commit()
        except TransactionError as failure:
            if failure.recover == "abort":
                refused = self._abort_for(failure)
                failure.outcome = self.outcome
                failure.recover = "begin" if refused is None else getattr(refused, "recover", "new producer")
            raise

    def _abort_for(self, error: BaseException) -> ProducerError | None:
        """Abort after an error of the body; log and return why that fails, because the body's error is raised."""
        ending = self._ending
        if ending is not None and ending.kind == "commit" and not ending.task.done():
            return None  # the caller of commit() stopped waiting for it
        if self._session.is_loop_thread():
            self._session.submit(self._abort_unheard)
            return None
        try:
            self.abort()
        except ProducerError as failure:
            _log.warning(
                "%s: the abort after %s failed: %s",
                self._session.config.transactional_id,
                type(error).__name__,
                failure,
            )
            return failure
        return None

    def __repr__(self) -> str:
        outcome = self.outcome
        is_open = self._way is not None and self._way.hand_over.is_open
        state = "open" if is_open else "not open" if outcome is None else outcome.value
        return f"<BlockingTransaction of {self._session.config.transactional_id}, {state}>"

    def _way_in(self) -> Way:
        """Return the way of its records; also used by BlockingProducer.

        Raises:
            TransactionStateError: If it is not open.
        """
        self._check_process()
        way = self._way
        if way is None:
            raise TransactionStateError(
                "the transaction was not begun: use it as a context manager, `with producer.transaction() as txn:`",
                recover="begin",
            )
        if not way.hand_over.is_open:
            raise self._why_shut()
        return way

    @property
    def is_open(self) -> bool:
        """Whether records can be sent in it."""
        return self._way is not None and self._way.hand_over.is_open

    def _check_process(self) -> None:
        if self._session.hand_over.is_forked():
            self._session.raise_forked()

    def _why_shut(self) -> BaseException:
        error: BaseException = self._session.read(self._refusal)
        return error

    def _end(self, kind: _Kind) -> PreparedTransaction | None:
        self._check_process()
        if self._way is None:
            raise TransactionStateError(
                f"{kind}() is not possible: the transaction was not begun", recover="begin"
            )
        session = self._session
        session.check_may_wait(f"{kind}()")
        ending: _Ending = session.call(self._join, kind)
        ending.is_told = True
        if ending.task.cancelled():
            raise TransactionStateError(
                f"the transaction was ended by another call, or by close(), before {kind}() could end it",
                recover="begin",
                outcome=self.outcome,
            )
        return ending.task.result()

    # -- in the loop thread ---

    def _refusal(self) -> BaseException:
        """Return the reason why nothing can be sent in it."""
        try:
            self._transaction._life.check_running()
        except ProducerError as error:
            return error
        return TransactionStateError(
            "the transaction is ending: repeat the call to wait for its outcome",
            recover="call again",
        )

    async def _begin(self, owner: threading.Thread) -> None:
        session = self._session
        before = None if session.current is None else session.current._ending
        if before is not None and not before.task.done():
            # Nobody, or another thread, waits for its end, so this waits for it as for the core's.
            await asyncio.wait([before.task], timeout=session.config.max_block)
        self._transaction = transaction = await session.producer.transaction().begin()
        # No await from here on, so that no other task sees it half begun.
        self._way = way = Way(session, transaction, self._why_shut, self._refused)
        self._owner = owner
        session.ways.add(way)
        session.current = self
        self._pumping = asyncio.create_task(self._pump(way), name="aioproduce records of a transaction")
        self._open_path(way.hand_over)

    async def _pump(self, way: Way) -> None:
        cause: TransactionError | None = None

        def give_up(entry: BlockingDelivery) -> BaseException:
            return not_in_transaction(entry, cause)

        try:
            await way.pump.run()
        except TransactionError as error:
            cause = error
            _log.debug(
                "%s: records are no longer accepted", self._session.config.transactional_id, exc_info=True
            )
        except ProducerError:
            _log.debug("the producer ended before its transaction", exc_info=True)
        finally:
            way.shut()
            await way.pump.settle(give_up)

    def _refused(self, error: BaseException) -> None:
        """Handle that it lacks a record which its sender counts as sent."""
        if not self._is_dropped:
            self._transaction._record_refused(error)

    async def _join(self, kind: _Kind) -> _Ending:
        """Begin an end, or find the one in progress; return it when it is done."""
        ending = self._ending
        if ending is not None and not ending.task.done() and ending.kind != kind:
            if ending.kind != "prepare":
                raise TransactionStateError(
                    f"{kind}() is not possible while {ending.kind}() is unconfirmed: call that again",
                    recover="call again",
                )
            ending.task.cancel()
            await asyncio.wait([ending.task])
        if ending is None or ending.kind != kind or (ending.is_told and ending.task.done()):
            task = asyncio.create_task(self._carry_out(kind), name=f"aioproduce {kind} of a transaction")
            ending = self._ending = _Ending(kind, task)
        await asyncio.wait([ending.task])
        return ending

    async def _carry_out(self, kind: _Kind) -> PreparedTransaction | None:
        transaction = self._transaction
        if kind == "abort":
            if transaction.can_abort:
                await self._drop()
            await transaction.abort()
            return None
        if transaction.is_open:
            await self._empty()
            if self._is_dropped:
                # The way is empty because a close refused its records, and not because they are in the transaction.
                raise TransactionStateError(
                    f"{kind}() came too late: the producer is being closed, which aborts the transaction",
                    recover="new producer",
                )
        if kind == "prepare":
            return await transaction.prepare()
        await transaction.commit()
        return None

    async def _empty(self) -> None:
        """Move all records that were handed over into batches; no more are accepted."""
        way, bound = self._way, self._session.config.max_block
        assert way is not None
        way.shut()
        if not await way.pump.through(bound):
            raise TransactionUnconfirmedError(
                f"not every record got into a batch within max.block.ms ({bound:g} s), because the buffer "
                "is full or a topic is not known: repeat the call to continue waiting, or abort",
                recover="call again",
            )
        way.pump.stop()

    async def _drop(self) -> None:
        """Refuse records that are not in a batch yet, which are not committed; also used by the session."""
        way = self._way
        assert way is not None
        self._is_dropped = True
        way.shut()
        self._pumping.cancel()
        await asyncio.wait([self._pumping])
        # The task has done so, unless it was cancelled before it began.
        await way.pump.settle(lambda entry: not_in_transaction(entry, None))

    async def _closing(self, timeout: float | None) -> None:
        """Handle the close of the producer: wait for a commit; otherwise refuse records that are in no batch."""
        ending = self._ending
        if ending is not None and not ending.task.done():
            if timeout != 0 and ending.kind == "commit":
                await asyncio.wait([ending.task], timeout=timeout)
            if self._transaction.is_open and ending.kind != "abort":
                # It is still waiting for records, which are refused from here on.
                ending.task.cancel()
                await asyncio.wait([ending.task])
        await self._drop()

    async def _abort_unheard(self) -> None:
        """Abort when no caller waits for the result."""
        if self._way is None:
            return
        ending = await self._join("abort")
        ending.is_told = True
        error = None if ending.task.cancelled() else ending.task.exception()
        if error is not None:
            _log.warning("%s: an abort failed: %s", self._session.config.transactional_id, error)
