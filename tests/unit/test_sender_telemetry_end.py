"""Client telemetry (KIP-714) in the core when the producer closes: one last push, in bounded time."""

from __future__ import annotations

import pytest

from aioproduce.errors import DeliveryTimeoutError
from aioproduce.wire import error_codes as codes
from tests.unit.sender_wire import GET_TELEMETRY_SUBSCRIPTIONS as GET
from tests.unit.sender_wire import PUSH_TELEMETRY as PUSH
from tests.unit.telemetry_harness import INTERVAL, Source, Telemetry, unsubscribed


def test_the_last_push_comes_when_the_records_are_settled() -> None:
    t = Telemetry().subscribed()
    record = t.h.send()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.h.count(PUSH) == 0
    t.h.acknowledge()
    assert record.is_done
    assert t.push().body["terminating"] is True
    assert not t.h.is_closed()
    t.answer_push()
    assert t.h.is_closed()


@pytest.mark.parametrize("ending", ["subscription needed", "nothing wanted", "before any answer"])
def test_where_nothing_is_wanted_there_is_no_last_push(ending: str) -> None:
    t = Telemetry()
    if ending == "nothing wanted":
        t.answer_question(requested_metrics=())
    elif ending == "subscription needed":
        t.pushing().answer_push(codes.TELEMETRY_TOO_LARGE)
    pushes = t.h.count(PUSH)
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.h.is_closed()
    assert t.h.count(PUSH) == pushes


def test_a_last_push_that_is_not_answered_holds_the_close_up_for_a_second() -> None:
    t = Telemetry(request_timeout_ms=60_000, delivery_timeout_ms=120_000).subscribed()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.push()
    t.h.advance(0.999)
    assert not t.h.is_closed()
    t.h.advance(0.001)
    assert t.h.is_closed()


def test_the_last_push_does_not_outlast_the_delivery_time_out() -> None:
    t = Telemetry(delivery_timeout_ms=1500, request_timeout_ms=1500).subscribed()
    closed_at = t.h.now
    t.h.jump(0.0)
    record = t.h.send()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    t.h.advance(1.499)
    assert not t.h.is_closed()
    t.h.advance(0.001)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert t.h.is_closed()
    assert t.h.now == closed_at + 1.5


def test_a_last_push_whose_connection_is_lost_is_not_repeated() -> None:
    t = Telemetry().subscribed()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    t.h.lose()
    assert t.h.is_closed()


def test_without_a_connection_there_is_no_last_push() -> None:
    t = Telemetry().subscribed()
    t.h.down.add(0)
    t.h.lose()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.h.is_closed()


def test_a_forced_close_pushes_nothing() -> None:
    t = Telemetry().subscribed()
    t.h.sender.abort(t.h.now)
    t.h.run()
    assert t.h.is_closed()
    assert t.h.count(PUSH) == 0


def test_a_push_on_its_way_is_followed_by_the_last_one() -> None:
    t = Telemetry().pushing()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    first, last = t.h.waiting(PUSH)
    assert (first.body["terminating"], last.body["terminating"]) == (False, True)
    t.h.reply(first, {"error_code": 0})
    assert not t.h.is_closed()
    t.h.reply(last, {"error_code": 0})
    assert t.h.is_closed()


def test_a_question_on_its_way_with_a_former_subscription() -> None:
    t = Telemetry().pushing()
    t.answer_push(codes.UNKNOWN_SUBSCRIPTION_ID)
    question = t.question()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.push().body["terminating"] is True
    t.h.reply(question, {"error_code": codes.INVALID_REQUEST, **unsubscribed()})
    t.answer_push()
    assert t.h.is_closed()


def test_a_question_on_its_way_elsewhere_that_is_answered_last() -> None:
    """The close waits for both answers, and for nothing else."""
    t = Telemetry(brokers=2, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    t.on_one_connection()
    t.answer_question()
    t.h.move(1, 1)
    t.h.refresh()
    t.h.send_acknowledged(1)
    t.h.advance(INTERVAL)
    t.answer_push(codes.UNKNOWN_SUBSCRIPTION_ID)
    question = t.question()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.push().node_id != question.node_id, "a connection takes one request at a time here"
    t.answer_push()
    assert not t.h.is_closed()
    t.h.reply(question, {"error_code": 0, **unsubscribed()})
    assert t.h.is_closed()


def test_the_last_push_is_the_last_also_where_the_broker_refuses_it() -> None:
    t = Telemetry().subscribed()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    t.answer_push(codes.UNKNOWN_SUBSCRIPTION_ID)
    assert t.h.is_closed()
    assert t.h.count(GET) == 1


def test_a_last_push_that_is_too_large_is_left_out() -> None:
    t = Telemetry(Source(size=1001)).subscribed()
    t.h.sender.begin_close(t.h.now)
    t.h.run()
    assert t.h.is_closed()
    assert t.h.count(PUSH) == 0


# -- who waits for the id ---


@pytest.mark.parametrize("end", ["answer", "refusal", "close", "abort", "death"])
def test_who_waits_for_the_id_is_told(end: str) -> None:
    t = Telemetry()
    telemetry = t.h.sender.telemetry
    assert telemetry is not None
    told: list[int] = []
    telemetry.await_id(lambda: told.append(1))
    assert told == []
    if end == "answer":
        t.answer_question(requested_metrics=())
    elif end == "refusal":
        t.answer_question(codes.INVALID_REQUEST)
    elif end == "close":
        t.h.sender.begin_close(t.h.now)
    elif end == "abort":
        t.h.sender.abort(t.h.now)
    else:
        t.h.sender.die(RuntimeError("a bug"), "it died of a bug", t.h.now)
    assert told == [1]
