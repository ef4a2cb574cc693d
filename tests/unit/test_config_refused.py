"""The configuration: what is refused and why, unknown keys and what was meant, and that no secret shows."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from aioproduce.config import KEYS, Key, ProducerConfig, dotted_keys
from aioproduce.config.config_def import shown
from aioproduce.errors import ConfigError

ORACLE = Path(__file__).parent / "kafka_config"
REPOSITORY = Path(__file__).parents[2]
SERVER: Mapping[str, object] = MappingProxyType({"bootstrap.servers": "localhost:9999"})
LONG_MAX = 2**63 - 1


REFUSED = [key for key in KEYS.values() if key.is_refused]


def config(**more: object) -> ProducerConfig:
    return ProducerConfig.from_mapping({**SERVER, **dotted_keys(more)})


def refused(settings: Mapping[Any, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({**SERVER, **settings})
    return caught.value


# -- unknown keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("liger.ms", "linger.ms"),
        ("linger", "linger.ms"),
        ("linger_ms", "linger.ms"),
        ("LINGER.MS", "linger.ms"),
        ("compresion.type", "compression.type"),
        ("bootstrap.server", "bootstrap.servers"),
        ("max.in.flight.requests", "max.in.flight.requests.per.connection"),
        ("queue.buffering.max.ms", "linger.ms"),
        ("message.timeout.ms", "delivery.timeout.ms"),
        ("group.id", None),
        ("", None),
        pytest.param("z" * 100_000, None, id="100,000 letters"),
    ],
)
def test_did_you_mean_in_a_mapping(name: str, suggestion: str | None) -> None:
    error = refused({name: "some value"})
    assert error.suggestion == suggestion
    assert error.key == name
    assert len(str(error)) < 400
    assert (f"did you mean {suggestion!r}?" if suggestion else "lists every key") in str(error)
    assert "some value" not in str(error)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("liger_ms", "linger_ms"),
        ("lingerms", "linger_ms"),
        ("linger.ms", "linger_ms"),
        ("max_batch_size", "batch_size"),
        ("queue_buffering_max_ms", "linger_ms"),
        ("loop", None),
    ],
)
def test_did_you_mean_in_keywords(name: str, suggestion: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_keywords(bootstrap_servers="a:1", **dict[str, Any]({name: 1}))
    assert caught.value.suggestion == suggestion
    assert caught.value.key == name


def test_what_other_clients_call_a_key_is_no_key_of_ours() -> None:
    from aioproduce.config.table import OTHER_CLIENTS

    assert not OTHER_CLIENTS.keys() & KEYS.keys()
    assert set(OTHER_CLIENTS.values()) <= KEYS.keys()
    assert len({key.keyword for key in KEYS.values()}) == len(KEYS)


# -- refused keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["org.example.Thing", 12345, 0.123, b"x", [1], object], ids=repr)
@pytest.mark.parametrize("key", REFUSED, ids=lambda key: key.name)
def test_refused_keys_say_why(key: Key, value: object) -> None:
    error = refused({key.name: value})
    assert error.key == key.name
    assert key.text in str(error)
    assert "org.example.Thing" not in str(error)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("interceptor.classes", "com.example.Audit", "`interceptors`"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only", "Kerberos"),
        ("config.providers", "file", "read the secret in Python"),
        ("config.providers.file.class", "x", "read the secret in Python"),
        ("ssl.engine.factory.class", "com.example.Engine", "pass an `ssl.context`"),
        ("sasl.login.class", "com.example.Login", "`sasl.oauthbearer.token.provider`"),
        ("sasl.kerberos.kinit.cmd", "/opt/kinit", "credential cache"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https://idp/keys", "brokers check the token"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "JMX"),
    ],
)
def test_what_to_use_instead(key: str, value: object, words: str) -> None:
    assert words in str(refused({key: value}))


# -- secrets ------------------------------------------------------------------------------------------------

SECRET = "hunter2-do-not-show"


@pytest.mark.parametrize(
    "name",
    [*(key.name for key in REFUSED), "sasl.jaas.confg", "sasl.password", "ssl_key_password", "unheard.of"],
)
def test_the_value_of_a_refused_or_unknown_key_is_in_no_message(name: str) -> None:
    error = refused({name: SECRET})
    assert SECRET not in "".join(traceback.format_exception(error))
    assert SECRET not in repr(error)


def test_a_password_in_an_address_is_not_shown() -> None:
    error = refused({"bootstrap.servers": f"SASL_SSL://user:{SECRET}@host:9092"})
    assert SECRET not in "".join(traceback.format_exception(error))
    assert "host:9092" in str(error)


class Interceptor:
    def __init__(self, secret: str) -> None:
        self.secret = secret

    def on_send(self, record: object) -> object:
        return record

    def __repr__(self) -> str:
        return f"Interceptor({self.secret})"


def test_a_repr_shows_settings_and_no_secret() -> None:
    def encrypt(value: Any, *, password: str) -> bytes:
        return (password + str(value)).encode()

    made = config(
        linger_ms=7,
        client_id="mine",
        value_serializer=functools.partial(encrypt, password=SECRET),
        interceptors=[Interceptor(SECRET)],
    )
    assert SECRET not in repr(made)
    assert "linger=0.007" in repr(made)
    assert "client_id='mine'" in repr(made)
    assert "value_serializer=<partial>" in repr(made)
    assert "interceptors=<Interceptor>" in repr(made)
    assert all(f"{field.name}=" in repr(made) for field in fields(made) if field.repr)


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.key.password", "sasl.oauthbearer.token.endpoint.url"]
)
def test_the_value_of_a_secret_key_is_never_worded(name: str) -> None:
    assert shown(name, SECRET) == f"{name}=<hidden>"
    assert shown("client.id", SECRET) == f"client.id='{SECRET}'"


def test_an_object_in_the_wrong_place_is_named_by_its_type_only() -> None:
    error = refused({"linger.ms": Interceptor(SECRET)})
    assert SECRET not in str(error)
    assert "Interceptor" in str(error)
