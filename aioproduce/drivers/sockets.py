"""Socket functions that the drivers share: options of a new socket, and failures in the system's words."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from aioproduce.errors import BrokerConnectionError, TlsError

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.core.effects import Connect


def set_buffer_sizes(sock: socket.socket, config: ProducerConfig) -> None:
    """Set the sizes of `send.buffer.bytes` and `receive.buffer.bytes`; -1 keeps the system's default."""
    for option, size in (
        (socket.SO_SNDBUF, config.send_buffer_bytes),
        (socket.SO_RCVBUF, config.receive_buffer_bytes),
    ):
        if size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)


def reason(failure: BaseException) -> str:
    """Return a failure in the system's words; asyncio says "Connect call failed" for a refused connection."""
    if isinstance(failure, OSError) and not isinstance(failure, socket.gaierror) and failure.errno:
        return os.strerror(failure.errno)
    return str(failure) or "given up"


def failed_attempt(failure: BaseException | None, effect: Connect) -> BrokerConnectionError:
    """Return the error to report to the core for a failed attempt to connect; `None`: it was given up."""
    if isinstance(failure, TlsError):  # from the preparation of TLS
        failure.host, failure.port = effect.host, effect.port
        return failure
    error = BrokerConnectionError(
        "given up" if failure is None else reason(failure), host=effect.host, port=effect.port
    )
    error.__cause__ = failure
    return error
