"""A blocking client for requests to a cluster without a producer: `spark.topics`, the tests.

`BlockingClient` and `ask_any()` run the core's own connections over a blocking socket, so versions, TLS and logins
work as in the producer. `BlockingConnection` sends and receives raw frames.

Invariants:

1. Every wait has a bound, and a broker that answers byte by byte does not extend it.
2. A broker that cannot be reached, closes, refuses the login, or does not answer in time causes an `OSError`.
   Invalid bytes cause a `ProtocolError`. The only other error is a `ConfigError` before anything is opened.
3. Memory grows with the received bytes, never with an announced length (`FrameReader`).
4. Only `_open()` makes sockets.
5. No frame in an error's traceback has a request in a local variable: it may contain a login.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections import deque
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce._native.stats import Windows
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.cluster.authentication import AuthenticationState
from aioproduce.core.cluster.connection_states import ConnectionState, LossCause
from aioproduce.core.cluster.connection_words import security_error_of_timeout
from aioproduce.core.cluster.making_connections import make_broker_connections
from aioproduce.core.effects import Connect, Send
from aioproduce.drivers.offloading import run_in_thread, without_frames
from aioproduce.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ProducerError,
    ProtocolError,
    TokenError,
)
from aioproduce.metrics import ProducerMetrics
from aioproduce.security.making import make_security
from aioproduce.security.mechanism import Work
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import Lost
    from aioproduce.core.effects import Effect
    from aioproduce.wire.api import ApiKey
    from aioproduce.wire.messages import Message

_log = logging.getLogger("aioproduce")

_CHUNK: Final = 65536
_FRAME_MAX: Final = 100 * 1024 * 1024  # the producer's own limit of an answer


@final
class BlockingConnection:
    """One connection to a broker that exchanges raw frames.

    Args:
        host: The broker's name or address.
        port: The port.
        timeout: Seconds for connecting, and then for each frame.

    Raises:
        OSError: if there is no connection in time.
    """

    __slots__ = ("_address", "_frames", "_ready", "_socket", "_timeout")

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._address = host, port
        self._timeout = timeout
        self._frames = FrameReader(_FRAME_MAX)
        self._ready: deque[memoryview] = deque()
        self._socket = _open(host, port, timeout)

    def exchange(self, request: bytes, timeout: float | None = None) -> memoryview:
        """Send a request, and wait for the answer."""
        self.send(request)
        return self.receive(timeout)

    def send(self, request: bytes) -> None:
        """Send a whole request, which begins with its length.

        Raises:
            OSError: if the connection is lost, or the broker does not read.
        """
        self._socket.settimeout(self._timeout)
        self._socket.sendall(request)

    def receive(self, timeout: float | None = None) -> memoryview:
        """Wait for the next frame, and return it without its length.

        Args:
            timeout: Seconds; by default the connection's.

        Raises:
            OSError: if none arrived in time, or the broker closed the connection.
            ProtocolError: if the bytes are no frame.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while not self._ready:
            if self._frames.error is not None:  # after the valid frames before it
                raise self._frames.error
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left)
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                host, port = self._address
                reason = "the broker closed the connection instead of answering"
                raise BrokerConnectionError(reason, host=host, port=port)
            self._ready.extend(self._frames.feed(chunk))
        return self._ready.popleft()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask_any(
    config: ProducerConfig, api: ApiKey, encode: Callable[[int, int], bytes], deadline: float
) -> Message:
    """Ask the bootstrap servers in turn, and return the first answer, with a `BlockingClient` for this one call.

    Raises:
        ConfigError: if the settings of TLS or of the login contradict each other.
        MissingExtraError: if the login needs a library that is not installed.
    """
    return BlockingClient(config).ask_any(api, encode, deadline)


