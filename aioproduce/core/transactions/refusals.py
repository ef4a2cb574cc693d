"""The errors of a transactional producer: cause, outcome and remedy.

Used within this package only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.core.transactions.endings import Ending
from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionsUnavailableError,
    TransactionTimedOutError,
)
from aioproduce.portable_error import copy_of
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.transactions.transaction import Transaction
    from aioproduce.errors import DeliveryError, Recover, UnsupportedVersionError

_NEXT: Final[dict[TransactionState, tuple[str, Recover]]] = {
    TransactionState.UNINITIALIZED: ("there is no producer id: call init_transactions() first", "init"),
    TransactionState.INITIALIZING: ("a producer id was requested: call init_transactions() again", "init"),
    TransactionState.READY: ("no transaction is open: begin one", "begin"),
    TransactionState.IN_TRANSACTION: ("a transaction is open: commit or abort it", "abort"),
    TransactionState.PREPARED: ("the transaction is prepared: commit or abort it", "abort"),
    TransactionState.COMMITTING: ("the outcome of a commit is awaited: call commit() again", "call again"),
    TransactionState.ABORTING: ("the outcome of an abort is awaited: call abort() again", "call again"),
    TransactionState.ABORTABLE_ERROR: ("the transaction has failed: abort it", "abort"),
    TransactionState.FATAL_ERROR: ("this producer cannot be used any more: make another one", "new producer"),
}

_REMEDIES: Final = {
    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant Write and Describe on this transactional.id",
    codes.CLUSTER_AUTHORIZATION_FAILED: "grant IdempotentWrite on the cluster",
    codes.GROUP_AUTHORIZATION_FAILED: "grant Read on the consumer group",
    codes.TOPIC_AUTHORIZATION_FAILED: "grant Write on the topic",
    codes.INVALID_TRANSACTION_TIMEOUT: (
        "set transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms (15 minutes by default)"
    ),
    codes.OFFSET_METADATA_TOO_LARGE: "shorten the metadata to the brokers' offset.metadata.max.bytes",
    codes.UNKNOWN_TOPIC_OR_PARTITION: "name a partition that exists",
    codes.ILLEGAL_GENERATION: "the consumer group has rebalanced: read again from its committed offsets",
    codes.UNKNOWN_MEMBER_ID: "the consumer has left its group: read again from its committed offsets",
    codes.FENCED_INSTANCE_ID: "give each consumer a group.instance.id of its own",
    codes.STALE_MEMBER_EPOCH: "the consumer group has rebalanced: read again from its committed offsets",
    codes.UNSUPPORTED_VERSION: "the brokers are too old for this request",
}


_SAID_OF_ONE: Final = {
    (ApiKey.TXN_OFFSET_COMMIT, codes.TOPIC_AUTHORIZATION_FAILED): (
        "the principal may not read the topic whose offset this is (grant Read on the topic)"
    ),
    (ApiKey.FIND_COORDINATOR, codes.GROUP_AUTHORIZATION_FAILED): (
        "the principal may not describe this consumer group (grant Describe and Read on the consumer group)"
    ),
    (ApiKey.TXN_OFFSET_COMMIT, codes.UNSUPPORTED_VERSION): (
        "brokers before Kafka 2.5 cannot detect that a member lost its partitions (upgrade them, or give the "
        "group's name alone and use one transactional.id for each input partition)"
    ),
}
"""Requests for which a code has another meaning than usual."""


def _said(api: ApiKey, code: int, what: str) -> str:
    """Return the request, the meaning of the answer, and the remedy, in words."""
    of = f" of {what}" if what else ""
    said = _SAID_OF_ONE.get((api, code))
    if said is None:
        said = codes.message_of(code) + (f" ({_REMEDIES[code]})" if code in _REMEDIES else "")
    return f"{api.name}{of}: {codes.name_of(code)}: {said}"


_LEFT_TO_THE_COORDINATOR: Final = (
    " before the abort was confirmed: the coordinator aborts the transaction after transaction.timeout.ms at the "
    "latest; until then readers of committed records wait for it",
    TransactionOutcome.ABORTED,
)
_CLOSED: Final = {
    TransactionState.COMMITTING: (
        " before the end of the transaction was confirmed: the outcome of the transaction is unknown",
        TransactionOutcome.UNKNOWN,
    ),
    TransactionState.ABORTING: _LEFT_TO_THE_COORDINATOR,
    TransactionState.ABORTABLE_ERROR: _LEFT_TO_THE_COORDINATOR,
}


def again(error: TransactionError) -> BaseException:
    """Return a copy of an error that was raised before: its traceback would keep the caller's frames alive."""
    return copy_of(error)


