"""Makes lakes with pyarrow for the tests of the audit, and counts what is in them by plain Python: the oracle.

The oracle knows nothing of blocks, fingerprints or passes: it has a dictionary of all rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from aioproduce.spark.jobs.audit_lake import DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DATA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("producer_id", pa.binary()),
        ("sequence", pa.int64()),
        ("checksum", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Row:
    """One row of a lake, as far as the audit looks at it."""

    producer: int | None
    number: int = 0
    checksum: int = 0
    topic: str = "orders"
    partition: int = 0
    offset: int = 0


def id_of(producer: int) -> bytes:
    return producer.to_bytes(16, "big")


def write_files(
    folder: Path, files: Sequence[Sequence[Row]], row_group_size: int = 1 << 20
) -> list[DataFile]:
    """Each sequence of rows as a Parquet file of its topic, as land writes them."""
    out = []
    for number, rows in enumerate(files):
        by_topic: dict[str, list[Row]] = {}
        for row in rows:
            by_topic.setdefault(row.topic, []).append(row)
        for topic, some in by_topic.items():
            place = (
                folder / "table=data" / f"topic={topic}" / "date=2026-01-31" / "hour=07" / f"batch=q-{number}"
            )
            place.mkdir(parents=True, exist_ok=True)
            path = place / "part-00000.zstd.parquet"
            pq.write_table(table_of(some), path, compression="zstd", row_group_size=row_group_size)
            out.append(DataFile(str(path), topic, path.stat().st_size))
    return out


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "key": b"k",
                "value": str(row.checksum).encode(),
                "partition": row.partition,
                "offset": row.offset,
                "timestamp": 0,
                "timestamp_type": 0,
                "producer_id": None if row.producer is None else id_of(row.producer),
                "sequence": None if row.producer is None else _signed(row.number),
                "checksum": row.checksum,
            }
            for row in rows
        ],
        schema=DATA,
    )


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass
class Counted:
    """What the oracle found of one producer."""

    rows: int = 0
    numbers: set[int] = field(default_factory=set)
    duplicates: int = 0
    conflicts: int = 0
    reread: int = 0


def count_by_hand(files: Sequence[Sequence[Row]]) -> tuple[dict[int, Counted], int]:
    """Each producer's figures, and the rows without a stamp."""
    out: dict[int, Counted] = {}
    unstamped = 0
    versions: dict[tuple[int, int], Counter[int]] = {}
    places: Counter[Row] = Counter()
    for row in (row for rows in files for row in rows):
        if row.producer is None:
            unstamped += 1
            continue
        found = out.setdefault(row.producer, Counted())
        found.rows += 1
        found.numbers.add(row.number)
        versions.setdefault((row.producer, row.number), Counter())[row.checksum] += 1
        places[row] += 1
    for (producer, _), checksums in versions.items():
        out[producer].conflicts += len(checksums) - 1
        out[producer].duplicates += sum(checksums.values()) - len(checksums)
    for row, many in places.items():
        assert row.producer is not None
        out[row.producer].reread += many - 1
    return out, unstamped
