"""The Sender without idempotence: one attempt after another, what ends them, and whose memory it is meanwhile.

Scenarios of Java's SenderTest (tests/README.md says which test stands for which), and invariants 1 to 4 of
DESIGN.md at the level of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import BrokerRejectedError, DeliveryTimeoutError, DisconnectedError
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


# -- success ---


@pytest.mark.parametrize("version", range(3, 14))
def test_a_record_is_sent_and_acknowledged_with_its_offset(version: int) -> None:
    h = plain(produce_versions=(3, version))
    record = h.send(0, b"value")
    request = h.produce()
    assert request.version == version
    assert request.batch().values == (b"value",)
    assert (request.batch().producer_id, request.batch().sequence) == (-1, -1)
    assert not record.is_done
    h.acknowledge(offset=42)
    assert record.offset == 42
    assert record.outcomes == [(record.delivery.result(), None)]
    assert h.outstanding == 0
    assert h.produces == []


def test_the_records_of_a_batch_have_consecutive_offsets() -> None:
    h = plain()
    records = [h.append(0, b"%d" % number) for number in range(3)]
    h.run()
    h.acknowledge(offset=10)
    assert [record.offset for record in records] == [10, 11, 12]


def test_log_append_time_is_reported() -> None:
    h = plain()
    record = h.send()
    h.answer(log_append_time=1_700_000_000_000)
    assert record.delivery.result().timestamp == 1_700_000_000_000


def test_one_request_carries_one_batch_of_each_partition_of_a_broker() -> None:
    h = plain(partitions=3)
    for partition in (0, 1, 2, 1):
        h.append(partition)
    h.run()
    assert h.produce().partitions == [0, 1, 2]
    assert h.produce().batch(1).values == (b"v", b"v")


def test_up_to_max_in_flight_requests_are_on_their_way() -> None:
    h = plain(max_in_flight_requests_per_connection=3)
    for number in range(5):
        h.send(0, b"%d" % number)
    assert [request.batch().values for request in h.produces] == [(b"0",), (b"1",), (b"2",)]
    h.acknowledge()
    # What came in meanwhile shares a batch.
    assert h.produces[-1].batch().values == (b"3", b"4")


# -- retries ---


def test_a_lost_connection_is_retried_and_may_succeed() -> None:
    h = plain(retries=1)
    record = h.send()
    h.lose()
    assert not record.is_done
    h.advance(0.05)
    h.acknowledge(offset=5)
    assert record.offset == 5
    assert h.outstanding == 0


def test_when_the_retries_are_used_up_the_loss_is_the_error() -> None:
    h = plain(retries=1)
    record = h.send()
    h.lose()
    h.advance(0.05)
    assert h.produce()
    h.lose()
    h.advance(0.2)
    assert isinstance(record.error, DisconnectedError)
    assert record.error.attempts == 2
    assert record.error.possibly_written
    assert h.count(PRODUCE) == 2
    assert h.outstanding == 0


def test_a_retry_waits_for_its_backoff() -> None:
    h = plain(retry_backoff_ms=100, retry_backoff_max_ms=100)
    h.send()
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.advance(0.09)
    assert h.produces == []
    h.advance(0.02)
    assert len(h.produces) == 1


def test_backoff_grows_up_to_its_maximum() -> None:
    h = plain(retry_backoff_ms=100, retry_backoff_max_ms=250, delivery_timeout_ms=10_000)
    h.send()
    waited = []
    for _ in range(4):
        answered_at = h.now
        h.answer(code=codes.NOT_ENOUGH_REPLICAS)
        h.advance(0.3)
        waited.append(round(h.produce().sent_at - answered_at, 3))
    assert waited == [0.1, 0.2, 0.25, 0.25]


def test_an_error_that_is_not_retriable_fails_the_record_at_once() -> None:
    h = plain()
    record = h.send()
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(record.error, BrokerRejectedError)
    assert (record.error.code, record.error.name) == (29, "TOPIC_AUTHORIZATION_FAILED")
    assert not record.error.possibly_written
    assert not record.error.retriable
    h.advance(1)
    assert h.count(PRODUCE) == 1
    h.send_acknowledged()


def test_a_message_format_that_is_too_old_is_no_fatal_error() -> None:
    h = plain()
    record = h.send()
    h.answer(code=codes.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert record.error.code == codes.UNSUPPORTED_FOR_MESSAGE_FORMAT
    h.send_acknowledged()


def test_an_error_code_that_nobody_knows_leaves_it_open_whether_the_record_is_written() -> None:
    h = plain()
    record = h.send()
    h.answer(code=999)
    assert record.error.name == "UNKNOWN_CODE_999"
    assert record.error.possibly_written
    assert h.outstanding == 0


def test_the_brokers_own_message_is_told() -> None:
    h = plain()
    record = h.send()
    h.answer(code=codes.INVALID_REQUEST, error_message="the moon is in the wrong phase")
    assert "INVALID_REQUEST: the moon is in the wrong phase" in str(record.error)


def test_without_a_message_the_codes_meaning_is_told() -> None:
    h = plain()
    record = h.send()
    h.answer(code=codes.INVALID_REQUEST)
    assert codes.message_of(codes.INVALID_REQUEST) in str(record.error)


def blame(*complaints: tuple[int, str | None]) -> list[dict[str, Any]]:
    return [{"batch_index": index, "batch_index_error_message": message} for index, message in complaints]


def test_the_records_that_the_broker_blames_get_their_own_errors() -> None:
    h = plain()
    records = [h.append() for _ in range(5)]
    h.run()
    h.answer(code=codes.INVALID_RECORD, record_errors=blame((0, "zero"), (2, "two"), (3, None)))
    assert [record.error.record_index for record in records] == [0, None, 2, 3, None]
    assert "zero" in str(records[0].error)
    assert "two" in str(records[2].error)
    assert codes.message_of(codes.INVALID_RECORD) in str(records[3].error)
    assert [record.error.retriable for record in records] == [False, True, False, False, True]
    assert {record.error.code for record in records} == {codes.INVALID_RECORD}


@pytest.mark.parametrize("blamed", [{3}, {1, 3}, {0, 1, 2, 3, 4}], ids=["one", "two", "all"])
def test_the_code_is_a_records_own_only_where_one_is_blamed(blamed: set[int]) -> None:
    """Of several, each may be at fault in another way; there is one code (Java's Sender.failBatch())."""
    h = plain()
    records = [h.append() for _ in range(5)]
    h.run()
    complaints = blame(*((index, f"complaint {index}") for index in blamed))
    h.answer(code=codes.INVALID_TIMESTAMP, record_errors=complaints)
    of_blamed = codes.INVALID_TIMESTAMP if len(blamed) == 1 else codes.INVALID_RECORD
    for index, error in enumerate(record.error for record in records):
        is_blamed = index in blamed
        assert error.code == (of_blamed if is_blamed else codes.INVALID_TIMESTAMP)
        assert error.name == codes.name_of(error.code)
        assert error.record_index == (index if is_blamed else None)
        assert error.retriable is not is_blamed
        told = [number for number in range(5) if f"complaint {number}" in str(error)]
        assert told == ([index] if is_blamed else [])


def test_a_record_that_is_blamed_without_a_message_has_the_answers() -> None:
    h = plain()
    records = [h.append() for _ in range(3)]
    h.run()
    complaints = blame((0, None), (2, "its own"))
    h.answer(code=codes.INVALID_RECORD, record_errors=complaints, error_message="the batch's")
    assert ["the batch's" in str(record.error) for record in records] == [True, False, False]
    assert ["its own" in str(record.error) for record in records] == [False, False, True]


def test_a_record_that_is_blamed_and_is_not_there_is_nobodys_error() -> None:
    h = plain()
    records = [h.append() for _ in range(2)]
    h.run()
    h.answer(code=codes.INVALID_RECORD, record_errors=blame(*((index, "no") for index in (-1, 2, 2**31 - 1))))
    assert [record.error.record_index for record in records] == [None, None]
    h.send_acknowledged()


def test_a_partition_that_the_answer_leaves_out_is_tried_again() -> None:
    h = plain()
    records = [h.append(partition) for partition in (0, 1)]
    h.run()
    request = h.produce()
    del request.body["topic_data"][0]["partition_data"][1]
    h.acknowledge(request, offset=3)
    assert records[0].offset == 3
    assert not records[1].is_done
    h.advance(0.05)
    assert h.produce().partitions == [1]
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert records[1].error.possibly_written


# -- order ---


def test_a_partition_has_one_request_in_flight_where_that_keeps_the_order() -> None:
    h = in_order(brokers=2)
    h.move(1, 1)
    h.sender.metadata_requests.request(h.now)
    h.advance(0.1)
    first, second = h.send(1, b"first"), None
    h.move(1, 0)  # the other broker leads now, and has a connection of its own
    h.sender.metadata_requests.request(h.now)
    h.advance(0.1)
    second = h.send(1, b"second")
    assert h.produce().batch(1).values == (b"first",)
    h.acknowledge()
    assert first.is_done
    assert h.produce().node_id == 0
    assert h.produce().batch(1).values == (b"second",)
    h.acknowledge()
    assert second.is_done


def test_a_retried_batch_goes_ahead_of_what_came_after_it() -> None:
    h = in_order()
    h.send(0, b"first")
    h.send(0, b"second")
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    assert h.produces == []
    h.advance(0.05)
    assert h.produce().batch().values == (b"first",)
    h.acknowledge()
    assert h.produce().batch().values == (b"second",)


def test_an_expired_batch_keeps_its_partition_muted_until_its_answer() -> None:
    h = in_order(request_timeout_ms=1500)
    first = h.send(0, b"first")
    h.advance(0.75)
    second = h.send(0, b"second")
    h.holds_closes = True
    h.advance(0.75)
    assert isinstance(first.error, DeliveryTimeoutError)
    assert len(h.produces) == 1
    h.finish_closes()
    h.advance(0.05)
    assert h.produce().batch().values == (b"second",)
    h.acknowledge()
    assert second.is_done


def test_unmuting_is_not_for_those_who_were_never_muted() -> None:
    """The trap of a port: with several in flight the answer to one must not disturb the others."""
    h = plain(max_in_flight_requests_per_connection=5)
    records = [h.send(0, b"%d" % number) for number in range(3)]
    h.acknowledge(offset=0)
    h.acknowledge(offset=1)
    assert [record.is_done for record in records] == [True, True, False]
    h.send(0, b"3")
    assert len(h.produces) == 2


# -- ambiguity sticks ---


def test_after_a_lost_answer_a_definite_error_proves_nothing() -> None:
    h = plain()
    record = h.send()
    h.lose()
    h.advance(0.05)
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert record.error.code == codes.TOPIC_AUTHORIZATION_FAILED
    assert record.error.possibly_written
    assert "may be in the log" in str(record.error)


@pytest.mark.parametrize(
    "code",
    [
        codes.REQUEST_TIMED_OUT,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # With acks=all the leader appends, waits for its followers, and answers these if meanwhile it is no
        # leader any more or its disk fails: the followers may have the records.
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.KAFKA_STORAGE_ERROR,
    ],
)
def test_codes_that_a_broker_answers_after_it_appended_leave_it_open(code: int) -> None:
    h = plain()
    record = h.send()
    h.answer(code=code)
    h.advance(0.05)
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert record.error.possibly_written


def test_with_acks_1_a_leader_that_is_none_has_appended_nothing() -> None:
    h = plain(acks=1)
    record = h.send()
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    h.advance(0.05)
    h.answer(code=codes.TOPIC_AUTHORIZATION_FAILED)
    assert not record.error.possibly_written


# -- acks=0 ---


def test_without_acknowledgement_a_record_is_done_when_the_transport_has_passed_it_on() -> None:
    h = plain(acks=0)
    h.send()
    h.holds_writable = True
    record = h.send(0, b"second")
    assert not record.is_done
    assert h.outstanding == BATCH
    h.finish_writes()
    assert record.offset == -1
    assert h.outstanding == 0
    assert h.history[-1].body["acks"] == 0


def test_without_acknowledgement_a_partition_is_unmuted_all_the_same() -> None:
    h = in_order(acks=0)
    records = [h.send(0, b"%d" % number) for number in range(3)]
    assert all(record.is_done for record in records)
    assert h.count(PRODUCE) == 3


def test_without_acknowledgement_what_the_transport_still_held_is_sent_again() -> None:
    h = plain(acks=0)
    h.holds_writable = True
    record = h.send()
    h.finish_writes()
    assert record.is_done
    h.holds_writable = True
    record = h.send()
    h.unwritten.clear()
    h.holds_writable = False
    h.lose()
    h.advance(0.05)
    assert record.offset == -1
    assert h.outstanding == 0


def test_what_was_in_flight_on_a_lost_connection_goes_again_in_its_order() -> None:
    h = plain()
    records = h.send_each(4)
    assert len(h.produces) == 4
    h.lose()
    h.advance(0.1)
    sent: list[bytes | None] = []
    while h.produces:
        sent += h.produces[0].batch().values
        h.acknowledge(offset=len(sent) - 1)
    assert sent == [b"0", b"1", b"2", b"3"]
    assert [record.offset for record in records] == [0, 1, 2, 3]


# -- batches that are too large ---


@pytest.mark.parametrize("h", [plain(), in_order()], ids=["five in flight", "one in flight"])
def test_a_batch_that_is_too_large_is_halved_and_sent_in_order(h: SenderHarness) -> None:
    records = [h.append(0, b"%d" % number) for number in range(4)]
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    sent: list[bytes | None] = []
    while h.produces:
        sent += h.produces[0].batch().values
        h.acknowledge(offset=len(sent) - len(h.produces[0].batch().values))
    assert sent == [b"0", b"1", b"2", b"3"]
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert h.outstanding == 0


def test_halving_goes_on_until_single_records_and_a_single_record_fails() -> None:
    h = plain()
    records = [h.append(0, b"%d" % number) for number in range(4)]
    h.run()
    while h.produces:
        request = h.produces[0]
        if b"2" in request.batch().values:
            h.answer(request, codes.MESSAGE_TOO_LARGE)
        else:
            h.acknowledge(request)
    errors = [record.error for record in records]
    assert [error and error.code for error in errors] == [None, None, codes.MESSAGE_TOO_LARGE, None]
    assert not errors[2].possibly_written
    assert h.outstanding == 0


def test_the_parts_of_a_batch_keep_its_deadline_and_its_memory() -> None:
    h = plain()
    records = [h.append(0, b"%d" % number) for number in range(2)]
    h.run()
    h.advance(1)  # the request times out, and the second attempt is refused
    h.advance(0.1)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert len(h.produces) == 2
    assert h.outstanding == BATCH
    h.acknowledge(offset=0)
    assert records[0].offset == 0
    assert h.outstanding == BATCH
    h.advance(0.4)
    assert isinstance(records[1].error, DeliveryTimeoutError)
    assert records[1].settled_at == pytest.approx(records[1].accepted_at + 1.5)


# -- requests ---


def test_a_request_that_is_not_answered_in_time_is_sent_again_on_a_new_connection() -> None:
    h = plain()
    record = h.send()
    first = h.produce()
    h.advance(1.1)
    assert h.produce().connection_id != first.connection_id
    h.acknowledge(offset=1)
    assert record.offset == 1


def test_a_throttled_broker_is_left_alone() -> None:
    """KIP-219."""
    h = plain()
    h.send()
    h.answer(throttle=0.5)
    record = h.send()
    h.advance(0.49)
    assert h.produces == []
    h.advance(0.02)
    h.acknowledge()
    assert record.is_done


def test_an_idle_core_has_nothing_to_do() -> None:
    h = plain(connections_max_idle_ms=-1)
    h.send_acknowledged()
    before = len(h.history)
    timer = h.sender.next_timer()
    assert timer is not None
    h.advance(timer - h.now - 0.001)
    assert len(h.history) == before
    # At most the stale deadlines of what happened before, then nothing until metadata is old.
    h.advance(5)
    timer = h.sender.next_timer()
    assert timer is not None
    assert timer - h.now > 200
    assert h.count(METADATA) == 1
