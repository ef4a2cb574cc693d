"""The idempotent Sender as a broker sees it: which epoch and sequence each batch carries, and when it is sent.

Scenarios of Java's SenderTest and TransactionManagerTest (tests/README.md says which test stands for which). A
batch's `place` is its (epoch, base sequence). Where this client is stricter than Java on purpose (sequences are
rewritten only when it is certain that nothing was written), our own invariant is what is tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce.errors import BrokerRejectedError, ProducerFatalError
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import PRODUCER_ID, SenderHarness, warm
from tests.unit.sender_wire import INIT_PRODUCER_ID, METADATA

if TYPE_CHECKING:
    pass


def moving() -> SenderHarness:
    """Two brokers, each leading one partition; there is an idle connection to the second."""
    h = warm(brokers=2)
    h.move(1, 1)
    h.refresh()
    h.send_acknowledged(1, offset=1)
    return h


# -- the producer id ---


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    h = SenderHarness(is_bootstrapped=False)
    h.held.add(INIT_PRODUCER_ID)
    h.want("test")
    h.run()
    record = h.send()
    assert h.produces == []
    (request,) = h.waiting(INIT_PRODUCER_ID)
    assert request.body["transactional_id"] is None
    h.answer_init(producer=(77, 3))
    batch = h.produce().batch()
    assert (batch.producer_id, batch.place) == (77, (3, 0))
    h.acknowledge()
    assert record.is_done


def test_the_producer_id_comes_also_over_one_connection_that_is_busy() -> None:
    h = SenderHarness(is_bootstrapped=False, max_in_flight_requests_per_connection=1)
    h.held.add(METADATA)
    h.want("test")
    h.run()
    assert [request.api for request in h.requests] == [METADATA]
    h.answer_metadata()
    h.held.clear()
    h.send_acknowledged()


def test_a_broker_that_is_down_delays_the_producer_id() -> None:
    h = SenderHarness(is_bootstrapped=False)
    h.down.add(0)
    h.want("test")
    h.advance(0.3)
    assert h.history == []
    h.down.clear()
    h.advance(0.1)
    h.send_acknowledged()


def test_a_retriable_error_for_the_producer_id_is_tried_again_with_backoff() -> None:
    h = SenderHarness(is_bootstrapped=False)
    h.held.add(INIT_PRODUCER_ID)
    h.want("test")
    h.run()
    for _ in range(3):
        h.answer_init(codes.COORDINATOR_LOAD_IN_PROGRESS)
        assert h.waiting(INIT_PRODUCER_ID) == []
        h.advance(0.049)
        assert h.waiting(INIT_PRODUCER_ID) == []
        h.advance(0.001)
        assert len(h.waiting(INIT_PRODUCER_ID)) == 1
    h.answer_init()
    h.send_acknowledged()


def test_each_refusal_of_the_producer_id_doubles_the_wait() -> None:
    h = SenderHarness(is_bootstrapped=False, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    h.held.add(INIT_PRODUCER_ID)
    h.want("test")
    h.run()
    for wait in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        h.answer_init(codes.COORDINATOR_LOAD_IN_PROGRESS)
        h.advance(wait - 0.001)
        assert h.waiting(INIT_PRODUCER_ID) == []
        h.advance(0.002)
        assert len(h.waiting(INIT_PRODUCER_ID)) == 1


def test_a_lost_connection_while_the_producer_id_is_asked_for() -> None:
    h = SenderHarness(is_bootstrapped=False)
    h.held.add(INIT_PRODUCER_ID)
    h.want("test")
    h.run()
    (request,) = h.waiting(INIT_PRODUCER_ID)
    h.lose(request.node_id)
    h.advance(0.05)
    h.answer_init()
    h.send_acknowledged()


def test_a_denied_producer_id_fails_what_waits_and_is_asked_for_again() -> None:
    h = SenderHarness(is_bootstrapped=False)
    h.held.add(INIT_PRODUCER_ID)
    h.want("test")
    h.run()
    record = h.send()
    told: list[str] = []
    h.sender.begin_flush(lambda: told.append("flushed"), h.now)
    h.answer_init(codes.CLUSTER_AUTHORIZATION_FAILED)
    assert isinstance(record.error, ProducerFatalError)
    assert record.error.code == codes.CLUSTER_AUTHORIZATION_FAILED
    assert not record.error.possibly_written
    assert not record.error.retriable, "somebody has to grant the right first"
    assert told == ["flushed"]
    assert h.outstanding == 0
    h.advance(0.05)
    h.answer_init()
    h.send_acknowledged()


# -- in order ---


def test_sequences_count_records() -> None:
    h = SenderHarness()
    records = [h.append(), h.append()]
    h.run()
    assert h.places() == [(0, 0)]
    assert h.produce().batch().producer_id == PRODUCER_ID
    h.acknowledge()
    assert [record.offset for record in records] == [0, 1]
    h.send()
    assert h.places() == [(0, 2)]


def test_each_partition_counts_for_itself() -> None:
    h = SenderHarness()
    h.append(0)
    h.append(1)
    h.run()
    assert [h.produce().batch(partition).place for partition in (0, 1)] == [(0, 0), (0, 0)]


def test_several_requests_in_flight() -> None:
    h = warm()
    records = h.send_each(3)
    assert h.places() == [(0, 1), (0, 2), (0, 3)]
    for number, record in enumerate(records):
        h.acknowledge(offset=number + 1)
        assert record.offset == number + 1
    assert h.outstanding == 0


def test_until_the_first_acknowledgement_of_a_partition_one_batch_is_on_its_way() -> None:
    """A broker that does not know the producer takes any sequence (KIP-360): a second batch could go first."""
    h = SenderHarness()
    h.send_each(3)
    assert h.places() == [(0, 0)]
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    assert h.places() == []
    h.advance(0.05)
    assert h.places() == [(0, 0)]
    h.acknowledge()
    assert h.places() == [(0, 1)]
    assert h.produce().batch().values == (b"1", b"2")
    h.send()
    assert h.places() == [(0, 1), (0, 3)]


def test_failed_requests_are_retried_one_at_a_time_and_in_order() -> None:
    h = warm()
    records = h.send_each(3)
    h.answer(code=codes.LEADER_NOT_AVAILABLE)
    late = h.send(0, b"late")
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert h.places() == []
    h.advance(0.05)
    for number, record in enumerate(records):
        expected = [(0, number + 1)] if number < 2 else [(0, 3), (0, 4)]
        assert h.places() == expected
        assert h.produces[0].batch().values == (b"%d" % number,)
        h.acknowledge(offset=number + 1)
        assert record.offset == number + 1
    assert h.produce().batch().values == (b"late",)
    h.acknowledge(offset=4)
    assert late.offset == 4


def test_a_lost_connection_is_retried_with_the_same_sequences() -> None:
    h = warm()
    records = h.send_each(3)
    contents = [request.batch().content for request in h.produces]
    h.lose()
    h.advance(0.06)
    for number, record in enumerate(records):
        assert h.produces[0].batch().content == contents[number]
        h.acknowledge(offset=number + 1)
        assert record.offset == number + 1


def test_answers_of_two_connections_may_come_out_of_order() -> None:
    h = moving()
    first = h.send(0, b"first")
    h.move(0, 1)
    h.refresh()
    second = h.send(0, b"second")
    old, new = h.produces
    assert (old.node_id, new.node_id) == (0, 1)
    h.answer(new, codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.answer(old, codes.NOT_LEADER_OR_FOLLOWER)
    h.advance(0.06)
    assert h.places() == [(0, 1)]
    h.acknowledge(offset=1)
    assert h.places() == [(0, 2)]
    h.acknowledge(offset=2)
    assert (first.offset, second.offset) == (1, 2)
    assert h.sender.sequences is not None
    assert h.sender.sequences.producer.epoch == 0


def test_a_broker_remembers_five_batches_whatever_connections_they_came_by() -> None:
    """More of them unanswered, and the repetition of the first would be taken for a gap and written again."""
    h = moving()
    records = h.send_each(5)
    h.move(0, 1)
    h.refresh()
    sixth = h.send(0, b"sixth")
    assert h.places() == [(0, number) for number in range(1, 6)]
    for number, record in enumerate(records):
        h.acknowledge(offset=number + 1)
        assert record.offset == number + 1
    assert h.produce().node_id == 1
    h.acknowledge(offset=6)
    assert sixth.offset == 6


def test_the_second_of_two_may_be_acknowledged_first() -> None:
    h = moving()
    first = h.send(0, b"first")
    h.move(0, 1)
    h.refresh()
    second = h.send(0, b"second")
    old, new = h.produces
    h.acknowledge(new, offset=1000)
    assert second.offset == 1000
    h.answer(old, codes.REQUEST_TIMED_OUT)
    h.advance(0.05)
    assert h.places() == [(0, 1)]
    h.acknowledge(offset=999)
    assert first.offset == 999
    h.send()
    assert h.places() == [(0, 3)]


def test_a_batch_that_the_broker_has_already_is_acknowledged_without_an_offset() -> None:
    h = warm()
    record = h.send()
    h.lose()
    h.advance(0.05)
    h.answer(code=codes.DUPLICATE_SEQUENCE_NUMBER)
    assert record.error is None
    assert not record.delivery.result().has_offset
    h.send()
    assert h.places() == [(0, 2)]


# -- a batch fails, those behind it do not ---


def test_when_a_batch_fails_for_good_those_behind_it_move_to_a_new_epoch() -> None:
    h = warm()
    first, second = h.send_each(2)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert isinstance(first.error, BrokerRejectedError)
    assert not first.error.possibly_written
    # The broker misses the first: the second was not written, so it may be renumbered.
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    h.advance(0.05)
    assert h.places() == [(1, 0)]
    h.acknowledge(offset=1)
    assert second.offset == 1


def test_when_a_batch_fails_for_good_but_the_one_behind_it_was_written_nothing_is_renumbered() -> None:
    """A broker that forgot the producer takes the second; renumbered and sent again it would be there twice."""
    h = warm()
    first, second = h.send_each(2)
    h.answer(code=codes.INVALID_RECORD)
    assert first.is_done
    h.lose()
    h.advance(0.05)
    assert h.places() == [(0, 2)]
    h.acknowledge(offset=1)
    assert second.offset == 1
    h.send()
    assert h.places() == [(0, 3)]


def test_after_a_definite_failure_with_nothing_behind_it_the_epoch_is_bumped() -> None:
    h = warm()
    record = h.send()
    h.answer(code=codes.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert record.error.code == codes.UNSUPPORTED_FOR_MESSAGE_FORMAT
    h.send()
    assert h.places() == [(1, 0)]


def test_a_producer_that_was_denied_the_cluster_fails_that_batch_and_tries_again_with_the_next() -> None:
    """Java gives up for good; here the right may be granted meanwhile."""
    h = warm()
    record = h.send()
    other = h.send(1)
    h.answer(code=codes.CLUSTER_AUTHORIZATION_FAILED)
    assert isinstance(record.error, ProducerFatalError)
    h.acknowledge(offset=1)
    assert other.offset == 1
    h.send_acknowledged(0, offset=1)
