"""A network of simulated TCP connections, and its faults.

Used by `SimulatedCluster` (which listens), by `SimulationLoop` and by other clients. Addresses are (host, port);
the state of the link to a host is in its `Link`, the guarantees of a connection are in `endpoint`.

Invariant: all random numbers come from the given source, in an order that depends only on the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from aioproduce.testing.simulation.endpoint import Address, Endpoint, Link

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from aioproduce.testing.simulation.clock import Event, VirtualClock
    from aioproduce.testing.simulation.trace import Trace

_SYN_RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@final
@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """A connection that is being set up."""

    _network: Network
    address: Address
    _on_connected: Callable[[Endpoint], object]
    _on_failed: Callable[[OSError], object]
    _tries: int = 0
    is_over: bool = False
    event: Event | None = None
    _endpoint: Endpoint | None = None

    def cancel(self) -> None:
        """Give up; neither callback is called."""
        if self.is_over:
            return
        self.is_over = True
        if self.event is not None:
            self.event.cancel()
        if self._endpoint is not None:
            self._endpoint.abort()

    def send_syn(self) -> None:
        """Send a SYN; there is no answer if the link holds it back."""
        network = self._network
        link = network.links.get(self.address[0])
        if link is None:
            self.event = network.clock.call_later(
                0, self._fail, OSError(-2, f"unknown host {self.address[0]}")
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
@dataclass(slots=True, eq=False, repr=False)
class Network:
    """All hosts, and their connections with the only client.

    Args:
        clock: The time.
        random: The source of random numbers.
        trace: Logs the begin and end of connections.

    Attributes:
        links: Host -> its link. Only hosts in it are known.
        listeners: Address -> the function that accepts connections.
        attempts: Host -> the times of connection attempts.
        connections: Number -> the client's side of an open connection, oldest first.
    """

    clock: VirtualClock
    random: Random
    trace: Trace
    links: dict[str, Link] = field(default_factory=dict)
    listeners: dict[Address, Callable[[Endpoint], object]] = field(default_factory=dict)
    attempts: dict[str, list[float]] = field(default_factory=dict)
    _first: dict[str, tuple[float, float]] = field(default_factory=dict)
    connections: dict[int, Endpoint] = field(default_factory=dict)
    _count: int = 0

    def add_host(self, host: str, *, latency: float = 0.0005, jitter: float = 0.0005) -> Link:
        """Add a host; only added names can be resolved."""
        link = self.links[host] = Link(latency, jitter)
        self._first[host] = latency, jitter
        return link

    def listen(self, address: Address, accept: Callable[[Endpoint], object]) -> None:
        """Have `accept` called with the server's side of each connection."""
        if address in self.listeners:
            raise OSError(98, f"{address} is already in use")
        self.listeners[address] = accept

    def unlisten(self, address: Address) -> None:
        """Stop accepting connections there; existing ones stay."""
        del self.listeners[address]

    def connect(
        self,
        address: Address,
        on_connected: Callable[[Endpoint], object],
        on_failed: Callable[[OSError], object],
    ) -> Attempt:
        """Open a connection; one of the callbacks is called later, or neither if there is no answer."""
        self.attempts.setdefault(address[0], []).append(self.clock.now)
        attempt = Attempt(self, address, on_connected, on_failed)
        attempt.send_syn()
        return attempt

    def connections_to(self, host: str) -> list[Endpoint]:
        """Return the connections to one host."""
        link = self.links[host]
        return [endpoint for endpoint in self.connections.values() if endpoint.link is link]

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
        """End `hold()`: what it held back is sent again."""
        link = self.links[host]
        link.holds_out = link.holds_in = False
        for endpoint in self.connections_to(host):
            endpoint.release()
            endpoint.peer.release()

    def set_latency(self, host: str, latency: float | None = None, jitter: float | None = None) -> None:
        """Change the latency of a host; `None` restores the initial value."""
        first = self._first[host]
        link = self.links[host]
        link.latency = first[0] if latency is None else latency
        link.jitter = first[1] if jitter is None else jitter

    def heal(self, host: str) -> None:
        """End all faults of a host's link."""
        link = self.links[host]
        self.set_latency(host)
        link.bandwidth = link.piece = None
        link.gather = 0.0
        link.refuses = False
        self.release(host)

    # -- for endpoints and attempts ---

    def latency_of(self, link: Link) -> float:
        """Return the latency of an item that is sent now."""
        return link.latency + (self.random.expovariate(1 / link.jitter) if link.jitter > 0 else 0.0)

    def make_pair(self, link: Link, address: Address) -> tuple[Endpoint, Endpoint]:
        """Create both sides of a connection."""
        self._count += 1
        ours = Endpoint(self, self._count, link, address, is_client=True)
        theirs = Endpoint(self, self._count, link, ("client", self._count), is_client=False)
        ours.peer, theirs.peer = theirs, ours
        self.connections[self._count] = ours
        self.trace.add(f"connection {self._count} to {address[0]}")
        return ours, theirs

    def forget(self, endpoint: Endpoint) -> None:
        """Remove a side that is gone."""
        if endpoint.is_client and self.connections.pop(endpoint.number, None) is not None:
            self.trace.add(f"connection {endpoint.number} gone")
