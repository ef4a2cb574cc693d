"""The producer over TLS and with logins, on every loop, against a `FakeCluster`.

1. Each mechanism over SASL_SSL, and mutual TLS, lets records through.
2. A wrong setting is told at once to who asks for a broker; a send fails by its time-out alone, and goes once the
   setting is right.
3. Providers of tokens may be functions or coroutines, and one that hangs holds up no close.
4. Sessions that end every second lose nothing, repeat nothing and keep the order.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import AuthenticationError, DeliveryTimeoutError, TlsError
from aioproduce.testing import ClusterThread, FakeSecurity, FakeTls, token_for
from tests.drivers.concurrency import sleep, spawn, wait_for, within
from tests.drivers.producing import PATIENCE, until
from tests.gate.marks import others_extended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALICE, PASSWORD = "al=ice,ä", 'pä=ss,wörd\\ "'
MECHANISMS = others_extended(
    ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
    keep=["SCRAM-SHA-256", "OAUTHBEARER"],
    reason="one mechanism with a password and one with a token stay in the gate",
)
SHORT: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 1_000, "delivery_timeout_ms": 1_500}


def secured(protocol: str = "SASL_SSL", **options: Any) -> ClusterThread:
    return ClusterThread(
        1, topics={"t": 1}, security=FakeSecurity(protocol, users={ALICE: PASSWORD}, **options)
    )


def producer_of(cluster: ClusterThread, mechanism: str | None = None, **changes: Any) -> Producer:
    settings = cluster.client_settings(mechanism=mechanism)
    keywords: dict[str, Any] = {key.replace(".", "_"): value for key, value in settings.items()}
    return Producer(cluster.bootstrap_servers, **{"linger_ms": 0, **keywords, **changes})


def values(cluster: ClusterThread) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism(nothing_left: None, mechanism: str) -> None:
    with secured() as cluster:
        async with producer_of(cluster, mechanism) as producer:
            await wait_for(producer.send_and_wait("t", b"one"), PATIENCE)
            logins = [connection.login for connection in cluster.connections]
        assert values(cluster) == [b"one"]
        assert logins
        assert all(login is not None and login.mechanism == mechanism for login in logins)


@pytest.mark.scenario(17, "D")
@pytest.mark.parametrize(
    "kind",
    others_extended(
        ["expired", "wrong host"], keep=["wrong host"], reason="one bad certificate stays in the gate"
    ),
)
async def test_a_bad_certificate_is_told_and_not_asked_for_without_pause(
    nothing_left: None, kind: str
) -> None:
    with secured("SSL", tls=FakeTls(certificate=kind)) as cluster:
        async with producer_of(cluster) as producer:
            with pytest.raises(
                TlsError, match={"expired": "expired", "wrong host": "host name mismatch"}[kind]
            ):
                await wait_for(producer.check(PATIENCE), PATIENCE)
            sending = spawn(producer.send_and_wait("t", b"one"))
            await sleep(0.5)
            # A refusal backs off from a second on, and not from reconnect.backoff.ms.
            assert producer.metrics().value("connection-creation-total") <= 2
            cluster.set_certificate("valid")
            await wait_for(sending, PATIENCE)
        assert values(cluster) == [b"one"]


@pytest.mark.scenario(17, "D")
@pytest.mark.parametrize("length", [0, 60])
async def test_a_handshake_that_is_cut_is_held_again(nothing_left: None, length: int) -> None:
    with secured("SSL") as cluster:
        cut = cluster.faults.cut_handshakes(length, times=3)
        async with producer_of(cluster) as producer:
            await wait_for(producer.send_and_wait("t", b"one"), PATIENCE)
        assert cut.is_spent
        assert values(cluster) == [b"one"]


async def test_mutual_tls(nothing_left: None) -> None:
    with secured("SSL", tls=FakeTls(client_auth="required")) as cluster:
        async with producer_of(cluster) as producer:
            await wait_for(producer.send_and_wait("t", b"one"), PATIENCE)
        assert values(cluster) == [b"one"]

        stranger = Producer(
            cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_certificates=cluster.ca_certificate,
        )
        with pytest.raises(TlsError, match=r"ssl\.keystore"):
            await wait_for(stranger.start(require_broker=True), PATIENCE)
        await stranger.close()


@pytest.mark.scenario(18, "D")
async def test_a_wrong_password_is_told_at_once_and_a_send_fails_by_its_time_out(nothing_left: None) -> None:
    with secured("SASL_PLAINTEXT") as cluster:
        wrong = producer_of(cluster, "SCRAM-SHA-256")
        cluster.set_password(ALICE, "another")
        began = time.monotonic()
        with pytest.raises(AuthenticationError) as caught:
            await wait_for(wrong.start(require_broker=True), PATIENCE)
        assert time.monotonic() - began < 5  # and not at max.block.ms
        assert (caught.value.mechanism, caught.value.setting) == ("SCRAM-SHA-256", "sasl.jaas.config")
        assert PASSWORD not in str(caught.value)
        await wrong.close()


@pytest.mark.scenario(18, "D")
async def test_what_is_accepted_fails_by_its_time_out_alone_and_a_password_put_right_heals(
    nothing_left: None,
) -> None:
    with secured("SASL_PLAINTEXT") as cluster:
        async with producer_of(cluster, "PLAIN", **SHORT) as producer:
            await wait_for(producer.send_and_wait("t", b"before"), PATIENCE)
            cluster.set_password(ALICE, "another")
            cluster.faults.end_sessions()
            with pytest.raises(DeliveryTimeoutError):
                await wait_for(producer.send_and_wait("t", b"meanwhile"), PATIENCE)
            cluster.set_password(ALICE, PASSWORD)

            async def heal() -> None:
                while True:
                    try:
                        await producer.send_and_wait("t", b"after")
                    except DeliveryTimeoutError:
                        continue
                    return

            await wait_for(heal(), PATIENCE)
        assert values(cluster)[:1] == [b"before"]
        assert values(cluster)[-1] == b"after"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_provider_of_tokens(nothing_left: None, is_async: bool) -> None:
    threads: set[threading.Thread] = set()

    def token() -> str:
        threads.add(threading.current_thread())
        return token_for("alice")

    async def token_later() -> str:
        await sleep(0.001)
        return token()

    with secured("SASL_PLAINTEXT") as cluster:
        provider = token_later if is_async else token
        async with Producer(
            cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_provider=provider,
        ) as producer:
            await wait_for(producer.send_and_wait("t", b"one"), PATIENCE)
        assert values(cluster) == [b"one"]
    assert (threading.current_thread() in threads) is is_async


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a blocking provider hangs at; its thread is let go in the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_provider_that_hangs_does_not_hold_up_the_close(
    nothing_left: None, gate: threading.Event, is_async: bool
) -> None:
    asked = threading.Event()

    def token() -> str:
        asked.set()
        gate.wait(PATIENCE)
        return token_for("alice")

    async def token_later() -> str:
        asked.set()
        await sleep(3600)
        raise AssertionError("nobody waits so long")

    with secured("SASL_PLAINTEXT") as cluster:
        producer = Producer(
            cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_provider=token_later if is_async else token,
        )
        await producer.start()
        sending = spawn(producer.partitions_for("t"))
        await until(asked.is_set)
        began = time.monotonic()
        await wait_for(producer.close(timeout=1.0), PATIENCE)
        assert time.monotonic() - began < 5
        with pytest.raises(Exception, match="clos"):
            await sending


async def test_a_certificate_that_is_replaced_on_disk_is_that_of_the_next_connection(
    nothing_left: None, tmp_path: Path
) -> None:
    with secured("SSL", tls=FakeTls(client_auth="required")) as cluster:
        settings = cluster.client_settings(directory=tmp_path)
        keywords: dict[str, Any] = {key.replace(".", "_"): value for key, value in settings.items()}
        store = tmp_path / "client.pem"
        right = store.read_text()
        with secured("SSL") as other:
            wrong = other.client_identity("orders")
            store.write_text(wrong.key + wrong.chain)
        async with Producer(cluster.bootstrap_servers, linger_ms=0, **keywords) as producer:
            with pytest.raises(TlsError):
                await wait_for(producer.check(PATIENCE), PATIENCE)
            store.write_text(right)
            await wait_for(producer.send_and_wait("t", b"one"), PATIENCE)
        assert values(cluster) == [b"one"]


@pytest.mark.scenario(18, "D")
@pytest.mark.parametrize(
    "mechanism",
    ["PLAIN", pytest.param("OAUTHBEARER", marks=pytest.mark.extended("one mechanism stays in the gate"))],
)
async def test_sessions_of_a_second_with_traffic_going_on(nothing_left: None, mechanism: str) -> None:
    with secured("SASL_PLAINTEXT", connections_max_reauth_ms=1_000) as cluster:
        async with producer_of(cluster, mechanism) as producer:
            deliveries: list[Any] = []
            async with within(PATIENCE):
                while producer.metrics().value("successful-reauthentication-total") < 2:
                    deliveries += [await producer.send("t", b"%d" % (len(deliveries) + n)) for n in range(5)]
                    await sleep(0.005)
            await wait_for(producer.flush(), PATIENCE)
            offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(len(deliveries)))
        assert values(cluster) == [b"%d" % number for number in range(len(deliveries))]
