"""Spark registers the `DefaultSource` of every package named `pyspark_*` at its first use.

It imports all such packages at once, and ignores all of them if one fails. So if the sink cannot be imported, a
substitute with its name takes its place, and reports the reason when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["DefaultSource"]

if TYPE_CHECKING:
    from aioproduce.spark.datasource import AioproduceDataSource as DefaultSource
else:
    try:
        from aioproduce.spark.datasource import AioproduceDataSource as DefaultSource
    except ImportError as error:
        try:
            from pyspark.sql.datasource import DataSource
        except ImportError:
            from aioproduce.spark.requirements import check_extra

            check_extra("pyspark_aioproduce")
            raise

        _REASON = str(error)

        class DefaultSource(DataSource):
            """Replaces the sink if it cannot be imported, e.g. because Spark is older than 4.1."""

            def __init__(self, options: dict[str, str]) -> None:
                from aioproduce.spark.requirements import check_extra

                super().__init__(options)
                check_extra("the sink of Spark")
                raise ImportError(_REASON)

            @classmethod
            def name(cls) -> str:
                """Return the sink's name."""
                return "aioproduce"
