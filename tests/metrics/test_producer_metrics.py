"""What only a whole producer can tell: gauges, the pool, timed calls, refused records, the event loop, windows.

Played in virtual time: the truth is the script's own clock, what its tasks counted themselves, and what the
simulated brokers were asked.
"""

from __future__ import annotations

import asyncio
import gc
import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    BufferExhaustedError,
    InvalidRecordError,
    MetadataTimeoutError,
    NotStartedError,
    PartialSendError,
    ProducerClosedError,
    ProducerError,
    RecordTooLargeError,
    SenderDiedError,
    SerializationError,
)
from aioproduce.testing.simulation import Simulation
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.drivers.breaking import Altered, break_core

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce import ProducerRecord
    from aioproduce.metrics import MetricsSnapshot

# A simulated turn of the loop takes a microsecond; a few dozen of them are no time.
SOON = 0.001


def simulated(**settings: Any) -> Simulation:
    """A cluster without distance: what takes time is what the script says."""
    simulation = Simulation(1, **{"topics": {"t": 3, "one": 1}, "auto_create_topics": False, **settings})
    for broker in simulation.cluster.state.brokers:
        simulation.network.set_latency(host_of(broker), 0.0, 0.0)
    return simulation


def play(simulation: Simulation, story: Callable[[Producer], Awaitable[Any]], **settings: Any) -> Any:
    """A producer's life, with this in it."""

    async def main() -> Any:
        async with asyncio.timeout(3600), Producer(simulation.bootstrap_servers, **settings) as producer:
            return await story(producer)

    return simulation.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


# -- before, during and after ---


def test_before_the_start_and_after_the_end() -> None:
    simulation = simulated()

    async def main() -> None:
        producer = Producer(simulation.bootstrap_servers, buffer_memory=1_000_000)
        first = producer.metrics()
        assert first.value("buffer-total-bytes") == first.value("buffer-available-bytes") == 1_000_000
        assert first.value("record-send-total") == first.value("connection-count") == 0
        assert first.value("start-time-ms") == 0
        assert math.isnan(first.value("metadata-age"))
        assert math.isnan(first.value("request-latency-avg"))
        assert first.value("record-send-rate") == 0
        async with producer:
            await producer.send_and_wait("t", b"x")
            during = producer.metrics()
        after = producer.metrics()
        assert during.value("connection-count") > 0
        for name in ("connection-count", "requests-in-flight", "waiting-threads"):
            assert after.value(name) == 0, name
        assert after.value("buffer-available-bytes") == 1_000_000
        for name in ("record-send-total", "connection-creation-total", "request-total"):
            assert after.value(name) == during.value(name) > 0
        assert after.value("connection-close-total") == after.value("connection-creation-total")
        assert after.taken_at_ms >= during.taken_at_ms >= 1_700_000_000_000

    simulation.run(main())


def test_of_one_that_was_never_started() -> None:
    async def main() -> None:
        producer = Producer("nowhere:1")
        await producer.close()
        assert producer.metrics().value("record-send-total") == 0

    asyncio.run(main())


def test_connections_requests_in_flight_and_the_age_of_metadata() -> None:
    simulation = simulated()
    cluster = simulation.cluster

    async def story(producer: Producer) -> None:
        for partition in range(3):
            await producer.send_and_wait("t", b"x", partition=partition)
        before = producer.metrics()
        assert before.value("connection-count") == len(cluster.model.connections)
        assert before.value("connection-creation-total") == cluster.model.connections_opened
        software = before.find("connections")[0]
        assert software.value == len(cluster.model.connections)
        assert software.tags["clientSoftwareName"] == "aioproduce"

        cluster.model.faults.delay_answers(2.0, api=ApiKey.PRODUCE)
        asked = cluster.model.requests.count(ApiKey.PRODUCE)
        for partition in (0, 1):
            await producer.send("t", b"y", partition=partition)
        await asyncio.sleep(1.0)
        held = cluster.model.requests.count(ApiKey.PRODUCE) - asked
        found = producer.metrics()
        assert found.value("requests-in-flight") == held == 2
        leaders = [cluster.state.require_partition("t", partition).leader_id for partition in range(3)]
        for partition, leader in enumerate(leaders):
            at_it = found.value("requests-in-flight", node_id=f"node-{leader}")
            assert at_it == leaders[:2].count(leader), partition
        await producer.flush()
        assert producer.metrics().value("requests-in-flight") == 0

        await asyncio.sleep(100.0)
        age = now() - cluster.model.requests.times(ApiKey.METADATA)[-1]
        assert producer.metrics().value("metadata-age") == pytest.approx(age, abs=SOON)
        assert age > 100
        await asyncio.sleep(300.0)  # metadata.max.age.ms is over: it was asked for again
        age = now() - cluster.model.requests.times(ApiKey.METADATA)[-1]
        assert age < 150
        assert producer.metrics().value("metadata-age") == pytest.approx(age, abs=SOON)

    play(simulation, story)


