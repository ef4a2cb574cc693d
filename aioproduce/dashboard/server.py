"""The dashboard on a separate port, in the running event loop: for services without an ASGI application.

Used by services with aiohttp and similar, and by `aioproduce dashboard`. It runs uvicorn (the extra
`aioproduce[dashboard]`), and imports it when it is needed.

Invariants:

1. The process's signal handlers do not change.
2. Leaving the context ends every connection within `_GRACE_SECONDS`, also that of a client that reads nothing.
3. A dashboard on the loopback address is visible only on this machine, and not to a web page open there. A foreign
   page whose name was made to point here (DNS rebinding) sends that name as `Host`, and is refused.
4. A dashboard on another address requires a token, unless `allow_anonymous` lets everybody see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.dashboard.app import Dashboard
from aioproduce.errors import ConfigError, ListenError, MissingExtraError, PortInUseError
from aioproduce.security.http_access import is_loopback

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence

    from aioproduce.config.secret import Secret
    from aioproduce.dashboard.app import Receive, Scope, Send
    from aioproduce.dashboard.reading import Source

DEFAULT_PORT: Final = 8089
_GRACE_SECONDS: Final = 2
_BACKLOG: Final = 128


@final
@dataclass(slots=True, eq=False)
class DashboardServer:
    """A running dashboard, and its address.

    Attributes:
        dashboard: The application.
        host: The address that it listens on.
        port: The port that it listens on; the real one if `port=0` was given.
        is_encrypted: Whether it uses TLS.
    """

    dashboard: Dashboard
    host: str
    port: int
    is_encrypted: bool = False

    @property
    def url(self) -> str:
        """The address for a browser or for `aioproduce top`."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http{'s' if self.is_encrypted else ''}://{f'[{host}]' if ':' in host else host}:{self.port}/"


@contextlib.asynccontextmanager
async def serve(
    producers: Source | Sequence[Source],
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    allowed_hosts: Sequence[str] = (),
    token: str | Secret | None = None,
    allow_anonymous: bool = False,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    key_password: Secret | None = None,
    **settings: Any,
) -> AsyncIterator[DashboardServer]:
    """Serve the dashboard on a port, in the running event loop.

    Without a token, everybody who can reach the port sees the metrics, with the names of topics and hosts. So it
    listens on the loopback address by default, and elsewhere only with a token. On the loopback address it accepts
    only requests for an IP address or `localhost`. Add a proxy's name to `allowed_hosts` if the proxy passes it on.

    Args:
        producers: A producer, or several.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        allowed_hosts: More names that requests may have in `Host`, for the loopback address.
        token: The token that a request must contain; see `Dashboard`. Over a network, use TLS with it.
        allow_anonymous: Whether it may listen elsewhere than on the loopback address without a token.
        certificate: A PEM file with the server's certificate and those that signed it. The server then uses TLS.
        key: A PEM file with its key, if that is not in the same file.
        key_password: The password of the key, if the key is encrypted.
        **settings: As for `Dashboard`: `interval`, `history`, `max_streams`, `stream_seconds`.

    Yields:
        The running dashboard.

    Raises:
        PortInUseError: if another program listens there.
        ListenError: if it cannot listen there for another reason.
        ConfigError: if others could see it without a token, or certificate and key cannot be loaded.
        MissingExtraError: if uvicorn is not installed: pip install 'aioproduce[dashboard]'.

    Example:
        >>> async with serve(producer, port=8089) as dashboard:
        ...     print(dashboard.url)
        ...     await work()
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        if error.name != "uvicorn":
            raise
        raise MissingExtraError("the dashboard on a port", extra="dashboard", name="uvicorn") from None

    dashboard = Dashboard(producers, token=token, **settings)
    context = _context(certificate, key, key_password)
    listener = _listen(host, port)
    is_local = is_loopback(listener.getsockname()[0])
    if not (is_local or token is not None or allow_anonymous):
        listener.close()
        raise ConfigError(
            f"{host} is not the loopback address, so everybody who can reach it would see the metrics: set a "
            "token, or allow everybody (allow_anonymous=True; --allow-anonymous of the command)",
            key="token",
        )
    config = uvicorn.Config(
        _Guard(dashboard, allowed_hosts) if is_local else dashboard,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )

    config.load()
    config.ssl = context

    class SignalsLeftAlone(uvicorn.Server):
        def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]  # a generator there
            return contextlib.nullcontext()

    server = SignalsLeftAlone(config)
    serving = asyncio.create_task(server.serve([listener]), name="aioproduce dashboard")
    sampling = asyncio.create_task(dashboard.feed.sample_forever(), name="aioproduce dashboard samples")
    try:
        yield DashboardServer(dashboard, host, listener.getsockname()[1], context is not None)
    finally:
        sampling.cancel()
        dashboard.close()
        server.should_exit = True
        await asyncio.wait([sampling, serving])
        for connection in list(server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()  # its client does not read, so nothing more can be written
        listener.close()
        serving.result()


def _context(
    certificate: str | os.PathLike[str] | None,
    key: str | os.PathLike[str] | None,
    key_password: Secret | None,
) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    from aioproduce.security.http_tls import server_context  # imports OpenSSL, which plain HTTP does not need

    return server_context(certificate, key, key_password)


@final
class _Guard:
    """A guard that refuses requests for other host names than this machine's.

    Args:
        dashboard: The guarded application.
        allowed: More host names to accept.
    """

    __slots__ = ("_allowed", "_dashboard")

    def __init__(self, dashboard: Dashboard, allowed: Sequence[str]) -> None:
        self._dashboard = dashboard
        self._allowed = frozenset(name.lower() for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_ours(scope):
            text = (
                b"Use an address of this machine, or localhost. Behind a proxy: "
                b"serve(..., allowed_hosts=[its name])\n"
            )
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": text})
            return
        await self._dashboard(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        # Every browser sends the host of the address.
        told: str = dict(scope["headers"]).get(b"host", b"localhost").decode("ascii", "replace").lower()
        name = told.rpartition(":")[0] if told.rpartition(":")[2].isdigit() else told
        if name in self._allowed or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))  # an address, which no DNS answer can redirect
        except ValueError:
            return False
        return True


def _listen(host: str, port: int) -> socket.socket:
    try:
        if not 0 <= port <= 65_535:  # getaddrinfo would cut it to 16 bits
            raise OverflowError("a port is a number from 0 to 65535")
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} of {host} is in use: choose another port (0 takes a free one), or stop the "
                "program that listens there",
                host=host,
                port=port,
            ) from error
        raise ListenError(
            f"cannot listen on port {port} of {host}: {reason}; the host must be an address of this machine, and "
            "the port one that this user may use",
            host=host,
            port=port,
        ) from error