def wrong_state(call: str, state: TransactionState, transaction: Transaction | None) -> BaseException:
    """Return the error of a call that the state does not allow; a commit gets the transaction's error."""
    if call == "commit" and transaction is not None and transaction.error is not None:
        return again(transaction.error)
    text, recover = _NEXT[state]
    error = TransactionStateError(f"{call}() cannot be called now: {text}", recover=recover)
    if transaction is not None:
        error.__cause__ = transaction.error
    return error


def delivery_failed(cause: BaseException) -> TransactionFailedError:
    """Return the error of a transaction in which a record failed."""
    error = TransactionFailedError(f"a record of the transaction failed: abort it. {cause}", recover="abort")
    error.__cause__ = cause
    return error


def from_produce(code: int | None, cause: DeliveryError) -> TransactionError:
    """Return the fatal error for a Produce code that ends the producer."""
    kind = ProducerFencedError if code == codes.PRODUCER_FENCED else TransactionError
    error = kind(
        f"this producer cannot send any more: {cause}. Make another producer",
        recover="new producer",
        outcome=TransactionOutcome.ABORTED,
        code=code,
    )
    error.__cause__ = cause
    return error


def lost_sequence() -> TransactionFailedError:
    """Return the error for a gap before records in flight: earlier records were given up, or lost."""
    return TransactionFailedError(
        "a broker lacks records that come before those it received: they were lost, or given up. Abort the "
        "transaction",
        recover="abort",
        code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )


def refused(api: ApiKey, code: int, what: str) -> TransactionError:
    """Return the error of a part that the coordinator refused."""
    text = _said(api, code, what)
    if api is ApiKey.INIT_PRODUCER_ID:
        return TransactionsUnavailableError(
            f"the cluster refuses a producer id. {text}. Call init_transactions() again",
            recover="init",
            code=code,
        )
    return TransactionFailedError(f"abort the transaction. {text}", recover="abort", code=code)


def fatal(api: ApiKey, code: int, what: str) -> TransactionError:
    """Return the fatal error for an answer that ends the producer."""
    return TransactionsUnavailableError(
        f"{_said(api, code, what)}. Make another producer",
        recover="new producer",
        outcome=TransactionOutcome.UNKNOWN if api is ApiKey.END_TXN else None,
        code=code,
    )


def unsupported(cause: UnsupportedVersionError) -> TransactionError:
    """Return the error of a broker that does not support the request."""
    needs = "transactional.id needs brokers of Kafka 0.11 or later"
    if cause.api == ApiKey.DESCRIBE_TRANSACTIONS.display_name:
        needs = "only brokers of Kafka 3.0 or later report the outcome of a transaction"
    error = TransactionsUnavailableError(
        f"{needs}: {cause}",
        recover="new producer",
        code=codes.UNSUPPORTED_VERSION,
    )
    error.__cause__ = cause
    return error


def fenced_or_timed_out(code: int) -> TransactionFailedError:
    """Return the error for an epoch that ended; the abort finds out why."""
    return TransactionFailedError(
        f"{codes.name_of(code)}: the coordinator has aborted the transaction, after transaction.timeout.ms or for "
        "another producer of the same transactional.id: abort it to learn which",
        recover="abort",
        code=code,
    )


def fenced(code: int, transaction: Transaction | None) -> ProducerFencedError:
    """Return the error after another producer took over."""
    outcome = None if transaction is None else transaction.outcome_when_fenced
    what = {
        None: "",
        TransactionOutcome.ABORTED: " The transaction is aborted.",
        TransactionOutcome.UNKNOWN: (
            " The outcome of the transaction is unknown: an answer was lost, or it was prepared and others may "
            "have ended it."
        ),
        TransactionOutcome.COMMITTED: " The transaction is committed.",
    }[outcome]
    return ProducerFencedError(
        f"{codes.name_of(code)}: another producer of the same transactional.id has taken over.{what} "
        "Close this one",
        recover="new producer",
        outcome=outcome,
        code=code,
    )


