"""What becomes of a `DeliveryFuture` beyond its outcome: splits, failures that nobody looks at, and memory.

`DeliveryFuture` is hidden from the garbage collector when compiled, so a cycle through one would never be freed:
here nothing may be left for the collector, in either build.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import BrokerRejectedError, ProducerError
from aioproduce.records import RecordMetadata
from tests.drivers.concurrency import HANDLE_CANCELLED, spawn
from tests.drivers.delivery_bench import Bench, on_each_loop, on_every_loop, rejection, turns
from tests.native_builds import is_compiled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def _offset(delivery: Any) -> int:
    found: RecordMetadata = await delivery
    return found.offset


# -- splits ---


@on_each_loop
async def test_a_split_moves_every_kind_of_waiting_to_the_parts(bench: Bench) -> None:
    whole, deliveries = bench.batch(6)
    called: list[int] = []
    told: list[tuple[int, int]] = []
    waiting = [asyncio.create_task(_offset(delivery)) for delivery in deliveries]
    for index, delivery in enumerate(deliveries):
        delivery.add_done_callback(lambda found, index=index: called.append(index))
        delivery._add_delivery_callback(lambda found, error, index=index: told.append((index, found.offset)))
    await turns(2)
    first, second = bench.result(), bench.result()
    whole.split([(0, first), (4, second)])
    assert not whole.has_callbacks
    assert not any(delivery.done() for delivery in deliveries)

    second.succeed(100)
    assert second.run_callbacks() == []
    await turns()
    assert [task.done() for task in waiting] == [False] * 4 + [True] * 2
    assert called == [4, 5]
    assert told == [(4, 100), (5, 101)]

    first.succeed(50)
    assert first.run_callbacks() == []
    assert await asyncio.gather(*waiting) == [50, 51, 52, 53, 100, 101]
    assert called == [4, 5, 0, 1, 2, 3]
    assert told[2:] == [(0, 50), (1, 51), (2, 52), (3, 53)]
    # The record's own timestamp and sizes went along.
    assert deliveries[5].result() == RecordMetadata("orders", 3, 101, 1005, 2, 5)


@on_each_loop
async def test_parts_are_split_again_until_each_record_is_alone(bench: Bench) -> None:
    whole, deliveries = bench.batch(8)
    watched = [asyncio.create_task(_offset(delivery)) for delivery in deliveries[::2]]
    await turns(2)

    def split(result: Any, size: int, first: int) -> None:
        if size == 1:
            alone[first] = result
            return
        parts = [bench.result(), bench.result()]
        result.split([(0, parts[0]), (size // 2, parts[1])])
        split(parts[0], size // 2, first)
        split(parts[1], size - size // 2, first + size // 2)

    alone: dict[int, Any] = {}
    split(whole, 8, 0)
    assert sorted(alone) == list(range(8))
    for index, result in alone.items():
        result.succeed(10 * index)
    assert await asyncio.gather(*watched) == [0, 20, 40, 60]
    # Those that nobody watched follow when they are asked.
    assert [(await delivery).offset for delivery in deliveries] == [10 * index for index in range(8)]
    assert [delivery.result().timestamp for delivery in deliveries] == [1000 + index for index in range(8)]


@on_every_loop
async def test_waiting_begins_after_the_split(bench: Bench) -> None:
    whole, deliveries = bench.batch(3)
    parts = [bench.result(), bench.result()]
    whole.split([(0, parts[0]), (1, parts[1])])
    told: list[int] = []
    deliveries[2]._add_delivery_callback(lambda found, error: told.append(found.offset))
    task = spawn(_offset(deliveries[1]))
    await turns(2)
    parts[1].succeed(30)
    assert await task == 30
    assert parts[1].run_callbacks() == []
    assert told == [31]
    parts[0].succeed(5)
    assert await _offset(deliveries[0]) == 5


@on_every_loop
async def test_a_cancelled_handle_stays_cancelled_while_its_record_moves(bench: Bench) -> None:
    whole, [delivery, other] = bench.batch(2)
    told: list[int] = []
    delivery._add_delivery_callback(lambda found, error: told.append(found.offset))
    delivery.add_done_callback(lambda found: None)
    delivery.cancel()
    parts = [bench.result(), bench.result()]
    whole.split([(0, parts[0]), (1, parts[1])])
    assert delivery.cancelled()
    parts[0].succeed(1)
    parts[1].succeed(9)
    assert parts[0].run_callbacks() == []
    assert told == [1]
    assert delivery.cancelled()
    assert other.result().offset == 9


@on_each_loop
async def test_one_part_fails_and_the_other_does_not(bench: Bench) -> None:
    whole, deliveries = bench.batch(4)
    parts = [bench.result(), bench.result()]
    whole.split([(0, parts[0]), (2, parts[1])])
    parts[0].succeed(0)
    parts[1].fail(rejection("the batch"), 2, {1: rejection("its second record")})
    found = await asyncio.gather(*deliveries, return_exceptions=True)
    assert [str(each) for each in found[2:]] == ["the batch", "its second record"]
    assert isinstance(found[1], RecordMetadata)
    assert found[1].offset == 1


# -- failures that nobody looks at ---


@on_every_loop
async def test_dropped_failures_are_counted_once_per_batch(bench: Bench) -> None:
    result, deliveries = bench.batch(5)
    error = rejection()
    result.fail(error, 5)
    with pytest.raises(BrokerRejectedError):
        await deliveries[0]
    deliveries[1].exception()
    deliveries[1].exception()
    with pytest.raises(BrokerRejectedError):
        deliveries[2].result()
    del result
    await turns()
    assert bench.unobserved == []
    deliveries.clear()
    await turns()
    assert bench.unobserved == [("orders", 3, error, 2)]


@on_each_loop
async def test_a_failure_that_was_looked_at_is_not_counted(bench: Bench) -> None:
    def by_callback(delivery: Any, result: Any) -> None:
        delivery.add_done_callback(lambda found: found.exception())

    def by_delivery_callback(delivery: Any, result: Any) -> None:
        delivery._add_delivery_callback(lambda found, error: None)

    def by_gather(delivery: Any, result: Any) -> None:
        tasks.append(asyncio.gather(delivery, return_exceptions=True))

    def by_a_task(delivery: Any, result: Any) -> None:
        tasks.append(asyncio.create_task(_swallow(delivery)))

    tasks: list[Any] = []
    for look in (by_callback, by_delivery_callback, by_gather, by_a_task):
        result, [delivery] = bench.batch(1)
        look(delivery, result)
        await turns(2)
        result.fail(rejection(), 1)
        assert result.run_callbacks() == []
        await turns()
        del result, delivery
        tasks.clear()
        await turns()
        assert bench.unobserved == [], look.__name__


async def _swallow(delivery: Any) -> None:
    with pytest.raises(BrokerRejectedError):
        await delivery


@on_every_loop
async def test_failures_whose_wait_was_given_up_are_counted(bench: Bench) -> None:
    result, [cancelled, abandoned] = bench.batch(2)
    cancelled.cancel()
    task = spawn(_offset(abandoned))
    await turns(2)
    task.cancel()
    await turns()
    result.fail(rejection(), 2)
    del result, cancelled, abandoned, task
    await turns()
    assert [count for _, _, _, count in bench.unobserved] == [2]


@on_every_loop
async def test_failures_of_split_batches_are_counted_part_by_part(bench: Bench) -> None:
    whole, deliveries = bench.batch(5)
    parts = [bench.result(), bench.result()]
    whole.split([(0, parts[0]), (3, parts[1])])
    parts[0].fail(rejection("first"), 3)
    parts[1].fail(rejection("second"), 2)
    deliveries[4].exception()
    del whole, deliveries
    parts.clear()
    await turns()
    assert sorted((str(error), count) for _, _, error, count in bench.unobserved) == [
        ("first", 3),
        ("second", 1),
    ]


@on_every_loop
async def test_success_and_what_is_pending_are_no_failures(bench: Bench) -> None:
    result, _deliveries = bench.batch(3)
    result.succeed(0)
    del result, _deliveries
    result, _deliveries = bench.batch(3)
    del result, _deliveries
    await turns()
    assert bench.unobserved == []


@on_each_loop
async def test_the_last_reference_may_go_in_another_thread(bench: Bench) -> None:
    """The garbage collector runs in whichever thread allocates; the loop's debug mode refuses a plain call_soon."""
    bench.loop.set_debug(True)
    results = [bench.result()]
    results[0].fail(rejection(), 7)
    thread = threading.Thread(target=results.clear)
    thread.start()
    thread.join()
    await turns()
    assert [count for _, _, _, count in bench.unobserved] == [7]


