"""The plugin with a cluster that asks for TLS and a login: another client gets in with what the fixtures give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from aioproduce import pytest_plugin
from aioproduce.testing import ClusterThread

SECURED = {"protocol": "SASL_SSL", "users": {"alice": 'a "secret" \\ of hers'}, "mechanisms": ("PLAIN",)}


@pytest.mark.aioproduce(
    brokers=1, topics={"orders": 1}, security={**SECURED, "tls": {"client_auth": "required"}}
)
def test_a_cluster_that_is_secured_by_the_marker(kafka_cluster: ClusterThread, tmp_path: Path) -> None:
    settings = kafka_cluster.client_settings(directory=tmp_path)
    assert settings["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="a \\"secret\\" \\\\ of hers";'
    )
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap_servers,
            "security.protocol": settings["security.protocol"],
            "ssl.ca.location": settings["ssl.truststore.location"],
            "ssl.certificate.location": settings["ssl.keystore.location"],
            "ssl.key.location": settings["ssl.keystore.location"],
            "sasl.mechanism": settings["sasl.mechanism"],
            "sasl.username": "alice",
            "sasl.password": SECURED["users"]["alice"],  # type: ignore[index]
        }
    )
    producer.produce("orders", b"42", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0

    assert failed == [None]
    kafka_cluster.assert_produced("orders", b"42", count=1)
    # Only its owner reads the key.
    assert (tmp_path / "client.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.aioproduce(brokers=1, security=SECURED)
def test_a_producer_is_given_what_lets_it_in(kafka_cluster: ClusterThread) -> None:
    given = pytest_plugin._secured(kafka_cluster)
    assert given["security_protocol"] == "SASL_SSL"
    assert given["sasl_mechanism"] == "PLAIN"
    assert given["ssl_truststore_certificates"] == kafka_cluster.ca_certificate
    assert "alice" in given["sasl_jaas_config"]


def test_a_cluster_without_security_gives_nothing(kafka_cluster: ClusterThread) -> None:
    assert pytest_plugin._secured(kafka_cluster) == {}
    assert kafka_cluster.security is None
    with pytest.raises(ValueError, match="is not secured"):
        kafka_cluster.set_password("alice", "secret")


@pytest.mark.aioproduce(brokers=1, security=SECURED)
def test_users_and_certificates_change_while_it_runs(kafka_cluster: ClusterThread) -> None:
    kafka_cluster.set_password("bob", "pass")
    assert 'password="pass"' in kafka_cluster.client_settings("bob")["sasl.jaas.config"]
    kafka_cluster.remove_user("bob")
    with pytest.raises(KeyError):
        kafka_cluster.client_settings("bob")
    kafka_cluster.set_certificate("expired")
    with pytest.raises(ValueError, match="choose from valid, expired"):
        kafka_cluster.set_certificate("gone")
    with pytest.raises(ValueError, match="choose from PLAINTEXT, SSL"):
        ClusterThread(security="TLS")
