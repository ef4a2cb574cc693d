"""A loop that ends under an open producer: one line says how many accepted records of which topics are lost.

The same number is in `unobserved_failures`. The programs are those of users: `asyncio.run()`, `uvloop.run()`,
`trio.run()`, `loop.close()`, a script that just ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest
import trio
import uvloop

from aioproduce import Producer
from aioproduce.errors import DeliveryError
from aioproduce.testing import ClusterThread
from aioproduce.wire.api import ApiKey
from tests.drivers.producing import PATIENCE

LOST = "500 accepted record(s) were not acknowledged and are lost: 300 of 'orders', 200 of 'clicks'."
SENT = "500 of them were sent before, and may be in the log."
REMEDY = "use `async with producer:`, or await producer.close()"

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    """One that acknowledges nothing."""
    with ClusterThread(topics={"orders": 3, "clicks": 1}) as started:
        started.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        yield started


RUNS: dict[str, Run] = {
    "asyncio": lambda main: asyncio.run(main()),
    "asyncio, debug": lambda main: asyncio.run(main(), debug=True),
    "uvloop": lambda main: uvloop.run(main()),
    "trio": trio.run,
}


@pytest.fixture(params=list(RUNS.values()), ids=list(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    made: Run = request.param
    return made


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told at WARNING and above, but for the slow steps that asyncio tells of in debug mode."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("aioproduce")
    ]


async def fill(producer: Producer, cluster: ClusterThread) -> list[Any]:
    """Have 500 records accepted, and sent; the last one of each topic is given."""
    await producer.start()
    await producer.partitions_for("clicks")  # an answer to another request would show that one is missing
    for number in range(300):
        order = await producer.send("orders", b"%d" % number)
    for number in range(200):
        click = await producer.send("clicks", b"%d" % number)
    sent: set[str] = set()
    while len(sent) < 2:
        sent = {topic for topic in ("orders", "clicks") if producer_sent(producer, topic)}
        await anyio.sleep(0.001)
    return [order, click]


def producer_sent(producer: Producer, topic: str) -> bool:
    snapshot = producer.metrics()
    sent = {metric.tags.get("topic"): metric.value for metric in snapshot.find("record-send-total")}
    return sent.get(topic) == {"orders": 300, "clicks": 200}[topic]


def test_the_end_of_the_program(cluster: ClusterThread, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer(cluster.bootstrap_servers, client_id="shop")
    kept: list[Any] = []

    async def main() -> None:
        kept.extend(await fill(producer, cluster))

    run(main)
    [line] = lines(caplog)
    assert line.startswith("producer 'shop' was left open: ")
    assert f"{LOST} {SENT} " in line
    assert line.endswith(REMEDY)
    assert "sender task died" not in line
    assert producer.unobserved_failures == producer.abandoned_records == 500
    assert producer.metrics().value("unobserved-failure-total") == 500
    assert producer.state.name == "DIED"
    # Who asks all the same is told, and nothing is counted or logged again.
    for delivery in kept:
        assert isinstance(delivery.exception(), DeliveryError)
        assert delivery.exception().possibly_written
    kept.clear()
    gc.collect()
    assert lines(caplog) == [line]


def test_with_nothing_lost_the_line_says_so(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await producer.start()
        await producer.send_and_wait("orders", b"42")

    with ClusterThread(topics={"orders": 3}) as cluster:
        producer = Producer(cluster.bootstrap_servers)
        run(main)
    [line] = lines(caplog)
    assert "No accepted record is lost." in line
    assert line.endswith(REMEDY)
    assert [record.levelname for record in caplog.records if record.getMessage() == line] == ["WARNING"]
    assert producer.unobserved_failures == 0


def test_records_whose_failure_somebody_hears_of_are_not_counted(
    cluster: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    """A framework cancels every task, and the loop goes on: who awaits a record hears of it."""
    producer = Producer(cluster.bootstrap_servers)
    told: list[BaseException | None] = []

    async def main() -> None:
        kept = await fill(producer, cluster)
        called_back = await producer.send(
            "clicks", b"called back", on_delivery=lambda _, error: told.append(error)
        )
        sender = next(each for each in asyncio.all_tasks() if each.get_name().startswith("aioproduce sender"))
        sender.cancel()
        for delivery in kept:
            with pytest.raises(DeliveryError):
                await delivery
        del called_back

    asyncio.run(main())
    [line] = lines(caplog)
    assert "501 accepted record(s)" in line
    assert len(told) == 1
    assert producer.unobserved_failures == 501 - 2 - 1


def closed_loop(cluster: ClusterThread, producer: Producer) -> None:
    """`loop.close()` without an end of its tasks, none of which has a delivery."""

    async def main() -> None:
        await fill(producer, cluster)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the sockets, unclosed
def test_a_loop_that_is_closed_with_its_tasks(
    cluster: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    """On asyncio alone: uvloop's `close()` does not return while a transport is open."""
    producer = Producer(cluster.bootstrap_servers, client_id="shop")
    closed_loop(cluster, producer)
    assert producer.unobserved_failures == 500
    assert producer.abandoned_records == 500
    assert producer.state.name == "DIED"
    [line] = lines(caplog)
    assert line.startswith(
        "producer 'shop' was left open: the event loop was closed before the producer was. "
    )
    assert LOST in line
    del producer
    gc.collect()
    assert lines(caplog) == [line]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the sockets, unclosed
