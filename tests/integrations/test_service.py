"""A producer over the life of a service, whatever its framework."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
from typing import Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    BackgroundFullError,
    BrokerRejectedError,
    BufferExhaustedError,
    InvalidDeadlineError,
    InvalidTopicError,
    MaxBlockTimeoutError,
    NotStartedError,
    ProducerClosedError,
    ProducerStateError,
    WrongEventLoopError,
)
from aioproduce.integrations.service import ProducerService
from aioproduce.integrations.service_values import ServiceState
from aioproduce.testing import FakeCluster
from tests.integrations.serving import FOREVER, make_service, ready, send_until_unknown, stall, until, values

NO_BROKER = "127.0.0.1:1"


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


# Readiness and life


async def test_ready_once_a_broker_has_answered(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    assert service.readiness().reasons == ("the producer is not running",)
    async with service:
        assert service.readiness().reasons == ("no broker has answered yet",)
        assert service.liveness().is_well
        await ready(service)
        await service.send("orders", b"1")
    assert values(cluster) == [b"1"]
    assert service.readiness().reasons == ("the producer is not running",)
    assert service.state is ServiceState.STOPPED


@pytest.mark.parametrize("is_told_to", [False, True], ids=["by default", "unready_on_silent_broker"])
async def test_a_broker_that_stopped_answering(cluster: FakeCluster, is_told_to: bool) -> None:
    """Others go on, so the service stays ready, unless it is told otherwise; readiness names the broker's id."""
    service = make_service(cluster, topics=["orders"], unready_on_silent_broker=is_told_to)
    async with service:
        await ready(service)
        await service.send("orders", b"first", partition=0)
        broker = cluster.leader("orders", 0)
        cluster.faults.stall(broker)
        waiting = await service.producer.send("orders", b"waits", partition=0)
        await until(lambda: service.readiness().silent_brokers)
        health = service.readiness()
        assert health.silent_brokers == (broker,)
        assert health.oldest_record_age >= 1.0
        assert health.oldest_send_wait == 0.0
        assert health.is_well is not is_told_to
        assert health.reasons == ((f"no answer from broker {broker}",) if is_told_to else ())
        cluster.faults.resume(broker)
        await waiting
        health = service.readiness()
        assert (health.is_well, health.silent_brokers, health.oldest_record_age) == (True, (), 0.0)


async def test_starts_and_ends_without_a_broker(nothing_left: None, caplog: pytest.LogCaptureFixture) -> None:
    service = ProducerService(lambda: Producer(NO_BROKER), drain_timeout=FOREVER)
    caplog.set_level(logging.INFO, "aioproduce.service")
    async with service:
        assert service.readiness().reasons == ("no broker has answered yet",)
        assert service.liveness().is_well
    assert messages(caplog) == ["ended: every accepted record has its outcome"]


async def test_ready_only_with_its_topics(cluster: FakeCluster) -> None:
    async with make_service(cluster, topics=["orders", "late"]) as service:
        await until(lambda: service.readiness().reasons == ("1 topic(s) are not known yet",))
        cluster.create_topic("late", 1)
        await ready(service)


