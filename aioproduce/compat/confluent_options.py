"""librdkafka's options, and what becomes of each: mapped to Kafka's own key, taken, or refused with the remedy.

Called by `confluent.AIOProducer`, once. The names, ranges and defaults are librdkafka 2.16's.

Invariants:

1. Every option that librdkafka knows is in one of the tables; a test asks librdkafka itself for its list.
2. Nothing that asks for something is ignored: an option that has no place here takes its default, or raises.
3. The mapping that the user passed is not changed.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from aioproduce.compat.confluent_errors import ConfluentConfigError
from aioproduce.compat.confluent_option_tables import (
    ALIASES,
    CALLBACKS,
    CONSUMER_ONLY,
    MAPPED,
    REFUSED,
    SECURITY,
    WITHOUT_OBJECT,
    Kind,
    Option,
)
from aioproduce.config import ProducerConfig
from aioproduce.errors import ConfigError

_log = logging.getLogger("aioproduce")

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_MAX_IN_FLIGHT: Final = 5
_BATCH_SIZE: Final = 65_536
_TRUE: Final = ("true", "t", "1")
_FALSE: Final = ("false", "f", "0")
_KNOWN: Final = (
    frozenset(MAPPED)
    | frozenset(REFUSED)
    | WITHOUT_OBJECT
    | CONSUMER_ONLY
    | frozenset(SECURITY)
    | frozenset(ALIASES)
    | frozenset(CALLBACKS)
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentOptions:
    """What the options come to.

    Attributes:
        config: The settings of the producer underneath.
        message_timeout: Seconds from `produce()` to an outcome, at most.
        unknown_topic_timeout: Seconds for which the cluster may say that there is no such topic.
        max_messages: Messages accepted and without an outcome, at most.
        error_cb: Told of errors that are no message's; sync or async.
        on_delivery: Told of each message.
        only_errors: Whether `on_delivery` is told of failures only.
    """

    config: ProducerConfig
    message_timeout: float
    unknown_topic_timeout: float
    max_messages: int
    error_cb: Callable[[Any], object] | None
    on_delivery: Callable[[Any, Any], object] | None
    only_errors: bool

    def callback(self) -> Callable[[Any, Any], object] | None:
        """What to call for messages that bring no callback of their own."""
        if self.on_delivery is None or not self.only_errors:
            return self.on_delivery
        return _errors_only(self.on_delivery)

    @classmethod
    def read(cls, conf: Mapping[str, Any]) -> ConfluentOptions:
        """Read the configuration of an `AIOProducer`.

        Args:
            conf: librdkafka's options; values typed, or strings.

        Raises:
            ConfluentConfigError: an option is unknown, out of range, or nothing that this producer can honour.

        Example:
            >>> ConfluentOptions.read({"bootstrap.servers": "localhost", "linger.ms": "20"}).config.linger
            0.02
        """
        if not isinstance(conf, Mapping):
            raise TypeError(f"expected configuration dict, not {type(conf).__name__}")
        given = _given(conf)
        values = {name: option.default for name, option in MAPPED.items()} | given
        settings = _settings(values, given)
        try:
            config = ProducerConfig.from_mapping(settings)
        except ConfigError as error:
            raise ConfluentConfigError(str(error), key=error.key, suggestion=error.suggestion) from error
        return cls(
            config=config,
            message_timeout=config.delivery_timeout,
            unknown_topic_timeout=values["topic.metadata.propagation.max.ms"] / 1000,
            max_messages=values["queue.buffering.max.messages"] or _LONG_MAX,
            error_cb=_callback(conf, "error_cb"),
            on_delivery=_callback(conf, "on_delivery") or _callback(conf, "dr_cb"),
            only_errors=values["delivery.report.only.error"],
        )


def _errors_only(on_delivery: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def on_error(error: Any, message: Any) -> None:
        if error is not None:
            on_delivery(error, message)

    return on_error


def _given(conf: Mapping[str, Any]) -> dict[str, Any]:
    """The mapped options that are set, parsed, by their first names."""
    given: dict[str, Any] = {}
    for name, value in _flat(conf):
        first = ALIASES.get(name, name) if isinstance(name, str) else name
        if first in MAPPED:
            given[first] = _parse(MAPPED[first], name, value)
        elif first not in CALLBACKS:
            _pass_or_refuse(first, value)
    _refuse_callbacks(conf, given.get("statistics.interval.ms", 0))
    return given


def _flat(conf: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in conf.items():
        if name == "default.topic.config" and isinstance(value, Mapping):
            yield from value.items()
        else:
            yield name, value


def _pass_or_refuse(name: str, value: Any) -> None:
    if name not in _KNOWN:
        raise _unknown(name)
    if name in WITHOUT_OBJECT:
        return
    if name in CONSUMER_ONLY:
        _log.warning("configuration property %s is a consumer's: this producer ignores it", name)
        return
    if name in SECURITY:
        if value is None or value == "" or _text(value).lower() == SECURITY[name].lower():
            return
        # Its value may be a secret.
        raise ConfluentConfigError(
            f"{name} cannot be honoured: TLS and SASL come with aioproduce's security release; this version speaks "
            "PLAINTEXT only. Until then stay with confluent_kafka.aio.AIOProducer for this cluster",
            key=name,
        )
    option = REFUSED[name]
    if value is None or _text(value).lower() in option.accepted:
        return
    raise ConfluentConfigError(f"{name}={_shown(value)} cannot be honoured: {option.remedy}", key=name)


def _refuse_callbacks(conf: Mapping[str, Any], statistics_interval: int) -> None:
    # Without an interval librdkafka never calls it either.
    if conf.get("stats_cb") is not None and statistics_interval:
        raise ConfluentConfigError(
            "stats_cb cannot be honoured: librdkafka's statistics are of its own threads and queues. Ask "
            "producer.metrics() when you like, or use an exporter of aioproduce.reporters",
            key="stats_cb",
        )
    for name in ("throttle_cb", "logger", "log_cb"):
        if conf.get(name) is not None:
            raise ConfluentConfigError(f"{name} cannot be honoured: {CALLBACKS[name]}", key=name)


def _callback(conf: Mapping[str, Any], name: str) -> Callable[..., object] | None:
    callback = conf.get(name)
    if callback is None:
        return None
    if not callable(callback):
        raise ConfluentConfigError(f"{name} requires a callable object", key=name)
    return callback  # type: ignore[no-any-return]


def _unknown(name: object) -> ConfluentConfigError:
    """The error for an unknown option; never with its value, which may be a secret under a misspelled name."""
    shown = str(name)[:200]
    near = difflib.get_close_matches(shown.lower().replace("_", "."), sorted(_KNOWN), n=1, cutoff=0.7)
    hint = f': did you mean "{near[0]}"?' if near else ""
    return ConfluentConfigError(
        f'No such configuration property: "{shown}"{hint}',
        key=shown,
        suggestion=near[0] if near else None,
    )


# -- values ---


def _parse(option: Option, name: str, value: Any) -> Any:
    text = _text(value).strip()
    if option.kind is Kind.TEXT:
        return text
    if option.kind is Kind.BOOL:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise ConfluentConfigError(f'Expected bool value for "{name}": true or false', key=name)
    if option.kind is Kind.CHOICE:
        if text.lower() in option.choices:
            return option.choices[text.lower()]
        raise ConfluentConfigError(
            f'Invalid value "{_shown(value)}" for configuration property "{name}": one of '
            f"{', '.join(option.choices)}",
            key=name,
        )
    try:
        number = float(text) if option.kind is Kind.FLOAT else int(text)
    except ValueError:
        raise ConfluentConfigError(
            f'Invalid value {_shown(value)!r} for configuration property "{name}": a number is needed',
            key=name,
        ) from None
    if not option.low <= number <= option.high:
        raise ConfluentConfigError(
            f'Configuration property "{name}" value {text} is outside allowed range {option.low}..{option.high}',
            key=name,
        )
    return number


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _shown(value: Any) -> str:
    return _text(value)[:80] if isinstance(value, str | int | float | None) else f"<{type(value).__name__}>"


# -- Kafka's keys ---


def _settings(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, object]:
    """Librdkafka's options as Kafka's keys."""
    if values["batch.num.messages"] < MAPPED["batch.num.messages"].default:
        raise ConfluentConfigError(
            f"batch.num.messages={values['batch.num.messages']} cannot be honoured: batches are bounded by bytes "
            "here: set batch.size",
            key="batch.num.messages",
        )
    linger = math.ceil(values["linger.ms"])
    timeout = values["message.timeout.ms"] or _INT_MAX
    if timeout <= linger:
        raise ConfluentConfigError(
            f"message.timeout.ms={timeout} must be greater than linger.ms={linger}: raise the one, or lower the "
            "other",
            key="message.timeout.ms",
        )
    settings: dict[str, object] = {
        option.kafka_key: values[name]
        for name, option in MAPPED.items()
        if option.kafka_key and values[name] is not None
    }
    return settings | {
        "bootstrap.servers": _servers(values["metadata.broker.list"]),
        "linger.ms": linger,
        "delivery.timeout.ms": timeout,
        # Ours has to fit into the time that the message has.
        "request.timeout.ms": min(_request_timeout(values, given), timeout - linger),
        # How long produce() waits for room: no longer than its message could be on its way.
        "max.block.ms": timeout,
        "buffer.memory": _buffer_memory(values, given),
        "batch.size": given.get("batch.size", _BATCH_SIZE),
        # librdkafka never forgets a topic that was produced to.
        "metadata.max.idle.ms": _LONG_MAX,
        "metadata.max.age.ms": _never(values["topic.metadata.refresh.interval.ms"], -1),
        "connections.max.idle.ms": values["connections.max.idle.ms"] or -1,
        "socket.connection.setup.timeout.max.ms": values["socket.connection.setup.timeout.ms"],
        "send.buffer.bytes": values["socket.send.buffer.bytes"] or -1,
        "receive.buffer.bytes": values["socket.receive.buffer.bytes"] or -1,
        "max.in.flight.requests.per.connection": given.get("max.in.flight", _MAX_IN_FLIGHT),
        **_compression_level(values),
    }


def _servers(text: str | None) -> list[str]:
    servers = []
    for server in (text or "").split(","):
        address = server.strip()
        if address.lower().startswith("plaintext://"):
            address = address[len("plaintext://") :]
        elif "://" in address:
            raise ConfluentConfigError(
                f"{address.split('://')[0]}:// in bootstrap.servers cannot be honoured: TLS and SASL come with "
                "aioproduce's security release; this version speaks PLAINTEXT only",
                key="bootstrap.servers",
            )
        if not address:
            continue
        has_port = address.rpartition("]")[2].count(":") == 1
        servers.append(address if has_port else f"{address}:9092")
    if not servers:
        raise ConfluentConfigError(
            "bootstrap.servers is missing: say where the cluster is, e.g. 'host:9092'",
            key="bootstrap.servers",
        )
    return servers


def _request_timeout(values: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """The broker's time and the connection's are one here: the lesser of those that are set."""
    times = [given[name] for name in ("request.timeout.ms", "socket.timeout.ms") if name in given]
    return int(min(times, default=values["request.timeout.ms"]))


def _buffer_memory(values: Mapping[str, Any], given: Mapping[str, int]) -> int:
    # A batch is made of one piece of the buffer, so the buffer holds one at least.
    return max(int(values["queue.buffering.max.kbytes"]) * 1024, given.get("batch.size", _BATCH_SIZE))


def _never(value: int, marker: int) -> int:
    return _LONG_MAX if value == marker else value


def _compression_level(values: Mapping[str, Any]) -> dict[str, object]:
    codec, level = values["compression.codec"], values["compression.level"]
    # librdkafka knows no level of snappy's, and 0 is the codec's own default, but of gzip's.
    if level == -1 or codec not in ("gzip", "lz4", "zstd") or (level == 0 and codec != "gzip"):
        return {}
    return {f"compression.{codec}.level": level}
