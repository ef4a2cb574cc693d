"""Scenarios of connections: brokers that close them, talk nonsense, or speak other versions than before.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it.
"""

from __future__ import annotations

import pytest

from aioproduce.wire.api import ApiKey
from tests.simulation.scenario import Scenario, in_modes

# -- brokers that close, or talk nonsense ---


@pytest.mark.scenario(14, "S")
@in_modes()
def test_a_broker_closes_idle_connections(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        entries = []
        for _ in range(5):
            entries += await scene.send()
            await scene.side.flush()
            await scene.sleep(100.0)
            for endpoint in tuple(scene.network.connections.values()):
                endpoint.peer.close()
            await scene.sleep(500.0)
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(14, "S")
@in_modes()
def test_the_producer_closes_idle_connections_itself(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"metadata_max_age_ms": 86_400_000})

    async def story() -> None:
        await scene.warm_up()
        assert len(scene.network.connections) >= 3
        await scene.sleep(545.0)  # connections.max.idle.ms is 540 s
        assert len(scene.network.connections) == 0
        began = scene.now
        entries = await scene.send()
        await scene.side.flush()
        assert scene.now - began < 0.1
        scene.assert_acknowledged(entries)

    scene.play(story())


@pytest.mark.scenario(14, "S")
@in_modes()
def test_a_broker_closes_after_each_answer(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        closes = scene.faults.cut_answers(api=ApiKey.PRODUCE, times=None, length=10_000)
        entries = await scene.send(count=50, apart=0.02)
        await scene.side.flush()
        assert closes.hits >= 10
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(15, "S")
@pytest.mark.parametrize("nonsense", ["correlation id", "negative length", "2 GB", "garbage"])
@in_modes()
def test_nonsense_instead_of_an_answer(mode: str, side: str, nonsense: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        old = scene.network.connections_to(scene.host())[-1]
        api = ApiKey.PRODUCE
        if nonsense == "correlation id":
            fault = scene.faults.change_correlation_ids(api=api)
        elif nonsense == "garbage":
            fault = scene.faults.garble_answers(api=api)
        else:
            fault = scene.faults.announce_hostile_length(
                -1 if nonsense == "negative length" else 2**31 - 1, api=api
            )
        began = scene.now
        entries = await scene.send(count=5)
        await scene.side.flush()
        # At once, not when the request's time is up.
        assert scene.now - began < 1.0
        assert fault.hits == 1
        assert old.is_gone
        assert scene.has_reconnected()
        scene.assert_acknowledged(entries, 2)

    scene.play(story())


# -- versions ---


@pytest.mark.scenario(28, "S")
@in_modes()
def test_api_versions_3_is_refused(mode: str, side: str) -> None:
    scene = Scenario(mode, side)
    scene.cluster.model.set_api_versions({ApiKey.API_VERSIONS: (0, 2)})

    async def story() -> None:
        entries = await scene.send()
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        asked: dict[int, list[int]] = {}
        for request in scene.requests(ApiKey.API_VERSIONS):
            asked.setdefault(request.connection_id, []).append(request.api_version)
        # Kafka answers UNSUPPORTED_VERSION in a body of v0: asked again in the best that it speaks.
        assert all(versions[0] >= 3 and versions[1:] == [2] for versions in asked.values()), asked

    scene.play(story())


@pytest.mark.scenario(28, "S")
@in_modes()
def test_versions_shrink_after_a_downgrade_of_one_broker(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        before = {r.broker_id: r.api_version for r in scene.requests()}
        assert set(before.values()) == {13}
        downgraded = scene.leader()
        scene.cluster.stop_broker(downgraded)
        scene.cluster.model.set_api_versions({ApiKey.PRODUCE: (3, 8), ApiKey.METADATA: (0, 8)}, downgraded)
        entries = await scene.send(count=3)
        await scene.sleep(10.0)
        scene.cluster.start_broker(downgraded)
        scene.cluster.state.move_leader("orders", 0, downgraded)
        began = scene.now
        for partition in range(3):
            entries += await scene.send(partition, 3)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        after = {(r.broker_id, r.api_version) for r in scene.requests(since=began)}
        # Each connection has its own: the old broker is asked in its versions, the others in theirs.
        assert (downgraded, 8) in after
        assert all(version == (8 if broker == downgraded else 13) for broker, version in after)

    scene.play(story())
