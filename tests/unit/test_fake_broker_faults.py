"""Every scripted fault of the broker model, on a clock of the test's."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aioproduce.testing import ClusterModel
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import Peer, batch, fetch_request, init_producer_id, model, produce_request
from tests.unit.test_fake_broker_connections import api_versions, metadata
from tests.wire_oracle import request_frame


@pytest.fixture
def cluster() -> ClusterModel:
    return model(2, topics={"t": 2})


@pytest.fixture
def peer(cluster: ClusterModel) -> Peer:
    return Peer(cluster)


def end(cluster: ClusterModel, partition: int = 0) -> int:
    return cluster.state.require_partition("t", partition).log.end_offset


def request(value: bytes = b"v") -> Any:
    return produce_request("t", {0: batch(value)})


def test_error_codes_so_many_times(cluster: ClusterModel, peer: Peer) -> None:
    fault = cluster.faults.fail_produce(6, times=2)

    codes = [peer.produce("t", batch(b"v")).error_code.value for _ in range(4)]

    assert codes == [6, 6, 0, 0]
    assert (fault.hits, fault.is_spent, end(cluster)) == (2, True, 2)


def test_error_codes_until_cancelled(cluster: ClusterModel, peer: Peer) -> None:
    fault = cluster.faults.fail_produce(-1, times=None)
    codes = [peer.produce("t", batch(b"v")).error_code.value for _ in range(3)]
    fault.cancel()

    assert codes == [-1, -1, -1]
    assert peer.produce("t", batch(b"v")).error_code.value == 0


def test_error_codes_one_after_the_other(cluster: ClusterModel, peer: Peer) -> None:
    for code in (5, 6, 7):
        cluster.faults.fail_produce(code)

    assert [peer.produce("t", batch(b"v")).error_code.value for _ in range(4)] == [5, 6, 7, 0]


def test_a_code_that_kafka_does_not_know(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail_produce(999)
    peer.send(request())

    (frame,) = peer.frames()
    # v8: correlation id, one topic "t", one partition 0, and its code.
    assert struct.unpack_from(">iih1siih", frame) == (1, 1, 1, b"t", 1, 0, 999)


def test_error_codes_for_one_place(cluster: ClusterModel) -> None:
    cluster.state.create_topic("u", 1)
    cluster.faults.fail_produce(7, topic="t", partition=1, times=None)
    cluster.faults.fail_produce(19, broker=1, topic="u", times=None)
    peer = Peer(cluster)
    answer = peer.ask(produce_request("t", {0: batch(b"a")}))
    assert answer.responses[0].partition_responses[0].error_code.value == 0
    assert peer.produce("u", batch(b"a")).error_code.value == 6
    cluster.state.move_leader("t", 1, 0)
    assert peer.produce("t", batch(b"a"), partition=1).error_code.value == 7
    assert Peer(cluster, 1).produce("u", batch(b"a")).error_code.value == 19


def test_error_codes_before_and_after_the_append(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail_produce(19)
    cluster.faults.fail_produce(20, after_append=True)

    before = peer.produce("t", batch(b"a"))
    after = peer.produce("t", batch(b"b"))

    assert [(answer.error_code.value, answer.base_offset) for answer in (before, after)] == [
        (19, -1),
        # Kafka tells the offset of what it has appended, whatever the code.
        (20, 0),
    ]
    assert end(cluster) == 1


def test_after_the_append_a_batch_that_is_refused_anyway_is_refused_as_it_would_be(
    cluster: ClusterModel, peer: Peer
) -> None:
    cluster.faults.fail_produce(20, after_append=True)

    assert peer.produce("t", b"").error_code.value == 87


def test_messages_and_record_errors(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail_produce(87, message="no", record_errors=((1, "bad key"), (3, "worse")))

    answer = peer.produce("t", batch(b"v"))

    assert answer.error_message == "no"
    assert [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors] == [
        (1, "bad key"),
        (3, "worse"),
    ]


def test_metadata_errors(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail_metadata(5, topic="t", times=2)
    cluster.faults.fail(ApiKey.METADATA, 129)

    first = peer.ask(metadata("t", version=13))
    second, third = peer.ask(metadata("t", version=13)), peer.ask(metadata("t", version=13))

    assert [answer.error_code.value for answer in (first, second, third)] == [129, 0, 0]
    assert [answer.topics[0].error_code.value for answer in (first, second, third)] == [5, 5, 0]


def test_errors_of_whole_answers(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail(ApiKey.INIT_PRODUCER_ID, 14)
    cluster.faults.fail(ApiKey.API_VERSIONS, 42)

    assert [peer.ask(init_producer_id()).error_code.value for _ in range(2)] == [14, 0]
    assert [peer.ask(api_versions(3)).error_code.value for _ in range(2)] == [42, 0]
    with pytest.raises(ValueError, match="FETCH has no top-level error code"):
        cluster.faults.fail(ApiKey.FETCH, 1)


def test_times_must_be_possible(cluster: ClusterModel) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        cluster.faults.fail_produce(6, times=0)


def test_a_dropped_answer(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.drop_answers(api=ApiKey.PRODUCE)
    peer.send(request())
    peer.send(request())

    (frame,) = peer.frames()
    assert struct.unpack_from(">i", frame) == (2,)
    assert (peer.is_closed, end(cluster)) == (False, 2)


def test_late_answers_stay_in_order(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.delay_answers(2.0, times=1)
    peer.send(request(), now=1.0)
    peer.send(request(), now=1.5)
    assert end(cluster) == 2
    assert peer.frames() == []
    assert cluster.next_timer() == 3.0

    cluster.handle_timer(2.9)
    assert peer.frames() == []
    cluster.handle_timer(3.0)

    assert [struct.unpack_from(">i", frame)[0] for frame in peer.frames()] == [1, 2]


def test_a_late_answer_for_a_client_that_is_gone(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.delay_answers(2.0)
    peer.send(request())
    cluster.connection_closed(peer.connection_id, 1.0)
    cluster.handle_timer(2.0)

    assert not cluster.effects


@pytest.mark.parametrize(("after", "appended"), [(True, 1), (False, 0)], ids=["after", "before"])
def test_a_reset_with_and_without_effect(
    cluster: ClusterModel, peer: Peer, after: bool, appended: int
) -> None:
    cluster.faults.reset_connections_on(ApiKey.PRODUCE, after_processing=after)
    peer.ask(metadata("t"))
    peer.send(request())

    assert peer.frames() == []
    assert (peer.is_closed, peer.is_reset, end(cluster)) == (True, True, appended)
    assert Peer(cluster).produce("t", batch(b"v")).error_code.value == 0


def test_a_reset_after_a_request_without_an_answer(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.reset_connections_on(ApiKey.PRODUCE)
    peer.send(produce_request("t", {0: batch(b"v")}, acks=0))

    assert (peer.is_reset, end(cluster)) == (True, 1)


def test_half_a_frame(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.cut_answers(length=9)
    peer.send(request())

    assert peer.frames() == []
    assert len(peer.received) == 9
    assert struct.unpack_from(">i", peer.received, 4) == (1,)
    assert (peer.is_closed, peer.is_reset) == (True, False)


def test_garbage(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.garble_answers(body=b"\xffxyz")
    peer.send(request())

    assert peer.frames() == [b"\x00\x00\x00\x01\xffxyz"]


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31)])
def test_a_hostile_length(cluster: ClusterModel, peer: Peer, length: int) -> None:
    cluster.faults.announce_hostile_length(length)
    peer.send(request())
    peer.drain()

    assert peer.received == struct.pack(">i", length)
    assert not peer.is_closed


def test_another_correlation_id(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.change_correlation_ids()
    peer.send(request())
    peer.send(request())

    wrong, right = peer.frames()
    assert struct.unpack_from(">i", wrong) != (1,)
    assert wrong[4:8] == right[4:8]
    assert struct.unpack_from(">i", right) == (2,)


def test_a_throttle_is_announced_and_kept(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.throttle(2.0)

    answer = peer.ask(request(), now=1.0)
    assert answer.throttle_time.total_seconds() == 2.0
    peer.send(request(), now=2.0)
    assert peer.frames() == []
    assert end(cluster) == 1
    cluster.handle_timer(3.0)

    (late,) = peer.answers()
    assert late.throttle_time.total_seconds() == 0
    assert end(cluster) == 2
    assert [entry.is_throttled for entry in cluster.requests.entries()] == [False, True]


def test_a_throttle_is_one_connections(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.throttle(2.0)
    peer.ask(request())

    assert Peer(cluster).produce("t", batch(b"v")).error_code.value == 0


def test_a_quota_makes_who_sends_too_much_wait(cluster: ClusterModel, peer: Peer) -> None:
    size = len(request_frame(request())) - 4
    cluster.produce_quota = size / 2

    # Each request is two seconds' worth, and one second's worth may come at once.
    first = peer.ask(request(), now=10.0)
    peer.send(request(), now=10.5)
    assert peer.frames() == []
    cluster.handle_timer(11.0)
    (second,) = peer.answers()
    other = Peer(cluster).ask(request(), now=11.0)

    assert [answer.throttle_time.total_seconds() for answer in (first, second, other)] == [1.0, 2.0, 1.0]
    assert [entry.is_throttled for entry in cluster.requests.entries()] == [False, True, False]
    cluster.produce_quota = None
    assert Peer(cluster).ask(request(), now=12.0).throttle_time.total_seconds() == 0


def test_a_quota_mutes_who_wants_no_answer(cluster: ClusterModel, peer: Peer) -> None:
    cluster.produce_quota = 100.0
    for _ in range(2):
        peer.send(produce_request("t", {0: batch(b"v" * 200)}, acks=0), now=1.0)

    assert end(cluster) == 1
    cluster.handle_timer(60.0)
    assert end(cluster) == 2


def test_a_stalled_broker_reads_nothing_and_answers_nothing(cluster: ClusterModel, peer: Peer) -> None:
    early = Peer(cluster)
    early.send(fetch_request(cluster, max_wait=5))
    cluster.faults.stall(0)
    cluster.handle_timer(0.0)
    assert {effect.connection_id for effect in cluster.effects} == {1, 2}
    peer.send(request(), now=1.0)
    cluster.handle_timer(5.0)

    assert (peer.frames(), early.frames(), end(cluster)) == ([], [], 0)
    assert not peer.is_closed
    other = Peer(cluster, 1)
    assert other.produce("t", batch(b"v"), partition=1).error_code.value == 0

    cluster.faults.resume(0)
    cluster.handle_timer(6.0)

    assert len(early.answers()) == 1
    assert peer.answers()[0].responses[0].partition_responses[0].base_offset == 0


def test_who_connects_to_a_stalled_broker_is_accepted_and_not_read(cluster: ClusterModel) -> None:
    cluster.faults.stall(0)
    cluster.handle_timer(0.0)
    cluster.effects.clear()
    late = cluster.connection_opened(0, 1.0)

    (effect,) = cluster.effects
    assert (effect.connection_id, getattr(effect, "is_reading", None)) == (late, False)


def test_connections_are_reset_on_demand(cluster: ClusterModel) -> None:
    peers = [Peer(cluster, broker) for broker in (0, 1)]
    cluster.faults.reset_connections(1)
    cluster.handle_timer(0.0)
    for peer in peers:
        peer.drain()
    assert [peer.is_reset for peer in peers] == [False, True]

    cluster.faults.reset_connections()
    cluster.handle_timer(0.0)
    peers[0].drain()
    assert peers[0].is_reset


def test_the_front_is_told_that_there_is_work(cluster: ClusterModel) -> None:
    woken: list[float | None] = []
    cluster.wake = lambda: woken.append(cluster.next_timer())

    cluster.faults.stall(0)
    cluster.faults.reset_connections()

    assert woken == [0.0, 0.0]


def test_clear_ends_everything(cluster: ClusterModel, peer: Peer) -> None:
    cluster.faults.fail_produce(6, times=None)
    cluster.faults.drop_answers(times=None)
    cluster.faults.throttle(9.0, times=None)
    cluster.faults.stall(0)
    cluster.faults.clear()
    cluster.handle_timer(0.0)

    answer = peer.ask(request())

    assert answer.throttle_time.total_seconds() == 0
    assert answer.responses[0].partition_responses[0].error_code.value == 0
