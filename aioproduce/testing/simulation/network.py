"""A network of simulated TCP connections, and what can be wrong with it.

Used by `SimulatedCluster` (which listens), by `SimulationLoop` and by whatever else connects. Addresses are
(host, port); the conditions of the way to a host are in its `Link`.

Invariants:
1. Bytes of a connection arrive whole and in order, or the connection is lost; nothing is duplicated.
2. The way to a host, and the way back, are first in, first out over all connections: what a client sent on a
   connection that it gave up arrives before what it sends on the next one, or never.
3. A connection takes `CAPACITY` bytes on the way, as the buffers of two kernels do; what is beyond that stays with
   the sender, as views of the sender's own memory.
4. After `on_lost` an endpoint is silent. Whoever aborts is told as well, at a later instant.
5. All chance comes from the given source, in an order that only the events determine.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioproduce.testing.simulation.clock import Event, VirtualClock
    from aioproduce.testing.simulation.trace import Trace

Address: TypeAlias = tuple[str, int]
Buffer: TypeAlias = bytes | bytearray | memoryview

CAPACITY: Final = 128 * 1024
_QUEUE_SECONDS: Final = 2.0
"""What a kernel and the routers behind it hold of a narrow connection, in seconds of its bandwidth."""
_SYN_RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Random(Protocol):
    """A source of chance, as `random.Random` is one."""

    def random(self) -> float:
        """One of [0, 1)."""

    def expovariate(self, lambd: float, /) -> float:
        """Exponentially distributed."""


@final
class Link:
    """The way to one host and back.

    Attributes:
        latency: Seconds one way, at least.
        jitter: Seconds that come on top on average.
        bandwidth: Bytes per second, each way; `None` without limit.
        piece: The most bytes that arrive at once; `None` as they were sent.
        gather: Seconds: what arrives within them arrives at their end, in one piece; 0 as it comes.
        refuses: Connections are refused, whether somebody listens or not.
        holds_out: Nothing reaches the host: SYNs included; it waits until the link is whole again.
        holds_in: Nothing comes back from it.
    """

    __slots__ = (
        "arrives_in",
        "arrives_out",
        "bandwidth",
        "gather",
        "holds_in",
        "holds_out",
        "jitter",
        "latency",
        "piece",
        "refuses",
    )

    def __init__(self, latency: float, jitter: float) -> None:
        self.latency = latency
        self.jitter = jitter
        self.bandwidth: float | None = None
        self.piece: int | None = None
        self.gather = 0.0
        self.refuses = False
        self.holds_out = False
        self.holds_in = False
        # When the last thing that is on its way arrives: nothing overtakes it.
        self.arrives_out = 0.0
        self.arrives_in = 0.0

    @property
    def capacity(self) -> int:
        """Bytes of a connection that are on the way at most; a narrow way is not stuffed for minutes."""
        bandwidth = self.bandwidth
        return CAPACITY if bandwidth is None else max(1, min(CAPACITY, int(bandwidth * _QUEUE_SECONDS)))


@final
class Endpoint:
    """One side of a connection. Its owner sets the callbacks before it lets the clock go on.

    Attributes:
        number: The connection's number; both sides have it.
        on_data: Bytes came.
        on_eof: The peer sends no more.
        on_drained: What `write()` could not pass on at once is on its way now.
        on_lost: The connection is gone; the error, or `None` if this side closed it.
    """

    __slots__ = (
        "_arrived",
        "_has_ended",
        "_in_transit",
        "_is_closing",
        "_is_gone",
        "_is_reading",
        "_is_told",
        "_network",
        "_on_way",
        "_unsent",
        "_unsent_size",
        "is_client",
        "link",
        "number",
        "on_data",
        "on_drained",
        "on_eof",
        "on_lost",
        "peer",
        "peer_address",
    )

    peer: Endpoint

    def __init__(
        self, network: Network, number: int, link: Link, peer_address: Address, *, is_client: bool
    ) -> None:
        self._network = network
        self.number = number
        self.link = link
        self.peer_address = peer_address
        self.is_client = is_client
        self.on_data: Callable[[bytes], object] = _ignore
        self.on_eof: Callable[[], object] = _ignore
        self.on_drained: Callable[[], object] = _ignore
        self.on_lost: Callable[[Exception | None], object] = _ignore
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False
        self._is_gone = False
        self._is_told = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._on_way = 0  # bytes that this side sent and the other has not read
        self._in_transit: deque[_Item] = deque()  # what this side sent and did not arrive
        self._arrived: deque[_Item] = deque()  # what arrived here and was not read

    # -- the owner's side ---

    @property
    def unsent(self) -> int:
        """Bytes of the owner's memory that are still needed."""
        return self._unsent_size

    @property
    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_closing or self._is_gone

    @property
    def is_gone(self) -> bool:
        """Whether `on_lost` was called, or is about to be."""
        return self._is_gone

    @property
    def is_told(self) -> bool:
        """Whether `on_lost` was called."""
        return self._is_told

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send; what finds no room on the way is kept as views, and `unsent` says how much."""
        if self.is_closing:
            return
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if len(view):
                self._unsent.append(view)
                self._unsent_size += len(view)
        self._pump()

    def pause_reading(self) -> None:
        """Leave what comes, the end of the connection included, where it is."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Read what came meanwhile."""
        if not self._is_reading:
            self._is_reading = True
            self._network.clock.call_later(0, self._read)

    def close(self) -> None:
        """Send what is unsent, then no more; the connection is gone when the peer has closed its side."""
        if not self.is_closing:
            self._is_closing = True
            self._pump()

    def abort(self) -> None:
        """Reset: what is not yet on its way is thrown away; what is may still arrive."""
        if self._is_gone:
            return
        self._give_up()
        if self._holds_out() or self._network.random.random() < 0.5:
            # Lost packets of a connection that is gone are not sent again.
            self._drop_transit()
        self._post(_Item(_RESET, b""))
        self._network.clock.call_later(0, self._tell_lost, None)

    # -- on the way ---

    def _pump(self) -> None:
        capacity = self.link.capacity
        while self._unsent and self._on_way < capacity:
            view = self._unsent[0]
            count = min(len(view), capacity - self._on_way)
            if self.link.piece is not None:
                count = min(count, self.link.piece)
            self._post(_Item(_DATA, bytes(view[:count])))
            self._on_way += count
            self._unsent_size -= count
            if count == len(view):
                self._unsent.popleft()
            else:
                self._unsent[0] = view[count:]
        if self._is_closing and not self._unsent and not self._has_ended:
            self._has_ended = True
            self._post(_Item(_END, b""))

    def _holds_out(self) -> bool:
        return self.link.holds_out if self.is_client else self.link.holds_in

    def _post(self, item: _Item) -> None:
        self._in_transit.append(item)
        if not self._holds_out():
            self._schedule(item, 0.0)

    def _schedule(self, item: _Item, delay: float) -> None:
        network, link = self._network, self.link
        before = link.arrives_out if self.is_client else link.arrives_in
        at = max(network.clock.now + delay + network.latency_of(link), before)
        if link.bandwidth is not None:
            at += len(item.data) / link.bandwidth
        if link.gather:
            at = max(ceil(at / link.gather) * link.gather, before)
        if self.is_client:
            link.arrives_out = at
        else:
            link.arrives_in = at
        item.event = network.clock.call_at(at, self._arrive)

    def _arrive(self) -> None:
        # If the link began to hold while something was on its way, `release()` sends it again.
        if not self._holds_out():
            item = self._in_transit.popleft()
            if self.link.gather:
                self._gather(item)
            self.peer._take(item)

    def _gather(self, item: _Item) -> None:
        """Add what arrives at the same instant."""
        while item.kind is _DATA and self._in_transit and self._in_transit[0].kind is _DATA:
            event = self._in_transit[0].event
            if event is None or event.at > self._network.clock.now:
                break
            event.cancel()
            item.data += self._in_transit.popleft().data

    def _drop_transit(self) -> None:
        for item in self._in_transit:
            if item.event is not None:
                item.event.cancel()
        self._in_transit.clear()

    def release(self) -> None:
        """The link is whole again: what it held is sent again."""
        for item in self._in_transit:
            if item.event is not None:
                item.event.cancel()
            self._schedule(item, self._network.random.random())

    def cut(self, length: int) -> None:
        """Let `length` more bytes through to the peer, and then reset both sides."""
        left = length
        for item in tuple(self._in_transit):  # what is read makes room for more
            if item.kind is _DATA and left > 0:
                self.peer._take(_Item(_DATA, item.data[:left]))
                left -= len(item.data)
        self.reset()

    def reset(self) -> None:
        """The network ends the connection: both sides are told."""
        for side in (self, self.peer):
            if not side._is_gone:
                side._give_up()
                side._drop_transit()
                side._network.clock.call_later(0, side._tell_lost, ConnectionResetError("connection reset"))

    # -- the peer's side ---

    def _take(self, item: _Item) -> None:
        if not self._is_gone:
            self._arrived.append(item)
            self._read()
        elif item.kind is _DATA and not self.peer._is_gone:
            self._post(_Item(_RESET, b""))  # as a kernel answers to what no socket waits for

    def _read(self) -> None:
        while self._arrived and self._is_reading and not self._is_gone:
            item = self._arrived.popleft()
            if item.kind is _DATA:
                self.peer._was_read(len(item.data))
                self.on_data(item.data)
            elif item.kind is _END:
                self.on_eof()
                if not self._is_gone:
                    self._end_both()
            else:
                self._give_up()
                self._tell_lost(ConnectionResetError("connection reset by peer"))

    def _end_both(self) -> None:
        """The peer closed: neither of our users goes on with a connection that is half open."""
        self._give_up()
        self._tell_lost(None)
        if not self.peer._is_gone:
            self.peer._give_up()
            self._network.clock.call_later(self._network.latency_of(self.link), self.peer._tell_lost, None)

    def _was_read(self, count: int) -> None:
        was_waiting = bool(self._unsent)
        self._on_way -= count
        if was_waiting:
            self._pump()
            if not self._unsent and not self.is_closing:
                self._network.clock.call_later(0, self._drained)

    def _drained(self) -> None:
        if not self._unsent and not self._is_gone:
            self.on_drained()

    def _give_up(self) -> None:
        self._is_gone = True
        self._unsent.clear()
        self._unsent_size = 0
        self._arrived.clear()

    def _tell_lost(self, error: Exception | None) -> None:
        self._is_told = True
        self._network.forget(self)
        on_lost, self.on_lost = self.on_lost, _ignore
        self.on_data = self.on_eof = self.on_drained = _ignore
        on_lost(error)


