"""The configuration of security: what goes together and what does not, secrets, and files of real life.

The values of single keys are compared with Kafka's in `test_config_kafka.py`. The `.properties` files in
`tests/vectors/properties` are written as the providers' own pages have them, with secrets made up.
"""

from __future__ import annotations

import copy
import logging
import ssl
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from aioproduce.config import KEYS, ProducerConfig, load_properties, producer_config
from aioproduce.config.config_def import shown
from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError

SECRET = "hunter2-do-not-show"
FILES = Path(__file__).parents[1] / "vectors" / "properties"
SERVER: Mapping[str, object] = MappingProxyType({"bootstrap.servers": "localhost:9999"})
SASL: Mapping[str, object] = MappingProxyType({**SERVER, "security.protocol": "SASL_SSL"})
USER: Mapping[str, object] = MappingProxyType({"sasl.username": "me", "sasl.password": SECRET})
PLAIN: Mapping[str, object] = MappingProxyType({**SASL, **USER, "sasl.mechanism": "PLAIN"})
OAUTH: Mapping[str, object] = MappingProxyType({**SASL, "sasl.mechanism": "OAUTHBEARER"})
URL = "sasl.oauthbearer.token.endpoint.url"
CLASS = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(autouse=True)
def warned_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_config, "_warned", set())


def config(settings: Mapping[str, object], **more: object) -> ProducerConfig:
    return ProducerConfig.from_mapping({**SERVER, **settings, **more})


def refused(settings: Mapping[str, object], **more: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(settings, **more)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# -- protocols and addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "ssl", "Ssl"])
def test_protocols_that_need_nothing_more(protocol: str) -> None:
    assert config({"security.protocol": protocol}).security_protocol == protocol.upper()


def test_an_address_may_say_what_is_spoken_to_it() -> None:
    made = config(
        PLAIN, **{"bootstrap.servers": "SASL_SSL://a:9092,sasl_ssl://[::1]:9093,b:1,SASL_SSL://b:1"}
    )
    assert made.bootstrap_servers == (("a", 9092), ("::1", 9093), ("b", 1))


@pytest.mark.parametrize("asked", ["SSL", "PLAINTEXT", "SASL_PLAINTEXT"])
def test_an_address_that_asks_for_another_protocol(asked: str) -> None:
    text = str(refused(PLAIN, **{"bootstrap.servers": f"a:9092,{asked}://b:9093"}))
    assert f"{asked}://b:9093" in text
    assert "security.protocol is SASL_SSL" in text
    assert f"set security.protocol={asked}" in text


PROXY = "sasl.oauthbearer.token.endpoint.proxy"


@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "https://[::1]:8080/", "HTTP://proxy"])
def test_a_proxy_before_the_token_endpoint(proxy: str) -> None:
    assert config({PROXY: proxy, **OAUTH, URL: "https://a/t"}).sasl_oauthbearer_token_endpoint_proxy == proxy


@pytest.mark.parametrize(
    ("proxy", "why"),
    [
        ("http://me:hunter2@proxy:3128", "has a name or a password in it"),
        ("http://me:hunter2@proxy:0", "has a name or a password in it"),
        ("http://me:hunter2@[proxy", "is not a URL"),
        ("me:hunter2@proxy:3128", "is not an http URL with a host"),
        ("proxy:3128", "is not an http URL with a host"),
        ("socks5://proxy:1080", "is not an http URL with a host"),
        ("http://", "is not an http URL with a host"),
        ("http://proxy:0", "is not an http URL with a host"),
        ("http://proxy:99999", "is not a URL"),
        ("http://proxy/path", "has more than a host and a port"),
        ("http://proxy?a=b", "has more than a host and a port"),
        (3128, "is not"),
    ],
)
def test_a_proxy_that_is_none(proxy: object, why: str) -> None:
    error = refused(OAUTH, **{URL: "https://a/t", PROXY: proxy})
    assert error.key == PROXY
    assert why in str(error)
    assert "hunter2" not in f"{error} {error!r}"


