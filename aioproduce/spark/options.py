"""The sink's options, parsed by the table of `option_table` and checked together.

Used by `datasource` on the driver; the resulting `SinkOptions` are sent to the tasks.

Invariants:

1. Spark passes option names in lower case, whatever case the user wrote. Names are compared in lower case, values
   are not.
2. An unknown option is refused with the most similar name. None is ever ignored, except those that Spark itself
   adds (`IGNORED`).
3. No message or repr contains the value of an option that may be a secret.
4. `SinkOptions.kafka` was checked by `ProducerConfig.from_mapping()`: a task cannot fail because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, final

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER
from aioproduce.config import ProducerConfig
from aioproduce.errors import ConfigError
from aioproduce.spark.errors import OptionError
from aioproduce.spark.option_table import KAFKA, KAFKA_DEFAULTS, OPTIONS, SINK_OPTIONS

_HEADER: Final = "header."


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkOptions:
    """The checked options of a write. It can be pickled and hashed.

    Created by `parse()`; the constructor does not check.

    Attributes:
        kafka: The producer's settings with Kafka's dotted keys, sorted, including `KAFKA_DEFAULTS`.
        audit_topic: The option's value; `None` for the default (`marks_topic`).
        headers: The headers of every record, from `headers` and from `header.*`.

    The other attributes are the parsed options of `SINK_OPTIONS`.
    """

    kafka: tuple[tuple[str, str], ...]
    topic: str | None
    delivery: str
    stamp: bool
    write_id: str | None
    id_column: str | None
    row_order: str
    on_error: str
    dead_letter_topic: str | None
    rate_limit_records: int
    rate_limit_bytes: int
    inflight_batches: int
    metrics_path: str | None
    audit_topic: str | None
    headers: tuple[tuple[str, bytes], ...]
    topic_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the options as Spark passes them.

        Args:
            options: Name -> text; names in any case.

        Raises:
            OptionError: If one is unknown, refused, or out of range, or if two contradict each other.

        Example:
            >>> SinkOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}).topic
            'orders'
        """
        given = {name.lower(): value for name, value in options.items()}
        headers = [
            (name.removeprefix(_HEADER), given.pop(name).encode())
            for name in sorted(given)
            if name.startswith(_HEADER) and name != _HEADER
        ]
        kafka = {name.removeprefix(KAFKA): text for name, text in given.items() if name.startswith(KAFKA)}
        try:
            values, _ = OPTIONS.parse(given)
        except ConfigError as error:
            what = "option " if error.key in OPTIONS else ""
            raise OptionError(f"{what}{error}", option=error.key, suggestion=error.suggestion) from error
        values["headers"] += tuple(headers)
        if values["stamp"] and any(name == STAMP_HEADER for name, _ in values["headers"]):
            raise OptionError(
                f"a static header {STAMP_HEADER!r} contradicts stamp=on, which writes that header: rename "
                "the static header, or set stamp=off",
                option="headers",
            )
        settings = {**KAFKA_DEFAULTS, **kafka}
        try:
            ProducerConfig.from_mapping(settings)
        except ConfigError as error:  # only contradictions are left
            raise OptionError(f"options kafka.*: {error}") from error
        held = {key.keyword: values[key.name] for key in SINK_OPTIONS}
        return cls(kafka=tuple(sorted(settings.items())), **held)

    @property
    def marks_topic(self) -> str:
        """The audit topic: the named one, or the default."""
        return self.audit_topic or DEFAULT_AUDIT_TOPIC

    def __repr__(self) -> str:
        parts = [OPTIONS[KAFKA + name].shown(value) for name, value in self.kafka]
        for key in SINK_OPTIONS:
            value = getattr(self, key.keyword)
            if key.name == "headers":
                # A header may carry a token, so only its name is shown.
                parts += [f"headers={[name for name, _ in value]}"] if value else []
            elif value != OPTIONS.defaults[key.name]:
                parts.append(key.shown(value))
        return f"SinkOptions({', '.join(parts)})"
