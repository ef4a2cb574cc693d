"""What is trio's own about the producer under trio: nurseries, cancel scopes, shields, checkpoints, and other runs.

What every loop does alike is in `test_producer_*`, all of which run under trio, too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import anyio
import pytest
import trio
import trio.testing

from aioproduce import Deliveries, Producer, ProducerConfig
from aioproduce.core.effects import Connect
from aioproduce.drivers.trio import TrioDriver
from aioproduce.drivers.trio_connection import TrioConnection
from aioproduce.errors import (
    BufferExhaustedError,
    DeliveryError,
    ForcedCloseError,
    NoBrokerAvailableError,
    SenderDiedError,
    WrongEventLoopError,
)
from aioproduce.wire.api import ApiKey
from tests.drivers.breaking import break_core
from tests.drivers.loop_thread import cluster_aside
from tests.drivers.producing import FOREVER_MS, closed_port, silent_port

TIGHT: dict[str, Any] = {
    "buffer_memory": 20_000,
    "batch_size": 5_000,
    "linger_ms": 0,
    "max_block_ms": FOREVER_MS,
}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Three brokers; topic `t` has three partitions and `one` has one."""
    with cluster_aside(3, topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started


def run(body: Callable[[], Awaitable[Any]], **options: Any) -> None:
    """A trio run that must leave no task of a producer's behind."""

    async def main() -> None:
        await body()
        await until(lambda: not sender_tasks())

    trio.run(main, **options)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for is in other threads, too)
        await trio.sleep(0.001)


def sender_tasks() -> list[trio.lowlevel.Task]:
    """The system tasks of producers."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, left = [], [root]
    while left:
        task = left.pop()
        found += [task] if task.name.startswith("aioproduce sender") else []
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def kill_the_sender() -> None:
    """As the end of a run does."""
    [task] = sender_tasks()
    [nursery] = task.child_nurseries
    nursery.cancel_scope.cancel()


# Sending, and waiting for it


def test_send_flush_and_close(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            deliveries = [await producer.send("one", b"%d" % n) for n in range(1000)]
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
            assert [(await delivery).offset for delivery in deliveries] == list(range(1000))
            assert (await producer.send_and_wait("one", b"last")).offset == 1000
            assert len((await producer.check()).brokers) == 3

    run(body)
    assert [record.value for record in cluster.records("one")] == [b"%d" % n for n in range(1000)] + [b"last"]


def test_work_and_sleep_fit_into_the_time_there_was(cluster: Any) -> None:
    """As `test_on_sockets.py` has it of the other loops."""

    async def body() -> None:
        began = time.monotonic_ns()
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            for _ in range(50):
                await producer.send_and_wait("one", b"v")
        took = time.monotonic_ns() - began
        found = producer.metrics()
        worked, slept = found.value("io-time-ns-total"), found.value("io-wait-time-ns-total")
        # 50 requests were made and 50 answers read: a microsecond each is little.
        assert worked > 50 * 1000
        assert slept > 0
        assert worked + slept <= took

    run(body)


def test_a_thousand_tasks_of_a_nursery(cluster: Any) -> None:
    offsets: list[int] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:

            async def send() -> None:
                offsets.append((await producer.send_and_wait("one", b"v")).offset)

            async with trio.open_nursery() as nursery:
                for _ in range(1000):
                    nursery.start_soon(send)

    run(body)
    assert sorted(offsets) == list(range(1000))


def test_many_wait_for_one_delivery_and_one_of_them_is_cancelled(cluster: Any) -> None:
    """The record goes on, and so do the other waits."""
    offsets: list[int] = []
    caught: list[bool] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")
            given_up = trio.CancelScope()

            async def wait() -> None:
                offsets.append((await delivery).offset)

            async def wait_in_vain() -> None:
                with given_up:
                    await delivery
                caught.append(given_up.cancelled_caught)

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(wait)
                nursery.start_soon(wait_in_vain)
                await trio.testing.wait_all_tasks_blocked()
                given_up.cancel()
                await until(lambda: caught)
                assert not delivery.done()
                await producer.flush()

    run(body)
    assert (caught, offsets) == ([True], [0] * 5)


def test_a_delivery_that_is_done_is_not_taken_away_by_a_cancellation(cluster: Any) -> None:
    """Settled and cancelled in the same turn: the wait gives the outcome."""
    got: list[int] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")
            scope = trio.CancelScope()

            async def wait() -> None:
                with scope:
                    got.append((await delivery).offset)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                # Told before the waiting task is woken: callbacks are called in the order of the records.
                other = await producer.send("one", b"w", on_delivery=lambda *_: scope.cancel())
                await producer.flush()
            assert other.done()

    run(body)
    assert got == [0]


def test_a_failure_is_raised_where_it_is_awaited(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            cluster.faults.fail_produce(87, message="no such thing")
            delivery = await producer.send("one", b"v")
            with pytest.raises(DeliveryError):
                await delivery
            assert isinstance(delivery.exception(), DeliveryError)
            assert producer.unobserved_failures == 0

    run(body)


def test_cancel_of_a_handle_wakes_who_waits_and_the_record_goes_on(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    with pytest.raises(concurrent.futures.CancelledError, match="the record is still sent"):
                        await delivery

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                assert delivery.cancel()
            with pytest.raises(concurrent.futures.InvalidStateError):
                (await producer.send("one", b"w")).result()

    run(body)
    assert [record.value for record in cluster.records("one")] == [b"v", b"w"]


def test_done_callbacks(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Each in its own turn and context; what one raises is logged, and stops nobody."""
    told: list[str] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")

            def bad(_: object) -> None:
                raise KeyError("the callback's own")

            delivery.add_done_callback(bad)
            delivery.add_done_callback(lambda _: told.append("first"))
            await producer.flush()
            await until(lambda: told)
            delivery.add_done_callback(lambda _: told.append("late"))
            assert told == ["first"]
            await until(lambda: len(told) == 2)

    run(body)
    assert told == ["first", "late"]
    assert "the done-callback" in caplog.text
    assert "the callback's own" in caplog.text


