"""`ProducerConfig`: the settings of one producer, checked, in the units that the core works in.

Called by `Producer` and the CLI, which make one, and read by every floor above. Nothing above this package
knows milliseconds or dotted keys.

Invariants:
1. A `ProducerConfig` made by `from_mapping` or `from_keywords` is free of contradictions: the settings fit
   each other, or Kafka's own rule made them (idempotence off, delivery time-out raised), or `ConfigError`.
2. Every duration is a float of seconds; only connections_max_idle may be negative, which is "no limit".
3. No secret is in a repr or a message, nor is the value of a key that nobody knows.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self, TypeAlias, cast, final

from aioproduce.config.keys import INT_MAX, REQUIRED, Key, is_secret
from aioproduce.config.table import KEYS, KEYS_BY_KEYWORD, OTHER_CLIENTS
from aioproduce.errors import ConfigError

Serializer: TypeAlias = Callable[[Any], "bytes | None"]
"""Makes bytes of a key or a value; a null stays a null."""

_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5  # how many batches per producer a broker remembers
_client_numbers: Final = itertools.count(1)  # for the whole process, as in Java

# Where the first is set above the second, the wait is the second from the start, as in Java.
_BACKOFFS: Final = (
    ("retry.backoff.ms", "retry.backoff.max.ms"),
    ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
    ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig:
    """The settings of a producer.

    Made by `from_mapping` (Kafka's dotted keys) or `from_keywords` (`linger_ms=5`), which check them; the
    constructor itself and `dataclasses.replace` do not. What each key means is in `docs/configuration.md`,
    which `python -m aioproduce.config` prints.

    Durations are seconds: `linger.ms=5` is `config.linger == 0.005`.

    Example:
        >>> config = ProducerConfig.from_keywords(bootstrap_servers="localhost:9092", linger_ms=20, acks=1)
        >>> config.linger, config.acks, config.enable_idempotence
        (0.02, 1, False)
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    client_dns_lookup: str
    security_protocol: str
    metadata_max_age: float
    metadata_max_idle: float
    metadata_recovery_strategy: str
    metadata_rebootstrap_trigger: float
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: object
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout: float
    batch_size: int
    linger: float
    buffer_memory: int
    max_block: float
    max_request_size: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    acks: int
    enable_idempotence: bool
    max_in_flight: int
    retries: int
    delivery_timeout: float
    request_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    socket_connection_setup_timeout: float
    socket_connection_setup_timeout_max: float
    connections_max_idle: float
    send_buffer_bytes: int
    receive_buffer_bytes: int
    transaction_timeout: float
    enable_metrics_push: bool
    metrics_num_samples: int
    metrics_sample_window: float
    partitioner_rack_aware: bool
    client_rack: str
    interceptors: tuple[object, ...]
    on_delivery_error: Callable[[Any], object] | None

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object]) -> Self:
        """The settings under Kafka's dotted keys.

        Args:
            settings: Key -> value; values typed, or strings as in a properties file.

        Returns:
            The configuration, checked.

        Raises:
            ConfigError: A key is unknown, refused or out of range, or two of them contradict each other.

        Example:
            >>> ProducerConfig.from_mapping({"bootstrap.servers": "a:9092,b:9092", "linger.ms": "20"}).linger
            0.02
        """
        # Unknown keys first: the value of another key is easier to judge without a typing error beside it.
        keys = {name: _known(name) for name in settings}
        values = {key.name: key.parse(settings[name]) for name, key in keys.items()}
        given = frozenset(values)
        for key in KEYS.values():
            if key.name not in given and key.attribute is not None:
                values[key.name] = _default(key)
        _settle(values, given)
        if "client.id" not in given:
            values["client.id"] = f"producer-{next(_client_numbers)}"
        attributes = {
            key.attribute: key.kind.to_attribute(values[key.name])
            for key in KEYS.values()
            if key.attribute is not None
        }
        return cls(**cast("dict[str, Any]", attributes))

    @classmethod
    def from_keywords(cls, **settings: object) -> Self:
        """The settings as keyword arguments: Kafka's keys with underscores for dots.

        Args:
            **settings: `linger_ms=5`, `acks="all"`, ...

        Returns:
            The configuration, checked.

        Raises:
            ConfigError: As `from_mapping`; a suggestion is spelled as a keyword.
        """
        return cls.from_mapping(dotted_keys(settings))

    def __repr__(self) -> str:
        return f"ProducerConfig({', '.join(self._shown_attributes())})"

    def _shown_attributes(self) -> Iterator[str]:
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if is_secret(attribute.name):
                yield f"{attribute.name}=<hidden>"
            elif (
                value is None or isinstance(value, (str, int, float)) or attribute.name == "bootstrap_servers"
            ):
                yield f"{attribute.name}={value!r}"
            else:
                # The repr of a functools.partial or of an interceptor may show a secret it was made with.
                parts = value if isinstance(value, tuple) else (value,)
                yield f"{attribute.name}=<{', '.join(type(part).__name__ for part in parts)}>"


