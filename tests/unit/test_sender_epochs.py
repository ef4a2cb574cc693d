"""The idempotent Sender when something is lost: expired batches, epoch bumps, new producer ids, split batches.

Scenarios of Java's SenderTest and TransactionManagerTest (tests/README.md says which test stands for which), and
Dekaf's lessons. A batch's `place` is its (epoch, base sequence).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import DeliveryTimeoutError, DisconnectedError
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import Record, SenderHarness, warm
from tests.unit.sender_wire import INIT_PRODUCER_ID

if TYPE_CHECKING:
    pass

MAX_EPOCH = 32767


# -- time-outs and what they leave open ---


def test_expiry_before_the_first_attempt_leaves_no_gap() -> None:
    h = warm()
    h.down.add(0)
    h.lose()
    record = h.send()
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert not record.error.possibly_written
    h.down.clear()
    h.advance(0.5)
    h.send()
    assert h.places() == [(0, 1)]


def expired_while_the_second_is_in_flight(h: SenderHarness) -> tuple[Record, Record, Record]:
    """The first batch is given up with its fate unknown, the second is in flight, the third not sent yet."""
    first = h.send(0, b"first")
    h.advance(0.8)
    second = h.send(0, b"second")
    h.answer(code=codes.REQUEST_TIMED_OUT)
    h.lose()
    h.down.add(0)
    h.advance(0.7)
    assert first.error.possibly_written
    third = h.send(0, b"third")
    h.down.clear()
    h.advance(0.02)
    assert h.places() == [(0, 2)]
    return first, second, third


def test_if_the_batch_behind_an_expired_one_is_acknowledged_so_was_the_expired_one() -> None:
    h = warm()
    _, second, third = expired_while_the_second_is_in_flight(h)
    assert not third.is_done
    h.acknowledge(offset=2)
    assert second.offset == 2
    assert h.places() == [(0, 3)]
    h.acknowledge(offset=3)
    assert third.offset == 3


def test_if_the_batch_behind_an_expired_one_is_refused_the_expired_one_was_not_written() -> None:
    h = warm()
    _, second, third = expired_while_the_second_is_in_flight(h)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places()[0] == (1, 0)
    h.acknowledge(offset=1)
    assert second.offset == 1
    h.acknowledge(offset=2)
    assert third.offset == 2


def test_a_batch_that_fails_for_good_does_not_hold_up_those_before_it() -> None:
    """Found by tests/property/test_sender.py: a gap was not seen for one, and nothing moved until the time-out."""
    h = warm()
    first, second, third = h.send_each(3)
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.answer(code=codes.INVALID_RECORD)
    assert third.is_done
    h.advance(0.05)
    h.answer(code=codes.INVALID_RECORD)
    assert first.is_done
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(1, 0)]
    h.acknowledge(offset=1)
    assert second.offset == 1


def test_if_all_sent_batches_expire_the_epoch_is_bumped() -> None:
    h = warm(request_timeout_ms=1500)
    record = h.send()
    h.holds_closes = True
    h.advance(1.5)
    assert record.error.possibly_written
    h.finish_closes()
    h.advance(0.1)
    h.send()
    assert h.places() == [(1, 0)]


HAS_IT = pytest.mark.parametrize("code", [codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER], ids=codes.name_of)
"""The broker has the batch: it has just written it, or says that it had it before."""


@HAS_IT
def test_a_late_answer_to_an_expired_batch_disturbs_nobody(code: int) -> None:
    h = warm()
    record = h.send(0, b"old")
    h.advance(0.9)
    h.lose()
    h.advance(0.6)
    assert isinstance(record.error, DeliveryTimeoutError)
    h.send(0, b"new")
    assert h.places() == [(0, 1), (1, 0)]
    h.answer(code=code, offset=1)
    h.send(0, b"newer")
    assert h.places() == [(1, 0)], "one at a time until the new epoch has its first acknowledgement"
    h.acknowledge(offset=2)
    assert h.places() == [(1, 1)]
    assert len(record.outcomes) == 1
    h.acknowledge()
    assert h.outstanding == 0


@HAS_IT
def test_a_late_answer_with_another_batch_behind_it_keeps_the_epoch(code: int) -> None:
    h = warm()
    expired = h.send(0, b"expired")
    h.advance(0.9)
    h.lose()
    h.advance(0.55)
    behind = h.send(0, b"behind")
    h.advance(0.1)
    assert isinstance(expired.error, DeliveryTimeoutError)
    assert h.places() == [(0, 1), (0, 2)]
    held = h.outstanding
    h.answer(code=code)
    assert h.outstanding < held
    h.acknowledge(offset=2)
    assert behind.offset == 2
    assert h.outstanding == 0
    h.send()
    assert h.places() == [(0, 3)]
    assert len(expired.outcomes) == 1


def expired_after_a_new_sequence(h: SenderHarness) -> Record:
    """The first of three is behind a gap, so all are renumbered; the second, still on its way, is given up."""
    h.down.add(0)
    h.lose(0)
    first, second = h.append(0, bytes(60)), h.append(0, bytes(60))
    h.advance(0.5)
    third = h.append(0, bytes(60))
    h.advance(0.2)
    h.down.clear()
    h.advance(0.05)
    assert h.places() == [(0, 1), (0, 2), (0, 3)]
    h.move(0, 1)
    h.refresh()
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(0, 2), (0, 3), (1, 0)]
    h.acknowledge(h.produces[-1], offset=1)
    assert first.offset == 1
    h.advance(0.6)
    assert isinstance(second.error, DeliveryTimeoutError)
    assert h.places() == [(0, 2), (0, 3)]
    return third


@HAS_IT
def test_a_late_answer_tells_that_the_new_sequence_is_left_unused(code: int) -> None:
    """What was given up is in the log under its former sequence: those behind it start again at once."""
    h = warm(brokers=2, batch_size=120)
    third = expired_after_a_new_sequence(h)
    h.answer(code=code)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(2, 0)]
    h.acknowledge(offset=2)
    assert third.offset == 2
    assert h.outstanding == 0


def test_a_late_refusal_tells_nothing() -> None:
    h = warm(brokers=2, batch_size=120)
    third = expired_after_a_new_sequence(h)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(1, 2)]
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(2, 0)]
    h.acknowledge(offset=2)
    assert third.offset == 2
    assert h.outstanding == 0


def test_retries_that_are_used_up_leave_it_open_too() -> None:
    h = warm(retries=1)
    first, second = h.send_each(2)
    for _ in range(2):
        h.lose()
        h.advance(0.06)
    assert isinstance(first.error, DisconnectedError)
    assert first.error.possibly_written
    assert h.places() == [(0, 2)]
    h.acknowledge(offset=2)
    assert second.offset == 2
    h.send()
    assert h.places() == [(0, 3)]


# -- epochs ---


def refuse_next(h: SenderHarness, partition: int = 0) -> None:
    """The broker misses a batch right before this one: the gap that calls for a new epoch."""
    request = next(request for request in h.produces if partition in request.partitions)
    h.answer(request, codes.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_a_gap_behind_what_was_acknowledged_bumps_the_epoch() -> None:
    h = warm()
    record = h.send()
    refuse_next(h)
    h.advance(0.05)
    assert h.places() == [(1, 0)]
    h.acknowledge(offset=1)
    assert record.offset == 1
    h.send()
    assert h.places() == [(1, 1)]


def test_after_an_epoch_bump_every_partition_restarts_at_0() -> None:
    """Dekaf's lesson: also those that took no part in it, with their next batch."""
    h = warm()
    h.send()
    refuse_next(h)
    h.advance(0.05)
    h.acknowledge(offset=1)
    h.send(1)
    assert h.places(1) == [(1, 0)]
    h.acknowledge(offset=1)
    h.send(1)
    assert h.places(1) == [(1, 1)]


