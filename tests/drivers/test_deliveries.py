"""`Deliveries`, what `send_many()` returns; and the reports on failures that nobody asked for."""

from __future__ import annotations

import contextlib
import gc
import logging
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import BrokerRejectedError, DeliveryTimeoutError
from aioproduce.producer.deliveries import Deliveries
from aioproduce.producer.delivery_reports import DeliveryReports
from aioproduce.records import RecordMetadata, TopicPartition
from tests.drivers.concurrency import spawn
from tests.drivers.delivery_bench import Bench, on_every_loop, rejection, turns

if TYPE_CHECKING:
    from collections.abc import Callable


@on_every_loop
async def test_it_is_a_sequence_of_futures(bench: Bench) -> None:
    result, futures = bench.batch(4)
    deliveries = Deliveries(futures)
    assert len(deliveries) == 4
    assert list(deliveries) == futures
    assert deliveries[0] is futures[0]
    assert deliveries[-1] is futures[3]
    assert deliveries[1:3] == futures[1:3]
    assert futures[2] in deliveries
    with pytest.raises(IndexError):
        deliveries[4]
    assert repr(deliveries) == "<Deliveries 0 of 4 settled>"
    result.succeed(0)
    assert repr(deliveries) == "<Deliveries 4 of 4 settled>"


@on_every_loop
async def test_awaited_it_gives_all_metadata_in_order(bench: Bench) -> None:
    first, [a, b] = bench.batch(2)
    second, [c] = bench.batch(1)
    deliveries = Deliveries([a, c, b])
    bench.call_soon(second.succeed, 100)
    bench.call_later(0.001, first.succeed, 10)
    assert [metadata.offset for metadata in await deliveries] == [10, 100, 11]
    assert [metadata.offset for metadata in await deliveries] == [10, 100, 11], "and again"
    assert await Deliveries([]) == []


@on_every_loop
async def test_it_raises_the_first_error_in_order_once_all_are_settled(bench: Bench) -> None:
    good, [a] = bench.batch(1)
    bad, [b] = bench.batch(1)
    worse, [c] = bench.batch(1)
    task = spawn(_all(Deliveries([a, b, c])))
    worse.fail(rejection("worse"), 1)
    bad.fail(rejection("bad"), 1)
    await turns()
    assert not task.done(), "one is not settled"
    good.succeed(0)
    with pytest.raises(BrokerRejectedError, match="bad"):
        await task


async def _all(deliveries: Deliveries) -> list[RecordMetadata]:
    return await deliveries


@on_every_loop
async def test_outcomes_never_raise(bench: Bench) -> None:
    good, [a] = bench.batch(1)
    bad, [b, c] = bench.batch(2)
    good.succeed(5)
    bad.fail(rejection("both"), 2, {1: rejection("the second")})
    found = await Deliveries([b, a, c]).outcomes()
    assert [str(each) if isinstance(each, Exception) else each.offset for each in found] == [
        "both",
        5,
        "the second",
    ]


@on_every_loop
async def test_failures_that_outcomes_told_are_observed(bench: Bench) -> None:
    bad, futures = bench.batch(3)
    bad.fail(rejection(), 3)
    deliveries = Deliveries(futures)
    del futures, bad
    await deliveries.outcomes()
    del deliveries
    await turns()
    assert bench.unobserved == []


@on_every_loop
async def test_cancelling_the_wait_leaves_the_records_alone(bench: Bench) -> None:
    result, futures = bench.batch(3)
    deliveries = Deliveries(futures)
    task = spawn(_all(deliveries))
    await turns(2)
    task.cancel()
    await turns()
    assert task.cancelled()
    assert not any(future.done() for future in futures)
    result.succeed(0)
    assert len(await deliveries) == 3


class Witness:
    """Gone when nothing keeps the frame that it lives in."""


@on_every_loop
async def test_many_failures_leave_nothing_to_the_collector(bench: Bench) -> None:
    async def ask(how: Callable[[Deliveries], Any]) -> weakref.ref[Witness]:
        witness = Witness()
        kept = weakref.ref(witness)
        bad, futures = bench.batch(100)
        bench.call_soon(bad.fail, rejection(), 100)
        deliveries = Deliveries(futures)
        with contextlib.suppress(BrokerRejectedError):
            await how(deliveries)
        return kept

    gc.collect()
    gc.disable()
    try:
        for how in (Deliveries.outcomes, _all):
            kept = await spawn(ask(how))
            await turns()
            assert kept() is None, how
    finally:
        gc.enable()


# -- reports ---


@on_every_loop
async def test_callbacks_that_fail_are_logged_with_their_topic(bench: Bench) -> None:
    reports = DeliveryReports(None)
    result, [delivery, other] = bench.batch(2)
    told: list[int] = []

    def fail(found: Any, error: Any) -> None:
        raise LookupError("a bug of the callback")

    delivery._add_delivery_callback(fail)
    other._add_delivery_callback(lambda found, error: told.append(found.offset))
    result.succeed(0)
    with _Captured() as lines:
        reports.run_callbacks(result)
    assert told == [1]
    [line] = lines
    assert line.getMessage() == "a delivery callback for orders-3 failed"
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], LookupError)


class _Captured(logging.Handler):
    """What `aioproduce` logs; the cases of a bench cannot take pytest's fixture."""

    def __enter__(self) -> list[logging.LogRecord]:
        self.lines: list[logging.LogRecord] = []
        logging.getLogger("aioproduce").addHandler(self)
        return self.lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("aioproduce").removeHandler(self)


def test_unobserved_failures_are_counted_logged_at_a_bounded_rate_and_offered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offered: list[BaseException] = []
    reports = DeliveryReports(offered.append)
    errors = [rejection(f"refused {number}") for number in range(50)]
    for error in errors:
        reports.unobserved_failure("orders", 3, error, 10)
    assert reports.unobserved_failures == 500
    assert offered == errors
    [line] = caplog.records
    assert line.getMessage() == "10 record(s) for orders-3 failed and nobody awaited them: refused 0"
    # Another kind of error, and another topic, are lines of their own.
    late = DeliveryTimeoutError(
        "late",
        topic_partition=TopicPartition("orders", 3),
        possibly_written=True,
        attempts=1,
        retriable=True,
    )
    reports.unobserved_failure("orders", 3, late, 1)
    reports.unobserved_failure("bills", 0, errors[0], 1)
    assert len(caplog.records) == 3


def test_an_on_delivery_error_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: BaseException) -> None:
        raise LookupError("a bug of the callback")

    reports = DeliveryReports(fail)
    reports.unobserved_failure("orders", 3, rejection(), 1)
    reports.unobserved_failure("orders", 3, rejection(), 1)
    assert reports.unobserved_failures == 2
    assert [line.getMessage() for line in caplog.records if line.exc_info] == ["on_delivery_error failed"] * 2