def test_a_producer_that_is_collected_with_its_closed_loop(
    cluster: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody asks it for anything any more: the collector finds out."""
    closed_loop(cluster, Producer(cluster.bootstrap_servers, client_id="shop"))
    for _ in range(100):  # a collection does nothing while another thread is at one
        gc.collect()
        if lines(caplog):
            break
    [line] = lines(caplog)
    assert LOST in line
    assert not any("Task was destroyed" in record.getMessage() for record in caplog.records)


def test_a_scope_that_is_cancelled_around_it(
    cluster: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    """trio's `close()` in a cancelled scope can wait for nothing, and the run goes on."""
    producer = Producer(cluster.bootstrap_servers, client_id="shop")

    async def work(scope: trio.CancelScope) -> None:
        try:
            await fill(producer, cluster)
            scope.cancel()
            await trio.sleep_forever()
        finally:
            await producer.close()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, nursery.cancel_scope)
        with trio.fail_after(PATIENCE):
            while producer.unobserved_failures < 500:  # noqa: ASYNC110  (nothing tells)
                await trio.sleep(0.001)

    trio.run(main)
    [line] = lines(caplog)
    assert line.startswith("close() of producer 'shop' was cancelled and gave up. ")
    assert f"{LOST} {SENT} " in line
    assert producer.unobserved_failures == producer.abandoned_records == 500


# Programs of their own

HEAD = """
import asyncio, sys, threading, time
from aioproduce import BlockingProducer, Producer
servers = sys.argv[1]

async def fill(producer):
    await producer.start()
    await producer.partitions_for("clicks")
    for number in range(300):
        await producer.send("orders", b"%d" % number)
    for number in range(200):
        await producer.send("clicks", b"%d" % number)
    # asyncio itself complains of connections that are half made.
    while producer.metrics().value("record-send-total") < 500:
        await asyncio.sleep(0.001)
"""

PROGRAMS: dict[str, tuple[str, str]] = {
    "the script ends, and its loop was only stopped": (
        """
producer = Producer(servers, client_id="shop")
loop = asyncio.new_event_loop()
loop.run_until_complete(fill(producer))
""",
        f"the process ends, and producer 'shop' is still open. {LOST}",
    ),
    "the loop runs in a daemon thread": (
        """
filled = threading.Event()
async def main():
    producer = Producer(servers, client_id="shop")
    await fill(producer)
    filled.set()
    await asyncio.sleep(3600)
threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
filled.wait()
""",
        f"the process ends, and producer 'shop' is still open. {LOST}",
    ),
    "asyncio.run(), and the producer is gone with main()": (
        """
async def main():
    await fill(Producer(servers, client_id="shop"))
asyncio.run(main())
""",
        "producer 'shop' was left open: the event loop cancelled its tasks, as asyncio.run() does at its end, "
        f"before the producer was closed. {LOST}",
    ),
    "BlockingProducer": (
        """
producer = BlockingProducer(servers, client_id="shop", exit_timeout=0.2)
producer.start()
producer.partitions_for("clicks")
for number in range(300):
    producer.send("orders", b"%d" % number)
for number in range(200):
    producer.send("clicks", b"%d" % number)
""",
        "BlockingProducer 'shop' was still open when the process ended, and 500 record(s) failed within the 0.2 s "
        f"that it then had. {LOST}",
    ),
}


@pytest.mark.parametrize(("program", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_that_forgets_to_close(cluster: ClusterThread, program: str, expected: str) -> None:
    """One line on its standard error, and nothing else."""
    ended = subprocess.run(
        [sys.executable, "-c", HEAD + program, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith(expected)
    assert "producer.close()" in ended.stderr
    assert ended.returncode == 0