class _Item:
    """Something on its way: bytes, the end, or a reset."""

    __slots__ = ("data", "event", "kind")

    def __init__(self, kind: str, data: bytes) -> None:
        self.kind = kind
        self.data = data
        self.event: Event | None = None


_DATA: Final = "data"
_END: Final = "end"
_RESET: Final = "reset"


@final
class Attempt:
    """A connection that is being set up."""

    __slots__ = (
        "_endpoint",
        "_network",
        "_on_connected",
        "_on_failed",
        "_tries",
        "address",
        "event",
        "is_over",
    )

    def __init__(
        self,
        network: Network,
        address: Address,
        on_connected: Callable[[Endpoint], object],
        on_failed: Callable[[OSError], object],
    ) -> None:
        self._network = network
        self.address = address
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._tries = 0
        self.is_over = False
        self.event: Event | None = None
        self._endpoint: Endpoint | None = None

    def cancel(self) -> None:
        """Give it up: neither callback is called."""
        if self.is_over:
            return
        self.is_over = True
        if self.event is not None:
            self.event.cancel()
        if self._endpoint is not None:
            self._endpoint.abort()

    def send_syn(self) -> None:
        """Knock; nobody answers where the link holds."""
        network = self._network
        link = network.links.get(self.address[0])
        if link is None:
            self.event = network.clock.call_later(
                0, self._fail, OSError(-2, f"no host is called {self.address[0]}")
            )
        elif link.holds_out or link.holds_in:
            if self._tries == len(_SYN_RETRIES):
                self._fail(TimeoutError(110, "Connection timed out"))
            else:
                self.event = network.clock.call_later(_SYN_RETRIES[self._tries], self.send_syn)
                self._tries += 1
        else:
            at = link.arrives_out = max(network.clock.now + network.latency_of(link), link.arrives_out)
            self.event = network.clock.call_at(at, self._knock, link)

    def _knock(self, link: Link) -> None:
        network = self._network
        accept = network.listeners.get(self.address)
        at = link.arrives_in = max(network.clock.now + network.latency_of(link), link.arrives_in)
        if accept is None or link.refuses:
            self.event = network.clock.call_at(
                at, self._fail, ConnectionRefusedError(111, "Connection refused")
            )
            return
        ours, theirs = network.make_pair(link, self.address)
        self._endpoint = ours
        accept(theirs)
        if ours.is_gone:
            self.event = network.clock.call_at(at, self._fail, ConnectionResetError("connection reset"))
        else:
            self.event = network.clock.call_at(at, self._connected, ours)

    def _connected(self, endpoint: Endpoint) -> None:
        self.is_over = True
        if endpoint.is_gone:
            self._on_failed(ConnectionResetError("connection reset"))
        else:
            self._on_connected(endpoint)

    def _fail(self, error: OSError) -> None:
        if not self.is_over:
            self.is_over = True
            self._on_failed(error)


