"""A producer in an aiohttp application: a `cleanup_ctx` context, typed keys, health handlers, error answers.

Used by applications; needs the extra `aiohttp`.

Invariants:

1. The producer runs from the application's start until after its last request; contexts that were added later
   end before it does.
2. Subapplications see the service of the application that they are in.

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

if TYPE_CHECKING:
    from aioproduce.integrations.service_values import Deadline, Health

__all__ = [
    "PRODUCER",
    "SERVICE",
    "ProducerService",
    "add_health_routes",
    "deadline_of",
    "error_answers",
    "producer_context",
    "service_of",
    "setup",
]

SERVICE: Final = web.AppKey("aioproduce.service", ProducerService)
"""`app[SERVICE]`: the service."""

PRODUCER: Final[web.AppKey[Producer[Any, Any]]] = web.AppKey("aioproduce.producer", Producer)
"""`app[PRODUCER]`: its running producer."""


def setup(app: web.Application, service: ProducerService, *, health: str | None = "/health") -> None:
    """All of it: the service's life, health routes, error answers.

    Args:
        app: The application.
        service: The service.
        health: Where its health is asked for; `None` for nowhere.
    """
    app.cleanup_ctx.append(producer_context(service))
    app.middlewares.append(error_answers(service))
    if health is not None:
        add_health_routes(app, service, health)


def producer_context(service: ProducerService) -> Callable[[web.Application], AsyncIterator[None]]:
    """What runs the service: `app.cleanup_ctx.append(producer_context(service))`.

    Put it before the contexts that send: aiohttp ends them in the opposite order.
    """

    async def context(app: web.Application) -> AsyncIterator[None]:
        async with service:
            app[SERVICE] = service
            app[PRODUCER] = service.producer
            yield

    return context


def service_of(request: web.Request) -> ProducerService:
    """The service of the application that the request came to, or of one that this is a part of.

    Raises:
        NotStartedError: there is none.
    """
    service = request.config_dict.get(SERVICE)
    if service is None:
        raise NotStartedError("no producer service runs in this application: setup(app, service) adds it")
    return service


def deadline_of(request: web.Request) -> Deadline:
    """Until when the request may take: the client's `timeout_header`, at most `request_timeout`.

    Raises:
        InvalidDeadlineError: the header is no number of seconds above 0; `error_answers()` answers with 400.
    """
    service = service_of(request)
    return service.deadline(request.headers.get(service.timeout_header))


def error_answers(service: ProducerService) -> Middleware:
    """A middleware that answers the producer's errors as `docs/how-to/services.md` says."""

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
    """`{prefix}/ready` and `{prefix}/live`, for load balancers: 200, or 503 with the reasons."""

    async def ready(_: web.Request) -> web.Response:
        return _health_response(service, service.readiness(), "ready")

    async def live(_: web.Request) -> web.Response:
        return _health_response(service, service.liveness(), "live")

    app.router.add_get(f"{prefix}/ready", ready)
    app.router.add_get(f"{prefix}/live", live)


def _health_response(service: ProducerService, health: Health, word: str) -> web.Response:
    document = health_document(service, health, word)
    return web.json_response(document, status=200 if health.is_well else 503, headers=NOT_STORED)
