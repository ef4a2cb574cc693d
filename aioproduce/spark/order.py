"""Checks whether a plan fixes the order of rows within a partition, and sorts rows if it does not.

A row's number is its place in its partition. After a shuffle that place depends on which block arrived first over
the network. A task that runs again would then give the same id to another row, and a reader that drops duplicates
would lose rows. So jobs call `check_row_order()` before they write, and users may call it; `row.order=sort` sorts
instead.

Invariants:

1. `check_row_order()` refuses every plan with a shuffle between source and sink that has no sort above it. A sort
   that Spark itself adds below a join, a window or an aggregation does not count.
2. A sort fixes the order only as far as its columns distinguish rows; a plan does not show which rows are equal
   there.
3. `sorted_rows()` depends only on the rows: two rows that it treats as equal have the same bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aioproduce.spark.errors import RowOrderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SORTED_ROWS: Final = 10_000
"""Rows in each Arrow batch of a sort's output: Spark's own default."""

# Nodes of a plan above which the rows of a partition have no reproducible order. A limit as the plan's last node
# stands for the shuffle to one partition that it becomes when it is written.
_SHUFFLES: Final = re.compile(
    r"^(Exchange|ReusedExchange|ShuffleExchange|ShuffleQueryStage|CustomShuffleReader|AQEShuffleRead|REPARTITION|Repartition"
    r"|RepartitionByExpression|RebalancePartitions|CoalesceExec|Coalesce|CollectLimit|CollectTail)\b"
)
_SORT: Final = re.compile(r"^(Sort|TakeOrderedAndProject)\b")
# Spark adds sorts below these by columns that need not distinguish rows: such a sort does not fix the order.
_SORTED_BY_SPARK: Final = re.compile(
    r"^(SortMergeJoin|SortAggregate|Window\w*|FlatMapGroups\w*|FlatMapCoGroups\w*)\b"
)
_BROADCAST: Final = re.compile(
    r"^(BroadcastExchange|BroadcastQueryStage|ReusedExchange.*BroadcastExchange)\b"
)
_NODE: Final = re.compile(r"^(?P<indent>(?:[ :] {2})*(?:[+:]- )?)(?P<text>\S.*)$")
_MARKS: Final = re.compile(r"^(\*\(\d+\)\s*|\*\s*)")
_SECTIONS: Final = re.compile(r"^== (?P<name>.*) ==$")


def check_row_order(df: Any) -> None:
    """Refuse a DataFrame whose rows may come in another order when a task runs again.

    Args:
        df: A DataFrame of Spark or of Spark Connect. It is planned but not run.

    Raises:
        RowOrderError: If a shuffle leaves the order of rows open.

    Example:
        >>> check_row_order(spark.read.parquet("lake"))  # doctest: +SKIP
        >>> check_row_order(spark.read.parquet("lake").repartition(8))  # doctest: +SKIP
        Traceback (most recent call last):
        aioproduce.spark.errors.RowOrderError: ...
    """
    operator = unstable_operator(plan_text(df))
    if operator is not None:
        raise RowOrderError(
            f"the plan leaves the order of rows open: {operator.split('(')[0].strip()!r} has no "
            "sort above it, so a row's number may change when a task runs again, and a reader that drops "
            "duplicates would lose rows. Sort after it by columns that distinguish rows "
            "(df.sortWithinPartitions(...)), or set option 'row.order' = 'sort', or use the ids of a column with "
            "option 'id.column'",
            operator=operator,
        )


def plan_text(df: Any) -> str:
    """Return the physical plan of a DataFrame as Spark prints it."""
    java = getattr(df, "_jdf", None)
    if java is not None:
        return str(java.queryExecution().executedPlan().toString())
    return str(df._explain_string(extended=False))  # Spark Connect


def unstable_operator(plan: str) -> str | None:
    """Return the shuffle that leaves the order of rows open in a plan as Spark prints it, or None.

    Args:
        plan: `EXPLAIN`'s text: one operator per line, each below the one that it feeds and further to the right.
    """
    # The indents of the current line's parents: sorts and broadcasts, and operators that Spark sorts for.
    settled: list[int] = []
    sorted_by_spark: list[int] = []
    for line in _plan_lines(plan):
        found = _NODE.match(line)
        if found is None:
            continue
        indent = len(found["indent"])
        for under in (settled, sorted_by_spark):
            while under and under[-1] >= indent:
                under.pop()
        text = _MARKS.sub("", found["text"]).strip()
        if settled:
            continue
        if _BROADCAST.match(text) or (_SORT.match(text) and not sorted_by_spark):
            settled.append(indent)
        elif _SORTED_BY_SPARK.match(text):
            sorted_by_spark.append(indent)
        elif _SHUFFLES.match(text):
            return text
    return None


def _plan_lines(plan: str) -> Iterator[str]:
    """Yield the relevant lines of the plan: those of the final one if an adaptive plan has several."""
    for line in plan.splitlines():
        section = _SECTIONS.match(line.strip(" +-:"))
        if section is not None and section["name"].startswith("Initial Plan"):
            return
        if section is None and line.strip():
            yield line


# -- sorting ---


def sorted_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of a task in the order of their bytes over all columns; holds all of them in memory.

    Args:
        batches: `pyarrow.RecordBatch`es with one schema.
    """
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    keys = {}
    for name in table.schema.names:
        column = table.column(name)
        keys[name] = column if _is_sortable(column.type) else pa.array(_as_bytes(column), pa.binary())
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    yield from table.take(order).combine_chunks().to_batches(max_chunksize=_SORTED_ROWS)


def _is_sortable(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_timestamp(kind)
    )


def _as_bytes(column: Any) -> Iterator[bytes | None]:
    """Yield headers as bytes that are equal only if the headers are."""
    for headers in column.to_pylist():
        yield None if headers is None else repr(_plain(headers)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _plain(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
