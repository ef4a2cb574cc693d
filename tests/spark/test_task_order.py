"""`check_row_order()` on plans that Spark itself makes: which of them fix the order of rows within a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.spark.errors import RowOrderError
from aioproduce.spark.order import check_row_order

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended(
    "runs many plans of Spark; the property tests of the order stay in the gate"
)


def test_plans_of_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    numbers = spark.range(0, 1000, 1, 3).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS value")
    numbers.write.parquet(str(tmp_path / "files"))
    files = spark.read.parquet(str(tmp_path / "files"))
    small = spark.range(5).withColumnRenamed("id", "k")
    shuffled = files.repartition(4)
    merged = files.join(shuffled.selectExpr("k", "id AS other").hint("merge"), "k")
    stable = {
        "a scan": files,
        "a filter": files.where("k > 3").selectExpr("value", "k + 1 AS k"),
        "a sort of all": shuffled.sort("id"),
        "a sort within": shuffled.sortWithinPartitions("id").select("value"),
        "a broadcast join": files.join(small.hint("broadcast"), "k"),
        "that join, sorted": merged.sortWithinPartitions("id", "other"),
        "fewer partitions without a shuffle, sorted": files.coalesce(1).sortWithinPartitions("id"),
    }
    for frame in stable.values():
        check_row_order(frame)
    open_order = {
        "a shuffle": shuffled,
        "one by a key": files.repartition(4, "k"),
        "behind a projection": shuffled.selectExpr("upper(value) AS value"),
        "a count by key": files.groupBy("k").count(),
        "a join that sorts by its key": merged.select("value"),
        "distinct": files.select("value").distinct(),
        "one side of a union": files.select("value").union(shuffled.select("value")),
        "cached": shuffled.cache(),
    }
    for name, frame in open_order.items():
        with pytest.raises(RowOrderError, match=r"row\.order.*sort|sortWithinPartitions") as caught:
            check_row_order(frame)
        assert "Exchange" in (caught.value.operator or ""), name
    # A plan that was run already is told by its final stages.
    shuffled.unpersist()
    run = files.groupBy("k").count()
    run.collect()
    with pytest.raises(RowOrderError):
        check_row_order(run)
