"""When a group commit ends a transaction: by its interval, by its calm, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproduce import Producer
from aioproduce.testing.simulation import Simulation
from tests.simulation.sides import config_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce.producer.group_commit import GroupCommit

INTERVAL = 10.0
CALM = INTERVAL / 10
SLACK = 0.2
"""Connections, and what a transaction asks of brokers."""


def run(story: Callable[[GroupCommit, Simulation], Awaitable[None]]) -> None:
    simulation = Simulation(1, brokers=1, topics={"orders": 1})

    async def main() -> None:
        config = config_of(simulation, {"transactional_id": "orders-1"})
        async with Producer(config) as producer, producer.group_commit(INTERVAL) as group:
            await group.send("orders", b"everything is known and connected from now on")
            await story(group, simulation)

    simulation.run(main())


def test_tasks_that_all_wait_need_not_wait_for_the_interval() -> None:
    async def story(group: GroupCommit, simulation: Simulation) -> None:
        began = simulation.clock.now

        async def task() -> None:
            for _ in range(5):
                await group.send("orders", b"42")

        await asyncio.gather(*(task() for _ in range(20)))
        assert 5 * CALM <= simulation.clock.now - began < 5 * (CALM + SLACK)

    run(story)


def test_while_records_come_the_interval_is_the_bound() -> None:
    async def story(group: GroupCommit, simulation: Simulation) -> None:
        began = simulation.clock.now
        ended: list[float] = []

        async def task(at: float) -> None:
            await asyncio.sleep(at)
            await group.send("orders", b"42")
            ended.append(simulation.clock.now - began)

        await asyncio.gather(*(task(number * CALM / 2) for number in range(60)))
        first = [at for at in ended if at < 2 * INTERVAL]
        assert all(INTERVAL <= at < INTERVAL + SLACK for at in first)
        assert 18 <= len(first) <= 21
        last = 59 * CALM / 2
        assert last + CALM <= max(ended) < last + CALM + SLACK

    run(story)
