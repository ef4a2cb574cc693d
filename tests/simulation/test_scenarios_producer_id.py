"""Scenarios of the producer id: none to be had, forgotten by the broker, and the ends of its sequences and epochs.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it.
"""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest

from aioproduce.core.batching.sequences import MAX_EPOCH, MAX_SEQUENCE
from aioproduce.errors import ProducerFatalError
from aioproduce.records import TopicPartition
from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.testing.fake_cluster.state import ClusterState
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of

SLOW = 0.15
"""Seconds one way: five requests are sent before the first is answered."""


@pytest.mark.scenario(50, "S")
@in_modes("idempotent")
def test_an_unknown_producer_id(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        assert [(b.producer_epoch, b.base_sequence) for b in scene.log()] == [(0, 0)]
        scene.faults.fail_produce(codes.UNKNOWN_PRODUCER_ID)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(entries)
        # The broker tells where its log begins: nothing of this producer is there, so it starts again.
        assert [(b.producer_epoch, b.base_sequence) for b in scene.log()] == [(0, 0), (1, 0)]

    scene.play(story())


@pytest.mark.scenario(50, "S")
@in_modes("idempotent")
def test_a_producer_id_that_expired_on_the_broker(mode: str, side: str) -> None:
    # producer.id.expiration.ms is a day.
    scene = Scenario(mode, side, default_config=TopicConfig(producer_expiration_seconds=86_400.0))

    async def story() -> None:
        await scene.warm_up()
        await scene.sleep(100_000.0)
        scene.faults.reset_connections_on()  # the first answer of the new life is lost, too
        entries = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        assert offsets_of(entries) == [1, 2, 3]
        # A broker that does not know a producer takes any first sequence (KIP-360): there is nothing to restart.
        assert [(b.producer_epoch, b.base_sequence) for b in scene.log()] == [(0, 0), (0, 1)]

    scene.play(story())


@pytest.mark.scenario(54, "S")
@pytest.mark.parametrize(
    "code",
    [
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
        codes.CONCURRENT_TRANSACTIONS,
        None,
    ],
)
@in_modes("idempotent")
def test_no_producer_id_for_now(mode: str, side: str, code: int | None) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        api = ApiKey.INIT_PRODUCER_ID
        if code is None:
            scene.faults.reset_connections_on(api, times=2)
        else:
            scene.faults.fail(api, code, times=5)
        entries = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        times = [request.at for request in scene.requests(api)]
        assert len(times) == (3 if code is None else 6)
        # 100, 200, 400, 800 ms and so on, give or take a fifth.
        for number, (earlier, later) in enumerate(pairwise(times)):
            assert later - earlier >= 0.8 * min(0.1 * 2**number, 1.0)

    scene.play(story())


@pytest.mark.scenario(54, "S")
@in_modes("idempotent")
def test_no_producer_id_for_good(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        refusal = scene.faults.fail(ApiKey.INIT_PRODUCER_ID, codes.CLUSTER_AUTHORIZATION_FAILED, times=None)
        entries = await scene.send(count=3)
        await scene.side.flush()
        for entry in entries:
            error = failure_of(entry)
            assert isinstance(error, ProducerFatalError)
            assert error.name == "CLUSTER_AUTHORIZATION_FAILED"
            assert not error.possibly_written
        await scene.sleep(60.0)
        assert refusal.hits < 70
        refusal.cancel()  # the right is granted
        later = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(later)

    scene.play(story())


@pytest.mark.scenario(53, "S")
@in_modes("idempotent")
def test_the_sequence_passes_its_end(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        # As if 2^31 - 8 records had been sent. A broker takes any sequence of a producer that it does not know.
        assert scene.sender.sequences is not None
        partition = scene.sender.sequences._partition(TopicPartition(TOPIC, 0))
        partition.next, partition.last_acked = MAX_SEQUENCE - 7, MAX_SEQUENCE - 8
        scene.cluster.state.require_partition(TOPIC, 0).log.producers.forget()
        entries = await scene.send(count=3)
        await scene.side.flush()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        scene.faults.reset_connections_on()
        entries += await scene.send_in_flight(5, records=3)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        assert offsets_of(entries) == list(range(1, 19))
        bases = [batch.base_sequence for batch in scene.log()][1:]
        # Behind MAX_SEQUENCE comes 0: the third batch has MAX_SEQUENCE - 1, MAX_SEQUENCE and 0.
        assert bases == [MAX_SEQUENCE - 7, MAX_SEQUENCE - 4, MAX_SEQUENCE - 1, 1, 4, 7]

    scene.play(story())


@pytest.mark.scenario(53, "S")
@in_modes("idempotent")
def test_the_epoch_reaches_its_end(mode: str, side: str) -> None:
    scene = Scenario(mode, side)
    ids = iter([(1000, MAX_EPOCH - 1), (2000, 0)])

    async def story() -> None:
        await scene.warm_up()
        entries = []
        for _ in range(2):
            scene.faults.fail_produce(codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
            entries += await scene.send(count=3)
            await scene.side.flush()
        scene.assert_acknowledged(entries)
        producers = [(b.producer_id, b.producer_epoch, b.base_sequence) for b in scene.log()]
        assert producers == [(1000, MAX_EPOCH - 1, 0), (1000, MAX_EPOCH, 0), (2000, 0, 0)]

    with patch.object(ClusterState, "new_producer_id", lambda _: next(ids)):
        scene.play(story())
