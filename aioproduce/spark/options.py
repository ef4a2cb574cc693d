"""The sink's options, parsed by the table of `option_table` and checked together.

Called by `datasource` on the driver; the `SinkOptions` that come out travel to the tasks.

Invariants:

1. Spark hands option names over in lower case, whatever case the user wrote; names are compared so, values are not.
2. An option that is not in the table is refused with the nearest name: none is ever ignored, but those that Spark
   itself adds (`_FROM_SPARK`).
3. The value of an option that may be a secret is in no message and in no repr.
4. `SinkOptions.kafka` has been through `ProducerConfig.from_mapping()`: a task cannot fail on it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER
from aioproduce.config import KEYS, ProducerConfig
from aioproduce.config.keys import is_secret, shown
from aioproduce.errors import ConfigError
from aioproduce.spark.errors import OptionError
from aioproduce.spark.option_table import KAFKA_DEFAULTS, OPTIONS, Option

# Kafka's producer keys that take a Python object, or that the sink settles itself, and what to do instead.
_REFUSED_KAFKA: Final = {
    "key.serializer": "the column key is sent as its bytes; cast it in the query",
    "value.serializer": "the column value is sent as its bytes; cast it in the query",
    "interceptors": "an option is text, and these are Python objects; transform the rows in the query",
    "on.delivery.error": "an option is text, and this is a function; see the option on.error",
}

# Spark puts these among the options of a sink; they are its own business.
_FROM_SPARK: Final = frozenset(
    {"checkpointlocation", "queryname", "includeheaders", "outputmode", "asyncprogresstrackingenabled"}
    | {"asyncprogresstrackingcheckpointintervalms"}
)

_SOURCE_ONLY: Final = frozenset(
    {"subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets", "startingtimestamp"}
    | {"endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "failondataloss"}
    | {
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "minpartitions",
    }
    | {
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "groupidprefix",
        "maxrecordsperpartition",
    }
)


_BY_NAME: Final = {option.name: option for option in OPTIONS}
_KAFKA: Final = "kafka."
_HEADER: Final = "header."


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkOptions:
    """What a write was asked for, checked. Can be pickled and hashed.

    Made by `parse()`; the constructor does not check.

    Attributes:
        kafka: The producer's settings under Kafka's dotted keys, sorted; `KAFKA_DEFAULTS` included.
        topic: Where every row goes, or `None`: the column `topic` tells.
        delivery: `"at_least_once"`.
        stamp: Whether records are stamped.
        write_id: Names a batch write; `None` for a fresh one.
        id_column: Where a row's number is taken from; `None`: rows are counted.
        row_order: `"plan"` or `"sort"`.
        on_error: `"fail"`, `"dead_letter"` or `"drop"`.
        dead_letter_topic: Set where `on_error` is `"dead_letter"`.
        rate_limit_records: Records a second for each task; 0 is no limit.
        rate_limit_bytes: Bytes of keys and values a second for each task; 0 is no limit.
        inflight_batches: Arrow batches under way in a task.
        metrics_path: A file of the driver, or `None`.
        audit_topic: As named by the option; `None` where the default is meant (`marks_topic`).
        headers: What every record gets.
        topic_timeout_ms: How long the driver asks for topics.
    """

    kafka: tuple[tuple[str, str], ...]
    topic: str | None = None
    delivery: str = "at_least_once"
    stamp: bool = True
    write_id: str | None = None
    id_column: str | None = None
    row_order: str = "plan"
    on_error: str = "fail"
    dead_letter_topic: str | None = None
    rate_limit_records: int = 0
    rate_limit_bytes: int = 0
    inflight_batches: int = 6
    metrics_path: str | None = None
    audit_topic: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic_timeout_ms: int = 60_000

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
        found: dict[str, Any] = {}
        kafka: dict[str, str] = {}
        headers: list[tuple[str, bytes]] = []
        for given, value in options.items():
            name = given.lower()
            if name.startswith(_KAFKA):
                kafka[name.removeprefix(_KAFKA)] = value
            elif name.startswith(_HEADER) and name != _HEADER:
                headers.append((name.removeprefix(_HEADER), value.encode()))
            elif name in _BY_NAME:
                found[_BY_NAME[name].attribute] = _parsed(_BY_NAME[name], value)
            elif name not in _FROM_SPARK:
                raise _unknown(name)
        _check_kafka(kafka)
        found["headers"] = (*found.get("headers", ()), *sorted(headers))
        parsed = cls(kafka=tuple(sorted({**KAFKA_DEFAULTS, **kafka}.items())), **found)
        _check_together(parsed)
        return parsed

    @property
    def marks_topic(self) -> str:
        """The audit topic: the one that was named, or the default."""
        return self.audit_topic or DEFAULT_AUDIT_TOPIC

    @property
    def producer_settings(self) -> dict[str, object]:
        """What `Producer()` takes as its mapping."""
        return dict(self.kafka)

    def __repr__(self) -> str:
        return f"SinkOptions({', '.join(self._shown_parts())})"

    def _shown_parts(self) -> Iterator[str]:
        for name, value in self.kafka:
            yield shown(_KAFKA + name, value)
        for option in OPTIONS:
            value = getattr(self, option.attribute)
            if value != option.default:
                # A header may carry a token: its name is enough.
                yield (
                    f"{option.name}={[name for name, _ in value]}"
                    if option.name == "headers"
                    else (f"{option.name}={value!r}")
                )


def _parsed(option: Option, value: str) -> object:
    try:
        return option.parse(value)
    except ValueError as error:
        # A header may carry a token.
        what = "headers=<hidden>" if option.name == "headers" else shown(option.name, value)
        raise OptionError(f"option {what} {error}", option=option.name) from None


def _check_kafka(given: Mapping[str, str]) -> None:
    for name, remedy in _REFUSED_KAFKA.items():
        if name in given:
            raise OptionError(f"option {_KAFKA}{name} is refused: {remedy}", option=_KAFKA + name)
    if "bootstrap.servers" not in given:
        raise OptionError(
            "option kafka.bootstrap.servers is missing: say where the cluster is, e.g. "
            ".option('kafka.bootstrap.servers', 'host:9092'), or in SQL INSERT INTO ... WITH "
            "('kafka.bootstrap.servers' = 'host:9092', ...): what CREATE TABLE says, Spark tells no sink in Python",
            option="kafka.bootstrap.servers",
        )
    try:
        config = ProducerConfig.from_mapping({**KAFKA_DEFAULTS, **given})
    except ConfigError as error:
        option = None if error.key is None else _KAFKA + error.key
        suggestion = None if error.suggestion is None else _KAFKA + error.suggestion
        what = "options kafka.*" if option is None else f"option {option}"
        raise OptionError(f"{what}: {error}", option=option, suggestion=suggestion) from error
    if config.acks == 0:
        raise OptionError(
            "option kafka.acks=0 contradicts delivery=at_least_once: no broker says whether a record arrived. "
            "Leave kafka.acks out, or set it to all",
            option="kafka.acks",
        )


def _check_together(options: SinkOptions) -> None:
    is_dead_letter = options.on_error == "dead_letter"
    if is_dead_letter and options.dead_letter_topic is None:
        raise OptionError(
            "option on.error=dead_letter needs dead.letter.topic: name the topic that such rows go to",
            option="dead.letter.topic",
        )
    if options.dead_letter_topic is not None and not is_dead_letter:
        raise OptionError(
            f"option dead.letter.topic={options.dead_letter_topic!r} is of no use with on.error="
            f"{options.on_error}: set on.error=dead_letter as well, or leave it out",
            option="dead.letter.topic",
        )
    for name, value in (("id.column", options.id_column), ("write.id", options.write_id)):
        if value is not None and not options.stamp:
            raise OptionError(
                f"option {name}={value!r} contradicts stamp=off, which writes no ids: leave one of them out",
                option=name,
            )
    if options.id_column is not None and options.row_order == "sort":
        raise OptionError(
            "option row.order=sort is of no use with id.column, which tells each row's id: leave one of them out",
            option="row.order",
        )
    if options.stamp and any(name == STAMP_HEADER for name, _ in options.headers):
        raise OptionError(
            f"a static header {STAMP_HEADER!r} contradicts stamp=on, which writes that header: name it otherwise, "
            "or set stamp=off",
            option="headers",
        )


def _unknown(name: str) -> OptionError:
    """The error for an unknown option; never with its value, which may be a secret under a misspelled name."""
    if name in _SOURCE_ONLY:
        message = f"option {name!r} is one of Spark's Kafka source, and this is a sink: leave it out"
        return OptionError(message, option=name)
    if name in ("path", "paths"):
        return OptionError(
            "there is no path to save to: name the topic by .option('topic', ...), and call save() or start() "
            "without arguments",
            option=name,
            suggestion="topic",
        )
    kafka = [_KAFKA + key for key in KEYS if not KEYS[key].is_refused]
    if name in KEYS or is_secret(name):
        near = [_KAFKA + name] if name in KEYS else []
    else:
        known = [*_BY_NAME, *kafka]
        meant = name[:200].replace("_", ".")
        near = difflib.get_close_matches(meant, known, n=1, cutoff=0.7) or [
            _KAFKA + key for key in difflib.get_close_matches(meant, KEYS, n=1, cutoff=0.75)
        ]
    suggestion = near[0] if near else None
    remedy = (
        f"did you mean {suggestion!r}?"
        if suggestion is not None
        else f"the options are {', '.join(_BY_NAME)}, header.<name>, and kafka.<a producer's key>"
    )
    return OptionError(f"unknown option {name[:200]!r}: {remedy}", option=name, suggestion=suggestion)
