"""A producer in an aiohttp application: a `cleanup_ctx` context, typed keys, health handlers, error answers.

Used by applications; needs the extra `aiohttp`.

Invariants:

1. The producer runs from the application's start until after its last request. Contexts that are added later end
   before the producer does.
2. A subapplication uses the service of its parent application.

Example:
    >>> app = web.Application()
    >>> setup(app, ProducerService(lambda: Producer("localhost:9092")))
    >>> async def order(request: web.Request) -> web.Response:
    ...     order = await request.read()
    ...     metadata = await request.app[SERVICE].send("orders", order, deadline=deadline_of(request))
    ...     return web.json_response({"offset": metadata.offset}, status=201)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from aioproduce.errors import MissingExtraError, NotStartedError, ProducerError

with MissingExtraError.unless_installed("aioproduce.integrations.aiohttp", extra="aiohttp", name="aiohttp"):
    from aiohttp import web
    from aiohttp.typedefs import Handler, Middleware

from aioproduce.integrations.answers import CONTENT_TYPE, NOT_STORED, health_document
from aioproduce.integrations.service import ProducerService
from aioproduce.producer.producer import Producer
from aioproduce.spool import SpooledProducer

if TYPE_CHECKING:
    from aioproduce.integrations.service_values import Deadline, Health

__all__ = [
    "PRODUCER",
    "SERVICE",
    "SPOOLED",
    "ProducerService",
    "add_health_routes",
    "deadline_of",
    "error_answers",
    "producer_context",
    "service_of",
    "setup",
]

SERVICE: Final = web.AppKey("aioproduce.service", ProducerService)
"""`app[SERVICE]` is the service."""

PRODUCER: Final[web.AppKey[Producer[Any, Any]]] = web.AppKey("aioproduce.producer", Producer)
"""`app[PRODUCER]` is its running producer."""

SPOOLED: Final = web.AppKey("aioproduce.spooled", SpooledProducer)
"""`app[SPOOLED]` is the running producer of a service with a queue on disk, in place of `app[PRODUCER]`."""


def setup(app: web.Application, service: ProducerService, *, health: str | None = "/health") -> None:
    """Add the service's lifetime, its health routes and its error answers to an application.

    Args:
        app: The application.
        service: The service.
        health: The path prefix of the health routes; `None` for none.
    """
    app.cleanup_ctx.append(producer_context(service))
    app.middlewares.append(error_answers(service))
    if health is not None:
        add_health_routes(app, service, health)


def producer_context(service: ProducerService) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return the context that runs the service: `app.cleanup_ctx.append(producer_context(service))`.

    Add it before the contexts that send: aiohttp ends them in reverse order.
    """

    async def context(app: web.Application) -> AsyncIterator[None]:
        async with service:
            app[SERVICE] = service
            if service.has_spool:
                app[SPOOLED] = service.spooled
            else:
                app[PRODUCER] = service.producer
            yield

    return context


def service_of(request: web.Request) -> ProducerService:
    """Return the service of the request's application, or of an application that contains it.

    Raises:
        NotStartedError: If there is none.
    """
    service = request.config_dict.get(SERVICE)
    if service is None:
        raise NotStartedError(
            "no producer service is running in this application: add it with setup(app, service)"
        )
    return service


def deadline_of(request: web.Request) -> Deadline:
    """Return the deadline of a request: the client's `timeout_header`, at most `request_timeout`.

    Raises:
        InvalidDeadlineError: If the header is not a number of seconds above 0; `error_answers()` answers with 400.
    """
    service = service_of(request)
    return service.deadline(request.headers.get(service.timeout_header))


def error_answers(service: ProducerService) -> Middleware:
    """Return a middleware that answers the producer's errors as described in `docs/how-to/services.md`."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ProducerError as error:
            answer = service.answer(error)
            if answer is None:
                raise
            return web.Response(
                body=answer.body, status=answer.status, headers=answer.headers, content_type=CONTENT_TYPE
            )

    return answer_errors


def add_health_routes(app: web.Application, service: ProducerService, prefix: str = "/health") -> None:
    """Add `{prefix}/ready` and `{prefix}/live` for load balancers: 200, or 503 with the reasons."""

    async def ready(_: web.Request) -> web.Response:
        return _health_response(service, service.readiness(), "ready")

    async def live(_: web.Request) -> web.Response:
        return _health_response(service, service.liveness(), "live")

    app.router.add_get(f"{prefix}/ready", ready)
    app.router.add_get(f"{prefix}/live", live)


def _health_response(service: ProducerService, health: Health, word: str) -> web.Response:
    document = health_document(service, health, word)
    return web.json_response(document, status=200 if health.is_well else 503, headers=NOT_STORED)
