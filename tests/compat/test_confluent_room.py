"""Room for messages: for as many as there may be, given in the order of asking."""

from __future__ import annotations

import asyncio

from aioproduce import Producer
from aioproduce.compat.confluent_room import MessageRoom
from aioproduce.testing import FakeCluster


class Way:
    """Messages on their way, settled by hand."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def __call__(self) -> int:
        return self.count


async def _let_all_run() -> None:
    # As many turns as the longest chain of wake-ups takes, and some more.
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nothing_is_looked_at_before_there_may_be_no_room() -> None:
    def never() -> int:
        raise AssertionError("looked")

    room = MessageRoom(100, never)
    for _ in range(100):
        assert room.left > 0
        assert not room.is_contended
        room.left -= 1
    assert room.left == 0


async def test_room_is_given_in_turn() -> None:
    way = Way(1)
    room = MessageRoom(1, way)
    room.left = 0
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await room.take(3600)
        room.left -= 1
        way.count += 1
        order.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(4)]
    await _let_all_run()
    assert order == []
    assert room.is_contended
    for expected in range(1, 5):
        way.count = 0
        while len(order) < expected:  # noqa: ASYNC110  # it looks again by the clock
            await asyncio.sleep(0.001)
        await _let_all_run()
        assert order == list(range(expected))
    await asyncio.gather(*tasks)
    assert not room.is_contended


async def test_no_room_in_time() -> None:
    room = MessageRoom(1, Way(1))
    room.left = 0
    assert not await room.take(0.001)
    assert not room.is_contended


async def test_who_is_cancelled_while_waiting_lets_the_next_one_go() -> None:
    way = Way(1)
    room = MessageRoom(1, way)
    room.left = 0
    first, second = (asyncio.create_task(room.take(3600)) for _ in range(2))
    await _let_all_run()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    way.count = 0
    assert await second


async def test_an_outcome_of_any_marked_message_is_enough() -> None:
    async with (
        FakeCluster(brokers=2, topics={"slow": 1, "quick": 1}) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        for topic in ("slow", "quick"):
            await producer.send_and_wait(topic, b"first")
        slow_leader = cluster.leader("slow", 0)
        if cluster.leader("quick", 0) == slow_leader:
            cluster.move_leader("quick", 0, 1 - slow_leader)
            await producer.send_and_wait("quick", b"found")
        cluster.faults.stall(slow_leader)
        room = MessageRoom(8, lambda: 8)
        slow = await producer.send("slow", b"v")
        room.mark(slow)
        quick = await producer.send("quick", b"v")
        room.mark(quick)
        while not quick.done():
            await room.outcome()
        assert not slow.done()
        cluster.faults.resume(slow_leader)
        await slow
