"""The cost that the FastAPI dependency adds to a request: `python -m benchmarks.service_overhead`.

One application has one route for each step from nothing to an acknowledged record. They are requested in turn, in
another order each round, so that the machine is the same for all. The cost of a step is the median of its
differences to the bare route in the same round; the difference of the medians is shown next to it.

| route | what it does | difference to the one before |
|---|---|---|
| `bare` | answers 204 | |
| `nothing` | has a dependency that does nothing | FastAPI's own cost of a dependency |
| `dependency` | has `ProducerDep`, and does not use it | finding the producer |
| `send` | also sends a record by `send()` | accepting the record |
| `global` | `send()` of a producer in a global variable, no dependency | (to `bare`: `send()` alone) |
| `send_now` | the same with `linger.ms=0`: the record goes to the broker before the answer goes to the client | |
| `send_and_wait` | `ProducerDep`, and waits for the acknowledgement | the round trip to the null broker |
| `service` | `ServiceDep` and `DeadlineDep`, `service.send()` | |

It is measured twice: within the process (the application is called as a server calls it; wall and processor
time of the loop's thread), and through uvicorn over one connection that stays open, from another process. The
broker is the null broker, a third process; `linger.ms` is 5, the default, and 0 for the last three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import uvicorn
import uvloop
from fastapi import Depends, FastAPI, Response
from rich.console import Console
from rich.table import Table

from aioproduce import Producer
from aioproduce.integrations.fastapi import (
    DeadlineDep,
    ProducerDep,
    ProducerService,
    lifespan,
    producer_dependency,
    service_dependency,
)
from benchmarks.broker import broker_process
from benchmarks.null_broker import null_broker

ROUTES = ("bare", "nothing", "dependency", "global", "send", "send_now", "send_and_wait", "service")
# Each step, and the step to compare it with.
STEPS = (
    ("FastAPI's price of a dependency", "nothing", "bare"),
    ("finding the producer", "dependency", "nothing"),
    ("ProducerDep", "dependency", "bare"),
    ("send() alone", "global", "bare"),
    ("ProducerDep and send()", "send", "bare"),
    ("ProducerDep and send(), linger.ms=0", "send_now", "bare"),
    ("ProducerDep and send_and_wait()", "send_and_wait", "bare"),
    ("ServiceDep, DeadlineDep, service.send()", "service", "bare"),
)
VALUE = b"x" * 100
TOPIC = "bench"

WaitingDep: TypeAlias = Annotated[Producer, Depends(producer_dependency("waiting"))]
WaitingServiceDep: TypeAlias = Annotated[ProducerService, Depends(service_dependency("waiting"))]


async def _nothing() -> None:
    return None


def make_app(servers: str) -> FastAPI:
    """Return the application; the producer in its routes is the service's."""
    service = ProducerService(lambda: Producer(servers))
    waiting = ProducerService(lambda: Producer(servers, linger_ms=0))
    app = FastAPI(lifespan=lifespan(service, lifespan(waiting, name="waiting")))
    done = Response(status_code=204)

    @app.post("/bare")
    async def bare() -> Response:
        return done

    @app.post("/nothing")
    async def nothing(nothing: Annotated[None, Depends(_nothing)]) -> Response:
        return done

    @app.post("/dependency")
    async def dependency(producer: ProducerDep) -> Response:
        return done

    @app.post("/send")
    async def send(producer: ProducerDep) -> Response:
        await producer.send(TOPIC, VALUE)
        return done

    @app.post("/global")
    async def of_a_global() -> Response:
        await service.producer.send(TOPIC, VALUE)
        return done

    @app.post("/send_now")
    async def send_now(producer: WaitingDep) -> Response:
        await producer.send(TOPIC, VALUE)
        return done

    @app.post("/send_and_wait")
    async def send_and_wait(producer: WaitingDep) -> Response:
        await producer.send_and_wait(TOPIC, VALUE)
        return done

    @app.post("/service")
    async def by_the_service(service: WaitingServiceDep, deadline: DeadlineDep) -> Response:
        await service.send(TOPIC, VALUE, deadline=deadline)
        return done

    return app


def warm_up(requests: int) -> int:
    """Return how many rounds come before those that count."""
    return min(requests, 300)


