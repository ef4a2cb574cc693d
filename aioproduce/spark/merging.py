"""Merges Parquet files into a sorted one in bounded memory, with checksums that show whether it is complete.

Used by `compaction`. It knows nothing of lakes, manifests or Kafka except the names of a record's columns.

Invariants:

1. Memory does not grow with the input: it is divided into sorted runs of a quarter of the allowed memory, which are
   stored on disk and merged piece by piece.
2. A `Digest` does not depend on the order of rows, on their files, or on compression. That of the written file is
   computed from reading it back, with the checksum of every page verified.
3. The output is readable by Spark: instants are in microseconds, UTC (Spark's own INT96, read by Arrow, would
   become nanoseconds, which Spark refuses), with Spark's description of the columns if all sources have the same
   one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
SORT_KEYS = ("partition", "offset")
# Columns with few different values, for which a dictionary pays off. For the others Arrow would build it in vain.
DICTIONARY_COLUMNS = ("producer_id", "partition", "timestamp_type", "headers.list.element.key")
# Decoded at a time. Counted in bytes, because rows may have a megabyte each.
PIECE_BYTES = 4 << 20
SPILL_PIECE_BYTES = 1 << 20
PIECE_ROWS = 65_536
ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 262_144
# Arrow's binary columns hold 2 GiB per piece, and sorting creates one piece.
RUN_LIMIT = 512 << 20
_MASK = (1 << 64) - 1


@final
@dataclass(frozen=True, slots=True)
class Digest:
    """A checksum of rows.

    Attributes:
        rows: The number of rows.
        ids: The sum of a 64-bit hash of each row's numbers and producer id, modulo 2**64.
        bytes: The lengths of all binary and text values.
    """

    rows: int = 0
    ids: int = 0
    bytes: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.ids + other.ids) & _MASK, self.bytes + other.bytes)

    def __str__(self) -> str:
        return f"{self.rows} rows, ids {self.ids:016x}, {self.bytes} bytes"


def digest_of(rows: pa.RecordBatch) -> Digest:
    """Return the digest of these rows, over the columns that they have."""
    hashes = np.zeros(rows.num_rows, dtype=np.uint64)
    size = 0
    for name in sorted(rows.schema.names):
        column = rows.column(name)
        if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or name == "producer_id":
            hashes = _mixed(hashes ^ _mixed(_as_numbers(column) + np.uint64(_seed(name))))
        size += _value_bytes(column)
    return Digest(rows.num_rows, int(hashes.sum(dtype=np.uint64)), size)


def digest_of_file(path: Path) -> Digest:
    """Read a whole file and return the digest of its rows; damage to any page raises.

    Raises:
        OSError: If the file is damaged.
    """
    total = Digest()
    for piece in _pieces(path, verified=True):
        total += digest_of(piece)
    return total


def merge_files(
    sources: Sequence[Path], target: Path, *, memory_bytes: int, metadata: Mapping[bytes, bytes] | None = None
) -> Digest:
    """Write all rows of some files into one, sorted by partition and offset if there are such columns.

    Args:
        sources: One or more files. Their columns may differ; a missing one is null.
        target: The file to write, in an existing directory in which names beginning with `run-` are free.
        memory_bytes: The approximate memory limit, without the reader's and the writer's needs for a page.
        metadata: The file's own metadata, in addition to Spark's description of the columns.

    Returns:
        The digest of the sources' rows, as read.

    Raises:
        pyarrow.ArrowInvalid: If the sources' columns do not fit together (also `ArrowTypeError`), or one is
            damaged.
        OSError: If reading or writing failed.
    """
    schema = _common_schema(sources, metadata or {})
    runs = _Runs(target.parent, schema, min(max(memory_bytes // 4, SPILL_PIECE_BYTES), RUN_LIMIT))
    total = Digest()
    for source in sources:
        for piece in _pieces(source):
            # With the result's columns: one that this source lacks counts in the result's digest, too.
            conformed = _conformed(piece, schema)
            total += digest_of(conformed)
            runs.add(conformed)
    dictionary = [name for name in DICTIONARY_COLUMNS if name.split(".")[0] in schema.names]
    with pq.ParquetWriter(
        target, schema, compression="zstd", use_dictionary=dictionary, write_page_checksum=True
    ) as writer:
        held: list[pa.Table] = []
        held_rows = held_bytes = 0
        for table in runs.merged():
            held.append(table)
            held_rows += table.num_rows
            held_bytes += table.nbytes
            if held_rows >= ROW_GROUP_ROWS or held_bytes >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(held), row_group_size=ROW_GROUP_ROWS)
                held, held_rows, held_bytes = [], 0, 0
        if held:
            writer.write_table(pa.concat_tables(held), row_group_size=ROW_GROUP_ROWS)
    runs.remove()
    return total


class _Runs:
    """Rows that are being sorted: collected until they are many, then sorted and stored on disk."""

    def __init__(self, directory: Path, schema: pa.Schema, limit: int) -> None:
        self._directory = directory
        self._schema = schema
        self._keys = [(key, "ascending") for key in SORT_KEYS if key in schema.names]
        self._limit = limit
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: list[Path] = []

    def add(self, piece: pa.RecordBatch) -> None:
        self._held.append(piece)
        self._held_bytes += piece.nbytes
        if self._held_bytes >= self._limit:
            self._spill()

    def merged(self) -> Iterator[pa.Table]:
        """Yield all rows in order, some at a time."""
        if not self._files:
            yield self._sorted_held()
            return
        if self._held:
            self._spill()
        cursors = [_Cursor(path, self._keys) for path in self._files]
        cursors = [cursor for cursor in cursors if cursor.advance()]
        while cursors:
            # Rows beyond the smallest of the last rows must wait: an unread piece may have to precede them.
            bound = min(cursor.last for cursor in cursors)
            taken = [cursor.take(bound) for cursor in cursors]
            yield _sorted([table for table in taken if table.num_rows], self._keys)
            cursors = [cursor for cursor in cursors if cursor.rows or cursor.advance()]

    def remove(self) -> None:
        for path in self._files:
            path.unlink()

    def _sorted_held(self) -> pa.Table:
        table = pa.Table.from_batches(self._held, self._schema)
        self._held, self._held_bytes = [], 0
        return _sorted([table], self._keys)

    def _spill(self) -> None:
        table = self._sorted_held()
        path = self._directory / f"run-{len(self._files)}.arrow"
        rows = max(1, table.num_rows * SPILL_PIECE_BYTES // max(table.nbytes, 1))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self._schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        self._files.append(path)


class _Cursor:
    """A run, read piece by piece."""

    def __init__(self, path: Path, keys: list[tuple[str, str]]) -> None:
        self._reader = pa.ipc.open_stream(pa.OSFile(str(path), "rb"))
        self._keys = [key for key, _ in keys]
        self._columns: list[Any] = []
        self._piece: pa.RecordBatch | None = None
        self.last: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows in memory."""
        return 0 if self._piece is None else self._piece.num_rows

    def advance(self) -> bool:
        """Read the next piece; return False at the end."""
        for piece in self._reader:
            if piece.num_rows:
                self._hold(piece)
                return True
        self._piece = None
        return False

    def take(self, bound: tuple[int, ...]) -> pa.Table:
        """Return and remove the rows up to and including the bound."""
        assert self._piece is not None
        within = np.ones(self._piece.num_rows, dtype=bool)
        for column, value in zip(reversed(self._columns), reversed(bound), strict=True):
            within = (column < value) | ((column == value) & within)
        count = int(within.sum())
        taken, rest = self._piece.slice(0, count), self._piece.slice(count)
        self._columns = [column[count:] for column in self._columns]
        self._piece = rest
        return pa.Table.from_batches([taken])

    def _hold(self, piece: pa.RecordBatch) -> None:
        self._piece = piece
        self._columns = [_as_sortable(piece.column(key)) for key in self._keys]
        self.last = tuple(int(column[-1]) for column in self._columns)