def test_a_done_callback_after_the_close(cluster: Any) -> None:
    told: list[int] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            delivery = await producer.send("one", b"v")
        delivery.add_done_callback(lambda done: told.append(done.result().offset))
        await until(lambda: told)

    run(body)
    assert told == [0]


def test_a_done_callback_after_the_close_has_the_context_that_it_was_given(cluster: Any) -> None:
    name = contextvars.ContextVar("name", default="none")
    told: list[str] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            delivery = await producer.send("one", b"v")
        context = contextvars.copy_context()
        context.run(name.set, "given")
        delivery.add_done_callback(lambda _: told.append(name.get()), context=context)
        await trio.testing.wait_all_tasks_blocked()

    run(body)
    assert told == ["given"]


def test_a_timer_that_comes_late_is_lag_of_the_loop(cluster: Any) -> None:
    """The run's clock is the test's: three seconds pass at once, and one of them is the linger time."""
    clock = trio.testing.MockClock()

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=1000) as producer:
            await producer.send("one", b"v")
            await producer.flush()
            clock.jump(0.2)  # the pulse of what was in flight comes, and is the last one
            await trio.testing.wait_all_tasks_blocked()
            delivery = await producer.send("one", b"lingers")
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(3.0)
            await delivery
            assert producer.metrics().value("event-loop-lag-max") == pytest.approx(2000)

    trio.run(body, clock=clock)


def test_a_wake_up_that_comes_late_is_lag_of_the_loop(cluster: Any) -> None:
    clock = trio.testing.MockClock()

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            await producer.send_and_wait("one", b"v")
            clock.jump(0.2)  # the pulse of what was in flight comes, and is the last one
            await trio.testing.wait_all_tasks_blocked()
            assert not producer.metrics().value("event-loop-lag-max") > 200
            producer.try_send("one", b"wakes the sender")
            clock.jump(5.0)  # before it has its turn
            await producer.flush()
            assert producer.metrics().value("event-loop-lag-max") == pytest.approx(5000)

    trio.run(body, clock=clock)


