"""The table of the sink's options: name, values, default, meaning.

Used by `options`, which parses with it, and by the test that compares `docs/how-to/spark-sink.md` with it. Kafka's
own keys are options, too, as `kafka.<key>`. Refused options and those that do not concern the sink are also rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER
from aioproduce.config import KEYS, Key
from aioproduce.config.config_def import ConfigDef, Conflict
from aioproduce.config.kinds import (
    IGNORED,
    LONG_MAX,
    Choice,
    Int,
    Kind,
    Unused,
    WrongValueError,
    optional_text,
)
from aioproduce.config.markdown import default_cell, markdown_row

KAFKA_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "aioproduce-spark",
    "batch.size": "524288",
    "linger.ms": "20",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""Defaults for bulk loads that differ from Kafka's; `kafka.*` options override them."""

KAFKA: Final = "kafka."


def _headers(value: object) -> tuple[tuple[str, bytes], ...]:
    try:
        found = json.loads(str(value))
    except ValueError as error:
        raise WrongValueError(f"is not JSON ({error})") from None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise WrongValueError("is not an object of strings")
    return tuple((name, text.encode()) for name, text in found.items())


_EXACTLY_ONCE_LATER: Final = (
    "it needs transactions, which come in a later version. Omit the option for at_least_once, where a replay "
    "writes the same ids and `aioproduce.spark land` drops the duplicates"
)
_DELIVERY: Final = Choice(
    {"at_least_once": "at_least_once", "at-least-once": "at_least_once"},
    {"exactly_once": _EXACTLY_ONCE_LATER, "exactly-once": _EXACTLY_ONCE_LATER},
    is_any_case=True,
    allowed="only at_least_once",
)
_ON_OR_OFF: Final = {"on": True, "true": True, "off": False, "false": False}
_SWITCH: Final = Choice(_ON_OR_OFF, is_any_case=True, allowed="on or off")
_TOPIC: Final = optional_text("a topic's name")

# fmt: off
SINK_OPTIONS: Final = (
    Key("topic", _TOPIC, None, "The topic of every row; the column `topic` is then ignored."),
    Key("delivery", _DELIVERY, "at_least_once",
        "The guarantee if a task or the whole query is run again. Exactly once comes in a later version."),
    Key("stamp", _SWITCH, "on", f"Stamp each record with its id, in the header `{STAMP_HEADER}` of 24 bytes."),
    Key("write.id", optional_text("a text"), None,
        "The name of a batch write, so that the same write run again writes the same ids. A streaming query "
        "has its own id.", default_text="a new one each time"),
    Key("id.column", optional_text("a column's name"), None,
        "Use this column as each row's id (`string`, `binary`, `bigint` or `int`; no nulls; no duplicates "
        "in the write) instead of numbering rows. Binary of 24 bytes is already an id, and is used unchanged."),
    Key("row.order", Choice(("plan", "sort"), is_any_case=True), "plan",
        "What fixes the order in which rows are numbered: `plan`, the query's plan (see `check_row_order`), or "
        "`sort`, the sink, which sorts each partition by its rows' bytes in memory."),
    Key("on.error", Choice(("fail", "dead_letter", "drop"), is_any_case=True), "fail",
        "What happens to a row that can never be sent: the task fails, it goes to `dead.letter.topic`, or it is "
        "dropped and counted."),
    Key("dead.letter.topic", _TOPIC, None,
        "The topic for rows that cannot be sent, with the reason in headers; needs `on.error=dead_letter`."),
    Key("rate.limit.records", Int(0, LONG_MAX, unit="records/s"), 0, "Limit for each task; 0 for none."),
    Key("rate.limit.bytes", Int(0, LONG_MAX, unit="bytes/s"), 0, "Limit for each task; 0 for none."),
    Key("inflight.batches", Int(1, 1000), 6,
        "How many Arrow batches of a task (of 10,000 rows by Spark's default) may be in flight "
        "before the task reads no more from Spark."),
    Key("metrics.path", optional_text("a file on the driver"), None,
        "The file to which one line of JSON is appended for every write and micro-batch."),
    Key("audit.topic", _TOPIC, None,
        "The topic of each task's closing mark. If it is missing or denied, that is a warning for the "
        "default topic, and an error for one that is named here.", default_text=f"`{DEFAULT_AUDIT_TOPIC}`"),
    Key("headers", Kind("json", '{"name": "value"}, in JSON', _headers), "{}",
        "Headers of every record, in addition to those of the column `headers`.",
        default_text="none", has_secret=True),  # one may carry a token
    Key("topic.timeout.ms", Int(1, 3_600_000, unit="milliseconds"), 60_000,
        "How long the driver waits for the cluster to confirm that the topics exist, before any row of a "
        "write or a micro-batch is moved."),
)
"""Every option of the sink's own, except `header.*`."""

