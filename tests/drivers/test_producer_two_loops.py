"""One producer and two event loops, one after the other or side by side: every call says what is wrong.

`test_producer_places.py` has the calls from another loop while the producer's own runs, `test_trio.py` those of
trio's.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import trio
import uvloop

from aioproduce import Producer
from aioproduce.errors import DeliveryError, ProducerStateError, SenderDiedError, WrongEventLoopError
from aioproduce.testing import ClusterThread
from tests.drivers.producing import FOREVER_MS

CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"v"),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"v"),
    "try_send": lambda producer: producer.try_send("t", b"v"),
    "send_many": lambda producer: producer.send_many("t", [b"v"]),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "check": lambda producer: producer.check(),
}

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread(topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


@pytest.fixture
def run(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    """`asyncio.run()`, or `uvloop.run()`."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(coroutine)

    return run


async def outcome(call: Callable[[Producer], Any], producer: Producer) -> ProducerStateError:
    with pytest.raises(ProducerStateError) as caught:  # noqa: PT012 - the call may raise at once, or its coroutine
        result = call(producer)
        if inspect.isawaitable(result):
            await result
    return caught.value


async def send_one(producer: Producer) -> None:
    async with producer:
        await producer.send_and_wait("one", b"v")


# One after the other


def test_a_producer_that_was_closed_with_its_loop(cluster: ClusterThread, run: Run) -> None:
    producer = Producer(cluster.bootstrap_servers)
    run(send_one(producer))
    with pytest.raises(ProducerStateError, match="started once; this one is closed") as caught:
        run(send_one(producer))
    assert "Make another one: Producer(producer.config)" in str(caught.value)
    run(send_one(Producer(producer.config)))
    run(producer.close())
    assert cluster.produced("one").values == [b"v", b"v"]


async def leave_open(producer: Producer) -> Any:
    await producer.start()
    await producer.send_and_wait("one", b"acknowledged")
    return await producer.send("t", b"lingers")


def test_a_producer_that_was_left_open_when_its_loop_ended(
    cluster: ClusterThread, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """`asyncio.run()` cancels its sender: what was not sent is told failed, and every later call says why."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)

    async def leave() -> Any:
        await producer.start()
        await producer.partitions_for("t")
        return await producer.send("t", b"lingers")

    delivery = run(leave())

    assert "as asyncio.run() does at its end" in caplog.text
    assert isinstance(delivery.exception(), DeliveryError)
    assert not delivery.exception().possibly_written
    for name, call in CALLS.items():
        error = run(outcome(call, producer))
        assert type(error) is SenderDiedError, name
        assert "close it before its loop ends, by `async with producer:`" in str(error), name
        assert isinstance(error.__cause__, asyncio.CancelledError), name
    with pytest.raises(ProducerStateError, match="this one is died"):
        run(producer.start())
    run(producer.close())
    run(producer.close(0))
    trio.run(producer.close)
    assert producer.outstanding_bytes == 0
    cluster.assert_nothing_produced("t")


def test_its_connections_are_gone_with_the_loop(cluster: ClusterThread, run: Run) -> None:
    producer = Producer(cluster.bootstrap_servers)
    run(leave_open(producer))
    gc.collect()  # a socket that nobody closed would warn now
    while cluster.connections:
        pass
    with pytest.raises(SenderDiedError):
        trio.run(producer.flush)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_with_all_that_runs_on_it(
    cluster: ClusterThread,
) -> None:
    """Without `asyncio.run()` nobody is told: only that the loop is closed can be seen.

    On asyncio alone: uvloop's `close()` does not return while a transport is open, whoever's it is.
    """
    run: Run = asyncio.run
    producer = Producer(cluster.bootstrap_servers)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(producer.start())
    loop.run_until_complete(producer.send_and_wait("one", b"v"))
    loop.close()

    for name, call in {**CALLS, "close": lambda producer: producer.close()}.items():
        error = run(outcome(call, producer))
        assert type(error) is WrongEventLoopError, name
        assert "the event loop that this producer was started on has ended" in str(error), name
        assert "Producer(producer.config)" in str(error), name
    assert producer.metrics().value("record-send-total") == 1
    run(send_one(Producer(producer.config)))
    # What the loop left pending warns when it is collected, as asyncio has it: here, and in no later test.
    del producer, loop, error
    gc.collect()


def test_a_cancelled_sender_does_not_cancel_who_uses_it(cluster: ClusterThread, run: Run) -> None:
    """Test frameworks cancel every task but the test's: the end of `async with` says so, by an error of its own."""

    async def main() -> None:
        with pytest.raises(SenderDiedError) as caught:
            await cancelled_inside()
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)

    async def cancelled_inside() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others)
            assert producer.state.name == "DIED"

    run(main())


# Side by side


def test_a_loop_that_stands_still(
    cluster: ClusterThread, run: Run, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """`run_until_complete()` has returned and will be called again: the producer waits, and belongs to it still."""
    producer = Producer(cluster.bootstrap_servers)
    loop = new_loop()
    loop.run_until_complete(producer.start())
    loop.run_until_complete(producer.partitions_for("t"))

    for name, call in {**CALLS, "close": lambda producer: producer.close()}.items():
        error = run(outcome(call, producer))
        assert type(error) is WrongEventLoopError, name
        assert "use one producer per loop" in str(error), name
    with pytest.raises(WrongEventLoopError):
        producer.try_send("t", b"v")

    loop.run_until_complete(producer.send_and_wait("one", b"v"))
    loop.run_until_complete(producer.close())
    loop.close()
    cluster.assert_produced_exactly("one", [b"v"])
    cluster.assert_nothing_produced("t")


def test_two_loops_start_one_producer(cluster: ClusterThread, run: Run) -> None:
    """The second is refused; its `async with` closes nothing of the first's."""
    producer = Producer(cluster.bootstrap_servers)

    async def first() -> None:
        async with producer:
            with pytest.raises(ProducerStateError, match="started once; this one is running"):
                await asyncio.to_thread(run, send_one(producer))
            await producer.send_and_wait("one", b"first")

    run(first())
    cluster.assert_produced_exactly("one", [b"first"])


@pytest.mark.parametrize("when", ["before it is acknowledged", "afterwards"])
def test_a_delivery_awaited_on_another_loop(cluster: ClusterThread, run: Run, when: str) -> None:
    """Before, it is asyncio's own error, as with any future; what is settled can be asked for anywhere."""

    async def wait(delivery: Any) -> Any:
        return await delivery

    async def main() -> None:
        async with Producer(
            cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS
        ) as producer:
            delivery = await producer.send("one", b"v")
            if when == "afterwards":
                await producer.flush()
                assert (await asyncio.to_thread(run, wait(delivery))).offset == 0
            else:
                with pytest.raises(RuntimeError, match="loop"):
                    await asyncio.to_thread(run, wait(delivery))
                await producer.flush()
            assert (await delivery).offset == 0

    run(main())
