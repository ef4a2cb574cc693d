"""librdkafka's options of TLS and SASL: what they come to, and that librdkafka itself takes what is given here."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as TheirProducer

from aioproduce.compat.confluent import AIOProducer as OurProducer
from aioproduce.compat.confluent_errors import ConfluentConfigError
from aioproduce.compat.confluent_options import ConfluentOptions
from aioproduce.config import ProducerConfig, Secret
from aioproduce.testing import FakeCluster, FakeSecurity
from tests.drivers.producing import until

SECRET = "hunter2-do-not-show"
SERVERS = {"bootstrap.servers": "localhost:9092"}
SASL = {"security.protocol": "SASL_SSL"}
OIDC = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}


def read(settings: dict[str, Any]) -> ProducerConfig:
    config = ConfluentOptions.read(SERVERS | settings).config
    assert SECRET not in repr(config)
    return config


def refused(settings: dict[str, Any]) -> ConfluentConfigError:
    with pytest.raises(ConfluentConfigError) as caught:
        ConfluentOptions.read(SERVERS | settings)
    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    return caught.value


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {**SASL, "sasl.mechanisms": "PLAIN", "sasl.username": "me", "sasl.password": SECRET},
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "me",
             "sasl_password": Secret(SECRET)},
        ),
        (
            {**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": SECRET,
             "sasl.oauthbearer.scope": "of no effect"},
            {"sasl_mechanism": "SCRAM-SHA-512", "sasl_oauthbearer_scope": None},
        ),
        (SASL, {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}),
        (
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none",
             "ssl.keystore.location": "/me.p12", "ssl.keystore.password": SECRET},
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": "",
             "ssl_keystore_location": "/me.p12", "ssl_keystore_password": Secret(SECRET)},
        ),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "probe", "ssl.cipher.suites": "ECDHE+AESGCM:!MD5"},
            {"ssl_truststore_location": None, "ssl_endpoint_identification_algorithm": "https",
             "ssl_cipher_suites": ("ECDHE+AESGCM", "!MD5")},
        ),
        # Of no effect without a protocol that wants them, as in librdkafka.
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": SECRET, "ssl.ca.location": "/x"},
            {"security_protocol": "PLAINTEXT", "sasl_username": None, "ssl_truststore_location": None},
        ),
        (
            {**OIDC, "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": SECRET,
             "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1"},
            {"sasl_oauthbearer_token_endpoint_url": "https://idp.example/token",
             "sasl_oauthbearer_client_credentials_client_id": "me",
             "sasl_oauthbearer_client_credentials_client_secret": Secret(SECRET),
             "sasl_oauthbearer_jwt_retriever_class": "ClientCredentialsJwtRetriever",
             "sasl_oauthbearer_scope": "kafka", "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1"}},
        ),
    ],
    ids=["PLAIN", "SCRAM", "GSSAPI", "keystore", "probe", "plaintext", "oidc"],
)  # fmt: skip
def test_what_they_come_to(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    config = read(settings)
    assert {name: getattr(config, name) for name in expected} == expected


def test_jwt_bearer_with_an_assertion() -> None:
    config = read(
        {
            **OIDC,
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.assertion.private.key.file": "/key.pem",
            "sasl.oauthbearer.assertion.private.key.passphrase": SECRET,
            "sasl.oauthbearer.assertion.algorithm": "es256",
            "sasl.oauthbearer.assertion.claim.exp.seconds": 60,
            "sasl.oauthbearer.assertion.claim.jti.include": True,
            "sasl.oauthbearer.assertion.jwt.template.file": "/template.json",
            "https.ca.location": "/idp.pem",
        }
    )
    assert config.sasl_oauthbearer_jwt_retriever_class == "JwtBearerJwtRetriever"
    assert config.sasl_oauthbearer_assertion_private_key_file == "/key.pem"
    assert config.sasl_oauthbearer_assertion_private_key_passphrase == Secret(SECRET)
    assert config.sasl_oauthbearer_assertion_algorithm == "ES256"
    assert config.sasl_oauthbearer_assertion_claim_exp_seconds == 60
    assert config.sasl_oauthbearer_assertion_claim_jti_include is True
    assert config.sasl_oauthbearer_assertion_template_file == "/template.json"
    assert config.sasl_oauthbearer_token_endpoint_ca_location == "/idp.pem"


def test_certificate_and_key_come_from_files_or_texts(tmp_path: Path) -> None:
    (tmp_path / "me.pem").write_text("certificate")
    (tmp_path / "key.pem").write_text(SECRET)
    files = {
        "security.protocol": "ssl",
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": SECRET,
    }
    texts = {"security.protocol": "ssl", "ssl.certificate.pem": "certificate", "ssl.key.pem": SECRET}
    for given in (files, texts):
        config = read(given)
        assert config.ssl_keystore_certificate_chain == Secret("certificate")
        assert config.ssl_keystore_key == Secret(SECRET)
    assert "ssl.key.location and ssl.key.pem are both set" in str(refused({**files, "ssl.key.pem": SECRET}))
    absent = {**files, "ssl.key.location": str(tmp_path / "absent")}
    assert "ssl.key.location cannot be read: No such file" in str(refused(absent))
    assert "is a directory" in str(refused({"security.protocol": "ssl", "ssl.ca.location": str(tmp_path)}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**SASL, "sasl.mechanism": "PLAIN"}, "needs a name and a password"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": SECRET}, "without sasl.username"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "oauth_cb"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://idp/t"}, "use https"),
        ({**SASL, "sasl.mechanism": "EXTERNAL"}, "sasl.mechanism='EXTERNAL' is not allowed"),
    ],
)
def test_what_is_missing(settings: dict[str, Any], words: str) -> None:
    assert words in str(refused(settings))


def _callback(config: str) -> tuple[str, float, str, dict[str, str]]:
    assert config == "for=me"
    return SECRET, 1_900_000_000.0, "me", {"logicalCluster": "lkc-1"}


async def _async_callback(config: str) -> tuple[str, float]:
    assert config == "for=me"
    return SECRET, 1_900_000_000.0


def test_an_oauth_cb_is_asked_with_its_config() -> None:
    tokens: dict[str, Any] = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "for=me"}
    ask: Any = read({**tokens, "oauth_cb": _callback}).sasl_oauthbearer_token_provider
    token = ask()
    assert (token.value, token.expires_at) == (Secret(SECRET), 1_900_000_000.0)
    assert (token.principal, token.extensions) == ("me", {"logicalCluster": "lkc-1"})
    ask = read({**tokens, "oauth_cb": _async_callback}).sasl_oauthbearer_token_provider
    assert inspect.iscoroutinefunction(ask)
    token = asyncio.run(ask())
    assert (token.value, token.principal, token.extensions) == (Secret(SECRET), "", {})
    assert SECRET not in repr(token)


async def test_other_credentials_are_taken_from_the_next_login_on() -> None:
    users = FakeSecurity("SASL_PLAINTEXT", users={"bob": SECRET}, failed_authentication_delay_ms=0)
    async with FakeCluster(security=users, topics={"orders": 1}) as cluster:
        conf = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "wrong",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 10,
        }
        async with OurProducer(conf) as producer:
            waiting = await producer.produce("orders", b"1")
            await until(lambda: producer.metrics().value("failed-authentication-total") > 0)
            assert not waiting.done()
            await producer.set_sasl_credentials("bob", SECRET)
            assert (await waiting).error() is None
            with pytest.raises(TypeError, match="password must be a str, not bytes") as caught:
                await producer.set_sasl_credentials("bob", SECRET.encode())  # type: ignore[arg-type]
    frames = traceback.walk_tb(caught.value.__traceback__)
    assert not [frame for frame, _ in list(frames)[1:] if SECRET in repr(frame.f_locals)]


async def test_without_a_password_others_have_no_effect() -> None:
    async with (
        FakeCluster(topics={"orders": 1}) as cluster,
        OurProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer,
    ):
        await producer.set_sasl_credentials("bob", SECRET)
        assert (await (await producer.produce("orders", b"1"))).error() is None


def test_librdkafka_takes_the_same() -> None:
    # What is given above is what it takes, and not what is only a name of ours.
    for settings in (
        {**SASL, "sasl.mechanisms": "PLAIN", "sasl.username": "me", "sasl.password": SECRET},
        {**SASL, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": _callback, "sasl.oauthbearer.config": "for=me"},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
    ):  # fmt: skip
        read(settings)
        TheirProducer({**settings, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
