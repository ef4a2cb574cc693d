"""A blocking client of brokers, for what asks a cluster something without a producer: `spark.topics`, the tests.

`BlockingClient` and `ask_any()` drive the core's own connections over a blocking socket, so that versions, TLS and
logins are as the producer's. `BlockingConnection` has raw frames.

Invariants:

1. No wait is without a bound, and a broker that answers byte by byte does not extend it.
2. A broker that cannot be reached, closes, refuses the login, or does not answer in time is an `OSError`; one that
   talks nonsense is a `ProtocolError`. Nothing else is raised, but a `ConfigError` before anything is opened.
3. Memory grows with the bytes that came, never on the word of a length (`FrameReader`).
4. Sockets are made in `_open()` alone.
5. No frame that an error leaves has a request in a local variable: it may be a login's.
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
_FRAME_MAX: Final = 100 * 1024 * 1024  # as the producer's own bound on an answer


@final
class BlockingConnection:
    """One connection to a broker: frames out, frames in.

    Args:
        host: Name or address.
        port: The port.
        timeout: Seconds for connecting, and then for each frame.

    Raises:
        OSError: there is no connection in time.
    """

    __slots__ = ("_address", "_frames", "_ready", "_socket", "_timeout")

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._address = host, port
        self._timeout = timeout
        self._frames = FrameReader(_FRAME_MAX)
        self._ready: deque[memoryview] = deque()
        self._socket = _open(host, port, timeout)

    def exchange(self, request: bytes, timeout: float | None = None) -> memoryview:
        """`send()` a request, and `receive()` the answer."""
        self.send(request)
        return self.receive(timeout)

    def send(self, request: bytes) -> None:
        """Send a whole request, its length in front.

        Raises:
            OSError: the connection is lost, or the broker does not read.
        """
        self._socket.settimeout(self._timeout)
        self._socket.sendall(request)

    def receive(self, timeout: float | None = None) -> memoryview:
        """Wait for the next frame, and give it without its length.

        Args:
            timeout: Seconds; the connection's by default.

        Raises:
            OSError: none came in time, or the broker closed the connection.
            ProtocolError: what came is no frame.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while not self._ready:
            if self._frames.error is not None:  # behind the frames that were given
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
    """Ask the bootstrap servers in turn, and give the first answer; one question, as `BlockingClient` asks it.

    Raises:
        ConfigError: the settings of TLS or of the login contradict each other.
        MissingExtraError: the login needs a library that is not installed.
    """
    return BlockingClient(config).ask_any(api, encode, deadline)


@final
class _Question:
    """Who asks the core's connection."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Message | None = None

    def answered(self, response: Message, _now: float) -> bool:
        """The broker answered."""
        self.answer = response
        return True

    def lost(self, loss: Lost, now: float) -> None:
        """The connection is gone; `BlockingClient` sees that by itself."""


@final
class BlockingClient:
    """A blocking driver of the core's connections: one at a time, with one credential for all of them.

    Args:
        config: Where the brokers are; `request.timeout.ms` and `socket.connection.setup.timeout.ms` bound what one
            of them may take, so that a silent one leaves time for the next.

    Raises:
        ConfigError: the settings of TLS or of the login contradict each other.
        MissingExtraError: the login needs a library that is not installed.
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
        """Ask the bootstrap servers in turn, and give the first answer.

        Args:
            api: What is asked.
            encode: Makes the request of a version and a correlation id.
            deadline: An instant of `time.monotonic()`, for all of them together.

        Raises:
            OSError: the last of them cannot be reached, refuses the login, or has not answered in time.
            ProtocolError: its answer is none, or it does not speak a version of `api` that is known here.
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
            OSError: As `ask_any()`.
            ProtocolError: Likewise.
        """
        now = time.monotonic()
        config = self._config
        until = min(deadline, now + min(config.request_timeout, config.socket_connection_setup_timeout))
        self._asked += 1  # a node of its own for each question: none waits for another one's back-off
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
        """Carry out what the core wants, then wait for one fact.

        Raises:
            OSError: the connection has ended, or the time is over.
            ProtocolError: it has ended by what the broker said.
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
            self._carry_out(connection, until)  # an alert, before the end
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
        """Carry it out; what went wrong comes without this frame, which holds what was to be sent."""
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
        """The connection is over, by whatever cause."""
        self._connections.connection_lost(connection.connection_id, error, time.monotonic())
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_ELSEWHERE: Final = (AuthenticationState.AWAITING_CREDENTIAL, AuthenticationState.COMPUTING)
_TIMEOUTS: Final = (LossCause.SETUP_TIMEOUT, LossCause.REQUEST_TIMEOUT)


def _too_late(connection: BrokerConnection) -> Exception:
    words = f"no answer of {connection.peer} in time"
    if connection.state is ConnectionState.ENCRYPTING:
        words += ": it did not finish TLS's handshake. Is it a listener with TLS? security.protocol says so"
    login = connection.authentication
    if login is not None and login.is_under_way:
        words += f": {login.describe()}"
    return security_error_of_timeout(connection, words, LossCause.SECURITY) or TimeoutError(words)


def _error_of(connection: BrokerConnection) -> BaseException:
    """Why it ended, by invariant 2."""
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
    """Read key files, which may be on a disk that hangs."""
    ended: SimpleQueue[object] = SimpleQueue()
    run_in_thread(Work(prepare, what="key files"), ended.put, _call)
    try:
        outcome = ended.get(timeout=seconds)
    except Empty:
        raise TimeoutError("the key files of ssl.* could not be read in time") from None
    if isinstance(outcome, BaseException):
        raise outcome


def _blocking(work: Work) -> Work:
    """What is awaited gets an event loop of its own, in its thread."""
    if not work.is_async:
        return work

    async def awaited() -> Any:
        return await work.run()

    return Work(lambda: asyncio.run(awaited()), what=work.what)


def _call(function: Callable[[], object]) -> None:
    function()


def _open(host: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((host, port), timeout)
