"""What an audited producer knows of its records: numbers, outcomes, and the runs of those that failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce.core.batching.record_audit import NumberRuns, RecordAudit
from aioproduce.errors import TransactionOutcome


@given(st.lists(st.lists(st.integers(0, 60), unique=True), max_size=8), st.integers(0, 70))
def test_runs_are_the_set_of_what_was_added(batches: list[list[int]], bound: int) -> None:
    runs = NumberRuns()
    added: set[int] = set()
    for batch in batches:
        for number in batch:
            if number not in added:
                added.add(number)
                runs.add(number, number)
    found = runs.below(bound)
    assert {n for first, last in found for n in range(first, last + 1)} == {n for n in added if n < bound}
    # Apart, and ascending.
    edges = [edge for first, last in found for edge in (first, last + 1)]
    assert edges == sorted(set(edges))


@given(st.permutations(range(0, 40, 2)), st.integers(1, 20))
def test_of_too_many_runs_the_lowest_are_kept_and_the_rest_counted(order: list[int], most: int) -> None:
    runs = NumberRuns(most)
    for number in order:
        runs.add(number, number)
    assert runs.below(100) == [(number, number) for number in range(0, 40, 2)][:most]
    assert runs.dropped == 20 - most


def test_an_account_tells_what_was_acknowledged_and_what_failed() -> None:
    audit = RecordAudit(bytes(16))
    batches = [RecordBatchBuffer(bytearray(2000)) for _ in range(2)]
    for number in range(20):
        assert audit.numbers.append(batches[number % 2], 1, None, b"v", None) == number // 2
    audit.batch_failed(batches[1])
    audit.batch_succeeded("t", 10)
    account = audit.account(1000)
    assert (account.next, account.acknowledged, account.topics) == (20, 10, {"t": 10})
    assert account.failed == tuple((number, number) for number in range(1, 20, 2))
    assert account.failed_more == 0
    assert (audit.given, audit.failed) == (20, 10)
    # A mark has room for some.
    account = audit.account(3)
    assert (account.failed, account.failed_more) == (((1, 1), (3, 3), (5, 5)), 7)


def test_neighbours_that_fail_become_one_run() -> None:
    audit = RecordAudit(bytes(16))
    batches = [RecordBatchBuffer(bytearray(3000)) for _ in range(3)]
    for number in range(30):
        audit.numbers.append(batches[number % 3], 1, None, b"v", None)
    for batch in (batches[2], batches[0], batches[1]):
        audit.batch_failed(batch)
    assert audit.account(1000).failed == ((0, 29),)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_settled_before_it_is(count: int) -> None:
    audit = RecordAudit(bytes(16))
    batch = RecordBatchBuffer(bytearray(1000))
    for _ in range(count):
        audit.numbers.append(batch, 1, None, b"v", None)
    assert audit.settled_below == count


def append(audit: RecordAudit, count: int) -> RecordBatchBuffer:
    batch = RecordBatchBuffer(bytearray(2000))
    for _ in range(count):
        assert audit.numbers.append(batch, 1, None, b"v", None) is not None
    return batch


def test_a_transaction_decides_what_became_of_its_numbers() -> None:
    audit = RecordAudit(bytes(16), is_transactional=True)
    audit.transaction_began()
    append(audit, 3)
    audit.batch_succeeded("t", 3)
    assert (audit.settled_below, audit.acknowledged) == (0, 0), "acknowledged is not committed"
    audit.transaction_ended(TransactionOutcome.COMMITTED)
    assert (audit.settled_below, audit.acknowledged, audit.failed) == (3, 3, 0)

    audit.transaction_began()
    failed = append(audit, 4)
    audit.batch_succeeded("t", 2)
    audit.batch_failed(failed)
    audit.transaction_ended(TransactionOutcome.ABORTED)
    # What a batch tells after that is no news: its number is told of.
    audit.batch_failed(failed)
    audit.batch_succeeded("t", 1)
    account = audit.account(1000)
    assert (account.next, account.acknowledged, account.failed, account.topics) == (7, 3, ((3, 6),), {"t": 3})
    assert audit.failed == 4


@pytest.mark.parametrize("outcome", [TransactionOutcome.UNKNOWN, None])
def test_an_unknown_outcome_is_never_settled(outcome: TransactionOutcome | None) -> None:
    audit = RecordAudit(bytes(16), is_transactional=True)
    for what in (TransactionOutcome.COMMITTED, outcome, TransactionOutcome.COMMITTED, outcome):
        audit.transaction_began()
        append(audit, 2)
        audit.batch_succeeded("t", 2)
        audit.transaction_ended(what)
    account = audit.account(1000)
    assert (audit.given, account.next, account.acknowledged, account.failed) == (8, 2, 4, ())


def test_an_empty_transaction_leaves_nothing() -> None:
    audit = RecordAudit(bytes(16), is_transactional=True)
    for outcome in (*TransactionOutcome, None):
        audit.transaction_began()
        audit.transaction_ended(outcome)
    assert (audit.settled_below, audit.failed, audit.acknowledged) == (0, 0, 0)
