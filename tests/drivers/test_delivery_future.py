"""`DeliveryFuture` is a future to everything that asyncio does with one, on both loops, in both builds.

What a name of asyncio does with a delivery is compared with what it does with an `asyncio.Future`, from the
standard library's documentation. Splits, unobserved failures and memory have files of their own next to this one.
"""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import BrokerRejectedError, DeliveryTimeoutError
from aioproduce.records import RecordMetadata, TopicPartition
from tests.drivers.concurrency import spawn
from tests.drivers.delivery_bench import Bench, on_each_loop, on_every_loop, rejection, turns

if TYPE_CHECKING:
    from collections.abc import Callable

# No test waits for it to pass: it bounds a hang.
LONG = 3600.0
CONTEXT: ContextVar[str] = ContextVar("context", default="nobody's")


def metadata(offset: int, index: int = 0) -> RecordMetadata:
    return RecordMetadata("orders", 3, offset, 1000 + index, 2, 5)


def later(bench: Bench, act: Callable[..., object], *arguments: object) -> None:
    """Act in the loop's next turn, when the task that the test starts is waiting."""
    bench.call_soon(act, *arguments)


# -- states ---


@on_each_loop
async def test_to_asyncio_it_is_a_future_and_no_coroutine(bench: Bench) -> None:
    _result, [delivery] = bench.batch(1)
    assert asyncio.isfuture(delivery)
    assert not asyncio.iscoroutine(delivery)
    assert asyncio.ensure_future(delivery) is delivery
    assert delivery.get_loop() is bench.loop
    assert (delivery.topic, delivery.partition) == ("orders", 3)


@on_each_loop
async def test_pending_it_has_neither_result_nor_exception(bench: Bench) -> None:
    _result, [delivery] = bench.batch(1)
    assert not delivery.done()
    assert not delivery.cancelled()
    with pytest.raises(asyncio.InvalidStateError):
        delivery.result()
    with pytest.raises(asyncio.InvalidStateError):
        delivery.exception()
    assert repr(delivery) == "<DeliveryFuture orders-3 pending>"


@on_every_loop
async def test_acknowledged_each_record_has_its_own_offset(bench: Bench) -> None:
    result, deliveries = bench.batch(3)
    result.succeed(2**62)
    for index, delivery in enumerate(deliveries):
        assert delivery.done()
        assert not delivery.cancelled()
        assert delivery.exception() is None
        assert delivery.result() == await delivery == metadata(2**62 + index, index)
        assert repr(delivery) == f"<DeliveryFuture orders-3 offset={2**62 + index}>"