def test_a_partition_with_batches_in_flight_finishes_them_under_the_old_epoch() -> None:
    h = warm()
    h.send(0)
    healthy = h.send(1, b"healthy")
    refuse_next(h)
    later = h.send(1, b"later")
    assert h.places(1) == [(0, 1)]
    h.answer(h.produces[0], codes.NOT_LEADER_OR_FOLLOWER)
    h.advance(0.06)
    assert h.places(0) == [(1, 0)]
    assert h.places(1) == [(0, 1)]
    request = next(request for request in h.produces if 1 in request.partitions)
    h.answer(request, offset=1)
    assert healthy.offset == 1
    assert h.places(1) == [(1, 0)]
    request = next(request for request in h.produces if 1 in request.partitions)
    assert request.batch(1).values == (b"later",)
    h.answer(request, offset=2)
    assert later.offset == 2


def test_a_batch_of_the_old_epoch_that_fails_costs_its_partition_no_second_bump() -> None:
    h = warm(retries=1)
    h.send(0)
    failing = h.send(1)
    refuse_next(h)
    for _ in range(2):
        request = next(request for request in h.produces if 1 in request.partitions)
        h.answer(request, codes.NOT_LEADER_OR_FOLLOWER)
        h.advance(0.06)
    assert failing.is_done
    h.send(1)
    assert h.produces[-1].batch(1).sequence == 0
    assert h.produces[-1].batch(1).epoch >= 1


@pytest.mark.parametrize("log_start_offset", [0, 1010])
def test_a_broker_that_forgot_the_producer_gets_a_new_epoch(log_start_offset: int) -> None:
    h = warm()
    first, second = h.send(0, b"first"), h.send(0, b"second")
    h.answer(code=codes.UNKNOWN_PRODUCER_ID, log_start_offset=log_start_offset)
    h.answer(code=codes.UNKNOWN_PRODUCER_ID, log_start_offset=log_start_offset)
    h.advance(0.05)
    assert h.places() == [(1, 0)]
    h.acknowledge(offset=1011)
    assert h.places() == [(1, 1)]
    h.acknowledge(offset=1012)
    assert (first.offset, second.offset) == (1011, 1012)


