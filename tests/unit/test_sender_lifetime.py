"""The Sender's bounds: what ends a record's waiting, its memory, a flush and the whole producer.

Scenarios of Java's SenderTest and KafkaProducerTest (tests/README.md says which test stands for which), and
invariants 1 and 4 of DESIGN.md at the level of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryError,
    DeliveryTimeoutError,
    ForcedCloseError,
    ProducerClosedError,
)
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import METADATA, PRODUCE

if TYPE_CHECKING:
    from typing import Any

BATCH = 16384


def plain(**settings: Any) -> SenderHarness:
    return SenderHarness(**{"enable_idempotence": False, **settings})


def in_order(**settings: Any) -> SenderHarness:
    """Without idempotence, one request in flight is what keeps the order."""
    return plain(max_in_flight_requests_per_connection=1, **settings)


# -- the delivery time-out ---


def test_a_record_that_is_never_sent_fails_in_time() -> None:
    h = plain()
    h.down.add(0)
    h.lose()
    record = h.send()
    h.advance(1.4)
    assert not record.is_done
    h.advance(0.1)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert record.settled_at == record.accepted_at + 1.5
    assert not record.error.possibly_written
    assert record.error.attempts == 0
    assert h.outstanding == 0


def test_a_record_in_flight_fails_in_time_and_its_memory_follows_when_the_connection_is_gone() -> None:
    h = plain(request_timeout_ms=1500)
    record = h.send()
    h.holds_closes = True
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert record.error.possibly_written
    assert h.outstanding == BATCH
    h.finish_closes()
    assert h.outstanding == 0
    assert len(record.outcomes) == 1


def test_an_answer_after_the_time_out_gives_the_memory_back_once_and_changes_nothing() -> None:
    h = plain(delivery_timeout_ms=1500, request_timeout_ms=1000)
    record = h.send()
    h.advance(0.9)
    h.lose()
    h.advance(0.6)  # the second attempt is in flight
    assert isinstance(record.error, DeliveryTimeoutError)
    assert h.outstanding == BATCH
    h.acknowledge(offset=9)
    assert h.outstanding == 0
    assert len(record.outcomes) == 1
    h.advance(5)
    assert h.count(PRODUCE) == 2


def test_the_buffer_of_an_expired_batch_is_not_reused_while_its_bytes_may_be_on_the_wire() -> None:
    """KAFKA-19012."""
    h = plain(buffer_memory=BATCH, request_timeout_ms=1500)
    h.send(0, b"old")
    h.holds_closes = True
    h.advance(1.5)
    assert h.sender.pool.try_allocate(BATCH) is None
    h.finish_closes()
    h.advance(0.1)
    assert h.send(0, b"new").is_done is False
    assert h.produce().batch().values == (b"new",)


@pytest.mark.parametrize("code", [codes.NOT_LEADER_OR_FOLLOWER, codes.MESSAGE_TOO_LARGE])
def test_an_expired_batch_is_neither_retried_nor_split(code: int) -> None:
    h = plain(delivery_timeout_ms=1500)
    records = [h.append(), h.append()]
    h.run()
    h.advance(0.9)
    h.lose()
    h.advance(0.6)
    assert all(isinstance(record.error, DeliveryTimeoutError) for record in records)
    h.answer(code=code)
    h.advance(2)
    assert h.count(PRODUCE) == 2
    assert h.outstanding == 0


def test_a_retriable_error_that_comes_with_the_deadline_is_not_retried() -> None:
    h = plain(request_timeout_ms=1500)
    record = h.send()
    h.jump(1.5)
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert "NOT_ENOUGH_REPLICAS" in str(record.error)
    assert not record.error.possibly_written  # the broker said so
    h.advance(2)
    assert h.count(PRODUCE) == 1
    assert h.outstanding == 0


def test_a_connection_lost_with_the_deadline_is_out_of_time_too() -> None:
    """Or the error would depend on which of the two is heard of first."""
    h = plain(request_timeout_ms=1500)
    record = h.send()
    h.jump(1.5)
    h.lose()
    assert isinstance(record.error, DeliveryTimeoutError)
    assert "connection" in str(record.error)
    assert record.error.possibly_written
    assert h.outstanding == 0


def test_a_refusal_that_comes_with_the_deadline_is_what_it_is() -> None:
    h = plain(request_timeout_ms=1500)
    record = h.send()
    h.jump(1.5)
    h.answer(code=codes.INVALID_RECORD)
    assert isinstance(record.error, BrokerRejectedError)
    assert record.error.code == codes.INVALID_RECORD


def test_batches_of_several_partitions_expire_together() -> None:
    h = plain(request_timeout_ms=1500)
    records = [h.append(0), h.append(1)]
    h.run()
    h.advance(1.5)
    assert all(isinstance(record.error, DeliveryTimeoutError) for record in records)
    assert h.outstanding == 0


def test_the_core_asks_to_be_woken_at_the_next_expiry() -> None:
    h = plain(request_timeout_ms=1500)
    h.send()
    assert h.sender.next_timer() == h.now + 1.5
    h.advance(0.5)
    h.send(1)
    assert h.sender.next_timer() == h.now + 1.0


def test_time_runs_from_the_first_record_and_not_from_a_retry() -> None:
    h = plain()
    record = h.send()
    while not record.is_done:
        if h.produces:
            h.answer(code=codes.NOT_ENOUGH_REPLICAS)
        h.advance(0.05)
    assert record.settled_at == pytest.approx(record.accepted_at + 1.5)
    assert record.error.attempts > 10
    assert not record.error.possibly_written


def test_a_callback_may_send_again() -> None:
    h = plain()
    h.down.add(0)
    h.lose()
    records = [h.append(1), h.append(1)]
    again: list[Any] = []
    for record in records:
        record.delivery._add_delivery_callback(lambda _, error: again.append(h.append(1, b"again")))
    h.advance(1.5)
    assert [type(record.error) for record in records] == [DeliveryTimeoutError] * 2
    assert len(again) == 2
    h.down.clear()
    h.advance(1)
    assert h.produce().batch(1).values == (b"again", b"again")


# -- flush and close ---


def test_flush_sends_what_lingers_and_tells_when_it_is_settled() -> None:
    h = plain(linger_ms=500)
    record = h.send()
    assert h.produces == []
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    h.run()
    later = h.send(1)
    assert h.produce().partitions == [0]
    assert told == []
    h.acknowledge()
    assert record.is_done
    assert told == ["flushed"]
    assert not later.is_done


def test_flush_with_nothing_to_flush_is_told_at_once() -> None:
    h = plain()
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    assert told == ["flushed"]


def test_without_acknowledgement_a_flush_is_over_when_the_transport_has_passed_all_on() -> None:
    h = plain(acks=0)
    h.send()
    h.holds_writable = True
    record = h.send(0, b"second")
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    h.run()
    assert told == []
    h.finish_writes()
    assert record.is_done
    assert told == ["flushed"]


def test_flush_is_told_when_the_last_record_fails_and_after_a_split() -> None:
    h = plain()
    records = [h.append(), h.append()]
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.acknowledge()
    assert told == []
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert told == ["flushed"]
    assert all(record.is_done for record in records)


def test_close_sends_what_is_there_and_then_drops_the_connections() -> None:
    h = plain(linger_ms=500)
    record = h.send()
    h.sender.begin_close(h.now)
    h.run()
    assert not h.sender.is_accepting
    assert not h.is_closed()
    h.acknowledge(offset=4)
    assert record.offset == 4
    assert h.is_closed()
    assert h.connections == {}
    assert h.sender.next_effect(h.now) is None


def test_a_forced_close_fails_what_is_left_and_waits_only_for_the_sockets() -> None:
    h = plain(linger_ms=500)
    in_flight = h.send(0)
    h.advance(0.5)
    queued = h.send(1)
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    h.holds_closes = True
    h.sender.abort(h.now)
    h.run()
    assert told == ["flushed"]
    assert isinstance(in_flight.error, ForcedCloseError)
    assert in_flight.error.possibly_written
    assert isinstance(queued.error, ForcedCloseError)
    assert not queued.error.possibly_written
    assert not h.is_closed()
    assert h.outstanding > 0
    h.finish_closes()
    assert h.is_closed()
    assert h.outstanding == 0


def test_while_the_last_sockets_close_no_timer_keeps_the_driver_busy() -> None:
    h = plain()
    h.down.add(0)
    h.lose()
    h.send()
    h.down.clear()
    h.holds_closes = True
    h.advance(0.05)
    h.sender.abort(h.now)
    h.run()
    assert h.connections
    assert not h.is_closed()
    assert h.sender.next_timer() is None
    h.finish_closes()
    assert h.is_closed()


def test_close_wakes_those_who_wait_for_a_topic_or_for_memory() -> None:
    h = plain(buffer_memory=BATCH)
    h.send()
    woken: list[str] = []
    h.held.add(METADATA)
    h.sender.metadata_requests.await_topic("other", lambda: woken.append("topic"), h.now)
    waiter = h.sender.pool.enqueue(BATCH, lambda: woken.append("memory"))
    h.sender.begin_close(h.now)
    assert sorted(woken) == ["memory", "topic"]
    with pytest.raises(ProducerClosedError):
        h.sender.pool.claim(waiter)


def test_close_is_bounded_by_the_delivery_time_out() -> None:
    h = plain()
    h.down.add(0)
    h.lose()
    record = h.send()
    h.sender.begin_close(h.now)
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert h.is_closed()


def test_when_the_senders_task_dies_every_waiter_is_told() -> None:
    h = plain(linger_ms=500)
    sent = h.send(0)
    h.advance(0.5)
    queued = h.send(1)
    told: list[str] = []
    h.sender.metadata_requests.await_topic("other", lambda: told.append("topic"), h.now)
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    cause = ZeroDivisionError("a bug")
    h.sender.die(cause, "it died of a bug", h.now)
    while h.sender.settled:
        h.sender.settled.popleft().run_callbacks()
    assert sorted(told) == ["flushed", "topic"]
    for record, possibly_written in ((sent, True), (queued, False)):
        assert type(record.error) is DeliveryError
        assert record.error.__cause__ is cause
        assert record.error.possibly_written is possibly_written
        assert record.error.retriable is False, "this producer sends nothing any more"
    assert h.outstanding == 0


def test_memory_that_is_waited_for_ends_lingering() -> None:
    h = plain(linger_ms=500, buffer_memory=BATCH)
    h.send()
    granted: list[str] = []
    waiter = h.sender.pool.enqueue(BATCH, lambda: granted.append("memory"))
    h.sender.memory_exhausted(h.now)
    h.run()
    assert granted == []
    h.acknowledge()
    assert granted == ["memory"]
    h.sender.pool.claim(waiter).release()
    assert h.outstanding == 0


def test_a_timer_that_is_told_of_too_early_gives_an_idle_core_nothing_to_look_at() -> None:
    """A driver may ask whenever it wakes: only what is due costs a step."""
    h = plain(connections_max_idle_ms=-1)
    h.send_acknowledged()
    h.advance(5)
    timer = h.sender.next_timer()
    assert timer is not None
    h.sender.handle_timer(timer - 0.001)
    assert not h.sender.has_work
    h.sender.handle_timer(timer)
    assert h.sender.has_work
