"""One blocking POST to a token endpoint, bounded in time and size, with an answer or the reason why there is none.

Used by `endpoint` alone, in a thread. It uses httpx2's transport (httpcore2) and not its client, because the client
would add what must not happen: redirects, proxies and certificates from the environment, passwords from `.netrc`
in place of ours, cookies, decompression.

Invariants:

1. The request ends within the sum of the connect and read timeouts, whatever the endpoint does, except for the
   system's name resolver. Each wait on the socket is limited to the remaining time, so an endpoint that sends a
   byte now and then cannot extend it.
2. Every failure is a `Trouble`. The library's exceptions hold the request, which contains the client's secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlencode, urlsplit

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, MissingExtraError
from aioproduce.security.tokens.trouble import Trouble, printable

with MissingExtraError.unless_installed(
    "SASL OAUTHBEARER with a token endpoint", extra="oauth", name="httpx2"
):
    import httpx2

# httpx2 installs httpcore2 in the version that it needs.
import httpcore2

if TYPE_CHECKING:
    import ssl

    from aioproduce.security.tokens.grants import Request

URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
CA_KEY: Final = "sasl.oauthbearer.token.endpoint.ca.location"
PROXY_KEY: Final = "sasl.oauthbearer.token.endpoint.proxy"

_MAX_ANSWER: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a token endpoint."""

    status: int
    content_type: str
    location: str
    body: bytes = field(repr=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """The address of a token endpoint and how to connect to it.

    Attributes:
        url: An https URL.
        is_http_allowed: Whether it may be http, which shows the client's secret to the network.
        ca_location: A PEM file with the authorities to trust; `None`: those of the system.
        ssl_context: A context to connect with, instead of both.
        proxy: An http or https URL of a proxy (`sasl.oauthbearer.token.endpoint.proxy`). For https, its certificate
            is checked like the endpoint's. Proxies from the environment are ignored: a variable of the process must
            not decide who sees the client's secret.
        connect_timeout: Seconds for the connection (`sasl.login.connect.timeout.ms`).
        read_timeout: Seconds for each wait for bytes (`sasl.login.read.timeout.ms`).

    Raises:
        ConfigError: If the URL is not allowed.
    """

    url: str = field(repr=False)
    is_http_allowed: bool = False
    ca_location: str | None = None
    ssl_context: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 10.0

    def __post_init__(self) -> None:
        _check_url(self.url, self.is_http_allowed)

    def __str__(self) -> str:
        """Return the URL without its query."""
        return self.url.partition("?")[0].partition("#")[0]

    def post(self, request: Request) -> Answer | Trouble:
        """Send a request and read the answer.

        Args:
            request: The request; its secrets do not appear in messages.
        """
        context = self._context()
        if isinstance(context, Trouble):
            return context
        network = _BoundedNetwork(time.monotonic() + self.connect_timeout + self.read_timeout)
        try:
            with (
                httpcore2.ConnectionPool(
                    ssl_context=context,
                    proxy=self._proxy(context),
                    network_backend=network,
                ) as pool,
                pool.stream(
                    "POST",
                    self.url.partition("#")[0],
                    headers=list(_headers(request).items()),
                    content=_form(request),
                    extensions={"timeout": self._timeouts()},
                ) as response,
            ):
                return self._read(response)
        except httpcore2.ProxyError as error:
            why = printable(error, request.secrets())
            return Trouble(
                f"the proxy for the token endpoint {self} refused ({why}): does it allow connections to the "
                f"endpoint without a password ({PROXY_KEY})?",
                PROXY_KEY,
            )
        except httpcore2.ConnectTimeout:
            return self._trouble(f"did not accept a connection within {self.connect_timeout:g} s", _REACH)
        except httpcore2.TimeoutException:
            return self._trouble(f"did not send a complete answer within {self.read_timeout:g} s", _REACH)
        except httpcore2.ConnectError as error:
            return self._unconnected(printable(error, request.secrets()))
        except Exception as error:
            # This includes unforeseen errors: they would carry the request and with it the client's secret.
            return self._trouble(
                f"did not give an HTTP answer ({type(error).__name__})",
                f"is {self} a token endpoint, and {_REACH}",
            )

    def _read(self, response: httpcore2.Response) -> Answer | Trouble:
        body = bytearray()
        for part in response.iter_stream():
            body += part
            if len(body) > _MAX_ANSWER:
                return self._trouble(f"answered more than {_MAX_ANSWER} bytes", "is that a token endpoint?")
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(
            status=response.status,
            content_type=headers.get(b"content-type", ""),
            location=headers.get(b"location", ""),
            body=bytes(body),
        )

    def _proxy(self, context: ssl.SSLContext | None) -> httpcore2.Proxy | None:
        if self.proxy is None:
            return None
        # The library does not accept a context for a proxy without TLS.
        is_tls = self.proxy.lower().startswith("https:")
        return httpcore2.Proxy(self.proxy, ssl_context=context if is_tls else None)

    def _timeouts(self) -> dict[str, float]:
        return {
            "connect": self.connect_timeout,
            "read": self.read_timeout,
            "write": self.read_timeout,
            "pool": self.connect_timeout,
        }

    def _context(self) -> ssl.SSLContext | Trouble | None:
        if self.ssl_context is not None or self.url.startswith("http:"):
            return self.ssl_context
        if self.ca_location is None:
            return httpx2.create_ssl_context(trust_env=False)
        context = httpx2.create_ssl_context(verify=False)
        # This also turns on the check of the certificate (CERT_REQUIRED).
        context.check_hostname = True
        try:
            context.load_verify_locations(cafile=self.ca_location)
        except OSError as error:
            return Trouble(
                f"the authorities in {self.ca_location} cannot be read ({printable(error)}): set a PEM file with "
                "the certificates to trust",
                CA_KEY,
            )
        return context

    def _unconnected(self, why: str) -> Trouble:
        if "CERTIFICATE_VERIFY_FAILED" in why:
            remedy = f"set {CA_KEY} to the authority that signed it, or have it renewed"
            return Trouble(
                f"the token endpoint {self} has a certificate that is not trusted ({why}): {remedy}", CA_KEY
            )
        return self._trouble(f"cannot be reached ({why})", _REACH)

    def _trouble(self, what: str, remedy: str) -> Trouble:
        through = "" if self.proxy is None else f", through {PROXY_KEY},"
        return Trouble(f"the token endpoint {self}{through} {what}: {remedy}", URL_KEY)


_REACH: Final = (
    "is it running, and reachable from here (sasl.login.connect.timeout.ms, sasl.login.read.timeout.ms)?"
)


def _headers(request: Request) -> dict[str, str]:
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "aioproduce",
    }
    if request.authorization is not None:
        headers["Authorization"] = request.authorization.reveal()
    return headers


