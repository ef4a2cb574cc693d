"""Drops rows that were written twice, and only those: an equal id is not enough.

A replayed task or a retried write has the ids of the first attempt. If its plan did not fix the order of rows, the
same id can belong to another row, which dropping by id would lose. So key and value must be equal, too.

Invariants:

1. Of rows with the same id and the same checksum one is kept: the first by topic, partition and offset, if the rows
   have these.
2. Rows with one id and different checksums are all kept; the audit reports them.
3. Rows without a stamp are not duplicates of anything, nor are rows with an unreadable number (quarantine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def drop_duplicates(rows: DataFrame) -> DataFrame:
    """Keep one of the rows that share id and checksum, and all without a stamp.

    Args:
        rows: With `producer_id`, `sequence` and `checksum`, as the lake's tables have; `topic`, `partition` and
            `offset` decide which one is kept.
    """
    order = [F.col(name) for name in ("topic", "partition", "offset") if name in rows.columns]
    same = Window.partitionBy("producer_id", "sequence", "checksum").orderBy(*(order or [F.col("sequence")]))
    first = (
        rows.where(_is_stamped())
        .withColumn("_number", F.row_number().over(same))
        .where("_number = 1")
        .drop("_number")
    )
    return first.unionByName(rows.where(~_is_stamped()))


def _is_stamped() -> Column:
    return F.col("producer_id").isNotNull() & F.col("sequence").isNotNull()