@pytest.mark.parametrize(
    "url", ["ftp://me:hunter2@a/t", "https://me:hunter2@a:0/t", "https://me:hunter2@[a/t"]
)
def test_a_token_endpoint_that_is_refused_shows_no_password(url: str) -> None:
    error = refused(OAUTH, **{URL: url})
    assert error.key == URL
    assert "hunter2" not in f"{error} {error!r}"


# -- what is missing, and what contradicts itself -----------------------------------------------------------

PEM: Mapping[str, object] = MappingProxyType(
    {"ssl.keystore.key": SECRET, "ssl.keystore.certificate.chain": SECRET}
)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SASL, ["security.protocol=SASL_SSL needs sasl.mechanism", "SCRAM-SHA-512"]),
        ({**SASL, **USER}, ["needs sasl.mechanism"]),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, ["needs sasl.kerberos.service.name"]),
        ({**SASL, "sasl.mechanism": "PLAIN"}, ["PLAIN needs a name and a password", "sasl.jaas.config"]),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256"}, ["SCRAM-SHA-256 needs a name and a password"]),
        (OAUTH, ["needs tokens", URL, "sasl.oauthbearer.token.provider"]),
        ({**PLAIN, "sasl.jaas.config": SECRET}, ["sasl.jaas.config and sasl.username are both set", "Leave"]),
        ({**PLAIN, "sasl.credentials.provider": print}, ["sasl.username and sasl.credentials.provider"]),
        (
            {**SASL, "sasl.jaas.config": SECRET, "sasl.credentials.provider": print},
            ["sasl.jaas.config and sasl.credentials.provider are both set"],
        ),
        ({**SASL, "sasl.username": "me"}, ["sasl.username is set without sasl.password"]),
        ({**SASL, "sasl.password": SECRET}, ["sasl.password is set without sasl.username"]),
        ({**OAUTH, **USER, URL: "https://idp/t"}, ["OAUTHBEARER does not use a name and password"]),
        ({**PLAIN, "sasl.oauthbearer.token.provider": print}, ["sasl.mechanism=PLAIN does not use them"]),
        ({**OAUTH, "sasl.oauthbearer.token.provider": print, URL: "https://idp/t"}, ["both set", URL]),
        ({**OAUTH, URL: "http://idp/t"}, ["is http", "sasl.oauthbearer.allow.http=true"]),
        ({**OAUTH, URL: "file:///run/token"}, ["is a file", f"={CLASS}.FileJwtRetriever"]),
        (
            {**OAUTH, URL: "https://i/t", "sasl.oauthbearer.jwt.retriever.class": f"{CLASS}.FileJwtRetriever"},
            ["FileJwtRetriever", "does not name a file"],
        ),
        (
            {
                **PLAIN,
                "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            },
            ["is MSK's", "sasl.mechanism=AWS_MSK_IAM"],
        ),
        ({**PEM, "ssl.keystore.location": "k.pem"}, ["ssl.keystore.location and ssl.keystore.key are both set"]),
        ({"ssl.keystore.key": SECRET}, ["ssl.keystore.key is set without ssl.keystore.certificate.chain"]),
        ({"ssl.keystore.certificate.chain": SECRET}, ["chain is set without ssl.keystore.key"]),
        ({"ssl.keystore.password": SECRET}, ["ssl.keystore.password is set without ssl.keystore.location"]),
        ({"ssl.truststore.password": SECRET}, ["is set without ssl.truststore.location"]),
        (
            {"ssl.truststore.location": "ca.pem", "ssl.truststore.certificates": SECRET},
            ["ssl.truststore.location and ssl.truststore.certificates are both set"],
        ),
        (
            {"ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "ssl.truststore.location": "ca.pem"},
            ["ssl.context and ssl.truststore.location are both set"],
        ),
        (
            {"ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), **PEM},
            ["ssl.context and ssl.keystore.key are both set"],
        ),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, ["ssl.protocol=TLSv1.2 contradicts"]),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_with_the_remedy(
    settings: Mapping[str, object], words: list[str]
) -> None:
    text = str(refused(settings))
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"},
        {**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": SECRET},
        {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.credentials.provider": print},
        {**SASL, "sasl.jaas.config": SECRET},  # Kerberos, as in Java
        {**SASL, "sasl.kerberos.service.name": "kafka"},
        {**SASL, "sasl.mechanism": "AWS_MSK_IAM"},
        {**OAUTH, URL: "https://idp/t"},
        {**OAUTH, URL: "http://idp/t", "sasl.oauthbearer.allow.http": "true"},
        {**OAUTH, URL: "file:///t", "sasl.oauthbearer.jwt.retriever.class": f"{CLASS}.FileJwtRetriever"},
        {**OAUTH, "sasl.oauthbearer.token.provider": print},
        {**OAUTH, "sasl.jaas.config": SECRET},
        {"security.protocol": "SSL", **PEM, "ssl.key.password": SECRET},
        {"security.protocol": "SSL", "ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
    ],
)  # fmt: skip
def test_what_goes_together(settings: Mapping[str, object], caplog: pytest.LogCaptureFixture) -> None:
    config(settings)
    assert warnings(caplog) == []


# -- what is of no effect -----------------------------------------------------------------------------------


def test_settings_of_another_protocol_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"sasl.mechanism": "PLAIN", **USER, "ssl.truststore.location": "ca.pem"}
    config(settings)
    config(settings)
    assert warnings(caplog) == [
        "ssl.truststore.location: no effect with security.protocol=PLAINTEXT. Set that to SSL or SASL_SSL, or "
        "leave them out.",
        "sasl.mechanism, sasl.password, sasl.username: no effect with security.protocol=PLAINTEXT. Set that to "
        "SASL_SSL or SASL_PLAINTEXT, or leave them out.",
    ]


def test_defaults_of_another_protocol_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    config({"sasl.mechanism": "GSSAPI", "ssl.protocol": "TLSv1.3", "sasl.login.class": None})
    assert warnings(caplog) == []


def test_a_password_over_plaintext_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**PLAIN, "security.protocol": "SASL_PLAINTEXT"}
    config(settings)
    config(settings)
    (text,) = warnings(caplog)
    assert "sends the password unencrypted: use SASL_SSL" in text
    assert SECRET not in caplog.text
    config({**settings, "sasl.mechanism": "SCRAM-SHA-256"})
    assert len(warnings(caplog)) == 1


# -- single keys --------------------------------------------------------------------------------------------


def test_tls_1_2_means_no_newer_one() -> None:
    assert config({"ssl.protocol": "TLSv1.2"}).ssl_enabled_protocols == ("TLSv1.2",)
    assert config({}).ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")


def test_versions_that_java_switches_off_itself_are_left_out() -> None:
    assert config({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1"}).ssl_enabled_protocols == ("TLSv1.2",)
    assert "TLSv9" in str(refused({"ssl.enabled.protocols": "TLSv1.3,TLSv9"}))


@pytest.mark.parametrize(
    ("key", "name", "attribute", "expected"),
    [
        ("sasl.login.callback.handler.class", f"{CLASS}.secured.OAuthBearerLoginCallbackHandler",
         "sasl_login_callback_handler_class", "OAuthBearerLoginCallbackHandler"),
        ("sasl.client.callback.handler.class", "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
         "sasl_client_callback_handler_class", "IAMClientCallbackHandler"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{CLASS}.ClientCredentialsJwtRetriever",
         "sasl_oauthbearer_jwt_retriever_class", "ClientCredentialsJwtRetriever"),
        ("sasl.oauthbearer.jwt.validator.class", f"{CLASS}.ClientJwtValidator",
         "sasl_oauthbearer_jwt_validator_class", "ClientJwtValidator"),
    ],
)  # fmt: skip
def test_classes_of_javas_that_are_understood(key: str, name: str, attribute: str, expected: str) -> None:
    assert getattr(config({key: f" {name} "}), attribute) == expected
    error = refused({key: "com.example.Mine"})
    assert "is not a supported class" in str(error)
    assert error.key == key


@pytest.mark.parametrize(
    "value",
    ["idp.example/token", "ftp://idp/token", "https://", "https:///token", "https://idp:0/t", "https://idp:x/t",
     "https://[::1/t", "", 7],
)  # fmt: skip
def test_what_is_no_token_endpoint(value: object) -> None:
    assert refused({**OAUTH, URL: value}).key == URL


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {}),
        ("", {}),
        (
            "logicalCluster=lkc-1, identityPoolId=pool-2",
            {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"},
        ),
        ({"logicalCluster": "a=b,c"}, {"logicalCluster": "a=b,c"}),
    ],
)
def test_extensions(value: object, expected: dict[str, str]) -> None:
    key = "sasl.oauthbearer.extensions"
    assert dict(config({**OAUTH, URL: "https://i/t", key: value}).sasl_oauthbearer_extensions) == expected


@pytest.mark.parametrize(
    "value",
    [
        "auth=x",
        "a",
        "a-b=c",
        "a=",
        {"a": 1},
        {1: "a"},
        {"a": "b\x01c"},
        {"é": "a"},
        {"a": "é"},
        ["a=b"],
        {"": "a"},
    ],
)
def test_extensions_that_cannot_be_sent(value: object) -> None:
    # RFC 7628, 3.1: a key is ALPHA, a value is VCHAR, SP, HTAB, CR and LF; `auth` is the token's.
    assert refused({**OAUTH, "sasl.oauthbearer.extensions": value}).key == "sasl.oauthbearer.extensions"


def test_providers_may_be_async_or_objects() -> None:
    async def give() -> str:
        return SECRET

    class Provider:  # aiokafka's AbstractTokenProvider
        async def token(self) -> str:
            return SECRET

    provider = Provider()
    for given in (give, provider):
        made = config({**OAUTH, "sasl.oauthbearer.token.provider": given})
        assert made.sasl_oauthbearer_token_provider is given
    assert config({**SASL, "sasl.mechanism": "PLAIN", "sasl.credentials.provider": give})
    for key in ("sasl.oauthbearer.token.provider", "sasl.credentials.provider"):
        assert refused({key: SECRET}).key == key


def test_an_ssl_context_is_one() -> None:
    context = ssl.create_default_context()
    assert config({"security.protocol": "SSL", "ssl.context": context}).ssl_context is context
    assert refused({"ssl.context": "x"}).key == "ssl.context"


# -- secrets ------------------------------------------------------------------------------------------------

SECRETS = sorted(key.name for key in KEYS.values() if key.kind.label == "secret")
TOGETHER: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "ssl.keystore.key": {"ssl.keystore.certificate.chain": "x"},
        "ssl.keystore.certificate.chain": {"ssl.keystore.key": "x"},
        "ssl.keystore.password": {"ssl.keystore.location": "k"},
        "ssl.truststore.password": {"ssl.truststore.location": "k"},
        "sasl.password": {"sasl.username": "me"},
    }
)


