"""What a coordinator's answer proves of a prepared transaction: every state, epoch and version."""

from __future__ import annotations

import pytest

from aioproduce.core.batching.producer_batch import ProducerIdAndEpoch
from aioproduce.core.transactions.endings import outcome_of
from aioproduce.errors import TransactionOutcome
from aioproduce.wire.messages import TransactionDescription

OURS = ProducerIdAndEpoch(4000, 7)
DECIDED = {
    "PrepareCommit": TransactionOutcome.COMMITTED,
    "CompleteCommit": TransactionOutcome.COMMITTED,
    "PrepareAbort": TransactionOutcome.ABORTED,
    "CompleteAbort": TransactionOutcome.ABORTED,
}
STATES = [*DECIDED, "Ongoing", "Empty", "PrepareEpochFence", "Dead", "Something new"]
UNKNOWN = TransactionOutcome.UNKNOWN


def described(state: str, epoch: int = 7, producer_id: int = 4000, code: int = 0) -> TransactionDescription:
    return TransactionDescription(code, "orders-1", state, 60.0, -1, producer_id, epoch, ())


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [1, 2])
def test_by_epoch(state: str, version: int) -> None:
    by_epoch = {epoch: outcome_of(OURS, version, described(state, epoch)) for epoch in (6, 7, 8, 9, 0)}
    own = None if state == "Ongoing" else DECIDED.get(state, UNKNOWN)
    following = DECIDED.get(state, UNKNOWN) if version == 2 else UNKNOWN
    assert by_epoch == {6: UNKNOWN, 7: own, 8: following, 9: UNKNOWN, 0: UNKNOWN}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [1, 2])
def test_of_another_producer_or_none(state: str, version: int) -> None:
    assert outcome_of(OURS, version, described(state, producer_id=4001)) is UNKNOWN
    assert outcome_of(OURS, version, described(state, code=105)) is UNKNOWN
    assert outcome_of(OURS, version, None) is UNKNOWN