@final
class _Question:
    """The asker of a request on the core's connection."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Message | None = None

    def answered(self, response: Message, _now: float) -> bool:
        """Store the answer."""
        self.answer = response
        return True

    def lost(self, loss: Lost, now: float) -> None:
        """Do nothing: `BlockingClient` notices a lost connection itself."""


@final
class BlockingClient:
    """A blocking driver of the core's connections: one at a time, all with one credential.

    Args:
        config: The settings. `request.timeout.ms` and `socket.connection.setup.timeout.ms` limit the time of one
            broker, so that a silent one leaves time for the next.

    Raises:
        ConfigError: if the settings of TLS or of the login contradict each other.
        MissingExtraError: if the login needs a library that is not installed.
    """

    __slots__ = ("_asked", "_config", "_connections", "_ended", "_socket")

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._connections = make_broker_connections(
            config,
            random.Random(),
            ProducerMetrics(Windows()),
            BoundedLog(_log),
            make_security(config),
            time.time,
        )
        self._ended: SimpleQueue[tuple[int, object]] = SimpleQueue()
        self._socket: socket.socket | None = None
        self._asked = 0

    def ask_any(self, api: ApiKey, encode: Callable[[int, int], bytes], deadline: float) -> Message:
        """Ask the bootstrap servers in turn, and return the first answer.

        Args:
            api: The request's API.
            encode: Encodes the request for a version and a correlation id.
            deadline: An instant of `time.monotonic()`, for all servers together.

        Raises:
            OSError: if the last server cannot be reached, refuses the login, or does not answer in time.
            ProtocolError: if the last server's answer is invalid, or it supports no known version of `api`.
        """
        *others, last = self._config.bootstrap_servers
        for place in others:
            try:
                return self.ask(place, api, encode, deadline)
            except (OSError, ProtocolError):
                continue
        return self.ask(last, api, encode, deadline)

    def ask(
        self, place: tuple[str, int], api: ApiKey, encode: Callable[[int, int], bytes], deadline: float
    ) -> Message:
        """Ask the broker at this host and port, over a connection that is closed afterwards.

        Raises:
            OSError: if the broker cannot be reached, refuses the login, or does not answer in time.
            ProtocolError: if the answer is invalid, or the broker supports no known version of `api`.
        """
        now = time.monotonic()
        config = self._config
        until = min(deadline, now + min(config.request_timeout, config.socket_connection_setup_timeout))
        self._asked += 1  # a node id for each request: none waits for another one's back-off
        address = BrokerAddress(-self._asked, *place)
        self._connections.ensure(address, now)
        connection = self._connections.connection(address.node_id)
        assert connection is not None, "no node is asked twice"
        question = _Question()
        try:
            while not connection.can_send(time.monotonic()):
                self._step(connection, until)
            connection.send(
                api, lambda version, number: [encode(version, number)], question, time.monotonic()
            )
            while question.answer is None:
                self._step(connection, until)
        finally:
            self._end(connection, None)
        return question.answer

    def _step(self, connection: BrokerConnection, until: float) -> None:
        """Carry out the core's effects, then wait for one fact.

        Raises:
            OSError: if the connection has ended, or the time is over.
            ProtocolError: if the broker's bytes ended the connection.
        """
        self._carry_out(connection, until)
        now = time.monotonic()
        if connection.is_open and now >= until:
            raise _too_late(connection)
        if connection.is_open:
            timer_at = self._connections.next_timer()
            left = (until if timer_at is None else min(until, timer_at)) - now
            if left > 0:
                self._wait(connection, left)
            self._connections.handle_timer(time.monotonic())
        if not connection.is_open:
            self._carry_out(connection, until)  # sends an alert before the close
            raise _error_of(connection)

    def _wait(self, connection: BrokerConnection, seconds: float) -> None:
        login = connection.authentication
        if login is not None and login.state in _ELSEWHERE:
            with suppress(Empty):
                ticket, outcome = self._ended.get(timeout=seconds)
                self._connections.offloaded(ticket, outcome, time.monotonic())
            return
        assert self._socket is not None
        try:
            self._socket.settimeout(seconds)
            chunk = self._socket.recv(_CHUNK)
        except TimeoutError:
            return
        except OSError as error:
            self._end(connection, without_frames(error))
            return
        if not chunk:
            self._end(connection, None)
            return
        for done in self._connections.receive_data(connection.connection_id, chunk, time.monotonic()):
            assert done.request.asker is not None
            done.request.asker.answered(done.response, time.monotonic())

    # -- effects ---

    def _carry_out(self, connection: BrokerConnection, until: float) -> None:
        offloads = self._connections.offloads.effects
        while self._connections.effects or offloads:
            while offloads:
                offload = offloads.popleft()
                run_in_thread(_blocking(offload.work), partial(self._offloaded, offload.ticket), _call)
            if self._connections.effects:
                error = self._try(self._connections.effects.popleft(), until)
                if error is not None:
                    self._end(connection, error)

    def _offloaded(self, ticket: int, outcome: object) -> None:
        self._ended.put((ticket, outcome))

    def _try(self, effect: Effect, until: float) -> BaseException | None:
        """Carry out an effect; return an error without this frame, which holds the request's bytes."""
        left = until - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError("no answer in time")
            if isinstance(effect, Connect):
                if effect.prepare is not None:
                    _prepare(effect.prepare, left)
                self._socket = _open(effect.host, effect.port, min(effect.timeout, until - time.monotonic()))
                self._connections.connection_made(effect.connection_id, time.monotonic())
            elif isinstance(effect, Send) and self._socket is not None:
                self._socket.settimeout(left)
                self._socket.sendall(b"".join(effect.buffers))
                self._connections.writable(effect.connection_id, time.monotonic())
        except (OSError, ProducerError) as error:
            return without_frames(error)
        return None

    def _end(self, connection: BrokerConnection, error: BaseException | None) -> None:
        """Report the end of the connection, for any cause, and close the socket."""
        self._connections.connection_lost(connection.connection_id, error, time.monotonic())
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_ELSEWHERE: Final = (AuthenticationState.AWAITING_CREDENTIAL, AuthenticationState.COMPUTING)
_TIMEOUTS: Final = (LossCause.SETUP_TIMEOUT, LossCause.REQUEST_TIMEOUT)


