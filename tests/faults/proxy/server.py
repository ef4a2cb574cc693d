"""`FaultProxy`: the listeners, and what tests say to them.

Invariants:
1. After `close()` no listener, connection or task is left, and an error inside the proxy is raised by it: a proxy
   that broke must not look like a broker that did.
2. A broker's listener keeps its port while it is stopped, and nobody else gets it: connections are refused.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.faults.proxy.faults import BOTH, Act, Chance, Direction, FaultScript, Shape, WireFault
from tests.faults.proxy.link import Link, read_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioproduce.testing import FakeCluster

HOST = "127.0.0.1"


class Arrival(NamedTuple):
    """A request as it was read from a client, in the loop's clock; `link` counts a broker's connections from 1."""

    at: float
    broker: int
    link: int
    api: int
    version: int
    correlation_id: int


class FaultProxy:
    """One listener in front of each broker of a cluster; without faults it carries bytes and changes nothing.

    The brokers must advertise it: `FakeCluster.advertise()`, Kafka's `advertised.listeners`, `set_host_port()` of
    librdkafka's mock. Otherwise clients go past it after their first Metadata request.

    Args:
        upstreams: Broker id -> (host, port) of the broker itself.
        ports: Broker id -> port to listen on; free ones by default.
        seed: Of every random choice: jitter, and faults by chance.
        advertise: Called with (broker, host, port) of each listener when it is opened.

    Attributes:
        arrivals: Every request read from a client.
        opened_at: Broker id -> when each of its connections was accepted.

    Example:
        >>> async with FakeCluster(3) as cluster, FaultProxy.of(cluster) as proxy:
        ...     fault = proxy.reset_after(ApiKey.PRODUCE)      # appended, then RST: the answer is lost
        ...     async with Producer(proxy.bootstrap_servers) as producer:
        ...         await producer.send_and_wait("t", b"v")
        ...     assert fault.is_spent
    """

    def __init__(
        self,
        upstreams: Mapping[int, tuple[str, int]],
        *,
        ports: Mapping[int, int] | None = None,
        seed: int = 0,
        advertise: Callable[[int, str, int], object] | None = None,
    ) -> None:
        self.seed = seed
        self._advertise = advertise
        self.arrivals: list[Arrival] = []
        self.opened_at: dict[int, list[float]] = {broker: [] for broker in upstreams}
        self._upstreams = dict(upstreams)
        self._ports = {broker: (ports or {}).get(broker, 0) for broker in upstreams}
        self._script = FaultScript()
        self._shapes = {broker: {each: Shape() for each in Direction} for broker in upstreams}
        self._released = {broker: {each: asyncio.Event() for each in Direction} for broker in upstreams}
        for events in self._released.values():
            for event in events.values():
                event.set()
        self._listeners: dict[int, asyncio.Server] = {}
        self._reserved: dict[int, socket.socket] = {}
        self._links: dict[asyncio.Task[None], Link] = {}
        self._failures: list[BaseException] = []

    @classmethod
    def of(cls, cluster: FakeCluster, *, seed: int = 0) -> Self:
        """In front of a cluster that was started, which will advertise it."""
        upstreams = {broker: (HOST, port) for broker, port in cluster.ports.items()}
        return cls(upstreams, seed=seed, advertise=cluster.advertise)

    # Life

    async def start(self, brokers: Iterable[int] | None = None) -> None:
        """Listen, for these brokers or for all. `async with` does it."""
        for broker in self._upstreams if brokers is None else brokers:
            reserved = self._reserved.pop(broker, None)
            if reserved is not None:
                reserved.close()
            accepted = functools.partial(self._accepted, broker)
            listener = await asyncio.start_server(accepted, HOST, self._ports[broker], reuse_address=True)
            self._listeners[broker] = listener
            self._ports[broker] = listener.sockets[0].getsockname()[1]
            if self._advertise is not None:
                self._advertise(broker, HOST, self._ports[broker])

    async def stop(self, *brokers: int) -> None:
        """Refuse connections to these brokers (or to all) and reset those that are open, until `start()`."""
        for broker in brokers or tuple(self._upstreams):
            self._listeners.pop(broker).close()
            reserved = socket.socket()
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((HOST, self._ports[broker]))
            self._reserved[broker] = reserved
            self.reset_links(broker)

    async def close(self) -> None:
        """End everything.

        Raises:
            ExceptionGroup: What went wrong inside the proxy.
        """
        for listener in self._listeners.values():
            listener.close()
        for reserved in self._reserved.values():
            reserved.close()
        links = list(self._links)
        for task in links:
            task.cancel()
        if links:
            await asyncio.wait(links)
        for listener in self._listeners.values():
            await listener.wait_closed()
        self._listeners.clear()
        self._reserved.clear()
        if self._failures:
            raise BaseExceptionGroup("the proxy itself failed", self._failures)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Where it is, and what came

    @property
    def ports(self) -> Mapping[int, int]:
        """Broker id -> port."""
        return self._ports

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every listener, separated by commas."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def links(self) -> list[Link]:
        """The connections that are open, oldest first."""
        return list(self._links.values())

    def count(self, api: int | None = None, broker: int | None = None) -> int:
        """How many requests were read from clients."""
        return sum(api in (None, each.api) and broker in (None, each.broker) for each in self.arrivals)

    def connections(self, broker: int | None = None) -> int:
        """How many connections were ever accepted."""
        return sum(len(at) for number, at in self.opened_at.items() if broker in (None, number))

    # Faults of one request or answer

    def script(self, fault: WireFault) -> WireFault:
        """Add a fault; the methods below make the usual ones."""
        self._script.faults.append(fault)
        return fault

    def reset_before(
        self, api: int | None = None, *, times: int | None = 1, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """RST; the broker never reads the request."""
        return self.script(WireFault(Act.RESET_BEFORE, api, broker, skip, times))

    def hold_request(
        self, api: int | None = None, *, times: int | None = 1, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """RST for the client; the request is kept, and `deliver()` brings it to the broker late."""
        return self.script(WireFault(Act.HOLD, api, broker, skip, times))

    async def deliver(self, fault: WireFault) -> list[bytes]:
        """Bring the requests that a fault has kept to their brokers, byte for byte; their answers, without sizes.

        Raises:
            OSError: A broker cannot be reached.
            asyncio.IncompleteReadError: It closes the connection instead of an answer.
        """
        held, fault.held = fault.held, []
        answers = []
        for broker, frame in held:
            reader, writer = await asyncio.open_connection(*self._upstreams[broker])
            try:
                writer.write(frame)
                answers.append((await read_frame(reader))[4:])
            finally:
                writer.close()
                await writer.wait_closed()
        return answers

    def reset_after(
        self, api: int | None = None, *, times: int | None = 1, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """The broker answers, and the client gets RST instead."""
        return self.script(WireFault(Act.RESET_AFTER, api, broker, skip, times))

    def cut_answer(
        self,
        api: int | None = None,
        *,
        length: int = 6,
        is_reset: bool = False,
        times: int | None = 1,
        skip: int = 0,
        broker: int | None = None,
    ) -> WireFault:
        """The first `length` bytes of the answer, its size included, then FIN (or RST)."""
        return self.script(WireFault(Act.CUT, api, broker, skip, times, length=length, is_reset=is_reset))

    def swallow_answer(
        self, api: int | None = None, *, times: int | None = 1, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """The answer never comes; the connection lives, and later answers do come."""
        return self.script(WireFault(Act.SWALLOW, api, broker, skip, times))

    def delay_answer(
        self,
        seconds: float,
        api: int | None = None,
        *,
        times: int | None = 1,
        skip: int = 0,
        broker: int | None = None,
    ) -> WireFault:
        """The answer comes so much later, and those behind it after it."""
        return self.script(WireFault(Act.DELAY, api, broker, skip, times, seconds=seconds))

    def change_correlation_id(
        self, api: int | None = None, *, times: int | None = 1, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """The right answer under the correlation id of no request."""
        return self.script(WireFault(Act.WRONG_ID, api, broker, skip, times))

    def announce_length(
        self,
        length: int,
        api: int | None = None,
        *,
        times: int | None = 1,
        skip: int = 0,
        broker: int | None = None,
    ) -> WireFault:
        """Four bytes that announce an answer of this length (also negative), and nothing of it."""
        return self.script(WireFault(Act.LENGTH, api, broker, skip, times, length=length))

    def garble_answer(
        self,
        payload: bytes,
        api: int | None = None,
        *,
        times: int | None = 1,
        skip: int = 0,
        broker: int | None = None,
    ) -> WireFault:
        """These bytes instead of the answer, its size and correlation id included."""
        return self.script(WireFault(Act.GARBAGE, api, broker, skip, times, payload=payload))

    def close_after_answer(
        self, api: int | None = None, *, times: int | None = None, skip: int = 0, broker: int | None = None
    ) -> WireFault:
        """FIN after the answer: after each, by default."""
        return self.script(WireFault(Act.CLOSE_AFTER, api, broker, skip, times))

    def by_chance(self, probability: float, faults: Sequence[WireFault], *, api: int | None = None) -> Chance:
        """Let each request of an API meet one of these faults with a probability."""
        chance = Chance(probability, faults, api)
        self._script.chances.append(chance)
        return chance

    def clear(self) -> None:
        """Forget every fault, and make every line straight again; connections that are broken stay so."""
        self._script.clear()
        self.shape(slice_bytes=0, bytes_per_second=0.0, latency=0.0, jitter=0.0, coalesce=1, directions=BOTH)
        self.heal()

    # The lines

    def shape(
        self,
        *,
        broker: int | None = None,
        directions: Iterable[Direction] = BOTH,
        slice_bytes: int | None = None,
        bytes_per_second: float | None = None,
        latency: float | None = None,
        jitter: float | None = None,
        coalesce: int | None = None,
    ) -> None:
        """Change how bytes are carried, on the connections that there are too; `Shape` explains the words."""
        chosen = tuple(directions)
        for each in self._chosen(broker):
            for direction in chosen:
                shape = self._shapes[each][direction]
                shape.slice_bytes = shape.slice_bytes if slice_bytes is None else slice_bytes
                shape.bytes_per_second = (
                    shape.bytes_per_second if bytes_per_second is None else bytes_per_second
                )
                shape.latency = shape.latency if latency is None else latency
                shape.jitter = shape.jitter if jitter is None else jitter
                if coalesce is not None and direction is Direction.TO_CLIENT:
                    shape.coalesce = coalesce

    def hold(self, *, broker: int | None = None, directions: Iterable[Direction] = BOTH) -> None:
        """A black hole, one way or both, until `heal()`: what is sent is kept, and delivered then.

        New connections are accepted, and nothing comes back on them: a kernel that does not even answer SYN
        takes a network namespace.
        """
        chosen = tuple(directions)
        for each in self._chosen(broker):
            for direction in chosen:
                self._released[each][direction].clear()

    def heal(self, *, broker: int | None = None, directions: Iterable[Direction] = BOTH) -> None:
        """End a black hole: what was kept is delivered, also to and from those who have given up meanwhile."""
        chosen = tuple(directions)
        for each in self._chosen(broker):
            for direction in chosen:
                self._released[each][direction].set()

    def reset_links(self, broker: int | None = None) -> int:
        """Reset every connection now; how many there were."""
        links = [link for link in self.links if broker in (None, link.broker)]
        for link in links:
            link.reset()
        return len(links)

    def close_idle(self, broker: int | None = None) -> list[Link]:
        """Close each connection that owes no answer, as `connections.max.idle.ms` of a broker does; which."""
        idle = [link for link in self.links if link.is_idle and broker in (None, link.broker)]
        for link in idle:
            link.close()
        return idle

    # Inside

    def _chosen(self, broker: int | None) -> Iterable[int]:
        return self._upstreams if broker is None else (broker,)

    def _accepted(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened_at = self.opened_at[broker]
        opened_at.append(asyncio.get_running_loop().time())
        link = Link(
            broker,
            len(opened_at),
            self.seed,
            self._script,
            self._shapes[broker],
            self._released[broker],
            self._saw,
        )
        host, port = self._upstreams[broker]
        task = asyncio.create_task(
            link.serve(reader, writer, host, port),
            name=f"proxy to broker {broker}, connection {len(opened_at)}",
        )
        self._links[task] = link
        task.add_done_callback(self._ended)

    def _saw(self, link: Link, api: int, version: int, correlation_id: int) -> None:
        now = asyncio.get_running_loop().time()
        self.arrivals.append(Arrival(now, link.broker, link.number, api, version, correlation_id))

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._links[task]
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._failures.append(failure)
