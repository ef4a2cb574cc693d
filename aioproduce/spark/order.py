"""Whether a plan fixes the order of rows within a partition, and the order that the sink makes where it does not.

A row's number is its place in its partition. After a shuffle that place hangs on which block came first over the
network: a task that runs again would give the same id to another row, and a reader that drops duplicates would lose
rows. So jobs call `check_row_order()` before they write, and users may; `row.order=sort` sorts instead.

Invariants:

1. `check_row_order()` passes no plan in which a shuffle lies between the source and the sink without a sort above
   it. A sort that Spark puts below a join, a window or an aggregation by itself is none.
2. A sort fixes the order only as far as its columns tell rows apart; which rows are equal there a plan cannot say.
3. `sorted_rows()` depends on nothing but the rows: two rows that it holds for equal are the same bytes.
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
"""Rows in each Arrow batch that comes out of a sort: as many as Spark puts into one by itself."""

# Nodes of a plan above which rows of a partition have no order that a second run would repeat. A limit that is the
# plan's last node stands for the shuffle to one partition that it becomes when it is written.
_SHUFFLES: Final = re.compile(
    r"^(Exchange|ReusedExchange|ShuffleExchange|ShuffleQueryStage|CustomShuffleReader|AQEShuffleRead|REPARTITION|Repartition"
    r"|RepartitionByExpression|RebalancePartitions|CoalesceExec|Coalesce|CollectLimit|CollectTail)\b"
)
_SORT: Final = re.compile(r"^(Sort|TakeOrderedAndProject)\b")
# Spark sorts below these by itself, by columns that need not tell rows apart: that sort orders nothing for us.
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
        df: A DataFrame, of Spark or of Spark Connect. Nothing is run; it is only planned.

    Raises:
        RowOrderError: a shuffle leaves the order of rows open.

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
            "sort above it, so a row's number may be another one when a task runs again, and a reader that drops "
            "duplicates would lose rows. Sort behind it by columns that tell rows apart "
            "(df.sortWithinPartitions(...)), or give option 'row.order' = 'sort', or take the ids from a column by "
            "option 'id.column'",
            operator=operator,
        )


def plan_text(df: Any) -> str:
    """The physical plan of a DataFrame as Spark prints it."""
    java = getattr(df, "_jdf", None)
    if java is not None:
        return str(java.queryExecution().executedPlan().toString())
    return str(df._explain_string(extended=False))  # Spark Connect


def unstable_operator(plan: str) -> str | None:
    """The shuffle that leaves the order of rows open, in a plan as Spark prints it; None where there is none.

    Args:
        plan: `EXPLAIN`'s text: one operator a line, each below the one that it feeds and further to the right.
    """
    # The indents of what the line at hand is under: sorts and broadcasts, and what Spark sorts for.
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
    """The lines of the plan to look at: the final one where Spark has an adaptive plan with several."""
    for line in plan.splitlines():
        section = _SECTIONS.match(line.strip(" +-:"))
        if section is not None and section["name"].startswith("Initial Plan"):
            return
        if section is None and line.strip():
            yield line


# -- sorting ---


def sorted_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of a task in the order of their bytes, all columns compared; holds all of them in memory.

    Args:
        batches: `pyarrow.RecordBatch`es of one schema.
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
    """Headers as bytes that are equal only where the headers are."""
    for headers in column.to_pylist():
        yield None if headers is None else repr(_plain(headers)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _plain(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