@on_every_loop
async def test_log_append_time_takes_the_place_of_the_records_timestamp(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    result.succeed(7, 1_700_000_000_123)
    assert (await delivery).timestamp == 1_700_000_000_123


@on_every_loop
async def test_an_unknown_offset_is_minus_one_for_every_record(bench: Bench) -> None:
    result, deliveries = bench.batch(3)
    result.succeed(-1)
    assert [(await delivery).offset for delivery in deliveries] == [-1, -1, -1]


@on_every_loop
async def test_failed_it_raises_the_error_with_all_that_it_says(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    cause = OSError("the cause")
    error = rejection()
    error.__cause__ = cause
    result.fail(error, 1)
    with pytest.raises(BrokerRejectedError, match=r"(?m)^refused$") as awaited:
        await delivery
    with pytest.raises(BrokerRejectedError, match=r"(?m)^refused$") as asked:
        delivery.result()
    for found in (awaited.value, asked.value, delivery.exception()):
        assert type(found) is BrokerRejectedError
        assert found.args == ("refused",)
        assert vars(found) == vars(error)
        assert found.topic_partition == TopicPartition("orders", 3)
        assert found.__cause__ is cause
        assert found.__suppress_context__
    assert "error=BrokerRejectedError('refused')" in repr(delivery)


@on_every_loop
async def test_an_error_that_is_an_oserror_too_keeps_its_text(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    error = DeliveryTimeoutError(
        "too late",
        topic_partition=TopicPartition("orders", 3),
        possibly_written=True,
        attempts=0,
        retriable=True,
    )
    result.fail(error, 1)
    with pytest.raises(TimeoutError, match=r"(?m)^too late$") as raised:
        await delivery
    assert raised.value.args == ("too late",)
    assert vars(raised.value) == vars(error)


@on_each_loop
async def test_records_of_one_batch_can_fail_for_reasons_of_their_own(bench: Bench) -> None:
    result, deliveries = bench.batch(3)
    result.fail(rejection("the batch"), 3, {1: rejection("the second record")})
    texts = [str(error) for error in await asyncio.gather(*deliveries, return_exceptions=True)]
    assert texts == ["the batch", "the second record", "the batch"]


@on_every_loop
async def test_a_result_is_settled_once(bench: Bench) -> None:
    ways: list[Callable[[Any], object]] = [
        lambda result: result.succeed(1),
        lambda result: result.fail(rejection(), 1),
        lambda result: result.split([(0, bench.result())]),
    ]
    for settle in ways:
        result, [delivery] = bench.batch(1)
        settle(result)
        state = result.status
        for again in ways:
            with pytest.raises(RuntimeError, match="settled twice"):
                again(result)
        assert result.status == state
        if delivery.done():
            delivery.exception()


# -- awaiting ---


@on_every_loop
async def test_a_settled_delivery_is_awaited_without_suspending(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    result.succeed(5)
    turned: list[int] = []
    later(bench, turned.append, 1)
    for _ in range(3):
        assert (await delivery).offset == 5
    assert turned == []


@on_each_loop
async def test_any_number_of_tasks_may_wait_and_are_woken_in_their_order(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    woken: list[int] = []

    async def wait(number: int) -> RecordMetadata:
        found: RecordMetadata = await delivery
        woken.append(number)
        return found

    tasks = [asyncio.create_task(wait(number)) for number in range(1000)]
    await turns(2)
    result.succeed(9)
    assert await asyncio.gather(*tasks) == [metadata(9)] * 1000
    assert woken == list(range(1000))


@on_every_loop
async def test_cancelling_one_task_ends_its_wait_only(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    tasks = [spawn(_get(delivery)) for _ in range(3)]
    await turns(2)
    assert tasks[1].cancel()
    await turns(2)
    assert tasks[1].cancelled()
    assert not delivery.done()
    assert not delivery.cancelled()
    later(bench, result.succeed, 4)
    assert (await tasks[0]).offset == (await tasks[2]).offset == 4


@on_each_loop
async def test_a_task_cancelled_in_the_turn_of_the_answer_is_cancelled(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    task = asyncio.create_task(_get(delivery))
    await turns(2)
    result.succeed(4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert delivery.result().offset == 4


@on_every_loop
async def test_a_task_that_is_cancelled_before_it_began_to_wait(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    task = spawn(_get(delivery))
    task.cancel()
    await turns(2)
    assert task.cancelled()
    result.succeed(4)
    assert (await delivery).offset == 4


@on_each_loop
async def test_timeouts_of_asyncio_end_the_wait_only(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await delivery
    assert not delivery.done()
    later(bench, result.succeed, 4)
    assert (await delivery).offset == 4


# -- asyncio's own functions ---


async def _get(delivery: Any) -> RecordMetadata:
    found: RecordMetadata = await delivery
    return found


@on_each_loop
async def test_gather(bench: Bench) -> None:
    first, [a, b] = bench.batch(2)
    second, [c] = bench.batch(1)
    later(bench, second.succeed, 100)
    later(bench, first.succeed, 10)
    assert list(await asyncio.gather(a, c, b, a)) == [
        metadata(10),
        metadata(100),
        metadata(11, 1),
        metadata(10),
    ]


@on_each_loop
async def test_gather_raises_the_first_failure(bench: Bench) -> None:
    good, [a] = bench.batch(1)
    bad, [b] = bench.batch(1)
    later(bench, bad.fail, rejection(), 1)
    with pytest.raises(BrokerRejectedError, match="refused"):
        await asyncio.gather(a, b)
    assert not a.done()
    good.succeed(0)


@on_each_loop
async def test_gather_returns_failures_on_demand(bench: Bench) -> None:
    good, [a] = bench.batch(1)
    bad, [b] = bench.batch(1)
    later(bench, bad.fail, rejection(), 1)
    later(bench, good.succeed, 3)
    found = await asyncio.gather(a, b, return_exceptions=True)
    assert found[0] == metadata(3)
    assert isinstance(found[1], BrokerRejectedError)


@on_each_loop
async def test_gather_that_is_cancelled_cancels_the_handles_and_not_the_records(bench: Bench) -> None:
    result, deliveries = bench.batch(2)
    told: list[int] = []
    deliveries[0]._add_delivery_callback(lambda found, error: told.append(found.offset))
    everything = asyncio.gather(*deliveries)
    everything.cancel()
    with pytest.raises(asyncio.CancelledError):
        await everything
    assert all(delivery.cancelled() for delivery in deliveries)
    result.succeed(7)
    assert result.run_callbacks() == []
    assert told == [7]


@on_each_loop
async def test_gather_over_a_handle_that_was_cancelled(bench: Bench) -> None:
    result, [a, b] = bench.batch(2)
    a.cancel("mine")
    later(bench, result.succeed, 0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(a, b)
    found = await asyncio.gather(a, b, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[0].args == ("mine",)
    assert found[1] == metadata(1, 1)


@on_each_loop
async def test_wait(bench: Bench) -> None:
    first, [a] = bench.batch(1)
    second, [b] = bench.batch(1)
    later(bench, second.succeed, 1)
    done, pending = await asyncio.wait([a, b], return_when=asyncio.FIRST_COMPLETED)
    assert (done, pending) == ({b}, {a})
    done, pending = await asyncio.wait([a], timeout=0)
    assert (done, pending) == (set(), {a})
    later(bench, first.fail, rejection(), 1)
    done, pending = await asyncio.wait([a, b])
    assert (done, pending) == ({a, b}, set())
    with pytest.raises(BrokerRejectedError):
        a.result()


@on_each_loop
async def test_wait_until_the_first_failure(bench: Bench) -> None:
    _first, [a] = bench.batch(1)
    second, [b] = bench.batch(1)
    later(bench, second.fail, rejection(), 1)
    done, pending = await asyncio.wait([a, b], return_when=asyncio.FIRST_EXCEPTION)
    assert (done, pending) == ({b}, {a})
    b.exception()


@on_each_loop
async def test_wait_for_in_time(bench: Bench) -> None:
    result, deliveries = bench.batch(2)
    later(bench, result.succeed, 6)
    assert await asyncio.wait_for(deliveries[1], LONG) == metadata(7, 1)
    assert await asyncio.wait_for(deliveries[0], 0) == metadata(6)
    assert await asyncio.wait_for(deliveries[0], None) == metadata(6)


@on_each_loop
async def test_wait_for_a_failure(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    later(bench, result.fail, rejection(), 1)
    with pytest.raises(BrokerRejectedError):
        await asyncio.wait_for(delivery, LONG)


@on_each_loop
async def test_wait_for_out_of_time_while_the_record_goes_on(bench: Bench) -> None:
    """Python 3.11 cancels what it waited for; since 3.12 it is a time-out around an `await`."""
    result, [delivery] = bench.batch(1)
    told: list[RecordMetadata] = []
    delivery._add_delivery_callback(lambda found, error: told.append(found))
    # Above zero, or 3.11 would not begin to wait.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 1e-9)
    assert delivery.cancelled() is (sys.version_info < (3, 12))
    result.succeed(8)
    assert result.run_callbacks() == []
    assert told == [metadata(8)]
    if not delivery.cancelled():
        assert delivery.result() == metadata(8)


@on_each_loop
async def test_shield_keeps_a_shared_delivery_from_being_cancelled(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(delivery), 1e-9)
    assert not delivery.done()
    later(bench, result.succeed, 2)
    assert await asyncio.shield(delivery) == metadata(2)
    assert await asyncio.shield(delivery) == metadata(2)


@on_each_loop
async def test_shield_that_was_cancelled_leaves_a_later_failure_unremarked(bench: Bench) -> None:
    """`shield` looks at the failure of what it kept, once nobody waits; that counts as seen."""
    result, [delivery] = bench.batch(1)
    outer = asyncio.shield(delivery)
    outer.cancel()
    await turns()
    result.fail(rejection(), 1)
    await turns()
    assert delivery.done()
    delivery.exception()


@on_each_loop
async def test_as_completed_gives_them_as_they_come(bench: Bench) -> None:
    results = [bench.result() for _ in range(3)]
    deliveries = [bench.future(result) for result in results]
    for number in (2, 0, 1):
        later(bench, results[number].succeed, number)
    found = [(await each).offset for each in asyncio.as_completed(deliveries)]
    assert found == [2, 0, 1]


# -- done-callbacks ---


@on_every_loop
async def test_done_callbacks_run_on_the_loop_in_their_order(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    seen: list[tuple[str, object]] = []
    delivery.add_done_callback(lambda found: seen.append(("first", found)))
    delivery.add_done_callback(lambda found: seen.append(("second", found)))
    result.succeed(1)
    assert seen == [], "not within the step that settles"
    await turns(1)
    assert seen == [("first", delivery), ("second", delivery)]
    delivery.add_done_callback(lambda found: seen.append(("late", found)))
    assert len(seen) == 2
    await turns(1)
    assert seen[2:] == [("late", delivery)]


@on_every_loop
async def test_removed_callbacks_are_not_called(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    seen: list[str] = []

    def keep(found: object) -> None:
        seen.append("kept")

    def remove(found: object) -> None:
        seen.append("removed")

    for callback in (remove, keep, remove):
        delivery.add_done_callback(callback)
    assert delivery.remove_done_callback(remove) == 2
    assert delivery.remove_done_callback(remove) == 0
    result.succeed(1)
    await turns()
    assert seen == ["kept"]
    assert delivery.remove_done_callback(keep) == 0


@on_every_loop
async def test_callbacks_run_in_the_context_of_who_asked(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    seen: list[str] = []

    def note(found: object) -> None:
        seen.append(CONTEXT.get())

    given = copy_context()
    given.run(CONTEXT.set, "given")
    token = CONTEXT.set("the caller's")
    delivery.add_done_callback(note)
    delivery.add_done_callback(note, context=given)
    CONTEXT.reset(token)
    elsewhere = copy_context()
    elsewhere.run(CONTEXT.set, "the sender's")
    elsewhere.run(result.succeed, 1)
    await turns()
    token = CONTEXT.set("a later caller's")
    delivery.add_done_callback(note)
    CONTEXT.reset(token)
    await turns()
    assert seen == ["the caller's", "given", "a later caller's"]


@on_each_loop
async def test_a_callback_that_raises_is_the_loops_business(bench: Bench) -> None:
    result, [delivery] = bench.batch(1)
    seen: list[object] = []

    def fail(found: object) -> None:
        raise LookupError("a bug of the callback")

    delivery.add_done_callback(fail)
    delivery.add_done_callback(seen.append)
    result.succeed(1)
    await turns()
    assert seen == [delivery]
    [context] = bench.noise
    assert isinstance(context["exception"], LookupError)
    bench.noise.clear()


# -- cancel() ---


@on_each_loop
async def test_cancel_wakes_all_who_wait_on_the_handle(bench: Bench) -> None:
    result, [delivery, other] = bench.batch(2)
    called: list[object] = []
    delivery.add_done_callback(called.append)

    async def why() -> tuple[object, ...]:
        try:
            await delivery
        except asyncio.CancelledError as error:
            return error.args
        raise AssertionError("it was cancelled")

    tasks = [asyncio.create_task(why()) for _ in range(3)]
    sibling = asyncio.create_task(_get(other))
    await turns(2)
    assert delivery.cancel("enough")
    assert delivery.done()
    assert delivery.cancelled()
    assert await asyncio.gather(*tasks) == [("enough",)] * 3
    assert called == [delivery]
    assert repr(delivery) == "<DeliveryFuture orders-3 cancelled>"
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.CancelledError):
            ask()
    with pytest.raises(asyncio.CancelledError):
        await delivery
    # The record and its neighbours go on, and the handle stays as it is.
    assert not sibling.done()
    result.succeed(3)
    assert (await sibling).offset == 4
    assert delivery.cancelled()
    assert called == [delivery]


@on_every_loop
async def test_cancel_answers_whether_it_did_anything(bench: Bench) -> None:
    result, [delivery, other] = bench.batch(2)
    assert delivery.cancel()
    assert not delivery.cancel()
    result.succeed(1)
    assert not other.cancel()
    assert not other.cancelled()
    assert other.result().offset == 2


# -- delivery callbacks (`on_delivery`) ---


@on_every_loop
async def test_delivery_callbacks_get_metadata_or_the_error_once(bench: Bench) -> None:
    cases: list[tuple[Callable[[Any], object], list[tuple[int, str | None]]]] = [
        (lambda result: result.succeed(5), [(5, None), (7, None)]),
        (lambda result: result.fail(rejection(), 3), [(-1, "refused"), (-1, "refused")]),
    ]
    for settle, expected in cases:
        result, deliveries = bench.batch(3)
        told: list[tuple[int, str | None]] = []

        def note(found: Any, error: Any, told: Any = told) -> None:
            told.append((found.offset, error and str(error)))

        assert not result.has_callbacks
        for index in (0, 2):
            deliveries[index]._add_delivery_callback(note)
        assert result.has_callbacks
        settle(result)
        assert told == []
        assert result.run_callbacks() == []
        assert told == expected
        assert not result.has_callbacks
        assert result.run_callbacks() == []
        assert told == expected
        deliveries[1].exception()


@on_every_loop
async def test_what_delivery_callbacks_raise_is_handed_over_and_stops_nobody(bench: Bench) -> None:
    result, deliveries = bench.batch(3)
    told: list[int] = []
    bug = LookupError("a bug of the callback")

    def fail(found: Any, error: Any) -> None:
        raise bug

    deliveries[0]._add_delivery_callback(lambda found, error: told.append(found.offset))
    deliveries[1]._add_delivery_callback(fail)
    deliveries[2]._add_delivery_callback(lambda found, error: told.append(found.offset))
    result.succeed(0)
    assert result.run_callbacks() == [bug]
    assert told == [0, 2]
