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

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, final

from aioproduce.config.kinds import INT_MAX
from aioproduce.config.table import KEYS
from aioproduce.errors import ConfigError

Serializer: TypeAlias = Callable[[Any], "bytes | None"]
"""Makes bytes of a key or a value; a null stays a null."""

_client_numbers: Final = itertools.count(1)  # for the whole process, as in Java
_KEYWORDS: Final = {key.keyword: name for name, key in KEYS.items()}
_HELD: Final = {key.attribute: name for name, key in KEYS.items() if key.attribute is not None}


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
        values, given = KEYS.parse(settings)
        _settle(values, given)
        if "client.id" not in given:
            values["client.id"] = f"producer-{next(_client_numbers)}"
        return cls(**{held: KEYS[name].kind.to_attribute(values[name]) for held, name in _HELD.items()})

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
        shown = {held: KEYS[name].shown(getattr(self, held), held) for held, name in _HELD.items()}
        shown["bootstrap_servers"] = (
            f"bootstrap_servers={self.bootstrap_servers}"  # parsed: no password is left
        )
        return f"ProducerConfig({', '.join(shown.values())})"


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
        if keyword not in _KEYWORDS:
            raise KEYS.unknown(keyword, separator="_")
        settings[_KEYWORDS[keyword]] = value
    return settings


def _settle(values: dict[str, Any], given: Collection[str]) -> None:
    """Kafka's rules for settings that depend on each other; `values` are parsed and not yet in seconds."""
    # Where it is asked for, acks or retries at odds with it are an error of the table.
    values["enable.idempotence"] &= values["acks"] == -1 and values["retries"] > 0
    # Java counts in int; a longer linger is as good as no limit.
    linger = values["linger.ms"] = min(values["linger.ms"], INT_MAX)
    timeout, request_timeout = values["delivery.timeout.ms"], values["request.timeout.ms"]
    least = min(linger + request_timeout, INT_MAX)
    if timeout < least and "delivery.timeout.ms" in given:
        raise ConfigError(
            f"delivery.timeout.ms={timeout} is less than linger.ms={linger} + request.timeout.ms="
            f"{request_timeout}: raise it to at least {least}, or lower one of those."
        )
    values["delivery.timeout.ms"] = max(timeout, least)
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for wait in ("retry.backoff", "reconnect.backoff", "socket.connection.setup.timeout"):
        # Where it is set above its bound, it is the bound from the start, as in Java.
        values[f"{wait}.ms"] = min(values[f"{wait}.ms"], values[f"{wait}.max.ms"])
    values["batch.size"] = max(1, values["batch.size"])
    if values["buffer.memory"] < values["batch.size"]:
        # Java starts and then fails every record: each takes a buffer of batch.size first.
        raise ConfigError(
            f"buffer.memory={values['buffer.memory']} is less than batch.size={values['batch.size']}: no "
            "record could ever be sent. Raise buffer.memory or lower batch.size."
        )
