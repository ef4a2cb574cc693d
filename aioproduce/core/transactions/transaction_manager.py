"""The transactions of one producer: begun and ended by its calls, carried out by requests, one at a time.

An exchange of the Sender's, in the place where an idempotent producer has ProducerIdRequests: it gets the producer
id too. Kafka's TransactionManager has the same part; `transaction_states` and `answers` are its tables.

    calls:  init, begin, send_offsets, prepare, commit, abort: each gives an Operation, or raises and changes
        nothing
    facts:  the answers of its own requests; `delivery_failed` and `is_doubtful` from `produce_completion`,
            `produced` and `first_answer` from `produce_requests`

Invariants:

1. A commit is never reported as the opposite of what happened. Whatever is not confirmed is asked again with the
   same verdict and the same epoch, until it is answered; nothing else is asked for meanwhile.
2. EndTxn goes out when every record of the transaction has its outcome and its offsets are taken, or it is an
   abort.
3. Nothing of a transaction is sent after its EndTxn: what was not sent by then has failed. What may still be on the
   way (an answer was lost) meets a later epoch: with version 2 each end brings one, with version 1 one is asked for
   before the next transaction wherever anything is in doubt.
4. A failed record, or anything else that went wrong with a part, makes the commit impossible.
5. A transaction is ended in the version that it began with, whatever the cluster's feature is by then.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, BatchState, ProducerIdAndEpoch
from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.core.state_table import name_of
from aioproduce.core.transactions import refusals
from aioproduce.core.transactions.answers import DEFINITE, PRODUCE_FATAL, Action
from aioproduce.core.transactions.coordinators import Coordinators
from aioproduce.core.transactions.operation import Kind, Operation
from aioproduce.core.transactions.pause import Pause
from aioproduce.core.transactions.steps import (
    AddOffsetsStep,
    AddPartitionsStep,
    DescribeTransactionStep,
    EndTxnStep,
    FindCoordinatorStep,
    InitProducerIdStep,
    Step,
    TxnOffsetCommitStep,
    Who,
)
from aioproduce.core.transactions.transaction import GroupOffsets, Transaction
from aioproduce.core.transactions.transaction_states import TRANSACTION_STATES, Event, TransactionState
from aioproduce.errors import TransactionError, TransactionOutcome, UnsupportedVersionError
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.exchanges.produce_completion import ProduceCompletion
    from aioproduce.core.transactions.coordinators import CoordinatorKey
    from aioproduce.errors import DeliveryError
    from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition

_log = logging.getLogger("aioproduce.transactions")

_State = TransactionState
_OPEN: Final = frozenset({_State.IN_TRANSACTION, _State.PREPARED, _State.ABORTABLE_ERROR})
_ENDING: Final = frozenset({_State.COMMITTING, _State.ABORTING})
_SENDING: Final = frozenset({_State.IN_TRANSACTION, _State.PREPARED, _State.COMMITTING})
_CONCURRENT_BACKOFF: Final = 0.02
_CONCURRENT_BACKOFF_MAX: Final = 1.0
_LAST_PRODUCE_OF_VERSION_1: Final = 11


@final
class TransactionManager(Exchange):
    """Begins and ends transactions; `timer_at` tells when to ask again, or when one has been open for too long.

    Attributes:
        state: Where it is.
        transaction: The one that is open, or being ended.
        error: Why nothing more can be done; `None` while something can.
        has_news: Set by each call; cleared by the step that looks at it.
        on_change: Called after each change of the state, or `None`.
        pause: Before the next transaction's first request.
    """

    __slots__ = (
        "_accumulator",
        "_asked",
        "_bounded_log",
        "_closing_until",
        "_completion",
        "_concurrent",
        "_config",
        "_connections",
        "_coordinators",
        "_failures",
        "_first_produced_at",
        "_held_until",
        "_init_version",
        "_metadata",
        "_operation",
        "_producer",
        "_retry",
        "_retry_at",
        "_sequences",
        "error",
        "has_news",
        "on_change",
        "pause",
        "state",
        "transaction",
    )

    def __init__(
        self,
        config: ProducerConfig,
        sequences: Sequences,
        metadata: ClusterMetadata,
        accumulator: RecordAccumulator,
        connections: BrokerConnections,
        completion: ProduceCompletion,
        retry: ExponentialBackoff,
        random: Callable[[], float],
        bounded_log: BoundedLog,
    ) -> None:
        super().__init__()
        self._config = config
        self._sequences = sequences
        self._metadata = metadata
        self._accumulator = accumulator
        self._connections = connections
        self._completion = completion
        self._retry = retry
        self._concurrent = ExponentialBackoff(_CONCURRENT_BACKOFF, _CONCURRENT_BACKOFF_MAX, random=random)
        self._bounded_log = bounded_log
        self._coordinators = Coordinators(connections)
        self._producer = NO_PRODUCER_ID
        self._asked: Step | None = None
        self._operation: Operation | None = None
        self._failures = 0
        self._retry_at = self._held_until = -inf
        self._first_produced_at = self._closing_until = inf
        self._init_version = 0
        self.state = _State.UNINITIALIZED
        self.transaction: Transaction | None = None
        self.error: TransactionError | None = None
        self.pause = Pause()
        self.has_news = False
        self.on_change: Callable[[], None] | None = None
        sequences.transactions = self
        completion.transactions = self

    # -- calls ---

    def init(self) -> Operation:
        """Get a producer id, which ends what an earlier producer of the same transactional id left open.

        While a new epoch is on its way after a transaction, it gives the operation that brings it.
        """
        operation = self._current("init")
        if operation is not None:
            return operation
        self._check({_State.UNINITIALIZED}, "init_transactions")
        self._producer = NO_PRODUCER_ID
        return self._begin_init(Operation("init"))

    def _begin_init(self, operation: Operation) -> Operation:
        self._operation = operation
        self._move("ask for an id")
        self._sequences.init_begun()
        return operation

    def begin(self, now: float) -> Transaction:
        """Open a transaction."""
        self._check({_State.READY}, "begin")
        self._move("begin")
        self.transaction = Transaction(self._version, now)
        self._first_produced_at = inf
        return self.transaction

    @property
    def _version(self) -> int:
        return 2 if self._connections.features.transaction_version >= 2 else 1

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Operation:
        """Commit a consumer group's offsets with the open transaction."""
        self._check({_State.IN_TRANSACTION}, "send_offsets")
        assert self.transaction is not None
        operation = Operation("send_offsets")
        if offsets:
            self.transaction.offsets.append(GroupOffsets(group, offsets, operation))
            self.has_news = True
        else:
            operation.end()
        return operation

    def prepare(self, now: float) -> Operation:
        """Bring all of the transaction into the log, and leave its end to whoever has its identity."""
        operation = self._current("prepare")
        if operation is not None:
            return operation
        self._check({_State.IN_TRANSACTION}, "prepare")
        self._move("prepare")
        self._accumulator.begin_flush(now)
        self._operation = Operation("prepare")
        return self._operation

    def commit(self, now: float) -> Operation:
        """Make all of the transaction visible."""
        operation = self._current("commit")
        if operation is not None:
            return operation
        if self.state is _State.ABORTABLE_ERROR and self.transaction is not None and self.transaction.error:
            raise refusals.again(self.transaction.error)
        self._check({_State.IN_TRANSACTION, _State.PREPARED}, "commit")
        operation = self._operation = Operation("commit")
        self._look_at_the_clock(now)
        if not operation.is_done:
            self._move("commit")
            self._accumulator.begin_flush(now)
        return operation

    def abort(self, now: float) -> Operation:
        """Let nobody who reads committed records see any of the transaction."""
        operation = self._current("abort")
        if operation is not None:
            return operation
        self._check(_OPEN, "abort")
        transaction = self.transaction
        assert transaction is not None
        if self._operation is not None:
            self._operation.end(refusals.aborted_meanwhile())
        self._operation = Operation("abort")
        self._move("abort")
        for offsets in transaction.offsets:
            offsets.operation.end(refusals.aborted_meanwhile())
        transaction.offsets.clear()
        transaction.wanted.clear()
        self._fail_unsent(transaction.error, now)
        self._retry_at = -inf
        return self._operation

    def _current(self, kind: Kind) -> Operation | None:
        """The operation of that kind that goes on; the same call again waits for it."""
        operation = self._operation
        return operation if operation is not None and operation.kind == kind else None

    def _check(self, expected: set[TransactionState] | frozenset[TransactionState], call: str) -> None:
        if self.error is not None:
            raise refusals.again(self.error)
        if self.state not in expected:
            raise refusals.wrong_state(call, self.state, self.transaction)

    @property
    def pending(self) -> Operation | None:
        """What the next transaction has to wait for: an end without an answer, or a new epoch."""
        return self._operation if self.state in _ENDING or self.state is _State.INITIALIZING else None

    @property
    def can_abort(self) -> bool:
        """Whether an abort may be asked for."""
        return self.error is None and self.state in _OPEN

    @property
    def is_open(self) -> bool:
        """Whether records may be appended."""
        return self.state is _State.IN_TRANSACTION

    def refusal(self) -> BaseException:
        """Why no record may be appended."""
        if self.error is not None:
            return refusals.again(self.error)
        return refusals.wrong_state("send", self.state, self.transaction)

    # -- what Produce requests ask and tell ---

    @property
    def transactional_id(self) -> str:
        """Kafka's `transactional.id`."""
        assert self._config.transactional_id is not None
        return self._config.transactional_id

    def max_produce_version(self, otherwise: int | None) -> int | None:
        """The last version of Produce that may be used, where what is known of topics allows `otherwise`."""
        assert self.transaction is not None
        return _LAST_PRODUCE_OF_VERSION_1 if self.transaction.version == 1 else otherwise

    @property
    def is_open_for_retries(self) -> bool:
        """Whether what failed is worth another attempt."""
        return self.state in _SENDING

    def lets_send(self, now: float) -> bool:
        """Whether records may go out at all: not within the pause, and not while a new epoch is on its way."""
        return self.state in _SENDING and now >= self._held_until

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent now."""
        transaction = self.transaction
        if transaction is None:
            return False
        if transaction.admits(topic_partition):
            return True
        self._accumulator.readiness.has_news = True  # to be asked for in the next step
        return False

    def produced(self, now: float) -> None:
        """A Produce request went out."""
        assert self.transaction is not None
        self.transaction.sent(now)
        if self._first_produced_at == inf:
            self._first_produced_at = now

    def answered_produce(self, now: float) -> None:
        """A Produce request is answered."""
        if self.state is not _State.IN_TRANSACTION:
            self.has_news = True  # it may be the last that an end waits for
        if self._first_produced_at < inf:
            self.pause.observe(now - self._first_produced_at)
            self._first_produced_at = -inf

    def is_doubtful(self) -> None:
        """The outcome of a Produce request is unknown: it may arrive late."""
        if self.transaction is not None:
            self.transaction.has_doubt = True

    def delivery_failed(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        """A record of the transaction failed."""
        if batch.state is BatchState.ABANDONED or batch.possibly_written:
            self.is_doubtful()
        if batch.last_code in PRODUCE_FATAL:
            self._die(refusals.from_produce(batch.last_code, error))
        elif self.transaction is not None and self.state is not _State.ABORTING:
            self._fail(refusals.delivery_failed(error), now)

    # -- steps ---

    def advance(self, now: float) -> None:
        """Ask for what is due, one thing at a time."""
        self.awaits_connection = self.has_news = False
        for topic_partition in self._sequences.settle_sequences():
            self._accumulator.unblock(topic_partition, now)
        if self._sequences.wants_new_epoch and self.state in (_State.IN_TRANSACTION, _State.COMMITTING):
            self._fail(refusals.lost_sequence(), now)
        self._look_at_the_clock(now)
        if self._asked is None and now >= self._retry_at:
            step = self._next_step(now)
            if step is not None:
                self._ask(step, now)
        self.timer_at = self._next_time(now)

    def _next_step(self, now: float) -> Step | None:
        """What is due first: an id, partitions, offsets, the end."""
        if self.state is _State.INITIALIZING:
            self._init_version = self._version
            return InitProducerIdStep(self._who, self._init_version)
        transaction = self.transaction
        if transaction is None or now < self._held_until or self.state is _State.ABORTABLE_ERROR:
            return None
        version = transaction.version
        if transaction.wanted and self.state is not _State.ABORTING:
            return AddPartitionsStep(self._who, version, list(transaction.wanted))
        for offsets in transaction.offsets:
            if version == 1 and offsets.group.group_id not in transaction.groups:
                return AddOffsetsStep(self._who, version, offsets)
            return TxnOffsetCommitStep(self._who, version, offsets)
        if self._accumulator.has_incomplete:
            return None
        if self.state is _State.PREPARED:
            self._end_operation()
        elif self.state in _ENDING:
            if transaction.is_known_to_the_coordinator:
                is_commit = self.state is _State.COMMITTING and not transaction.is_probed
                return EndTxnStep(self._who, version, committed=is_commit)
            self._ended(self._verdict, None, now)
        return None

    @property
    def _verdict(self) -> TransactionOutcome:
        is_commit = self.state is _State.COMMITTING
        return TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED

    @property
    def _who(self) -> Who:
        config = self._config
        return Who(config.client_id, self.transactional_id, config.transaction_timeout, self._producer)

    def _ask(self, step: Step, now: float) -> None:
        if isinstance(step, FindCoordinatorStep):
            connection = self._connections.least_loaded(self._metadata.brokers, now)
        elif not self._coordinators.knows(step.coordinator):
            return self._find(step.coordinator, now)
        else:
            connection = self._coordinators.connection(step.coordinator, now)
            if connection is None and not self._coordinators.knows(step.coordinator):
                return self._back_off(self._retry, now)
        if connection is None:
            self.awaits_connection = True
            return None
        try:
            connection.send(step.api, step.encode, _Asked(self, step), now, max_version=step.max_version)
        except UnsupportedVersionError as error:
            self._die(refusals.unsupported(error))
            return None
        if step.may_register and step.version == 2 and self.transaction is not None:
            self.transaction.sent(now)
        self._asked = step
        return None

    def _find(self, key: CoordinatorKey, now: float) -> None:
        self._ask(FindCoordinatorStep(self._who, key), now)

    def _back_off(self, backoff: ExponentialBackoff, now: float) -> None:
        self._retry_at = now + backoff.backoff(self._failures)
        self._failures += 1

    # -- answers ---

    def step_answered(self, step: Step, response: Any, now: float) -> bool:
        """One of its requests was answered."""
        self._asked = None
        action, code, what = step.judge(response)
        if isinstance(step, AddPartitionsStep):
            self._partitions_added(response.partitions, now)
        if action is Action.DONE:
            self._failures = 0
            self._done(step, response, now)
            return False
        self._log_answer(step, code, now)
        transaction = self.transaction
        if action in (Action.RETRY, Action.FIND):
            if code not in DEFINITE:
                self._in_doubt(step, now)
            if action is Action.FIND and step.coordinator is not None:
                self._coordinators.lost(step.coordinator)
            if self._is_hopeless(step, code, now):
                self._refused(step, code, what, now)
            else:
                self._back_off(self._retry, now)
        elif action is Action.RETRY_SOON:
            self._back_off(self._concurrent, now)
        elif action is Action.ABORTABLE:
            self._refused(step, code, what, now)
        elif action is Action.FENCED and isinstance(step, EndTxnStep) and transaction is not None:
            self._end_refused(transaction, step, code, now)
        elif action is Action.FENCED and transaction is not None and not isinstance(step, InitProducerIdStep):
            # A time-out of the coordinator's, or another producer: the abort tells them apart.
            self._fail(refusals.fenced_or_timed_out(code), now)
        elif action is Action.FENCED:
            self._die(refusals.fenced(code, self._outcome_when_fenced()))
        else:
            self._die(refusals.fatal(step.api, code, what))
        return False

    def step_lost(self, step: Step, loss: Lost, now: float) -> None:
        """The connection that carried one of its requests is gone."""
        self._asked = None
        self._in_doubt(step, now)
        if not isinstance(step, FindCoordinatorStep):
            self._coordinators.lost(step.coordinator)
        self._bounded_log.warning(
            ("txn lost", step.api), now, "%s is asked again: %s", step.api.name, loss.reason
        )
        self._back_off(self._retry, now)

    def _in_doubt(self, step: Step, now: float) -> None:
        transaction = self.transaction
        if transaction is None or not (step.may_register or isinstance(step, EndTxnStep)):
            return
        transaction.has_doubt = True
        transaction.sent(now)
        if isinstance(step, EndTxnStep) and step.committed:
            transaction.is_unconfirmed = True

    def _log_answer(self, step: Step, code: int, now: float) -> None:
        self._bounded_log.warning(
            ("txn", step.api, code),
            now,
            "%s: %s: %s",
            step.api.name,
            codes.name_of(code),
            codes.message_of(code),
        )

    def _is_hopeless(self, step: Step, code: int, now: float) -> bool:
        """Offsets of a partition that is not there are asked for as long as a `send()` waits for a topic."""
        if not isinstance(step, TxnOffsetCommitStep) or code != codes.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        step.offsets.asked_at = min(step.offsets.asked_at, now)
        return now - step.offsets.asked_at >= self._config.max_block

    def _done(self, step: Step, response: Any, now: float) -> None:
        transaction = self.transaction
        if isinstance(step, AddOffsetsStep) and transaction is not None:
            transaction.groups.add(step.offsets.group.group_id)
            transaction.sent(now)
        if isinstance(step, FindCoordinatorStep):
            self._coordinators.found(step.key, response.address)
        elif isinstance(step, InitProducerIdStep):
            self._id_given(ProducerIdAndEpoch(response.producer_id, response.producer_epoch), now)
        elif isinstance(step, DescribeTransactionStep):
            self._described(response)
        elif isinstance(step, EndTxnStep):
            self._end_confirmed(response, now)
        elif (
            isinstance(step, TxnOffsetCommitStep)
            and transaction is not None
            and step.offsets in transaction.offsets
        ):
            transaction.offsets.remove(step.offsets)
            step.offsets.operation.end()

    def _partitions_added(self, results: Mapping[TopicPartition, int], now: float) -> None:
        transaction = self.transaction
        if transaction is None:
            return
        for topic_partition, code in results.items():
            if code == codes.NONE:
                transaction.wanted.pop(topic_partition, None)
                transaction.partitions.add(topic_partition)
                transaction.sent(now)
                self._accumulator.unblock(topic_partition, now)

    def _id_given(self, producer: ProducerIdAndEpoch, now: float) -> None:
        self._producer = producer
        self._sequences.restart(producer)
        self._accumulator.readiness.unblock_all(now)
        self._move("id given")
        self._end_operation()

    # -- the end of a transaction ---

    def _end_confirmed(self, response: Any, now: float) -> None:
        transaction = self.transaction
        assert transaction is not None
        producer = None
        if response.producer_id >= 0:
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        if transaction.is_probed:
            # An abort at the epoch of a commit that was refused: the coordinator's time-out was there before it.
            error = refusals.timed_out(self._config.transaction_timeout)
            self._ended(TransactionOutcome.ABORTED, producer, now, error)
        else:
            self._ended(self._verdict, producer, now)

    def _end_refused(self, transaction: Transaction, step: EndTxnStep, code: int, now: float) -> None:
        """INVALID_TXN_STATE, or fenced: by whom, and what became of the transaction?"""
        is_invalid_state = code == codes.INVALID_TXN_STATE
        if transaction.version == 1:
            if is_invalid_state:
                # Nothing is open there: aborted by the coordinator, or never registered.
                error = refusals.timed_out(self._config.transaction_timeout) if step.committed else None
                transaction.has_doubt = True
                self._ended(TransactionOutcome.ABORTED, None, now, error)
            else:
                self._asked = None
                self._ask(DescribeTransactionStep(self._who, 1), now)
        elif step.committed:
            transaction.is_probed = True
        elif is_invalid_state:
            # It was committed: by an earlier attempt of ours, or by whoever has its PreparedTransaction.
            transaction.has_doubt = True
            elsewhere = None if transaction.is_probed else refusals.committed_elsewhere()
            self._ended(TransactionOutcome.COMMITTED, None, now, elsewhere)
        else:
            self._die(refusals.fenced(code, self._outcome_when_fenced()))

    def _described(self, response: Any) -> None:
        """With version 1 a time-out looks like a fence: the coordinator knows whose epoch it is now."""
        found = response.transactions.get(self.transactional_id)
        was_timed_out = (
            found is not None
            and found.error_code == codes.NONE
            and (found.producer_id, found.producer_epoch)
            == (self._producer.producer_id, self._producer.epoch + 1)
            and found.state in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence")
        )
        if not was_timed_out:
            self._die(refusals.fenced(codes.PRODUCER_FENCED, self._outcome_when_fenced()))
            return
        error = refusals.timed_out(self._config.transaction_timeout, recover="init")
        self._producer = NO_PRODUCER_ID
        self.transaction = None
        self._sequences.lose_id()
        self._move("start anew")
        self._end_operation(error, TransactionOutcome.ABORTED)

    def _outcome_when_fenced(self) -> TransactionOutcome | None:
        transaction = self.transaction
        if transaction is None:
            return None
        # Whoever takes over aborts what is open, unless a commit of ours came first.
        return TransactionOutcome.UNKNOWN if transaction.is_unconfirmed else TransactionOutcome.ABORTED

    def _ended(
        self,
        outcome: TransactionOutcome,
        producer: ProducerIdAndEpoch | None,
        now: float,
        error: TransactionError | None = None,
    ) -> None:
        """The transaction has its outcome.

        Args:
            outcome: Which.
            producer: The next producer id and epoch, where the coordinator gave them (version 2).
            now: The current instant.
            error: What to tell with an outcome that was not asked for.
        """
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        self._failures = 0
        self._retry_at = -inf
        self._coordinators.forget_groups()
        if transaction.is_known_to_the_coordinator:
            self._held_until = now + self.pause.seconds
        operation, self._operation = self._operation, None
        if producer is not None:
            self._producer = producer
            self._sequences.restart(producer)
            self._move("ended")
        elif transaction.has_doubt or self._sequences.wants_new_epoch or self._version != transaction.version:
            self._move("ended, new epoch wanted")
            self._sequences.lose_id()
            self._sequences.init_begun()
            self._operation = Operation("init")
        else:
            self._move("ended")
        if operation is not None:
            operation.end(error, outcome)

    def _end_operation(
        self, error: TransactionError | None = None, outcome: TransactionOutcome | None = None
    ) -> None:
        operation, self._operation = self._operation, None
        if operation is not None:
            operation.end(error, outcome)

    # -- failures ---

    def _refused(self, step: Step, code: int, what: str, now: float) -> None:
        error = refusals.refused(step.api, code, what)
        if self.state is _State.INITIALIZING:
            self._move("id refused")
            self._sequences.init_failed(is_fatal=False)
            self._end_operation(error)
        elif self.state is _State.ABORTING:
            self._die(refusals.fatal(step.api, code, what))
        elif self.transaction is not None:
            self._fail(error, now)

    def _fail(self, error: TransactionError, now: float) -> None:
        """The transaction can only be aborted."""
        transaction = self.transaction
        assert transaction is not None
        if self.state is _State.ABORTABLE_ERROR:
            return  # the first error is the one that is told
        self._move("failed")
        transaction.error = error
        for offsets in transaction.offsets:
            offsets.operation.end(error)
        transaction.offsets.clear()
        transaction.wanted.clear()
        self._end_operation(error)
        self._fail_unsent(error, now)

    def _fail_unsent(self, error: TransactionError | None, now: float) -> None:
        """What was not sent is not sent any more, and what would be sent again neither."""
        self._completion.fail_queued(lambda batch: refusals.aborted_record(batch, error), now)

    def _die(self, error: TransactionError) -> None:
        """Nothing more can be done with this producer."""
        self._move("fatal")
        self.error = error
        transaction = self.transaction
        if transaction is not None:
            for offsets in transaction.offsets:
                offsets.operation.end(error)
            transaction.offsets.clear()
        self._end_operation(error, error.outcome)

    def _look_at_the_clock(self, now: float) -> None:
        """One that is open for too long is aborted here, before the coordinator does it."""
        transaction = self.transaction
        if transaction is None or self.state is not _State.IN_TRANSACTION:
            return
        if now >= transaction.first_sent_at + self._config.transaction_timeout:
            self._fail(refusals.open_too_long(self._config.transaction_timeout), now)

    # -- time and close ---

    def _next_time(self, now: float) -> float:
        at = self._closing_until
        if self._retry_at > now:
            at = min(at, self._retry_at)
        if self._held_until > now and self.transaction is not None:
            at = min(at, self._held_until)
        if self.state is _State.IN_TRANSACTION and self.transaction is not None:
            at = min(at, self.transaction.first_sent_at + self._config.transaction_timeout)
        return at

    def handle_timer(self, now: float) -> None:
        """Whatever is due is done in the step that follows."""
        if self.timer_at <= now:
            self.timer_at = inf
            if now >= self._held_until and self.transaction is not None:
                self._accumulator.readiness.has_news = True

    def begin_close(self, now: float) -> None:
        """An open transaction is aborted; what is being ended has until `max.block.ms` to be confirmed."""
        self._closing_until = now + self._config.max_block
        if self.state in _OPEN and self.state is not _State.PREPARED:
            self.abort(now)

    def finish(self, now: float) -> bool:
        """Whether nothing is left to be ended."""
        return self.state not in _ENDING or now >= self._closing_until

    def closed(self) -> None:
        """Nothing is asked any more: whoever waits hears what is known."""
        self._end_operation(refusals.closed(self._outcome_when_closed()))
        if self.transaction is not None:
            for offsets in self.transaction.offsets:
                offsets.operation.end(refusals.closed(None))

    def _outcome_when_closed(self) -> TransactionOutcome | None:
        if self.state is _State.COMMITTING:
            return TransactionOutcome.UNKNOWN
        return TransactionOutcome.ABORTED if self.state is _State.ABORTING else None

    def wake_all(self) -> None:
        """The sender died: whoever waits looks for themselves."""
        if self._operation is not None:
            self._operation.wake()
        if self.transaction is not None:
            for offsets in self.transaction.offsets:
                offsets.operation.wake()

    def _move(self, event: Event) -> None:
        before = self.state
        self.has_news = True
        self.state = TRANSACTION_STATES.after(before, event, self.transactional_id)
        _log.debug("%s: %s -> %s", self.transactional_id, name_of(before), name_of(self.state))
        if self.on_change is not None:
            self.on_change()


@final
class _Asked:
    """A step on its way: hears of its end."""

    __slots__ = ("_manager", "_step")

    def __init__(self, manager: TransactionManager, step: Step) -> None:
        self._manager = manager
        self._step = step

    def answered(self, response: Any, now: float) -> bool:
        return self._manager.step_answered(self._step, response, now)

    def lost(self, loss: Lost, now: float) -> None:
        self._manager.step_lost(self._step, loss, now)
