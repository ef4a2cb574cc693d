"""Runs the audit's passes over the files of a lake, in Spark's workers or in this process.

Used by the `audit` job, its benchmark and its tests. The workers read Parquet themselves with pyarrow: two columns
of each file, the id as the dictionary that it is on disk (`SparkPasses`). If only Spark can read the lake's file
system, its reader is used (`FramePasses`); `benchmarks/spark_audit.py` compares them.

1. Only the exact pass shuffles, and only the rows of blocks that the first pass suspects.
2. A file larger than `SPLIT_BYTES` is read by several tasks, which share its row groups.
3. An unreadable file fails the audit, with its name: an audit that skips a file proves nothing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from aioproduce.spark.errors import LayoutError
from aioproduce.spark.jobs.audit_passes import (
    BLOCK_BITS,
    FINDINGS,
    PARTIALS,
    READ_EXACTLY,
    READ_FIRST,
    SUSPECTS,
    Spans,
    finding_of,
    findings_of,
    merged,
    partials_of,
    suspects_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SPLIT_BYTES = 64 << 20
TASKS_PER_SLOT = 4
"""Tasks per slot, so that the slowest file delays only a quarter of a slot's work."""
TASK_BYTES = 16 << 20
"""The minimum size that justifies starting a task other than a slot's first one."""
ROWS_AT_ONCE = 4_000_000
"""Row groups are read together up to this size: many small ones cost one call, and large ones bounded memory."""


BATCHES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the lake.

    Attributes:
        path: Its path, valid for every worker.
        topic: The topic of its records.
        size: Its size in bytes.
    """

    path: str
    topic: str
    size: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A share of a file: every `parts`-th row group of it, from `part` on."""

    file: DataFile
    part: int = 0
    parts: int = 1


