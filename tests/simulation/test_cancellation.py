"""Every public coroutine, cancelled at every point where it waits, in every way that asyncio has.

`TABLE` has the calls and their conditions, `WAYS` the ways to cancel. A call runs to its end once under each of its
conditions, and then once for each of its suspensions, cancelled there; and once for each turn of the loop that it
takes, cancelled in front of that. How a run is judged is in `cancelling`.
"""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest

from aioproduce import Producer
from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.wire.api import ApiKey
from tests.gate.marks import most_extended
from tests.simulation.cancelling import (
    HOST,
    LATE,
    TOPIC,
    Call,
    Condition,
    Fate,
    Moment,
    Observed,
    Run,
    Scene,
    run_call,
)
from tests.simulation.cancelling_ways import WAYS, by_cancel, by_task_group

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.simulation.cancelling import Progress, Way

MOST_TURNS = 24
"""In front of how many turns of the loop a call is cancelled; of more, as many are chosen evenly."""


# -- calls ---


def _of_call(scene: Scene) -> Any:
    fate = Fate("call")
    scene.fates.append(fate)
    return scene.told(fate)


async def _send(scene: Scene) -> Any:
    return await scene.producer.send(
        scene.topic, scene.value("call"), partition=0, on_delivery=_of_call(scene)
    )


async def _send_and_wait(scene: Scene) -> Any:
    return await scene.producer.send_and_wait(
        scene.topic, scene.value("call"), partition=0, on_delivery=_of_call(scene)
    )


async def _send_many(scene: Scene) -> Any:
    values = [scene.value("call") for _ in range(3)]
    return await scene.producer.send_many(scene.topic, values, partition=0, on_delivery=_of_call(scene))


async def _send_batch(scene: Scene, partition: int | None) -> Any:
    batch = scene.producer.create_batch(1200)
    for _ in range(3):
        assert batch.append(scene.value("call")) is not None
    return await scene.producer.send_batch(
        batch, scene.topic, partition=partition, on_delivery=_of_call(scene)
    )


async def _send_arrow(scene: Scene) -> Any:
    table = pa.table({"value": pa.array([scene.value("call") for _ in range(3)], pa.binary())})
    return await scene.producer.send_arrow(scene.topic, table, partition=0, on_delivery=_of_call(scene))


async def _accept_three(scene: Scene) -> Any:
    values = [scene.value("call", 60) for _ in range(3)]
    return await scene.producer.send_many(TOPIC, values, partition=0, on_delivery=_of_call(scene))


async def _accept_one(scene: Scene) -> Any:
    return await scene.producer.send(TOPIC, scene.value("call", 60), partition=0, on_delivery=_of_call(scene))


async def _await_prepared(scene: Scene) -> Any:
    return await scene.prepared


async def _async_with(scene: Scene) -> Any:
    async with scene.producer:
        return await scene.send("call")


SENDING = [
    Call("send", _send, records=1),
    Call("send_and_wait", _send_and_wait, records=1, takes="any"),
    Call("send_many", _send_many, records=3, takes="some"),
    Call("send_batch", partial(_send_batch, partition=None), records=3),
    Call("send_batch to a partition", partial(_send_batch, partition=0), records=3),
    Call("send_arrow", _send_arrow, records=3, takes="some"),
]
ASKING = [
    Call("partitions_for", lambda scene: scene.producer.partitions_for(scene.topic)),
    Call("check", lambda scene: scene.producer.check(30.0)),
]
SETTLING = [
    Call("flush", lambda scene: scene.producer.flush()),
    Call("flush(30)", lambda scene: scene.producer.flush(30)),
    Call("delivery", _await_prepared, 1, "any", _accept_one),
    Call("deliveries", _await_prepared, 3, "any", _accept_three),
    Call("deliveries.wait", lambda scene: scene.prepared.wait(), 3, "any", _accept_three),
    Call("deliveries.failed", lambda scene: scene.prepared.failed(), 3, "any", _accept_three),
    Call("deliveries.outcomes", lambda scene: scene.prepared.outcomes(), 3, "any", _accept_three),
    Call("close", lambda scene: scene.producer.close(), ends="closed"),
    Call("close(0)", lambda scene: scene.producer.close(0), ends="closed"),
    Call("close(5)", lambda scene: scene.producer.close(5), ends="closed"),
]
LIFE = [
    Call("start", lambda scene: scene.producer.start(), is_first=True, ends="open or gone"),
    Call(
        "start(require_broker)",
        lambda scene: scene.producer.start(require_broker=True),
        is_first=True,
        ends="open or gone",
    ),
    Call("async with", _async_with, 1, "any", is_first=True, ends="closed", finishes=True),
]