async def test_a_topic_that_is_denied_is_told_and_never_ready(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.deny_topic("orders")
    async with make_service(cluster, topics="orders") as service:
        await until(lambda: "the cluster denies access" in caplog.text)
        await until(lambda: service.readiness().reasons == ("1 topic(s) are not known yet",))


async def test_started_again_it_makes_another_producer(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    producers = []
    for value in (b"1", b"2"):
        async with service:
            producers.append(service.producer)
            await service.send("orders", value)
    assert producers[0] is not producers[1]
    assert set(values(cluster)) == {b"1", b"2"}


async def test_a_given_producer_is_started_once(cluster: FakeCluster) -> None:
    service = ProducerService(Producer(cluster.bootstrap_servers))
    async with service:
        with pytest.raises(ProducerStateError, match="already running"):
            await service.start()
    with pytest.raises(ProducerStateError, match="started once"):
        await service.start()
    await service.stop()


async def test_not_started() -> None:
    service = ProducerService(lambda: Producer(NO_BROKER))
    await service.stop()
    with pytest.raises(NotStartedError, match="pass its lifespan to the application"):
        service.background("orders", b"1")
    with pytest.raises(NotStartedError):
        await service.send("orders", b"1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"drain_timeout": -1},
        {"drain_timeout": math.inf},
        {"request_timeout": math.nan},
        {"retry_after": -1},
        {"unknown_status": 200},
        {"background_limit": -1},
    ],
    ids=str,
)
def test_options_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProducerService(lambda: Producer(NO_BROKER), **wrong)


async def test_not_ready_while_the_buffer_has_no_room(cluster: FakeCluster) -> None:
    settings = {"buffer_memory": 40_000, "batch_size": 16_384}
    async with make_service(cluster, settings, topics=["orders"]) as service:
        await ready(service)
        stall(cluster)
        for _ in range(2):
            await service.producer.send("orders", bytes(16_000), partition=0)
        assert service.readiness().reasons == ("the buffer has no room",)
        with pytest.raises(BufferExhaustedError):
            await service.producer.send("orders", bytes(16_000), partition=0, timeout=0)
        stall(cluster, is_stalled=False)
        await ready(service)


async def test_a_sender_that_died_is_not_alive(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_service(cluster) as service:
        await ready(service)
        (sender,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproduce sender")]
        sender.cancel()
        await until(lambda: not service.liveness().is_well)
        assert service.liveness().reasons == ("the sender failed",)
        assert service.readiness().reasons == ("the producer is not running",)


# Deadlines


async def test_not_acknowledged_in_time_the_outcome_is_unknown_and_the_record_goes_on(
    cluster: FakeCluster,
) -> None:
    async with make_service(cluster, topics=["orders"]) as service:
        await ready(service)
        stall(cluster)
        error = await send_until_unknown(service, b"1")
        assert "it may be in the log" in str(error)
        assert error.topic == "orders"
        assert error.waited >= 0.01
        assert service.counts().unknown_outcomes == 1
        assert service.outstanding_records == 1
        stall(cluster, is_stalled=False)
        assert (await error.delivery).offset == 0
    assert values(cluster) == [b"1"]
    assert service.counts().undelivered == 0


async def test_not_accepted_in_time_nothing_is_queued(cluster: FakeCluster) -> None:
    async with make_service(cluster) as service:
        with pytest.raises(MaxBlockTimeoutError):
            await service.send("unknown", b"1", deadline=service.deadline("0.01"))
        assert service.counts().unknown_outcomes == 0
        assert service.outstanding_records == 0


async def test_a_request_without_time_sends_nothing(cluster: FakeCluster) -> None:
    async with make_service(cluster, topics=["orders"]) as service:
        await ready(service)
        deadline = service.deadline("1e-9")
        await asyncio.sleep(0.001)
        with pytest.raises(MaxBlockTimeoutError, match="time was over"):
            await service.send("orders", b"1", deadline=deadline)
    assert values(cluster) == []


async def test_deadlines_are_the_clients_up_to_ours(nothing_left: None) -> None:
    service = ProducerService(lambda: Producer(NO_BROKER), request_timeout=5)
    for told, seconds in ((None, 5), ("60", 5), ("2.5", 2.5), ("inf", 5)):
        deadline = service.deadline(told)
        assert deadline.at - deadline.began_at == pytest.approx(seconds)
        assert 0 <= deadline.remaining() <= seconds
    for wrong in ("", "soon", "0", "-1", "nan", "9" * 500 + "x"):
        with pytest.raises(InvalidDeadlineError, match="X-Request-Timeout") as caught:
            service.deadline(wrong)
        assert caught.value.header == "X-Request-Timeout"
        assert len(str(caught.value)) < 300


async def test_a_failure_within_the_deadline_is_told_as_such(cluster: FakeCluster) -> None:
    async with make_service(cluster, topics=["orders"]) as service:
        await ready(service)
        cluster.faults.fail_produce(87)  # INVALID_RECORD
        with pytest.raises(BrokerRejectedError):
            await service.send("orders", b"1")
        assert service.counts().unknown_outcomes == 0


# In the background


async def test_in_the_background_in_order_counted_and_drained(cluster: FakeCluster) -> None:
    sent = [b"%d" % number for number in range(200)]
    async with make_service(cluster) as service:
        for value in sent:
            service.background("orders", value, partition=0)
        assert service.counts().background_pending == 200
    assert values(cluster) == sent
    counts = service.counts()
    assert (counts.background_pending, counts.background_acknowledged, counts.background_failed) == (
        0,
        200,
        0,
    )
    assert counts.undelivered == 0


async def test_a_background_send_that_fails_is_counted_and_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_service(cluster) as service:
        service.background("not a topic", b"1")
        await until(lambda: service.counts().background_failed == 1)
        assert service.counts().background_pending == 0
        cluster.faults.fail_produce(87)
        service.background("orders", b"1")
        await until(lambda: service.counts().background_failed == 2)
        assert service.counts().background_pending == 0
    assert (
        len([line for line in messages(caplog, logging.WARNING) if "in the background failed" in line]) == 2
    )


async def test_no_more_than_the_limit_in_the_background(cluster: FakeCluster) -> None:
    async with make_service(cluster, background_limit=2) as service:
        service.background("orders", b"1", partition=0)
        service.background("orders", b"2", partition=0)
        with pytest.raises(BackgroundFullError, match="raise background_limit") as caught:
            service.background("orders", b"3")
        assert caught.value.limit == 2
        await until(lambda: service.counts().background_pending == 0)
        service.background("orders", b"4", partition=0)
    assert values(cluster) == [b"1", b"2", b"4"]
    with pytest.raises(ProducerClosedError):
        service.background("orders", b"5")


# The end


async def test_what_is_not_acknowledged_by_then_is_counted_and_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_service(cluster, topics=["orders"]) as service:
        await ready(service)
        stall(cluster)
        deliveries = [await service.producer.send("orders", b"%d" % number) for number in range(3)]
        for _ in range(2):
            service.background("nowhere", b"1")
        await asyncio.sleep(0)
        assert service.outstanding_records == 3
        await service.stop(0.01)
    assert service.counts().undelivered == 5
    assert service.counts().background_failed == 2
    (told,) = messages(caplog, logging.ERROR)
    assert told.startswith("5 record(s) were not acknowledged when the service ended")
    assert "3 were accepted" in told
    assert "2 background records were not accepted" in told
    assert all(delivery.exception() is not None for delivery in deliveries)


async def test_stopped_twice_at_once_it_counts_once_and_both_wait(cluster: FakeCluster) -> None:
    service = make_service(cluster, topics=["orders"])
    await service.start()
    await ready(service)
    stall(cluster)
    await service.producer.send("orders", b"1")
    first, second = (asyncio.create_task(service.stop(0.01)) for _ in range(2))
    await second
    assert service.state is ServiceState.STOPPED
    await first
    assert service.counts().undelivered == 1


async def test_counts_go_on_from_one_life_to_the_next(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    for count in (1, 2):
        async with service:
            service.background("orders", b"1")
            service.background("not a topic", b"1")
        counts = service.counts()
        assert (counts.background_acknowledged, counts.background_failed) == (count, count)


async def test_cancelled_it_drains_all_the_same_and_cancelled_again_it_gives_up(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    started = asyncio.Event()
    service = make_service(cluster, topics=["orders"])

    async def serve() -> None:
        async with service:
            await ready(service)
            stall(cluster)
            await service.producer.send("orders", b"1")
            started.set()
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await started.wait()
    serving.cancel()
    await until(lambda: service.producer.state.name == "CLOSING")
    assert service.outstanding_records == 1
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert service.counts().undelivered == 1
    assert "1 record(s) were not acknowledged" in caplog.text


async def test_an_error_in_its_block_does_not_cost_what_was_accepted(cluster: FakeCluster) -> None:
    service = make_service(cluster, topics=["orders"])

    async def serve() -> None:
        async with service:
            await ready(service)
            await service.producer.send("orders", b"1")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await serve()
    assert values(cluster) == [b"1"]
    assert service.counts().undelivered == 0


async def test_cancelled_with_everything_else_on_the_loop_the_count_is_told_whatever_came_first(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As `asyncio.run()` does at its end: the sender and the service's task, in either order."""
    for is_sender_first in (True, False):
        caplog.clear()
        service = make_service(cluster, topics=["orders"])
        started = asyncio.Event()

        async def serve(service: ProducerService, started: asyncio.Event) -> None:
            async with service:
                await ready(service)
                stall(cluster)
                await service.producer.send("orders", b"1")
                started.set()
                await asyncio.Event().wait()

        serving = asyncio.create_task(serve(service, started))
        await started.wait()
        (sender,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproduce sender")]
        for task in (sender, serving) if is_sender_first else (serving, sender):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert service.counts().undelivered == 1
        assert "1 record(s) were not acknowledged" in caplog.text
        stall(cluster, is_stalled=False)


async def test_background_from_a_thread_is_refused_by_name(cluster: FakeCluster) -> None:
    async with make_service(cluster) as service:
        with pytest.raises(WrongEventLoopError, match="make the endpoint `async def`"):
            await asyncio.to_thread(service.background, "orders", b"1")
        assert service.counts().background_pending == 0


async def test_cancelled_while_it_drains_it_gives_up_at_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = make_service(cluster, topics=["orders"])
    await service.start()
    await ready(service)
    stall(cluster)
    await service.producer.send("orders", b"1")
    service.background("nowhere", b"2")
    stopping = asyncio.create_task(service.stop())
    await until(lambda: service.state is ServiceState.DRAINING)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert service.state is ServiceState.STOPPED
    assert service.counts().undelivered == 2
    assert "2 record(s) were not acknowledged" in caplog.text


# Signals


@pytest.fixture
def handled() -> Any:
    """The signals that a server's handler was called with."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


async def test_not_ready_from_the_signal_on_and_the_server_hears_of_it(
    handled: list[int], cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioproduce")
    servers = signal.getsignal(signal.SIGTERM)
    async with make_service(cluster, topics=["orders"]) as service:
        await ready(service)
        signal.raise_signal(signal.SIGTERM)
        assert service.readiness().reasons == ("the service is ending",)
        assert service.liveness().is_well
        assert handled == [signal.SIGTERM]
        await service.send("orders", b"1")  # requests are still being answered
        await until(lambda: "SIGTERM: no longer ready; " in caplog.text)
        signal.raise_signal(signal.SIGTERM)
        assert handled == [signal.SIGTERM] * 2
    assert signal.getsignal(signal.SIGTERM) is servers
    assert values(cluster) == [b"1"]


async def test_two_services_hear_of_one_signal_and_one_may_end_first(
    handled: list[int], cluster: FakeCluster
) -> None:
    first, second, third = (make_service(cluster) for _ in range(3))
    await first.start()
    await second.start()
    await first.stop()
    await third.start()
    signal.raise_signal(signal.SIGTERM)
    assert handled == [signal.SIGTERM]
    assert [service.state for service in (second, third)] == [ServiceState.DRAINING] * 2
    await second.stop()
    await third.stop()


async def test_a_handler_that_was_put_in_front_of_ours_stays_and_nothing_goes_in_circles(
    handled: list[int], cluster: FakeCluster
) -> None:
    servers = signal.getsignal(signal.SIGTERM)
    service = make_service(cluster)
    async with service:
        ours: Any = signal.getsignal(signal.SIGTERM)
        late: list[int] = []

        def another(number: int, frame: Any) -> None:
            late.append(number)
            ours(number, frame)

        signal.signal(signal.SIGTERM, another)
    assert signal.getsignal(signal.SIGTERM) is another
    async with service:
        signal.raise_signal(signal.SIGTERM)
        assert service.state is ServiceState.DRAINING
        assert (late, handled) == ([signal.SIGTERM], [signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) is another
    signal.signal(signal.SIGTERM, servers)


async def test_a_loops_own_signal_handlers_go_on(cluster: FakeCluster) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, heard.set)
    try:
        async with make_service(cluster) as service:
            os.kill(os.getpid(), signal.SIGTERM)
            await heard.wait()
            assert service.state is ServiceState.DRAINING
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_where_nobody_handles_a_signal_it_is_left_alone(cluster: FakeCluster) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    async with make_service(cluster):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_signals_may_be_left_alone(handled: list[int], cluster: FakeCluster) -> None:
    async with make_service(cluster, watch_signals=False) as service:
        signal.raise_signal(signal.SIGTERM)
        assert "the service is ending" not in service.readiness().reasons
        service.begin_drain()
        service.begin_drain()
        assert "the service is ending" in service.readiness().reasons


async def test_a_server_that_does_not_come_to_the_end_is_told_of(
    handled: list[int], cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_service(cluster, topics=["orders"], drain_timeout=0.01) as service:
        await ready(service)
        stall(cluster)
        await service.producer.send("orders", b"1")
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: "the server has not ended the application" in caplog.text)
        assert "1 accepted record(s) are not acknowledged" in caplog.text


SKIPPED = """
import asyncio, sys
from aioproduce import Producer
from aioproduce.integrations.service import ProducerService
from aioproduce.testing import FakeCluster

async def main():
    cluster = FakeCluster(1, topics={"orders": 1})
    await cluster.start()
    service = ProducerService(lambda: Producer(cluster.bootstrap_servers))
    await service.start()
    await service.send("orders", b"1")
    cluster.faults.stall(0)
    for number in range(3):
        await service.producer.send("orders", b"2")
    service.background("nowhere", b"3")
    await asyncio.sleep(0)
    return service

loop = asyncio.new_event_loop()
service = loop.run_until_complete(main())
print("the loop is left", flush=True)
sys.exit(0)
"""


async def test_a_server_that_skips_the_end_has_the_count_told_at_exit() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "ignore",
        "-c",
        SKIPPED,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out.decode().split() == ["the", "loop", "is", "left"], err.decode()
    skipped, lost = [line for line in err.decode().splitlines() if "record(s)" in line]
    assert "its server skipped the application's end: 1 background record(s) are pending" in skipped
    assert "3 accepted record(s) were not acknowledged and are lost: 3 of 'orders'" in lost


async def test_wrong_topic_is_the_services_bug(cluster: FakeCluster) -> None:
    async with make_service(cluster) as service:
        with pytest.raises(InvalidTopicError) as caught:
            await service.send("not a topic", b"1")
        assert service.answer(caught.value) is None
