"""One connection under trio: a socket that the core's effects write to, and a task that reads.

The TrioDriver makes it and runs `run()` in its nursery; it reports facts to the core's step.

It uses its own socket, not `trio.SocketStream`. The stream's `send_all()` is a schedule point per request (a third
of a request's cost), accepts one buffer while a request has many, and would keep views of them in a cancelled task.

Invariants:

1. `connection_lost` is reported once, at the end of `run()`, when the socket is closed and no view is left.
2. Only `_rest` holds bytes that the system did not accept at once; `writable` is reported when it is empty.
3. No task of ours waits for a closed socket: `notify_closing()` comes first.
4. No error leaves this module into the nursery, where it would cancel the other connections.
"""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, final

import trio
from trio.lowlevel import notify_closing, wait_readable, wait_writable

from aioproduce.drivers.sockets import failed_attempt, reason, set_buffer_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.core.effects import Buffer, Connect
    from aioproduce.drivers.core_step import CoreStep

# The system limits the buffers of one call (IOV_MAX: 1024 on Linux and macOS; POSIX guarantees 16).
_BUFFERS_PER_CALL: Final = 512
# Answers are small; large ones arrive in pieces.
_READ_SIZE: Final = 65_536


@final
class TrioConnection:
    """One attempt to connect, and the resulting connection.

    Args:
        core: Receives the facts.
        connect: The effect that asked for it, with the address.
        config: The settings, for the socket's options.
        nursery: Runs writes that the system does not accept at once.
    """

    __slots__ = (
        "_config",
        "_connect",
        "_core",
        "_error",
        "_is_made",
        "_nursery",
        "_rest",
        "_scope",
        "_socket",
        "connection_id",
    )

    def __init__(
        self, core: CoreStep, connect: Connect, config: ProducerConfig, nursery: trio.Nursery
    ) -> None:
        self._core = core
        self._connect = connect
        self._config = config
        self._nursery = nursery
        self.connection_id: int = connect.connection_id
        self._scope = trio.CancelScope()
        self._socket: socket.socket | None = None
        self._is_made = False
        self._rest: deque[memoryview] = deque()
        self._error: Exception | None = None

    # -- the task ---

    async def run(self) -> None:
        """Connect, read until the end, and report both."""
        error: Exception | None = None
        try:
            with self._scope:
                opened = await self._open()
                self._socket = opened
                if not self._scope.cancel_called:
                    self._is_made = True
                    self._core.connected(self.connection_id)
                    await self._read()
        except OSError as failure:
            error = failure
        except trio.ClosedResourceError:
            pass  # closed by `_shut()`; its caller has set the reason, if there is one
        except Exception as failure:
            self._core.failed(failure)
        finally:
            self._shut()
            # If the whole nursery is cancelled, the sender task ends as well and settles everything. Then no broker
            # is the cause, and no error names one.
            if trio.current_effective_deadline() > -inf:
                self._core.disconnected(self.connection_id, self._ending(error))

    def _ending(self, error: Exception | None) -> Exception | None:
        """Return the error to report to the core at the end."""
        if self._is_made:
            return self._error or error
        return failed_attempt(error, self._connect)

    async def _open(self) -> socket.socket:
        """Resolve the name for each attempt, and try its addresses in turn (KIP-302)."""
        if self._connect.prepare is not None:
            # It may continue after the attempt is given up: it only reads files.
            await trio.to_thread.run_sync(self._connect.prepare, abandon_on_cancel=True)
        found = await trio.socket.getaddrinfo(self._connect.host, self._connect.port, type=socket.SOCK_STREAM)
        failures: list[OSError] = []
        for family, kind, protocol, _, address in found:
            try:
                return await self._open_one(family, kind, protocol, address)
            except OSError as failure:
                failures.append(failure)
        if len({reason(failure) for failure in failures}) > 1:
            raise OSError(
                "; ".join(f"{at[4][0]}: {reason(why)}" for at, why in zip(found, failures, strict=True))
            )
        raise failures[0]

    async def _open_one(self, family: int, kind: int, protocol: int, address: object) -> socket.socket:
        with trio.socket.socket(family, kind, protocol) as attempt:
            await attempt.connect(address)
            opened = socket.socket(family, kind, protocol, fileno=attempt.detach())
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_buffer_sizes(opened, self._config)
        except BaseException:
            opened.close()
            raise
        return opened

    async def _read(self) -> None:
        while (sock := self._socket) is not None:
            await wait_readable(sock)
            if self._socket is None:
                return  # shut in the same turn in which it became readable
            try:
                data = sock.recv(_READ_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            if not data:
                return  # the peer sends no more, so no answer will come
            self._core.received(self.connection_id, data)

    # -- what the driver calls ---

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Write a request's buffers; `written` follows now, or when the system has accepted the last byte."""
        if self._socket is None:
            return  # disconnected() is on its way and accounts for the request
        self._rest.extend(map(memoryview, buffers))
        if self._write_some():
            if self._rest:
                self._nursery.start_soon(self.write_rest)
            else:
                self._core.written_at_once(self.connection_id)

    def abort(self) -> None:
        """Drop the socket and its unsent bytes."""
        if self._socket is None:
            self._scope.cancel()
        else:
            self._shut()

    async def write_rest(self) -> None:
        """Write the bytes that the system did not accept at once."""
        try:
            while self._rest and (sock := self._socket) is not None:
                await wait_writable(sock)
                if not self._write_some():
                    return
            if self._socket is not None:
                self._core.written(self.connection_id)
        except trio.ClosedResourceError:
            pass  # `run()` reports it
        except OSError as error:
            self._error = error
            self._shut()
        except Exception as error:
            self._core.failed(error)

    # -- both ---

    def _write_some(self) -> bool:
        """Write what the system accepts now. Return false if that failed: the socket is closed then."""
        rest, sock = self._rest, self._socket
        while rest and sock is not None:
            try:
                taken = _send(sock, rest)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError as error:
                self._error = error
                self._shut()
                return False
            while rest and taken >= len(rest[0]):
                taken -= len(rest.popleft())
            if taken:
                rest[0] = rest[0][taken:]
        return sock is not None

    def _shut(self) -> None:
        sock, self._socket = self._socket, None
        self._rest.clear()
        if sock is not None:
            notify_closing(sock)
            sock.close()


def _send(sock: socket.socket, buffers: deque[memoryview]) -> int:
    if hasattr(sock, "sendmsg"):
        return sock.sendmsg(islice(buffers, _BUFFERS_PER_CALL))
    return sock.send(buffers[0])  # on Windows