def test_every_secret_of_kafkas_and_of_ours_is_one() -> None:
    assert len(SECRETS) == 9 + 1


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", [SECRET, Secret(SECRET), f" {SECRET}\t"], ids=["str", "Secret", "padded"])
def test_a_secret_is_kept_as_it_is_and_shown_nowhere(
    name: str, value: str | Secret, caplog: pytest.LogCaptureFixture
) -> None:
    made = config({**TOGETHER.get(name, {}), name: value})
    held = getattr(made, str(KEYS[name].attribute))
    assert isinstance(held, Secret)
    text = value.reveal() if isinstance(value, Secret) else value
    # Java drops the blanks around its own keys, unlike those of a name that it does not have.
    assert held.reveal() == (text if KEYS[name].is_own else text.strip())
    assert SECRET not in repr(made) + str(made) + caplog.text + shown(name, value) + shown("other", held)
    assert KEYS[name].shown(value) == f"{name}=<hidden>"
    assert copy.copy(made) == made
    error = refused({**TOGETHER.get(name, {}), name: [SECRET]})
    assert str(error).startswith(f"{name}=<hidden> (list) is not a str")


@pytest.mark.parametrize("name", SECRETS)
def test_an_empty_secret_is_one_of_a_store_alone(name: str) -> None:
    settings = {**TOGETHER.get(name, {}), name: ""}
    if "password" in name.replace("sasl.password", "") or "passphrase" in name:
        assert not getattr(config(settings), str(KEYS[name].attribute))
    else:
        assert str(refused(settings)).startswith(f"{name}=<hidden> is empty")


