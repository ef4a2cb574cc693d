"""From Spark to Kafka and from Kafka to a lake: the sink `format("aioproduce")` and the jobs.

Needs the extra `spark`; nothing else of aioproduce imports it. The names are imported on first use, so that the
error for a missing library names the extra that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["check_row_order", "register"]

if TYPE_CHECKING:
    from aioproduce.spark.datasource import register
    from aioproduce.spark.order import check_row_order
else:
    _MODULES = {"check_row_order": "order", "register": "datasource"}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from aioproduce.spark.requirements import check_extra

        check_extra("aioproduce.spark")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
