"""The table of the sink's options: name, values, default, meaning. Read by `options` and printed for the page.

Called by `options`, which parses by it, and by the test that holds `docs/spark-sink.md` to it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER
from aioproduce.config.keys import LONG_MAX

KAFKA_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "aioproduce-spark",
    "batch.size": "524288",
    "linger.ms": "20",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""Where a bulk load wants another default than Kafka's; `kafka.*` options go before these."""


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
        "Where each task's closing record goes. A topic that is missing or denied is a warning if it is the "
        "default one, and an error if it is named here.",
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
        60_000,
        "milliseconds",
        "How long the driver asks the cluster whether the topics are there, before any row of a write or a "
        "micro-batch is moved.",
    ),
)
"""Every option but `kafka.*` and `header.*`."""


def markdown_table() -> str:
    """The options as the table of `docs/spark-sink.md`."""
    rows = [
        "| option | takes | default | what it does |\n|---|---|---|---|",
        "| `kafka.<key>` | as [configuration](configuration.md) | as there, but "
        + ", ".join(f"`{name}={value}`" for name, value in KAFKA_DEFAULTS.items())
        + " | A setting of the producer, under Kafka's name; `kafka.bootstrap.servers` is required. |",
        "| `header.<name>` | text | none | A header that every record gets. Spark hands the name over in lower "
        "case; see `headers` for one with capitals. |",
    ]
    for option in OPTIONS:
        default = option.shown_default or _shown_default(option.default)
        rows.append(f"| `{option.name}` | {option.values} | {default} | {option.text} |")
    return "\n".join(rows) + "\n"


def _shown_default(default: object) -> str:
    if default is None:
        return "none"
    return f"`{'on' if default else 'off'}`" if isinstance(default, bool) else f"`{default}`"
