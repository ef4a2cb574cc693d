"""The simulation itself: time, the network, the event loop. If these are wrong, its verdicts mean nothing."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from aioproduce.testing.simulation import (
    Network,
    Simulation,
    SimulationLivelockError,
    Trace,
    VirtualClock,
)
from aioproduce.testing.simulation.endpoint import CAPACITY

if TYPE_CHECKING:
    from aioproduce.testing.simulation import Endpoint


class Always(Random):
    """A source of chance that gives one number."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def random(self) -> float:
        return self._number

    def expovariate(self, lambd: float = 1.0) -> float:
        return 0.0


class Wire:
    """One host, and whatever arrives on either side of a connection to it."""

    def __init__(self, chance: float = 0.9) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, Always(chance), Trace(self.clock))
        self.link = self.network.add_host("host", latency=1.0, jitter=0.0)
        self.events: list[str] = []
        self.network.listen(("host", 1), self._accept)

    def _accept(self, endpoint: Endpoint) -> None:
        self.server = endpoint
        self._watch(endpoint, "server")

    def _watch(self, endpoint: Endpoint, name: str) -> None:
        def note(what: str) -> None:
            self.events.append(f"{self.clock.now:.0f} {name} {what}")

        endpoint.on_data = lambda data: note(f"gets {bytes(data)!r}")
        endpoint.on_eof = lambda: note("eof")
        endpoint.on_drained = lambda: note("drained")
        endpoint.on_lost = lambda error: note(f"lost {type(error).__name__}")

    def connect(self) -> Endpoint:
        self.try_to_connect()
        self.let_pass(2.1)
        assert self.events == ["2 connected"]
        self.events.clear()
        return self.client

    def try_to_connect(self, port: int = 1) -> None:
        self.attempt = self.network.connect(
            ("host", port),
            self._connected,
            lambda error: self.events.append(f"{self.clock.now:.0f} failed {type(error).__name__}"),
        )

    def _connected(self, endpoint: Endpoint) -> None:
        self.client = endpoint
        self._watch(endpoint, "client")
        self.events.append(f"{self.clock.now:.0f} connected")

    def let_pass(self, seconds: float) -> None:
        self.clock.let_pass(seconds)


# -- time ---


def test_events_come_in_order_of_time_then_of_planning() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    clock.call_at(2.0, seen.append, "late")
    clock.call_at(1.0, seen.append, "first")
    clock.call_at(1.0, seen.append, "second")
    clock.call_at(1.5, seen.append, "never").cancel()
    clock.let_pass(3.0)
    assert seen == ["first", "second", "late"]
    assert clock.now >= 3.0
    assert clock.next_at() is None


def test_what_an_event_plans_for_the_same_instant_waits_for_the_next_step() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    clock.call_at(1.0, lambda: clock.call_later(0, seen.append, "effect"))
    clock.step(5.0)
    assert (clock.now, seen) == (1.0, [])
    clock.step(5.0)
    assert seen == ["effect"]


def test_an_endless_turn_is_a_livelock_with_a_name() -> None:
    clock = VirtualClock()
    clock.limit = 100

    def again() -> None:
        clock.call_later(0, again)

    again()
    with pytest.raises(SimulationLivelockError) as raised:
        clock.let_pass(1.0)
    assert raised.value.steps == 101
    assert raised.value.now < 0.001


# -- the network ---


def test_bytes_take_their_time_and_come_in_order() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([b"one", b"two"])
    wire.let_pass(0.5)
    client.write([b"three"])
    wire.let_pass(3)
    wire.server.write([b"answer"])
    wire.let_pass(3)
    assert wire.events == [
        "3 server gets b'one'",
        "3 server gets b'two'",
        "4 server gets b'three'",
        "7 client gets b'answer'",
    ]


def test_nobody_listens() -> None:
    wire = Wire()
    wire.try_to_connect(port=2)
    wire.let_pass(3)
    assert wire.events == ["2 failed ConnectionRefusedError"]
    wire.link.refuses = True
    wire.try_to_connect()
    wire.let_pass(3)
    assert wire.events[1:] == ["5 failed ConnectionRefusedError"]


def test_an_unknown_host() -> None:
    wire = Wire()
    wire.network.connect(("nowhere", 1), wire._connected, lambda error: wire.events.append(str(error)))
    wire.let_pass(1)
    assert wire.events == ["[Errno -2] unknown host nowhere"]


def test_a_black_hole_holds_and_nothing_is_lost() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([b"on its way"])
    wire.network.hold("host")
    client.write([b"held"])
    wire.server.write([b"held, too"])
    wire.let_pass(10)
    assert wire.events == []
    wire.network.release("host")
    wire.let_pass(10)
    # A second at most until it is sent again, and one on the way.
    assert wire.events == [
        "14 server gets b'on its way'",
        "14 server gets b'held'",
        "14 client gets b'held, too'",
    ]


def test_a_hole_in_one_direction() -> None:
    wire = Wire()
    client = wire.connect()
    wire.network.hold("host", outward=False)
    client.write([b"there"])
    wire.let_pass(2)
    wire.server.write([b"back"])
    wire.let_pass(5)
    assert wire.events == ["3 server gets b'there'"]


