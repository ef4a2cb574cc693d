"""What the service tests do again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from aioproduce import Producer
from aioproduce.errors import MaxBlockTimeoutError, OutcomeUnknownError
from aioproduce.integrations.service import ProducerService
from aioproduce.integrations.service_values import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing import FakeCluster

# Longer than any test: what waits for this in vain hangs, and the hang is the failure.
FOREVER = 3600.0
FOREVER_MS = 3_600_000


def client_for(url: str) -> httpx.AsyncClient:
    """A client that waits as long as it takes, with a connection for each request.

    A server ends a connection that is idle for some seconds, which on a slow machine is just when it is used again.
    """
    return httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits(max_keepalive_connections=0))


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds; a hang ends by pytest's time-out."""
    while not condition():  # noqa: ASYNC110  (nothing tells)
        await asyncio.sleep(0.001)


def make_service(
    cluster: FakeCluster, settings: dict[str, Any] | None = None, **options: Any
) -> ProducerService:
    """A service whose bounds are so far away that no test comes near them, unless it says so."""
    producer = {"linger_ms": 0, "max_block_ms": FOREVER_MS, **(settings or {})}
    return ProducerService(
        lambda: Producer(cluster.bootstrap_servers, **producer),
        **{"drain_timeout": FOREVER, "request_timeout": FOREVER, **options},
    )


async def send_until_unknown(service: ProducerService, value: bytes) -> OutcomeUnknownError:
    """Send to brokers that are stalled, with as much time as this machine needs to get a record accepted."""
    seconds = 0.01
    while True:
        try:
            await service.send("orders", value, deadline=Deadline(seconds))
        except MaxBlockTimeoutError:
            seconds *= 2
        except OutcomeUnknownError as error:
            return error
        else:
            raise AssertionError("it was acknowledged")


async def ready(service: ProducerService) -> None:
    """Wait until it is ready."""
    await until(lambda: service.readiness().is_well)


def values(cluster: FakeCluster) -> list[bytes | None]:
    """What is in the log."""
    return [record.value for record in cluster.records("orders")]


def stall(cluster: FakeCluster, *, is_stalled: bool = True) -> None:
    """No broker answers any more, or each does again."""
    for broker in cluster.ports:
        (cluster.faults.stall if is_stalled else cluster.faults.resume)(broker)
