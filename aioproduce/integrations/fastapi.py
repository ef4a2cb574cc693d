"""A producer in a FastAPI application: typed dependencies, and the names of `aioproduce.integrations.starlette`.

Used by applications; needs the extra `fastapi`.

Example:
    >>> service = ProducerService(lambda: Producer("localhost:9092"))
    >>> app = FastAPI(lifespan=lifespan(service))
    >>> install(app, service)
    >>> @app.post("/orders")
    ... async def order(order: Order, service: ServiceDep, deadline: DeadlineDep) -> Placed:
    ...     metadata = await service.send("orders", order.model_dump_json().encode(), deadline=deadline)
    ...     return Placed(offset=metadata.offset)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

from aioproduce.errors import MissingExtraError

with MissingExtraError.unless_installed("aioproduce.integrations.fastapi", extra="fastapi", name="fastapi"):
    import fastapi

# FastAPI evaluates the annotations of dependencies at run time.
from starlette.requests import HTTPConnection

from aioproduce.integrations.service import ProducerService
from aioproduce.integrations.service_values import Deadline
from aioproduce.integrations.starlette import (
    DEFAULT_NAME,
    add_error_handlers,
    health_routes,
    install,
    lifespan,
    service_of,
    spooled_of,
)
from aioproduce.producer.producer import Producer
from aioproduce.spool import SpooledProducer

__all__ = [
    "DeadlineDep",
    "ProducerDep",
    "ProducerService",
    "ServiceDep",
    "SpooledDep",
    "add_error_handlers",
    "health_router",
    "install",
    "lifespan",
    "producer_dependency",
    "service_dependency",
]


# All are coroutine functions: FastAPI calls plain functions in threads, which costs ten times as much.


def producer_dependency(name: str) -> Callable[[HTTPConnection], Awaitable[Producer[Any, Any]]]:
    """Return the dependency for the producer of one of several services.

    Example:
        >>> AuditDep = Annotated[Producer, Depends(producer_dependency("audit"))]
    """

    async def producer(connection: HTTPConnection) -> Producer[Any, Any]:
        return service_of(connection, name).producer

    return producer


def service_dependency(name: str = DEFAULT_NAME) -> Callable[[HTTPConnection], Awaitable[ProducerService]]:
    """Return the dependency for one of several services, by its name in `lifespan(..., name=...)`."""

    async def service(connection: HTTPConnection) -> ProducerService:
        return service_of(connection, name)

    return service


async def _deadline(connection: HTTPConnection) -> Deadline:
    service = service_of(connection)
    return service.deadline(connection.headers.get(service.timeout_header))


async def _spooled(connection: HTTPConnection) -> SpooledProducer:
    return spooled_of(connection)


ServiceDep: TypeAlias = Annotated[ProducerService, fastapi.Depends(service_dependency())]
"""The service, with `send()` within a deadline and `background()`."""

ProducerDep: TypeAlias = Annotated[Producer[Any, Any], fastapi.Depends(producer_dependency(DEFAULT_NAME))]
"""The running producer."""

SpooledDep: TypeAlias = Annotated[SpooledProducer, fastapi.Depends(_spooled)]
"""The running producer of a service with a queue on disk, in place of `ProducerDep`."""

DeadlineDep: TypeAlias = Annotated[Deadline, fastapi.Depends(_deadline)]
"""The deadline of this request: the client's `timeout_header`, at most `request_timeout`. The answer to an invalid
header is 400."""


def health_router(service: ProducerService, prefix: str = "/health") -> fastapi.APIRouter:
    """Return `{prefix}/ready` and `{prefix}/live` as a router, for applications that add it themselves."""
    return fastapi.APIRouter(routes=list(health_routes(service, prefix)))