def _form(request: Request) -> bytes:
    return urlencode(
        [
            (name, value.reveal() if isinstance(value, Secret) else value)
            for name, value in request.form.items()
        ]
    ).encode()


def _check_url(url: str, is_http_allowed: bool) -> None:
    """Refuse a URL that is not allowed (CVE-2025-27817: anyone who sets the URL could read files with it)."""
    why = _flaw_of(url, is_http_allowed)
    if why is not None:
        raise ConfigError(f"{URL_KEY} {why}", key=URL_KEY)


def _flaw_of(url: str, is_http_allowed: bool) -> str | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return "is not a URL: it has spaces, or characters that are not ASCII (write a host name as xn--...)"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme == "file":
        return (
            "is a file: to read tokens from a file, also set sasl.oauthbearer.jwt.retriever.class to the class "
            "FileJwtRetriever; the URL alone is not enough"
        )
    if parts.scheme == "http" and not is_http_allowed:
        return (
            "is http, which shows the client's secret and the token to the network: use https, or for a test "
            "sasl.oauthbearer.allow.http=true"
        )
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        return "is not an https URL with a host"
    if parts.username is not None or parts.password is not None:
        return (
            "has a name or a password in it: use sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret"
        )
    return None


@final
class _BoundedNetwork(httpcore2.NetworkBackend):
    """The library's sockets, with one deadline for everything done on them."""

    def __init__(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = httpcore2.SyncBackend()
        self._deadline = deadline
        self._clock = clock

    def left(self, timeout: float | None) -> float:
        """Return the remaining time, at most the timeout.

        Raises:
            httpcore2.ReadTimeout: If no time is left.
        """
        left = self._deadline - self._clock()
        if left <= 0:
            raise httpcore2.ReadTimeout
        return left if timeout is None else min(left, timeout)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._inner.connect_tcp(host, port, self.left(timeout), local_address, socket_options)
        return _BoundedStream(stream, self)


@final
class _BoundedStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, network: _BoundedNetwork) -> None:
        self._inner = inner
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._network.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._network.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._inner.start_tls(ssl_context, server_hostname, self._network.left(timeout))
        return _BoundedStream(stream, self._network)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