def test_a_call_back_does_not_wait_for_the_next_record(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.partitions_for("one")
            await trio.testing.wait_all_tasks_blocked()
            told: list[int] = []
            producer._life.driver.on_next_turn(lambda: told.append(1))
            await trio.testing.wait_all_tasks_blocked()
            assert told == [1]

    run(body)


def test_a_run_that_is_blocked_while_an_answer_is_awaited_is_lag_too(cluster: Any) -> None:
    """Nothing of the producer's is due then but the pulse, a tenth of a second after the request."""
    clock = trio.testing.MockClock()

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            await producer.send_and_wait("one", b"v")
            clock.jump(0.2)  # the pulse of what was in flight comes, and is the last one
            await trio.testing.wait_all_tasks_blocked()
            assert not producer.metrics().value("event-loop-lag-max") > 200
            dropped = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
            delivery = await producer.send("one", b"w")
            while not dropped.is_spent:  # no time passes
                await trio.lowlevel.checkpoint()
            clock.jump(1.0)
            await trio.testing.wait_all_tasks_blocked()
            assert producer.metrics().value("event-loop-lag-max") == pytest.approx(900)
            await producer.close(0)
            assert isinstance(delivery.exception(), ForcedCloseError)

    trio.run(body, clock=clock)


def test_a_bug_in_what_a_connection_does_is_told() -> None:
    """And the connection ends."""
    told: list[object] = []

    class Bug(Exception):
        pass

    class Watcher:
        def connected(self, connection_id: int) -> None:
            raise Bug("of the driver")

        def failed(self, error: Exception) -> None:
            told.append(type(error))

        def disconnected(self, connection_id: int, error: Exception | None) -> None:
            told.append(connection_id)

    with silent_port() as address:
        host, port = address.split(":")
        config = ProducerConfig.from_keywords(bootstrap_servers=address)

        async def body() -> None:
            async with trio.open_nursery() as nursery:
                connect = Connect(7, host, int(port), 10.0)
                await TrioConnection(cast(Any, Watcher()), connect, config, nursery).run()

        trio.run(body)
    assert told == [Bug, 7]


def test_bulk_calls(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            handle = await producer.send_many("one", [b"%d" % n for n in range(5000)])
            assert [metadata.offset for metadata in await handle] == list(range(5000))
            more = Deliveries([await producer.send("one", b"v") for _ in range(3)])
            await more.wait()
            assert [metadata.offset for metadata in await more] == [5000, 5001, 5002]

    run(body)


@pytest.mark.parametrize("compression", ["lz4", "gzip", "zstd", "snappy"])
def test_compression_threads_report_to_the_run(cluster: Any, compression: Any) -> None:
    """Batches above the bound from which a thread compresses them."""
    values = [(b"%06d " % n) * 300 for n in range(600)]

    async def body() -> None:
        async with Producer(
            cluster.bootstrap_servers, compression_type=compression, batch_size=1_000_000, linger_ms=50
        ) as producer:
            await (await producer.send_many("one", values)).wait()
            await until(lambda: producer.outstanding_bytes == 0)

    run(body)
    assert [record.value for record in cluster.records("one")] == values


def test_failures_that_nobody_awaits_are_told_of(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[DeliveryError] = []

    async def body() -> None:
        async with Producer(
            cluster.bootstrap_servers, linger_ms=0, on_delivery_error=told.append
        ) as producer:
            cluster.faults.fail_produce(87)
            await producer.send("one", b"v")
            await producer.flush()
            gc.collect()
            await until(lambda: producer.unobserved_failures == 1)

    run(body)
    assert len(told) == 1
    assert "nobody awaited them" in caplog.text


# Checkpoints


def test_send_is_no_checkpoint_with_room_and_yields_after_a_time_slice(cluster: Any) -> None:
    """Another task gets its turns; and none is given for every single record."""
    turns = 0

    async def body() -> None:
        nonlocal turns
        async with (
            Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, buffer_memory=2**30) as producer,
            trio.open_nursery() as nursery,
        ):

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            await producer.partitions_for("one")
            nursery.start_soon(count)
            with trio.testing.assert_no_checkpoints():
                await producer.send("one", b"v")
            sent = 0
            while turns < 20:
                await producer.send("one", b"v")
                sent += 1
            assert sent > 20
            nursery.cancel_scope.cancel()

    run(body)


def test_a_cancelled_task_that_only_sends_is_stopped(cluster: Any) -> None:
    """Within a time slice, though no record ever had to wait."""

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, buffer_memory=2**30) as producer:
            await producer.partitions_for("one")
            sent = 0
            with trio.CancelScope() as scope:
                while True:
                    await producer.send("one", b"v")
                    sent += 1
                    if sent == 10:
                        scope.cancel()
            assert scope.cancelled_caught

    run(body)


def test_a_cancelled_task_that_only_awaits_what_is_done_is_stopped(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            delivery = await producer.send("one", b"v")
            await producer.flush()
            with trio.CancelScope() as scope:
                scope.cancel()
                while True:
                    await delivery
            assert scope.cancelled_caught

    run(body)


def test_every_wait_is_a_checkpoint(cluster: Any) -> None:
    """Cancelled before it is asked, each call that waits, or may, raises; and the producer goes on."""

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: delivery,
                lambda: Deliveries([delivery]),
                lambda: producer.check(),
                lambda: producer.partitions_for("unknown"),
                lambda: producer.send("unknown", b"v"),
                lambda: producer.send_and_wait("one", b"v"),
                lambda: producer.flush(),
            ]
            for call in calls:
                with trio.CancelScope() as scope, trio.testing.assert_checkpoints():
                    scope.cancel()
                    await call()
                assert scope.cancelled_caught
            await producer.flush()
            with trio.CancelScope() as scope, trio.testing.assert_checkpoints():
                scope.cancel()
                await producer.flush()  # nothing left to flush
            assert scope.cancelled_caught
            assert (await delivery).offset == 0

    run(body)


def test_a_cancelled_send_that_waits_for_room_leaves_no_trace(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, **TIGHT) as producer:
            await producer.partitions_for("one")
            stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
            for n in range(4):
                await producer.send("one", b"%d" % n + bytes(3_999))
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(producer.send, "one", b"cancelled" + bytes(3_991))
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            stuck.cancel()
            cluster.faults.reset_connections()
            await producer.send_and_wait("one", b"4" + bytes(3_999))
            await until(lambda: producer.outstanding_bytes == 0)

    run(body)
    assert [record.value[:1] for record in cluster.records("one")] == [b"0", b"1", b"2", b"3", b"4"]


def test_the_bounds_of_a_wait_are_its_own(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, **TIGHT) as producer:
            await producer.partitions_for("one")
            stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
            for _ in range(4):
                await producer.send("one", bytes(4_000))
            with pytest.raises(BufferExhaustedError) as caught:
                await producer.send("one", bytes(4_000), timeout=0.01)
            assert caught.value.waited >= 0.01
            stuck.cancel()
            cluster.faults.reset_connections()

    run(body)


def test_what_the_system_does_not_take_at_once_is_written_later(cluster: Any) -> None:
    """A broker that does not read: requests of megabytes stay in pieces, until it does."""

    async def body() -> None:
        async with Producer(
            cluster.bootstrap_servers,
            linger_ms=0,
            batch_size=4_000_000,
            max_request_size=8_000_000,
            send_buffer_bytes=65_536,
        ) as producer:
            await producer.partitions_for("one")
            leader = cluster.leader("one", 0)
            await producer.send_and_wait("one", b"before")
            cluster.faults.stall(leader)
            deliveries = [await producer.send("one", bytes([n]) * 900_000) for n in range(4)]
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not any(delivery.done() for delivery in deliveries)
            driver = producer._life.driver
            assert isinstance(driver, TrioDriver)
            connections = driver.core.connections.values()
            assert any(each._rest for each in connections if isinstance(each, TrioConnection))
            cluster.faults.resume(leader)
            for delivery in deliveries:
                await delivery
            await until(lambda: producer.outstanding_bytes == 0)

    run(body)
    assert [record.value for record in cluster.records("one")[1:]] == [bytes([n]) * 900_000 for n in range(4)]


# Scopes


def test_a_cancelled_scope_around_the_producer_ends_everything(cluster: Any) -> None:
    """Records are stuck, and the outer scope is cancelled: close gives up on them, and is done when it ends."""
    kept: list[Any] = []

    async def body() -> None:
        cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        with trio.CancelScope() as scope:
            async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
                kept.append(await producer.send("one", b"v"))
                await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
                kept.append(producer)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert sender_tasks() == []
        delivery, producer = kept
        assert isinstance(delivery.exception(), ForcedCloseError)
        assert producer.outstanding_bytes == 0

    run(body)


def test_a_shield_lets_a_close_in_a_cancelled_scope_deliver(cluster: Any) -> None:
    async def body() -> None:
        producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS)
        with trio.CancelScope() as scope:
            await producer.start()
            delivery = await producer.send("one", b"v")
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await producer.close()
        assert delivery.result().offset == 0

    run(body)