# -- the buffer ---


def test_who_waits_for_room_and_how_long() -> None:
    simulation = simulated()
    waits: list[float] = []

    async def sender(producer: Producer) -> None:
        began = now()
        await producer.send("one", bytes(1000))
        waits.append(now() - began)

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("one", b"")
        simulation.cluster.model.faults.stall(0)
        for broker in (1, 2):
            simulation.cluster.model.faults.stall(broker)
        for _ in range(4):
            await producer.send("one", bytes(1000))
        found = producer.metrics()
        assert found.value("buffer-total-bytes") == 4800
        assert found.value("buffer-available-bytes") == 4800 - producer.outstanding_bytes
        assert producer.outstanding_bytes > 4000
        assert math.isnan(found.value("send-wait-time-avg"))
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(sender(producer)))
            await asyncio.sleep(0.5)
        found = producer.metrics()
        assert found.value("waiting-threads") == found.value("waiting-tasks") == 3
        for broker in range(3):
            simulation.cluster.model.faults.resume(broker)
        await asyncio.gather(*tasks)
        assert [round(wait, 1) for wait in waits] == [1.5, 1.0, 0.5]

        found = producer.metrics()
        assert found.value("waiting-threads") == 0
        assert found.value("bufferpool-wait-time-ns-total") == pytest.approx(1e9 * sum(waits), abs=1e6)
        # 2 windows of 30 s; all but one are the least a rate is over.
        assert found.value("bufferpool-wait-ratio") == pytest.approx(sum(waits) / 30, rel=0.1)
        assert found.value("send-wait-time-avg") == pytest.approx(1000 * sum(waits) / 3, abs=1)
        assert found.value("send-wait-time-max") == pytest.approx(1000 * max(waits), abs=1)
        assert found.histogram("send-wait-time").count == 3
        for suffix, exact in (("p50", 1.0), ("p99", 1.5), ("p999", 1.5)):
            assert found.value(f"send-wait-time-{suffix}") == pytest.approx(1000 * exact, rel=0.05)
        assert found.value("buffer-exhausted-total") == 0

    play(simulation, story, buffer_memory=4800, batch_size=1200, max_block_ms=60_000)


def test_waits_for_metadata_and_for_room_are_told_apart() -> None:
    simulation = simulated()
    faults = simulation.cluster.model.faults

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("one", b"")
        faults.delay_answers(2.0, api=ApiKey.PRODUCE)
        for _ in range(4):
            await producer.send("one", bytes(1000))
        before = producer.metrics()
        faults.delay_answers(0.5, api=ApiKey.METADATA, times=1)
        began = now()
        await producer.send("t", bytes(1000))  # half a second until the topic is known, and then for room
        waited = now() - began
        after = producer.metrics()
        of_metadata = after.value("metadata-wait-time-ns-total") - before.value("metadata-wait-time-ns-total")
        assert of_metadata == pytest.approx(0.5e9, rel=0.01)
        assert after.value("bufferpool-wait-time-ns-total") == pytest.approx(
            1e9 * waited - of_metadata, abs=1e6
        )
        assert waited > 1

    play(simulation, story, buffer_memory=4800, batch_size=1200, max_block_ms=60_000, linger_ms=0)