def test_dropped_after_the_loop_was_closed_it_says_nothing() -> None:
    async def fail() -> Any:
        result = Bench("imported").result()
        result.fail(rejection(), 1)
        return result

    with asyncio.Runner() as runner:
        kept = [runner.run(fail())]
    kept.clear()


# -- memory ---


class Witness:
    """Lives in the frame of who waits; gone when nothing keeps that frame."""


async def _await_it(bench: Bench, delivery: Any) -> None:
    await delivery


async def _gather_it(bench: Bench, delivery: Any) -> None:
    await asyncio.gather(delivery)


async def _wait_for_it(bench: Bench, delivery: Any) -> None:
    await asyncio.wait_for(delivery, 3600)


async def _shield_it(bench: Bench, delivery: Any) -> None:
    await asyncio.shield(delivery)


async def _raise_its_exception(bench: Bench, delivery: Any) -> None:
    await asyncio.wait([delivery])
    if delivery.exception() is not None:
        raise delivery.exception()


async def _ask_for_its_result(bench: Bench, delivery: Any) -> None:
    await asyncio.wait([delivery])
    delivery.result()


async def _have_a_callback_pass_it_on(bench: Bench, delivery: Any) -> None:
    mine = bench.loop.create_future()

    def pass_on(found: Any) -> None:
        if found.cancelled():
            mine.cancel()
        elif found.exception() is not None:
            mine.set_exception(found.exception())
        else:
            mine.set_result(found.result())

    delivery.add_done_callback(pass_on)
    await mine


