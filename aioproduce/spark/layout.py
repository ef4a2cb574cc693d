"""The names of the lake's directories and columns, which only this module knows.

    <lake>/table=data/topic=<t>/date=YYYY-MM-DD/hour=HH/batch=<query id>-<n>/part-*.parquet
    <lake>/table=quarantine/...     the same scheme: bad rows, with the reason
    <lake>/table=marks/...          the same scheme: the records of the audit topic, for audits of the lake alone
    <lake>/_land/...                what landed here, and from where (`lake`)

Each table is a plain Parquet data set that any engine can read by itself. The lake as a whole is one with an
additional partition column, so that one pass over a batch from Kafka writes all three.

Invariants:

1. A directory `batch=...` is written completely by one micro-batch of one query. Written again, it is replaced. No
   other query uses its name, because a query's id is its checkpoint's and random.
2. Names that begin with `_` or `.` are not data: no engine reads them.
3. date and hour are those of the record's timestamp, in UTC, and nothing else: a batch that is landed again has the
   same directories.
4. Compaction's directories begin with `batch=compact-`, which no query's id does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self, final

PARTITION_COLUMNS: Final = ("table", "topic", "date", "hour", "batch")
"""The levels of directories, outermost first."""

COMPACT_PREFIX: Final = "compact-"
"""The prefix of the batches that `compact` creates."""

STATE_DIRECTORY: Final = "_land"
"""The land jobs' own directory in the lake."""

FILE_COLUMNS: Final = (
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestamp_type", "int"),
    ("producer_id", "binary"),
    ("sequence", "bigint"),
    ("checksum", "bigint"),
    ("reason", "string"),
)
"""The columns of the files in order, as (name, type) in SQL; `topic`, `date`, `hour` and `batch` are directories.

`timestamp_type` is Kafka's: 0 set by the producer, 1 by the broker. `producer_id` has 16 bytes and is null if a
record has no stamp. `checksum` is xxhash64 of key and value. `reason` is null except in the quarantine.
"""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_BATCH: Final = re.compile(rf"({_UUID})-(\d+)")


class Table(StrEnum):
    """The tables of a lake."""

    DATA = "data"
    QUARANTINE = "quarantine"
    MARKS = "marks"


@final
@dataclass(frozen=True, slots=True)
class LandedBatch:
    """A micro-batch of a landing query.

    Attributes:
        query_id: The query's id, a UUID: its checkpoint's.
        number: The micro-batch's number, from 0.
    """

    query_id: str
    number: int

    @property
    def name(self) -> str:
        """The value of the partition column `batch`."""
        return f"{self.query_id}-{self.number}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a batch's name; return `None` for those of compaction and of others."""
        found = _BATCH.fullmatch(name)
        return None if found is None else cls(found[1], int(found[2]))


def table_path(lake: str, table: Table) -> str:
    """Return the path of a table, for any engine."""
    return f"{lake.rstrip('/')}/table={table}"


def is_hidden(name: str) -> bool:
    """Return whether a file or directory of that name is not data."""
    return name.startswith(("_", "."))


def file_schema() -> str:
    """Return the columns of the files, as SQL."""
    return ", ".join(f"{name} {kind}" for name, kind in FILE_COLUMNS)


def table_schema() -> str:
    """Return the columns of a table as it is read, as SQL: those of the files and of the directories."""
    return f"{file_schema()}, topic string, date date, hour int, batch string"
