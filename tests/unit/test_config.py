"""The configuration: the rules between keys, the kinds of values, the page.

The table itself is compared with Kafka's in `test_config_kafka.py`; what is refused is in `test_config_refused.py`.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.config import KEYS, ProducerConfig, dotted_keys, markdown_page
from aioproduce.config.kinds import INT_MAX, serialize_string
from aioproduce.errors import ConfigError

ORACLE = Path(__file__).parent / "kafka_config"
REPOSITORY = Path(__file__).parents[2]
SERVER: Mapping[str, object] = MappingProxyType({"bootstrap.servers": "localhost:9999"})
LONG_MAX = 2**63 - 1


def config(**more: object) -> ProducerConfig:
    return ProducerConfig.from_mapping({**SERVER, **dotted_keys(more)})


def refused(settings: Mapping[Any, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({**SERVER, **settings})
    return caught.value


# -- the scenarios of KafkaProducerTest and ProducerConfigTest, typed as from Python ------------------------


def test_idempotent_by_default() -> None:
    made = config()
    assert (made.enable_idempotence, made.acks, made.retries, made.max_in_flight) == (True, -1, INT_MAX, 5)


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_turn_a_default_idempotence_off(acks: int) -> None:
    made = config(acks=acks)
    assert (made.acks, made.enable_idempotence) == (acks, False)
    assert config(acks=acks, enable_idempotence=False).enable_idempotence is False


def test_retries_0_turn_a_default_idempotence_off() -> None:
    assert config(retries=0).enable_idempotence is False


@pytest.mark.parametrize(
    ("at_odds", "words"),
    [
        ({"acks": 0}, ["acks=0", "acks=all", "enable.idempotence=false"]),
        ({"acks": "1"}, ["acks=1"]),
        ({"retries": 0}, ["retries=0"]),
        ({"max_in_flight_requests_per_connection": 6}, ["max.in.flight", "6", "at most 5"]),
    ],
)
def test_an_explicit_idempotence_is_not_given_up(at_odds: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config(enable_idempotence=True, **at_odds)
    assert all(word in str(caught.value) for word in words)
    assert caught.value.key is None  # two keys are at odds


def test_more_than_5_in_flight_must_be_meant() -> None:
    with pytest.raises(ConfigError, match=r"enable\.idempotence=false"):
        config(max_in_flight_requests_per_connection=6)
    assert config(max_in_flight_requests_per_connection=6, enable_idempotence=False).max_in_flight == 6


def test_delivery_timeout_and_linger() -> None:
    with pytest.raises(ConfigError, match="raise it to at least 1001"):
        config(delivery_timeout_ms=1000, linger_ms=1000, request_timeout_ms=1)
    made = config(delivery_timeout_ms=1000, linger_ms=999, request_timeout_ms=1)
    assert (made.delivery_timeout, made.linger, made.request_timeout) == (1.0, 0.999, 0.001)


def test_a_default_delivery_timeout_is_raised() -> None:
    assert config(request_timeout_ms=120_000).delivery_timeout == 120.005
    assert config(linger_ms=100_000).delivery_timeout == 130.0


def test_os_default_socket_buffer_sizes() -> None:
    made = config(send_buffer_bytes=-1, receive_buffer_bytes=-1)
    assert (made.send_buffer_bytes, made.receive_buffer_bytes) == (-1, -1)


@pytest.mark.parametrize("key", ["send.buffer.bytes", "receive.buffer.bytes"])
def test_invalid_socket_buffer_size(key: str) -> None:
    error = refused({key: -2})
    assert error.key == key
    assert f"{key}=-2 is out of range: it accepts -1 to 2147483647 bytes" in str(error)


def test_without_serializers_bytes_go_as_they_are() -> None:
    # Java's noSerializerProvided is an error there; here no serializer is the default.
    assert (config().key_serializer, config().value_serializer) == (None, None)


@pytest.mark.parametrize("name", [1, None, b"linger.ms", ("linger", "ms")])
def test_a_key_that_is_no_str(name: object) -> None:
    error = refused({name: "not string key"})
    assert "must be a str" in str(error)
    assert "not string key" not in str(error)


@pytest.mark.parametrize("key", ["compression.type", "security.protocol", "metadata.recovery.strategy"])
def test_invalid_words(key: str) -> None:
    error = refused({key: "abc"})
    assert error.key == key
    assert key in str(error)
    assert "abc" in str(error)


def test_metadata_recovery_strategy_is_rebootstrap_since_4_0() -> None:
    assert config().metadata_recovery_strategy == "rebootstrap"


def test_generated_client_ids_count_in_the_process() -> None:
    first, second = config(), config()
    numbers = [int(made.client_id.removeprefix("producer-")) for made in (first, second)]
    assert numbers[1] == numbers[0] + 1
    refused({"linger.ms": -1})  # what is not made takes no number
    config(client_id="mine")  # nor what has a name
    assert config().client_id == f"producer-{numbers[1] + 1}"


def test_settings_of_no_effect_are_told_and_checked(caplog: pytest.LogCaptureFixture) -> None:
    # KafkaProducerTest's unusedConfigs: Java logs ssl.protocol without SSL, as of no use.
    made = config(ssl_protocol="TLS")
    assert (made.security_protocol, made.ssl_protocol) == ("PLAINTEXT", "TLS")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["ssl.protocol"]
    assert refused({"ssl.protocol": "TLSv1.1"}).key == "ssl.protocol"


# -- units and types ----------------------------------------------------------------------------------------


def test_the_issues_defaults_in_seconds() -> None:
    made = config()
    assert (made.linger, made.max_block, made.delivery_timeout, made.request_timeout) == (
        0.005,
        60.0,
        120.0,
        30.0,
    )
    assert (made.batch_size, made.buffer_memory, made.max_request_size) == (
        16384,
        32 * 1024 * 1024,
        1024 * 1024,
    )
    assert (made.retry_backoff, made.retry_backoff_max) == (0.1, 1.0)
    assert made.connections_max_idle == 540.0
    assert made.metadata_rebootstrap_trigger == 300.0
    assert made.partitioner == "uniform_sticky"


def test_no_limit_on_idle_connections() -> None:
    assert config(connections_max_idle_ms=-1).connections_max_idle < 0


@pytest.mark.parametrize(
    ("settings", "attribute", "expected"),
    [
        ({"retry.backoff.ms": 5000}, "retry_backoff", 1.0),
        ({"retry.backoff.ms": 5000, "retry.backoff.max.ms": 200}, "retry_backoff", 0.2),
        ({"reconnect.backoff.ms": 5000}, "reconnect_backoff_max", 5.0),
        ({"reconnect.backoff.max.ms": 20}, "reconnect_backoff", 0.02),
        ({"socket.connection.setup.timeout.ms": 60_000}, "socket_connection_setup_timeout", 30.0),
    ],
)
def test_back_offs_never_start_above_their_bound(
    settings: dict[str, object], attribute: str, expected: float
) -> None:
    assert getattr(ProducerConfig.from_mapping({**SERVER, **settings}), attribute) == expected


def test_memory_for_not_even_one_batch() -> None:
    error = refused({"buffer.memory": 16383})
    assert "buffer.memory=16383" in str(error)
    assert "batch.size=16384" in str(error)
    assert (
        ProducerConfig.from_mapping({**SERVER, "buffer.memory": 100, "batch.size": 100}).buffer_memory == 100
    )
    assert refused({"buffer.memory": 0, "batch.size": 0}).key is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("linger.ms", 5.0),
        ("linger.ms", True),
        ("linger.ms", None),
        ("linger.ms", b"5"),
        ("linger.ms", "5 ms"),
        ("linger.ms", "1_000"),
        pytest.param("linger.ms", "1" * 5000, id="linger.ms-5000 digits"),
        pytest.param("linger.ms", 10**5000, id="huge"),
        ("linger.ms", math.nan),
        ("retries", "1e3"),
        ("enable.idempotence", 1),
        ("enable.idempotence", "yes"),
        ("enable.idempotence", None),
        ("acks", True),
        ("acks", 1.0),
        ("acks", 2),
        ("acks", "All"),
        ("acks", None),
        ("compression.type", None),
        ("compression.type", 0),
        ("compression.type", ["gzip"]),
        ("client.id", 7),
        ("client.id", None),
        pytest.param("client.id", "x" * 32768, id="client.id-32768 letters"),
        ("client.id", "\ud800"),
        ("bootstrap.servers", None),
        ("bootstrap.servers", 9092),
        ("bootstrap.servers", []),
        ("bootstrap.servers", "  "),
        ("bootstrap.servers", [("localhost", 9092)]),
        ("bootstrap.servers", ["localhost:9092", ""]),
        ("bootstrap.servers", "[::1:9092"),
        ("bootstrap.servers", "[no]:9092"),
        ("bootstrap.servers", "h\u00f6st:9092"),
        pytest.param("bootstrap.servers", "localhost:" + "9" * 5000, id="bootstrap.servers-5000 digits"),
        ("interceptors", "com.example.Interceptor"),
        ("interceptors", None),
        ("interceptors", [object()]),
        ("on.delivery.error", "print"),
        ("on.delivery.error", 1),
    ],
)
def test_values_of_the_wrong_type_or_form(key: str, value: object) -> None:
    error = refused({key: value})
    assert error.key == key
    assert str(error).startswith(key)
    assert "it accepts" in str(error)
    assert len(str(error)) < 500


def test_a_client_id_is_measured_in_bytes() -> None:
    assert config(client_id="\u00e9" * 16383).client_id == "\u00e9" * 16383
    refused({"client.id": "\u00e9" * 16384})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (["a:1", " b:2 "], [("a", 1), ("b", 2)]),
        (("a:1", "b:2", "a:1"), [("a", 1), ("b", 2)]),
        ("[::1]:9092,[fe80::1%eth0]:9093", [("::1", 9092), ("fe80::1%eth0", 9093)]),
        ("PLAINTEXT://broker_1.example:65535", [("broker_1.example", 65535)]),
    ],
)
def test_bootstrap_servers(value: Any, expected: list[tuple[str, int]]) -> None:
    assert ProducerConfig.from_keywords(bootstrap_servers=value).bootstrap_servers == tuple(expected)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("localhost", "host:port"),
        ("::1:9092", "brackets"),
        ("http://a:9092", "asks for http"),
        ("a:0", "port out of range"),
        (":9092", "no host"),
    ],
)
def test_a_wrong_address_is_named_with_the_remedy(value: str, words: str) -> None:
    error = refused({"bootstrap.servers": f"good:9092,{value}"})
    assert words in str(error)
    assert "good" not in str(error)


def test_without_servers() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing") as caught:
        ProducerConfig.from_mapping({})
    assert caught.value.key == "bootstrap.servers"


def test_keywords_and_mapping_and_strings_agree() -> None:
    typed = ProducerConfig.from_keywords(
        bootstrap_servers=["a:1"], linger_ms=20, acks=1, client_id="x", partitioner_ignore_keys=True
    )
    text = ProducerConfig.from_mapping(
        {
            "bootstrap.servers": "a:1",
            "linger.ms": "20",
            "acks": "1",
            "client.id": "x",
            "partitioner.ignore.keys": "true",
        }
    )
    assert typed == text


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        config().linger = 1.0  # type: ignore[misc]


# -- callables ----------------------------------------------------------------------------------------------

BYTE_ARRAY = "org.apache.kafka.common.serialization.ByteArraySerializer"
STRING = "org.apache.kafka.common.serialization.StringSerializer"


@pytest.mark.parametrize("key", ["key.serializer", "value.serializer"])
class TestSerializers:
    def _made(self, key: str, value: object) -> Callable[[Any], bytes | None] | None:
        made = ProducerConfig.from_mapping({**SERVER, key: value})
        return made.key_serializer if key == "key.serializer" else made.value_serializer

    def test_a_callable(self, key: str) -> None:
        assert self._made(key, str.encode) == str.encode
        assert self._made(key, None) is None

    def test_names_of_java_classes(self, key: str) -> None:
        assert self._made(key, BYTE_ARRAY) is None
        assert self._made(key, f" {STRING} ") is serialize_string
        error = refused({key: "org.apache.kafka.common.serialization.LongSerializer"})
        assert STRING in str(error)
        assert "callable" in str(error)

    def test_an_object_with_a_serialize_method(self, key: str) -> None:
        class Serializer:
            def serialize(self, value: str) -> bytes:
                return value.encode()

        assert ".serialize" in str(refused({key: Serializer()}))
        bound = Serializer().serialize
        assert self._made(key, bound) == bound

    def test_async_ones_are_refused(self, key: str) -> None:
        async def serialize(value: str) -> bytes:
            return value.encode()

        class AsyncSerializer:
            async def __call__(self, value: str) -> bytes:
                return value.encode()

        assert "async" in str(refused({key: serialize}))
        assert "async" in str(refused({key: AsyncSerializer()}))


def test_string_serializer() -> None:
    assert serialize_string("\u20ac") == b"\xe2\x82\xac"
    assert serialize_string("") == b""
    assert serialize_string(None) is None
    with pytest.raises(TypeError, match="accepts str, not bytes"):
        serialize_string(b"x")


def test_interceptors_are_objects_with_either_method() -> None:
    class Sending:
        def on_send(self, record: object) -> object:
            return record

    class Acknowledged:
        def on_acknowledgement(self, metadata: object, error: object) -> None: ...

    first, second = Sending(), Acknowledged()
    assert config(interceptors=[first, second]).interceptors == (first, second)
    assert config().interceptors == ()
    assert "class Acknowledged instead of an instance" in str(refused({"interceptors": [Acknowledged]}))


def test_on_delivery_error() -> None:
    errors: list[object] = []
    assert config(on_delivery_error=errors.append).on_delivery_error == errors.append
    assert config().on_delivery_error is None


# -- whatever is given --------------------------------------------------------------------------------------

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.lists(st.text(max_size=5), max_size=3),
    st.from_regex(r"[+-]?[0-9]{1,20}", fullmatch=True),
    st.sampled_from(["all", "none", "gzip", "true", "false", "a:1", "[::1]:9", "PLAINTEXT", "", object()]),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), ANYTHING, max_size=3))
def test_anything_makes_a_config_without_contradiction_or_a_config_error(
    given_settings: dict[str, object],
) -> None:
    try:
        made = ProducerConfig.from_mapping({**SERVER, **given_settings})
    except ConfigError as refusal:
        key = refusal.key
        assert key is None or key in given_settings
        return
    assert made.buffer_memory >= made.batch_size >= 1
    assert made.delivery_timeout * 1000 >= min((made.linger + made.request_timeout) * 1000, INT_MAX) - 1e-3
    assert not made.enable_idempotence or (made.acks == -1 and made.retries > 0 and made.max_in_flight <= 5)
    assert made.retry_backoff <= made.retry_backoff_max
    assert made.reconnect_backoff <= made.reconnect_backoff_max


# -- the page -----------------------------------------------------------------------------------------------


def test_the_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == markdown_page(), "run: python -m aioproduce.config > docs/reference/configuration.md"


def test_the_page_has_one_row_per_key() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "aioproduce.config"], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"^\| `([a-z0-9.]+)` \| (.*) \|$", printed, re.MULTILINE)
    assert [name for name, _ in rows] == list(KEYS)
    for name, rest in rows:
        cells = re.split(r"(?<!\\) \| ", rest)
        assert len(cells) == (3 if KEYS[name].is_refused else 4)
        assert all(cells)
