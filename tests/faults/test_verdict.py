"""The oracle itself: each breach of a promise is told, and what a promise leaves open is not.

The outcomes and the log are written by hand; no producer and no broker takes part.
"""

from __future__ import annotations

import pytest

from aioproduce import Producer, RecordMetadata, TopicPartition
from aioproduce.errors import DeliveryTimeoutError
from aioproduce.testing import FakeRecord
from tests.faults.verdict import Promise, Trial


def failure(*, possibly_written: bool) -> DeliveryTimeoutError:
    return DeliveryTimeoutError(
        "late",
        topic_partition=TopicPartition("t", 0),
        possibly_written=possibly_written,
        attempts=1,
        retriable=True,
    )


def trial(outcomes: dict[int, int | DeliveryTimeoutError]) -> Trial:
    """Records that were acknowledged at an offset of partition 0, or failed."""
    made = Trial(Producer("nowhere:1"), "t", Promise.ONCE)
    made.sent = len(outcomes)
    for number, outcome in outcomes.items():
        if isinstance(outcome, int):
            made.acked[number] = RecordMetadata("t", 0, outcome, -1, 0, 0)
        else:
            made.failed[number] = outcome
    return made


def log(*numbers: int) -> list[FakeRecord]:
    return [
        FakeRecord(0, offset, 0, None, b"record %d " % number, ()) for offset, number in enumerate(numbers)
    ]


EVERY = tuple(Promise)
UNORDERED = (Promise.AT_LEAST_ONCE,)
REPEATED = (Promise.AT_LEAST_ONCE, Promise.IN_ORDER)
AMBIGUOUS = failure(possibly_written=True)
DEFINITE = failure(possibly_written=False)


@pytest.mark.parametrize(
    ("outcomes", "records", "kept_by"),
    [
        pytest.param({0: 0, 1: 1}, log(0, 1), EVERY, id="as it should be"),
        pytest.param({0: 0, 1: 1}, log(0), (), id="A: lost"),
        pytest.param({0: 1, 1: 0}, log(0, 1), (), id="A: at other offsets"),
        pytest.param({0: 0, 1: -1}, log(0, 1), (), id="A: without an offset"),
        pytest.param({0: 0, 1: 1}, log(0, 1, 1), REPEATED, id="D: twice"),
        pytest.param({0: 0, 1: 2}, log(0, 1, 1), REPEATED, id="D: acknowledged at the second place"),
        pytest.param({0: 1, 1: 0}, log(1, 0), UNORDERED, id="O: the other way round"),
        pytest.param({0: 0, 1: 1}, log(0, 1, 0), REPEATED, id="O: a retry behind a later record"),
        pytest.param({0: 0, 1: DEFINITE}, log(0), EVERY, id="X: definite, absent"),
        pytest.param({0: 0, 1: DEFINITE}, log(0, 1), (), id="X: definite, there"),
        pytest.param({0: 0, 1: AMBIGUOUS}, log(0), EVERY, id="X: ambiguous, absent"),
        pytest.param({0: 0, 1: AMBIGUOUS}, log(0, 1), EVERY, id="X: ambiguous, there"),
        pytest.param({0: 0, 1: AMBIGUOUS}, log(0, 1, 1), REPEATED, id="X: ambiguous, twice"),
        pytest.param({0: AMBIGUOUS, 1: 0}, log(1, 0), REPEATED, id="O: given up, and arrived late"),
        pytest.param({0: 0}, log(0, 7), (), id="never sent"),
    ],
)
@pytest.mark.parametrize("promise", Promise)
async def test_what_keeps_a_promise(
    outcomes: dict[int, int | DeliveryTimeoutError],
    records: list[FakeRecord],
    kept_by: tuple[Promise, ...],
    promise: Promise,
) -> None:
    judged = trial(outcomes)
    if promise in kept_by:
        judged.judge(records, may_fail=True, promise=promise)
    else:
        with pytest.raises(AssertionError):
            judged.judge(records, may_fail=True, promise=promise)


async def test_a_failure_where_none_is_expected() -> None:
    with pytest.raises(AssertionError):
        trial({0: AMBIGUOUS}).judge(log(0))


async def test_a_failure_of_another_kind() -> None:
    judged = trial({0: 0})
    judged.sent = 2
    judged.failed[1] = ValueError("not a delivery's")
    with pytest.raises(AssertionError):
        judged.judge(log(0), may_fail=True)
