"""Every coroutine of a transactional producer, cancelled at every point where it waits, in both versions.

A reader of committed records sees all of each transaction or nothing, what is told is never the opposite of it, a
commit that was cancelled goes on, and the producer does the next one. How a run is made and judged is in
`cancelling_transactions`.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import TransactionError
from tests.gate.marks import most_extended
from tests.simulation.cancelling import Moment
from tests.simulation.cancelling_transactions import (
    FULL_BUFFER,
    LATE_TOPIC,
    NAME,
    SLOW,
    WORLDS,
    Call,
    LeftError,
    Run,
    Scene,
    World,
    run_call,
)
from tests.simulation.cancelling_ways import WAYS, by_cancel

if TYPE_CHECKING:
    from tests.simulation.cancelling import Way

MOST_TURNS = 30
"""In front of how many turns of the loop a call is cancelled; of more, as many are chosen evenly."""


# -- what comes before ---


async def _begun(scene: Scene) -> None:
    await scene.begin()


async def _with_records(scene: Scene) -> None:
    """Records on their way, and offsets that are taken."""
    await scene.begin()
    await scene.send_offsets()
    for _ in range(2):
        await scene.send()


async def _filled(scene: Scene) -> None:
    """One in the log, so that the topic is known."""
    await scene.begin()
    await scene.send()
    await scene.producer.flush()


async def _committing(scene: Scene) -> None:
    """A commit that nobody waits for any more."""
    await _with_records(scene)
    task = asyncio.create_task(scene.commit())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def _timed_out(scene: Scene) -> None:
    """By the coordinator, which leaves a producer of version 1 without an id."""
    await scene.begin()
    await scene.send()
    await scene.producer.flush()
    await asyncio.sleep(scene.case.transaction_timeout + 1.0)
    with pytest.raises(TransactionError) as caught:
        await scene.txn.abort()
    assert caught.value.recover == "init"


async def _with_group(scene: Scene) -> None:
    scene.group = await scene.producer.group_commit(interval=0.05).__aenter__()


# -- calls ---


async def _life(scene: Scene) -> None:
    async with scene.producer:
        await scene.whole()


async def _raising(scene: Scene) -> None:
    with suppress(LeftError):
        await scene.whole(fails=True)


async def _next(scene: Scene) -> None:
    """Begin, after what goes on of the one before."""
    await scene.begin()


async def _prepare(scene: Scene) -> None:
    prepared = await scene.txn.prepare()
    assert (prepared.transactional_id, prepared.is_empty) == (NAME, False)


async def _group_send(scene: Scene) -> None:
    await scene.group_send(scene.group)


async def _group(scene: Scene) -> None:
    """Left while somebody's record is in it."""
    async with scene.producer.group_commit(interval=20.0) as group:
        scene.spawn(scene.group_send(group), "in the group")
        await asyncio.sleep(0.01)


async def _close(scene: Scene) -> None:
    await scene.producer.close()


SENDING = [
    Call("txn.send", Scene.send, _begun),
    Call("txn.send_many", Scene.send_many, _begun),
    Call("txn.send_and_wait", Scene.send_and_wait, _begun),
]
CALLS = [
    Call("start", lambda scene: scene.producer.start(), starts=True, closes=True),
    Call("async with producer", _life, starts=True, closes=True, has_end=True),
    Call(
        "init_transactions",
        lambda scene: scene.producer.init_transactions(),
        _timed_out,
        lambda scene: scene.producer.init_transactions(),
        settings={"transaction_timeout_ms": 5_000},
        versions=(1,),
    ),
    Call("begin", _next, _committing),
    Call("txn.send_and_wait, known", Scene.send_and_wait, _filled),
    Call("txn.send_offsets", Scene.send_offsets, _begun),
    Call("prepare", _prepare, _with_records),
    Call("commit", Scene.commit, _with_records, lambda scene: scene.txn.commit()),
    Call("commit of nothing", Scene.commit, _begun),
    Call("commit again", lambda scene: scene.txn.commit(), _committing),
    Call("abort", lambda scene: scene.txn.abort(), _with_records, lambda scene: scene.txn.abort()),
    Call("async with", Scene.whole, has_end=True),
    Call("async with, and an exception", _raising, has_end=True),
    Call("group.send", _group_send, _with_group, _group_send, is_shared=True),
    Call("async with group", _group, Scene.whole, has_end=True, is_shared=True),
    Call("close, open", _close, _with_records, closes=True),
    Call("close, committing", _close, _committing, closes=True),
]
CASES = [
    pytest.param(call, world, version, id=f"{call.name}, {world.name}, version {version}")
    for calls, worlds in [(CALLS, WORLDS), (SENDING, [LATE_TOPIC]), (SENDING[:2], [FULL_BUFFER])]
    for call in calls
    for world in worlds
    for version in call.versions
]
A_FEW_TURNS = 5e-5
"""Each turn of the loop takes a virtual microsecond or four; the least that a message takes is a millisecond."""
THEN = ("commit", "abort", "next", "close")
"""What the user does next: the same, the opposite, another transaction, or close."""


# -- the tests ---


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Each run ends with a collection of its own garbage: what was there before need not be looked at."""
    gc.freeze()


def run_well(
    call: Call, world: World, version: int, way: Way, then: str, moment: Moment | None = None
) -> Run:
    run = run_call(call, world, version, way, then, moment)
    assert not run.violations, f"cancelled at {moment}, then {then}: {run.violations}"
    return run


def at_every_suspension(call: Call, world: World, version: int, way: Way, thens: tuple[str, ...]) -> None:
    whole = run_well(call, world, version, way, "commit" if call.arrange is _with_records else "next")
    for number in range(1, len(whole.progress.suspensions) + 1):
        for then in thens:
            run = run_well(call, world, version, way, then, Moment("suspension", number))
            # What gives the loop but one turn goes on before a sibling that fails, or a scope, gets its own.
            is_quick = whole.outcome.at - whole.progress.began_at < A_FEW_TURNS
            assert run.outcome.kind == "cancelled" or (is_quick and way is not by_cancel)


@pytest.mark.parametrize(
    ("call", "world", "version"),
    most_extended(CASES, one_in=11, reason="other calls, other scenarios and the other version"),
)
def test_cancelled_at_every_suspension(call: Call, world: World, version: int) -> None:
    at_every_suspension(call, world, version, by_cancel, THEN)


@pytest.mark.extended("takes half a second for each case; a single cancellation stays in the gate")
@pytest.mark.parametrize("way", [way for way in WAYS.values() if way is not by_cancel])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("call", [*CALLS, *SENDING], ids=lambda call: call.name)
def test_cancelled_in_every_way(call: Call, version: int, way: Way) -> None:
    if version in call.versions:
        at_every_suspension(call, SLOW, version, way, THEN)


@pytest.mark.extended("takes seconds for each case; one in eleven at each suspension stays in the gate")
@pytest.mark.parametrize(("call", "world", "version"), CASES)
def test_cancelled_in_front_of_every_turn_of_the_loop(call: Call, world: World, version: int) -> None:
    """Also when what it waits for came in the very same turn."""
    turns = run_well(call, world, version, by_cancel, "next").progress.turns
    count = min(turns, MOST_TURNS)
    for index in range(count):
        moment = Moment("turn", 1 + index * (turns - 1) // max(count - 1, 1))
        run_well(call, world, version, by_cancel, THEN[index % len(THEN)], moment)