def test_start_and_close_in_different_scopes_and_tasks(cluster: Any) -> None:
    """What a nursery that is held open between the two would not survive."""

    async def body() -> None:
        producer = Producer(cluster.bootstrap_servers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.start)
        with trio.CancelScope():
            assert (await producer.send_and_wait("one", b"v")).offset == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.close)

    run(body)


def test_a_cancelled_scope_in_which_it_was_started_does_not_reach_the_sender(cluster: Any) -> None:
    async def body() -> None:
        producer = Producer(cluster.bootstrap_servers)
        with trio.CancelScope() as scope:
            await producer.start()
            scope.cancel()
        assert (await producer.send_and_wait("one", b"v")).offset == 0
        await producer.close()

    run(body)


@pytest.mark.parametrize("timeout", [None, 0, 0.01])
def test_close_twice_and_by_several(cluster: Any, timeout: float | None) -> None:
    async def body() -> None:
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(producer.close, timeout)
        await producer.close()
        assert sender_tasks() == []

    run(body)


def test_the_bodys_own_error_comes_out_as_it_is(cluster: Any) -> None:
    """In no group: what `async with` holds open is no nursery of the user's."""

    async def fail() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("one", b"v")
            raise KeyError("the body's own")

    async def body() -> None:
        with pytest.raises(KeyError, match="the body's own"):
            await fail()

    run(body)
    assert len(cluster.records("one")) == 1


