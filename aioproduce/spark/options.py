"""The sink's options, parsed by the table of `option_table` and checked together.

Called by `datasource` on the driver; the `SinkOptions` that come out travel to the tasks.

Invariants:

1. Spark hands option names over in lower case, whatever case the user wrote; names are compared so, values are not.
2. An option that is not in the table is refused with the nearest name: none is ever ignored, but those that Spark
   itself adds (`IGNORED`).
3. The value of an option that may be a secret is in no message and in no repr.
4. `SinkOptions.kafka` has been through `ProducerConfig.from_mapping()`: a task cannot fail on it.
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
    """What a write was asked for, checked. Can be pickled and hashed.

    Made by `parse()`; the constructor does not check.

    Attributes:
        kafka: The producer's settings under Kafka's dotted keys, sorted; `KAFKA_DEFAULTS` included.
        audit_topic: As named by the option; `None` where the default is meant (`marks_topic`).
        headers: What every record gets, by `headers` and by `header.*`.

    The others are options as `SINK_OPTIONS` has them, parsed.
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
        """The options as Spark hands them over.

        Args:
            options: Name -> text; names in any case.

        Raises:
            OptionError: one is unknown, refused, or out of range, or two are at odds.

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
                f"a static header {STAMP_HEADER!r} contradicts stamp=on, which writes that header: name it "
                "otherwise, or set stamp=off",
                option="headers",
            )
        settings = {**KAFKA_DEFAULTS, **kafka}
        try:
            ProducerConfig.from_mapping(settings)
        except ConfigError as error:  # only what is at odds is left
            raise OptionError(f"options kafka.*: {error}") from error
        held = {key.keyword: values[key.name] for key in SINK_OPTIONS}
        return cls(kafka=tuple(sorted(settings.items())), **held)

    @property
    def marks_topic(self) -> str:
        """The audit topic: the one that was named, or the default."""
        return self.audit_topic or DEFAULT_AUDIT_TOPIC

    def __repr__(self) -> str:
        parts = [OPTIONS[KAFKA + name].shown(value) for name, value in self.kafka]
        for key in SINK_OPTIONS:
            value = getattr(self, key.keyword)
            if key.name == "headers":
                # A header may carry a token: its name is enough.
                parts += [f"headers={[name for name, _ in value]}"] if value else []
            elif value != OPTIONS.defaults[key.name]:
                parts.append(key.shown(value))
        return f"SinkOptions({', '.join(parts)})"
