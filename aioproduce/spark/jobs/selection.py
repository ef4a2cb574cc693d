"""Selects rows of a lake by topic, time, partition and producer.

Used by `replay`; pure functions over a DataFrame, and the parsing of their arguments.

1. A selection uses partition columns where it can (topic, date), so that Spark opens no file that cannot have a
   selected row.
2. Times are instants: `since` is inclusive and `until` is exclusive, so that two adjacent selections share no row.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioproduce.audit.stamp import PRODUCER_ID_SIZE
from aioproduce.spark.errors import OptionError

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of rows of a lake; each part narrows it, and an empty or absent one does not.

    Attributes:
        topics: Only these topics.
        since: Only timestamps from this instant on.
        until: Only timestamps before this instant.
        partitions: Only these partitions of Kafka.
        producers: Only these producer ids, of 16 bytes.
    """

    topics: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    partitions: tuple[int, ...] = ()
    producers: tuple[bytes, ...] = ()


def select(rows: DataFrame, selection: Selection) -> DataFrame:
    """Return the selected rows of a table of the lake (`tables.read_table`)."""
    from pyspark.sql import functions as F

    if selection.topics:
        rows = rows.where(F.col("topic").isin(*selection.topics))
    if selection.since is not None:
        rows = rows.where(F.col("date") >= F.lit(selection.since.astimezone(UTC).date()))
        rows = rows.where(F.col("timestamp") >= F.lit(selection.since))
    if selection.until is not None:
        rows = rows.where(F.col("date") <= F.lit(selection.until.astimezone(UTC).date()))
        rows = rows.where(F.col("timestamp") < F.lit(selection.until))
    if selection.partitions:
        rows = rows.where(F.col("partition").isin(*selection.partitions))
    if selection.producers:
        # As text, because isin() does not accept binary literals.
        ids = [producer.hex().upper() for producer in selection.producers]
        rows = rows.where(F.hex("producer_id").isin(*ids))
    return rows


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `selection_of()` reads."""
    group = parser.add_argument_group("rows (default: all)")
    group.add_argument("--topics", metavar="T,...", help="only these topics")
    group.add_argument("--since", metavar="TIME", help="only from this instant on, e.g. 2026-01-31T12:00Z")
    group.add_argument("--until", metavar="TIME", help="only before this instant")
    group.add_argument("--partitions", metavar="N,...", help="only these partitions of Kafka")
    group.add_argument(
        "--producers", metavar="ID,...", help="only these producers: 32 hexadecimal digits each"
    )


def selection_of(args: argparse.Namespace) -> Selection:
    """Return the selection for the arguments.

    Raises:
        OptionError: If an argument is refused.
    """
    selection = Selection(
        topics=names_of(args.topics, "--topics"),
        since=instant_of(args.since, "--since"),
        until=instant_of(args.until, "--until"),
        partitions=tuple(_partition(name) for name in names_of(args.partitions, "--partitions")),
        producers=tuple(_producer(name) for name in names_of(args.producers, "--producers")),
    )
    if selection.since is not None and selection.until is not None and selection.since >= selection.until:
        raise OptionError("--since is not before --until: no row can match", option="--since")
    return selection


def names_of(text: str | None, option: str) -> tuple[str, ...]:
    """Return names separated by commas; none if there is no text.

    Raises:
        OptionError: If there is no name among the commas.
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"{option} must be one name, or several with commas", option=option)
    return names


def instant_of(text: str | None, option: str) -> datetime | None:
    """Return an instant in ISO 8601; UTC if there is no zone.

    Raises:
        OptionError: If the text is not an instant.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{option} {text!r} is not a time: write 2026-01-31T12:00Z", option=option
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"--partitions must be numbers from 0 on, not {text!r}", option="--partitions")
    return int(text)


def _producer(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != PRODUCER_ID_SIZE:
        raise OptionError(
            f"--producers must be ids of {PRODUCER_ID_SIZE * 2} hexadecimal digits, as the audit prints them, "
            f"not {text!r}",
            option="--producers",
        )
    return found
