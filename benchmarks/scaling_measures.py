"""The measures behind the scaling curves. Called in a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import cycle
from typing import Any

from aioproduce import Producer
from benchmarks.cases import Case, Outcome
from benchmarks.clients import aioproduce_client, client
from benchmarks.clients.measuring import in_tasks, measure_async, run


def dropped(case: Case, bootstrap_servers: str) -> Outcome:
    """`await send()` in a loop, `flush()` at the end."""
    opened = aioproduce_client.opened(case, bootstrap_servers)
    outcome: Outcome = run(case, measure_async(case, opened, aioproduce_client.dropped))
    return outcome


def spread(case: Case, bootstrap_servers: str) -> Outcome:
    """The same, to each partition in turn, or to each of many topics (of one partition) in turn."""
    partitions, topics = int(case.options.get("partitions", 0)), int(case.options.get("topics", 0))
    if partitions:
        places: list[tuple[str, int]] = [(case.topic, partition) for partition in range(partitions)]
    else:
        places = [(f"{case.topic}-{number}", 0) for number in range(topics)]

    async def send(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
        send = producer.send
        # The places continue where the last part of the run ended.
        for value, (topic, partition) in zip(values, turns, strict=False):
            await send(topic, value, partition=partition)
        await producer.flush()
        return count - producer.unobserved_failures

    turns = cycle(places)
    opened = aioproduce_client.opened(case, bootstrap_servers, max_block_ms=300_000)
    outcome: Outcome = run(case, measure_async(case, opened, send))
    return outcome


def senders(case: Case, bootstrap_servers: str) -> Outcome:
    """``options["tasks"]`` tasks of `send_and_wait`; with one, each record is awaited before the next is sent."""
    made: Any = client(case.client)

    async def send(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
        return await in_tasks(producer.send_and_wait, case, values, count)

    outcome: Outcome = run(case, measure_async(case, made.opened(case, bootstrap_servers), send))
    return outcome


def waiters(case: Case, bootstrap_servers: str) -> Outcome:
    """Let tasks wait in `send()` for memory all the time; each record fills a batch, and is one wake-up."""
    slots = case.settings.buffer_memory // case.settings.batch_size
    tasks = int(case.options["tasks"]) + slots

    async def send(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
        source, topic = iter(values), case.topic

        async def one() -> None:
            for value in source:
                await producer.send(topic, value)

        await asyncio.gather(*(one() for _ in range(tasks)))
        await producer.flush()
        return count - producer.unobserved_failures

    opened = aioproduce_client.opened(case, bootstrap_servers, max_block_ms=300_000)
    outcome: Outcome = run(case, measure_async(case, opened, send))
    return outcome
