"""The stand-in for TLS: it carries what was sent, hides it, and notices what TLS would notice."""

from __future__ import annotations

from random import Random

import pytest

from aioproduce.errors import TlsError
from aioproduce.security.channel import Channel, Channels
from aioproduce.testing.simulation import KINDS, SECURITY_KINDS, ScheduledFault, Simulation
from aioproduce.testing.simulation.stand_in_tls import StandInChannel, StandInTls
from tests.unit.test_fake_broker_connections import api_versions
from tests.unit.test_fake_broker_sasl import LOGIN, handshake, token
from tests.wire_oracle import request_frame


def shaken(seed: int = 1) -> tuple[StandInChannel, StandInChannel]:
    """A client's end and a broker's, after the handshake."""
    tls = StandInTls(seed)
    client, broker = tls.open("broker-0"), tls.accept()
    client.start()
    broker.start()
    assert broker.receive(client.outgoing()) == b""
    assert client.receive(broker.outgoing()) == b""
    assert client.is_established
    assert broker.is_established
    return client, broker


def test_it_keeps_the_contract() -> None:
    channels: Channels = StandInTls(1)
    channel: Channel = channels.open("broker-0")
    assert (channel.is_established, channel.is_ended, channel.describe()) == (False, False, "")


@pytest.mark.parametrize("piece", [1, 3, 7, 100_000])
def test_bytes_arrive_in_whatever_pieces_and_are_not_on_the_wire(piece: int) -> None:
    client, broker = shaken()
    content = Random(1).randbytes(40_000) + b"secret" * 100
    view = bytearray(content)
    client.send((view[:10], memoryview(view)[10:]))
    view[:] = bytes(len(view))  # it holds no view
    wire = client.outgoing()
    assert client.outgoing() == b""
    assert b"secret" not in wire

    got = b"".join(broker.receive(wire[at : at + piece]) for at in range(0, len(wire), piece))
    assert got == content
    broker.send((b"back",))
    assert client.receive(broker.outgoing()) == b"back"


def test_the_seed_determines_the_bytes() -> None:
    def wire(seed: int) -> bytes:
        client, _ = shaken(seed)
        client.send((b"x" * 100,))
        return client.outgoing()

    assert wire(1) == wire(1) != wire(2)


def test_every_byte_that_is_changed_is_noticed() -> None:
    for at in range(4 + 20 + 4):
        client, broker = shaken()
        client.send((b"x" * 20,))
        wire = bytearray(client.outgoing())
        wire[at] ^= 1
        client.send((b"y" * 70_000,))  # a length that has grown waits for more
        with pytest.raises(TlsError):
            broker.receive(bytes(wire) + client.outgoing())
        assert broker.outgoing()  # an alert
        assert not broker.is_established
        with pytest.raises(TlsError):
            broker.receive(b"")


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1,)])
def test_records_that_are_swapped_repeated_or_missing_are_noticed(order: tuple[int, ...]) -> None:
    client, broker = shaken()
    records = []
    for value in (b"one", b"two"):
        client.send((value,))
        records.append(client.outgoing())
    with pytest.raises(TlsError, match="bad record mac"):
        broker.receive(b"".join(records[number] for number in order))


def test_what_one_end_has_sent_does_not_come_back_to_it() -> None:
    client, _ = shaken()
    client.send((b"one",))
    with pytest.raises(TlsError, match="bad record mac"):
        client.receive(client.outgoing())


@pytest.mark.parametrize("junk", [b"\0\0\0\x10\0\x12\0\0", b"GET / HTTP/1.1", b"\x17\xff\xff\xff"])
def test_what_is_not_it_is_refused_at_once(junk: bytes) -> None:
    with pytest.raises(TlsError, match="wrong version number"):
        StandInTls(1).accept().receive(junk)


def test_nothing_is_sent_before_the_handshake_and_nothing_comes_in_its_place() -> None:
    client, _ = shaken()
    client.send((b"early",))
    with pytest.raises(TlsError):
        StandInTls(3).accept().receive(client.outgoing())
    with pytest.raises(TlsError, match="no handshake"):
        StandInTls(1).open("broker-0").send((b"early",))


