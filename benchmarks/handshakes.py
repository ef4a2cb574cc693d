"""The lateness of the loop while 100 connections open at once, each with a TLS handshake, or also with a login.

Called by `__main__.py`, in its process. The brokers are in another process: the null broker, which answers a
handshake at once, and for logins a FakeCluster.

1. The loop is watched from before the first connection is opened until a record is acknowledged on each.
2. Every round opens new connections, and logins use a new user each round: SCRAM's keys are derived again.
3. All connections of a round come at once: a loop that finds ten ready in an iteration serves all ten before its
   timer.
4. Objects from before a round are frozen (`gc.freeze`), as in a service that does so after its start: a full
   collection of the 80,000 objects of these benchmarks takes 70 ms, occurs once in about ten rounds, and is not
   part of handshakes. Objects of the round itself are collected while it is watched.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import uvloop

from aioproduce import Producer
from benchmarks.broker import broker_process
from benchmarks.cases import TOPIC
from benchmarks.certificate import certificate
from benchmarks.loop_clock import LoopWatch, percentiles
from benchmarks.null_broker import null_broker

CONNECTIONS = 100
LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
Figures = dict[str, float]
Settings = Mapping[str, Any]


async def _by_one_producer(settings: Settings) -> tuple[list[float], float]:
    """Connect a producer to each of 100 known brokers; return the loop's lateness, and the seconds that it took."""
    async with Producer({**settings, "linger.ms": "0"}) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        with LoopWatch() as watch:
            began = time.perf_counter()
            for partition in range(CONNECTIONS):
                await producer.send(TOPIC, b"value", partition=partition)
            await producer.flush()
            seconds = time.perf_counter() - began
            # A tick of the last iteration is served in the next one.
            await asyncio.sleep(0.002)
        assert producer.metrics().value("connection-creation-total") >= CONNECTIONS
    return watch.late, seconds


async def _by_many_producers(settings: Settings) -> tuple[list[float], float]:
    """Connect fifty producers, each to a bootstrap server and to the leader; return lateness and seconds."""
    async with AsyncExitStack() as stack:
        producers = [Producer({**settings, "linger.ms": "0"}) for _ in range(CONNECTIONS // 2)]
        with LoopWatch() as watch:
            began = time.perf_counter()
            await asyncio.gather(*(stack.enter_async_context(producer) for producer in producers))
            await asyncio.gather(
                *(producer.send_and_wait(TOPIC, b"value", partition=1) for producer in producers)
            )
            seconds = time.perf_counter() - began
            await asyncio.sleep(0.002)
    return watch.late, seconds


async def _rounds(open_all: Callable[[Settings], Any], each: list[Settings]) -> Figures:
    late: list[float] = []
    seconds = 0.0
    for settings in each:
        gc.collect()
        gc.freeze()
        more, took = await open_all(settings)
        gc.unfreeze()
        late += more
        seconds += took
    return {
        "connections": CONNECTIONS * len(each),
        "milliseconds_each": seconds / len(each) / CONNECTIONS * 1e3,
        **percentiles("stall", late),
    }


async def _floor(seconds: float) -> Figures:
    with LoopWatch() as watch:
        await asyncio.sleep(seconds)
    return watch.figures()


def _encrypted(rounds: int, measure: Callable[[list[Settings]], Figures]) -> Figures:
    made = certificate()
    with null_broker(topics={TOPIC: CONNECTIONS}, brokers=CONNECTIONS, certificate=made.broker) as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers.partition(",")[0],
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(made.ca),
        }
        return measure([settings] * rounds)


def _logged_in(rounds: int, measure: Callable[[list[Settings]], Figures]) -> Figures:
    users = [f"user-{number}" for number in range(rounds)]
    security = {"protocol": "SASL_SSL", "users": {user: f"{user}-secret" for user in users}}
    brokers = broker_process(topic=TOPIC, partitions=CONNECTIONS, brokers=CONNECTIONS, security=security)
    with brokers as broker:
        first = broker.bootstrap_servers.partition(",")[0]
        return measure(
            [{**broker.settings(user, "SCRAM-SHA-512"), "bootstrap.servers": first} for user in users]
        )


def measures(rounds: int) -> dict[str, Callable[[], Figures]]:
    """Return all measures by their names in the tables."""
    made: dict[str, Callable[[], Figures]] = {}
    for loop, factory in LOOPS.items():

        def run(coroutine: Any, factory: Callable[[], asyncio.AbstractEventLoop] = factory) -> Figures:
            with asyncio.Runner(loop_factory=factory) as runner:
                figures: Figures = runner.run(coroutine)
            return figures

        def floor(run: Any = run) -> Figures:
            figures: Figures = run(_floor(1.0))
            return figures

        made[f"no handshakes ({loop})"] = floor
        for kind, with_brokers in (("TLS", _encrypted), ("TLS and SCRAM-SHA-512", _logged_in)):
            for who, open_all in (("one producer", _by_one_producer), ("50 producers", _by_many_producers)):

                def measure(
                    run: Any = run, with_brokers: Any = with_brokers, open_all: Any = open_all
                ) -> Figures:
                    figures: Figures = with_brokers(rounds, lambda each: run(_rounds(open_all, each)))
                    return figures

                made[f"{CONNECTIONS} x {kind}, {who} ({loop})"] = measure
    return made
