"""HTTP requests to a schema registry: fail-over, retries, timeouts, credentials, and errors with remedies.

Used by `SchemaRegistryClient` alone. It handles paths and JSON without knowing their meaning, on every event loop
that anyio supports.

Invariants:

1. A request ends within `timeout` seconds, whatever the registry does, with an answer or a SchemaRegistryError.
2. Every failure of a server is retried (no answer, 429, 5xx), because all requests are idempotent.
3. Credentials appear only in the request's header: not in a URL, a repr or an error.
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
import math
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import anyio

from aioproduce.config.secret import Secret
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.drivers.running_loop import asyncio_loop_here
from aioproduce.errors import (
    ConfigError,
    IncompatibleSchemaError,
    MissingExtraError,
    ProducerClosedError,
    SchemaRegistryError,
    TlsError,
    TokenError,
    WrongEventLoopError,
)

with MissingExtraError.unless_installed(
    "aioproduce.serializers.SchemaRegistryClient", extra="registry", name="httpx2"
):
    import httpx2

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("aioproduce")

TokenSource: TypeAlias = "str | Secret | Callable[[], str | Secret | Awaitable[str | Secret]]"

_ACCEPT: Final = (
    "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
)
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# Large schemas take some MB; a larger answer is not a registry's.
_MAX_ANSWER: Final = 32 * 1024 * 1024
_MESSAGE_LENGTH: Final = 1000

_REMEDIES: Final = {
    401: "check basic_auth or bearer_token",
    403: "this user may not do this: ask for the permission, or register schemas elsewhere (auto_register=False)",
    409: "change the schema so that it is compatible (give new fields a default), or the subject's compatibility "
    "level; SchemaRegistryClient.check_compatibility() checks it beforehand",
    40401: "register the schema first, or let auto_register=True do it; check the subject strategy",
    40402: "ask for a version that the subject has",
    40403: "register the schema first, or let auto_register=True do it",
    42201: "the registry cannot read the schema: check it and its references",
    42202: 'a version must be a number from 1, or "latest"',
}
_NO_REGISTRY: Final = "is this the base URL of a schema registry?"
_LATER: Final = "try again later; see the registry's log"


@final
class Credentials:
    """The content of the `Authorization` header, which is never shown."""

    __slots__ = ("_basic", "_token")

    def __init__(self, basic: tuple[str, str | Secret] | None, token: TokenSource | None) -> None:
        if basic is not None and token is not None:
            raise ConfigError("set basic_auth (or a URL with a password) or bearer_token, not both")
        self._basic = None if basic is None else _encoded(*basic)
        self._token = Secret(token) if isinstance(token, str) else token
        if isinstance(self._token, Secret):
            _check_header(self._token.reveal(), "bearer_token")

    def __repr__(self) -> str:
        kind = "basic" if self._basic else "bearer" if self._token else "none"
        return f"<Credentials {kind}>"

    async def header(self) -> Secret | None:
        """Return the header's value; a function for the token is called each time, so that it can renew it.

        Raises:
            TokenError: If a source of tokens has none.
        """
        if self._token is None:
            return self._basic
        return _bearer(await self._given())

    async def _given(self) -> Secret:
        given = self._token() if callable(self._token) else self._token
        # Not in a variable, which a traceback may show.
        return _hidden(await given if inspect.isawaitable(given) else given)


def _encoded(user: str, password: str | Secret) -> Secret:
    pair = f"{user}:{_hidden(password).reveal()}".encode()
    return Secret("Basic " + base64.b64encode(pair).decode())


def _hidden(text: object) -> Secret:
    return text if isinstance(text, Secret) else Secret(text)  # type: ignore[arg-type]  # Secret checks it


def _bearer(token: Secret) -> Secret:
    _check_header(token.reveal(), "bearer_token")
    return Secret(f"Bearer {token.reveal()}")


@final
@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RegistryHttp:
    """Sends requests to one of several equivalent registries; arguments as of `SchemaRegistryClient`.

    The URLs have no credentials any more; a path after the host is kept (`http://host/registry`).
    """

    urls: Sequence[str]
    credentials: Credentials
    headers: Mapping[str, str]
    timeout: float
    request_timeout: float
    retries: int
    backoff: float
    max_backoff: float
    ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None
    transport: httpx2.AsyncBaseTransport | None
    # During an outage, every record with a new schema asks the registry.
    _bounded_log: BoundedLog = field(default_factory=lambda: BoundedLog(_log), init=False)
    _client: httpx2.AsyncClient | None = field(default=None, init=False)
    _loop: object = field(default=None, init=False)
    _first: int = field(default=0, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            _check_header(value, f"the header {name!r}")

    async def close(self) -> None:
        """Close the connections. Later requests are refused."""
        if self._client is not None:
            self._check_loop()
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        subject: str | None = None,
    ) -> Any:
        """Return the JSON of a registry's answer.

        Args:
            method: The HTTP method.
            path: The path below the base URL, quoted.
            query: Parameters.
            body: The body, sent as JSON; None for none.
            subject: The subject, for errors.

        Raises:
            SchemaRegistryError: If no registry answered in time, or if it refused.
            ProducerClosedError: If the client is closed.
            WrongEventLoopError: If the first request was in another event loop.
        """
        question = _Question(method, path, query or {}, body, subject)
        with anyio.move_on_after(self.timeout) as scope:
            return await self._ask_until_answered(question, anyio.current_time() + self.timeout)
        if scope.cancelled_caught:
            raise question.unanswered(f"timed out after {self.timeout:g} s")
        raise AssertionError("unreachable: a question is answered, refused or out of time")

    async def _ask_until_answered(self, question: _Question, deadline: float) -> Any:
        for round_ in range(self.retries + 1):
            for step in range(len(self.urls)):
                index = (self._first + step) % len(self.urls)
                is_answered, answer = await self._try(question, self.urls[index])
                if is_answered:
                    self._first = index
                    return answer
            if round_ == self.retries:
                break
            pause = self._pause(round_, question.retry_after)
            if anyio.current_time() + pause >= deadline:
                raise question.unanswered(f"the {self.timeout:g} s leave no time to try again")
            self._bounded_log.warning(
                question.cause, anyio.current_time(), "%s; trying again in %.1f s", question.trouble, pause
            )
            await anyio.sleep(pause)
        raise question.unanswered(f"{self.retries + 1} attempts")

    def _pause(self, round_: int, asked_for: float) -> float:
        # With jitter, because many clients notice an outage at the same time; 2^60 is far above any maximum.
        pause = min(self.max_backoff, self.backoff * 2.0 ** min(round_, 60)) * random.uniform(0.5, 1.0)
        return max(pause, asked_for)

    async def _try(self, question: _Question, url: str) -> tuple[bool, Any]:
        """Return whether the registry at this URL answered, and its answer; note a failure in the question."""
        headers = {**self.headers, "Accept": _ACCEPT}
        try:
            authorization = await self.credentials.header()
        except TokenError as error:
            question.note(url, None, None, str(error), error)
            return False, None
        content = None
        if question.body is not None:
            headers["Content-Type"] = _CONTENT_TYPE
            content = json.dumps(question.body).encode()
        try:
            client = await self._opened()
        except TlsError as error:
            raise ConfigError(f"the schema registry's {error}", key=error.setting) from error
        request = client.build_request(
            question.method, url + question.path, params=question.query, headers=headers, content=content
        )
        if authorization is not None:
            # httpx's headers hide the value in tracebacks, unlike a dict in this frame.
            request.headers["Authorization"] = authorization.reveal()
        try:
            response = await client.send(request, stream=True)
            try:
                read = await _read(response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, OSError) as error:  # OSError for a TLS alert after the handshake
            _drop_frames(error)
            question.note(url, None, None, f"{type(error).__name__}: {error}".rstrip(": "), error)
            return False, None
        if read is None:
            raise question.refused(
                url, response.status_code, None, f"more than {_MAX_ANSWER} bytes", _NO_REGISTRY
            )
        return self._judge(question, url, response, read)

    def _judge(
        self, question: _Question, url: str, response: httpx2.Response, read: bytes
    ) -> tuple[bool, Any]:
        status = response.status_code
        if response.is_success:
            if status == 204 or not read:
                return True, None
            try:
                return True, json.loads(read)
            except (ValueError, RecursionError) as error:
                raise question.refused(url, status, None, f"not JSON: {read[:80]!r}", _NO_REGISTRY) from error
        error_code, message = _complaint(read)
        if status == 429 or status >= 500:
            question.note(url, status, error_code, message, None)
            question.retry_after = _seconds(response.headers.get("Retry-After"))
            return False, None
        remedy = _REMEDIES.get(error_code or status) or _REMEDIES.get(status)
        if remedy is None or (status == 404 and error_code is None):
            remedy = _NO_REGISTRY if error_code is None else "see the registry's documentation of this code"
        raise question.refused(url, status, error_code, message, remedy)

    async def _opened(self) -> httpx2.AsyncClient:
        self._check_open()
        context = self.ssl_context
        if self._client is None and callable(context):
            context = self.ssl_context = await anyio.to_thread.run_sync(context)  # it reads files
            self._check_open()
        assert not callable(context)
        if self._client is not None:
            self._check_loop()
        else:
            self._loop = _loop_here()
            # Without an https URL there is no need to read certificates, which takes tens of milliseconds.
            is_encrypted = any(url.startswith("https:") for url in self.urls)
            self._client = httpx2.AsyncClient(
                verify=context or is_encrypted,
                timeout=self.request_timeout,
                follow_redirects=False,  # would send the credentials to another host
                transport=self.transport,
            )
        return self._client

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosedError("this SchemaRegistryClient is closed: create another one")

    def _check_loop(self) -> None:
        if self._loop is not _loop_here():
            raise WrongEventLoopError(
                "this SchemaRegistryClient has its connections in the event loop of its first request, "
                "which is another one: create a client for each loop"
            )


@final
@dataclass(slots=True, eq=False, repr=False)
class _Question:
    """One request and its failures so far."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object
    subject: str | None
    retry_after: float = 0.0
    trouble: str = ""
    _status: int | None = None
    _code: int | None = None
    _cause: Exception | None = None

    @property
    def cause(self) -> tuple[int | None, int | None]:
        """The kind of failure, by which log lines are counted."""
        return self._status, self._code

    def note(
        self, url: str, status: int | None, code: int | None, message: str, cause: Exception | None
    ) -> None:
        """Record a failed attempt that may be retried."""
        self.retry_after = 0.0
        self.trouble = self._told(url, status, code, message)
        self._status, self._code, self._cause = status, code, cause

    def unanswered(self, why: str) -> SchemaRegistryError:
        """Return the error for a request without an answer."""
        trouble = self.trouble or f"the schema registry did not answer{self._about()}"
        error = SchemaRegistryError(
            f"{trouble} ({why})",
            status=self._status,
            error_code=self._code,
            subject=self.subject,
            remedy="check that it is running and reachable. Nothing was sent: the record can be sent again"
            if self._status is None
            else _LATER,
            retriable=True,
        )
        error.__cause__ = self._cause
        return error

    def refused(
        self, url: str, status: int, code: int | None, message: str, remedy: str
    ) -> SchemaRegistryError:
        """Return the error for a refusal, which a retry would not change."""
        kind = IncompatibleSchemaError if status == 409 else SchemaRegistryError
        return kind(
            self._told(url, status, code, message),
            status=status,
            error_code=code,
            subject=self.subject,
            remedy=remedy,
            retriable=False,
        )

    def _told(self, url: str, status: int | None, code: int | None, message: str) -> str:
        answered = "did not answer" if status is None else f"answered {status}"
        if code is not None and code != status:
            answered += f" (error code {code})"
        return f"the schema registry {url} {answered}{self._about()}: {message}"

    def _about(self) -> str:
        return "" if self.subject is None else f" for subject {self.subject!r}"