def test_an_end_and_a_refusal() -> None:
    client, broker = shaken()
    broker.send((b"last",))
    broker.end()
    assert client.receive(broker.outgoing()) == b"last"
    assert client.is_ended

    tls = StandInTls(1)
    tls.refusals = 1
    client, broker = tls.open("broker-0"), tls.accept()
    client.start()
    with pytest.raises(TlsError, match="handshake failure"):
        broker.receive(client.outgoing())
    with pytest.raises(TlsError, match="handshake failure"):
        client.receive(broker.outgoing())
    shaken()


# In a simulation


class Client:
    """A connection to a simulated broker, by hand."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.wire = bytearray()
        self.plain = bytearray()
        self.errors: list[str] = []
        self.is_lost = False
        assert simulation.cluster.tls is not None
        self.channel = simulation.cluster.tls.open("broker-0")
        simulation.network.connect(
            ("broker-0", 9092), self._connected, lambda error: self.errors.append(str(error))
        )
        simulation.clock.let_pass(1.0)

    def _connected(self, endpoint: object) -> None:
        self.endpoint = endpoint
        endpoint.on_data = self._received  # type: ignore[attr-defined]
        endpoint.on_lost = self._lost  # type: ignore[attr-defined]
        self.channel.start()
        self._flush()

    def _received(self, data: bytes) -> None:
        self.wire += data
        try:
            self.plain += self.channel.receive(data)
        except TlsError as error:
            self.errors.append(error.reason)

    def _lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def _flush(self) -> None:
        self.endpoint.write((self.channel.outgoing(),))  # type: ignore[attr-defined]

    def send(self, request: object, seconds: float = 1.0) -> None:
        self.channel.send((request_frame(request, 1),))
        self._flush()
        self.simulation.clock.let_pass(seconds)


def simulated(seed: int = 1) -> Simulation:
    return Simulation(seed, brokers=1, security={"protocol": "SASL_SSL", "users": {"alice": "secret"}})


def test_a_client_logs_in_over_it() -> None:
    simulation = simulated()
    client = Client(simulation)
    for request in (api_versions(3), handshake(), token(LOGIN), api_versions(3)):
        client.send(request)
    (connection,) = simulation.cluster.model.connections
    assert connection.login is not None
    assert connection.login.principal == "alice"
    assert b"SCRAM-SHA-256" in client.plain
    assert b"SCRAM-SHA-256" not in client.wire
    assert client.errors == []


def fault(kind: str, number: int = 0) -> Client:
    simulation = simulated()
    client = Client(simulation)
    client.send(api_versions(3))
    simulation.plan([ScheduledFault(at=simulation.clock.now, kind=kind, number=number)])
    simulation.clock.let_pass(0.01)
    return client


def test_a_record_that_is_corrupted_ends_the_connection_on_either_side() -> None:
    client = fault("record corrupted", number=1)
    client.send(handshake())
    assert client.errors == ["alert"]
    assert client.is_lost
    client = fault("record corrupted", number=0)
    client.send(handshake())
    assert client.errors == ["bad record mac"]


def test_a_close_without_notice_is_no_end() -> None:
    client = fault("closed silently")
    client.simulation.clock.let_pass(1.0)
    assert client.is_lost
    assert not client.channel.is_ended


def test_a_handshake_that_is_refused_or_cut() -> None:
    for kind, number, errors in (("handshake refused", 1, ["alert"]), ("handshake cut", 10, [])):
        simulation = fault(kind, number=number).simulation
        second = Client(simulation)
        assert second.errors == errors
        assert second.is_lost
        assert not second.channel.is_established
        assert Client(simulation).channel.is_established


def test_a_session_that_is_over() -> None:
    client = fault("session over")
    for request in (handshake(), token(LOGIN)):
        client.send(request)
    client.simulation.plan([ScheduledFault(at=client.simulation.clock.now, kind="session over")])
    client.send(api_versions(3))
    assert client.channel.is_ended


@pytest.mark.parametrize("kind", SECURITY_KINDS)
def test_every_fault_can_come_where_nobody_is(kind: str) -> None:
    for simulation in (Simulation(brokers=1, topics={"t": 1}), simulated()):
        number = SECURITY_KINDS[kind].numbers[-1]
        simulation.plan([ScheduledFault(at=0.001, kind=kind, seconds=1.0, number=number)])
        simulation.clock.let_pass(2.0)
        simulation.heal()


def test_what_is_drawn_without_security_is_what_it_was() -> None:
    assert not set(KINDS) & set(SECURITY_KINDS)
    assert Simulation(5).random.random() == Simulation(5, security="SASL_SSL").random.random()
