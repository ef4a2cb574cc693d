"""The output of `aioproduce txn`: tables for people, and mappings for `--json`.

The keys of the mappings are part of the interface.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproduce.cli.txn_cluster import Listed, OpenTransaction
    from aioproduce.wire.messages import TransactionDescription


def listed_as_json(listed: Listed) -> dict[str, Any]:
    """Return a transactional id for `--json`."""
    return {
        "transactional_id": listed.listing.transactional_id,
        "state": listed.listing.state,
        "producer_id": listed.listing.producer_id,
        "coordinator": listed.coordinator,
    }


def described_as_json(coordinator: int, description: TransactionDescription) -> dict[str, Any]:
    """Return a transactional id with all that its coordinator knows."""
    return {
        "transactional_id": description.transactional_id,
        "state": description.state,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "coordinator": coordinator,
        "timeout_ms": round(description.timeout * 1000),
        "started_at": instant(description.started_at_ms),
        "partitions": [str(each) for each in sorted(description.partitions)],
    }


def open_as_json(opened: OpenTransaction) -> dict[str, Any]:
    """Return a transaction that hangs in a partition."""
    producer = opened.producer
    return {
        "topic": opened.topic_partition.topic,
        "partition": opened.topic_partition.partition,
        "start_offset": producer.open_from,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_record_at": instant(producer.last_timestamp_ms),
        "transactional_ids": list(opened.transactional_ids),
        "why": opened.why,
    }


def rows_view(rows: Sequence[dict[str, Any]], columns: Iterable[str]) -> Table:
    """Return a table of some keys of these mappings, a row for each mapping."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    names = list(columns)
    for name in names:
        is_number = all(isinstance(row[name], int) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(row[name])) for name in names))
    return table


def pairs_view(row: dict[str, Any]) -> Table:
    """Return a table of one mapping, a line for each key."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in row.items():
        table.add_row(name.replace("_", " "), Text(printable(value)))
    return table


def printable(value: object) -> str:
    """Return the value as text without control characters: anybody may choose a transactional id."""
    if isinstance(value, list):
        return ", ".join(map(printable, value)) or "-"
    text = "-" if value is None else str(value)
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def instant(milliseconds: int) -> str | None:
    """Return a timestamp in milliseconds as text; None for Kafka's -1."""
    if milliseconds < 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"  # a producer may set any timestamp
