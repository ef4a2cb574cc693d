"""librdkafka's options: none forgotten, each mapped to what Kafka calls it, or refused with the remedy."""

from __future__ import annotations

import ctypes
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from aioproduce.compat.confluent_errors import ConfluentConfigError
from aioproduce.compat.confluent_option_tables import OPTIONS
from aioproduce.compat.confluent_options import ConfluentOptions
from aioproduce.compat.confluent_security import SECURITY_REFUSED, SECURITY_TAKEN
from aioproduce.config import Key
from aioproduce.config.kinds import IGNORED, TEXT, Choice, Float, Function, Int, Unused
from aioproduce.config.security_kinds import Hidden
from aioproduce.errors import ConfigError
from tests.mock_cluster import rdkafka_library

SERVERS = {"bootstrap.servers": "localhost:9092"}
REFUSED = [key for key in OPTIONS.values() if key.is_refused]
SECURITY = [name for key in (*SECURITY_TAKEN, *SECURITY_REFUSED) for name in (key.name, *key.aliases)]
REFUSED_SECURITY = sorted(key.name for key in SECURITY_REFUSED)
SECRET_OPTIONS = sorted(key.name for key in SECURITY_TAKEN if isinstance(key.kind, Hidden))
CALLBACKS = {"error_cb", "on_delivery", "dr_cb", "stats_cb", "throttle_cb", "logger", "log_cb", "oauth_cb"}
# Not librdkafka's, but of confluent-kafka's binding.
BINDINGS = {"on_delivery", "logger", "oauth_cb"}


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, str]]:
    """Every option that the library in the wheel knows: who uses it, its range and its default."""
    page = tmp_path_factory.mktemp("options") / "options.md"
    _print_properties(page)
    row = re.compile(r"([a-z][\w.]*) *\| *([CP*]) *\| *([^|]*?) *\| *([^|]*?) *\|")
    found: dict[str, tuple[str, str, str]] = {}
    for line in page.read_text().splitlines():
        if match := row.match(line):
            # The global options come first; of those that are also a topic's, that row counts.
            found.setdefault(match[1], (match[2], match[3], match[4]))
    assert len(found) > 180
    return found


def _print_properties(page: Path) -> None:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    show = rdkafka_library().rd_kafka_conf_properties_show
    show.argtypes, show.restype = [ctypes.c_void_p], None
    stream = libc.fopen(str(page).encode(), b"w")
    show(stream)
    assert libc.fclose(stream) == 0


def options(**more: Any) -> ConfluentOptions:
    return ConfluentOptions.read(SERVERS | {name.replace("_", "."): value for name, value in more.items()})


# -- all of them ---


def test_each_option_of_librdkafka_is_in_the_table(properties: dict[str, tuple[str, str, str]]) -> None:
    names = [name for key in OPTIONS.values() for name in (key.name, *key.aliases)]
    assert len(names) == len(set(names))
    assert properties.keys() - set(names) == set()
    assert set(names) - properties.keys() == BINDINGS


def test_only_a_consumers_options_pass_with_a_warning(properties: dict[str, tuple[str, str, str]]) -> None:
    consumers = {key.name for key in OPTIONS.values() if key.kind is IGNORED and key.text}
    assert {name for name, (user, _, _) in properties.items() if user == "C"} == consumers


def test_security_is_taken_or_refused_and_nothing_of_it_is_ignored(
    properties: dict[str, tuple[str, str, str]],
) -> None:
    named = {name for name in properties if re.search(r"ssl|sasl|https|oauth|security", name)}
    assert named | {"oauth_cb"} == set(SECURITY)
    assert not [key.name for key in OPTIONS.values() if key.name in SECURITY and key.kind is IGNORED]


def test_ranges_and_defaults_are_librdkafkas(properties: dict[str, tuple[str, str, str]]) -> None:
    at_odds = {}
    for name, key in OPTIONS.items():
        if _has_value(key):
            _, span, default = properties[name]
            if not _agrees(key, span, default):
                at_odds[name] = (span, default)
    assert at_odds == {}
    assert sum(map(_has_value, OPTIONS.values())) == 66


def _has_value(key: Key) -> bool:
    return isinstance(key.kind, (Int, Float, Choice)) or key.kind is TEXT


def _agrees(key: Key, span: str, default: str) -> bool:
    match key.kind:
        case Int() | Float():
            low, high = (float(bound) for bound in span.split(" .. "))
            return (key.kind.minimum, key.kind.maximum, key.default) == (low, high, float(default))
        case Choice() if isinstance(key.default, bool):
            return str(key.default).lower() == default
        case Choice() if span and key.name != "request.required.acks":
            return (set(key.kind.values), key.default) == (set(span.split(", ")), default)
        case _:
            return str(key.default) == default