def test_a_connection_is_set_up_by_a_later_knock() -> None:
    wire = Wire()
    wire.network.hold("host")
    wire.try_to_connect()
    wire.let_pass(2.5)
    wire.network.release("host")
    wire.let_pass(4)
    assert wire.events == ["5 connected"]  # knocks at 0, 1 and 3


def test_an_attempt_that_is_given_up_is_never_heard_of() -> None:
    wire = Wire()
    wire.try_to_connect()
    wire.let_pass(1.5)
    wire.attempt.cancel()
    wire.let_pass(5)
    assert wire.events == ["2 server lost ConnectionResetError"]
    assert wire.network.connections == {}


def test_a_reset_tells_both_sides() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([b"lost"])
    wire.network.reset("host")
    wire.let_pass(5)
    assert wire.events == ["2 client lost ConnectionResetError", "2 server lost ConnectionResetError"]
    assert wire.network.connections == {}


@pytest.mark.parametrize(("chance", "arrives"), [(0.9, True), (0.1, False)])
def test_after_an_abort_what_was_on_its_way_arrives_or_not(chance: float, arrives: bool) -> None:
    wire = Wire(chance)
    client = wire.connect()
    client.write([b"on its way"])
    client.abort()
    wire.let_pass(5)
    arrived = ["3 server gets b'on its way'"] if arrives else []
    assert wire.events == ["2 client lost NoneType", *arrived, "3 server lost ConnectionResetError"]
    assert client.is_gone


def test_what_an_old_connection_sent_comes_before_what_a_new_one_sends() -> None:
    wire = Wire()
    client = wire.connect()
    old_server = wire.server
    wire.link.latency = 50.0
    client.write([b"old"])
    client.abort()
    wire.link.latency = 0.001
    wire.try_to_connect()
    wire.let_pass(100)
    wire.client.write([b"new"])
    wire.let_pass(100)
    assert old_server.is_gone
    gets = [event for event in wire.events if "gets" in event]
    assert [event.split("gets ")[1] for event in gets] == ["b'old'", "b'new'"]


def test_half_a_frame() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([b"0123456789"])
    client.cut(4)
    wire.let_pass(5)
    assert wire.events == [
        "2 server gets b'0123'",
        "2 client lost ConnectionResetError",
        "2 server lost ConnectionResetError",
    ]


def test_half_a_frame_with_more_waiting_behind_it() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([bytes(CAPACITY), b"behind"])
    client.cut(CAPACITY)  # what is read makes room for what waits, which is lost with the connection
    wire.let_pass(5)
    assert [event.split(" ", 1)[1][:11] for event in wire.events] == [
        "server gets",
        "client lost",
        "server lost",
    ]
    assert client.unsent == 0


def test_a_peer_that_does_not_read_makes_the_sender_keep_its_bytes() -> None:
    wire = Wire()
    client = wire.connect()
    wire.server.pause_reading()
    mine = bytearray(CAPACITY + 1000)
    client.write([mine])
    wire.let_pass(5)
    assert client.unsent == 1000
    mine[-1] = 7  # not sent yet, and not copied: a buffer that is reused too early shows in what arrives
    received: list[bytes] = []
    wire.server.on_data = received.append
    wire.server.resume_reading()
    wire.let_pass(5)
    assert client.unsent == 0
    assert b"".join(received)[-1] == 7
    assert wire.events[-1].endswith("client drained")


def test_closing_sends_what_is_there_first() -> None:
    wire = Wire()
    client = wire.connect()
    client.write([b"last"])
    client.close()
    client.write([b"too late"])
    wire.let_pass(10)
    assert wire.events == [
        "3 server gets b'last'",
        "3 server eof",
        "3 server lost NoneType",
        "4 client lost NoneType",
    ]


def test_a_narrow_way_and_small_pieces() -> None:
    wire = Wire()
    client = wire.connect()
    wire.link.bandwidth = 2.0
    wire.link.piece = 2
    client.write([b"abcdef"])
    wire.let_pass(10)
    # A second of latency, and one for each two bytes; the last two wait with the sender until there is room.
    assert [event for event in wire.events if "gets" in event] == [
        "4 server gets b'ab'",
        "5 server gets b'cd'",
        "6 server gets b'ef'",
    ]


def test_what_arrives_together() -> None:
    wire = Wire()
    client = wire.connect()
    wire.link.gather = 5.0
    client.write([b"one", b"two"])
    wire.let_pass(0.5)
    client.write([b"three"])
    client.close()
    wire.let_pass(5)
    assert wire.events[:2] == ["5 server gets b'onetwothree'", "5 server eof"]


# -- the event loop ---


def test_what_comes_with_the_end_of_a_connection_is_read_before_it() -> None:
    simulation = Simulation()
    network = simulation.network
    network.add_host("peer", jitter=0.0)
    events: list[str] = []

    def accept(endpoint: Endpoint) -> None:
        def answer(_: bytes) -> None:
            endpoint.write([b"last words"])
            endpoint.close()

        endpoint.on_data = answer

    class Client(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            events.append(repr(data))

        def connection_lost(self, exc: Exception | None) -> None:
            events.append("lost")

    async def main() -> None:
        network.listen(("peer", 1), accept)
        transport, _ = await asyncio.get_running_loop().create_connection(Client, "peer", 1)
        transport.write(b"request")
        await asyncio.sleep(1)

    simulation.run(main())
    assert events == ["b'last words'", "lost"]