def _too_late(connection: BrokerConnection) -> Exception:
    words = f"no answer from {connection.peer} in time"
    if connection.state is ConnectionState.ENCRYPTING:
        words += ": it did not finish the TLS handshake. Is it a listener with TLS? security.protocol says so"
    login = connection.authentication
    if login is not None and login.is_under_way:
        words += f": {login.describe()}"
    return security_error_of_timeout(connection, words, LossCause.SECURITY) or TimeoutError(words)


def _error_of(connection: BrokerConnection) -> BaseException:
    """Return the error of the connection's end, by invariant 2."""
    error = connection.error
    if isinstance(error, OSError | ProtocolError):
        return error
    if connection.cause in _TIMEOUTS:
        return TimeoutError(connection.reason)
    host, port = connection.address.host, connection.address.port
    ended: BrokerConnectionError
    if isinstance(error, TokenError):
        ended = AuthenticationError(
            str(error), mechanism="", setting=error.setting, host=host, port=port, is_transient=True
        )
    else:
        ended = BrokerConnectionError(connection.reason, host=host, port=port)
    ended.__cause__ = error
    return ended


def _prepare(prepare: Callable[[], None], seconds: float) -> None:
    """Read key files in a thread: the disk may hang."""
    ended: SimpleQueue[object] = SimpleQueue()
    run_in_thread(Work(prepare, what="key files"), ended.put, _call)
    try:
        outcome = ended.get(timeout=seconds)
    except Empty:
        raise TimeoutError("the key files of ssl.* could not be read in time") from None
    if isinstance(outcome, BaseException):
        raise outcome


def _blocking(work: Work) -> Work:
    """Return work that runs in a thread; async work gets an event loop of its own there."""
    if not work.is_async:
        return work

    async def awaited() -> Any:
        return await work.run()

    return Work(lambda: asyncio.run(awaited()), what=work.what)


def _call(function: Callable[[], object]) -> None:
    function()


def _open(host: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((host, port), timeout)