def test_require_broker_without_one() -> None:
    async def body() -> None:
        with closed_port() as address:
            producer = Producer(address, max_block_ms=50)
            with pytest.raises(NoBrokerAvailableError, match="refused"):
                await producer.start(require_broker=True)
            assert sender_tasks() == []

    run(body)


def test_a_cancelled_start_leaves_nothing() -> None:
    async def body() -> None:
        with silent_port() as address, trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: Producer(address).start(require_broker=True))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert sender_tasks() == []

    run(body)


def test_a_name_that_is_not_known() -> None:
    async def body() -> None:
        async with Producer("no-such-host.invalid:9092", max_block_ms=200) as producer:
            with pytest.raises(NoBrokerAvailableError):
                await producer.check(0.2)

    run(body)


# The sender's death


def test_the_senders_death_cancels_the_body_and_surfaces_from_async_with(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []

    async def live() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("one", b"v")
            kill_the_sender()
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                reached.append("cancelled")
                raise

    async def body() -> None:
        with pytest.raises(SenderDiedError) as caught:
            await live()
        assert isinstance(caught.value.__cause__, trio.RunFinishedError)
        assert sender_tasks() == []

    run(body)
    assert reached == ["cancelled"]
    assert "was left open" in caplog.text


@pytest.mark.parametrize("own_error", [None, ZeroDivisionError("the body's own")], ids=["none", "its own"])
def test_a_death_while_it_closes_hides_no_error_of_the_body(
    cluster: Any, own_error: ZeroDivisionError | None
) -> None:
    async def live(nursery: trio.Nursery) -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("one", b"v")
            cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
            await producer.send("one", b"w")

            async def kill() -> None:
                while "closing" not in repr(producer):
                    await trio.lowlevel.checkpoint()
                kill_the_sender()

            nursery.start_soon(kill)
            if own_error is not None:
                raise own_error

    async def body() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(SenderDiedError if own_error is None else ZeroDivisionError) as caught:
                await live(nursery)
        assert own_error is None or caught.value is own_error

    run(body)


def test_a_bug_surfaces_with_its_cause(cluster: Any) -> None:
    async def live() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("one", b"v")
            break_core(producer._life.sender, ZeroDivisionError("a bug"))
            await producer.send("one", b"w")
            await trio.sleep_forever()

    async def body() -> None:
        with pytest.raises(SenderDiedError) as caught:
            await live()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    run(body)


def test_a_bug_of_a_connections_task_is_the_senders_death(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError("a bug")

    async def live() -> None:
        async with Producer(cluster.bootstrap_servers):
            await trio.sleep_forever()

    async def body() -> None:
        with pytest.raises(SenderDiedError) as caught:
            await live()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    monkeypatch.setattr(TrioConnection, "_read", broken)
    run(body)


def test_a_connection_that_was_there_did_not_fail_to_be_made(cluster: Any) -> None:
    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, retries=0) as producer:
            await producer.partitions_for("one")
            dropped = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
            delivery = await producer.send("one", b"v")
            await until(lambda: dropped.is_spent)
            cluster.faults.reset_connections()
            with pytest.raises(DeliveryError) as caught:
                await delivery
            assert "given up" not in str(caught.value)

    run(body)


def test_after_its_death_every_call_says_so_and_the_run_goes_on(cluster: Any) -> None:
    async def body() -> None:
        producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS)
        await producer.start()
        delivery = await producer.send("one", b"v")
        kill_the_sender()
        with pytest.raises(DeliveryError, match="before the producer was closed"):
            await delivery
        for call in (lambda: producer.send("one", b"v"), producer.flush, producer.check):
            with pytest.raises(SenderDiedError):
                await call()
        await producer.close()
        await producer.close()

    run(body)


