"""The recipes of docs/how-to/troubleshooting.md: each symptom provoked, shown by its metric, cured by its setting.

Every recipe plays the same load twice in virtual time, as it is and with the setting changed, and compares what the
metrics say and what became of the records.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.config.table import KEYS
from aioproduce.errors import BufferExhaustedError, DeliveryTimeoutError, MetadataTimeoutError, ProducerError
from aioproduce.metrics import MetricsSnapshot
from aioproduce.testing import ReplicationConfig, TopicConfig
from aioproduce.testing.simulation import Simulation
from tests.metrics.names import KAFKAS, OURS

if TYPE_CHECKING:
    from collections.abc import Awaitable


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshooting.md"


@dataclass
class Run:
    """One play of a load.

    Attributes:
        simulation: The cluster it was played on.
        failures: What `send()` raised, and what deliveries failed with, by the error's name.
        acknowledged: How many records are in the log as far as the producer knows.
        found: The metrics when the load ended, before what was left was waited for.
    """

    simulation: Simulation
    failures: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    found: MetricsSnapshot = field(default_factory=lambda: MetricsSnapshot([]))

    def delivered(self, error: BaseException | None) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures[type(error).__name__] += 1

    def in_log_of(self, broker: int) -> int:
        """Records in partitions that this broker leads."""
        cluster = self.simulation.cluster
        return sum(
            cluster.values("t", partition).total()
            for partition, state in enumerate(cluster.state.topics["t"].partitions)
            if state.leader_id == broker
        )


Load = Callable[[Run, Producer], "Awaitable[None]"]


def play(load: Load, *, topics: dict[str, int] | None = None, before: Any = None, **settings: Any) -> Run:
    """Play a load; `before` is called with the simulation first, unless it is settings of the simulation."""
    world = {key: settings.pop(key) for key in WORLD if key in settings}
    run = Run(Simulation(5, topics=topics or {"t": 3}, auto_create_topics=False, **world))
    if before is not None:
        before(run.simulation)

    async def main() -> None:
        async with (
            asyncio.timeout(3600),
            Producer(**{"bootstrap_servers": run.simulation.bootstrap_servers, **settings}) as producer,
        ):
            await load(run, producer)
            if not run.found:
                run.found = producer.metrics()
            await producer.flush()

    run.simulation.run(main())
    return run


WORLD = ("replication", "service_time", "default_config")


def steady(
    *, seconds: float, rate: int, value: Callable[[int], bytes], key: Callable[[int], bytes] | None = None
) -> Load:
    """So many records a second, for so long; what `send()` raises is counted, and the record is lost."""

    async def load(run: Run, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(began + number / rate - loop.time(), 0))
            try:
                await producer.send(
                    "t",
                    value(number),
                    None if key is None else key(number),
                    on_delivery=lambda _, error: run.delivered(error),
                )
            except ProducerError as error:
                run.failures[type(error).__name__] += 1

    return load


def block(size: int) -> Callable[[int], bytes]:
    """Values of that size, each another."""
    return lambda number: b"%0*d" % (size, number)


# -- batches expire ---


def test_batches_expire_where_each_request_waits_for_replicas() -> None:
    """Six partitions of three replicas. A broker answers the requests of a connection one after the other, with
    acks=all each when its followers have it; and a request takes one batch of each partition. So no more gets
    through than batch.size x partitions for each round of replication, whatever the network could carry.
    """
    load = steady(seconds=20, rate=400, value=block(1000), key=lambda number: b"%d" % number)
    world: dict[str, Any] = {
        "topics": {"t": 6},
        "replication": ReplicationConfig(lag=0.4),
        "delivery_timeout_ms": 8_000,
        "request_timeout_ms": 5_000,
    }

    sick = play(load, **world)
    assert sick.failures.keys() == {DeliveryTimeoutError.__name__}
    lost = sick.failures.total()
    assert lost > 1000
    # Records fail; batches are full, and wait far longer to be sent than requests take.
    assert sick.found.value("record-error-total") > 0
    assert sick.found.value("batch-size-p50") > 0.9 * 16_384
    assert sick.found.value("await-send-time-max") > 5_000
    assert sick.found.value("request-latency-avg") > 400
    for broker in range(3):
        assert sick.found.value("requests-in-flight", node_id=f"node-{broker}") == 5

    well = play(load, **world, batch_size=131_072)
    assert not well.failures
    assert well.acknowledged == 8000
    assert well.found.value("record-error-total") == 0
    assert well.found.value("await-send-time-max") < 5_000


# -- the buffer is full ---


def test_the_buffer_is_exhausted_while_brokers_pause() -> None:
    def pause(simulation: Simulation) -> None:
        for broker in range(3):
            simulation.clock.call_at(5.0, simulation.cluster.model.faults.stall, broker)
            simulation.clock.call_at(9.0, simulation.cluster.model.faults.resume, broker)

    load = steady(seconds=12, rate=250, value=block(2000))

    sick = play(load, before=pause, buffer_memory=1_000_000, max_block_ms=200)
    refused = sick.failures[BufferExhaustedError.__name__]
    assert refused > 5
    assert sick.found.value("buffer-exhausted-total") == refused
    assert sick.found.value("record-error-total") == refused
    assert sick.found.value("send-wait-time-max") >= 200
    assert sick.found.value("bufferpool-wait-ratio") > 0
    assert sick.found.value("bufferpool-wait-time-ns-total") >= refused * 0.2e9

    # Four seconds of 500 KB/s, and batches that are not full besides.
    well = play(load, before=pause, buffer_memory=8_000_000, max_block_ms=200)
    assert not well.failures
    assert well.acknowledged == 3000
    assert well.found.value("buffer-exhausted-total") == 0
    assert well.found.value("bufferpool-wait-time-ns-total") == 0

    # Or the application may wait.
    patient = play(load, before=pause, buffer_memory=1_000_000, max_block_ms=60_000)
    assert not patient.failures
    assert patient.found.value("send-wait-time-max") > 1000


def test_waiting_tasks_while_it_lasts() -> None:
    async def load(run: Run, producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        for broker in range(3):
            run.simulation.cluster.model.faults.stall(broker)
        tasks = [asyncio.create_task(producer.send("t", bytes(900))) for _ in range(40)]
        await asyncio.sleep(1)
        run.found = producer.metrics()
        for broker in range(3):
            run.simulation.cluster.model.faults.resume(broker)
        await asyncio.gather(*tasks)

    sick = play(load, buffer_memory=16_384, batch_size=1024)
    assert sick.found.value("waiting-threads") > 20
    assert sick.found.value("buffer-available-bytes") < 1024
    well = play(load, buffer_memory=131_072, batch_size=1024)
    assert well.found.value("waiting-threads") == 0
    assert well.found.value("buffer-available-bytes") > 1024


# -- throttling ---


def test_a_quota_throttles_and_compression_gets_along_with_it() -> None:
    def quota(simulation: Simulation) -> None:
        simulation.cluster.model.produce_quota = 20_000.0  # bytes per second and connection

    load = steady(seconds=40, rate=200, value=lambda number: b"customer=%06d;state=open;" % number * 40)

    sick = play(load, before=quota)
    assert sick.found.value("produce-throttle-time-max") > 500
    assert sick.found.value("produce-throttle-time-avg") > 0
    assert sick.found.value("await-send-time-max") > 1000

    well = play(load, before=quota, compression_type="gzip")
    assert well.found.value("produce-throttle-time-max") == 0
    assert well.found.value("compression-rate-avg") < 0.2
    assert well.found.value("await-send-time-max") < 1000
    assert well.acknowledged == 8000


# -- small batches ---


def test_small_batches_keep_brokers_busy_and_linger_makes_larger_ones() -> None:
    def work(_broker: int, _size: int) -> float:
        return 0.004  # for any request, however little is in it

    load = steady(seconds=6, rate=500, value=block(104), key=lambda number: b"%d" % number)
    world: dict[str, Any] = {"topics": {"t": 12}, "service_time": work}

    sick = play(load, **world, linger_ms=0)
    assert sick.found.value("records-per-request-avg") < 5
    assert sick.found.value("batch-size-avg") < 500

    well = play(load, **world, linger_ms=100)
    assert well.found.value("batch-size-avg") > 1.5 * sick.found.value("batch-size-avg")
    assert well.found.value("records-per-request-avg") > 5 * sick.found.value("records-per-request-avg")
    assert well.found.value("request-total") < sick.found.value("request-total") / 5
    assert well.acknowledged == sick.acknowledged == 3000
    # What it costs.
    assert well.found.value("batching-time-avg") > 50


# -- one slow broker ---


def test_one_slow_broker_and_keyless_records_that_keep_away_from_it() -> None:
    def work(broker: int, _size: int) -> float:
        return 0.8 if broker == 1 else 0.001

    load = steady(seconds=30, rate=150, value=block(1000))
    plain: dict[str, Any] = {"partitioner_adaptive_partitioning_enable": False}

    sick = play(load, service_time=work, **plain)
    latency = {
        broker: sick.found.value("request-latency-avg", node_id=f"node-{broker}") for broker in range(3)
    }
    assert latency[1] > 100 * max(latency[0], latency[2])
    assert sick.found.value("requests-in-flight", node_id="node-1") == 5
    # Slow by itself, not because it was told to be.
    assert sick.found.value("produce-throttle-time-max") == 0
    for broker in (0, 2):
        assert sick.found.value("requests-in-flight", node_id=f"node-{broker}") < 5

    well = play(load, service_time=work, partitioner_availability_timeout_ms=500)
    assert well.in_log_of(1) < 0.5 * sick.in_log_of(1)
    assert well.found.value("delivery-time-avg") < 0.5 * sick.found.value("delivery-time-avg")
    assert well.acknowledged == sick.acknowledged == 4500


# -- the event loop is blocked ---


def test_a_blocked_event_loop_is_not_a_slow_broker() -> None:
    def application(is_blocking: bool) -> Load:
        async def load(run: Run, producer: Producer) -> None:
            for number in range(100):
                await producer.send("t", b"%d" % number, on_delivery=lambda _, error: run.delivered(error))
                await asyncio.sleep(0.006)  # it is on its way
                if is_blocking:
                    run.simulation.clock.let_pass(0.3)  # as time.sleep(), or parsing something large
                else:
                    await asyncio.sleep(0.3)  # as asyncio.to_thread() for the same
                await asyncio.sleep(0.01)

        return load

    sick = play(application(True))
    assert sick.found.value("event-loop-lag-p99") >= 200
    # Answers lie in the socket unread, and look late: brokers took 2 ms.
    assert sick.found.value("request-latency-avg") > 250

    well = play(application(False))
    assert well.found.value("event-loop-lag-max") < 1
    assert well.found.value("request-latency-avg") < 10


# -- a leader is lost ---


def test_a_partition_without_a_leader_outlasts_the_delivery_timeout() -> None:
    def election(simulation: Simulation) -> None:
        for partition in range(3):
            simulation.clock.call_at(5.0, simulation.cluster.state.take_leader, "t", partition)
            simulation.clock.call_at(17.0, simulation.cluster.state.elect_leader, "t", partition)

    load = steady(seconds=25, rate=50, value=block(104))

    sick = play(load, before=election, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
    assert sick.failures.keys() == {DeliveryTimeoutError.__name__}
    assert sick.found.value("record-error-total") == sick.failures.total() > 10
    assert sick.found.value("record-error-total", topic="t") == sick.failures.total()
    assert sick.found.value("await-send-time-max") > 9_000

    well = play(load, before=election, delivery_timeout_ms=60_000, request_timeout_ms=5_000)
    assert not well.failures
    assert well.found.value("record-error-total") == 0
    # Time that it took shows all the same.
    assert well.found.value("delivery-time-max") > 11_000


def test_leaders_that_move_are_retries() -> None:
    def moves(simulation: Simulation) -> None:
        for second in range(5, 25):
            for partition in range(3):
                simulation.clock.call_at(
                    second, simulation.cluster.state.move_leader, "t", partition, (second + partition) % 3
                )

    load = steady(seconds=25, rate=100, value=block(104), key=lambda number: b"%d" % number)
    sick = play(load, before=moves, retries=0)
    assert sick.failures.total() == sick.found.value("record-error-total") > 0
    well = play(load, before=moves)
    assert not well.failures
    assert well.found.value("record-retry-total") > 0
    assert well.found.value("record-retry-rate") > 0
    assert well.found.value("retry-time-max") > 0
    assert well.acknowledged == 2500


# -- no metadata ---


def test_without_metadata_nothing_is_known() -> None:
    def down(simulation: Simulation) -> None:
        simulation.cluster.stop_broker(0)

    load = steady(seconds=1, rate=3, value=block(104))

    sick = play(load, before=down, bootstrap_servers="broker-0:9092", max_block_ms=2_000)
    assert sick.failures == {MetadataTimeoutError.__name__: 3}
    assert math.isnan(sick.found.value("metadata-age"))
    assert sick.found.value("connection-count") == 0
    assert sick.found.value("connection-creation-total") == 0
    assert sick.found.value("metadata-wait-time-ns-total") == pytest.approx(3 * 2e9, rel=0.01)
    assert sick.found.value("record-error-total") == 3

    well = play(load, before=down, bootstrap_servers="broker-0:9092,broker-1:9092", max_block_ms=2_000)
    assert not well.failures
    assert well.found.value("metadata-age") < 10
    assert well.found.value("connection-count") > 0
    assert well.acknowledged == 3


# -- batches too large for the topic ---


def test_batches_that_are_too_large_for_the_topic_are_split() -> None:
    load = steady(seconds=5, rate=400, value=block(1000))
    world: dict[str, Any] = {"default_config": TopicConfig(max_message_bytes=20_000)}

    sick = play(load, **world, batch_size=65_536, linger_ms=200)
    assert sick.found.value("batch-split-total") > 0
    assert sick.found.value("batch-split-rate") > 0
    assert sick.found.value("batch-size-max") > 20_000
    assert sick.acknowledged == 2000

    well = play(load, **world, batch_size=16_384, linger_ms=200)
    assert well.found.value("batch-split-total") == 0
    assert well.found.value("batch-size-max") <= 20_000
    assert well.acknowledged == 2000


# -- failures that nobody sees ---


def test_failures_that_nobody_looks_at() -> None:
    def denied(simulation: Simulation) -> None:
        simulation.clock.call_at(1.0, simulation.cluster.model.faults.fail_produce, 87)  # INVALID_RECORD

    async def load(run: Run, producer: Producer) -> None:
        for number in range(20):
            await producer.send("t", b"%d" % number)  # and its future is dropped
            await asyncio.sleep(0.2)
        await producer.flush()

    seen: list[BaseException] = []
    sick = play(load, before=denied)
    assert sick.found.value("unobserved-failure-total") == sick.found.value("record-error-total") == 1
    play(load, before=denied, on_delivery_error=seen.append)
    assert [type(error).__name__ for error in seen] == ["BrokerRejectedError"]


# -- the page ---


def test_the_page_names_metrics_and_settings_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    metrics = {name for names in (*KAFKAS.values(), *OURS.values()) for name in names}
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", text)) - {"node-id"}
    assert named - metrics == set()
    assert len(named) > 30
    settings = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", text))
    assert settings - set(KEYS) == {"advertised.listeners", "max.message.bytes"}  # a broker's, and a topic's
    assert len(settings) > 10


def test_every_symptom_of_the_page_has_its_recipe() -> None:
    text = PAGE.read_text(encoding="utf-8")
    recipes = set(re.findall(r"`(test_\w+)`", text))
    here = {name for name in globals() if name.startswith("test_") and "_page" not in name}
    assert recipes == here
