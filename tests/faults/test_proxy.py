"""The fault proxy itself, between a raw socket and a broker of a few lines: what each fault does to the bytes.

Frames are written here by hand, from the protocol guide: size, then API key, version and correlation id for a
request, the correlation id for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.drivers.producing import PATIENCE, until
from tests.faults.proxy import Act, Direction, FaultProxy, WireFault

PRODUCE, METADATA = 0, 3
# What uvloop's clock counts in.
TICK = 0.001


def request(correlation_id: int, body: bytes = b"", *, api: int = PRODUCE) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api, 9, correlation_id) + body


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@dataclass
class Upstream:
    """A broker that answers every request with its body in capitals, and remembers what came.

    Attributes:
        received: Every byte, per connection.
        ended: Per connection that ended: None for FIN, else the error.
    """

    received: list[bytearray] = field(default_factory=list)
    ended: list[OSError | None] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = bytearray()
        self.received.append(received)
        self.writers.append(writer)
        at = 0
        try:
            while chunk := await reader.read(65536):
                received += chunk
                while len(received) - at >= 4:
                    (size,) = struct.unpack_from(">i", received, at)
                    if len(received) - at < 4 + size:
                        break
                    (correlation_id,) = struct.unpack_from(">i", received, at + 8)
                    writer.write(answer(correlation_id, bytes(received[at + 12 : at + 4 + size]).upper()))
                    at += 4 + size
            self.ended.append(None)
        except OSError as error:
            self.ended.append(error)
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def proxied(seed: int = 0) -> AsyncIterator[tuple[Upstream, FaultProxy]]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    try:
        async with FaultProxy({7: ("127.0.0.1", server.sockets[0].getsockname()[1])}, seed=seed) as proxy:
            yield upstream, proxy
        await until(lambda: len(upstream.ended) == len(upstream.received))
    finally:
        server.close()
        await server.wait_closed()


class Client:
    """A raw socket that reads in chunks as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, proxy: FaultProxy) -> AsyncIterator[Client]:
        client = cls(*await asyncio.open_connection("127.0.0.1", proxy.ports[7]))
        try:
            yield client
        finally:
            client.writer.transport.abort()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def receive(self, count: int) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        """What comes until FIN."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    async def assert_answered(self, correlation_id: int, body: bytes = b"") -> None:
        expected = answer(correlation_id, body)
        assert await self.receive(len(expected)) == expected

    async def assert_silent(self) -> None:
        """Nothing has come after many turns of the loop, more than any way through the proxy takes."""
        waiting = asyncio.ensure_future(self.reader.read(1))
        for _ in range(200):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_without_faults_it_changes_nothing() -> None:
    large = b"x" * 300_000
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        client.send(request(1, b"one"), request(2, large), request(3, api=METADATA))
        await client.assert_answered(1, b"ONE")
        await client.assert_answered(2, large.upper())
        await client.assert_answered(3)
        assert upstream.received == [request(1, b"one") + request(2, large) + request(3, api=METADATA)]
        assert [(each.link, each.api, each.version, each.correlation_id) for each in proxy.arrivals] == [
            (1, PRODUCE, 9, 1),
            (1, PRODUCE, 9, 2),
            (1, METADATA, 9, 3),
        ]
        assert (proxy.connections(), proxy.count(METADATA), proxy.count(PRODUCE, 7)) == (1, 1, 2)


async def test_each_end_of_a_connection_reaches_the_other() -> None:
    async with proxied() as (upstream, proxy):
        async with Client.to(proxy) as client:
            client.send(request(1), b"\0\0")
            await client.assert_answered(1)
            client.writer.close()
            await until(lambda: upstream.ended)
        assert upstream.ended == [None]
        assert upstream.received == [request(1) + b"\0\0"]
        async with Client.to(proxy) as client:
            client.send(request(1))
            await client.assert_answered(1)
            upstream.writers[-1].write(b"\0\0\0\x09half")
            upstream.writers[-1].close()
            assert await client.rest() == b"\0\0\0\x09half"
        await until(lambda: not proxy.links)


async def test_reset_before_the_broker_reads() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        fault = proxy.reset_before(PRODUCE)
        client.send(request(1, api=METADATA), request(2))
        with pytest.raises(ConnectionResetError):
            await client.rest()
        assert (fault.hits, fault.is_spent) == (1, True)
        await until(lambda: upstream.ended)
        assert request(2) not in upstream.received[0]
        async with Client.to(proxy) as again:
            again.send(request(3))
            await again.assert_answered(3)


async def test_a_request_is_kept_and_delivered_late() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        fault = proxy.hold_request(PRODUCE)
        client.send(request(1, b"late"))
        with pytest.raises(ConnectionResetError):
            await client.rest()
        assert fault.held == [(7, request(1, b"late"))]
        assert request(1, b"late") not in upstream.received
        async with Client.to(proxy) as again:
            again.send(request(2))
            await again.assert_answered(2)
        assert await proxy.deliver(fault) == [answer(1, b"LATE")[4:]]
        assert upstream.received[-1] == request(1, b"late")
        assert await proxy.deliver(fault) == []


async def test_reset_after_the_answer_came() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        proxy.reset_after(PRODUCE, skip=1)
        client.send(request(1))
        await client.assert_answered(1)
        client.send(request(2))
        with pytest.raises(ConnectionResetError):
            await client.rest()
        assert upstream.received == [request(1) + request(2)]


@pytest.mark.parametrize("length", [0, 2, 6, 9])
@pytest.mark.parametrize("is_reset", [False, True])
async def test_answer_cut(length: int, is_reset: bool) -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        proxy.cut_answer(length=length, is_reset=is_reset)
        client.send(request(1, b"body"))
        whole = answer(1, b"BODY")
        if is_reset:
            # A reset may overtake what was sent before it.
            with pytest.raises(ConnectionResetError):
                await client.rest()
        else:
            assert await client.rest() == whole[:length]
        assert upstream.received == [request(1, b"body")]


async def test_answer_swallowed() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        proxy.swallow_answer(PRODUCE)
        client.send(request(1), request(2))
        await client.assert_answered(2)
        assert upstream.received == [request(1) + request(2)]


async def test_answer_delayed_with_those_behind_it() -> None:
    loop = asyncio.get_running_loop()
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        proxy.delay_answer(0.05)
        started = loop.time()
        client.send(request(1), request(2))
        await client.assert_answered(1)
        await client.assert_answered(2)
        assert loop.time() - started >= 0.05 - TICK


async def test_wrong_answers() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        proxy.change_correlation_id()
        proxy.announce_length(-5)
        proxy.announce_length(2**31 - 1)
        proxy.garble_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        client.send(*(request(number, b"v") for number in range(1, 6)))
        assert await client.receive(9) == struct.pack(">ii", 5, 1_000_004) + b"V"
        assert await client.receive(4) == b"\xff\xff\xff\xfb"
        assert await client.receive(4) == b"\x7f\xff\xff\xff"
        assert await client.receive(28) == b"HTTP/1.1 400 Bad Request\r\n\r\n"
        await client.assert_answered(5, b"V")


async def test_close_after_each_answer() -> None:
    async with proxied() as (_upstream, proxy):
        fault = proxy.close_after_answer()
        for number in range(3):
            async with Client.to(proxy) as client:
                client.send(request(number))
                assert await client.rest() == answer(number)
        assert (fault.hits, fault.is_spent, proxy.connections()) == (3, False, 3)


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as idle, Client.to(proxy) as busy:
        idle.send(request(1))
        await idle.assert_answered(1)
        proxy.hold(directions=[Direction.TO_BROKER])
        busy.send(request(1))
        await until(lambda: proxy.count() == 2)
        assert [link.number for link in proxy.close_idle()] == [1]
        assert await idle.rest() == b""
        proxy.heal()
        await busy.assert_answered(1)


async def test_black_hole_both_ways() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        client.send(request(1))
        await client.assert_answered(1)
        proxy.hold()
        client.send(request(2))
        await client.assert_silent()
        assert upstream.received == [request(1)]
        async with Client.to(proxy) as second:
            second.send(request(3))
            await second.assert_silent()
            proxy.heal()
            await second.assert_answered(3)
        await client.assert_answered(2)


async def test_black_hole_to_the_client_only() -> None:
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        proxy.hold(directions=[Direction.TO_CLIENT])
        client.send(request(1))
        await until(lambda: upstream.received == [request(1)])
        await client.assert_silent()
        proxy.heal()
        await client.assert_answered(1)


async def test_what_a_black_hole_kept_arrives_after_the_client_has_gone() -> None:
    async with proxied() as (upstream, proxy):
        proxy.hold(directions=[Direction.TO_BROKER])
        async with Client.to(proxy) as client:
            client.send(request(1))
            await until(lambda: proxy.count() == 1)
        proxy.heal()
        await until(lambda: upstream.ended)
        assert upstream.received == [request(1)]


async def test_slices() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        proxy.shape(slice_bytes=1, directions=[Direction.TO_CLIENT])
        client.send(request(1, b"abc"))
        whole = answer(1, b"ABC")
        chunks: list[bytes] = []
        while sum(map(len, chunks)) < len(whole):
            async with asyncio.timeout(PATIENCE):
                chunks.append(await client.reader.read(100))
        assert b"".join(chunks) == whole
        # The two ends share a loop, and the proxy gives it a turn after each byte.
        assert len(chunks) > len(whole) // 2


async def test_coalesced_answers() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        proxy.shape(coalesce=3)
        proxy.hold(directions=[Direction.TO_BROKER])
        client.send(*(request(number) for number in range(5)))
        await until(lambda: proxy.count() == 5)
        proxy.heal()
        async with asyncio.timeout(PATIENCE):
            first = await client.reader.read(10_000)
        assert first[:24] == b"".join(answer(number) for number in range(3))
        assert (first + await client.receive(40 - len(first)))[24:] == answer(3) + answer(4)


async def test_bandwidth() -> None:
    loop = asyncio.get_running_loop()
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        proxy.shape(bytes_per_second=10_000, directions=[Direction.TO_BROKER])
        started = loop.time()
        client.send(request(1, b"x" * 988))
        await client.assert_answered(1, b"X" * 988)
        assert loop.time() - started >= 0.1 - TICK


async def test_latency_delays_each_frame_and_adds_up_over_none() -> None:
    loop = asyncio.get_running_loop()
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        proxy.shape(latency=0.1)
        requests = [request(number) for number in range(10)]
        started = loop.time()
        client.send(*requests)
        await client.assert_answered(0)
        assert loop.time() - started >= 0.2 - TICK
        # One after the other, the last would leave only now.
        assert upstream.received == [b"".join(requests)]
        for number in range(1, 10):
            await client.assert_answered(number)


async def test_bytes_that_are_no_frames_are_carried_as_they_are() -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + b"TLS" * 300
    async with proxied() as (upstream, proxy), Client.to(proxy) as client:
        client.send(request(1))
        await client.assert_answered(1)
        client.send(hello)
        await until(lambda: upstream.received == [request(1) + hello])
        upstream.writers[0].write(b"\xff\xff\xff\xff and more")
        assert await client.receive(13) == b"\xff\xff\xff\xff and more"


async def test_stopped_it_refuses_and_started_it_is_where_it_was() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        client.send(request(1))
        await client.assert_answered(1)
        port = proxy.ports[7]
        await proxy.stop()
        with pytest.raises(ConnectionResetError):
            await client.rest()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await proxy.start()
        assert proxy.ports[7] == port
        async with Client.to(proxy) as again:
            again.send(request(2))
            await again.assert_answered(2)


async def test_a_broker_that_refuses_resets_the_client() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with FaultProxy({7: bound.getsockname()}) as proxy, Client.to(proxy) as client:
            with pytest.raises(ConnectionResetError):
                await client.rest()


async def test_faults_go_in_the_order_of_scripting_and_to_whom_they_are_meant() -> None:
    async with proxied() as (_upstream, proxy), Client.to(proxy) as client:
        other = proxy.reset_before(PRODUCE, broker=8)
        first = proxy.swallow_answer(PRODUCE, skip=1, times=2)
        second = proxy.change_correlation_id(PRODUCE)
        gone = proxy.reset_before(PRODUCE)
        gone.cancel()
        client.send(*(request(number, api=PRODUCE) for number in range(1, 5)), request(5, api=METADATA))
        # 1: skipped by the first, so the second's. 2 and 3: swallowed. 4: nobody's any more.
        assert await client.receive(8) == answer(1_000_004)
        await client.assert_answered(4)
        await client.assert_answered(5)
        assert [each.hits for each in (other, first, second, gone)] == [0, 2, 1, 0]
        again = proxy.swallow_answer(times=None)
        proxy.clear()
        client.send(request(6))
        await client.assert_answered(6)
        assert again.is_spent


async def fates(seed: int) -> list[int]:
    """Which of 40 requests on one connection get their answer, by chance."""
    async with proxied(seed) as (_upstream, proxy), Client.to(proxy) as client:
        chance = proxy.by_chance(0.5, [WireFault(Act.SWALLOW), WireFault(Act.WRONG_ID)], api=PRODUCE)
        client.send(*(request(number) for number in range(40)), request(40, api=METADATA))
        answered: list[int] = []
        while not answered or answered[-1] != 40:
            answered.append(struct.unpack(">ii", await client.receive(8))[1])
        assert sum(chance.hits.values()) + sum(number < 40 for number in answered) == 40
        assert set(chance.hits) == {Act.SWALLOW, Act.WRONG_ID}
        return answered


async def test_chance_follows_the_seed() -> None:
    assert await fates(1) == await fates(1) != await fates(2)


async def test_a_failure_of_its_own_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    proxy = FaultProxy({7: ("127.0.0.1", server.sockets[0].getsockname()[1])})
    await proxy.start()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(proxy, "_script", type("Broken", (), {"take": broken})())
    async with Client.to(proxy) as client:
        client.send(request(1))
        assert await client.rest() == b""
    with pytest.raises(BaseExceptionGroup) as raised:
        await proxy.close()
    assert raised.group_contains(ZeroDivisionError)
    await until(lambda: upstream.ended)
    server.close()
    await server.wait_closed()
