"""The sink's options: one table, from which they are parsed, checked and documented.

Called by `datasource` on the driver; the `SinkOptions` that come out travel to the tasks. The table is printed in
`docs/spark-sink.md`, which a test holds to it.

Invariants:

1. Spark hands option names over in lower case, whatever case the user wrote; names are compared so, values are not.
2. An option that is not in the table is refused with the nearest name: none is ever ignored, but those that Spark
   itself adds (`_FROM_SPARK`).
3. The value of an option that may be a secret is in no message and in no repr.
4. `SinkOptions.kafka` has been through `ProducerConfig.from_mapping()`: a task cannot fail on it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER
from aioproduce.config import KEYS, ProducerConfig
from aioproduce.config.keys import LONG_MAX, is_secret, shown
from aioproduce.errors import ConfigError
from aioproduce.spark.errors import OptionError

KAFKA_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "aioproduce-spark",
    "batch.size": "524288",
    "linger.ms": "20",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""Where a bulk load wants another default than Kafka's; `kafka.*` options go before these."""

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


@final
@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: As documented, in lower case.
        attribute: The attribute of `SinkOptions`.
        parse: Makes the value of its text; raises ValueError with what it takes.
        default: The value where the option is left out.
        values: What it takes, in words.
        text: What it does.
        shown_default: The default in words, where the value itself does not say it.
    """

    name: str
    attribute: str
    parse: Callable[[str], object]
    default: object
    values: str
    text: str
    shown_default: str = ""


def _text(value: str) -> str:
    stripped = value.strip()
    if not stripped:
        raise ValueError("is empty: leave the option out, or give it a value")
    return stripped


def _choice(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = value.strip().lower()
        if word in words:
            return word
        near = difflib.get_close_matches(word, words, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"is not allowed: {hint}it takes {', '.join(words)}")

    return parse


def _switch(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("on", "true", "off", "false"):
        raise ValueError("is not allowed: it takes on or off")
    return word in ("on", "true")


def _count(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    def parse(value: str) -> int:
        digits = value.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not low <= int(digits) <= high:
            raise ValueError(f"is not allowed: it takes a whole number, {low} to {high}")
        return int(digits)

    return parse


def _delivery(value: str) -> str:
    word = value.strip().lower().replace("-", "_")
    if word == "exactly_once":
        raise ValueError(
            "is not there yet: it comes with transactions, in a later version. Leave the option out for "
            "at_least_once, where a replay writes the same ids and `aioproduce.spark land` drops the duplicates"
        )
    if word != "at_least_once":
        raise ValueError("is not allowed: it takes at_least_once")
    return word


def _headers(value: str) -> tuple[tuple[str, bytes], ...]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"""is not JSON ({error}): it takes an object as {{"name": "value"}}""") from error
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("""is not an object of strings: it takes {"name": "value"}""")
    return tuple((name, text.encode()) for name, text in found.items())


OPTIONS: Final = (
    Option(
        "topic",
        "topic",
        _text,
        None,
        "a topic's name",
        "Where every row goes; the column `topic` is then not read.",
    ),
    Option(
        "delivery",
        "delivery",
        _delivery,
        "at_least_once",
        "`at_least_once`",
        "What is promised when a task or the whole query is run again. Exactly once comes in a later version.",
    ),
    Option(
        "stamp",
        "stamp",
        _switch,
        True,
        "`on`, `off`",
        f"Stamp each record with its id, in the header `{STAMP_HEADER}` of 24 bytes.",
    ),
    Option(
        "write.id",
        "write_id",
        _text,
        None,
        "text",
        "Of a batch write: names it, so that the same write run again writes the same ids. A streaming query has "
        "its own id.",
        "a fresh one each time",
    ),
    Option(
        "id.column",
        "id_column",
        _text,
        None,
        "a column's name",
        "Takes each row's id from this column (`string`, `binary`, `bigint` or `int`; no nulls; no value twice in "
        "what is written) instead of counting rows. Binary of 24 bytes is an id already, and is kept as it is.",
    ),
    Option(
        "row.order",
        "row_order",
        _choice("plan", "sort"),
        "plan",
        "`plan`, `sort`",
        "What fixes the order in which rows are counted: `plan`, the query's plan (see `check_row_order`), or "
        "`sort`, the sink, which sorts each partition by its rows' bytes and keeps it in memory to do so.",
    ),
    Option(
        "on.error",
        "on_error",
        _choice("fail", "dead_letter", "drop"),
        "fail",
        "`fail`, `dead_letter`, `drop`",
        "What becomes of a row that can never be sent: the task fails, it goes to `dead.letter.topic`, or it is "
        "left out and counted.",
    ),
    Option(
        "dead.letter.topic",
        "dead_letter_topic",
        _text,
        None,
        "a topic's name",
        "Where rows go that cannot be sent, with the reason in headers; needs `on.error=dead_letter`.",
    ),
    Option(
        "rate.limit.records",
        "rate_limit_records",
        _count(0),
        0,
        "records/s",
        "Bound for each task; 0 is none.",
    ),
    Option(
        "rate.limit.bytes", "rate_limit_bytes", _count(0), 0, "bytes/s", "Bound for each task; 0 is none."
    ),
    Option(
        "inflight.batches",
        "inflight_batches",
        _count(1, 1000),
        6,
        "1 to 1000",
        "How many Arrow batches of a task (of 10,000 rows unless Spark is told otherwise) may be under way before "
        "no more are taken from Spark.",
    ),
    Option(
        "metrics.path",
        "metrics_path",
        _text,
        None,
        "a file on the driver",
        "One line of JSON is appended to it for every write and micro-batch.",
    ),
    Option(
        "audit.topic",
        "audit_topic",
        _text,
        None,
        "a topic's name",
        "Where each task's closing record goes. A missing topic is a warning if it is the default one, and an "
        "error if it is named here.",
        f"`{DEFAULT_AUDIT_TOPIC}`",
    ),
    Option(
        "headers",
        "headers",
        _headers,
        (),
        'JSON, `{"name": "value"}`',
        "Headers that every record gets, besides those of the column `headers`.",
        "none",
    ),
    Option(
        "topic.timeout.ms",
        "topic_timeout_ms",
        _count(1, 3_600_000),
        30_000,
        "milliseconds",
        "How long the driver asks the cluster whether the topics are there, before any row is moved.",
    ),
)
"""Every option but `kafka.*` and `header.*`."""

_BY_NAME: Final = {option.name: option for option in OPTIONS}
_BY_ATTRIBUTE: Final = {option.attribute: option for option in OPTIONS}
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
    topic_timeout_ms: int = 30_000

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
        raise OptionError(f"option {shown(option.name, value)} {error}", option=option.name) from None


def _check_kafka(given: Mapping[str, str]) -> None:
    for name, remedy in _REFUSED_KAFKA.items():
        if name in given:
            raise OptionError(f"option {_KAFKA}{name} is refused: {remedy}", option=_KAFKA + name)
    if "bootstrap.servers" not in given:
        raise OptionError(
            "option kafka.bootstrap.servers is missing: say where the cluster is, e.g. "
            ".option('kafka.bootstrap.servers', 'host:9092')",
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