def _sorted(tables: list[pa.Table], keys: list[tuple[str, str]]) -> pa.Table:
    table = pa.concat_tables(tables)
    if not keys or table.num_rows < 2:
        return table
    return table.take(pc.sort_indices(table, sort_keys=keys))


def _as_sortable(column: pa.Array) -> Any:
    # Arrow sorts nulls last.
    highest = int(np.iinfo(np.int64).max)
    return column.cast(pa.int64()).fill_null(highest).to_numpy(zero_copy_only=False)


def _pieces(path: Path, *, verified: bool = False) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, page_checksum_verification=verified) as file:
        rows = max(file.metadata.num_rows, 1)
        size = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
        count = min(max(PIECE_BYTES * rows // max(size, 1), 1), PIECE_ROWS)
        for piece in file.iter_batches(batch_size=count):
            yield _in_utc(piece)


def _common_schema(sources: Sequence[Path], metadata: Mapping[bytes, bytes]) -> pa.Schema:
    schemas = [pq.read_schema(source) for source in sources]
    described = {(schema.metadata or {}).get(SPARK_SCHEMA) for schema in schemas}
    common = pa.unify_schemas([_utc_schema(schema).remove_metadata() for schema in schemas])
    said = dict(metadata)
    spark = described.pop()
    if not described and spark is not None:
        said[SPARK_SCHEMA] = spark
    return common.with_metadata(said)


def _conformed(piece: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = piece.schema.names
    columns = [
        piece.column(field.name) if field.name in names else pa.nulls(piece.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _utc_schema(schema: pa.Schema) -> pa.Schema:
    utc = pa.timestamp("us", "UTC")
    fields = [field.with_type(utc) if pa.types.is_timestamp(field.type) else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _in_utc(piece: pa.RecordBatch) -> pa.RecordBatch:
    schema = _utc_schema(piece.schema)
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(piece.columns, schema, strict=True)], schema=schema
    )


def _as_numbers(column: pa.Array) -> Any:
    """Return each value as 64 bits, equal for equal values; nulls as the bits of an unlikely number."""
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        return _ids_as_numbers(column)
    wide = column.cast(pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64())
    filled = wide.fill_null(0x5EED) if wide.null_count else wide
    return filled.to_numpy(zero_copy_only=False).view(np.uint64)


def _ids_as_numbers(column: pa.Array) -> Any:
    # There are few producers: hash each of them once, in Python.
    encoded = column.cast(pa.binary()).dictionary_encode()
    hashes = np.array([_seed(value) for value in encoded.dictionary.to_pylist()] + [0x5EED], dtype=np.uint64)
    last = len(hashes) - 1
    return hashes[encoded.indices.fill_null(last).to_numpy(zero_copy_only=False)]


def _seed(value: str | bytes) -> int:
    content = value.encode() if isinstance(value, str) else value
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _mixed(numbers: Any) -> Any:
    """The last half of splitmix64: each bit of the input moves half of the output's."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _value_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_list(kind):
        return _value_bytes(column.flatten())
    if pa.types.is_struct(kind):
        return sum(_value_bytes(each) for each in column.flatten())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return 0