def _check_header(value: object, what: str) -> None:
    """Refuse a header value that the HTTP library would refuse with the value, maybe a secret, in its message."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigError(f"{what} is not a valid HTTP header value (a line break at its end?)")


def _drop_frames(error: BaseException) -> None:
    """Remove the HTTP library's frames, which hold the request's headers in clear text."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def _loop_here() -> object:
    """Return an object that identifies the current event loop, asyncio's or trio's."""
    loop = asyncio_loop_here()
    if loop is not None:
        return loop
    trio: Any = sys.modules["trio"]  # anyio has found an event loop before
    return trio.lowlevel.current_trio_token()


async def _read(response: httpx2.Response) -> bytes | None:
    """Return the answer's body, or None if it is too large."""
    read = bytearray()
    async for part in response.aiter_bytes():
        read += part
        if len(read) > _MAX_ANSWER:
            return None
    return bytes(read)


def _complaint(read: bytes) -> tuple[int | None, str]:
    """Return the registry's own error code and message, or the answer's text."""
    try:
        answer = json.loads(read)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return None, read[:200].decode(errors="replace") or "no explanation"
    code = answer.get("error_code")
    message = str(answer.get("message", "no explanation"))
    return (code if type(code) is int else None), message[:_MESSAGE_LENGTH]


def _seconds(retry_after: str | None) -> float:
    """Return `Retry-After` in seconds; 0 if there is none, or if it is a date, which registries do not send."""
    try:
        seconds = float(retry_after or 0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