@final
class Network:
    """All hosts, and the connections between them and the one client.

    Args:
        clock: The time.
        random: The chance.
        trace: Told of connections that begin and end.

    Attributes:
        links: Host -> the way to it. A host is known when it is here.
        listeners: Address -> who accepts there.
        attempts: Host -> when somebody tried to connect.
    """

    __slots__ = (
        "_connections",
        "_count",
        "_first",
        "attempts",
        "clock",
        "links",
        "listeners",
        "random",
        "trace",
    )

    def __init__(self, clock: VirtualClock, random: Random, trace: Trace) -> None:
        self.clock = clock
        self.random = random
        self.trace = trace
        self.links: dict[str, Link] = {}
        self.listeners: dict[Address, Callable[[Endpoint], object]] = {}
        self._first: dict[str, tuple[float, float]] = {}
        self.attempts: dict[str, list[float]] = {}
        self._connections: dict[int, Endpoint] = {}
        self._count = 0

    def add_host(self, host: str, *, latency: float = 0.0005, jitter: float = 0.0005) -> Link:
        """Make a host known; names are resolved by that alone."""
        link = self.links[host] = Link(latency, jitter)
        self._first[host] = latency, jitter
        return link

    def listen(self, address: Address, accept: Callable[[Endpoint], object]) -> None:
        """Have `accept` called with the server's side of each connection."""
        if address in self.listeners:
            raise OSError(98, f"{address} is in use")
        self.listeners[address] = accept

    def unlisten(self, address: Address) -> None:
        """Accept no more there; connections stay."""
        del self.listeners[address]

    def connect(
        self,
        address: Address,
        on_connected: Callable[[Endpoint], object],
        on_failed: Callable[[OSError], object],
    ) -> Attempt:
        """Open a connection; one of the callbacks is called later, or neither if nobody ever answers."""
        self.attempts.setdefault(address[0], []).append(self.clock.now)
        attempt = Attempt(self, address, on_connected, on_failed)
        attempt.send_syn()
        return attempt

    @property
    def connections(self) -> Mapping[int, Endpoint]:
        """The clients' sides of the connections that are open, oldest first."""
        return self._connections

    def connections_to(self, host: str) -> list[Endpoint]:
        """Those to one host."""
        link = self.links[host]
        return [endpoint for endpoint in self._connections.values() if endpoint.link is link]

    def reset(self, host: str) -> None:
        """Reset every connection to a host."""
        for endpoint in self.connections_to(host):
            endpoint.reset()

    def hold(self, host: str, *, outward: bool = True, inward: bool = True) -> None:
        """Let nothing through, to the host, from it, or both: a black hole, until `release()`."""
        link = self.links[host]
        link.holds_out = link.holds_out or outward
        link.holds_in = link.holds_in or inward

    def release(self, host: str) -> None:
        """End `hold()`: what it held is sent again."""
        link = self.links[host]
        link.holds_out = link.holds_in = False
        for endpoint in self.connections_to(host):
            endpoint.release()
            endpoint.peer.release()

    def set_latency(self, host: str, latency: float | None = None, jitter: float | None = None) -> None:
        """Change how long the way to a host takes; `None` is as it was at first."""
        first = self._first[host]
        link = self.links[host]
        link.latency = first[0] if latency is None else latency
        link.jitter = first[1] if jitter is None else jitter

    def heal(self, host: str) -> None:
        """End everything that is wrong with the way to a host."""
        link = self.links[host]
        self.set_latency(host)
        link.bandwidth = link.piece = None
        link.gather = 0.0
        link.refuses = False
        self.release(host)

    # -- for endpoints and attempts ---

    def latency_of(self, link: Link) -> float:
        """How long something takes that goes now."""
        return link.latency + (self.random.expovariate(1 / link.jitter) if link.jitter > 0 else 0.0)

    def make_pair(self, link: Link, address: Address) -> tuple[Endpoint, Endpoint]:
        """Both sides of a new connection."""
        self._count += 1
        ours = Endpoint(self, self._count, link, address, is_client=True)
        theirs = Endpoint(self, self._count, link, ("client", self._count), is_client=False)
        ours.peer, theirs.peer = theirs, ours
        self._connections[self._count] = ours
        self.trace.add(f"connection {self._count} to {address[0]}")
        return ours, theirs

    def forget(self, endpoint: Endpoint) -> None:
        """One side is gone."""
        if endpoint.is_client and self._connections.pop(endpoint.number, None) is not None:
            self.trace.add(f"connection {endpoint.number} gone")


def _ignore(*_: object) -> None:
    """For whoever does not want to know."""