def test_a_secret_that_cannot_be_sent() -> None:
    assert "UTF-8" in str(refused({**PLAIN, "sasl.password": f"\ud800{SECRET}"}))


# -- files of real life -------------------------------------------------------------------------------------

EXPECTED: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "confluent-cloud": {
            "bootstrap_servers": (("pkc-a1b2c.eu-central-1.aws.confluent.cloud", 9092),),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "acks": -1,
            "sasl_jaas_config": Secret(
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                "username='ABCDEFGHIJKLMNOP' password='made/up+secret=0123456789';"
            ),
        },
        "confluent-cloud-oauth": {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_login_callback_handler_class": "OAuthBearerLoginCallbackHandler",
            "sasl_oauthbearer_token_endpoint_url": "https://example.okta.com/oauth2/default/v1/token",
        },
        "aiven": {
            "security_protocol": "SSL",
            "ssl_keystore_type": "PKCS12",
            "ssl_truststore_type": "JKS",
            "ssl_truststore_location": "client.truststore.jks",
            "ssl_endpoint_identification_algorithm": "https",
            "ssl_key_password": Secret("made-up-keystore"),
        },
        "msk-iam": {
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_client_callback_handler_class": "IAMClientCallbackHandler",
        },
        "msk-scram": {
            "sasl_mechanism": "SCRAM-SHA-512",
            "ssl_truststore_location": "/tmp/kafka.client.truststore.jks",
        },
        "msk-tls": {"security_protocol": "SSL", "ssl_keystore_location": "/tmp/kafka.client.keystore.jks"},
        "redpanda": {"sasl_mechanism": "SCRAM-SHA-256", "security_protocol": "SASL_SSL"},
        "strimzi-oauth": {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_client_credentials_client_id": "my-producer",
            "sasl_oauthbearer_client_credentials_client_secret": Secret("made-up-client-secret"),
            "sasl_oauthbearer_jwt_retriever_class": "ClientCredentialsJwtRetriever",
            "sasl_oauthbearer_scope": "kafka",
            "ssl_truststore_type": "PEM",
        },
        "kerberos": {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"},
        "pem-inline": {"security_protocol": "SSL", "ssl_keystore_type": "PEM"},
    }
)


