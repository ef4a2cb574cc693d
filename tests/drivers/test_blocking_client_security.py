"""`ask_any()` and Spark's check of topics over TLS and with logins, against a `FakeCluster`.

1. With the right settings it gets an answer, by every mechanism, with the settings that a producer accepts.
2. With wrong settings it gets an `OSError` that names the setting, within the time, without a secret.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from aioproduce.config import ProducerConfig
from aioproduce.errors import AuthenticationError, ConfigError, TlsError
from aioproduce.spark.errors import TopicError
from aioproduce.spark.topics import check_topics
from aioproduce.testing import ClusterThread, FakeSecurity, FakeTls, token_for
from aioproduce.wire.api import ApiKey
from tests.drivers.producing import PATIENCE
from tests.drivers.test_blocking_client import partitions_of_t
from tests.security.hidden import everything_told
from tests.security.leaks import told

PASSWORD = 'pä=ss,wörd\\ "'
WRONG = "not-the-password"


def secured(protocol: str = "SASL_SSL", **options: Any) -> ClusterThread:
    security = FakeSecurity(protocol, users={"alice": PASSWORD}, failed_authentication_delay_ms=10, **options)
    return ClusterThread(1, topics={"t": 3}, security=security)


def config_of(cluster: ClusterThread, mechanism: str | None = None, **changes: object) -> ProducerConfig:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        **cluster.client_settings(mechanism=mechanism),
        **changes,
    }
    return ProducerConfig.from_mapping({key: value for key, value in settings.items() if value is not None})


def in_time(config: ProducerConfig) -> float:
    began_at = time.monotonic()
    with pytest.raises(OSError):
        partitions_of_t(config)
    return time.monotonic() - began_at


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_each_mechanism_is_let_in_over_tls(mechanism: str) -> None:
    with secured() as cluster:
        assert partitions_of_t(config_of(cluster, mechanism)) == 3


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_each_of_the_two_alone(protocol: str) -> None:
    with secured(protocol) as cluster:
        assert partitions_of_t(config_of(cluster)) == 3


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_is_shown(version: str) -> None:
    with secured("SSL", tls=FakeTls(client_auth="required", versions=(version,))) as cluster:
        assert partitions_of_t(config_of(cluster)) == 3
        none = dict.fromkeys(("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.type"))
        with pytest.raises(TlsError) as raised:
            partitions_of_t(config_of(cluster, **none))
        assert raised.value.setting == "ssl.keystore.location"


def test_a_costly_hash_is_done_elsewhere_and_waited_for() -> None:
    with secured("SASL_PLAINTEXT", scram_iterations=16_384) as cluster:
        assert partitions_of_t(config_of(cluster, "SCRAM-SHA-256")) == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_provider_of_tokens_is_asked_once_for_all_servers(is_async: bool) -> None:
    asked: list[threading.Thread] = []

    def token() -> str:
        asked.append(threading.current_thread())
        return token_for("alice")

    async def awaited() -> str:
        return token()

    with secured("SASL_PLAINTEXT") as cluster, secured("SASL_PLAINTEXT") as down:
        config = config_of(
            cluster,
            "OAUTHBEARER",
            **{
                "bootstrap.servers": f"{down.bootstrap_servers},{cluster.bootstrap_servers}",
                "sasl.jaas.config": None,
                "sasl.oauthbearer.token.provider": awaited if is_async else token,
            },
        )
        down.faults.refuse_login("not today")
        assert partitions_of_t(config) == 3
    # A refused token is fetched again; the caller's own thread fetches none.
    assert len(asked) == 2
    assert threading.current_thread() not in asked


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(mechanism: str) -> None:
    jaas = {"sasl.jaas.config": None, "sasl.username": "alice", "sasl.password": WRONG}
    with secured() as cluster:
        config = config_of(cluster, mechanism, **jaas)
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED") as raised:
            partitions_of_t(config)
        assert (raised.value.host, raised.value.port) == config.bootstrap_servers[0]
        assert raised.value.mechanism == mechanism
        assert WRONG not in everything_told(raised.value, ours_only=True)
        assert in_time(config) < 5


def test_a_connection_that_is_cut_shows_no_password() -> None:
    """The request that could not be sent, or was not answered, is in no frame."""
    with secured("SASL_PLAINTEXT") as cluster:
        jaas = {"sasl.jaas.config": None, "sasl.username": "alice", "sasl.password": WRONG}
        cluster.stop_broker(next(iter(cluster.ports)))
        with pytest.raises(OSError) as raised:
            partitions_of_t(config_of(cluster, "PLAIN", **jaas))
        assert WRONG not in everything_told(raised.value, ours_only=True)


@pytest.mark.parametrize(
    ("kind", "reason"), [("unknown authority", "unknown"), ("expired", "expired"), ("wrong host", "host")]
)
def test_a_certificate_that_is_no_good(kind: str, reason: str) -> None:
    with secured(tls=FakeTls(certificate=kind)) as cluster:
        with pytest.raises(TlsError) as raised:
            partitions_of_t(config_of(cluster))
        assert reason in f"{raised.value.reason} {raised.value}".lower()
        assert raised.value.setting is not None


def test_tls_on_one_side_only() -> None:
    with secured("SSL") as encrypted, ClusterThread(1, topics={"t": 3}) as plain:
        there = {"security.protocol": "PLAINTEXT", "ssl.truststore.certificates": None}
        with pytest.raises(TlsError, match=r"security\.protocol") as raised:
            partitions_of_t(config_of(encrypted, **there, **{"ssl.truststore.type": None}))
        assert raised.value.setting == "security.protocol"
        here = {"bootstrap.servers": plain.bootstrap_servers}
        with pytest.raises(TlsError, match=r"security\.protocol"):
            partitions_of_t(config_of(encrypted, **here))


def test_a_key_file_that_is_not_there() -> None:
    with secured("SSL") as cluster:
        gone = {
            "ssl.truststore.certificates": None,
            "ssl.truststore.location": "/nowhere/ca.pem",
        }
        with pytest.raises(TlsError, match=r"/nowhere/ca\.pem") as raised:
            partitions_of_t(config_of(cluster, **gone))
        assert raised.value.setting == "ssl.truststore.location"


def test_a_provider_that_raises_or_hangs_ends_in_time() -> None:
    def broken() -> str:
        raise RuntimeError(f"refused: {said}")

    said = "the-secret-of-a-provider"
    hold = threading.Event()
    own = {"sasl.jaas.config": None, "socket.connection.setup.timeout.ms": 300}
    with secured("SASL_PLAINTEXT") as cluster:
        config = config_of(cluster, "OAUTHBEARER", **own, **{"sasl.oauthbearer.token.provider": broken})
        with pytest.raises(AuthenticationError, match="RuntimeError") as raised:
            partitions_of_t(config)
        assert raised.value.setting == "sasl.oauthbearer.token.provider"
        assert said not in told(raised.value)

        config = config_of(cluster, "OAUTHBEARER", **own, **{"sasl.oauthbearer.token.provider": hold.wait})
        began_at = time.monotonic()
        with pytest.raises(AuthenticationError, match="the credentials did not arrive"):
            partitions_of_t(config)
        assert 0.3 <= time.monotonic() - began_at < PATIENCE
        hold.set()


def test_a_login_that_is_not_answered_ends_in_time() -> None:
    with secured("SASL_SSL") as cluster:
        cluster.faults.stall(next(iter(cluster.ports)))
        with pytest.raises(OSError, match=r"security\.protocol|in time"):
            partitions_of_t(config_of(cluster), timeout=0.2)


def test_settings_that_contradict_each_other_are_told_before_anything_is_opened() -> None:
    with secured("SASL_PLAINTEXT") as cluster:
        nobody = {"sasl.jaas.config": None, "sasl.mechanism": "PLAIN"}
        with pytest.raises(ConfigError, match=r"sasl\.username"):
            partitions_of_t(config_of(cluster, **nobody))
        assert cluster.connections_opened == 0


def test_spark_asks_for_its_topics_over_tls_and_with_a_login() -> None:
    with secured() as cluster:
        check_topics(config_of(cluster), ["t"], PATIENCE)
        with pytest.raises(TopicError, match="does not exist"):
            check_topics(config_of(cluster), ["nothing"], PATIENCE)
        jaas = {"sasl.jaas.config": None, "sasl.username": "alice", "sasl.password": WRONG}
        before = cluster.requests.count(ApiKey.SASL_HANDSHAKE)
        with pytest.raises(TopicError, match="SASL_AUTHENTICATION_FAILED") as raised:
            check_topics(config_of(cluster, "SCRAM-SHA-512", **jaas), ["t"], PATIENCE)
        # Tried once: a user may be locked out.
        assert cluster.requests.count(ApiKey.SASL_HANDSHAKE) == before + 1
        assert WRONG not in everything_told(raised.value, ours_only=True)
