"""Many Parquet files into one: sorted, in bounded memory, and what tells that nothing is missing. No JVM."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.spark import merging
from aioproduce.spark.merging import SPARK_SCHEMA, Digest, digest_of, digest_of_file, merge_files
from tests.spark.lake_harness import SCHEMA, rows

if TYPE_CHECKING:
    from pathlib import Path

ORDER = [("partition", "ascending"), ("offset", "ascending")]


def write(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def digest(table: pa.Table) -> Digest:
    total = Digest()
    for batch in table.to_batches():
        total += digest_of(batch)
    return total


def test_many_runs_on_disk_are_merged_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that there are dozens of runs, each read in several pieces."""
    monkeypatch.setattr(merging, "SPILL_PIECE_BYTES", 2000)
    monkeypatch.setattr(merging, "PIECE_BYTES", 5000)
    monkeypatch.setattr(merging, "ROW_GROUP_ROWS", 700)
    numbers = list(range(3000))
    random.Random(1).shuffle(numbers)
    sources = [write(tmp_path / f"{n}.parquet", rows(numbers[n::5])) for n in range(5)]
    target = tmp_path / "out.parquet"
    expected = merge_files(sources, target, memory_bytes=40_000)
    merged = pq.ParquetFile(target)
    assert merged.read().to_pylist() == rows(range(3000)).sort_by(ORDER).to_pylist()
    assert expected.rows == 3000
    assert digest_of_file(target) == expected == digest(rows(range(3000)))
    assert merged.num_row_groups >= 4
    assert list(tmp_path.glob("run-*")) == []


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_rows_also_with_the_same_keys(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    tables = [rows(part, partitions=partitions) for part in parts]
    sources = [write(folder / f"{n}.parquet", table) for n, table in enumerate(tables)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "SPILL_PIECE_BYTES", 500)
        expected = merge_files(sources, folder / "out.parquet", memory_bytes=4000)
    found = pq.ParquetFile(folder / "out.parquet").read()
    assert found.to_pylist() == pa.concat_tables(tables).sort_by(ORDER).to_pylist()
    assert digest_of_file(folder / "out.parquet") == expected


def test_a_digest_sees_what_is_lost_doubled_or_changed() -> None:
    table = rows(range(50))
    whole = digest(table)
    assert digest(table.slice(20)) + digest(table.slice(0, 20)) == whole
    assert digest(table.slice(1)) != whole
    assert digest(pa.concat_tables([table.slice(1), table.slice(1, 1)])).rows == whole.rows
    assert digest(pa.concat_tables([table.slice(1), table.slice(1, 1)])) != whole
    for name in ("partition", "offset", "sequence", "checksum", "timestamp", "producer_id"):
        place = table.schema.get_field_index(name)
        values = table[name].to_pylist()
        values[7], values[8] = values[8], values[7]
        if table[name].to_pylist() != values:
            changed = table.set_column(place, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
            assert digest(changed) != whole, name
    emptied = table.set_column(1, SCHEMA.field("value"), pa.array([b""] * 50))
    assert digest(emptied).bytes < whole.bytes


def test_null_is_not_zero() -> None:
    column = pa.array([None, 0], pa.int64())
    one, other = (pa.record_batch({"sequence": column.slice(place, 1)}) for place in (0, 1))
    assert digest_of(one) != digest_of(other)


def test_sparks_instants_and_its_description_of_the_columns(tmp_path: Path) -> None:
    """INT96, as Spark writes by default, is read by Arrow as nanoseconds, which Spark refuses to read back."""
    described = rows(range(10)).replace_schema_metadata({SPARK_SCHEMA: b"{}", b"other": b"x"})
    old = write(tmp_path / "old.parquet", described, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(old).schema_arrow.field("timestamp").type == pa.timestamp("ns")
    new = write(tmp_path / "new.parquet", described)
    merge_files([old, new], tmp_path / "out.parquet", memory_bytes=1 << 20, metadata={b"mine": b"1"})
    merged = pq.ParquetFile(tmp_path / "out.parquet")
    columns = [merged.schema.column(number) for number in range(len(merged.schema))]
    (column,) = [column for column in columns if column.name == "timestamp"]
    assert column.physical_type == "INT64"
    assert "microseconds" in str(column.logical_type)
    assert merged.schema_arrow.field("timestamp").type == pa.timestamp("us", "UTC")
    assert merged.metadata.metadata[SPARK_SCHEMA] == b"{}"
    assert merged.metadata.metadata[b"mine"] == b"1"
    assert b"other" not in merged.metadata.metadata
    expected = sorted(rows(range(10))["timestamp"].to_pylist() * 2)
    assert sorted(merged.read()["timestamp"].to_pylist()) == expected


def test_a_page_that_is_damaged_after_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    merge_files([write(tmp_path / "in.parquet", rows(range(500)))], path, memory_bytes=1 << 20)
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        digest_of_file(path)


def test_rows_of_a_megabyte_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    table = pa.table({"value": [bytes(1 << 20)] * 12, "partition": [0] * 12, "offset": list(range(12))})
    path = write(tmp_path / "in.parquet", table, compression="none", use_dictionary=False)
    assert max(piece.num_rows for piece in merging._pieces(path)) <= 4
