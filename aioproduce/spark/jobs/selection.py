"""Which rows of a lake are meant: by topic, time, partition and producer.

Called by `replay`; pure functions over a DataFrame, and what the arguments say.

1. A selection says in partition columns what it can (topic, date), so that Spark opens no file that cannot
   have a row.
2. Times are instants: `since` is included, `until` is not, so that two selections that meet share no row.
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
    """Rows of a lake; each part narrows it, and an empty or absent one does not.

    Attributes:
        topics: Of these topics.
        since: With a timestamp from this instant on.
        until: With a timestamp before this instant.
        partitions: Of these of Kafka's partitions.
        producers: With one of these producer ids, of 16 bytes.
    """

    topics: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    partitions: tuple[int, ...] = ()
    producers: tuple[bytes, ...] = ()


def select(rows: DataFrame, selection: Selection) -> DataFrame:
    """The rows that are meant, of a table of the lake (`tables.read_table`)."""
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
        # As text: a list of binary literals is nothing that isin() takes.
        ids = [producer.hex().upper() for producer in selection.producers]
        rows = rows.where(F.hex("producer_id").isin(*ids))
    return rows


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `selection_of()` reads."""
    group = parser.add_argument_group("which rows (all, unless said)")
    group.add_argument("--topics", metavar="T,...", help="of these topics")
    group.add_argument("--since", metavar="TIME", help="from this instant on, e.g. 2026-01-31T12:00Z")
    group.add_argument("--until", metavar="TIME", help="before this instant")
    group.add_argument("--partitions", metavar="N,...", help="of these partitions of Kafka's")
    group.add_argument("--producers", metavar="ID,...", help="of these producers: 32 hexadecimal digits each")


def selection_of(args: argparse.Namespace) -> Selection:
    """What the arguments say.

    Raises:
        OptionError: one of them is refused.
    """
    selection = Selection(
        topics=names_of(args.topics, "--topics"),
        since=instant_of(args.since, "--since"),
        until=instant_of(args.until, "--until"),
        partitions=tuple(_partition(name) for name in names_of(args.partitions, "--partitions")),
        producers=tuple(_producer(name) for name in names_of(args.producers, "--producers")),
    )
    if selection.since is not None and selection.until is not None and selection.since >= selection.until:
        raise OptionError("--since is not before --until: no row could be meant", option="--since")
    return selection


def names_of(text: str | None, option: str) -> tuple[str, ...]:
    """Names with commas between them; none where nothing is given.

    Raises:
        OptionError: there is no name among the commas.
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"{option} takes one name, or several with commas", option=option)
    return names


def instant_of(text: str | None, option: str) -> datetime | None:
    """An instant as ISO 8601 has it; UTC where no zone is said.

    Raises:
        OptionError: it is none.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"{option} {text!r} is no time: write 2026-01-31T12:00Z", option=option) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"--partitions takes numbers from 0 on, not {text!r}", option="--partitions")
    return int(text)


def _producer(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != PRODUCER_ID_SIZE:
        raise OptionError(
            f"--producers takes ids of {PRODUCER_ID_SIZE * 2} hexadecimal digits, as the audit prints them, "
            f"not {text!r}",
            option="--producers",
        )
    return found
