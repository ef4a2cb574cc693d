"""Reads librdkafka's options: each is mapped to Kafka's own key, applied here, or refused with a remedy.

Used once by `confluent.AIOProducer`. The names, ranges and defaults are librdkafka 2.16's.

Invariants:

1. Every option that librdkafka knows is in the table; a test asks librdkafka itself for its list.
2. No option that requires something is ignored: an option without an equivalent accepts only its default.
3. The user's mapping is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

from aioproduce.compat.confluent_errors import ConfluentConfigError
from aioproduce.compat.confluent_option_tables import OPTIONS
from aioproduce.compat.confluent_security import SaslCredentials, security_settings
from aioproduce.config import ProducerConfig, Secret
from aioproduce.config.kinds import INT_MAX, LONG_MAX, Choice, Float, Function, Int
from aioproduce.errors import ConfigError

_MAX_IN_FLIGHT: Final = 5
_BATCH_SIZE: Final = 65_536


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentOptions:
    """The result of reading the options.

    Attributes:
        config: The settings of the producer underneath.
        message_timeout: Maximum seconds from `produce()` to an outcome.
        unknown_topic_timeout: Seconds for which the cluster may report a topic as unknown.
        max_messages: Maximum number of accepted messages without an outcome.
        error_cb: Called with errors that do not belong to a message; sync or async.
        on_delivery: Called for each message.
        only_errors: Whether `on_delivery` is called only for failures.
        credentials: The credentials of the next login; `None` if no password is needed.
    """

    config: ProducerConfig
    message_timeout: float
    unknown_topic_timeout: float
    max_messages: int
    error_cb: Callable[[Any], object] | None
    on_delivery: Callable[[Any, Any], object] | None
    only_errors: bool
    credentials: SaslCredentials | None

    def callback(self) -> Callable[[Any, Any], object] | None:
        """The callback of messages without a callback of their own."""
        if self.on_delivery is None or not self.only_errors:
            return self.on_delivery
        return _errors_only(self.on_delivery)

    @classmethod
    def read(cls, conf: Mapping[str, Any]) -> ConfluentOptions:
        """Read the configuration of an `AIOProducer`.

        Args:
            conf: librdkafka's options; values typed, or strings.

        Raises:
            ConfluentConfigError: If an option is unknown, out of range, or not supported by this producer.

        Example:
            >>> ConfluentOptions.read({"bootstrap.servers": "localhost", "linger.ms": "20"}).config.linger
            0.02
        """
        if not isinstance(conf, Mapping):
            raise TypeError(f"expected configuration dict, not {type(conf).__name__}")
        try:
            values, given = OPTIONS.parse(dict(_written(conf)))
            config = ProducerConfig.from_mapping(_settings(values, given))
        except ConfigError as error:
            raise ConfluentConfigError(str(error), key=error.key, suggestion=error.suggestion) from error
        credentials = SaslCredentials.of(config)
        if credentials is not None:
            config = replace(config, sasl_credentials_provider=credentials.ask)
        return cls(
            config=config,
            message_timeout=config.delivery_timeout,
            unknown_topic_timeout=values["topic.metadata.propagation.max.ms"] / 1000,
            max_messages=values["queue.buffering.max.messages"] or LONG_MAX,
            error_cb=values["error_cb"],
            on_delivery=values["on_delivery"] or values["dr_cb"],
            only_errors=values["delivery.report.only.error"],
            credentials=credentials,
        )


def _errors_only(on_delivery: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def on_error(error: Any, message: Any) -> None:
        if error is not None:
            on_delivery(error, message)

    return on_error


def _written(conf: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the options as librdkafka gets them: as text, except callbacks.

    None means the default, but numbers refuse it.
    """
    for name, value in conf.items():
        if name == "default.topic.config" and isinstance(value, Mapping):
            yield from _written(value)
            continue
        kind = OPTIONS.find(name).kind
        if value is not None:
            yield name, value if isinstance(kind, Function) or isinstance(value, Secret) else str(value)
        elif isinstance(kind, (Int, Float, Choice)):
            yield name, ""


def _settings(values: Mapping[str, Any], given: Collection[str]) -> dict[str, object]:
    """Return librdkafka's options as Kafka's keys."""
    linger = math.ceil(values["linger.ms"])
    is_transactional = bool(values["transactional.id"])
    timeout = values["message.timeout.ms"] or INT_MAX
    if is_transactional and "message.timeout.ms" not in given:
        timeout = values["transaction.timeout.ms"]
    # The broker's timeout and the connection's are one here: the smaller of those that are set.
    timeouts = [values[name] for name in ("request.timeout.ms", "socket.timeout.ms") if name in given]
    request_timeout = min(timeouts, default=values["request.timeout.ms"])
    batch_size = values["batch.size"] if "batch.size" in given else _BATCH_SIZE
    in_flight = values["max.in.flight"] if "max.in.flight" in given else _MAX_IN_FLIGHT
    age = values["topic.metadata.refresh.interval.ms"]
    return {
        **{key.becomes: values[name] for name, key in OPTIONS.items() if key.becomes is not None},
        "bootstrap.servers": list(_servers(values["metadata.broker.list"])),
        **(_transactional(values, given) if is_transactional else {}),
        "linger.ms": linger,
        "delivery.timeout.ms": timeout,
        # The request timeout must fit into the message's time.
        "request.timeout.ms": min(request_timeout, timeout - linger),
        # produce() waits for room at most as long as its message could be pending.
        "max.block.ms": timeout,
        # A batch takes one piece of the buffer, so the buffer must hold at least one.
        "buffer.memory": max(values["queue.buffering.max.kbytes"] * 1024, batch_size),
        "batch.size": batch_size,
        # librdkafka never forgets a topic that it has produced to.
        "metadata.max.idle.ms": LONG_MAX,
        "metadata.max.age.ms": LONG_MAX if age == -1 else age,
        "connections.max.idle.ms": values["connections.max.idle.ms"] or -1,
        "socket.connection.setup.timeout.max.ms": values["socket.connection.setup.timeout.ms"],
        "send.buffer.bytes": values["socket.send.buffer.bytes"] or -1,
        "receive.buffer.bytes": values["socket.receive.buffer.bytes"] or -1,
        "max.in.flight.requests.per.connection": in_flight,
        **_compression_level(values),
        **security_settings(values),
    }


def _transactional(values: Mapping[str, Any], given: Collection[str]) -> dict[str, object]:
    """Return the settings of transactions, which switch idempotence on and refuse it switched off."""
    is_idempotent = values["enable.idempotence"] or "enable.idempotence" not in given
    return {"transactional.id": values["transactional.id"], "enable.idempotence": is_idempotent}


def _servers(text: str) -> Iterator[str]:
    """Yield addresses with a port each; librdkafka's default is 9092."""
    for address in filter(None, map(str.strip, text.split(","))):
        has_port = address.rpartition("://")[2].rpartition("]")[2].count(":") == 1
        yield address if has_port else f"{address}:9092"


def _compression_level(values: Mapping[str, Any]) -> dict[str, object]:
    codec, level = values["compression.codec"], values["compression.level"]
    # librdkafka has no level for snappy, and 0 means the codec's own default, except for gzip.
    if level == -1 or codec not in ("gzip", "lz4", "zstd") or (level == 0 and codec != "gzip"):
        return {}
    return {f"compression.{codec}.level": level}