WAYS: list[Callable[[Bench, Any], Awaitable[None]]] = [
    _await_it,
    _gather_it,
    _wait_for_it,
    _shield_it,
    _raise_its_exception,
    _ask_for_its_result,
    _have_a_callback_pass_it_on,
]


async def _wait(bench: Bench, way: Callable[[Bench, Any], Awaitable[None]], settle: str) -> Any:
    """Wait in one way, with the delivery in a frame of the traceback, and tell what is left of that frame."""
    witness = Witness()
    kept = weakref.ref(witness)
    result, [delivery] = bench.batch(1)
    if settle == "fail":
        bench.call_soon(result.fail, rejection(), 1)
    elif settle == "succeed":
        bench.call_soon(result.succeed, 1)
    else:
        bench.call_soon(delivery.cancel)
    try:
        await way(bench, delivery)
    except (ProducerError, asyncio.CancelledError):
        assert settle != "succeed"
    return kept


@on_each_loop
async def test_whoever_waited_leaves_nothing_to_the_collector(bench: Bench) -> None:
    gc.collect()
    gc.disable()
    try:
        for settle in ("succeed", "fail", "cancel"):
            for way in WAYS:
                kept = await spawn(_wait(bench, way, settle))
                await turns()
                # asyncio's own functions leave cycles of exception and frame, in some versions, for some loops.
                if kept() is not None:
                    assert way not in (_await_it, _ask_for_its_result), (way.__name__, settle)
                    gc.collect()
                assert kept() is None, (way.__name__, settle)
    finally:
        gc.enable()