def timed_out_before_init(timeout: float, transaction: Transaction) -> TransactionError:
    """Return the error for an epoch that ended with version 1, apparently by a time-out.

    An abort by a producer that took over looks the same. So the outcome is unknown if a commit of this transaction
    may have come first.
    """
    if transaction.outcome_when_fenced is not TransactionOutcome.UNKNOWN:
        return timed_out(timeout, recover="init")
    return TransactionError(
        "the epoch of the transaction has ended, and its outcome is unknown: an answer was lost, or it was "
        "prepared and others may have ended it. Call init_transactions() before the next transaction",
        recover="init",
        outcome=TransactionOutcome.UNKNOWN,
    )


def timed_out(timeout: float, recover: Recover = "begin") -> TransactionTimedOutError:
    """Return the error of a transaction that the coordinator aborted because it was open for too long."""
    then = "begin the next one" if recover == "begin" else "call init_transactions() before the next one"
    return TransactionTimedOutError(
        "the coordinator aborted the transaction, which was open for longer than transaction.timeout.ms "
        f"({timeout:g} s): {then}, with fewer records or a larger transaction.timeout.ms",
        recover=recover,
        outcome=TransactionOutcome.ABORTED,
    )


def ended_before(ending: Ending, timeout: float) -> tuple[TransactionOutcome, TransactionError | None]:
    """Return the outcome of a transaction that ended before the request, and the error to raise or `None`."""
    if ending is Ending.TIMED_OUT:
        return TransactionOutcome.ABORTED, timed_out(timeout)
    if ending is Ending.COMMITTED_ELSEWHERE:
        return TransactionOutcome.COMMITTED, committed_elsewhere()
    is_committed = ending is Ending.COMMITTED
    return TransactionOutcome.COMMITTED if is_committed else TransactionOutcome.ABORTED, None


def open_too_long(timeout: float) -> TransactionTimedOutError:
    """Return the error of a transaction that the coordinator is about to abort, by this producer's clock."""
    return TransactionTimedOutError(
        f"the transaction has been open for longer than transaction.timeout.ms ({timeout:g} s): abort it, and "
        "put fewer records into one, or raise transaction.timeout.ms",
        recover="abort",
    )


def committed_elsewhere() -> TransactionError:
    """Return the error of an abort after somebody else's commit."""
    return TransactionError(
        "the transaction was already committed through its PreparedTransaction: nothing is aborted",
        recover="begin",
        outcome=TransactionOutcome.COMMITTED,
        code=codes.INVALID_TXN_STATE,
    )


def aborted_meanwhile() -> TransactionFailedError:
    """Return the error of a call that waited while the transaction was aborted."""
    return TransactionFailedError(
        "the transaction was aborted while the call waited: begin the next one",
        recover="begin",
        outcome=TransactionOutcome.ABORTED,
    )


def committed_meanwhile() -> TransactionStateError:
    """Return the error of a `prepare()` that waited while `commit()` was called."""
    return TransactionStateError(
        "the transaction is being committed, so it cannot be prepared any more", recover="call again"
    )


def closed(state: TransactionState, transaction: Transaction | None) -> TransactionError:
    """Return the error of a call or an unconfirmed end when the producer is closed."""
    text, outcome = _CLOSED.get(state, ("", None))
    if outcome is not None and transaction is not None and transaction.is_prepared:
        text, outcome = _CLOSED[TransactionState.COMMITTING]
    return TransactionError(f"the producer was closed{text}", recover="new producer", outcome=outcome)


def aborted_record(batch: ProducerBatch, cause: TransactionError | None) -> TransactionAbortedError:
    """Return the error of records that are not sent because their transaction does not commit."""
    assert batch.state is not BatchState.IN_FLIGHT
    error = TransactionAbortedError(
        f"{batch.record_count} record(s) for {batch.topic_partition} were not sent: their transaction "
        + ("is being aborted" if cause is None else "has failed"),
        topic_partition=batch.topic_partition,
        possibly_written=batch.possibly_written,
        attempts=batch.attempts,
        retriable=True,
    )
    error.__cause__ = cause
    return error
