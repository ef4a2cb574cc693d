"""Tables of the lake as Spark reads them. See `layout` for paths and `store` for which files count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce.spark.files import files_of, is_local
from aioproduce.spark.layout import Table, table_path, table_schema
from aioproduce.spark.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, lake: str, table: Table) -> DataFrame:
    """Return a table of the lake; without rows if nothing was landed into it yet.

    The schema is given, so no file is opened to find it, and no topic is read as a number. For a local lake these
    are the files that count now, even during a compaction. One that ends before they are read removes some, and
    the read fails (`store.read_consistently` reads again).
    """
    path = table_path(lake, table)
    if is_local(path):
        paths = Store(lake, table).snapshot().files
    else:
        paths = [path] if files_of(path, spark).exists(path) else []
    return read_files(spark, path, paths)


def read_files(spark: SparkSession, root: str, paths: Sequence[str]) -> DataFrame:
    """Return files of a table, or none; the directories between its root and them become columns."""
    if not paths:
        return spark.createDataFrame([], table_schema())
    return spark.read.schema(table_schema()).option("basePath", root).parquet(*paths)
