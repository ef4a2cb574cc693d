"""Drop what was written twice, and only that: the same id is not enough.

A replayed task or a retried write has the ids of the first attempt. Where its plan did not fix the order of rows
the same id can be on another row, so that dropping by id would lose it: key and value must agree too.

Invariants:

1. Of rows with the same id and the same checksum one is kept: the first by topic, partition and offset where the
   rows tell these.
2. Rows of one id with other checksums are all kept; the audit tells them.
3. Rows without a stamp are no duplicates of anything, nor are those whose number could not be read (quarantine).
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
