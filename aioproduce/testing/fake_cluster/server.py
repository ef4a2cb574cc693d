"""The TCP front of the model, on asyncio: one listener per broker.

Called only by `FakeCluster`. It passes facts to the model and effects to sockets, and decides nothing.

Invariants:
1. After `close()` no listener, connection, timer or task is left.
2. A broker that is stopped and started keeps its port.
3. An exception in the model is a bug: it ends the cluster, and `close()` raises it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

from aioproduce.testing.fake_cluster.effects import Close, Effect, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aioproduce.testing.fake_cluster.model import ClusterModel

# l_onoff=1, l_linger=0: close() sends RST instead of FIN.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
# From asyncio's accept() of a connection to its `connection_made()`: a task's first step, and a callback of that.
_ACCEPT_TURNS: Final = 3


@final
@dataclass(slots=True, eq=False, repr=False)
class ClusterServer:
    """All listeners and connections of one cluster.

    Args:
        model: The brokers; its `wake` hook is replaced.
        host: The interface to listen on.
        ports: Broker id -> port; 0 for any free port, which then replaces the 0.
    """

    _model: ClusterModel
    _host: str
    _ports: dict[int, int]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _listeners: dict[int, asyncio.Server] = field(default_factory=dict)
    _reserved: dict[int, socket.socket] = field(default_factory=dict)
    _connections: dict[int, _BrokerProtocol] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _due: float = float("-inf")
    _now: float = float("-inf")
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._idle.set()
        self._model.wake = self.tick

    async def listen(self, broker_id: int) -> None:
        """Open the listener of one broker, on its previous port if it had one."""
        reserved = self._reserved.pop(broker_id, None)
        if reserved is not None:
            reserved.close()
        listener = await self._loop.create_server(
            lambda: _BrokerProtocol(self, broker_id),
            self._host,
            self._ports[broker_id],
            reuse_address=True,
        )
        self._listeners[broker_id] = listener
        self._ports[broker_id] = listener.sockets[0].getsockname()[1]

    async def stop_listening(self, broker_id: int) -> None:
        """Close the listener of one broker, and reserve its port."""
        await self._close_listeners([self._listeners.pop(broker_id)])
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        reserved = socket.socket(family, socket.SOCK_STREAM)
        # Bound but not listening: connections are refused, and no other process gets the port.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((self._host, self._ports[broker_id]))
        self._reserved[broker_id] = reserved

    async def close(self) -> None:
        """Stop everything; raise the first error inside the model, if any."""
        await self._close_listeners(self._listeners.values())
        for reserved in self._reserved.values():
            reserved.close()
        for protocol in tuple(self._connections.values()):
            protocol.abort()
        await self._idle.wait()
        for listener in self._listeners.values():
            await listener.wait_closed()
        self._listeners.clear()
        self._reserved.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._model.wake = lambda: None
        if self._failure is not None:
            raise self._failure

    async def _close_listeners(self, listeners: Collection[asyncio.Server]) -> None:
        """Stop accepting connections; those already accepted are set up when this returns.

        asyncio forgets a connection that is accepted but not yet set up when its listener is closed: nobody would
        close its socket, and the client would wait. So accepting stops first. (uvloop does not have this
        problem.)
        """
        if isinstance(self._loop, asyncio.SelectorEventLoop):
            for listener in listeners:
                for each in listener.sockets:
                    self._loop.remove_reader(each.fileno())
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
        for listener in listeners:
            listener.close()

    def tick(self) -> None:
        """Let the model do what is due, and execute its effects."""
        self.feed(self._model.handle_timer)

    def feed(self, fact: Callable[[float], object]) -> None:
        """Pass a fact to the model, execute its effects, and plan the next wake-up."""
        if self._failure is not None:
            return
        try:
            # Never backwards: a timer that fired slightly early must not have acted later than the next fact.
            self._now = max(self._now, self._loop.time())
            fact(self._now)
            while self._model.effects:
                self._carry_out(self._model.effects.popleft())
        except Exception as error:
            # Kept for close(): asyncio would only log it and continue with a broken model.
            self._failure = error
            for protocol in tuple(self._connections.values()):
                protocol.abort()
            return
        self._arm()

    def opened(self, protocol: _BrokerProtocol, broker_id: int, now: float) -> int:
        """Register a new connection with the model."""
        connection_id = self._model.connection_opened(broker_id, now)
        self._connections[connection_id] = protocol
        self._idle.clear()
        return connection_id

    def received(self, connection_id: int, data: bytes) -> None:
        """Handle bytes from a client."""
        self.feed(lambda now: self._model.receive_data(connection_id, data, now))

    def lost(self, connection_id: int) -> None:
        """Handle the end of a connection, no matter which side closed it."""
        self._connections.pop(connection_id, None)
        if not self._connections:
            self._idle.set()
        self.feed(lambda now: self._model.connection_closed(connection_id, now))

    def _carry_out(self, effect: Effect) -> None:
        protocol = self._connections.get(effect.connection_id)
        if protocol is None:
            return
        if isinstance(effect, Send):
            protocol.write(effect.data)
        elif isinstance(effect, Close):
            protocol.close(is_reset=effect.is_reset)
        else:
            protocol.set_reading(effect.is_reading)

    def _arm(self) -> None:
        at = self._model.next_timer()
        if self._timer is not None:
            if at is not None and self._due == at and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            # Not read from the handle: for the present instant, uvloop returns a handle that does not know its
            # time.
            self._due = at
            self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        # The loop may call slightly before `at`: it adds its clock's resolution.
        self._timer = None
        self._now = max(self._now, self._due)
        self.tick()


@final
@dataclass(slots=True, eq=False, repr=False)
class _BrokerProtocol(asyncio.Protocol):
    """One connection, on the broker's side."""

    _server: ClusterServer
    _broker_id: int
    _connection_id: int = 0
    _transport: asyncio.Transport | None = None
    _is_reading: bool = True
    _is_peer_slow: bool = False
    _is_made: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports are not asyncio's.
        self._transport = cast("asyncio.Transport", transport)

        def open_connection(now: float) -> None:
            self._connection_id = self._server.opened(self, self._broker_id, now)

        self._server.feed(open_connection)
        if not self._connection_id:
            self._transport.abort()
        elif not self._is_reading:
            # uvloop starts reading when this method returns, and forgets a pause requested inside it.
            asyncio.get_running_loop().call_soon(self._apply_reading)
        self._is_made = True

    def data_received(self, data: bytes) -> None:
        self._server.received(self._connection_id, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._transport = None
        self._server.lost(self._connection_id)

    def pause_writing(self) -> None:
        self._is_peer_slow = True
        self._apply_reading()

    def resume_writing(self) -> None:
        self._is_peer_slow = False
        self._apply_reading()

    def write(self, data: bytes) -> None:
        """Send to the client."""
        if self._transport is not None:
            self._transport.write(data)

    def set_reading(self, is_reading: bool) -> None:
        """Read from the socket, or leave incoming bytes to the kernel."""
        self._is_reading = is_reading
        if self._is_made:
            self._apply_reading()

    def close(self, *, is_reset: bool) -> None:
        """Close after everything was written, or reset at once."""
        if self._transport is None:
            return
        if not is_reset:
            self._transport.close()
            return
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def _apply_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_reading and not self._is_peer_slow:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
