"""The places for messages: as many as there may be, given in the order of asking, each given back once."""

from __future__ import annotations

import asyncio

from aioproduce.compat.confluent_room import MessageRoom


async def _let_all_run() -> None:
    # As many turns as the longest chain of wake-ups takes, and some more.
    for _ in range(20):
        await asyncio.sleep(0)


async def test_places_are_given_in_turn() -> None:
    room = MessageRoom(2)
    assert room.try_take()
    assert room.try_take()
    assert not room.try_take()
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await room.take(3600)
        order.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(4)]
    await _let_all_run()
    assert order == []
    for expected in range(4):
        room.give_back()
        assert not room.try_take()  # nobody overtakes
        await _let_all_run()
        assert order == list(range(expected + 1))
    await asyncio.gather(*tasks)
    assert (room.taken, room.outcomes) == (2, 4)
    room.give_back()
    room.give_up()
    assert (room.taken, room.outcomes) == (0, 5)


async def test_no_place_in_time() -> None:
    room = MessageRoom(1)
    assert await room.take(0)
    assert not await room.take(0.001)
    room.give_back()
    assert room.taken == 0
    assert room.try_take()


async def test_who_is_cancelled_while_waiting_takes_no_place() -> None:
    room = MessageRoom(1)
    assert room.try_take()
    waits = asyncio.create_task(room.take(3600))
    await _let_all_run()
    waits.cancel()
    await asyncio.wait([waits])
    assert waits.cancelled()
    room.give_back()
    assert room.taken == 0


async def test_who_is_cancelled_as_the_place_came_passes_it_on() -> None:
    room = MessageRoom(1)
    assert room.try_take()
    first, second = (asyncio.create_task(room.take(3600)) for _ in range(2))
    await _let_all_run()
    room.give_back()
    first.cancel()  # before it had a turn
    await asyncio.wait([first])
    assert first.cancelled()
    assert await second
    assert room.taken == 1


async def test_waiting_for_an_outcome() -> None:
    room = MessageRoom(5)
    await room.outcome(None)  # nothing is on its way: nothing to wait for
    assert room.try_take()
    assert room.try_take()
    await room.outcome(0.001)
    waits = [asyncio.create_task(room.outcome(None)) for _ in range(3)]
    await _let_all_run()
    assert not any(task.done() for task in waits)
    room.give_back()
    await asyncio.gather(*waits)
    assert room.taken == 1
