"""A blocking client of brokers, for what asks a cluster something without a producer: `spark.topics`, the tests.

Invariants:

1. No wait is without a bound, and a broker that answers byte by byte does not extend it.
2. A broker that cannot be reached, closes, or does not answer in time is an `OSError`; one that talks nonsense is a
   `ProtocolError`. Nothing else is raised.
3. Memory grows with the bytes that came, never on the word of a length (`FrameReader`).
4. Sockets are made in `_open()` alone.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self, final

from aioproduce.errors import BrokerConnectionError, ProducerError, ProtocolError
from aioproduce.wire.api import ApiKey, ApiVersions
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import ApiVersionsResponse
from aioproduce.wire.requests import encode_api_versions
from aioproduce.wire.responses import correlation_id_of, decode_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.wire.messages import Message

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
    """Ask the bootstrap servers in turn, and give the first answer.

    Args:
        config: Where they are; `request.timeout.ms` and `socket.connection.setup.timeout.ms` bound what one of
            them may take, so that a silent one leaves time for the next.
        api: What is asked.
        encode: Makes the request of a version and a correlation id.
        deadline: An instant of `time.monotonic()`, for all of them together.

    Raises:
        OSError: the last of them cannot be reached, or has not answered in time.
        ProtocolError: its answer is none, or it does not speak a version of `api` that is known here.
    """
    *others, last = config.bootstrap_servers
    for server in others:
        try:
            return _ask(server, config, api, encode, deadline)
        except (OSError, ProducerError):
            continue
    return _ask(last, config, api, encode, deadline)


def _ask(
    server: tuple[str, int],
    config: ProducerConfig,
    api: ApiKey,
    encode: Callable[[int, int], bytes],
    deadline: float,
) -> Message:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    limit = min(left, config.request_timeout, config.socket_connection_setup_timeout)
    with BlockingConnection(*server, limit) as connection:
        until = time.monotonic() + limit

        def answer(api: ApiKey, version: int, correlation_id: int, request: bytes) -> Message:
            frame = connection.exchange(request, until - time.monotonic())
            if correlation_id_of(frame) != correlation_id:
                raise ProtocolError("the broker answered another request than this")
            return decode_body(api, version, frame)

        offered = answer(ApiKey.API_VERSIONS, 0, 0, encode_api_versions(0, 0, config.client_id))
        assert isinstance(offered, ApiVersionsResponse)
        version = ApiVersions.from_response(offered).version(api)
        return answer(api, version, 1, encode(version, 1))


def _open(host: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((host, port), timeout)
