"""A producer in a Starlette application; FastAPI uses this, too.

Used by applications: a lifespan, health routes, exception handlers. Needs Starlette, which the extra `fastapi`
installs.

Invariants:

1. The lifespan wraps the application's own, which starts after the producer and ends before it.
2. Requests find the service in the lifespan's state, which reaches mounted applications, or in `app.state` if the
   server does not pass on that state (tests without a server).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from aioproduce.errors import MissingExtraError, NotStartedError

with MissingExtraError.unless_installed(
    "aioproduce.integrations.starlette", extra="fastapi", name="starlette"
):
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.websockets import WebSocket

from aioproduce.integrations.answers import ANSWERED, CONTENT_TYPE, NOT_STORED, health_document

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from aioproduce.integrations.service import ProducerService
    from aioproduce.integrations.service_values import Health
    from aioproduce.producer.producer import Producer
    from aioproduce.spool import SpooledProducer

__all__ = [
    "DEFAULT_NAME",
    "add_error_handlers",
    "health_routes",
    "install",
    "lifespan",
    "producer_of",
    "service_of",
    "spooled_of",
]

DEFAULT_NAME: Final = "aioproduce"
"""The service's name in the application's state."""

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(
    service: ProducerService, own: Lifespan | None = None, *, name: str = DEFAULT_NAME
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that runs the service around the application's own lifespan, if any.

    Args:
        service: The service.
        own: The application's lifespan, as it would be passed to the application itself. Its result is kept.
            The producer runs before it starts and until it has ended.
        name: A name for each service, if there are several; each lifespan wraps the previous one.

    Example:
        >>> app = Starlette(lifespan=lifespan(service, own_lifespan))
    """

    @contextlib.asynccontextmanager
    async def run(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with service:
            setattr(app.state, name, service)
            if own is None:
                yield {name: service}
            else:
                async with own(app) as state:
                    yield {**(state or {}), name: service}

    return run


def service_of(connection: HTTPConnection, name: str = DEFAULT_NAME) -> ProducerService:
    """Return the service of a request's or websocket's application.

    Raises:
        NotStartedError: If it has none, or if its lifespan did not run.
    """
    scope = connection.scope
    service = scope.get("state", {}).get(name)
    if service is None:
        service = getattr(scope["app"].state, name, None)
    if service is None:
        raise NotStartedError(
            f"no producer service {name!r} is running in this application: create it with "
            "lifespan=lifespan(service), and run it with a server that supports lifespans (a test: `async "
            "with app.router.lifespan_context(app)`)"
        )
    return cast("ProducerService", service)


def producer_of(connection: HTTPConnection, name: str = DEFAULT_NAME) -> Producer[Any, Any]:
    """Return the running producer of a request's or websocket's application.

    Raises:
        NotStartedError: If it has none, or if its lifespan did not run.
    """
    return service_of(connection, name).producer


def spooled_of(connection: HTTPConnection, name: str = DEFAULT_NAME) -> SpooledProducer:
    """Return the running producer of an application whose service has a queue on disk.

    Raises:
        NotStartedError: If it has none, or if its lifespan did not run.
    """
    return service_of(connection, name).spooled


def health_routes(service: ProducerService, prefix: str = "/health") -> list[Route]:
    """Return `{prefix}/ready` and `{prefix}/live` for load balancers: 200, or 503 with the reasons."""

    async def ready(_: Request) -> Response:
        return _health_response(service, service.readiness(), "ready")

    async def live(_: Request) -> Response:
        return _health_response(service, service.liveness(), "live")

    return [Route(f"{prefix}/ready", ready), Route(f"{prefix}/live", live)]


def _health_response(service: ProducerService, health: Health, word: str) -> Response:
    body = json.dumps(health_document(service, health, word))
    status = 200 if health.is_well else 503
    return Response(body, status, headers=NOT_STORED, media_type="application/json")


def add_error_handlers(app: Starlette, service: ProducerService) -> None:
    """Answer the producer's errors as described in `docs/how-to/services.md`: 503 with Retry-After, 504, 413, 400.

    A websocket is closed with 1013 (try again later) instead of 503, and with 1011 instead of the others.

    Errors that are bugs of the service (a denied topic, a value that cannot be serialized) stay the framework's
    500.
    """

    async def handle(connection: Request | WebSocket, error: Exception) -> Response | None:
        answer = service.answer(error)
        if answer is None:
            raise error
        if isinstance(connection, WebSocket):
            await connection.close(1013 if answer.status == 503 else 1011, answer.title)
            return None
        return Response(answer.body, answer.status, headers=answer.headers, media_type=CONTENT_TYPE)

    for kind in ANSWERED:
        # Typed for responses only, but also called for websockets, where the result is ignored.
        app.add_exception_handler(kind, cast(Any, handle))


def install(app: Starlette, service: ProducerService, *, health: str | None = "/health") -> None:
    """Add health routes and error handlers to an application that was created with `lifespan(service)`.

    Args:
        app: A Starlette or FastAPI application.
        service: The service.
        health: The path prefix of the health routes; `None` for none.
    """
    add_error_handlers(app, service)
    if health is not None:
        app.router.routes.extend(health_routes(service, health))