# -- conditions ---


async def _known(scene: Scene) -> None:
    await scene.producer.partitions_for(TOPIC)


async def _lingering(scene: Scene) -> None:
    await _known(scene)
    await scene.send("filler", size=60)


async def _unknown_topic(scene: Scene) -> None:
    scene.topic = LATE
    scene.plan(0.35, scene.create_late)


async def _full(scene: Scene) -> None:
    """Two in the line: the one before, and the call."""
    await _known(scene)
    scene.simulation.network.hold(HOST)
    scene.plan(2.0, scene.simulation.network.release, HOST)
    await _fill(scene)


async def _fill(scene: Scene) -> None:
    for _ in range(4):
        await scene.send("filler", TOPIC)
    assert scene.producer.outstanding_bytes == scene.producer.config.buffer_memory


async def _room_for_one(scene: Scene) -> None:
    """What one gives up is all that the next can get."""
    await _known(scene)
    scene.simulation.network.hold(HOST)
    scene.plan(2.0, scene.simulation.network.release, HOST)
    await scene.send("filler", size=1_000)


async def _unknown_and_full(scene: Scene) -> None:
    await _known(scene)
    faults = scene.simulation.cluster.model.faults
    stuck = faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    scene.plan(2.0, stuck.cancel)
    scene.plan(2.0, scene.simulation.network.reset, HOST)
    await _fill(scene)
    await _unknown_topic(scene)


async def _slow(scene: Scene) -> None:
    scene.simulation.network.set_latency(HOST, 0.2, 0.2)


async def _down(scene: Scene) -> None:
    scene.simulation.cluster.stop_broker(0)
    scene.plan(3.0, scene.simulation.cluster.start_broker, 0)


async def _hole(scene: Scene, seconds: float = 3.0) -> None:
    """The topic is known, and something is on the way."""
    await _lingering(scene)
    scene.simulation.network.hold(HOST)
    scene.plan(seconds, scene.simulation.network.release, HOST)


async def _hole_at_first(scene: Scene) -> None:
    scene.simulation.network.hold(HOST)
    scene.plan(2.0, scene.simulation.network.release, HOST)


async def _compressing(scene: Scene) -> None:
    await _known(scene)
    for _ in range(4):
        await scene.send("filler", size=15_000)


FULL: dict[str, Any] = {"buffer_memory": 1_600}
ONE: dict[str, Any] = {"buffer_memory": 1_200, "batch_size": 1_200}
EXPIRING: dict[str, Any] = {"delivery_timeout_ms": 4_000, "request_timeout_ms": 2_000}
COMPRESSING: dict[str, Any] = {"compression_type": "gzip", "batch_size": 20_000, "buffer_memory": 100_000}

AT_EASE = Condition("at ease", _known)
UNKNOWN_TOPIC = Condition("unknown topic", _unknown_topic)
FULL_BUFFER = Condition("full buffer", _full, FULL, is_in_line=True)
ROOM_FOR_ONE = Condition("room for one batch", _room_for_one, ONE, is_in_line=True)
UNKNOWN_AND_FULL = Condition("unknown topic and full buffer", _unknown_and_full, FULL, is_in_line=True)
SLOW = Condition("slow network", _slow)
DOWN = Condition("broker down", _down)
HOLE = Condition("black hole", _hole)
HOLE_AT_FIRST = Condition("black hole", _hole_at_first)
TURN_DUE = Condition("turn due", _known, {"value_serializer": bytes})
LINGERING = Condition("lingering", _lingering, {"linger_ms": 3_000, "batch_size": 16_384})
EXPIRING_HOLE = Condition("black hole for longer than they live", partial(_hole, seconds=15.0), EXPIRING)
COMPRESSION = Condition("compressing", _compressing, COMPRESSING)
SPLIT = Condition(
    "batches are split",
    _lingering,
    {"linger_ms": 500, "batch_size": 16_384},
    TopicConfig(max_message_bytes=450),
)

