"""One connection: negotiation, order of answers, time-outs, throttling, and what a loss gives back.

The bytes of the broker come from kio (`connection_peer`). The table from Java's scenarios to these tests is
in `test_broker_connections.py`.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce._native.stats import Windows
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.connection_states import ConnectionSettings, ConnectionState, LossCause
from aioproduce.core.cluster.in_flight_request import Completed
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Buffer, Close, Connect, Effect, Send
from aioproduce.errors import ProtocolError, TlsError, UnsupportedVersionError
from aioproduce.metrics import NodeMetrics
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey, ApiVersions
from aioproduce.wire.messages import ApiVersionsResponse, BrokerAddress, InitProducerIdResponse
from tests.askers import name, named, names
from tests.unit.connection_peer import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    MODERN,
    PRODUCE,
    api_versions_response,
    framed,
    init_producer_id_response,
    produce_response,
    request_header,
)

ADDRESS = BrokerAddress(node_id=7, host="broker", port=9092)


class Peer:
    """A connection under test with what surrounds it."""

    def __init__(
        self, *, max_in_flight: int = 5, request_timeout: float = 30.0, connections_max_idle: float = 540.0
    ) -> None:
        self.effects: deque[Effect] = deque()
        self.deadlines: Deadlines = Deadlines()
        self.connection = BrokerConnection(
            1,
            ADDRESS,
            ConnectionSettings(
                client_id="tests",
                max_in_flight=max_in_flight,
                request_timeout=request_timeout,
                connections_max_idle=connections_max_idle,
            ),
            self.effects,
            self.deadlines,
            NodeMetrics(Windows()),
        )

    def drain(self) -> list[Effect]:
        effects = list(self.effects)
        self.effects.clear()
        return effects

    def sent(self) -> Send:
        """The one effect that there is, which is a Send."""
        (effect,) = self.drain()
        assert isinstance(effect, Send)
        return effect

    def connected(self, now: float = 0.0) -> Peer:
        self.connection.connect(now, 10.0)
        self.connection.connection_made(now)
        return self

    def ready(self, now: float = 0.0, offered: dict[int, tuple[int, int]] | None = None) -> Peer:
        self.connected(now)
        self.connection.writable(now)
        answer = api_versions_response(0, offered=MODERN if offered is None else offered)
        assert self.connection.receive_data(answer, now) == []
        assert self.connection.state is ConnectionState.READY
        self.drain()
        return self

    def send(
        self,
        context: Any,
        now: float,
        *,
        timeout: float = 30.0,
        api: ApiKey = ApiKey.INIT_PRODUCER_ID,
        expects_response: bool = True,
        is_written: bool = True,
    ) -> None:
        self.connection.send(api, encode, context, now, timeout=timeout, expects_response=expects_response)
        if is_written:
            self.connection.writable(now)

    def tick(self, now: float) -> list[int]:
        due = self.deadlines.pop_due(now)
        if due:
            self.connection.handle_timer(now)
        return due


def encode(version: int, correlation_id: int) -> list[Buffer]:
    """A request of which only the header matters."""
    return [framed(struct.pack(">hhih", INIT_PRODUCER_ID, version, correlation_id, -1))]


def contexts(completed: list[Completed]) -> list[object]:
    return names(done.request for done in completed)


# Set-up and negotiation


def test_connect_asks_for_a_connection_and_gives_up_in_time() -> None:
    peer = Peer()
    peer.connection.connect(100.0, 10.0)
    assert peer.drain() == [Connect(1, "broker", 9092, 10.0)]
    assert peer.tick(109.999) == []
    peer.tick(110.0)
    assert peer.drain() == [Close(1)]
    assert peer.connection.cause is LossCause.SETUP_TIMEOUT
    assert "broker:9092 (node 7) within 10 s (socket.connection.setup.timeout.ms)" in peer.connection.reason


def test_first_it_asks_for_the_brokers_versions_in_the_newest_version_it_knows() -> None:
    peer = Peer()
    peer.connection.connect(0.0, 10.0)
    peer.drain()
    peer.connection.connection_made(1.0)
    assert request_header(peer.sent().buffers) == (API_VERSIONS, 4, 0, "tests")
    assert peer.connection.state is ConnectionState.NEGOTIATING
    assert not peer.connection.can_send(1.0)


def test_it_is_ready_when_the_versions_are_known_and_can_send_when_its_bytes_are_gone() -> None:
    peer = Peer().connected()
    assert peer.connection.receive_data(api_versions_response(0), 1.0) == []
    assert peer.connection.is_ready
    assert not peer.connection.can_send(1.0)
    assert peer.connection.writable(1.0) == []
    assert peer.connection.can_send(1.0)
    assert peer.connection.api_versions is not None
    assert peer.connection.api_versions.version(ApiKey.PRODUCE) == 11


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        ({API_VERSIONS: (0, 2)}, 2),
        ({API_VERSIONS: (0, 3)}, 3),
        ({API_VERSIONS: (0, 0)}, 0),
        ({}, 0),  # a broker before 2.4
        ({PRODUCE: (0, 9)}, 0),
        ({API_VERSIONS: (0, 9)}, 0),  # nonsense: it refused what it offers
        ({API_VERSIONS: (-5, -1)}, 0),
    ],
)
def test_a_refused_version_is_asked_again_as_the_broker_offers_or_as_version_0(
    offered: dict[int, tuple[int, int]], asked: int
) -> None:
    peer = Peer().connected()
    peer.connection.writable(0.0)
    peer.drain()
    peer.connection.receive_data(api_versions_response(0, version=0, error_code=35, offered=offered), 1.0)
    assert request_header(peer.sent().buffers) == (API_VERSIONS, asked, 1, "tests")
    assert peer.connection.state is ConnectionState.NEGOTIATING
    peer.connection.writable(1.0)
    peer.connection.receive_data(api_versions_response(1, version=asked), 2.0)
    assert peer.connection.can_send(2.0)


def test_the_second_question_waits_until_the_bytes_of_the_first_are_gone() -> None:
    peer = Peer().connected()
    peer.drain()
    peer.connection.receive_data(api_versions_response(0, version=0, error_code=35, offered={}), 1.0)
    assert peer.drain() == []
    peer.connection.writable(2.0)
    assert request_header(peer.sent().buffers).version == 0
    assert not peer.connection.is_writable


def test_a_broker_that_refuses_every_version_does_not_keep_us_asking() -> None:
    peer = Peer().connected()
    asked: list[int] = []
    while (effect := peer.effects.pop()) != Close(1):
        assert isinstance(effect, Send)
        peer.connection.writable(0.0)
        header = request_header(effect.buffers)
        asked.append(header.version)
        offered = {API_VERSIONS: (0, header.version - 1)}
        peer.connection.receive_data(
            api_versions_response(header.correlation_id, version=0, error_code=35, offered=offered), 0.0
        )
    assert asked == [4, 3, 2, 1, 0]
    assert peer.connection.cause is LossCause.PROTOCOL_ERROR
    assert "UNSUPPORTED_VERSION" in peer.connection.reason


def test_any_other_error_ends_the_connection() -> None:
    peer = Peer().connected()
    peer.connection.receive_data(api_versions_response(0, error_code=42), 0.0)
    assert peer.effects[-1] == Close(1)
    assert "INVALID_REQUEST" in peer.connection.reason
    assert "broker:9092" in peer.connection.reason


@pytest.mark.parametrize(
    ("offered", "api"),
    [
        ({**MODERN, PRODUCE: (0, 2)}, "Produce"),
        ({**MODERN, METADATA: (0, 0)}, "Metadata"),
        ({API_VERSIONS: (0, 4)}, "Produce"),
    ],
)
def test_a_broker_too_old_is_refused_with_its_versions(offered: dict[int, tuple[int, int]], api: str) -> None:
    peer = Peer().connected()
    peer.connection.receive_data(api_versions_response(0, offered=offered), 0.0)
    assert peer.effects[-1] == Close(1)
    error = peer.connection.error
    assert isinstance(error, UnsupportedVersionError)
    assert error.api == api
    assert "broker:9092 (node 7)" in peer.connection.reason
    if offered.get(PRODUCE) == (0, 2):
        assert error.broker_versions == (0, 2)
        assert "before Kafka 0.11" in peer.connection.reason


@pytest.mark.parametrize("is_written", [True, False])
def test_a_broker_that_does_not_tell_its_versions_is_given_up(is_written: bool) -> None:
    peer = Peer(request_timeout=20.0)
    peer.connection.connect(0.0, 10.0)
    peer.connection.connection_made(9.0)
    if is_written:
        peer.connection.writable(9.0)
    peer.drain()
    peer.tick(10.0)  # the set-up time-out no longer counts
    peer.tick(28.9)
    assert peer.drain() == []
    peer.tick(29.0)
    assert peer.drain() == [Close(1)]
    assert peer.connection.cause is LossCause.REQUEST_TIMEOUT
    assert "did not answer ApiVersions within 20 s" in peer.connection.reason


def test_the_second_question_has_a_time_out_of_its_own_even_if_it_cannot_be_asked() -> None:
    peer = Peer(request_timeout=20.0).connected()
    peer.connection.receive_data(api_versions_response(0, version=0, error_code=35, offered={}), 15.0)
    peer.drain()
    peer.tick(20.0)
    assert peer.drain() == []
    peer.tick(35.0)
    assert peer.drain() == [Close(1)]


def test_a_connection_starts_negotiating_once() -> None:
    peer = Peer().connected()
    with pytest.raises(RuntimeError, match="'connected' cannot happen"):
        peer.connection.connection_made(1.0)


# Requests and answers


def test_a_request_comes_back_with_its_answer() -> None:
    peer = Peer().ready()
    context: Any = object()
    peer.connection.send(ApiKey.INIT_PRODUCER_ID, encode, context, 5.0, timeout=30.0)
    header = request_header(peer.sent().buffers)
    assert header[:3] == (INIT_PRODUCER_ID, 4, 1)
    peer.connection.writable(5.0)
    (done,) = peer.connection.receive_data(init_producer_id_response(1, producer_id=99), 6.0)
    assert done.request.asker is context
    assert (done.request.api, done.request.version) == (ApiKey.INIT_PRODUCER_ID, 4)
    assert (done.request.sent_at, done.request.deadline) == (5.0, 35.0)
    assert done.response == InitProducerIdResponse(0.0, 0, 99, 0)
    assert not peer.connection.in_flight


def test_nothing_is_sent_before_it_is_ready() -> None:
    peer = Peer()
    peer.connection.connect(0.0, 10.0)
    with pytest.raises(RuntimeError, match="cannot accept a request now"):
        peer.send("early", 0.0)
    peer.connection.connection_made(0.0)
    peer.connection.writable(0.0)
    with pytest.raises(RuntimeError, match="negotiating"):
        peer.send("early", 0.0)


def test_one_write_at_a_time() -> None:
    peer = Peer().ready()
    peer.send("first", 1.0, is_written=False)
    assert not peer.connection.can_send(1.0)
    with pytest.raises(RuntimeError, match="not writable"):
        peer.send("second", 1.0)
    assert peer.connection.writable(2.0) == []
    assert peer.connection.can_send(2.0)


def test_no_more_in_flight_than_allowed() -> None:
    peer = Peer(max_in_flight=2).ready()
    peer.send("a", 1.0)
    assert peer.connection.can_send(1.0)
    peer.send("b", 1.0)
    assert not peer.connection.can_send(1.0)
    peer.connection.receive_data(init_producer_id_response(1), 2.0)
    assert peer.connection.can_send(2.0)


def test_an_encoder_that_raises_leaves_no_trace() -> None:
    peer = Peer().ready()

    def fail(version: int, correlation_id: int) -> list[Buffer]:
        raise ValueError("no topic id")

    with pytest.raises(ValueError, match="no topic id"):
        peer.connection.send(ApiKey.PRODUCE, fail, named("context"), 1.0, timeout=30.0)
    assert peer.drain() == []
    assert not peer.connection.in_flight
    assert peer.connection.can_send(1.0)
    peer.send("next", 1.0)
    assert request_header(peer.sent().buffers).correlation_id == 1  # none was used up


def test_an_api_that_the_broker_lacks_is_refused_and_nothing_else_harmed() -> None:
    peer = Peer().ready(offered={PRODUCE: (3, 9), METADATA: (1, 9)})
    with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
        peer.send("no", 1.0)
    assert peer.connection.can_send(1.0)
    assert peer.drain() == []


@pytest.mark.parametrize(("max_version", "used"), [(None, 4), (9, 4), (4, 4), (3, 3)])
def test_the_caller_may_want_an_older_version(max_version: int | None, used: int) -> None:
    peer = Peer().ready()
    peer.connection.send(
        ApiKey.INIT_PRODUCER_ID, encode, named("a"), 1.0, timeout=30.0, max_version=max_version
    )
    assert request_header(peer.sent().buffers).version == used
    assert peer.connection.in_flight[0].version == used


def test_correlation_ids_stay_within_an_int32() -> None:
    peer = Peer().ready()
    peer.connection._correlation_id = 0x7FFF_FFFF
    peer.send("last", 1.0)
    peer.send("first again", 1.0)
    answers = init_producer_id_response(0x7FFF_FFFF) + init_producer_id_response(0)
    assert contexts(peer.connection.receive_data(answers, 2.0)) == ["last", "first again"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=12), st.integers(1, 5))
def test_answers_come_in_order_however_the_bytes_are_cut(cuts: list[int], count: int) -> None:
    peer = Peer().ready()
    for number in range(count):
        peer.send(number, 1.0)
    stream = b"".join(init_producer_id_response(number + 1) for number in range(count))
    completed: list[Completed] = []
    at = 0
    for cut in [*cuts, len(stream)]:
        completed += peer.connection.receive_data(stream[at : at + cut], 2.0)
        at += cut
    assert contexts(completed) == list(range(count))
    assert peer.connection.can_send(2.0)


def test_single_bytes() -> None:
    peer = Peer().ready()
    peer.send("only", 1.0)
    answer = init_producer_id_response(1)
    completed = [peer.connection.receive_data(answer[at : at + 1], 2.0) for at in range(len(answer))]
    assert [len(done) for done in completed] == [0] * (len(answer) - 1) + [1]


def test_an_answer_may_be_reported_before_writable() -> None:
    peer = Peer().ready()
    peer.send("request", 1.0, is_written=False)
    assert contexts(peer.connection.receive_data(init_producer_id_response(1), 2.0)) == ["request"]
    assert not peer.connection.can_send(2.0)
    peer.connection.writable(2.0)
    assert peer.connection.can_send(2.0)


# What ends a connection


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(init_producer_id_response(7), id="wrong correlation id"),
        pytest.param(init_producer_id_response(3), id="out of order"),
        pytest.param(struct.pack(">i", -2), id="negative length"),
        pytest.param(struct.pack(">i", 0x7FFF_FFFF), id="hostile length"),
        pytest.param(framed(b""), id="empty frame"),
        pytest.param(framed(struct.pack(">i", 2) + b"\xff" * 9), id="garbage body"),
    ],
)
@pytest.mark.parametrize("slice_size", [1, 1000])
def test_a_fault_ends_the_connection_and_answers_before_it_count(fault: bytes, slice_size: int) -> None:
    peer = Peer().ready()
    for context in ("a", "b", "c"):
        peer.send(context, 1.0)
    peer.drain()
    data = init_producer_id_response(1) + fault + init_producer_id_response(2)
    completed: list[Completed] = []
    for at in range(0, len(data), slice_size):
        completed += peer.connection.receive_data(data[at : at + slice_size], 2.0)
    assert contexts(completed) == ["a"]
    assert peer.drain() == [Close(1)]
    assert isinstance(peer.connection.error, ProtocolError)
    assert peer.connection.cause is LossCause.PROTOCOL_ERROR
    assert peer.connection.reason.startswith("broker:9092 (node 7): ")
    assert names(peer.connection.lost(None)) == ["b", "c"]


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    peer = Peer().ready()
    assert peer.connection.receive_data(init_producer_id_response(1), 1.0) == []
    assert peer.drain() == [Close(1)]
    assert "but no request is in flight" in peer.connection.reason


def test_after_close_nothing_is_looked_at_or_sent() -> None:
    peer = Peer().ready()
    peer.send("request", 1.0)
    peer.drain()
    peer.connection.close("enough", LossCause.REQUESTED)
    peer.connection.close("again", LossCause.IDLE)
    assert peer.drain() == [Close(1)]
    assert peer.connection.reason == "enough"
    assert peer.connection.receive_data(init_producer_id_response(1), 2.0) == []
    assert peer.connection.writable(2.0) == []
    peer.connection.connection_made(2.0)
    assert not peer.connection.can_send(2.0)
    assert peer.deadlines.next_at() is None
    assert peer.connection.next_deadline() is None
    peer.connection.handle_timer(1e9)
    assert peer.drain() == []
    (request,) = peer.connection.lost(ConnectionResetError("reset"))
    assert name(request) == "request"
    assert peer.connection.reason == "enough"  # what we did, not what came of it
    assert peer.connection.state is ConnectionState.CLOSED


def test_an_attempt_that_is_closed_does_not_come_up_afterwards() -> None:
    peer = Peer()
    peer.connection.connect(0.0, 10.0)
    peer.connection.close("enough", LossCause.REQUESTED)
    peer.connection.connection_made(1.0)
    assert peer.drain() == [Connect(1, "broker", 9092, 10.0), Close(1)]
    assert peer.connection.state is ConnectionState.CLOSING


def test_a_loss_gives_back_all_requests_in_order_but_not_our_own() -> None:
    peer = Peer().ready()
    peer.send("a", 1.0)
    peer.send("b", 1.0)
    peer.send("c", 1.0, expects_response=False, is_written=False)
    assert peer.connection.pending_count == 3
    error = ConnectionResetError("reset by peer")
    lost = peer.connection.lost(error)
    assert names(lost) == ["a", "b", "c"]
    assert peer.connection.error is error
    assert peer.connection.pending_count == 0
    assert peer.connection.cause is LossCause.DISCONNECTED
    assert peer.connection.reason == "connection to broker:9092 (node 7) lost: reset by peer"
    assert peer.deadlines.next_at() is None

    closed = Peer().ready()
    closed.send("a", 1.0)
    closed.connection.lost(None)
    assert closed.connection.cause is LossCause.DISCONNECTED
    assert closed.connection.reason == "connection to broker:9092 (node 7) lost: closed by the peer"

    negotiating = Peer().connected()
    assert negotiating.connection.pending_count == 1
    assert negotiating.connection.lost(error) == []
    assert "before it reported its versions: reset by peer" in negotiating.connection.reason
    assert negotiating.connection.cause is LossCause.DISCONNECTED
    assert negotiating.connection.error is error

    questioned = Peer().connected()
    assert questioned.connection.lost(None) == []
    assert "before it reported its versions: closed by the peer" in questioned.connection.reason
    assert isinstance(questioned.connection.error, TlsError)
    assert questioned.connection.error.is_transient
    assert questioned.connection.cause is LossCause.DISCONNECTED


def test_a_close_by_the_peer_with_nothing_under_way_is_ordinary() -> None:
    """As brokers do by their connections.max.idle.ms. A reset is not: nor is a close that takes a request along."""
    peer = Peer().ready()
    assert peer.connection.lost(None) == []
    assert peer.connection.cause is LossCause.CLOSED_AT_REST
    assert (
        peer.connection.reason == "broker:9092 (node 7) closed its connection while no request was in flight"
    )

    reset = Peer().ready()
    reset.connection.lost(ConnectionResetError("reset by peer"))
    assert reset.connection.cause is LossCause.DISCONNECTED

    unacknowledged = Peer().ready()
    unacknowledged.send("c", 1.0, expects_response=False, is_written=False)
    unacknowledged.connection.lost(None)
    assert unacknowledged.connection.cause is LossCause.DISCONNECTED

    connecting = Peer()
    connecting.connection.connect(0.0, 10.0)
    assert connecting.connection.lost(TimeoutError()) == []
    assert connecting.connection.reason == "cannot connect to broker:9092 (node 7): TimeoutError"


def test_a_connection_is_lost_once() -> None:
    peer = Peer().ready()
    peer.connection.lost(None)
    with pytest.raises(RuntimeError, match="is closed: 'lost' cannot happen"):
        peer.connection.lost(None)


# Time-outs


def test_the_oldest_request_ends_the_connection_but_is_given_back_only_by_its_loss() -> None:
    peer = Peer().ready()
    peer.send("old", 10.0)
    peer.send("young", 20.0)
    peer.drain()
    peer.tick(39.9)
    assert peer.drain() == []
    peer.tick(40.0)
    assert peer.drain() == [Close(1)]
    assert peer.connection.cause is LossCause.REQUEST_TIMEOUT
    assert "did not answer request 1 (InitProducerId) within 30 s" in peer.connection.reason
    assert len(peer.connection.in_flight) == 2
    assert peer.connection.receive_data(init_producer_id_response(1), 40.1) == []
    assert names(peer.connection.lost(None)) == ["old", "young"]


def test_an_answer_takes_the_time_out_away() -> None:
    peer = Peer().ready()
    peer.send("a", 10.0)
    peer.send("b", 20.0)
    peer.connection.receive_data(init_producer_id_response(1), 39.0)
    peer.drain()
    peer.tick(40.0)
    assert peer.drain() == []
    assert peer.deadlines.next_at() == 50.0
    peer.tick(50.0)
    assert peer.drain() == [Close(1)]


def test_a_younger_request_with_a_shorter_time_out_counts_too() -> None:
    peer = Peer().ready()
    peer.tick(10.0)  # what is left of the set-up's deadline
    peer.send("patient", 10.0, timeout=100.0)
    peer.send("hasty", 11.0, timeout=5.0)
    peer.drain()
    assert peer.deadlines.next_at() == 16.0
    peer.tick(16.0)
    assert peer.drain() == [Close(1)]
    assert "request 2" in peer.connection.reason


def test_the_timer_is_not_moved_by_each_request() -> None:
    peer = Peer().ready()
    peer.tick(10.0)
    for number in range(20):
        peer.send(number, 10.0 + number)
        peer.connection.receive_data(init_producer_id_response(number + 1), 10.5 + number)
        assert peer.deadlines.next_at() == 40.0
    peer.tick(40.0)
    assert peer.deadlines.next_at() == 29.5 + 540.0


# acks=0


def test_without_an_answer_a_request_is_done_when_its_bytes_are_gone() -> None:
    peer = Peer(max_in_flight=1).ready()
    for number in range(3):
        peer.send(number, 1.0, expects_response=False, is_written=False)
        assert not peer.connection.can_send(1.0)
        assert not peer.connection.in_flight
        (done,) = peer.connection.writable(2.0)
        assert name(done) == number
        assert peer.connection.can_send(2.0)
    assert peer.connection.writable(3.0) == []


def test_a_request_without_answer_takes_no_answer_from_another() -> None:
    peer = Peer().ready()
    peer.send("silent", 1.0, expects_response=False)
    peer.send("asks", 1.0)
    assert contexts(peer.connection.receive_data(init_producer_id_response(2), 2.0)) == ["asks"]


def test_a_request_without_answer_has_no_time_out_once_written() -> None:
    peer = Peer().ready()
    peer.send("silent", 1.0, expects_response=False)
    peer.drain()
    peer.tick(100.0)
    assert peer.drain() == []


def test_a_peer_that_takes_nothing_is_given_up_even_without_answers() -> None:
    peer = Peer().ready()
    peer.send("silent", 1.0, expects_response=False, is_written=False)
    peer.drain()
    peer.tick(31.0)
    assert peer.drain() == [Close(1)]
    assert "did not accept request 1" in peer.connection.reason
    assert names(peer.connection.lost(None)) == ["silent"]


# Throttling (KIP-219)


def test_a_throttled_answer_mutes_the_connection_for_its_time() -> None:
    peer = Peer().ready()
    peer.send("a", 1.0)
    (done,) = peer.connection.receive_data(init_producer_id_response(1, throttle=0.5), 2.0)
    assert isinstance(done.response, InitProducerIdResponse)
    assert done.response.throttle == 0.5
    assert peer.connection.is_ready
    assert not peer.connection.can_send(2.499)
    assert peer.connection.can_send(2.5)


def test_the_end_of_the_throttling_never_comes_earlier() -> None:
    peer = Peer().ready()
    peer.send("a", 1.0)
    peer.send("b", 1.0)
    peer.connection.receive_data(init_producer_id_response(1, throttle=5.0), 2.0)
    peer.connection.receive_data(init_producer_id_response(2, throttle=1.0), 2.0)
    assert not peer.connection.can_send(6.9)
    assert peer.connection.can_send(7.0)


def test_requests_do_not_time_out_while_the_broker_mutes_the_connection() -> None:
    peer = Peer().ready()
    peer.send("a", 10.0)
    peer.send("b", 10.0)
    peer.connection.receive_data(init_producer_id_response(1, throttle=50.0), 11.0)
    peer.drain()
    peer.tick(40.0)
    peer.tick(89.9)
    assert peer.drain() == []
    peer.tick(90.0)
    assert peer.drain() == [Close(1)]


def test_a_throttled_version_answer_counts() -> None:
    peer = Peer().connected()
    peer.connection.writable(0.0)
    peer.connection.receive_data(api_versions_response(0, throttle=2.0), 1.0)
    assert peer.connection.is_ready
    assert not peer.connection.can_send(2.9)
    assert peer.connection.can_send(3.0)


@pytest.mark.parametrize(("version", "is_muted"), [(5, False), (6, True)])
def test_an_older_broker_has_waited_itself(version: int, is_muted: bool) -> None:
    peer = Peer().ready(offered={**MODERN, PRODUCE: (0, version)})
    peer.send("a", 1.0, api=ApiKey.PRODUCE)
    peer.connection.receive_data(produce_response(1, version=version, throttle=1.0), 2.0)
    assert peer.connection.can_send(2.0) is not is_muted


# Idle connections


def test_an_idle_connection_is_closed() -> None:
    peer = Peer(connections_max_idle=60.0).ready(now=5.0)
    peer.tick(64.9)
    assert peer.drain() == []
    for _ in range(3):  # the entry may be early: it is refreshed when it comes up
        peer.tick(65.0)
    assert peer.drain() == [Close(1)]
    assert peer.connection.cause is LossCause.IDLE
    assert "connections.max.idle.ms" in peer.connection.reason


@pytest.mark.parametrize("expects_response", [True, False])
def test_a_connection_with_a_request_is_not_idle(expects_response: bool) -> None:
    peer = Peer(connections_max_idle=10.0).ready()
    peer.send("slow", 1.0, timeout=100.0, expects_response=expects_response, is_written=False)
    peer.drain()
    for now in range(2, 101):
        peer.tick(float(now))
    assert peer.drain() == []
    peer.connection.writable(100.5)
    if expects_response:
        peer.connection.receive_data(init_producer_id_response(1), 100.5)
    peer.tick(101.0)
    peer.tick(110.4)
    assert peer.drain() == []
    peer.tick(110.5)
    assert peer.drain() == [Close(1)]
    assert peer.connection.cause is LossCause.IDLE


def test_traffic_keeps_it_open() -> None:
    peer = Peer(connections_max_idle=10.0).ready()
    for now in range(1, 101, 9):
        peer.tick(float(now))
        peer.send("a", float(now), expects_response=False)
    peer.drain()
    peer.tick(109.9)
    assert peer.drain() == []
    peer.tick(110.0)
    assert peer.drain() == [Close(1)]


def test_it_is_idle_from_its_last_answer_on_though_a_time_out_would_come_later() -> None:
    peer = Peer(connections_max_idle=10.0).ready()
    peer.tick(10.0 - 0.001)
    peer.send("a", 10.0 - 0.001, timeout=100.0)
    peer.tick(10.0)
    assert peer.deadlines.next_at() == 110.0 - 0.001
    peer.connection.receive_data(init_producer_id_response(1), 12.0)
    assert peer.deadlines.next_at() == 22.0


def test_a_negative_limit_means_never() -> None:
    peer = Peer(connections_max_idle=-0.001).ready()
    for _ in range(3):
        peer.tick(1e9)
    assert peer.drain() == []
    assert peer.deadlines.next_at() is None


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_a_limit_may_be_less_than_a_second(limit: float) -> None:
    peer = Peer(connections_max_idle=limit).ready(now=5.0)
    assert peer.deadlines.next_at() == 5.0 + limit


# ApiVersions, by Java's NodeApiVersionsTest


@pytest.mark.parametrize(
    ("broker", "agreed"),
    [((3, 5), 5), ((0, 3), 3), ((3, 3), 3), ((0, 99), CLIENT_VERSIONS[ApiKey.PRODUCE][1]), ((13, 99), 13)],
)
def test_latest_usable_version(broker: tuple[int, int], agreed: int) -> None:
    assert ApiVersions({PRODUCE: broker}).version(ApiKey.PRODUCE) == agreed


@pytest.mark.parametrize(
    ("broker", "word"), [((0, 2), "too old"), ((14, 20), "too new"), ((99, 99), "too new"), (None, "too old")]
)
def test_no_usable_version(broker: tuple[int, int] | None, word: str) -> None:
    versions = ApiVersions({} if broker is None else {PRODUCE: broker})
    with pytest.raises(UnsupportedVersionError, match=word) as refused:
        versions.version(ApiKey.PRODUCE)
    assert refused.value.broker_versions == broker
    assert refused.value.client_versions == CLIENT_VERSIONS[ApiKey.PRODUCE]


def test_equal_ranges_give_the_newest_of_each_api() -> None:
    versions = ApiVersions.from_response(
        ApiVersionsResponse(0, {int(api): both for api, both in CLIENT_VERSIONS.items()})
    )
    assert {api: versions.version(api) for api in CLIENT_VERSIONS} == {
        api: highest for api, (_, highest) in CLIENT_VERSIONS.items()
    }


def test_apis_that_we_do_not_know_do_no_harm() -> None:
    versions = ApiVersions.from_response(ApiVersionsResponse(0, {PRODUCE: (0, 7), 4242: (0, 1)}))
    assert versions.version(ApiKey.PRODUCE) == 7
    assert "v0 to v7" in repr(versions)