def test_records_that_found_no_room_count_once_each_and_as_errors() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("one", b"")
        for broker in range(3):
            simulation.cluster.model.faults.stall(broker)
        for _ in range(4):
            await producer.send("one", bytes(1000))
        batch = producer.create_batch()
        for _ in range(5):
            batch.append(b"x")
        expected = 0
        for refused, call in (
            (1, partial(producer.send, "one", bytes(1000))),
            (1, partial(producer.send_and_wait, "one", bytes(1000))),
            (1, partial(producer.send_many, "one", [bytes(1000)] * 3)),
            (5, partial(producer.send_batch, batch, "one", partition=0)),
        ):
            began = now()
            with pytest.raises((BufferExhaustedError, PartialSendError)):
                await call()
            assert now() - began == pytest.approx(0.2, abs=SOON)
            expected += refused
            found = producer.metrics()
            assert found.value("buffer-exhausted-total") == expected, call
            assert found.value("record-error-total") == expected, call
        with pytest.raises(BufferExhaustedError):
            producer.try_send("one", bytes(1000))
        found = producer.metrics()
        assert found.value("buffer-exhausted-total") == expected + 1
        assert found.value("record-error-total") == expected + 1
        assert found.value("buffer-exhausted-rate") == pytest.approx((expected + 1) / 30, rel=0.05)
        # try_send() did not wait.
        assert found.histogram("send-wait-time").count == 4
        assert found.value("bufferpool-wait-time-ns-total") == pytest.approx(4 * 0.2e9, rel=0.01)
        await producer.close(0)

    play(simulation, story, buffer_memory=4800, batch_size=1200, max_block_ms=200)


# -- records that are refused ---