@contextmanager
def brokers(kind: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """Run brokers in a separate process; yield their address, and a function that counts their records."""
    if kind == "fake":
        with broker_process(topic=TOPIC, partitions=6) as fake:
            yield fake.bootstrap_servers, lambda: fake.count(TOPIC)
    else:
        with null_broker(topics={TOPIC: 6}, brokers=1) as null:
            yield null.bootstrap_servers, null.records


def shuffled(number: int) -> list[str]:
    """Return the routes in another order for each round, so that none always follows the same one."""
    return random.Random(number).sample(ROUTES, len(ROUTES))


# Within the process


async def call_directly(servers: str, requests: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each request of each route: wall time, and processor time of this thread."""
    app = make_app(servers)
    found: dict[str, dict[str, list[float]]] = {
        kind: {route: [] for route in ROUTES} for kind in ("wall", "cpu")
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 204:
            raise RuntimeError(f"answered {message['status']}")

    async with app.router.lifespan_context(app) as state:
        for number in range(requests + warm_up(requests)):
            for route in shuffled(number):
                scope = {
                    "type": "http",
                    "asgi": {"version": "3.0"},
                    "http_version": "1.1",
                    "method": "POST",
                    "path": f"/{route}",
                    "raw_path": f"/{route}".encode(),
                    "root_path": "",
                    "query_string": b"",
                    "headers": [(b"host", b"service")],
                    "scheme": "http",
                    "server": ("service", 80),
                    "client": ("client", 1),
                    "state": dict(state or {}),
                }
                # Work left by the request before must not count for this one.
                await asyncio.sleep(0.0005)
                cpu, wall = time.thread_time(), time.perf_counter()
                await app(scope, receive, send)
                wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
                if number >= warm_up(requests):
                    found["wall"][route].append(wall)
                    found["cpu"][route].append(cpu)
    return found


# Through uvicorn


def serve(servers: str, descriptor: int) -> None:
    """Run the server's process."""
    config = uvicorn.Config(make_app(servers), loop="uvloop", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def ask_over_http(servers: str, requests: int) -> dict[str, list[float]]:
    """Return the seconds until the whole answer, of each request of each route, over one connection."""
    found: dict[str, list[float]] = {route: [] for route in ROUTES}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", __spec__.name, "--serve", servers, str(listener.fileno())]
        server = subprocess.Popen(command, pass_fds=(listener.fileno(),))
        try:
            with socket.create_connection(listener.getsockname()) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for number in range(requests + warm_up(requests)):
                    for route in shuffled(number):
                        request = (
                            f"POST /{route} HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n".encode()
                        )
                        time.sleep(0.0005)  # as above
                        began = time.perf_counter()
                        connection.sendall(request)
                        answer = b""
                        while not answer.endswith(b"\r\n\r\n"):
                            part = connection.recv(4096)
                            if not part:
                                raise RuntimeError("the server closed the connection")
                            answer += part
                        taken = time.perf_counter() - began
                        if not answer.startswith(b"HTTP/1.1 204"):
                            raise RuntimeError(answer.decode())
                        if number >= warm_up(requests):
                            found[route].append(taken)
        finally:
            server.terminate()
            server.wait()
    return found


# Figures


def overheads(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return the microseconds of each step: median of the differences in a round, and difference of the medians."""
    return {
        name: {
            "paired_p50": 1e6
            * statistics.median(a - b for a, b in zip(found[route], found[base], strict=True)),
            "p50_difference": 1e6 * (statistics.median(found[route]) - statistics.median(found[base])),
        }
        for name, route, base in STEPS
    }


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "-"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_overhead", description=__doc__)
    parser.add_argument("--requests", type=int, default=2000, help="requests of each route, each way (2000)")
    parser.add_argument("--json", type=Path, help="the file for every figure")
    parser.add_argument(
        "--broker", choices=("null", "fake"), default="null", help="use fake without a C compiler"
    )
    arguments = parser.parse_args()
    with brokers(arguments.broker) as (servers, count):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            direct = runner.run(call_directly(servers, arguments.requests))
        http = ask_over_http(servers, arguments.requests)
        kept = count()
    # Five routes send in each of two ways; a missing record would make the figures meaningless.
    expected = 2 * 5 * (arguments.requests + warm_up(arguments.requests))
    if kept != expected:
        raise SystemExit(f"the broker has {kept} records instead of {expected}")
    ways = {"direct, wall": direct["wall"], "direct, CPU": direct["cpu"], "uvicorn, wall": http}
    console = Console(width=120)
    libraries = ", ".join(
        f"{name} {_version(name)}"
        for name in ("fastapi", "starlette", "uvicorn", "uvloop", "h11", "httptools")
    )
    console.print(
        f"{arguments.requests} requests of each route and way; CPython {platform.python_version()}, {libraries}; "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    routes = Table(title="a request, p50, microseconds")
    steps = Table(title="added, p50, microseconds: paired in a round (difference of the medians)")
    routes.add_column("route")
    steps.add_column("step")
    for way in ways:
        routes.add_column(way, justify="right")
        steps.add_column(way, justify="right")
    for route in ROUTES:
        routes.add_row(route, *(f"{1e6 * statistics.median(found[route]):.1f}" for found in ways.values()))
    added = {way: overheads(found) for way, found in ways.items()}
    for name, _, _ in STEPS:
        cells = (added[way][name] for way in ways)
        steps.add_row(name, *(f"{cell['paired_p50']:.1f} ({cell['p50_difference']:.1f})" for cell in cells))
    console.print(routes)
    console.print(steps)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"added": added, "requests": ways}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main()