def test_every_option_takes_its_default(properties: dict[str, tuple[str, str, str]]) -> None:
    for name, (_, _, default) in properties.items():
        if name in CALLBACKS or name in ("metadata.broker.list", "bootstrap.servers", "builtin.features"):
            continue
        ConfluentOptions.read(SERVERS | {name: default})


def test_aliases_are_the_same_option() -> None:
    aliases = {alias: key for key in OPTIONS.values() for alias in key.aliases}
    assert len(aliases) == 10
    for alias, key in aliases.items():
        value = "localhost:7" if key.kind is TEXT or isinstance(key.kind, Hidden) else 7
        if isinstance(key.kind, Choice):
            value = next(iter(key.kind.values))
        # As only one of both may be set, the other stays at its default.
        rest = {} if key.name == "metadata.broker.list" else SERVERS
        one, other = (ConfluentOptions.read(rest | {given: value}) for given in (alias, key.name))
        assert one.config == other.config, alias


# -- what they come to ---


def test_the_defaults() -> None:
    read = options()
    config = read.config
    assert (config.acks, config.enable_idempotence, config.partitioner) == (-1, False, "consistent_random")
    assert (config.delivery_timeout, config.linger, config.request_timeout) == (300.0, 0.005, 30.0)
    assert (config.max_request_size, config.buffer_memory) == (1_000_000, 2**30)
    assert (config.retries, config.retry_backoff, config.retry_backoff_max) == (2**31 - 1, 0.1, 1.0)
    assert (config.reconnect_backoff, config.reconnect_backoff_max) == (0.1, 10.0)
    assert (config.client_id, config.compression_type) == ("rdkafka", "none")
    assert config.connections_max_idle < 0
    assert (read.max_messages, read.message_timeout, read.unknown_topic_timeout) == (100_000, 300.0, 30.0)
    # Stricter, as docs/how-to/migrate-from-confluent.md says.
    assert (config.batch_size, config.max_in_flight) == (65_536, 5)


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"bootstrap.servers": "a"}, "bootstrap_servers", (("a", 9092),)),
        (
            {"bootstrap.servers": "a:1, PLAINTEXT://b ,[::1],[::2]:5,"},
            "bootstrap_servers",
            (("a", 1), ("b", 9092), ("::1", 9092), ("::2", 5)),
        ),
        ({"linger.ms": 0.2}, "linger", 0.001),
        ({"queue.buffering.max.ms": "20"}, "linger", 0.02),
        ({"message.timeout.ms": 0}, "delivery_timeout", (2**31 - 1) / 1000),
        ({"message.timeout.ms": 1000}, "request_timeout", 0.995),
        ({"socket.timeout.ms": 2000}, "request_timeout", 2.0),
        ({"socket.timeout.ms": 9000, "request.timeout.ms": 4000}, "request_timeout", 4.0),
        ({"batch.size": 7000}, "batch_size", 7000),
        ({"queue.buffering.max.kbytes": 1}, "buffer_memory", 65_536),
        ({"queue.buffering.max.kbytes": 100}, "buffer_memory", 102_400),
        ({"max.in.flight.requests.per.connection": 1}, "max_in_flight", 1),
        ({"enable.idempotence": True}, "enable_idempotence", True),
        ({"message.send.max.retries": 3}, "retries", 3),
        ({"compression.codec": "gzip", "compression.level": 9}, "compression_gzip_level", 9),
        ({"compression.codec": "zstd", "compression.level": 12}, "compression_zstd_level", 12),
        ({"compression.codec": "lz4", "compression.level": 0}, "compression_lz4_level", 9),
        ({"topic.metadata.refresh.interval.ms": 1000}, "metadata_max_age", 1.0),
        ({"topic.metadata.refresh.interval.ms": -1}, "metadata_max_age", (2**63 - 1) / 1000),
        ({"connections.max.idle.ms": 5000}, "connections_max_idle", 5.0),
        ({"socket.send.buffer.bytes": 4096}, "send_buffer_bytes", 4096),
        ({"enable.metrics.push": "false"}, "enable_metrics_push", False),
        ({"acks": 0}, "acks", 0),
        ({"default.topic.config": {"acks": "1"}}, "acks", 1),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_as_kafka_calls_it(given: dict[str, Any], attribute: str, value: object) -> None:
    assert getattr(ConfluentOptions.read(SERVERS | given).config, attribute) == value