def test_a_broker_that_forgot_the_producer_and_does_not_know_its_log_start_is_asked_again() -> None:
    h = warm()
    record = h.send()
    h.answer(code=codes.UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    h.advance(0.05)
    assert h.places() == [(0, 1)]
    h.acknowledge(offset=5)
    assert record.offset == 5


# -- the last epoch ---


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    """Dekaf's lesson: no livelock, and every partition begins at 0 of the new id."""
    h = warm(producer_ids=[(1, MAX_EPOCH), (2, 0)])
    record = h.send()
    other = h.send(1)
    assert h.places(0) == [(MAX_EPOCH, 1)]
    refuse_next(h)
    assert h.count(INIT_PRODUCER_ID) == 2
    h.answer(h.produces[0], codes.NOT_ENOUGH_REPLICAS)
    h.advance(0.05)
    batches = {p: request.batch(p) for request in h.produces for p in request.partitions}
    assert (batches[0].producer_id, batches[0].place) == (2, (0, 0))
    # Begun under the old id, finished under the old id: the broker may have it.
    assert (batches[1].producer_id, batches[1].place) == (1, (MAX_EPOCH, 1))
    while h.produces:
        h.acknowledge(offset=1)
    assert (record.offset, other.offset) == (1, 1)
    h.send(1)
    assert (h.produce().batch(1).producer_id, h.produce().batch(1).place) == (2, (0, 0))


def test_while_the_new_producer_id_is_asked_for_nothing_is_sent() -> None:
    h = warm(producer_ids=[(1, MAX_EPOCH), (2, 0)])
    h.held.add(INIT_PRODUCER_ID)
    h.send()
    refuse_next(h)
    h.send(1)
    h.advance(0.5)
    assert h.produces == []
    h.answer_init(producer=(2, 0))
    assert {p: request.batch(p).place for request in h.produces for p in request.partitions} == {
        0: (0, 0),
        1: (0, 0),
    }


def test_close_waits_for_the_new_producer_id() -> None:
    h = warm(producer_ids=[(1, MAX_EPOCH), (2, 0)])
    record = h.send()
    h.sender.begin_close(h.now)
    refuse_next(h)
    h.advance(0.05)
    h.acknowledge(offset=1)
    assert record.offset == 1
    assert h.is_closed()


def test_a_forced_close_does_not() -> None:
    h = warm(producer_ids=[(1, MAX_EPOCH), (2, 0)])
    h.held.add(INIT_PRODUCER_ID)
    record = h.send()
    refuse_next(h)
    h.sender.abort(h.now)
    h.run()
    assert record.is_done
    assert h.is_closed()


def test_a_batch_in_retry_survives_the_exchange_of_the_producer_id() -> None:
    h = warm(producer_ids=[(1, MAX_EPOCH), (2, 0)])
    retried, refused = h.send(1), h.send(0)
    h.answer(h.produces[0], codes.NOT_LEADER_OR_FOLLOWER)
    refuse_next(h)
    h.advance(0.06)
    while h.produces:
        h.acknowledge(offset=10)
    assert (retried.offset, refused.offset) == (10, 10)


# -- splitting ---


def test_the_halves_of_a_batch_share_its_sequences() -> None:
    h = warm()
    records = [h.append(0, b"%d" % number) for number in range(4)]
    h.run()
    behind = h.send(0, b"behind")
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # As with every repetition, one at a time.
    assert h.places() == [(0, 1)]
    h.acknowledge(offset=1)
    assert h.places() == [(0, 3)]
    h.acknowledge(offset=3)
    assert [record.offset for record in records] == [1, 2, 3, 4]
    h.advance(0.05)
    assert h.places() == [(0, 5)]
    h.acknowledge(offset=5)
    assert behind.offset == 5
    assert h.sender.sequences is not None
    assert h.sender.sequences.producer.epoch == 0
    assert h.outstanding == 0


def test_a_batch_that_may_be_written_is_not_halved() -> None:
    # The broker knows sequences by batch: of a batch that it has, the halves would be new to it.
    h = warm()
    records = [h.append(0, b"%d" % number) for number in range(4)]
    h.run()
    h.lose()
    h.advance(0.05)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    for record in records:
        assert record.error is not None
        assert record.error.possibly_written
    assert h.produces == []
    later = h.send(0)
    h.acknowledge(offset=9)
    assert later.offset == 9
    assert h.outstanding == 0


def test_halves_that_expire_are_removed_from_the_protocols_books() -> None:
    h = warm()
    records = [h.append(), h.append()]
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.acknowledge(offset=1)
    h.down.add(0)
    h.lose()
    h.advance(2)
    assert records[0].offset == 1
    assert isinstance(records[1].error, DeliveryTimeoutError)
    h.down.clear()
    h.advance(0.1)
    h.send()
    assert h.places() == [(1, 0)]
    h.acknowledge(offset=2)
    assert h.outstanding == 0