@on_every_loop
async def test_settling_lets_go_of_callbacks_and_waiters(bench: Bench) -> None:
    settles: list[Callable[[Any, Any], object]] = [
        lambda result, delivery: result.succeed(0),
        lambda result, delivery: result.fail(rejection(), 1),
        lambda result, delivery: delivery.cancel(),
        lambda result, delivery: _split_and_succeed(bench, result),
    ]
    for settle in settles:
        result, [delivery] = bench.batch(1)
        witness = Witness()
        kept = weakref.ref(witness)

        def callback(found: Any, witness: Witness = witness, delivery: Any = delivery) -> None:
            """A cycle: the delivery holds its callback, which holds the delivery."""

        delivery.add_done_callback(callback)
        waiting = spawn(_swallow_all(delivery, witness))
        await turns(2)
        del callback, witness
        assert kept() is not None
        settle(result, delivery)
        await waiting
        del waiting
        await turns()
        assert kept() is None
        # Nothing but this frame, and the call's own argument (which from 3.14 on counts as none), holds on to it.
        if not delivery.cancelled():
            alone = object()
            assert sys.getrefcount(delivery) == sys.getrefcount(alone)
        if delivery.done() and not delivery.cancelled():
            delivery.exception()


def _split_and_succeed(bench: Bench, result: Any) -> None:
    part = bench.result()
    result.split([(0, part)])
    part.succeed(1)


async def _swallow_all(delivery: Any, witness: Witness) -> None:
    try:
        await delivery
    except (ProducerError, *HANDLE_CANCELLED):
        return


@on_every_loop
async def test_delivery_callbacks_are_let_go_when_they_have_run(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    witness = Witness()
    kept = weakref.ref(witness)
    delivery._add_delivery_callback(lambda found, error, witness=witness, delivery=delivery: None)
    del witness
    result.succeed(1)
    assert kept() is not None
    assert result.run_callbacks() == []
    assert kept() is None
    alone = object()
    assert sys.getrefcount(delivery) == sys.getrefcount(alone)


@on_each_loop
async def test_what_waits_and_is_given_up_leaves_no_waiter_behind(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    before = sys.getrefcount(delivery)
    tasks = [asyncio.create_task(_offset(delivery)) for _ in range(50)]
    await turns(2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
    del task
    await turns()
    # The result keeps the one entry "watched" for every watcher.
    assert sys.getrefcount(delivery) == before + 1
    result.succeed(0)
    assert sys.getrefcount(delivery) == before


@on_every_loop
async def test_raising_one_error_many_times_does_not_grow_its_traceback(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    error = rejection()
    result.fail(error, 1)
    depths = []
    for _ in range(20):
        with pytest.raises(BrokerRejectedError) as raised:
            await delivery
        depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(set(depths)) == 1
    assert error.__traceback__ is None
    assert error.__context__ is None
    assert delivery.exception() is not delivery.exception()


@on_every_loop
async def test_errors_in_callbacks_are_copies_too(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    error = rejection()
    told: list[BaseException] = []

    def callback(found: Any, reason: Any) -> None:
        told.append(reason)
        raise reason

    delivery._add_delivery_callback(callback)
    result.fail(error, 1)
    assert result.run_callbacks() == told
    assert told[0] is not error
    assert (told[0].args, vars(told[0])) == (error.args, vars(error))
    assert error.__traceback__ is None


@on_every_loop
async def test_the_collector_does_not_look_at_deliveries_when_compiled(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    assert gc.is_tracked(delivery) is not is_compiled(bench.native)
    assert gc.is_tracked(result)
    with pytest.raises(AttributeError):
        delivery.anything = 1  # nowhere to hang a cycle on
