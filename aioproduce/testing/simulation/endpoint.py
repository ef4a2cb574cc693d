"""One connection of a simulated network: its two sides, and the bytes in transit.

Created by `network`; both the connecting and the accepting side get an `Endpoint`, and set its callbacks.

Invariants:
1. Bytes of a connection arrive complete and in order, or the connection is lost; nothing is duplicated. Only
   `corrupt()` changes one.
2. Each direction of the link to a host is first in, first out over all connections: what a client sent on a
   connection that it gave up arrives before what it sends on the next one, or never. No client could handle it
   otherwise: KIP-360 has no fence against a late batch of an older epoch that arrives between the answer that
   reports a gap and the first batch of the new epoch.
3. A connection holds `Link.capacity` bytes in transit, like the buffers of two kernels; the rest stays with the
   sender, as views of the sender's own memory. So a buffer that is reused too early shows as a wrong checksum at
   the broker.
4. After `on_lost` an endpoint makes no more calls. The side that aborts also gets `on_lost`, at a later instant.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.testing.simulation.clock import Event
    from aioproduce.testing.simulation.network import Network

Address: TypeAlias = tuple[str, int]
Buffer: TypeAlias = bytes | bytearray | memoryview

CAPACITY: Final = 128 * 1024
_QUEUE_SECONDS: Final = 2.0
"""What a kernel and the routers hold of a narrow connection, in seconds of its bandwidth."""

_DATA: Final = "data"
_END: Final = "end"
_RESET: Final = "reset"


def _ignore(*_: object) -> None:
    """Do nothing: the default callback."""


@final
@dataclass(slots=True, eq=False)
class Link:
    """The link to one host, in both directions.

    Attributes:
        latency: The minimum latency, one way, in seconds.
        jitter: The average additional latency, in seconds.
        bandwidth: Bytes per second in each direction; `None` for no limit.
        buffer: How many bytes of a connection both kernels together hold.
        piece: The maximum of bytes that arrive at once; `None`: as they were sent.
        gather: Bytes that arrive within this many seconds arrive at their end, in one piece; 0: each as it comes.
        refuses: Whether connections are refused, even if there is a listener.
        holds_out: Whether nothing, not even a SYN, reaches the host; it waits until the link works again.
        holds_in: Whether nothing comes back from it.
    """

    latency: float
    jitter: float
    bandwidth: float | None = None
    buffer: int = CAPACITY
    piece: int | None = None
    gather: float = 0.0
    refuses: bool = False
    holds_out: bool = False
    holds_in: bool = False
    # When the last item in transit arrives: nothing overtakes it.
    arrives_out: float = 0.0
    arrives_in: float = 0.0

    @property
    def capacity(self) -> int:
        """The maximum of a connection's bytes in transit; a narrow link is not filled for minutes."""
        bandwidth = self.bandwidth
        return self.buffer if bandwidth is None else max(1, min(self.buffer, int(bandwidth * _QUEUE_SECONDS)))


@dataclass(slots=True, eq=False)
class _Item:
    """An item in transit: bytes, the end, or a reset."""

    kind: str
    data: bytes
    event: Event | None = None