def test_a_message_timeout_of_zero_is_no_time_out() -> None:
    assert options(message_timeout_ms=0).message_timeout == (2**31 - 1) / 1000
    assert ConfluentOptions.read(SERVERS | {"queue.buffering.max.messages": 0}).max_messages > 10**18


# -- what cannot be honoured ---


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("security.protocol", "tls", "one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("enable.ssl.certificate.verification", "false", "ssl.ca.location or ssl.ca.pem"),
        ("sasl.kerberos.keytab", "/me.keytab", "kinit"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds", "oauth_cb"),
        ("statistics.interval.ms", 1000, "producer.metrics()"),
        ("throttle_cb", print, "produce-throttle-time"),
        ("logger", logging.getLogger("test"), "logging.getLogger('aioproduce')"),
        ("batch.num.messages", 10, "set batch.size"),
        ("debug", "all", "DEBUG"),
        ("bootstrap.servers", "SASL_SSL://a:9092", "security.protocol is PLAINTEXT"),
        ("bootstrap.servers", "", "is missing"),
        ("acks", 2, "one of all, -1, 0, 1"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only", "Kerberos"),
    ],
)
def test_refused_with_the_remedy(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(ConfluentConfigError) as refused:
        ConfluentOptions.read(SERVERS | {"stats_cb": print, name: value})
    error = refused.value
    assert remedy in str(error)
    assert isinstance(error, KafkaException)
    assert isinstance(error, ConfigError)
    assert error.args[0].code() == KafkaError._INVALID_ARG
    assert error.args[0].str() == str(error)
    assert error.key in (name, "stats_cb")


def test_every_refusal_says_what_to_do() -> None:
    for key in REFUSED:
        if key.name == "allow.auto.create.topics":
            continue  # takes both of its values
        with pytest.raises(ConfluentConfigError, match=re.escape(key.text)) as refused:
            ConfluentOptions.read(SERVERS | {key.name: "surely not its default"})
        assert refused.value.key == key.name


def test_what_is_not_set_is_left_at_its_default() -> None:
    for name in ("client.id", "ssl.ca.location", "socket.keepalive.enable", "on_delivery", "logger"):
        assert ConfluentOptions.read(SERVERS | {name: None}) == options()
    for name in ("linger.ms", "retries", "acks", "enable.idempotence"):
        with pytest.raises(ConfluentConfigError) as refused:
            ConfluentOptions.read(SERVERS | {name: None})
        assert refused.value.key == name


@pytest.mark.parametrize("name", REFUSED_SECURITY)
def test_a_secret_is_never_shown(name: str) -> None:
    with pytest.raises(ConfluentConfigError) as refused:
        ConfluentOptions.read(SERVERS | {name: "s3cret"})
    assert "s3cret" not in repr(refused.value)


def test_an_unknown_option_is_suggested_what_was_meant_and_its_value_not_shown() -> None:
    with pytest.raises(ConfluentConfigError, match="No such configuration property") as refused:
        ConfluentOptions.read(SERVERS | {"sasl.pasword": "s3cret"})
    assert refused.value.suggestion == "sasl.password"
    assert "s3cret" not in repr(refused.value)


def test_statistics_that_nobody_hears_are_none() -> None:
    ConfluentOptions.read(SERVERS | {"statistics.interval.ms": 1000})
    ConfluentOptions.read(SERVERS | {"stats_cb": print})


def test_a_consumers_option_is_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    ConfluentOptions.read(SERVERS | {"group.id": "me"})
    assert "group.id is a consumer's" in caplog.text


def test_the_mapping_stays_as_it_was() -> None:
    async def on_error(error: KafkaError) -> None:
        raise AssertionError(error)

    given = SERVERS | {"error_cb": on_error, "linger.ms": "5"}
    before = dict(given)
    read = ConfluentOptions.read(given)
    assert given == before
    assert read.error_cb is on_error


def test_what_is_no_mapping() -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        ConfluentOptions.read([("a", "b")])  # type: ignore[arg-type]


def test_each_option_is_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/migrate-from-confluent.md").read_text()
    shown = [key for key in OPTIONS.values() if not (key.kind is IGNORED and key.text)]
    names = [name for key in shown for name in (key.name, *key.aliases)]
    assert [name for name in names if f"`{name}`" not in guide] == []
    assert [key.name for key in shown if isinstance(key.kind, Unused) and key.text not in guide] == []
    assert {"throttle_cb", "logger", "log_cb"} | {
        key.name for key in OPTIONS.values() if isinstance(key.kind, Function)
    } == CALLBACKS
