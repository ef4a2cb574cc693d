"""Scenarios of TLS and logins: handshakes that are cut or refused, passwords that are wrong, sessions that end.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it. TLS is the
simulation's stand-in. `drivers/test_producer_security.py` tests certificates with OpenSSL, and the error that a
caller gets who waits for a broker.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from aioproduce.errors import DeliveryTimeoutError
from aioproduce.wire.api import ApiKey
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of
from tests.simulation.securing import PASSWORD, USER

SLOW = 0.15


def assert_no_storm(scene: Scenario, since: float) -> None:
    """It tried again and again, up to every 30 s: what a broker refuses is rarely put right within a second."""
    for times in scene.network.attempts.values():
        tried = [at - since for at in times if at > since]
        assert 6 <= len(tried) <= 12, tried
        assert [at for at in tried if at > 60.0], tried
        assert all(later - earlier >= 0.8 * 30.0 for earlier, later in pairwise(tried) if earlier > 30.0), (
            tried
        )


async def lose_connections(scene: Scenario) -> None:
    """All of them, and let the producer see it."""
    scene.faults.reset_connections()
    await scene.sleep(0.01)


@pytest.mark.scenario(17, "S")
@pytest.mark.parametrize("length", [0, 4])
@in_modes()
def test_handshakes_are_cut(mode: str, side: str, length: int) -> None:
    scene = Scenario(mode, side, security="SSL//")

    async def story() -> None:
        await scene.warm_up()
        cuts = scene.faults.cut_handshakes(length, times=5, broker=scene.leader())
        await lose_connections(scene)
        entries = await scene.send(count=5)
        await scene.side.flush()
        assert cuts.is_spent
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(17, "S")
@in_modes()
def test_every_handshake_is_refused(mode: str, side: str) -> None:
    scene = Scenario(mode, side, security="SSL//")
    assert scene.cluster.tls is not None
    tls = scene.cluster.tls

    async def story() -> None:
        await scene.warm_up()
        tls.refusals = 1_000_000
        await lose_connections(scene)
        began = scene.now
        [entry] = await scene.send()
        await scene.side.flush()
        error = failure_of(entry)
        assert isinstance(error, DeliveryTimeoutError)
        assert not error.possibly_written
        assert scene.now - began == pytest.approx(120.0, abs=1.0)  # delivery.timeout.ms
        assert_no_storm(scene, began)
        assert scene.copies([entry]) == [0]
        tls.refusals = 0

    scene.play(story())


@pytest.mark.scenario(18, "S")
@in_modes()
def test_a_password_is_wrong_until_it_is_set_right(mode: str, side: str) -> None:
    scene = Scenario(mode, side, security="SASL_SSL/PLAIN/0")
    assert scene.cluster.users is not None
    users = scene.cluster.users

    async def story() -> None:
        await scene.warm_up()
        users.set(USER, "another")
        await lose_connections(scene)
        began = scene.now
        [lost] = await scene.send()
        await scene.side.flush()
        error = failure_of(lost)
        assert isinstance(error, DeliveryTimeoutError)
        assert not error.possibly_written
        assert PASSWORD not in str(error)
        assert_no_storm(scene, began)

        entries = await scene.send(count=5)
        await scene.sleep(10.0)
        users.set(USER, PASSWORD)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)
        assert scene.copies([lost]) == [0]

    scene.play(story())


@pytest.mark.scenario(18, "S")
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@in_modes("idempotent", "plain")
def test_a_session_is_renewed_with_requests_in_flight(mode: str, side: str, mechanism: str) -> None:
    """No connection is lost, so that there is one copy of each without idempotence as well (KIP-368)."""
    scene = Scenario(mode, side, {"linger_ms": 0}, security=f"SASL_SSL/{mechanism}/30000")

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), 0.25, 0.0)
        entries = await scene.send(count=900, apart=0.1)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)
        assert offsets_of(entries) == list(range(1, 901))
        [connection] = {r.connection_id for r in scene.requests() if r.broker_id == scene.leader()}
        logins = [r for r in scene.requests(ApiKey.SASL_HANDSHAKE) if r.connection_id == connection]
        assert len(logins) >= 4  # the first, and three again in 90 s

    scene.play(story())


@pytest.mark.scenario(18, "S")
@in_modes()
def test_sessions_end_with_five_requests_in_flight(mode: str, side: str) -> None:
    """The broker goes by another clock: it closes the connection at the next request."""
    scene = Scenario(mode, side, {"linger_ms": 0}, security="SASL_SSL/PLAIN/0")

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        entries = await scene.send_in_flight(1)
        scene.later(0.1, scene.faults.end_sessions)
        entries += await scene.send(count=4, apart=0.02)
        await scene.side.flush()
        scene.assert_acknowledged(entries, *scene.copies(entries[:1]))
        if scene.is_idempotent:
            assert offsets_of(entries) == [1, 2, 3, 4, 5]

    scene.play(story())