@final
@dataclass(slots=True, eq=False, repr=False)
class Endpoint:
    """One side of a connection. Its owner sets the callbacks before the clock continues.

    Attributes:
        number: The connection's number; both sides have it.
        on_data: Called with received bytes.
        on_eof: Called when the peer has closed its side.
        on_drained: Called when everything that `write()` had to keep is in transit.
        on_lost: Called when the connection is lost, with the error, or `None` if this side closed it.
        is_gone: Whether `on_lost` was called, or is about to be.
        is_told: Whether `on_lost` was called.
        unsent: The number of bytes of the owner's memory that are still needed.
    """

    _network: Network
    number: int
    link: Link
    peer_address: Address
    is_client: bool
    peer: Endpoint = field(init=False)
    on_data: Callable[[bytes], object] = _ignore
    on_eof: Callable[[], object] = _ignore
    on_drained: Callable[[], object] = _ignore
    on_lost: Callable[[Exception | None], object] = _ignore
    _is_reading: bool = True
    _is_closing: bool = False
    _has_ended: bool = False
    is_gone: bool = False
    is_told: bool = False
    _unsent: deque[memoryview] = field(default_factory=deque)
    unsent: int = 0
    _on_way: int = 0  # bytes that this side sent and the other has not read
    _in_transit: deque[_Item] = field(default_factory=deque)  # what this side sent and did not arrive
    _arrived: deque[_Item] = field(default_factory=deque)  # what arrived here and was not read
    _is_to_corrupt: bool = False  # the next bytes that go from here

    # -- the owner's side ---

    @property
    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_closing or self.is_gone

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send; what exceeds the link's capacity is kept as views, and counted in `unsent`."""
        if self.is_closing:
            return
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if len(view):
                self._unsent.append(view)
                self.unsent += len(view)
        self._pump()

    def pause_reading(self) -> None:
        """Leave incoming bytes, and the end of the connection, unread."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Read, beginning with what arrived meanwhile."""
        if not self._is_reading:
            self._is_reading = True
            self._network.clock.call_later(0, self._read)

    def close(self) -> None:
        """Send what is unsent, then close; the connection is gone when the peer has closed its side."""
        if not self.is_closing:
            self._is_closing = True
            self._pump()

    def abort(self) -> None:
        """Reset: what is unsent is dropped; what is in transit may still arrive."""
        if self.is_gone:
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
            self._post(_Item(_DATA, self._as_sent(bytes(view[:count]))))
            self._on_way += count
            self.unsent -= count
            if count == len(view):
                self._unsent.popleft()
            else:
                self._unsent[0] = view[count:]
        if self._is_closing and not self._unsent and not self._has_ended:
            self._has_ended = True
            self._post(_Item(_END, b""))

    def _as_sent(self, data: bytes) -> bytes:
        if self._is_to_corrupt:
            self._is_to_corrupt = False
            middle = len(data) // 2
            return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :]
        return data

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
        # If the link stopped while something was in transit, `release()` sends it again.
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
        """Send again what the link had held back."""
        for item in self._in_transit:
            if item.event is not None:
                item.event.cancel()
            self._schedule(item, self._network.random.random())

    def cut(self, length: int) -> None:
        """Let `length` more bytes through to the peer, then reset both sides."""
        left = length
        for item in tuple(self._in_transit):  # what is read makes room for more
            if item.kind is _DATA and left > 0:
                self.peer._take(_Item(_DATA, item.data[:left]))
                left -= len(item.data)
        self.reset()

    def corrupt(self) -> None:
        """Change a bit of the next bytes that this side sends: TCP misses it, TLS detects it."""
        self._is_to_corrupt = True

    def reset(self) -> None:
        """End the connection as a network fault; both sides get an error."""
        for side in (self, self.peer):
            if not side.is_gone:
                side._give_up()
                side._drop_transit()
                side._network.clock.call_later(0, side._tell_lost, ConnectionResetError("connection reset"))

    # -- the peer's side ---

    def _take(self, item: _Item) -> None:
        if not self.is_gone:
            self._arrived.append(item)
            self._read()
        elif item.kind is _DATA and not self.peer.is_gone:
            self._post(_Item(_RESET, b""))  # like a kernel without such a socket

    def _read(self) -> None:
        while self._arrived and self._is_reading and not self.is_gone:
            item = self._arrived.popleft()
            if item.kind is _DATA:
                self.peer._was_read(len(item.data))
                self.on_data(item.data)
            elif item.kind is _END:
                self.on_eof()
                if not self.is_gone:
                    self._end_both()
            else:
                self._give_up()
                self._tell_lost(ConnectionResetError("connection reset by peer"))

    def _end_both(self) -> None:
        """Handle the peer's close: no user of this module continues with a half-open connection."""
        self._give_up()
        self._tell_lost(None)
        if not self.peer.is_gone:
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
        if not self._unsent and not self.is_gone:
            self.on_drained()

    def _give_up(self) -> None:
        self.is_gone = True
        self._unsent.clear()
        self.unsent = 0
        self._arrived.clear()

    def _tell_lost(self, error: Exception | None) -> None:
        self.is_told = True
        self._network.forget(self)
        on_lost, self.on_lost = self.on_lost, _ignore
        self.on_data = self.on_eof = self.on_drained = _ignore
        on_lost(error)
