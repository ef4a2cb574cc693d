"""Our producer over TLS and with a login, while sessions end, brokers go and certificates change under it.

1. Idempotent: every record was acknowledged and is in the log once, at its offset, in the order of sending.
2. Re-authentication alone loses, repeats and disorders nothing, without idempotence as well: no connection is lost.
3. The log is read back by librdkafka, over plaintext.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from tests.integration.test_security_matrix_kafka import prepare
from tests.integration.traffic import Traffic, Verdict
from tests.secured.cells import NONE, OIDC, Cell, transport_keys
from tests.secured.listeners import REAUTH_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.secured.kafka import SecuredKafka

pytest.importorskip("aioproduce.security.making", reason="the producer has no security yet")

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

SETTINGS: dict[str, Any] = {
    "delivery.timeout.ms": "120000",
    "max.block.ms": "120000",
    "request.timeout.ms": "10000",
    "reconnect.backoff.max.ms": "500",
    "retry.backoff.max.ms": "500",
}

# How often each session is renewed at least, at 85 to 95 % of its time; in the gate once.
SESSIONS = 2
RATE = 20_000
MILLION = 1_000_000


async def assert_sound(cluster: SecuredKafka, traffic: Traffic, topic: str) -> None:
    """Every record was acknowledged, and is where it is said to be, once and in order."""
    assert traffic.errors() == []
    assert len(traffic.acked) == traffic.sent
    assert traffic.judge(await asyncio.to_thread(cluster.read_back, topic)) == Verdict()


KINDS = [
    (mechanism, is_idempotent)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", OIDC, "GSSAPI")
    for is_idempotent in (True, False)
]
IN_GATE = ("SCRAM-SHA-256", False)
EXTENDED = pytest.mark.extended("one mechanism without idempotence stays in the gate")


@pytest.mark.scenario(18, "K")
@pytest.mark.parametrize(
    ("mechanism", "is_idempotent"),
    [pytest.param(*each, marks=() if each == IN_GATE else EXTENDED) for each in KINDS],
)
async def test_a_session_is_renewed_in_full_traffic(
    secured1: SecuredKafka,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
    is_idempotent: bool,
    request: pytest.FixtureRequest,
) -> None:
    """Every four seconds, with 20,000 records a second on their way, and on the connections that there are."""
    is_in_gate = request.node.get_closest_marker("extended") is None
    listener = secured1.listener("REAUTH_JWKS" if mechanism == OIDC else "REAUTH")
    keys = prepare(Cell("tls1.3", mechanism), secured1, monkeypatch) | {"bootstrap.servers": listener}
    await asyncio.to_thread(secured1.create_topic, topic_name, partitions=6)
    # Without retries: a record in flight on a lost connection would be an error, and not only perhaps doubled.
    plain = {"enable.idempotence": "false", "retries": "0"}
    begun = time.monotonic()
    async with Producer(keys | SETTINGS | ({} if is_idempotent else plain)) as producer:
        traffic = Traffic(producer, topic_name)
        sessions = 1 if is_in_gate else SESSIONS
        duration = sessions * REAUTH_SECONDS + 0.5
        # At a tenth of the rate in the gate: reading back is what costs.
        rate = RATE // 10 if is_in_gate else RATE
        while (passed := time.monotonic() - begun) < duration:
            await traffic.send(max(0, int(passed * rate) - traffic.sent))
            await asyncio.sleep(0.005)
        await traffic.settle()
        # One for bootstrap and one for the broker: none was opened again.
        assert producer.metrics().value("connection-creation-total") <= 2
        assert producer.metrics().value("successful-reauthentication-total") >= sessions
    await assert_sound(secured1, traffic, topic_name)


@pytest.mark.extended("the endpoint is down for 20 s")
async def test_the_token_endpoint_is_gone_for_a_while(
    secured1: SecuredKafka,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its tokens live for 5 s, so that the sessions end: what is sent meanwhile waits, and arrives once."""
    await asyncio.to_thread(secured1.create_topic, topic_name, partitions=6)
    keys = prepare(Cell("tls1.3", OIDC), secured1, monkeypatch)
    keys |= {"bootstrap.servers": secured1.listener("REAUTH_JWKS")}
    monkeypatch.setattr(secured1.tokens, "lifetime", 5)
    async with Producer(keys | SETTINGS) as producer:
        traffic = Traffic(producer, topic_name)

        async def send_for(seconds: float) -> None:
            begun, before = time.monotonic(), traffic.sent
            while (passed := time.monotonic() - begun) < seconds:
                await traffic.send(max(0, int(passed * RATE // 10) - (traffic.sent - before)))
                await asyncio.sleep(0.005)

        await send_for(2.0)
        secured1.tokens.misbehave("gone")
        try:
            await send_for(20.0)
            is_waiting = len(traffic.acked) < traffic.sent
        finally:  # other tests have the same server
            secured1.tokens.misbehave("none")
        await send_for(2.0)
        await traffic.settle()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    told = [message for message in warnings if message.startswith("no new credentials for OAUTHBEARER")]
    assert told
    assert all("sasl.oauthbearer.token.endpoint.url" in message for message in told)
    assert is_waiting
    await assert_sound(secured1, traffic, topic_name)


@pytest.mark.scenario(33, "K")
@pytest.mark.extended("re-authentication and a killed leader without TLS stay in the gate")
@pytest.mark.parametrize("hard", [False, True], ids=["bounced", "killed"])
@pytest.mark.parametrize("count", [50_000, MILLION])
async def test_brokers_go_and_come_back(
    secured3: SecuredKafka, topic_name: str, count: int, hard: bool
) -> None:
    """Over SASL_SSL with zstd, each of the three in turn, while records are sent as fast as they are taken."""
    await asyncio.to_thread(secured3.create_topic, topic_name, partitions=6)
    keys = Cell("tls1.3", "SCRAM-SHA-512").keys(secured3) | {"compression.type": "zstd"}
    async with Producer(keys | SETTINGS) as producer:
        traffic = Traffic(producer, topic_name, keys=5000)
        await traffic.send(1_000)
        bounces = asyncio.create_task(bounce_each(secured3, topic_name, hard=hard))
        try:
            while traffic.sent < count or not bounces.done():
                # Spread over the bounces: all of it would be sent before the first one is over.
                await traffic.send(min(2_000, max(100, count - traffic.sent)))
                await asyncio.sleep(0.02)
        finally:
            await bounces
        await traffic.settle()
    await assert_sound(secured3, traffic, topic_name)


async def bounce_each(cluster: SecuredKafka, topic: str, *, hard: bool) -> None:
    """Stop each node, start it again, and wait until it has caught up."""
    for node_id in cluster.nodes:
        await asyncio.to_thread(cluster.bounce, node_id, hard=hard)
        await asyncio.to_thread(cluster.wait_until_in_sync, topic)


@pytest.mark.scenario(17, "K")
@pytest.mark.extended("a wrong certificate stays in the gate")
async def test_a_certificate_is_replaced_on_disk(
    secured1: SecuredKafka, topic_name: str, tmp_path: Path
) -> None:
    """One that has expired is refused; the new one in its file serves the next attempt, without a restart."""
    await asyncio.to_thread(secured1.create_topic, topic_name)
    file = tmp_path / "client.pem"
    shutil.copy(secured1.certificates.leaves["expired"].pem, file)
    keys = transport_keys(secured1, "tls1.3") | {
        "bootstrap.servers": Cell("mutual", NONE).bootstrap_servers(secured1),
        "security.protocol": "SSL",
        "ssl.keystore.location": str(file),
        "ssl.keystore.type": "PEM",
    }
    async with Producer(keys | SETTINGS) as producer:
        sending = asyncio.create_task(producer.send_and_wait(topic_name, b"value", b"key"))
        await asyncio.wait([sending], timeout=1.5)
        assert not sending.done()
        shutil.copy(secured1.certificates.leaves["client"].pem, tmp_path / "next")
        (tmp_path / "next").rename(file)
        await asyncio.wait_for(sending, 60.0)
    assert [record.value for record in await asyncio.to_thread(secured1.read_back, topic_name)] == [b"value"]


@pytest.mark.scenario(18, "K")
@pytest.mark.extended("a wrong password stays in the gate")
async def test_a_password_is_set_right_at_the_broker(secured1: SecuredKafka, topic_name: str) -> None:
    """What was accepted meanwhile is sent then: a login that failed fails no record."""
    await asyncio.to_thread(secured1.create_topic, topic_name)
    await asyncio.to_thread(secured1.set_scram_password, "long", "something else")
    try:
        async with Producer(Cell("tls1.3", "SCRAM-SHA-512").keys(secured1, "long") | SETTINGS) as producer:
            sending = asyncio.create_task(producer.send_and_wait(topic_name, b"value", b"key"))
            await asyncio.wait([sending], timeout=1.5)
            assert not sending.done()
            await asyncio.to_thread(secured1.mend_passwords)
            await asyncio.wait_for(sending, 60.0)
    finally:
        await asyncio.to_thread(secured1.mend_passwords)
    assert [record.value for record in await asyncio.to_thread(secured1.read_back, topic_name)] == [b"value"]
