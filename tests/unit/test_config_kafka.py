"""The table of keys against Kafka's own, and whole configurations against what the Java producer makes of them.

What is expected comes from Kafka 4.3.1's jar: `kafka_config/keys.tsv` is every key of
`ProducerConfig.configDef()` with type, default and validator; `kafka_config/scenarios.tsv` is what the Java
producer makes of some hundred configurations. `kafka_config/KafkaConfigOracle.java` printed both, and says how to
print them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from aioproduce.config import KEYS, SECTIONS, Key, ProducerConfig
from aioproduce.config.config_def import REQUIRED, is_secret
from aioproduce.config.kinds import INT_MAX, Float, Int, Milliseconds, Unused
from aioproduce.config.secret import Secret
from aioproduce.config.security_kinds import Hidden
from aioproduce.errors import ConfigError

ORACLE = Path(__file__).parent / "kafka_config"
REPOSITORY = Path(__file__).parents[2]
SERVER: Mapping[str, object] = MappingProxyType({"bootstrap.servers": "localhost:9999"})
LONG_MAX = 2**63 - 1


class KafkaKey(NamedTuple):
    name: str
    java_type: str
    default: str
    validator: str


def _kafka_keys() -> dict[str, KafkaKey]:
    lines = (ORACLE / "keys.tsv").read_text().splitlines()
    return {key.name: key for key in (KafkaKey(*line.split("\t")) for line in lines)}


KAFKA_KEYS = _kafka_keys()
TAKEN = [key for key in KEYS.values() if not key.is_refused and not key.is_own]
REFUSED = [key for key in KEYS.values() if key.is_refused]


def refused(settings: Mapping[Any, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({**SERVER, **settings})
    return caught.value


# -- the table against Kafka's ------------------------------------------------------------------------------


def test_the_table_holds_exactly_kafkas_keys_and_our_own() -> None:
    assert {key.name for key in KEYS.values() if not key.is_own} == KAFKA_KEYS.keys()
    assert {key.name for key in KEYS.values() if key.is_own} == {
        "partitioner.rack.aware", "client.rack", "interceptors", "on.delivery.error", "ssl.context",
        "sasl.username", "sasl.password", "sasl.credentials.provider", "sasl.oauthbearer.token.provider",
        "sasl.oauthbearer.extensions", "sasl.oauthbearer.allow.http", "sasl.kerberos.domain.name",
        "sasl.oauthbearer.token.endpoint.ca.location", "sasl.oauthbearer.token.endpoint.proxy",
    }  # fmt: skip
    assert [key for section in SECTIONS.values() for key in section] == list(KEYS.values())


def test_the_list_of_kafkas_keys_is_whole() -> None:
    # Counted by hand in the output of the oracle: a truncated file would make the other tests pass emptily.
    assert len(KAFKA_KEYS) == 113


@pytest.mark.parametrize("kafka", KAFKA_KEYS.values(), ids=lambda key: key.name)
def test_defaults_are_kafkas(kafka: KafkaKey) -> None:
    key = KEYS[kafka.name]
    if kafka.default == "<required>":
        assert key.default is REQUIRED
    elif kafka.default == "<null>":
        assert key.default is None
    else:
        parse = key.kind.read if isinstance(key.kind, Unused) else key.kind.parse
        parsed = parse(kafka.default)
        assert parsed == parse(key.default)
        assert type(parsed) is type(parse(key.default))


def _validated_range(validator: str) -> tuple[int, int | None, tuple[int, ...]]:
    match = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?", validator)
    assert match is not None, validator
    low, high, extra = match.groups()
    return int(low), int(high) if high else None, (int(extra),) if extra else ()


# Kafka checks nothing here; each bound of ours keeps out what could never work.
RANGES_OF_OURS = {
    "connections.max.idle.ms": (-1, LONG_MAX),
    "socket.connection.setup.timeout.ms": (1, LONG_MAX),
    "socket.connection.setup.timeout.max.ms": (1, LONG_MAX),
    "transaction.timeout.ms": (1, INT_MAX),
    "sasl.login.connect.timeout.ms": (1, INT_MAX),
    "sasl.login.read.timeout.ms": (1, INT_MAX),
    "sasl.login.retry.backoff.ms": (0, LONG_MAX),
    "sasl.login.retry.backoff.max.ms": (0, LONG_MAX),
}


@pytest.mark.parametrize("key", [k for k in TAKEN if isinstance(k.kind, Int)], ids=lambda key: key.name)
def test_ranges_are_kafkas(key: Key) -> None:
    kafka = KAFKA_KEYS[key.name]
    extra: tuple[int, ...] = ()
    if key.name in RANGES_OF_OURS:
        assert kafka.validator == ""
        low, high = RANGES_OF_OURS[key.name]
    else:
        low, validated_high, extra = _validated_range(kafka.validator)
        high = (
            validated_high
            if validated_high is not None
            else {"INT": INT_MAX, "LONG": LONG_MAX}[kafka.java_type]
        )
    for good in (low, high, *extra):
        assert key.parse(good) == good
        assert key.parse(str(good)) == good
    for bad in (low - 1, high + 1):
        if bad in extra:
            continue
        for spelled in (bad, str(bad)):
            with pytest.raises(ConfigError, match="out of range") as caught:
                key.parse(spelled)
            assert caught.value.key == key.name
            # Names the key, the value and what is allowed.
            assert all(word in str(caught.value) for word in (key.name, str(bad), str(low), str(high)))


@pytest.mark.parametrize("key", [k for k in TAKEN if isinstance(k.kind, Float)], ids=lambda key: key.name)
def test_ranges_of_fractions_are_kafkas(key: Key) -> None:
    match = re.fullmatch(r"\[([0-9.]+?),\.\.\.,([0-9.]+)\]", KAFKA_KEYS[key.name].validator)
    assert match is not None
    for bound, beyond in zip(match.groups(), (-0.001, 0.001), strict=True):
        assert key.parse(bound) == key.parse(float(bound)) == float(bound)
        with pytest.raises(ConfigError, match="out of range"):
            key.parse(float(bound) + beyond)
    with pytest.raises(ConfigError, match="out of range"):
        key.parse("nan")


def test_every_value_that_kafka_calls_a_password_is_secret() -> None:
    passwords = {key.name for key in KAFKA_KEYS.values() if key.java_type == "PASSWORD"}
    assert len(passwords) == 9
    assert all(is_secret(name) for name in passwords)
    assert all(isinstance(KEYS[name].kind, Hidden) and KEYS[name].has_secret for name in passwords)


# -- what the Java producer makes of it ---------------------------------------------------------------------

# Where this version is stricter than Java, and why.
STRICTER = {
    "connections.max.idle.ms=-2": "-1 is no limit; other negative numbers are mistakes",
    "socket.connection.setup.timeout.ms=-1": "no connection could be made",
    "socket.connection.setup.timeout.ms=0": "no connection could be made",
    "transaction.timeout.ms=-1": "no transaction could be begun",
    "buffer.memory=100": "less than batch.size: Java fails every single record instead",
    "bootstrap.servers=:9092": "no host",
    "bootstrap.servers=::1:9092": "ambiguous without brackets",
    "bootstrap.servers=127.0.0.1:0": "nobody listens on port 0",
    "bootstrap.servers=[127.0.0.1]:9092": "brackets are for IPv6",
    "bootstrap.servers=SSL://127.0.0.1:9092": "Java ignores what is asked for",
    "security.protocol=SASL_SSL": "Java takes GSSAPI and asks for a JAAS file when it connects",
    "security.protocol=SASL_SSL;sasl.mechanism=plain;sasl.jaas.config=x": "no broker knows it in small letters",
    "sasl.jaas.config=": "it says nothing",
    "ssl.keystore.key=x": "Java refuses it where it makes its SSL engine",
    "ssl.truststore.location=a;ssl.truststore.certificates=b": "Java refuses it where it makes its SSL engine",
    "ssl.enabled.protocols=TLSv1": "no broker and no OpenSSL of today speaks it",
    "ssl.enabled.protocols=TLSv9": "there is no such version",
    "ssl.protocol=SSL": "there is no such version",
    "sasl.mechanism=EXTERNAL": "Kafka has no such mechanism",
    "sasl.login.connect.timeout.ms=0": "no token could be had in no time",
    "sasl.oauthbearer.token.endpoint.url=http://idp/token": "it shows secret and token to the network",
    "sasl.oauthbearer.token.endpoint.url=file:///etc/passwd": "CVE-2025-27817",
    "sasl.oauthbearer.token.endpoint.url=nonsense": "it is no URL",
    "retries=\u0667": "digits are ASCII",
}


def _scenarios() -> dict[str, str]:
    lines = (ORACLE / "scenarios.tsv").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


SCENARIOS = _scenarios()


def _pairs(line: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in line.split(";") if pair)


def _java_addresses(text: str) -> tuple[tuple[str, int], ...]:
    addresses = []
    for url in text.removeprefix("[").removesuffix("]").split(", "):
        host, _, port = url.rpartition(":")
        addresses.append((host.rpartition("://")[2].strip("[]"), int(port)))
    return tuple(addresses)


def _of_java_type(kafka: KafkaKey, text: str, given_text: str | None) -> object:
    """What Java shows of a value of `ssl.*` or `sasl.*`, as it is here."""
    if text in ("<null>", "null"):
        return None
    if kafka.java_type == "PASSWORD":
        assert text == "[hidden]"
        assert given_text is not None
        return Secret(given_text)
    if kafka.java_type == "LIST":
        items = text.removeprefix("[").removesuffix("]")
        return tuple(re.split(", ?", items)) if items else ()
    if kafka.java_type == "CLASS":
        return text.rpartition(".")[2]
    if kafka.name.endswith("store.type") or kafka.name == "sasl.oauthbearer.assertion.algorithm":
        text = text.upper()
    types: dict[str, Callable[[str], object]] = {"BOOLEAN": "true".__eq__, "DOUBLE": float}
    return types.get(kafka.java_type, str)(text)


def _expected(java: Mapping[str, str], given_settings: Mapping[str, str]) -> dict[str, object]:
    """The attributes that Java's answer means; with what KafkaProducer's constructor does to the settings."""
    text = {name: key.default for name, key in KAFKA_KEYS.items()} | {"acks": "-1"} | dict(java)
    ms = {
        name: int(text[name])
        for name, key in KEYS.items()
        if isinstance(key.kind, Milliseconds) and text[name] not in ("<null>", "null")
    }
    for initial in (
        "retry.backoff", "reconnect.backoff", "socket.connection.setup.timeout", "sasl.login.retry.backoff",
    ):  # fmt: skip
        ms[f"{initial}.ms"] = min(ms[f"{initial}.ms"], ms[f"{initial}.max.ms"])  # ExponentialBackoff
    ms["linger.ms"] = min(ms["linger.ms"], INT_MAX)  # KafkaProducer.lingerMs
    expected: dict[str, object] = {
        str(KEYS[name].attribute): value / 1000 if value >= 0 else -1.0 for name, value in ms.items()
    }
    for key in TAKEN:
        if type(key.kind) is Int:
            expected[str(key.attribute)] = int(text[key.name])
    expected["batch_size"] = max(1, int(text["batch.size"]))  # KafkaProducer's constructor
    expected["acks"] = int(text["acks"])
    for name in (
        "enable.idempotence", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable",
        "enable.metrics.push",
    ):  # fmt: skip
        expected[name.replace(".", "_")] = text[name] == "true"
    for name in ("compression.type", "client.dns.lookup"):
        expected[name.replace(".", "_")] = text[name]
    expected["metadata_recovery_strategy"] = text["metadata.recovery.strategy"].lower()
    expected["security_protocol"] = text["security.protocol"].upper()
    for key in TAKEN:
        if key.name.startswith(("ssl.", "sasl.")) and key.attribute not in expected:
            expected[str(key.attribute)] = _of_java_type(
                KAFKA_KEYS[key.name], text[key.name], given_settings.get(key.name)
            )
    if text["ssl.protocol"] == "TLSv1.2":  # "clients will not use TLSv1.3 even if it is one of the values"
        expected["ssl_enabled_protocols"] = ("TLSv1.2",)
    servers = java.get("bootstrap.servers", "[localhost:9999]")
    expected["bootstrap_servers"] = _java_addresses(servers)
    if "client.id" in java:
        expected["client_id"] = java["client.id"]
    return expected


@pytest.mark.parametrize(("line", "answer"), SCENARIOS.items())
def test_same_as_the_java_producer(line: str, answer: str) -> None:
    given_settings = _pairs(line)
    if line in STRICTER:
        assert answer != "refused", "Java refuses it too: no longer stricter"
        refused(given_settings)
        return
    if answer == "refused":
        refused(given_settings)
        return
    made = ProducerConfig.from_mapping({**SERVER, **given_settings})
    expected = _expected(_pairs(answer), given_settings)
    assert {name: getattr(made, name) for name in expected} == expected
    # Whatever Java's answer shows is compared, or is a refused key with a value that changes nothing.
    assert all(KEYS[name].attribute in expected or KEYS[name].is_refused for name in _pairs(answer))


def test_every_exception_from_java_is_a_scenario() -> None:
    assert STRICTER.keys() <= SCENARIOS.keys()
    assert len(SCENARIOS) > 140


def test_every_attribute_is_compared_with_java_or_here() -> None:
    elsewhere = {
        "client_id", "key_serializer", "value_serializer", "partitioner", "partitioner_rack_aware",
        "client_rack", "interceptors", "on_delivery_error", "ssl_context", "sasl_username", "sasl_password",
        "sasl_credentials_provider", "sasl_oauthbearer_token_provider", "sasl_oauthbearer_extensions",
        "sasl_oauthbearer_allow_http", "sasl_oauthbearer_token_endpoint_ca_location", "sasl_kerberos_domain_name",
        "sasl_oauthbearer_token_endpoint_proxy", "transactional_id",
    }  # fmt: skip
    held = {field.name for field in fields(ProducerConfig) if field.repr}  # all but where they come from
    assert held == _expected({}, {}).keys() | elsewhere


# -- refused keys -------------------------------------------------------------------------------------------

# Kafka's default asks for something that is not there: the value that switches it off is taken instead.
OFF_INSTEAD_OF_THE_DEFAULT = {
    "metric.reporters": "",
}


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: key.name)
def test_refused_keys_take_what_changes_nothing(key: Key) -> None:
    kafka = KAFKA_KEYS[key.name]
    assert isinstance(key.kind, Unused)
    assert key.kind.type_name == kafka.java_type
    plain = ProducerConfig.from_mapping({**SERVER, "client.id": "x"})
    if key.name in OFF_INSTEAD_OF_THE_DEFAULT:
        refused({key.name: kafka.default})
        harmless: object = OFF_INSTEAD_OF_THE_DEFAULT[key.name]
    else:
        harmless = None if kafka.default == "<null>" else kafka.default
    assert ProducerConfig.from_mapping({**SERVER, "client.id": "x", key.name: harmless}) == plain