def _files() -> Iterator[str]:
    return (path.stem for path in sorted(FILES.glob("*.properties")))


def test_every_file_is_expected_to_be_something() -> None:
    assert set(_files()) == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_real_life_load_unchanged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_properties(FILES / f"{name}.properties")
    made = ProducerConfig.from_mapping(settings)
    assert {key: getattr(made, key) for key in EXPECTED[name]} == EXPECTED[name]
    assert warnings(caplog) == []
    hidden = [value for key, value in settings.items() if KEYS[key].has_secret]
    assert not [value for value in hidden if value in repr(made) + caplog.text]
    assert all(f"{field.name}=" in repr(made) for field in fields(made) if field.repr)


def test_pem_in_a_file_keeps_its_lines() -> None:
    made: Any = ProducerConfig.from_mapping(load_properties(FILES / "pem-inline.properties"))
    lines = made.ssl_keystore_key.reveal().split("\n")
    assert (lines[0], lines[-1]) == ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----")


def test_blanks_around_a_password_are_dropped_where_java_drops_them() -> None:
    """`ConfigDef.parseType` trims whatever it parses, passwords too (4.3.1)."""
    stores = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "/ca"}
    config = ProducerConfig.from_mapping(stores | {"ssl.truststore.password": " kept \t"})
    assert config.ssl_truststore_password == Secret("kept")
    config = ProducerConfig.from_mapping(stores | {"ssl.truststore.password": Secret(" as it is ")})
    assert config.ssl_truststore_password == Secret(" as it is ")
    login = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    config = ProducerConfig.from_mapping(login | {"sasl.username": "a", "sasl.password": " our own key "})
    assert config.sasl_password == Secret(" our own key ")
