"""Interceptors see each record and each outcome, in order, and cannot break anything (KIP-42)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import InvalidTopicError, ProducerError
from aioproduce.producer.interceptors import Interceptors, tell_refused
from aioproduce.records import ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA = RecordMetadata("t", 1, 2, 3, 4, 5)


class OnSend:
    """Only `on_send`."""

    def __init__(self, act: Callable[[ProducerRecord], Any]) -> None:
        self.on_send = act


class OnAcknowledgement:
    """Only `on_acknowledgement`."""

    def __init__(self, act: Callable[[RecordMetadata, BaseException | None], object]) -> None:
        self.on_acknowledgement = act


def add(text: str) -> OnSend:
    return OnSend(lambda record: ProducerRecord(topic=record.topic, value=record.value + text))


def fail(*arguments: object) -> Any:
    raise LookupError("a bug of the interceptor")


def test_each_gets_what_the_one_before_it_made() -> None:
    chain = Interceptors([add("1"), OnAcknowledgement(fail), add("2"), add("3")])
    assert chain.intercept(ProducerRecord(topic="t", value=""))[0].value == "123"


def test_one_that_fails_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    chain = Interceptors([add("1"), OnSend(fail), add("3")])
    assert chain.intercept(ProducerRecord(topic="t", value=""))[0].value == "13"
    [line] = caplog.records
    assert (line.name, line.levelno) == ("aioproduce", logging.ERROR)
    assert "on_send failed; the record goes on without it" in line.getMessage()
    assert line.exc_info is not None
    assert line.exc_info[0] is LookupError


@pytest.mark.parametrize("given", [None, "text", {"topic": "t"}])
def test_one_that_gives_no_record_is_left_out_and_logged(
    given: object, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Interceptors([add("1"), OnSend(lambda record: given), add("3")])
    assert chain.intercept(ProducerRecord(topic="t", value=""))[0].value == "13"
    assert f"returned {type(given).__name__}, not a ProducerRecord" in caplog.text


def test_every_one_is_told_though_another_fails(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    chain = Interceptors(
        [
            OnAcknowledgement(lambda *outcome: told.append(("first", *outcome))),
            OnAcknowledgement(fail),
            OnSend(fail),
            OnAcknowledgement(lambda *outcome: told.append(("last", *outcome))),
        ]
    )
    error = ProducerError("refused")
    chain.on_acknowledgement(METADATA, None)
    chain.on_acknowledgement(METADATA, error)
    assert told == [
        ("first", METADATA, None),
        ("last", METADATA, None),
        ("first", METADATA, error),
        ("last", METADATA, error),
    ]
    assert [line.getMessage() for line in caplog.records] == [
        "an interceptor's on_acknowledgement failed"
    ] * 2


def test_none_at_all() -> None:
    chain = Interceptors([])
    record = ProducerRecord(topic="t")
    assert chain.intercept(record)[0] is record
    chain.on_acknowledgement(METADATA, None)


@pytest.mark.parametrize(
    ("record", "topic", "partition"),
    [
        (ProducerRecord(topic="t"), "t", -1),
        (ProducerRecord(topic="t", partition=7), "t", 7),
        (ProducerRecord(topic="t", partition="7"), "t", -1),  # type: ignore[arg-type]
        (ProducerRecord(topic=b"t"), "b't'", -1),  # type: ignore[arg-type]
    ],
)
def test_a_refused_record_is_told_with_partition_minus_one(
    record: ProducerRecord, topic: str, partition: int
) -> None:
    """Java's callbackAndInterceptorHandleError, interceptorPartitionSetOnTooLargeRecord."""
    told: list[Any] = []
    error = InvalidTopicError("refused", topic="t")
    chain = Interceptors([OnAcknowledgement(lambda *outcome: told.append(outcome))])
    tell_refused(record, chain.intercept(record)[1], error)
    assert told == [((topic, partition, -1, -1, -1, -1), error)]


def test_interrupts_are_not_swallowed() -> None:
    def interrupt(*arguments: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interceptors([OnSend(interrupt)]).intercept(ProducerRecord(topic="t"))
    with pytest.raises(KeyboardInterrupt):
        Interceptors([OnAcknowledgement(interrupt)]).on_acknowledgement(METADATA, None)


class Intercept:
    """Only `intercept`."""

    def __init__(self, act: Callable[[ProducerRecord], Any]) -> None:
        self.intercept = act


def test_one_that_intercepts_is_told_whose_outcome_it_is() -> None:
    told: list[object] = []

    def intercept(record: ProducerRecord) -> Any:
        value = record.value
        return ProducerRecord(topic="t", value=value + "!"), lambda *outcome: told.append((value, *outcome))

    shared = OnAcknowledgement(lambda *outcome: told.append(("shared", *outcome)))
    chain = Interceptors([add("1"), Intercept(intercept), shared, add("2")])
    first, tell_first = chain.intercept(ProducerRecord(topic="t", value="a"))
    second, tell_second = chain.intercept(ProducerRecord(topic="t", value="b"))
    assert (first.value, second.value) == ("a1!2", "b1!2")
    error = ProducerError("failed")
    tell_second(METADATA, error)
    tell_first(METADATA, None)
    assert told == [
        ("b1", METADATA, error),
        ("shared", METADATA, error),
        ("a1", METADATA, None),
        ("shared", METADATA, None),
    ]


@pytest.mark.parametrize(
    "given", [None, ProducerRecord(topic="t"), (ProducerRecord(topic="t"), None), (None, fail), [1, 2, 3]]
)
def test_one_that_intercepts_and_gives_something_else_is_left_out(
    given: object, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Interceptors([add("1"), Intercept(lambda record: given), Intercept(fail), add("3")])
    record, on_outcome = chain.intercept(ProducerRecord(topic="t", value=""))
    assert record.value == "13"
    on_outcome(METADATA, None)
    assert [line.getMessage().partition(";")[0] for line in caplog.records] == [
        f"an interceptor's intercept returned {type(given).__name__}, not a ProducerRecord and a callback for "
        "its outcome",
        "an interceptor's intercept failed",
    ]
