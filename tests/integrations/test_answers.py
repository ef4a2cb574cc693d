"""Which HTTP answer an error is: every error of the tree has its place, and none says more than is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioproduce import TopicPartition, errors
from aioproduce.integrations.answers import ANSWERED, Answer, answer_for

SECRET = "broker-7.internal:9092"


def delivery(kind: type[errors.DeliveryError], *, written: bool, retriable: bool, **more: Any) -> Exception:
    return kind(
        SECRET,
        topic_partition=TopicPartition("orders", 0),
        possibly_written=written,
        attempts=1,
        retriable=retriable,
        **more,
    )


REFUSED = {"code": 87, "name": "INVALID_RECORD"}
CASES: dict[str, tuple[Exception, int | None, str | None]] = {
    "no room": (errors.BufferExhaustedError(SECRET, waited=1.0, needed=9, available=1), 503, "not_written"),
    "no topic": (errors.MetadataTimeoutError(SECRET, waited=1.0, topic="t"), 503, "not_written"),
    "no time": (errors.MaxBlockTimeoutError(SECRET, waited=0.0), 503, "not_written"),
    "not started": (errors.NotStartedError(SECRET), 503, "not_written"),
    "closed": (errors.ProducerClosedError(SECRET), 503, "not_written"),
    "died": (errors.SenderDiedError(SECRET), 503, "not_written"),
    "background": (errors.BackgroundFullError(SECRET, limit=1), 503, "not_written"),
    "too large": (
        errors.RecordTooLargeError(SECRET, size=2, limit=1, limited_by="max.request.size"),
        413,
        "not_written",
    ),
    "deadline": (errors.InvalidDeadlineError(SECRET, header="X-Request-Timeout"), 400, "not_written"),
    "unknown": (
        errors.OutcomeUnknownError(SECRET, topic="t", waited=1.0, delivery=[]),  # type: ignore[arg-type]
        504,
        "unknown",
    ),
    "some of many": (errors.PartialSendError(SECRET, deliveries=[], index=1), 504, "unknown"),
    "expired, never sent": (
        delivery(errors.DeliveryTimeoutError, written=False, retriable=True),
        503,
        "not_written",
    ),
    "expired, maybe written": (
        delivery(errors.DeliveryTimeoutError, written=True, retriable=True),
        504,
        "unknown",
    ),
    "refused": (
        delivery(errors.BrokerRejectedError, written=False, retriable=False, **REFUSED),
        502,
        "not_written",
    ),
    "refused, maybe written": (
        delivery(errors.BrokerRejectedError, written=True, retriable=False, **REFUSED),
        504,
        "unknown",
    ),
    "given up": (delivery(errors.ForcedCloseError, written=True, retriable=True), 504, "unknown"),
    "full queue on disk": (errors.SpoolFullError(SECRET), 503, "not_written"),
    "failed disk": (errors.SpoolStorageError(SECRET, possibly_stored=False), 503, "not_written"),
    "failed disk, maybe stored": (errors.SpoolStorageError(SECRET, possibly_stored=True), 504, "unknown"),
    "denied": (errors.TopicAuthorizationError(SECRET, topic="t"), None, None),
    "bad topic": (errors.InvalidTopicError(SECRET, topic="t"), None, None),
    "bad value": (errors.SerializationError(SECRET, field="value"), None, None),
    "another's": (ValueError(SECRET), None, None),
}


@pytest.mark.parametrize("case", CASES)
def test_each_error_has_its_answer(case: str) -> None:
    error, status, outcome = CASES[case]
    answer = answer_for(error, retry_after=2.0, unknown_status=504)
    if answer is None:
        assert (status, outcome) == (None, None)
        return
    assert (answer.status, answer.outcome) == (status, outcome)
    document = json.loads(answer.body)
    assert (document["status"], document["outcome"], document["title"]) == (status, outcome, answer.title)
    # Nothing of the cluster, and no invitation to repeat what could be a duplicate.
    assert SECRET not in answer.body.decode() + str(answer.headers)
    assert ("Retry-After" in answer.headers) == ("retry_after" in document) == (status == 503)
    assert answer.headers["Cache-Control"] == "no-store"


def test_every_error_that_has_an_answer_is_among_the_cases() -> None:
    tried = {type(error) for error, status, _ in CASES.values() if status is not None}
    assert {kind for kind in ANSWERED if not any(issubclass(one, kind) for one in tried)} == set()
    for error, status, _ in CASES.values():
        assert isinstance(error, ANSWERED) == (status is not None)


def test_unknown_may_be_202_and_nothing_else_may() -> None:
    for error, status, outcome in CASES.values():
        answer = answer_for(error, retry_after=1.0, unknown_status=202)
        if answer is not None:
            assert answer.status == (202 if outcome == "unknown" else status)


def test_retry_after_is_whole_seconds_and_at_least_one() -> None:
    for seconds, told in ((0.0, "1"), (0.2, "1"), (1.0, "1"), (1.2, "2"), (30.0, "30")):
        assert Answer(503, "", "not_written", seconds).headers["Retry-After"] == told