class Watching:
    """An interceptor: it has every record go the long way."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


async def in_a_coroutine(call: Callable[[Any], Any], producer: Producer) -> None:
    """So that `try_send()`, which raises when called, and the others, which raise when awaited, look alike."""
    await call(producer)


def no_such_serializer(topic: str, value: object) -> bytes:
    raise ValueError(f"{value!r} is not for {topic}")


REFUSALS: dict[str, tuple[dict[str, Any], Callable[[Any], Any], type[Exception]]] = {
    "send: too large": ({}, lambda p: p.send("t", bytes(2_000_000)), RecordTooLargeError),
    "send: unknown topic": ({}, lambda p: p.send("nowhere", b""), MetadataTimeoutError),
    "send: no such partition": ({}, lambda p: p.send("t", b"", partition=9), InvalidRecordError),
    "send: no topic's name": ({}, lambda p: p.send("a b", b""), InvalidRecordError),
    "send: not bytes": ({}, lambda p: p.send("t", 7), SerializationError),
    "send: serializer": (
        {"value_serializer": no_such_serializer},
        lambda p: p.send("t", 7),
        SerializationError,
    ),
    "send: headers": ({}, lambda p: p.send("t", b"", headers=[("a", 7)]), InvalidRecordError),
    "send: interceptors": (
        {"interceptors": [Watching()]},
        lambda p: p.send("t", bytes(2_000_000)),
        RecordTooLargeError,
    ),
    "send_and_wait": ({}, lambda p: p.send_and_wait("t", bytes(2_000_000)), RecordTooLargeError),
    "try_send: unknown topic": ({}, lambda p: p.try_send("nowhere", b""), MetadataTimeoutError),
    "try_send: too large": ({}, lambda p: p.try_send("t", bytes(2_000_000)), RecordTooLargeError),
    "send_many: too large": ({}, lambda p: p.send_many("t", [bytes(2_000_000), b"x"]), PartialSendError),
    "send_many: not bytes": ({}, lambda p: p.send_many("t", iter([7, 8])), PartialSendError),
    "send_many: no topic's name": ({}, lambda p: p.send_many("a b", [b"x"]), PartialSendError),
    "send_many: no topic": ({}, lambda p: p.send_many(7, [b"x"]), PartialSendError),
    "send_many: serializer": (
        {"value_serializer": no_such_serializer},
        lambda p: p.send_many("t", [7]),
        PartialSendError,
    ),
    "send_many: interceptors": (
        {"interceptors": [Watching()]},
        lambda p: p.send_many("t", [bytes(2_000_000)]),
        PartialSendError,
    ),
}


@pytest.mark.parametrize("how", REFUSALS)
def test_a_refused_record_is_an_error_once(how: str) -> None:
    """As in KafkaProducer.doSend(), where every KafkaException is recorded, but not with the topic."""
    settings, call, error = REFUSALS[how]

    async def story(producer: Producer) -> None:
        serialized = settings.get("value_serializer") is None
        if serialized:
            await producer.send_and_wait("t", b"good")
        before = producer.metrics().value("record-error-total")
        with pytest.raises(error):
            await in_a_coroutine(call, producer)
        after = producer.metrics()
        assert after.value("record-error-total") - before == 1
        assert after.value("record-error-rate") > 0
        if serialized:
            assert after.value("record-error-total", topic="t") == 0
            assert after.value("record-send-total") == 1

    play(simulated(), story, max_block_ms=500, **settings)


def test_what_is_refused_of_arrow_columns_is_an_error_once() -> None:
    pyarrow = pytest.importorskip("pyarrow")

    async def story(producer: Producer) -> None:
        for expected in (1, 2):
            table = pyarrow.table(
                {"value": pyarrow.array([b"x", bytes(2_000_000), b"y"], pyarrow.large_binary())}
            )
            with pytest.raises(PartialSendError) as caught:
                await producer.send_arrow("t", table)
            assert caught.value.index == 1
            assert producer.metrics().value("record-error-total") == expected
        await producer.flush()
        assert producer.metrics().value("record-send-total") == 2

    play(simulated(), story)


def test_calls_that_are_refused_as_such_are_no_records() -> None:
    """Java throws IllegalStateException for these, and records nothing."""
    simulation = simulated()

    async def main() -> None:
        producer = Producer(simulation.bootstrap_servers)
        with pytest.raises(NotStartedError):
            await producer.send("t", b"x")
        await producer.start()
        await producer.close()
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(ProducerClosedError):
                await call("t", b"x")
        with pytest.raises(ProducerClosedError):
            producer.try_send("t", b"x")
        assert producer.metrics().value("record-error-total") == 0

    simulation.run(main())


@pytest.mark.parametrize("number", range(4), ids=["send", "send_and_wait", "send_many", "send_batch"])
def test_a_call_that_is_cancelled_while_it_waits_counts_once(number: int) -> None:
    """As KafkaProducer counts a thread that is interrupted in `send()`: the record is not sent."""

    async def story(producer: Producer) -> None:
        batch = producer.create_batch()
        batch.append(b"x")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("unknown", b"x"),
            lambda: producer.send_and_wait("unknown", b"x"),
            lambda: producer.send_many("unknown", [b"x", b"y", b"z"]),
            lambda: producer.send_batch(batch, "unknown"),
        ]
        waiting = asyncio.ensure_future(calls[number]())
        await asyncio.sleep(1)
        assert not waiting.done()
        assert producer.metrics().value("record-error-total") == 0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        found = producer.metrics()
        assert found.value("record-error-total") == 1
        assert found.value("record-send-total") == 0

    play(simulated(), story)


def test_an_iterable_that_breaks_refuses_nothing() -> None:
    def breaking() -> Any:
        yield b"good"
        raise ZeroDivisionError

    async def story(producer: Producer) -> None:
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("t", breaking())
        assert caught.value.index == 1
        assert producer.metrics().value("record-error-total") == 0

    play(simulated(), story)


# -- calls that take time ---


def test_the_time_of_flushes_and_of_waits_for_metadata() -> None:
    simulation = simulated(auto_create_topics=True)
    cluster = simulation.cluster

    async def story(producer: Producer) -> None:
        await asyncio.sleep(60)
        cluster.model.faults.delay_answers(0.3, api=ApiKey.METADATA, times=1)
        began = now()
        await producer.send("t", b"x")
        waited = now() - began
        assert waited > 0.3
        found = producer.metrics()
        assert found.value("metadata-wait-time-ns-total") == pytest.approx(1e9 * waited, abs=1e6)
        assert found.value("flush-time-ns-total") == 0

        cluster.model.faults.delay_answers(0.7, api=ApiKey.PRODUCE, times=2)
        flushed = 0.0
        for _ in range(2):
            await producer.send("t", b"x")
            began = now()
            await producer.flush()
            flushed += now() - began
        assert flushed > 1.4
        found = producer.metrics()
        assert found.value("flush-time-ns-total") == pytest.approx(1e9 * flushed, abs=1e5)
        assert found.value("metadata-wait-time-ns-total") == pytest.approx(1e9 * waited, abs=1e6)

        cluster.model.faults.delay_answers(0.4, api=ApiKey.METADATA, times=1)
        began = now()
        await producer.check()
        waited += now() - began
        assert waited > 0.7
        found = producer.metrics()
        assert found.value("metadata-wait-time-ns-total") == pytest.approx(1e9 * waited, abs=1e6)

    play(simulation, story)


def test_a_flush_that_timed_out_took_its_time_too() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        simulation.cluster.model.faults.delay_answers(5.0, api=ApiKey.PRODUCE, times=1)
        await producer.send("t", b"x")
        with pytest.raises(TimeoutError):
            await producer.flush(1.25)
        assert producer.metrics().value("flush-time-ns-total") == pytest.approx(1.25e9, rel=1e-3)

    play(simulation, story)


# -- the event loop ---


def test_a_loop_that_is_blocked_after_a_send() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        assert producer.metrics().value("event-loop-lag-max") < 1
        await producer.send("t", b"y")
        simulation.clock.let_pass(0.5)  # what time.sleep() would do
        await producer.flush()
        found = producer.metrics()
        assert 500 <= found.value("event-loop-lag-max") < 501
        assert 500 <= found.value("record-queue-time-max") < 501
        assert found.value("event-loop-lag-p50") < 1
        for suffix in ("p99", "p999"):
            assert found.value(f"event-loop-lag-{suffix}") == pytest.approx(500, rel=0.05)
        # Two were late: the waking, and the pulse, which was due 100 ms after the first request.
        lags = found.histogram("event-loop-lag")
        assert lags.total == pytest.approx(500 + 400, rel=0.01)
        assert found.value("event-loop-lag-avg") == pytest.approx(lags.total / lags.count)

    play(simulation, story, linger_ms=0)


def test_a_timer_that_came_late() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        await producer.send("t", b"y")
        await asyncio.sleep(0.01)
        simulation.clock.let_pass(1.0)  # linger.ms of 100 was over after 90 ms of it
        await producer.flush()
        assert producer.metrics().value("event-loop-lag-max") == pytest.approx(910, abs=2)

    play(simulation, story, linger_ms=100)


def test_a_loop_that_is_blocked_while_an_answer_is_awaited() -> None:
    """Nothing of ours is due meanwhile but the pulse, which is taken every 100 ms."""
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        simulation.cluster.model.faults.delay_answers(0.05, api=ApiKey.PRODUCE)
        await producer.send("t", b"y")
        await asyncio.sleep(0.02)
        simulation.clock.let_pass(0.8)
        await producer.flush()
        found = producer.metrics()
        assert 700 <= found.value("event-loop-lag-max") <= 800
        assert found.value("request-latency-max") > 790
        # An idle producer lets the loop sleep.
        await asyncio.sleep(1)
        count = producer.metrics().histogram("event-loop-lag").count
        await asyncio.sleep(60)
        # A timer or two of others; the pulse would have been taken 600 times.
        assert producer.metrics().histogram("event-loop-lag").count < count + 10

    play(simulation, story, linger_ms=0)


def test_how_long_the_sender_slept_and_worked() -> None:
    simulation = simulated()
    answers = 0

    async def story(producer: Producer) -> None:
        began = now()
        await producer.send_and_wait("t", b"x")
        first = producer.metrics()
        assert first.value("io-time-ns-total") < 1e6
        await asyncio.sleep(10)
        await producer.send_and_wait("t", b"x")
        second = producer.metrics()
        slept = second.value("io-wait-time-ns-total")
        assert slept - first.value("io-wait-time-ns-total") == pytest.approx(10e9, rel=0.01)
        assert slept <= 1e9 * (now() - began)
        assert second.value("io-wait-time-ns-avg") == pytest.approx(slept / second.value("select-total"))
        assert second.value("io-wait-ratio") == pytest.approx(slept / 1e9 / 40, rel=0.01)
        assert second.value("select-rate") == pytest.approx(second.value("select-total") / 40, rel=0.01)

        core = cast(Any, producer._life.driver).core
        sender = core.sender

        def slowly(*what: Any) -> None:
            nonlocal answers
            answers += 1
            simulation.clock.let_pass(0.25)  # an answer that takes long to be read
            sender.receive_data(*what)

        core.sender = Altered(sender, receive_data=slowly)
        for _ in range(4):
            await producer.send_and_wait("t", b"x")
        core.sender = sender
        await producer.send_and_wait("t", b"x")  # work is told by the step that follows it
        third = producer.metrics()
        worked = third.value("io-time-ns-total")
        assert answers == 4
        assert worked == pytest.approx(4 * 0.25e9, rel=0.01)
        assert third.value("io-time-ns-avg") == pytest.approx(worked / third.value("select-total"))
        assert third.value("io-ratio") == pytest.approx(worked / 1e9 / (now() - began + 30 - 0.001), rel=0.02)
        # What it worked it did not sleep.
        assert worked + third.value("io-wait-time-ns-total") == pytest.approx(1e9 * (now() - began), rel=0.01)

    play(simulation, story, linger_ms=0)


# -- failures that nobody saw ---


def test_failures_that_nobody_awaited() -> None:
    simulation = simulated()
    seen: list[BaseException | None] = []

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        simulation.cluster.model.faults.fail_produce(codes.INVALID_RECORD, times=None)
        for number in range(6):
            awaited = await producer.send("t", b"y", partition=0)
            if number < 2:  # these two are looked after
                awaited._add_delivery_callback(lambda _, error: seen.append(error))
            del awaited
        await producer.flush()
        gc.collect()
        await asyncio.sleep(0)
        found = producer.metrics()
        assert len(seen) == 2
        assert found.value("unobserved-failure-total") == 4 == producer.unobserved_failures
        assert found.value("unobserved-failure-rate") == pytest.approx(4 / 30, rel=0.05)
        assert found.value("record-error-total") == 6

    play(simulation, story, linger_ms=5)


# -- windows ---


def test_windows_are_as_configured() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        simulation.cluster.model.faults.delay_answers(0.4, api=ApiKey.PRODUCE, times=1)
        await producer.send_and_wait("t", b"y" * 500)
        ended = now()
        found = producer.metrics()
        assert found.value("request-latency-max") == pytest.approx(400, abs=1)
        # 3 windows of a second: a rate is over no less than two, and from the first record on.
        assert found.value("record-send-rate") == pytest.approx(2 / 2.4, rel=0.02)
        await asyncio.sleep(2.9)
        assert now() - ended < 3
        assert producer.metrics().value("request-latency-max") == pytest.approx(400, abs=1)
        await asyncio.sleep(0.2)
        found = producer.metrics()
        assert math.isnan(found.value("request-latency-max"))
        assert math.isnan(found.value("batch-size-p99"))
        assert math.isnan(found.value("record-size-avg"))
        assert found.value("record-send-rate") == 0
        # What Prometheus counts with forgets nothing.
        assert found.value("record-send-total") == 2
        assert found.histogram("request-latency").count == 2

    play(simulation, story, linger_ms=0, metrics_num_samples=3, metrics_sample_window_ms=1000)


@pytest.mark.parametrize("window_ms", [0, 1])
def test_a_window_of_no_time_breaks_nothing(window_ms: int) -> None:
    async def story(producer: Producer) -> MetricsSnapshot:
        for _ in range(20):
            await producer.send_and_wait("t", b"x")
        return producer.metrics()

    found = play(simulated(), story, metrics_num_samples=1, metrics_sample_window_ms=window_ms)
    assert found.value("record-send-total") == 20
    assert found.value("record-send-rate") >= 0


def test_one_that_died_counts_what_it_had() -> None:
    simulation = simulated()

    async def story(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        deliveries = [await producer.send("t", b"y") for _ in range(3)]
        break_core(producer._life.sender, ZeroDivisionError())
        for delivery in deliveries:
            with pytest.raises(ProducerError):
                await delivery
        found = producer.metrics()
        assert found.value("record-error-total") == 3
        assert found.value("record-send-total") == 1
        assert found.value("buffer-available-bytes") == found.value("buffer-total-bytes")

    with pytest.raises(SenderDiedError):  # from the end of `async with`, which nobody else told
        play(simulation, story, linger_ms=50)