def test_a_run_that_forgets_to_close_ends(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The run cancels its system tasks: no hang, every delivery knows, and the sockets are closed."""
    found: list[Any] = []

    async def main() -> None:
        producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS)
        await producer.start()
        found.append(await producer.send("one", b"v"))

    trio.run(main)
    assert isinstance(found[0].exception(), DeliveryError)
    assert "the trio run ended before the producer was closed" in caplog.text


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_callback_that_is_to_end_the_process_does(cluster: Any, kind: type[BaseException]) -> None:
    def end(*_: object) -> None:
        raise kind("enough")

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("one", b"v", on_delivery=end)
            await producer.flush()
            await trio.sleep_forever()

    with pytest.raises(kind, match="enough"):
        trio.run(body)


# Elsewhere


def test_another_run_of_the_same_thread(cluster: Any) -> None:
    """After the run that started it, nothing is accepted any more."""
    kept: list[Producer] = []

    async def begin() -> None:
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("one", b"v")
        kept.append(producer)

    async def go_on() -> None:
        with pytest.raises((SenderDiedError, WrongEventLoopError)):
            await kept[0].send("one", b"v")

    trio.run(begin)
    trio.run(go_on)
    assert kept[0].metrics().value("record-send-total") == 1
    assert len(cluster.records("one")) == 1


def test_another_run_at_the_same_time(cluster: Any) -> None:
    failures: list[BaseException] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")

            async def send() -> None:
                await producer.send("one", b"v")

            async def wait() -> None:
                await delivery

            async def close() -> None:
                await producer.close()

            for there in (send, wait, close):
                for elsewhere in (trio.run, asyncio_run):
                    try:
                        await trio.to_thread.run_sync(elsewhere, there)
                    except WrongEventLoopError as error:
                        failures.append(error)

    run(body)
    assert len(failures) == 6
    assert len(cluster.records("one")) == 1


def asyncio_run(body: Callable[[], Any]) -> None:
    asyncio.run(body())


def test_a_task_of_another_run_that_awaits_a_delivery_of_asyncios(cluster: Any) -> None:
    """And of the guest run on the same loop: typed errors, no hang."""
    caught: list[str] = []

    async def host() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            delivery = await producer.send("one", b"v")
            ended = asyncio.get_running_loop().create_future()

            async def guest() -> None:
                with pytest.raises(WrongEventLoopError) as awaited:
                    await delivery
                caught.append(str(awaited.value))
                for call in (producer.flush, producer.check, producer.close):
                    with pytest.raises(WrongEventLoopError) as asked:
                        await call()
                    caught.append(str(asked.value))

            trio.lowlevel.start_guest_run(
                guest,
                run_sync_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe,
                done_callback=ended.set_result,
            )
            (await ended).unwrap()

    asyncio.run(host())
    assert len(caught) == 4
    assert len(cluster.records("one")) == 1


def test_a_guest_run_on_asyncio(cluster: Any) -> None:
    """A trio task is trio's, whatever hosts the run; the host's own tasks are told apart from it."""
    refused: list[BaseException] = []

    async def host() -> None:
        ended = asyncio.get_running_loop().create_future()
        accepted = asyncio.Event()
        kept: list[Any] = []

        async def guest() -> None:
            async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
                assert isinstance(producer._life.driver, TrioDriver)
                go_on = trio.Event()
                token = trio.lowlevel.current_trio_token()
                kept.extend([producer, await producer.send("one", b"v"), token, go_on])
                accepted.set()
                await go_on.wait()

        loop = asyncio.get_running_loop()
        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result
        )
        await accepted.wait()
        producer, delivery, token, go_on = kept
        for awaited in (producer.send("one", b"w"), delivery):
            try:
                await awaited
            except WrongEventLoopError as error:
                refused.append(error)
        token.run_sync_soon(go_on.set)
        (await ended).unwrap()

    asyncio.run(host())
    assert len(refused) == 2
    assert [record.value for record in cluster.records("one")] == [b"v"]


def test_without_a_loop_start_says_what_to_do() -> None:
    starting: Any = Producer("127.0.0.1:9092").start()
    with pytest.raises(WrongEventLoopError, match=r"trio\.run\(\)"):
        starting.send(None)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_driver_is_chosen_by_what_anyio_runs(cluster: Any, backend: str) -> None:
    kinds: list[str] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers) as producer, anyio.create_task_group() as group:
            kinds.append(type(producer._life.driver).__name__)
            for _ in range(10):
                group.start_soon(producer.send_and_wait, "one", b"v")

    anyio.run(body, backend=backend)
    assert kinds == [{"asyncio": "AsyncioDriver", "trio": "TrioDriver"}[backend]]
    assert len(cluster.records("one")) == 10


def test_metrics_from_another_thread_and_after_the_end(cluster: Any) -> None:
    async def body(producer: Producer) -> None:
        async with producer:
            await producer.send_and_wait("one", b"v")
            there = await trio.to_thread.run_sync(producer.metrics)
            assert there.value("record-send-total") == 1

    producer = Producer(cluster.bootstrap_servers)
    trio.run(body, producer)
    assert producer.metrics().value("record-send-total") == 1