def units_of(files: Iterable[DataFile]) -> list[Unit]:
    """Return the files in shares of at most `SPLIT_BYTES`."""
    return [
        Unit(file, part, parts)
        for file in files
        for parts in [max(1, -(-file.size // SPLIT_BYTES))]
        for part in range(parts)
    ]


def packed(units: Iterable[Unit], tasks: int) -> list[list[Unit]]:
    """Distribute the units over at most this many tasks of about the same size, the largest first."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(tasks)]
    out: list[list[Unit]] = [[] for _ in range(tasks)]
    # Even a tiny file costs about as much as 64 KiB.
    for unit in sorted(units, key=lambda unit: (-(unit.file.size // unit.parts), unit.file.path, unit.part)):
        size, number = heapq.heappop(heap)
        out[number].append(unit)
        heapq.heappush(heap, (size + unit.file.size // unit.parts + 65536, number))
    return [some for some in out if some]


def read_first(unit: Unit) -> pa.Table:
    """Run the first pass over a share of a file."""
    parts = [partials_of(rows["producer_id"], rows["sequence"]) for rows in _row_groups(unit, READ_FIRST)]
    return merged(pa.concat_tables(parts)) if parts else PARTIALS.empty_table()


def read_exactly(unit: Unit, spans: Spans) -> pa.Table:
    """Return the rows of a share of a file that the exact pass needs."""
    blocks = [block for of_id in spans.values() for block in of_id]
    if not blocks:
        return SUSPECTS.empty_table()
    between = (min(blocks) << BLOCK_BITS, (max(blocks) + 1 << BLOCK_BITS) - 1)
    parts = [suspects_of(rows, unit.file.topic, spans) for rows in _row_groups(unit, READ_EXACTLY, between)]
    return pa.concat_tables(parts) if parts else SUSPECTS.empty_table()


def _row_groups(
    unit: Unit, columns: tuple[str, ...], between: tuple[int, int] | None = None
) -> Iterator[pa.Table]:
    try:
        metadata = pq.read_metadata(unit.file.path)
        _check_columns(unit.file, metadata.schema.to_arrow_schema(), columns)
        with pq.ParquetFile(unit.file.path, metadata=metadata, read_dictionary=["producer_id"]) as file:
            chosen = [
                number
                for number in range(unit.part, file.num_row_groups, unit.parts)
                if between is None or _may_have(file.metadata.row_group(number), between)
            ]
            together: list[int] = []
            rows = 0
            for number in chosen:
                size = file.metadata.row_group(number).num_rows
                if together and rows + size > ROWS_AT_ONCE:
                    yield file.read_row_groups(together, columns=list(columns), use_threads=False)
                    together, rows = [], 0
                together.append(number)
                rows += size
            if together:
                yield file.read_row_groups(together, columns=list(columns), use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise LayoutError(
            f"{unit.file.path} cannot be read as Parquet ({error}), so its records are not audited. Restore "
            "it, or move it away to audit the others",
            path=unit.file.path,
        ) from error


def _check_columns(file: DataFile, found: pa.Schema, columns: tuple[str, ...]) -> None:
    for name in columns:
        index = found.get_field_index(name)
        if index < 0:
            raise LayoutError(
                f"{file.path} has no column {name!r}: it is not a file that land wrote", path=file.path
            )
        kind = found.field(index).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_right = (
            pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
            if name == "producer_id"
            else kind == SUSPECTS.field(name).type
        )
        if not is_right:
            raise LayoutError(
                f"{file.path} has {name!r} as {kind}: it is not a file that land wrote", path=file.path
            )


def _may_have(group: pq.RowGroupMetaData, between: tuple[int, int]) -> bool:
    """Return whether a row group can have a number in this inclusive range; its statistics are signed."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "sequence":
            known = column.statistics
            if known is None or not known.has_min_max or known.min < 0:
                return True
            return bool(known.min <= between[1] and known.max >= between[0])
    return True


class LocalPasses:
    """The passes in this process; `SparkPasses` and `FramePasses` do the same elsewhere."""

    def first(self, files: Sequence[DataFile]) -> pa.Table:
        """Return the merged partials of all these files."""
        parts = [read_first(unit) for unit in units_of(files)]
        return merged(pa.concat_tables(parts)) if parts else PARTIALS.empty_table()

    def exact(self, files: Sequence[DataFile], spans: Spans) -> pa.Table:
        """Return the findings for these blocks, with the schema `FINDINGS`."""
        parts = [read_exactly(unit, spans) for unit in units_of(files)]
        return findings_of(pa.concat_tables(parts), spans) if parts else FINDINGS.empty_table()


class SparkPasses:
    """The passes in Spark's workers.

    Args:
        spark: A session whose workers can import aioproduce and see the lake under the same paths.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def _tasks(self, files: Sequence[DataFile]) -> list[list[Unit]]:
        slots = self._spark.sparkContext.defaultParallelism
        size = sum(file.size for file in files)
        return packed(units_of(files), min(slots * TASKS_PER_SLOT, max(slots, size // TASK_BYTES)))

    def first(self, files: Sequence[DataFile]) -> pa.Table:
        """See `LocalPasses`."""
        tasks = self._tasks(files)
        if not tasks:
            return PARTIALS.empty_table()

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            units = [
                unit for batch in batches for number in batch.column(0).to_pylist() for unit in tasks[number]
            ]
            if units:
                yield from merged(pa.concat_tables([read_first(unit) for unit in units])).to_batches()

        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return merged(numbers.mapInArrow(read, _for_spark(PARTIALS)).toArrow().cast(PARTIALS))

    def exact(self, files: Sequence[DataFile], spans: Spans) -> pa.Table:
        """See `LocalPasses`."""
        tasks = self._tasks(files)
        if not tasks or not spans:
            return FINDINGS.empty_table()

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for unit in tasks[number]:
                        yield from read_exactly(unit, spans).to_batches()

        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return _judged(numbers.mapInArrow(read, _for_spark(SUSPECTS)), spans)


class FramePasses:
    """The passes over rows that Spark reads.

    Args:
        rows: The lake's rows, with at least the columns `READ_EXACTLY` and `topic`.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def first(self, files: Sequence[DataFile]) -> pa.Table:  # noqa: ARG002
        """See `LocalPasses`; the files are those that Spark found."""

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts = [PARTIALS.empty_table()]
            for batch in batches:
                parts.append(partials_of(batch.column(0), batch.column(1)))
                if len(parts) > BATCHES_AT_ONCE:
                    parts = [merged(pa.concat_tables(parts))]
            yield from merged(pa.concat_tables(parts)).to_batches()

        found = self._rows.select(*READ_FIRST).mapInArrow(look, _for_spark(PARTIALS))
        return merged(found.toArrow().cast(PARTIALS))

    def exact(self, files: Sequence[DataFile], spans: Spans) -> pa.Table:  # noqa: ARG002
        """See `LocalPasses`."""
        if not spans:
            return FINDINGS.empty_table()

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from suspects_of(pa.Table.from_batches([batch]), None, spans).to_batches()

        rows = self._rows.select(*READ_EXACTLY, "topic")
        return _judged(rows.mapInArrow(look, _for_spark(SUSPECTS)), spans)


def _for_spark(schema: pa.Schema) -> StructType:
    # Not above: without Spark the audit starts at once.
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _judged(suspects: DataFrame, spans: Spans) -> pa.Table:
    def judge(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        producer_id, block = (part.as_py() for part in key)
        found = finding_of(rows.cast(SUSPECTS), producer_id, block, spans[producer_id][block])
        return pa.Table.from_pylist([found], schema=FINDINGS)

    found = suspects.groupBy("producer_id", "block").applyInArrow(judge, _for_spark(FINDINGS))
    return found.toArrow().cast(FINDINGS)


Passes: TypeAlias = LocalPasses | SparkPasses | FramePasses
