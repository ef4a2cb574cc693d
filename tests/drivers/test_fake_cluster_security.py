"""`FakeCluster` over TLS and SASL, judged by clients that are not ours: librdkafka and aiokafka.

1. A client with the right settings is admitted, and its records are in the log.
2. A client with wrong settings is refused, with the reason if Kafka reports one.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, Producer

from aioproduce.testing import ClusterThread, FakeCluster, FakeSecurity, FakeTls, token_for
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Far above what any of it takes: a bound for a hang, not a budget.
PATIENCE = 60.0
# A name and a password that a client which prepares strings (RFC 4013), or forgets to escape, gets wrong.
ALICE, PASSWORD = "al=ice,ä", 'pä=ss,wörd\\ "'
PLAIN_LIKE = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ANOTHER = pytest.mark.extended("one case of each kind stays in the gate")


def librdkafka_settings(
    cluster: ClusterThread, mechanism: str | None = None, **changes: Any
) -> dict[str, Any]:
    """What librdkafka calls them."""
    assert cluster.security is not None
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": cluster.security.protocol,
        "linger.ms": 0,
        "log_level": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
    }
    if cluster.security.has_tls:
        settings["ssl.ca.pem"] = cluster.ca_certificate
    if cluster.security.has_sasl:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": ALICE, "sasl.password": PASSWORD}
    return settings | changes


class Librdkafka:
    """One producer of librdkafka, and the errors that it reports."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.errors: list[KafkaError] = []
        self._delivered: list[tuple[KafkaError | None, int]] = []
        self.producer = Producer({**settings, "error_cb": self.errors.append})

    def send(self, *values: bytes) -> None:
        """Produce, and wait for the acknowledgements."""
        before = len(self._delivered)
        for value in values:
            self.producer.produce("t", value, on_delivery=lambda error, _: self._delivered.append((error, 0)))
        assert self.producer.flush(PATIENCE) == 0
        assert [error for error, _ in self._delivered[before:]] == [None] * len(values)

    def poll_until(self, is_wanted: Callable[[KafkaError], bool]) -> KafkaError:
        """The first error that is wanted."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.producer.poll(0.02)
            for error in self.errors:
                if is_wanted(error):
                    return error
        raise AssertionError(f"no such error: {self.errors}")


def is_refused_login(error: KafkaError) -> bool:
    return error.code() == KafkaError._AUTHENTICATION


def secured(protocol: str = "SASL_SSL", **options: Any) -> ClusterThread:
    security = FakeSecurity(protocol, users={ALICE: PASSWORD}, **options)
    return ClusterThread(1, topics={"t": 1}, security=security)


def values(cluster: ClusterThread) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


# librdkafka


@pytest.mark.parametrize("version", [pytest.param("TLSv1.2", marks=ANOTHER), "TLSv1.3"])
def test_librdkafka_over_tls(version: str) -> None:
    with secured("SSL", tls=FakeTls(versions=(version,))) as cluster:
        client = Librdkafka(librdkafka_settings(cluster))
        client.send(b"one", b"x" * 100_000)

        assert values(cluster) == [b"one", b"x" * 100_000]
        channels = [connection.channel for connection in cluster.connections]
        assert channels
        assert all(channel is not None and channel.describe().startswith(version) for channel in channels)


def test_librdkafka_with_a_certificate_of_its_own() -> None:
    with secured("SSL", tls=FakeTls(client_auth="required")) as cluster:
        with_none = Librdkafka(librdkafka_settings(cluster))
        with_none.poll_until(lambda error: "certificate required" in error.str())

        identity = cluster.client_identity("orders")
        shown = {"ssl.certificate.pem": identity.chain, "ssl.key.pem": identity.key}
        Librdkafka(librdkafka_settings(cluster, **shown)).send(b"one")

        assert values(cluster) == [b"one"]
        assert cluster.requests.count(ApiKey.PRODUCE) == 1


@pytest.mark.parametrize(
    "kind", ["expired", "not yet valid", "wrong host", "self-signed", "unknown authority"]
)
def test_librdkafka_refuses_a_certificate(kind: str) -> None:
    with secured("SSL", tls=FakeTls(certificate=kind)) as cluster:
        client = Librdkafka(librdkafka_settings(cluster))
        error = client.poll_until(lambda error: error.code() == KafkaError._SSL)
        assert "certificate verify failed" in error.str()
        assert cluster.requests.count() == 0

        cluster.set_certificate("valid")
        client.send(b"one")


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        pytest.param("SASL_SSL", "PLAIN", marks=ANOTHER),
        pytest.param("SASL_SSL", "SCRAM-SHA-256", marks=ANOTHER),
        pytest.param("SASL_PLAINTEXT", "SCRAM-SHA-512", marks=ANOTHER),
    ],
)
def test_librdkafka_logs_in(protocol: str, mechanism: str) -> None:
    with secured(protocol) as cluster:
        client = Librdkafka(librdkafka_settings(cluster, mechanism))
        client.send(b"one")

        assert values(cluster) == [b"one"]
        logins = [connection.login for connection in cluster.connections]
        assert {(login.principal, login.mechanism) for login in logins if login is not None} == {
            (ALICE, mechanism)
        }


@pytest.mark.parametrize(
    "mechanism", [pytest.param(each, marks=() if each == "PLAIN" else ANOTHER) for each in PLAIN_LIKE]
)
def test_librdkafka_with_a_wrong_password_gets_in_when_it_is_the_right_one(mechanism: str) -> None:
    with secured("SASL_PLAINTEXT", failed_authentication_delay_ms=10) as cluster:
        client = Librdkafka(librdkafka_settings(cluster, mechanism, **{"sasl.password": "new"}))
        error = client.poll_until(is_refused_login)
        # What Apache Kafka says of it.
        assert (
            "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials"
        ) in error.str()

        cluster.set_password(ALICE, "new")
        client.send(b"one")
        cluster.remove_user(ALICE)
        another = Librdkafka(librdkafka_settings(cluster, mechanism, **{"sasl.password": "new"}))
        another.poll_until(is_refused_login)
        client.send(b"two")

        assert values(cluster) == [b"one", b"two"]


def test_librdkafka_is_told_which_mechanisms_there_are() -> None:
    with secured("SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-512",)) as cluster:
        client = Librdkafka(librdkafka_settings(cluster, "PLAIN"))
        error = client.poll_until(is_refused_login)
        assert "SCRAM-SHA-512" in error.str()


def test_librdkafka_with_a_token() -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float, str, dict[str, str]]:
        asked.append(config)
        return token_for("alice"), time.time() + 3600, "alice", {"logicalCluster": "lkc-1"}

    with secured("SASL_PLAINTEXT") as cluster:
        settings = librdkafka_settings(cluster, "OAUTHBEARER", oauth_cb=token)
        for name in ("sasl.username", "sasl.password"):
            del settings[name]
        client = Librdkafka(settings)
        client.send(b"one")

        logins = [connection.login for connection in cluster.connections]
        assert {(login.principal, login.extensions["logicalCluster"]) for login in logins if login} == {
            ("alice", "lkc-1")
        }
    assert asked


def test_librdkafka_with_a_token_that_is_refused() -> None:
    def verify(token: str) -> dict[str, Any]:
        raise ValueError(f"not signed: {token}")

    with secured("SASL_PLAINTEXT", verify_token=verify) as cluster:
        settings = librdkafka_settings(
            cluster, "OAUTHBEARER", oauth_cb=lambda _: (token_for("alice"), time.time() + 3600)
        )
        error = Librdkafka(settings).poll_until(is_refused_login)
        assert "invalid_token" in error.str()


def _logins(cluster: ClusterThread) -> list[int]:
    return [connection.login.logins for connection in cluster.connections if connection.login]


@pytest.mark.extended("waits for two sessions of four seconds")
@pytest.mark.parametrize("mechanism", PLAIN_LIKE)
def test_librdkafka_logs_in_again(mechanism: str) -> None:
    # librdkafka logs in again when 0.9 of a session are over: 0.4 s before its end.
    with secured("SASL_PLAINTEXT", connections_max_reauth_ms=4000) as cluster:
        client = Librdkafka(librdkafka_settings(cluster, mechanism))
        count = 0
        while max(_logins(cluster), default=0) < 3:
            client.send(b"%d" % count)
            count += 1
            time.sleep(0.05)

        assert values(cluster) == [b"%d" % number for number in range(count)]
        assert cluster.connections_opened <= 2
        assert client.errors == []


def test_librdkafka_comes_back_after_a_session_that_ended() -> None:
    with secured("SASL_PLAINTEXT") as cluster:
        client = Librdkafka(librdkafka_settings(cluster, "PLAIN", **{"enable.idempotence": True}))
        client.send(b"one")
        before = cluster.connections_opened
        cluster.faults.end_sessions()
        client.send(b"two")

        assert values(cluster) == [b"one", b"two"]
        assert cluster.connections_opened > before


def test_librdkafka_comes_back_after_a_cut_handshake_and_a_refused_login() -> None:
    with secured("SASL_SSL") as cluster:
        cluster.faults.cut_handshakes()
        cluster.faults.refuse_login("not today")
        client = Librdkafka(librdkafka_settings(cluster, "SCRAM-SHA-256"))
        client.send(b"one")
        assert any("not today" in error.str() for error in client.errors)


def test_librdkafka_without_tls_at_a_listener_with_it_and_the_reverse() -> None:
    with secured("SSL") as cluster:
        plain = Librdkafka(
            librdkafka_settings(cluster, **{"security.protocol": "plaintext", "ssl.ca.pem": ""})
        )
        plain.poll_until(lambda error: error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN))
        assert cluster.requests.count() == 0
    with ClusterThread(1) as open_cluster:
        settings = {"bootstrap.servers": open_cluster.bootstrap_servers, "security.protocol": "ssl"}
        Librdkafka(settings).poll_until(
            lambda error: error.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
        )
        assert open_cluster.requests.count() == 0


def test_settings_with_locations_are_what_librdkafka_reads(tmp_path: Path) -> None:
    with secured("SSL", tls=FakeTls(client_auth="required")) as cluster:
        settings = cluster.client_settings(directory=tmp_path)
        client = {
            "ssl.ca.location": settings["ssl.truststore.location"],
            "ssl.certificate.location": settings["ssl.keystore.location"],
            "ssl.key.location": settings["ssl.keystore.location"],
        }
        base = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": settings["security.protocol"],
        }
        Librdkafka({**base, **client}).send(b"one")
        assert values(cluster) == [b"one"]


# aiokafka


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token_for("alice")


async def send_by_aiokafka(cluster: FakeCluster, **settings: Any) -> None:
    assert cluster.security is not None
    if cluster.security.has_tls:
        settings.setdefault("ssl_context", cluster.client_context())
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, security_protocol=cluster.security.protocol, **settings
    )
    try:
        await producer.start()
        await producer.send_and_wait("t", b"one")
    finally:
        await producer.stop()


@pytest.mark.parametrize(
    ("version", "client_auth"),
    [
        ("TLSv1.2", "required"),
        pytest.param("TLSv1.3", "required", marks=ANOTHER),
        pytest.param("TLSv1.3", "none", marks=ANOTHER),
    ],
)
async def test_aiokafka_over_tls(version: str, client_auth: str) -> None:
    tls = FakeTls(versions=(version,), client_auth=client_auth)
    async with FakeCluster(1, topics={"t": 1}, security=FakeSecurity("SSL", tls=tls)) as cluster:
        await send_by_aiokafka(cluster)
        assert [record.value for record in cluster.records("t")] == [b"one"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    "mechanism", [pytest.param(each, marks=() if each == "SCRAM-SHA-512" else ANOTHER) for each in PLAIN_LIKE]
)
async def test_aiokafka_logs_in(mechanism: str) -> None:
    # aiokafka escapes no commas in a name.
    security = FakeSecurity("SASL_SSL", users={"alice": PASSWORD})
    async with FakeCluster(1, topics={"t": 1}, security=security) as cluster:
        login = {"sasl_mechanism": mechanism, "sasl_plain_username": "alice"}
        await send_by_aiokafka(cluster, **login, sasl_plain_password=PASSWORD)
        assert [record.value for record in cluster.records("t")] == [b"one"]
        with pytest.raises(AiokafkaError):
            await send_by_aiokafka(cluster, **login, sasl_plain_password="wrong")
        assert cluster.requests.count(ApiKey.PRODUCE) == 1


async def test_aiokafka_with_a_token() -> None:
    security = FakeSecurity("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",))
    async with FakeCluster(1, topics={"t": 1}, security=security) as cluster:
        await send_by_aiokafka(cluster, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Tokens())
        assert [record.value for record in cluster.records("t")] == [b"one"]
