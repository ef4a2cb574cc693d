"""Transactions for threads: around a `Transaction` of the loop thread, with a way of records of its own.

Made by `BlockingProducer.transaction()`. What is public is called in any thread; what runs in the loop thread is
`async`, or says so.

Invariants:

1. All that was handed over before the end was asked for is in the transaction, or fails it. Nothing of it gets into
   the next one: its way is shut first, then emptied, and only then the core is asked for the end.
2. A transaction belongs to the thread that began it: the BlockingProducer's own calls send in it for that thread
   alone. Whoever has the `BlockingTransaction` sends in it, from any thread.
3. An end runs in a task of its own. A call that stops waiting for it (Ctrl-C) stops nothing; the same call again
   waits for it, or hears how it ended.
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
        kind: Which.
        task: Carries it out.
        is_told: Whether a caller has heard of its end.
    """

    __slots__ = ("is_told", "kind", "task")

    def __init__(self, kind: _Kind, task: asyncio.Task[PreparedTransaction | None]) -> None:
        self.kind = kind
        self.task = task
        self.is_told = False


@final
class BlockingTransaction(BlockingSending[K, V]):
    """Records, and offsets of consumer groups, that become visible together or not at all.

    Made by `BlockingProducer.transaction()`. As a context it begins, commits at the end of its body, and aborts
    where an exception leaves the body. It has the BlockingProducer's calls for sending.

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
        """What became of it; `None` while that is not known yet."""
        return None if self._way is None else self._transaction.outcome

    # -- its calls, from any thread ---

    def begin(self) -> Self:
        """Open it, for the calling thread; waits for the end of the one before, at most twice `max.block.ms`.

        Raises:
            TransactionStateError: Another one is open, or this one was begun before.
            TransactionError: The producer can begin none.
        """
        self._check_process()
        if self._way is not None:
            raise TransactionStateError(
                "a transaction is begun once: make another by producer.transaction()", recover="begin"
            )
        try:
            self._session.call(self._begin, threading.current_thread())
        except BaseException:
            # Ctrl-C may come when it is open already, and then nobody else would end it.
            self._session.submit(self._abort_unheard)
            raise
        return self

    def commit(self) -> None:
        """Send what is left, and make all of it visible; waits for at most twice `max.block.ms`.

        A commit that stops waiting goes on. The same call again waits for its outcome; nothing else can be asked
        for meanwhile.

        Raises:
            TransactionFailedError: A record or an offset failed: abort it.
            TransactionTimedOutError: It was open for too long, and is aborted.
            TransactionUnconfirmedError: No answer yet.
            ProducerFencedError: Another producer has taken over.
            TransactionStateError: It is not open.
            LoopThreadError: Called in the loop thread.
        """
        self._end("commit")

    def abort(self) -> None:
        """Let no reader of committed records see any of it; waits for at most `max.block.ms`.

        Records that were not sent fail with TransactionAbortedError.

        Raises:
            TransactionUnconfirmedError: No answer yet.
            ProducerFencedError: Another producer has taken over.
            TransactionStateError: It is not open, or the outcome of its commit is awaited.
            LoopThreadError: Called in the loop thread.
        """
        self._end("abort")

    def prepare(self) -> PreparedTransaction:
        """Bring all of it into the log, and leave its end to whoever has what this gives.

        As `Transaction.prepare()`. The calls of what it gives are coroutines:
        `asyncio.run(prepared.commit("localhost:9092"))`.

        Raises:
            TransactionFailedError: A record or an offset failed: abort it.
            TransactionUnconfirmedError: Not all of it is in the log yet; the same call again waits on.
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
        """Commit a consumer group's offsets with it; as `Transaction.send_offsets()`, at most `max.block.ms`.

        Raises:
            TransactionFailedError: The group's coordinator refused them: abort the transaction.
            TypeError: It is neither offsets nor a group.
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
        """Abort as the body failed; gives why it cannot be, and logs it, as the body's error is what is raised."""
        ending = self._ending
        if ending is not None and ending.kind == "commit" and not ending.task.done():
            return None  # whoever called commit() has left it going
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
        """The way of its records; for the BlockingProducer, too.

        Raises:
            TransactionStateError: It is not open.
        """
        self._check_process()
        way = self._way
        if way is None:
            raise TransactionStateError(
                "the transaction is not begun: use it as a context, `with producer.transaction() as txn:`",
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
            raise TransactionStateError(f"{kind}() does not fit here: it is not begun", recover="begin")
        session = self._session
        session.check_may_wait(f"{kind}()")
        ending: _Ending = session.call(self._join, kind)
        ending.is_told = True
        if ending.task.cancelled():
            raise TransactionStateError(
                f"the transaction was ended by another call, or by close(), before {kind}() had ended it",
                recover="begin",
                outcome=self.outcome,
            )
        return ending.task.result()

    # -- in the loop thread ---

    def _refusal(self) -> BaseException:
        """Why nothing can be sent in it."""
        try:
            self._transaction._life.check_running()
        except ProducerError as error:
            return error
        return TransactionStateError(
            "the transaction is being ended: make the same call again to wait for its outcome",
            recover="call again",
        )

    async def _begin(self, owner: threading.Thread) -> None:
        session = self._session
        before = None if session.current is None else session.current._ending
        if before is not None and not before.task.done():
            # Nobody waits for it any more, or another thread does: its end is awaited here as the core's is.
            await asyncio.wait([before.task], timeout=session.config.max_block)
        self._transaction = transaction = await session.producer.transaction().begin()
        # Nothing waits from here on: nobody sees it half begun.
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
                "%s: no record is taken any more", self._session.config.transactional_id, exc_info=True
            )
        except ProducerError:
            _log.debug("the producer ended before its transaction", exc_info=True)
        finally:
            way.shut()
            await way.pump.settle(give_up)

    def _refused(self, error: BaseException) -> None:
        """A record that its sender counts as sent is not in it."""
        if not self._is_dropped:
            self._transaction._record_refused(error)

    async def _join(self, kind: _Kind) -> _Ending:
        """Begin an end, or find it going; gives it when it is over."""
        ending = self._ending
        if ending is not None and not ending.task.done() and ending.kind != kind:
            if ending.kind != "prepare":
                raise TransactionStateError(
                    f"{kind}() does not fit here: the outcome of {ending.kind}() is awaited: call it again",
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
                # All is out of the way since a close refused it, and not because it is in the transaction.
                raise TransactionStateError(
                    f"{kind}() came too late: the producer is being closed, which aborts the transaction",
                    recover="new producer",
                )
        if kind == "prepare":
            return await transaction.prepare()
        await transaction.commit()
        return None

    async def _empty(self) -> None:
        """Bring all that was handed over into batches; nothing more comes in."""
        way, bound = self._way, self._session.config.max_block
        assert way is not None
        way.shut()
        if not await way.pump.through(bound):
            raise TransactionUnconfirmedError(
                f"not every record came into a batch within max.block.ms ({bound:g} s), as the buffer is full or a "
                "topic is not known: make the same call again to wait on, or abort",
                recover="call again",
            )
        way.pump.stop()

    async def _drop(self) -> None:
        """Refuse what is not in a batch yet: it is not committed; for the session, too."""
        way = self._way
        assert way is not None
        self._is_dropped = True
        way.shut()
        self._pumping.cancel()
        await asyncio.wait([self._pumping])
        # The task has done so, unless it was cancelled before it had begun.
        await way.pump.settle(lambda entry: not_in_transaction(entry, None))

    async def _closing(self, timeout: float | None) -> None:
        """The producer is being closed: wait for a commit, and refuse what is in no batch otherwise."""
        ending = self._ending
        if ending is not None and not ending.task.done():
            if timeout != 0 and ending.kind == "commit":
                await asyncio.wait([ending.task], timeout=timeout)
            if self._transaction.is_open and ending.kind != "abort":
                # It still waits for records, which are not in it from here on.
                ending.task.cancel()
                await asyncio.wait([ending.task])
        await self._drop()

    async def _abort_unheard(self) -> None:
        """Abort for nobody who would hear of it."""
        if self._way is None:
            return
        ending = await self._join("abort")
        ending.is_told = True
        error = None if ending.task.cancelled() else ending.task.exception()
        if error is not None:
            _log.warning("%s: an abort failed: %s", self._session.config.transactional_id, error)
