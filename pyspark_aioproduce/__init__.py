"""Spark registers what a package named `pyspark_*` calls `DefaultSource` by itself at its first use.

It imports every such package at once, and leaves out all of them where one fails. So where the sink cannot be
imported, another of its name takes its place, and tells why when somebody asks for it.
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
            """Stands for the sink where it cannot be imported: Spark is older than 4.1, for one."""

            def __init__(self, options: dict[str, str]) -> None:
                from aioproduce.spark.requirements import check_extra

                super().__init__(options)
                check_extra("the sink of Spark")
                raise ImportError(_REASON)

            @classmethod
            def name(cls) -> str:
                """As the sink's."""
                return "aioproduce"
