"""Bugs on purpose in transactions, which only a case of transactions can see. For `test_seeds_transactional`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import PropertyMock, patch

from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.transactions import transaction_manager
from aioproduce.core.transactions.endings import REFUSED_ENDS, Ending
from aioproduce.core.transactions.records_in_transaction import RecordsInTransaction
from aioproduce.core.transactions.steps import EndTxnStep, TxnOffsetCommitStep
from aioproduce.core.transactions.transaction import Transaction
from aioproduce.core.transactions.transaction_manager import TransactionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@contextmanager
def _no_new_epoch() -> Iterator[None]:
    """With version 1 the epoch stays after an end that was not confirmed."""
    ended = TransactionManager._ended

    def certain(manager: TransactionManager, *arguments: Any, **options: Any) -> None:
        assert manager.transaction is not None
        manager.transaction.has_doubt = False
        ended(manager, *arguments, **options)

    with patch.object(TransactionManager, "_ended", certain):
        yield


@contextmanager
def _new_verdict() -> Iterator[None]:
    """A commit without an answer is followed by an abort, and told as a commit."""
    next_step = TransactionManager._next_step

    def another(manager: TransactionManager, now: float) -> Any:
        step = next_step(manager, now)
        if isinstance(step, EndTxnStep) and manager.transaction and manager.transaction.is_unconfirmed:
            step.committed = False
        return step

    with patch.object(TransactionManager, "_next_step", another):
        yield


@contextmanager
def _end_before_flush() -> Iterator[None]:
    """EndTxn goes out while records are on their way."""
    with patch.object(RecordAccumulator, "has_incomplete", PropertyMock(return_value=False)):
        yield


@contextmanager
def _sequences_kept() -> Iterator[None]:
    """Sequences go on under the next epoch."""

    def restart(sequences: Sequences, producer: Any) -> None:
        if not sequences.is_ready:
            sequences._move("given")
        sequences._producer = producer
        for partition in sequences._partitions.values():
            partition.producer = producer

    with patch.object(Sequences, "restart", restart):
        yield


@contextmanager
def _failure_forgotten() -> Iterator[None]:
    """What could be written is committed, though a record failed."""
    with patch.object(RecordsInTransaction, "delivery_failed", lambda *_: None):
        yield


@contextmanager
def _offsets_kept() -> Iterator[None]:
    """Offsets of an aborted transaction go out with the next one's."""
    begin, send_offsets, ended = (
        TransactionManager.begin,
        TransactionManager.send_offsets,
        TransactionManager._ended,
    )
    sent: dict[int, list[Any]] = {}
    stale: dict[int, list[Any]] = {}

    def send_kept(manager: TransactionManager, *asked: Any) -> Any:
        sent.setdefault(id(manager), []).append(asked)
        return send_offsets(manager, *asked)

    def ended_kept(manager: TransactionManager, outcome: Any, *others: Any) -> None:
        asked = sent.pop(id(manager), [])
        if outcome.value == "aborted":
            stale[id(manager)] = asked
        ended(manager, outcome, *others)

    def begin_with(manager: TransactionManager, now: float) -> Transaction:
        transaction = begin(manager, now)
        for asked in stale.pop(id(manager), []):
            send_offsets(manager, *asked)
        return transaction

    with (
        patch.object(TransactionManager, "send_offsets", send_kept),
        patch.object(TransactionManager, "_ended", ended_kept),
        patch.object(TransactionManager, "begin", begin_with),
    ):
        yield


@contextmanager
def _features_ignored() -> Iterator[None]:
    """A transaction is ended in the version of now, whichever it was begun in."""
    next_step = TransactionManager._next_step

    def latest(manager: TransactionManager, now: float) -> Any:
        step = next_step(manager, now)
        if isinstance(step, EndTxnStep):
            step.version = manager._features.transactions
        return step

    with patch.object(TransactionManager, "_next_step", latest):
        yield


@contextmanager
def _groups_mixed() -> Iterator[None]:
    """All offsets of a transaction are the first group's."""
    next_step = Transaction.next_step
    first: dict[int, Any] = {}

    def mixed(transaction: Transaction, who: Any, **options: Any) -> Any:
        step = next_step(transaction, who, **options)
        if isinstance(step, TxnOffsetCommitStep):
            step.offsets.group = first.setdefault(id(transaction), step.offsets.group)
        return step

    with patch.object(Transaction, "next_step", mixed):
        yield


@contextmanager
def _retried_into_the_next() -> Iterator[None]:
    """What was not sent in one transaction goes out in the next."""
    with (
        _end_before_flush(),
        patch.object(TransactionManager, "_fail_unsent", lambda *_: None),
    ):
        yield


@contextmanager
def _no_probe() -> Iterator[None]:
    """The coordinator's time-out is taken for another producer."""
    ends = {**REFUSED_ENDS, (2, "commit", True): Ending.FENCED, (2, "commit", False): Ending.FENCED}
    with patch.object(transaction_manager, "REFUSED_ENDS", ends):
        yield


class TransactionalMutant(NamedTuple):
    """A bug, and the cases that can show it: what `make_transactional` shall not draw, and a seed that does."""

    bug: Callable[[], AbstractContextManager[None]]
    where: dict[str, Any]
    seed: int


_LATE = ("request late", "transactional answer lost", "reset after a transactional request")
TRANSACTIONAL_MUTANTS: dict[str, TransactionalMutant] = {
    "no new epoch after an unconfirmed end": TransactionalMutant(
        _no_new_epoch, {"version": 1, "kinds": _LATE, "ending": "commit", "has_rivals": False, "pace": 2.0}, 3
    ),
    "a new verdict on a retry": TransactionalMutant(_new_verdict, {}, 0),
    "EndTxn before flush": TransactionalMutant(_end_before_flush, {}, 0),
    "sequences not reset": TransactionalMutant(_sequences_kept, {"version": 2}, 0),
    "a commit after a failed delivery": TransactionalMutant(_failure_forgotten, {}, 0),
    "stale offsets": TransactionalMutant(_offsets_kept, {}, 0),
    "features ignored": TransactionalMutant(
        _features_ignored,
        {"kinds": ("transaction.version", "reset", "reset after", "kill", "transactional answer lost")},
        0,
    ),
    "groups mixed": TransactionalMutant(_groups_mixed, {}, 0),
    "retried into the next transaction": TransactionalMutant(_retried_into_the_next, {}, 0),
    "no probe": TransactionalMutant(_no_probe, {"version": 2, "has_rivals": False}, 0),
}
