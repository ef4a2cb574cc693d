"""The transactions of one producer: its calls begin and end them, and requests execute them one at a time.

It is an exchange of the Sender, in place of an idempotent producer's ProducerIdRequests: it also gets the producer
id. Kafka's TransactionManager has the same role; `transaction_states`, `answers` and `endings` are its tables.

    calls:  init, begin, send_offsets, prepare, commit, abort: each returns an Operation, or raises and changes
            nothing
    facts:  the outcomes of its own requests, from `step_requests`, and of records, from `records_in_transaction`

Invariants:

1. A commit is never reported as the opposite of what happened. An unconfirmed end is requested again with the same
   verdict and the same epoch until it is answered. Until then nothing else is requested.
2. EndTxn is sent when every record of the transaction has its outcome and, for a commit, the coordinator has
   accepted its offsets.
3. Nothing of a transaction is sent after its EndTxn: a record not sent by then has failed. A request that may still
   arrive (its answer was lost) meets a later epoch. With version 2 each end brings one; with version 1 one is
   requested before the next transaction if anything is in doubt.
4. A failed record, or a failure of any other part, makes the commit impossible.
5. A transaction is ended in the version that it began with, even if the cluster's feature changes.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Any, final

from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, ProducerIdAndEpoch
from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.core.state_table import name_of
from aioproduce.core.transactions import refusals, steps
from aioproduce.core.transactions.answers import Action
from aioproduce.core.transactions.endings import REFUSED_ENDS, Ending
from aioproduce.core.transactions.operation import CurrentOperation, Operation
from aioproduce.core.transactions.pause import Pause
from aioproduce.core.transactions.records_in_transaction import RecordsInTransaction
from aioproduce.core.transactions.step_requests import StepRequests
from aioproduce.core.transactions.transaction import GroupOffsets, Outcomes, Transaction
from aioproduce.core.transactions.transaction_states import (
    ENDING,
    MAY_FAIL,
    OPEN,
    TRANSACTION_STATES,
    VERDICTS,
    Event,
    TransactionState,
)
from aioproduce.errors import TransactionError, TransactionOutcome
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.cluster.finalized_features import FinalizedFeatures
    from aioproduce.core.exchanges.produce_completion import ProduceCompletion
    from aioproduce.core.transactions.transaction import Offsets
    from aioproduce.errors import UnsupportedVersionError
    from aioproduce.records import GroupMetadata, TopicPartition

_log = logging.getLogger("aioproduce.transactions")

_State = TransactionState


@final
class TransactionManager(Exchange):
    """Begins and ends transactions. `timer_at`: the next retry, or the deadline of the open transaction.

    Attributes:
        state: Its state.
        transaction: The transaction that is open or being ended, or `None`.
        error: The fatal error, or `None`.
        has_news: Set by each call; cleared by the next step.
        on_change: Called after each change of the state, or `None`.
        outcomes: The number of transactions by outcome.
        pause: The pause before the next transaction's first request.
        producer: The producer id and epoch.
        records: The open transaction as its records see it.
    """

    __slots__ = (
        "_accumulator",
        "_closing_until",
        "_completion",
        "_config",
        "_features",
        "_operation",
        "_requests",
        "_sequences",
        "error",
        "has_news",
        "on_change",
        "outcomes",
        "pause",
        "producer",
        "records",
        "state",
        "transaction",
    )

    timer_at: float

    def __init__(
        self,
        config: ProducerConfig,
        sequences: Sequences,
        accumulator: RecordAccumulator,
        completion: ProduceCompletion,
        requests: StepRequests,
        features: FinalizedFeatures,
    ) -> None:
        super().__init__()
        self._config, self._features = config, features
        self._sequences, self._accumulator = sequences, accumulator
        self._completion, self._requests = completion, requests
        requests.listener = self
        self.producer: ProducerIdAndEpoch = NO_PRODUCER_ID
        self._operation, self._closing_until = CurrentOperation(), inf
        self.state: TransactionState = _State.UNINITIALIZED
        self.transaction: Transaction | None = None
        self.error: TransactionError | None = None
        self.pause: Pause = Pause()
        self.outcomes: Outcomes = Outcomes()
        self.has_news: bool = False
        self.on_change: Callable[[], None] | None = None
        self.records: RecordsInTransaction = RecordsInTransaction(self, accumulator)
        sequences.transaction = completion.transaction = self.records

    # -- calls ---

    def init(self) -> Operation:
        """Get a producer id. That ends a transaction that an earlier producer of the same id left open.

        While a new epoch is awaited after a transaction, this returns the operation that brings it.
        """
        if (operation := self._operation.of("init")) is not None:
            return operation
        self._check({_State.UNINITIALIZED}, "init_transactions")
        self.producer = NO_PRODUCER_ID
        self._move("ask for an id")
        self._sequences.init_begun()
        return self._operation.start("init")

    def resume(self, producer: ProducerIdAndEpoch, version: int, now: float) -> None:
        """Take over a prepared transaction, only to end it."""
        self._check({_State.UNINITIALIZED}, "resume")
        self._move("resume")
        self.producer = producer
        self._sequences.init_begun()
        self._sequences.restart(producer)
        self.transaction = Transaction.resumed(version, now, self.outcomes)

    def ask_outcome(self) -> Operation:
        """Ask for the outcome of the transaction that was taken over; this changes nothing."""
        self._check({_State.PREPARED}, "outcome")
        self.has_news = True
        return self._operation.start("outcome")

    def begin(self, commits_at: float = inf) -> Transaction:
        """Open a transaction. One with a `commits_at` also aborts by itself."""
        self._check({_State.READY}, "begin")
        self._move("begin")
        version, timeout = self._features.transactions, self._config.transaction_timeout
        self.transaction = Transaction(version, timeout, self.outcomes, commits_at, self._accumulator.audit)
        self.pause.begun()
        return self.transaction

    def send_offsets(self, offsets: Offsets, group: GroupMetadata, now: float) -> Operation:
        """Commit a consumer group's offsets with the open transaction."""
        self._check({_State.IN_TRANSACTION}, "send_offsets")
        assert self.transaction is not None
        operation = Operation("send_offsets")
        if offsets:
            self.transaction.offsets.append(GroupOffsets(group, offsets, operation, now))
            self.has_news = True
        else:
            operation.end()
        return operation

    def prepare(self, now: float) -> Operation:
        """Write all of the transaction to the log, and leave its end to a holder of its identity."""
        if (operation := self._operation.of("prepare")) is not None:
            return operation
        self._check({_State.IN_TRANSACTION}, "prepare")
        self._move("prepare")
        self._accumulator.begin_flush(now)
        return self._operation.start("prepare")

    def commit(self, now: float) -> Operation:
        """Make all of the transaction visible."""
        if (operation := self._operation.of("commit")) is not None:
            return operation
        self._check({_State.IN_TRANSACTION, _State.PREPARED}, "commit")
        self._operation.end(refusals.committed_meanwhile())
        operation = self._operation.start("commit")
        self._look_at_the_clock(now)
        if not operation.is_done:
            self._move("commit")
            self._accumulator.begin_flush(now)
        return operation

    def abort(self, now: float) -> Operation:
        """Hide all of the transaction from readers of committed records."""
        if (operation := self._operation.of("abort")) is not None:
            return operation
        self._check(OPEN, "abort")
        transaction = self.transaction
        assert transaction is not None
        meanwhile = refusals.aborted_meanwhile()
        self._operation.end(meanwhile)
        self._move("abort")
        transaction.drop(meanwhile)
        self._fail_unsent(transaction.error, now)
        self._requests.renew()
        return self._operation.start("abort")

    def _check(self, expected: set[TransactionState] | frozenset[TransactionState], call: str) -> None:
        if self.error is not None or self.state not in expected:
            raise self.refusal(call)

    @property
    def pending(self) -> Operation | None:
        """The operation that delays the next transaction (an unconfirmed end or a new epoch), or `None`."""
        is_pending = self.state in ENDING or self.state is _State.INITIALIZING
        return self._operation.operation if is_pending else None

    @property
    def wants_init(self) -> bool:
        """Whether there is no producer id and `init()` would get one."""
        return self.error is None and self.state is _State.UNINITIALIZED

    @property
    def can_abort(self) -> bool:
        """Whether `abort()` may be called."""
        return self.error is None and self.state in OPEN

    @property
    def is_open(self) -> bool:
        """Whether records may be appended."""
        return self.state is _State.IN_TRANSACTION

    def refusal(self, call: str = "send") -> BaseException:
        """Return the error of a call that the state does not allow."""
        if self.error is not None:
            return refusals.again(self.error)
        return refusals.wrong_state(call, self.state, self.transaction)

    @property
    def transactional_id(self) -> str:
        """Kafka's `transactional.id`."""
        assert self._config.transactional_id is not None
        return self._config.transactional_id

    # -- steps ---

    def advance(self, now: float) -> None:
        """Send the request that is due, one at a time."""
        self._requests.awaits_connection = self.has_news = False
        for topic_partition in self._sequences.settle_sequences():
            self._accumulator.unblock(topic_partition, now)
        if self._sequences.wants_new_epoch and self.state in (_State.IN_TRANSACTION, _State.COMMITTING):
            self.fail(refusals.lost_sequence(), now)
        self._look_at_the_clock(now)
        if self.is_open and self.transaction is not None and now >= self.transaction.commits_at:
            self.commit(now)
        if self._requests.may_ask(now) and (step := self._next_step(now)) is not None:
            self._requests.ask(step, now)
        self.awaits_connection = self._requests.awaits_connection
        self.timer_at = self._next_time(now)

    def _next_step(self, now: float) -> steps.Step | None:
        """Return the step that is due first (an id, partitions, offsets, the end), or `None`."""
        if self.state is _State.INITIALIZING:
            return steps.InitProducerIdStep(self._who, self._features.transactions)
        transaction = self.transaction
        if transaction is None or self.state is _State.ABORTABLE_ERROR:
            return None
        if now < self.pause.until:
            return steps.MarkersStep(self._who, transaction.version) if self.pause.questions_left else None
        if transaction.wanted or transaction.offsets:
            is_aborting = self.state is _State.ABORTING
            if (part := transaction.next_step(self._who, is_aborting=is_aborting)) is not None:
                return part
        if self.state is _State.IN_TRANSACTION or self._accumulator.has_incomplete:
            return None
        if self.state is _State.PREPARED:
            if self._operation.of("outcome") is not None:
                return steps.OutcomeStep(self._who, transaction.version)
            self._operation.end()
        elif self.state in ENDING:
            if transaction.is_known_to_the_coordinator:
                is_commit = self.state is _State.COMMITTING and not transaction.is_probed
                return steps.EndTxnStep(self._who, transaction.version, committed=is_commit)
            self._ended(VERDICTS[self.state], None, now)
        return None

    @property
    def _who(self) -> steps.Who:
        timeout = self._config.transaction_timeout
        return steps.Who(self._config.client_id, self.transactional_id, timeout, self.producer)

    # -- answers ---

    def step_sent(self, step: steps.Step, now: float) -> None:
        """Implement `StepListener`."""
        if step.may_register and step.version == 2 and self.transaction is not None:
            self.transaction.sent(now)

    def step_refused(self, step: steps.Step, action: Action, code: int, what: str, now: float) -> None:
        """Implement `StepListener`."""
        transaction = self.transaction
        if action is Action.ABORTABLE:
            self._refused(step, code, what, now)
        elif action is Action.FATAL:
            self.die(refusals.fatal(step.api, code, what), now)
        elif isinstance(step, steps.InitProducerIdStep) and self.producer != NO_PRODUCER_ID:
            self._requests.ask(steps.DescribeTransactionStep(self._who, 1), now)
        elif transaction is None or isinstance(step, steps.InitProducerIdStep):
            self.die(refusals.fenced(code, self.transaction), now)
        elif isinstance(step, steps.EndTxnStep):
            self._end_refused(transaction, step, code, now)
        else:
            # The coordinator's time-out, or another producer: the abort tells them apart. So the abort is sent even
            # if the coordinator has accepted nothing of this transaction.
            transaction.fenced(now)
            self.fail(refusals.fenced_or_timed_out(code), now)

    def step_unsupported(self, error: UnsupportedVersionError, now: float) -> None:
        """Implement `StepListener`."""
        self.die(refusals.unsupported(error), now)

    def step_in_doubt(self, step: steps.Step, now: float) -> None:
        """Implement `StepListener`."""
        if self.transaction is not None:
            self.transaction.step_in_doubt(step, now)

    def step_done(self, step: steps.Step, response: Any, now: float) -> None:
        """Implement `StepListener`."""
        if isinstance(step, steps.InitProducerIdStep):
            self._id_given(ProducerIdAndEpoch(response.producer_id, response.producer_epoch), now)
        elif isinstance(step, steps.DescribeTransactionStep):
            self._described(step.is_still_ours(response), now)
        elif isinstance(step, steps.OutcomeStep):
            self._operation.end(None, step.outcome(response))
        elif isinstance(step, steps.EndTxnStep):
            self._end_confirmed(response, now)
        elif isinstance(step, steps.MarkersStep):
            self.pause.answered_question(step.are_written(response), now)
            self.has_news |= response is None  # it cannot be asked: the pause may be over
        elif self.transaction is not None:
            self.transaction.step_done(step, now)

    def partitions_added(self, results: Mapping[TopicPartition, int], now: float) -> None:
        """Implement `StepListener`."""
        if self.transaction is not None:
            for topic_partition in self.transaction.added(results, now):
                self._accumulator.unblock(topic_partition, now)

    def _id_given(self, producer: ProducerIdAndEpoch, now: float) -> None:
        self.producer = producer
        self._sequences.restart(producer)
        self._accumulator.readiness.unblock_all(now)
        self._move("id given")
        self._operation.end()

    # -- the end of a transaction ---

    def _end_confirmed(self, response: Any, now: float) -> None:
        transaction = self.transaction
        assert transaction is not None
        given = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        producer = given if given.producer_id >= 0 else None
        if transaction.is_probed:
            # An abort at the epoch of a refused commit succeeded: the coordinator's time-out preceded the commit.
            error = refusals.timed_out(self._config.transaction_timeout)
            self._ended(TransactionOutcome.ABORTED, producer, now, error)
        else:
            self._ended(VERDICTS[self.state], producer, now)

    def _end_refused(self, transaction: Transaction, step: steps.EndTxnStep, code: int, now: float) -> None:
        """Find out who ended the transaction after INVALID_TXN_STATE or a fence, and its outcome."""
        verdict = transaction.verdict(is_commit=step.committed)
        ending = REFUSED_ENDS[transaction.version, verdict, code == codes.INVALID_TXN_STATE]
        if ending is Ending.PROBE:
            transaction.is_probed = transaction.was_fenced = True
        elif ending is Ending.DESCRIBE:
            self._requests.ask(steps.DescribeTransactionStep(self._who, 1), now)
        elif ending is Ending.FENCED:
            self.die(refusals.fenced(code, self.transaction), now)
        else:
            transaction.has_doubt = True
            outcome, error = refusals.ended_before(ending, self._config.transaction_timeout)
            self._ended(outcome, None, now, error)

    def _described(self, is_still_ours: bool, now: float) -> None:
        """Handle the owner of the epoch: with version 1 a time-out looks like a fence."""
        if not is_still_ours:
            self.die(refusals.fenced(codes.PRODUCER_FENCED, self.transaction), now)
            return
        self.producer = NO_PRODUCER_ID
        transaction, self.transaction = self.transaction, None
        if transaction is None:
            return  # a new epoch was requested: the next step requests an id as a new producer does
        error = refusals.timed_out_before_init(self._config.transaction_timeout, transaction)
        self._sequences.lose_id()
        self._move("start again")
        self._operation.end(error, error.outcome)
        transaction.ended(error, error.outcome)

    def _ended(
        self,
        outcome: TransactionOutcome,
        producer: ProducerIdAndEpoch | None,
        now: float,
        error: TransactionError | None = None,
    ) -> None:
        """End the transaction with its outcome.

        Args:
            outcome: Its outcome.
            producer: The next producer id and epoch, if the coordinator returned them (version 2).
            now: The current instant.
            error: The error that goes with an outcome that was not requested.
        """
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        self._requests.transaction_ended()
        if transaction.is_known_to_the_coordinator:
            self.pause.ended(now)
        operation = self._operation.take()
        if producer is not None:
            self.producer = producer
            self._sequences.restart(producer)
        version, has_one = self._features.transactions, producer is not None
        if self._sequences.wants_new_epoch or transaction.wants_new_epoch(version, has_one=has_one):
            self._move("ended, new epoch wanted")
            self._sequences.lose_id()
            self._sequences.init_begun()
            self._operation.start("init")
        else:
            self._move("ended")
        if operation is not None:
            operation.end(error, outcome)
        transaction.ended(error, outcome)

    # -- failures ---

    def _refused(self, step: steps.Step, code: int, what: str, now: float) -> None:
        if self.state is _State.INITIALIZING:
            self._move("id refused")
            self._sequences.init_failed(is_fatal=False)
            self._operation.end(refusals.refused(step.api, code, what))
        elif self.transaction is None:
            return
        elif self.transaction.is_unconfirmed or (
            self.state is _State.ABORTING and step.api is ApiKey.END_TXN
        ):
            # An earlier attempt may have been executed: no other outcome may be reported or requested.
            self.die(refusals.fatal(ApiKey.END_TXN, code, what), now)
        else:
            self.fail(refusals.refused(step.api, code, what), now)

    def fail(self, error: TransactionError, now: float) -> None:
        """Make the open transaction abortable only. The first error is the one that callers get."""
        transaction = self.transaction
        if transaction is None or self.state not in MAY_FAIL:
            return  # it failed earlier or is being aborted; this belongs to an earlier request
        self._move("failed")
        transaction.fail(error)
        self._operation.end(error)
        self._fail_unsent(error, now)
        if transaction.whole is not None:
            self.abort(now)

    def _fail_unsent(self, error: TransactionError | None, now: float) -> None:
        """Fail the records that were not sent, and those that would be sent again."""
        self._completion.fail_queued(lambda batch: refusals.aborted_record(batch, error), now)

    def die(self, error: TransactionError, now: float) -> None:
        """Make the producer unusable."""
        self._move("fatal")
        self.error = error
        self._fail_unsent(error, now)
        if self.transaction is not None:
            self.transaction.given_up(error)
        self._operation.end(error, error.outcome)

    def _look_at_the_clock(self, now: float) -> None:
        """Fail a transaction that is open for too long, before the coordinator aborts it."""
        if self.is_open and self.transaction is not None and now >= self.transaction.deadline:
            self.fail(refusals.open_too_long(self._config.transaction_timeout), now)

    # -- time and close ---

    def _next_time(self, now: float) -> float:
        at = self._closing_until if self._closing_until > now else inf
        if self._requests.retry_at > now:
            at = min(at, self._requests.retry_at)
        if self.pause.until > now and self.transaction is not None:
            at = min(at, self.pause.until)
        if self.state is _State.IN_TRANSACTION and self.transaction is not None:
            at = min(at, self.transaction.deadline, self.transaction.commits_at)
        return at

    def handle_timer(self, now: float) -> None:
        """Clear the timer; the following step sends what is due."""
        super().handle_timer(now)
        self._accumulator.readiness.has_news = True  # the pause may be over

    def begin_close(self, now: float) -> None:
        """Abort an open transaction that is not prepared; an end has `max.block.ms` to be confirmed."""
        self._closing_until = now + self._config.max_block
        if self.transaction is not None and self.state in OPEN and not self.transaction.is_prepared:
            self.abort(now)

    def finish(self, now: float) -> bool:
        """Return whether no transaction is being ended, or the time for that has passed."""
        return self.state not in ENDING or now >= self._closing_until

    def closed(self) -> None:
        """Report what is known to all waiters: no more requests are sent."""
        error = refusals.closed(self.state, self.transaction)
        if error.outcome is not None:
            _log.warning("%s: %s", self.transactional_id, error)
        self._operation.end(error, error.outcome)
        if self.transaction is not None:
            self.transaction.given_up(error)

    def wake_all(self) -> None:
        """Wake all waiters after the sender's death."""
        self._operation.wake()
        if self.transaction is not None:
            self.transaction.wake()

    def _move(self, event: Event) -> None:
        before = self.state
        self.has_news = True
        self.state = TRANSACTION_STATES.after(before, event, self.transactional_id)
        _log.debug("%s: %s -> %s", self.transactional_id, name_of(before), name_of(self.state))
        if self.on_change is not None:
            self.on_change()
