"""All connections together, where they are encrypted or log in: pauses after failures, what is told to who asks."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aioproduce._native.stats import Windows
from aioproduce.core.cluster.broker_connections import BrokerConnections
from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.node import Backoffs, Node
from aioproduce.core.cluster.offloads import Offloads
from aioproduce.core.effects import Close, Connect
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import AuthenticationError, ProducerError, TlsError, TokenError
from aioproduce.metrics import ProducerMetrics
from aioproduce.security.mechanism import Sasl, Work
from aioproduce.security.security import Security
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import BrokerAddress
from tests.askers import named
from tests.unit.connection_peer import (
    api_versions_response,
    init_producer_id_response,
    sasl_authenticate_response,
    sasl_handshake_response,
)
from tests.unit.security_harness import (
    WITH_SASL,
    QuietLog,
    ScriptedChannel,
    ScriptedMechanism,
    Source,
    encode,
)

ONE, TWO = BrokerAddress(1, "one", 9092), BrokerAddress(2, "two", 9092)


def middle() -> float:
    return 0.5


class World:
    """Connections to two brokers, with a channel or a login each."""

    def __init__(self, *, script: list[Any] | None = None, has_tls: bool = False) -> None:
        self.metrics = ProducerMetrics(Windows())
        self.offloads = Offloads()
        self.fails = ""
        self.channels: list[ScriptedChannel] = []
        security, login = None, None
        if script is not None:
            sasl = Sasl(
                mechanism="PLAIN",
                converse=lambda *_: ScriptedMechanism(script),
                source=Source(is_static=True),
            )
            login = Login(sasl, self.offloads, lambda: 0.0, middle, QuietLog())  # type: ignore[arg-type]
            security = Security(sasl=sasl)
        elif has_tls:
            security = Security(channels=self)
        self.connections = BrokerConnections(
            client_id="tests",
            max_in_flight=5,
            request_timeout=30.0,
            connections_max_idle=540.0,
            setup_backoff=ExponentialBackoff(10.0, 30.0, random=middle),
            reconnect_backoff=ExponentialBackoff(0.05, 1.0, random=middle),
            random=lambda _: 0,
            metrics=self.metrics,
            security=security,
            login=login,
            offloads=self.offloads,
            jitter=middle,
        )

    def prepare(self) -> None:
        """There are no key files."""

    def open(self, host: str) -> ScriptedChannel:
        self.channels.append(ScriptedChannel(fails=self.fails))
        return self.channels[-1]

    def connect(self, address: BrokerAddress, now: float) -> int:
        """The id of a connection that was made, with its question written."""
        assert self.connections.ensure(address, now) is None
        connection = self.connections.connection(address.node_id)
        assert connection is not None
        self.connections.handle_timer(now)  # the turn of the attempt
        self.connections.connection_made(connection.connection_id, now)
        self.connections.handle_timer(now)  # the turn of its handshake
        self.written(connection.connection_id, now)
        return connection.connection_id

    def written(self, number: int, now: float) -> None:
        self.connections.effects.clear()
        self.connections.writable(number, now)

    def receive(self, number: int, data: bytes, now: float) -> None:
        self.connections.receive_data(number, data, now)
        self.written(number, now)

    def answered(self, number: int, correlation_id: int, now: float) -> None:
        """A request and its answer."""
        connection = self.connections.connection_by_id(number)
        assert connection is not None
        connection.send(ApiKey.INIT_PRODUCER_ID, encode, named("a"), now)
        self.written(number, now)
        self.receive(number, init_producer_id_response(correlation_id), now)


def tls_error(*, is_transient: bool = False) -> TlsError:
    return TlsError("no", reason="no", is_transient=is_transient)


def refusal(*, is_transient: bool = False) -> AuthenticationError:
    return AuthenticationError("no", mechanism="PLAIN", is_transient=is_transient)


def pauses(error: BaseException | None, count: int) -> list[float]:
    node = Node(ONE)
    backoffs = Backoffs(
        ExponentialBackoff(10.0, 30.0, random=middle), ExponentialBackoff(0.05, 1.0, random=middle), middle
    )
    found = []
    for _ in range(count):
        found.append(node.pause_after(error, backoffs))
        node.failed_attempts += 1
    return found


@pytest.mark.parametrize("error", [tls_error(), refusal()])
def test_the_pause_grows_from_one_second_to_thirty_after_what_somebody_must_put_right(
    error: ProducerError,
) -> None:
    found = pauses(error, 8)
    assert found[:5] == pytest.approx([1, 2, 4, 8, 16])
    assert all(24 <= pause <= 30 for pause in found[5:])


@pytest.mark.parametrize(
    "error", [None, OSError(), tls_error(is_transient=True), refusal(is_transient=True), TokenError("gone")]
)
def test_the_pause_is_the_ordinary_one_after_what_may_pass(error: BaseException | None) -> None:
    assert pauses(error, 5) == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])


def test_a_definite_failure_is_told_at_once() -> None:
    world = World(script=[b"hello", None])
    number = world.connect(ONE, 0.0)
    assert not world.connections.security_error
    world.receive(number, api_versions_response(0, offered=WITH_SASL), 0.0)
    world.receive(number, sasl_handshake_response(1), 0.0)
    world.connections.receive_data(number, sasl_authenticate_response(2, error_code=58), 0.0)
    error = world.connections.security_error
    assert isinstance(error, AuthenticationError)
    assert not error.is_transient
    assert world.connections.next_attempt_at(1) == pytest.approx(1.0)


@pytest.mark.parametrize("second", [ONE, TWO])
def test_what_may_pass_is_told_when_it_has_happened_twice(second: BrokerAddress) -> None:
    world = World(has_tls=True)
    world.connections.connection_lost(world.connect(ONE, 0.0), None, 0.0)
    assert not world.connections.security_error
    world.connections.connection_lost(world.connect(second, 1.0), None, 1.0)
    error = world.connections.security_error
    assert isinstance(error, TlsError)
    assert error.reason == "closed during handshake"
    assert world.metrics.failed_authentications.total == 2


def test_nothing_is_told_while_another_broker_answers() -> None:
    world = World()
    number = world.connect(ONE, 0.0)
    world.receive(number, api_versions_response(0), 0.0)
    for now in (1.0, 2.0):
        world.connections.connection_lost(world.connect(TWO, now), None, now)
    assert world.connections.security_error is not None  # ready, and no answer yet
    world.answered(number, 1, 3.0)
    assert not world.connections.security_error


def test_an_answer_makes_up_for_all_failures_before_without_security_too() -> None:
    world = World()
    world.connections.connection_lost(world.connect(ONE, 0.0), None, 0.0)
    number = world.connect(ONE, 1.0)
    world.receive(number, api_versions_response(0), 1.0)
    world.answered(number, 1, 2.0)
    world.connections.connection_lost(number, OSError("reset"), 3.0)
    world.connections.connection_lost(world.connect(ONE, 10.0), None, 10.0)
    assert world.connections.security_error is None  # the first of its kind since
    assert world.metrics.failed_authentications.total == 0  # a plaintext connection has no handshake


def test_a_login_that_ends_in_work_makes_the_node_ready_like_any_other() -> None:
    world = World(script=[b"hello", Work(lambda: None)])
    world.connections.connection_lost(world.connect(ONE, 0.0), OSError("gone"), 0.0)
    number = world.connect(ONE, 1.0)
    world.receive(number, api_versions_response(0, offered=WITH_SASL), 1.0)
    world.receive(number, sasl_handshake_response(1), 1.0)
    world.receive(number, sasl_authenticate_response(2), 1.0)
    assert world.connections.negotiations == 0
    assert world.connections.last_error(1) is not None
    world.connections.offloaded(world.offloads.effects.popleft().ticket, None, 1.0)
    assert world.connections.is_ready(1, 1.0)
    assert world.connections.negotiations == 1
    assert world.connections.last_error(1) is None
    world.connections.connection_lost(number, OSError("gone"), 2.0)
    assert world.connections.next_attempt_at(1) == pytest.approx(2.05)


def test_a_login_that_fails_in_work_starts_the_back_off_at_once() -> None:
    world = World(script=[Work(lambda: None)])
    number = world.connect(ONE, 0.0)
    world.receive(number, api_versions_response(0, offered=WITH_SASL), 0.0)
    world.receive(number, sasl_handshake_response(1), 0.0)
    world.connections.offloaded(world.offloads.effects.popleft().ticket, refusal(), 0.0)
    assert world.connections.connection(1) is None
    assert world.connections.next_attempt_at(1) == pytest.approx(1.0)


def test_tls_spoken_by_a_plaintext_listener_is_counted_by_nobody_and_named() -> None:
    world = World()
    number = world.connect(ONE, 0.0)
    world.connections.receive_data(number, struct.pack(">BHH", 0x15, 0x0303, 2) + b"\2F", 0.0)
    assert isinstance(world.connections.security_error, TlsError)
    assert world.metrics.failed_authentications.total == 0
    assert world.connections.next_attempt_at(1) == pytest.approx(1.0)


def test_a_channel_that_does_not_come_about_starts_the_back_off_at_once() -> None:
    world = World(has_tls=True)
    world.fails = "start"
    world.connect(ONE, 0.0)
    assert world.connections.connection(1) is None
    assert world.connections.next_attempt_at(1) == pytest.approx(1.0)
    assert world.metrics.failed_authentications.total == 1


def connects(world: World) -> list[int]:
    """The ids of the attempts that were asked for since."""
    asked = [effect.connection_id for effect in world.connections.effects if isinstance(effect, Connect)]
    world.connections.effects.clear()
    return asked


def test_set_ups_for_tls_go_on_one_at_a_time() -> None:
    """Each takes up to a millisecond: the loop serves others between two."""
    world = World(has_tls=True)
    connections = world.connections
    for address in (ONE, TWO):
        connections.ensure(address, 1.0)
    assert connects(world) == []
    assert connections.next_timer() == 1.0
    connections.handle_timer(1.0)
    assert connects(world) == [1]
    # Not late by what the turn before took.
    assert connections.next_timer() == 1.0
    connections.handle_timer(1.5)
    assert connects(world) == [2]
    for number in (1, 2):
        connections.connection_made(number, 2.0)
    assert not connections.effects
    for number in (1, 2):
        connections.handle_timer(2.0)
        assert [effect.connection_id for effect in connections.effects] == [number]
        world.written(number, 2.0)
    for number in (1, 2):
        connections.receive_data(number, b"HEL", 3.0)
        connections.receive_data(number, b"LO", 3.0)
    assert not connections.effects
    for number in (1, 2):
        connections.handle_timer(3.0)
        assert [effect.connection_id for effect in connections.effects] == [number]
        world.written(number, 3.0)
    timer = connections.next_timer()
    assert timer is not None
    assert timer > 3.0


def test_a_plaintext_connection_waits_for_no_turn() -> None:
    world = World()
    for address in (ONE, TWO):
        world.connections.ensure(address, 0.0)
    assert connects(world) == [1, 2]


def test_a_peer_that_floods_a_handshake_is_heard_at_once() -> None:
    world = World(has_tls=True)
    number = world.connect(ONE, 0.0)
    channel = world.channels[0]
    channel.fails = "receive"
    world.connections.receive_data(number, b"x" * 65_536, 0.0)
    assert world.connections.connection(1) is not None
    world.connections.receive_data(number, b"x", 0.0)
    assert world.connections.connection(1) is None


def test_what_came_before_the_end_says_why_although_its_turn_had_not_come() -> None:
    world = World(has_tls=True)
    number = world.connect(ONE, 0.0)
    world.channels[0].fails = "receive"
    world.connections.receive_data(number, b"an alert", 0.0)
    lost = world.connections.connection_lost(number, ConnectionResetError(), 0.0)
    assert lost is not None
    assert "scripted failure of receive" in lost.reason
    assert isinstance(world.connections.security_error, TlsError)


def test_a_connection_that_is_closed_before_its_turn_is_begun_and_aborted() -> None:
    """The driver reports the end of what it was told of alone."""
    world = World(has_tls=True)
    world.connections.ensure(ONE, 0.0)
    world.connections.close(1, "not wanted", 0.0)
    assert [type(effect) for effect in world.connections.effects] == [Connect, Close]
    assert world.connections.connection_lost(1, None, 0.0) is not None
    world.connections.handle_timer(0.0)
    assert len(world.connections) == 0