def dotted_keys(keywords: Mapping[str, object]) -> dict[str, object]:
    """Keyword arguments under their dotted keys, values untouched.

    Args:
        keywords: `{"linger_ms": 5}`.

    Returns:
        `{"linger.ms": 5}`.

    Raises:
        ConfigError: There is no such key; `suggestion` is spelled as a keyword.
    """
    settings: dict[str, object] = {}
    for keyword, value in keywords.items():
        key = KEYS_BY_KEYWORD.get(keyword)
        if key is None:
            alias = OTHER_CLIENTS.get(keyword.replace("_", "."), "").replace(".", "_")
            raise _unknown(keyword, KEYS_BY_KEYWORD, alias or keyword.replace(".", "_"))
        settings[key.name] = value
    return settings


def _known(name: object) -> Key:
    # A mapping may hold anything, whatever its type says.
    if not isinstance(name, str):
        msg = f"A configuration key is a str, not {type(name).__name__}: {str(name)[:80]}."
        raise ConfigError(msg)
    if name.startswith("config.providers."):
        name = "config.providers"
        raise ConfigError(f"{name} is refused: {KEYS[name].text}", key=name)
    key = KEYS.get(name)
    if key is None:
        raise _unknown(name, KEYS, OTHER_CLIENTS.get(name) or name.replace("_", "."))
    return key


def _unknown(name: str, known: Collection[str], meant: str) -> ConfigError:
    """The error for an unknown key; never with its value, which may be a secret under a misspelled name."""
    near = difflib.get_close_matches(meant[:200].lower(), known, n=1, cutoff=0.7)
    suggestion = near[0] if near else None
    remedy = (
        f"did you mean {suggestion!r}?"
        if suggestion is not None
        else "`python -m aioproduce.config` lists every key."
    )
    return ConfigError(f"Unknown configuration key {name[:200]!r}: {remedy}", key=name, suggestion=suggestion)


def _default(key: Key) -> object:
    if key.name == "bootstrap.servers":
        raise ConfigError(
            "bootstrap.servers is missing: say where the cluster is, e.g. 'host:9092'.", key=key.name
        )
    if key.default is REQUIRED:
        return None  # the serializers: Java wants one, here bytes go as they are
    return key.parse(key.default)


def _settle(values: dict[str, Any], given: Collection[str]) -> None:
    """Kafka's rules for settings that depend on each other; `values` are parsed and not yet in seconds."""
    _settle_idempotence(values, "enable.idempotence" in given)
    _settle_delivery_timeout(values, "delivery.timeout.ms" in given)
    _settle_partitioner(values)
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for initial, maximum in _BACKOFFS:
        values[initial] = min(values[initial], values[maximum])
    values["batch.size"] = max(1, values["batch.size"])
    if values["buffer.memory"] < values["batch.size"]:
        # Java starts and then fails every record: each takes a buffer of batch.size first.
        raise ConfigError(
            f"buffer.memory={values['buffer.memory']} is less than batch.size={values['batch.size']}: no "
            "record could ever be sent. Raise buffer.memory or lower batch.size."
        )


def _settle_idempotence(values: dict[str, Any], is_given: bool) -> None:
    if not values["enable.idempotence"]:
        return
    in_flight = values["max.in.flight.requests.per.connection"]
    # First, because since Kafka 4.0 it is an error even where acks or retries turn a default idempotence off.
    if in_flight > _IDEMPOTENT_IN_FLIGHT_MAX:
        raise ConfigError(
            f"max.in.flight.requests.per.connection={in_flight} contradicts enable.idempotence=true, which "
            f"keeps order for at most {_IDEMPOTENT_IN_FLIGHT_MAX}: lower it, or set enable.idempotence=false "
            "(a retry may then duplicate and reorder records)."
        )
    for is_at_odds, setting, remedy in (
        (values["retries"] == 0, "retries=0", "leave retries out"),
        (values["acks"] != -1, f"acks={values['acks']}", "set acks=all"),
    ):
        if is_at_odds and is_given:
            raise ConfigError(
                f"enable.idempotence=true contradicts {setting}: {remedy}, or set enable.idempotence=false."
            )
        if is_at_odds:
            values["enable.idempotence"] = False


def _settle_partitioner(values: dict[str, Any]) -> None:
    name = values["partitioner.class"]
    if values["partitioner.ignore.keys"] and name in ("murmur2", "consistent", "fnv1a"):
        raise ConfigError(
            f"partitioner.ignore.keys=true contradicts partitioner.class={name}: without its key every record "
            "goes to one partition. Leave one of them out."
        )
    if values["partitioner.rack.aware"] and not values["client.rack"]:
        raise ConfigError(
            "partitioner.rack.aware=true needs client.rack: say which rack this producer is in, as broker.rack "
            "does of the brokers."
        )


def _settle_delivery_timeout(values: dict[str, Any], is_given: bool) -> None:
    # Java counts in int; a longer linger is as good as no limit.
    linger = values["linger.ms"] = min(values["linger.ms"], INT_MAX)
    request_timeout = values["request.timeout.ms"]
    least = min(linger + request_timeout, INT_MAX)
    if values["delivery.timeout.ms"] >= least:
        return
    if is_given:
        raise ConfigError(
            f"delivery.timeout.ms={values['delivery.timeout.ms']} is less than linger.ms={linger} + "
            f"request.timeout.ms={request_timeout}: raise it to at least {least}, or lower one of those."
        )
    values["delivery.timeout.ms"] = least