TABLE: list[tuple[list[Call], list[Condition]]] = [
    (SENDING, [AT_EASE, UNKNOWN_TOPIC, FULL_BUFFER, ROOM_FOR_ONE, UNKNOWN_AND_FULL, SLOW, DOWN, TURN_DUE]),
    (ASKING, [UNKNOWN_TOPIC, SLOW, DOWN, HOLE]),
    (SETTLING, [LINGERING, FULL_BUFFER, SLOW, DOWN, HOLE, EXPIRING_HOLE, COMPRESSION, SPLIT]),
    (LIFE, [SLOW, DOWN, HOLE_AT_FIRST]),
]
CASES = [
    pytest.param(call, condition, id=f"{call.name}, {condition.name}")
    for calls, conditions in TABLE
    for call in calls
    for condition in conditions
]


# -- ways to cancel ---


async def _by_wait_for(
    progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]], seconds: float = 1e6
) -> Any:
    progress.fire = bool
    return await asyncio.wait_for(Observed(call(), progress), seconds)


# -- the tests ---


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Each run ends with a collection of its own garbage: what was there before need not be looked at."""
    gc.freeze()


@pytest.fixture(autouse=True)
def turns_are_due(request: pytest.FixtureRequest) -> Iterator[None]:
    """The loop's turn is due after a millisecond of real time, of which a simulation knows nothing."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("condition") is TURN_DUE:
        with patch.object(Producer, "_turn_is_due", lambda _: True):
            yield
    else:
        yield


def run_well(call: Call, condition: Condition, way: Way, moment: Moment | None = None) -> Run:
    run = run_call(call, condition, way, moment)
    assert not run.violations, f"cancelled at {moment}: {run.violations}"
    return run


class Whole(NamedTuple):
    """A call that nobody cancels: when it suspends, in seconds since it began, and how many turns it takes."""

    suspensions: list[float]
    turns: int


_wholes: dict[tuple[str, str], Whole] = {}


def uncancelled(call: Call, condition: Condition) -> Whole:
    key = (call.name, condition.name)
    if key not in _wholes:
        progress = run_well(call, condition, by_cancel).progress
        _wholes[key] = Whole(progress.suspensions, progress.turns)
    return _wholes[key]


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("call", "condition"), CASES)
def test_cancelled_at_every_suspension(call: Call, condition: Condition, way: Way) -> None:
    for number in range(1, len(uncancelled(call, condition).suspensions) + 1):
        run = run_well(call, condition, way, Moment("suspension", number))
        # What only gives the loop a turn goes on before the sibling that fails gets its own.
        assert run.outcome.kind == "cancelled" or (condition is TURN_DUE and way is by_task_group)


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize(("call", "condition"), CASES)
def test_a_wait_for_that_ends_at_every_suspension(call: Call, condition: Condition) -> None:
    for seconds in uncancelled(call, condition).suspensions:
        run_well(call, condition, partial(_by_wait_for, seconds=seconds), Moment("time", 0))


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize(
    ("call", "condition"),
    most_extended(
        CASES, one_in=7, reason="takes half a second for each case; all at each suspension stay in the gate"
    ),
)
def test_cancelled_in_front_of_every_turn_of_the_loop(call: Call, condition: Condition) -> None:
    """Also when what it waits for came in the very same turn."""
    turns = uncancelled(call, condition).turns
    count = min(turns, MOST_TURNS)
    for index in range(count):
        run_well(call, condition, by_cancel, Moment("turn", 1 + index * (turns - 1) // max(count - 1, 1)))


def test_a_call_that_goes_on_when_it_is_cancelled_is_told() -> None:
    async def deaf(_: Scene) -> None:
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            await asyncio.sleep(5.0)

    run = run_call(Call("deaf", deaf), AT_EASE, by_cancel, Moment("suspension", 1))
    assert run.outcome.kind == "finished"
    assert run.violations == ["L: cancelled, and it finished 5.000 s later"]