# Kafka's keys that need a Python object, or that the sink sets itself, and what to do instead.
_REFUSED_KAFKA: Final = {
    "key.serializer": "the column key is sent unchanged; cast it in the query",
    "value.serializer": "the column value is sent unchanged; cast it in the query",
    "transactional.id": "the sink's tasks are many producers, but an id is for one producer",
    "interceptors": "an option is text, but these are Python objects; transform the rows in the query",
    "on.delivery.error": "an option is text, but this is a function; see the option on.error",
    "ssl.context": "an option is text, but this is a Python object; see kafka.ssl.truststore.location and so on",
    "sasl.credentials.provider": "an option is text, but this is a function; see kafka.sasl.jaas.config",
    "sasl.oauthbearer.token.provider":
        "an option is text, but this is a function; see kafka.sasl.oauthbearer.token.endpoint.url",
}

_NO_PATH: Final = (
    "the sink has no path: set the topic with .option('topic', ...), and call save() or start() without "
    "arguments")
_NO_SOURCE: Final = "it is an option of Spark's Kafka source, but this is a sink: leave it out"

# Spark adds these to the options of a sink; they do not concern the sink.
_FROM_SPARK: Final = (
    "checkpointlocation queryname includeheaders outputmode asyncprogresstrackingenabled "
    "asyncprogresstrackingcheckpointintervalms"
)
_SOURCE_ONLY: Final = (
    "subscribe subscribepattern assign startingoffsets endingoffsets startingtimestamp endingtimestamp "
    "startingoffsetsbytimestamp endingoffsetsbytimestamp failondataloss kafkaconsumer.polltimeoutms "
    "fetchoffset.numretries fetchoffset.retryintervalms minpartitions maxoffsetspertrigger "
    "minoffsetspertrigger maxtriggerdelay groupidprefix maxrecordsperpartition"
)

_CONFLICTS: Final = (
    Conflict("kafka.bootstrap.servers", lambda _, given: "kafka.bootstrap.servers" not in given,
        "kafka.bootstrap.servers is missing: set the cluster's addresses, e.g. "
        ".option('kafka.bootstrap.servers', 'host:9092'), or in SQL INSERT INTO ... WITH "
        "('kafka.bootstrap.servers' = 'host:9092', ...): Spark does not pass the options of CREATE TABLE "
        "to a Python sink"),
    Conflict("kafka.acks", lambda v, _: v["kafka.acks"] == 0,
        "kafka.acks=0 contradicts delivery=at_least_once: brokers then do not report whether a record "
        "arrived. Leave kafka.acks out, or set it to all"),
    Conflict("dead.letter.topic", lambda v, _: v["on.error"] == "dead_letter" and not v["dead.letter.topic"],
        "on.error=dead_letter needs dead.letter.topic: set it to the topic for such rows"),
    Conflict("dead.letter.topic", lambda v, _: v["on.error"] != "dead_letter" and v["dead.letter.topic"],
        "dead.letter.topic={v[dead.letter.topic]!r} has no effect with on.error={v[on.error]}: set "
        "on.error=dead_letter as well, or leave it out"),
    Conflict("id.column", lambda v, _: v["id.column"] and not v["stamp"],
        "id.column={v[id.column]!r} contradicts stamp=off, which writes no ids: leave one of them out"),
    Conflict("write.id", lambda v, _: v["write.id"] and not v["stamp"],
        "write.id={v[write.id]!r} contradicts stamp=off, which writes no ids: leave one of them out"),
    Conflict("row.order", lambda v, _: v["id.column"] and v["row.order"] == "sort",
        "row.order=sort has no effect with id.column, which has each row's id: leave one of them out"),
)
# fmt: on


def _refused(name: str, why: str, instead: str | None = None) -> Key:
    return Key(name, Unused("STRING"), None, why, becomes=instead)


def _kafka(key: Key) -> Key:
    if key.name in _REFUSED_KAFKA:
        return _refused(KAFKA + key.name, _REFUSED_KAFKA[key.name])
    return replace(key, name=KAFKA + key.name, aliases=tuple(KAFKA + alias for alias in key.aliases))


OPTIONS: Final = ConfigDef(
    (
        *SINK_OPTIONS,
        *map(_kafka, KEYS.values()),
        *(Key(name, IGNORED, None) for name in _FROM_SPARK.split()),
        *(_refused(name, _NO_SOURCE) for name in _SOURCE_ONLY.split()),
        *(_refused(name, _NO_PATH, "topic") for name in ("path", "paths")),
    ),
    _CONFLICTS,
    unknown="unknown option {!r}",
    otherwise=f"the options are {', '.join(key.name for key in SINK_OPTIONS)}, header.<name>, and "
    "kafka.<a producer's key>",
)
"""Every option, except `header.*`."""


def markdown_table() -> str:
    """Return the options as the table of `docs/how-to/spark-sink.md`."""
    defaults = ", ".join(f"`{name}={value}`" for name, value in KAFKA_DEFAULTS.items())
    rows = [
        "| option | values | default | what it does |\n|---|---|---|---|",
        f"| `kafka.<key>` | see [configuration](../reference/configuration.md) | see there, but {defaults} | "
        "A setting of the producer, with Kafka's name; `kafka.bootstrap.servers` is required. |",
        "| `header.<name>` | text | none | A header of every record. Spark passes the name in lower "
        "case; use `headers` for one with capitals. |",
        *(
            markdown_row(f"`{key.name}`", key.kind.allowed, default_cell(key), key.text)
            for key in SINK_OPTIONS
        ),
    ]
    return "\n".join(rows) + "\n"
