"""What is read from a checkpoint, against files as Spark 4.2 wrote them (copied from one)."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproduce.spark.checkpoint import format_offsets, parse_offsets, read_checkpoint
from aioproduce.spark.errors import CheckpointError

QUERY = "a1cc365a-d2bd-4c7e-adb1-071156ad6f08"
OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795352490000,"conf":{"spark.sql.shuffle.partitions":"200"}}\n'
    '{"orders":{"1":20,"0":17},"aioproduce.audit":{"0":3}}'
)


def spark_checkpoint(path: Path, *, planned: int, committed: int) -> Path:
    """A checkpoint with batches up to these, oldest removed as Spark does."""
    commit = 'v1\n{"nextBatchWatermarkMs":0}'
    for folder, last, text in (("offsets", planned, OFFSETS), ("commits", committed, commit)):
        (path / folder).mkdir(parents=True)
        for number in range(max(0, last - 2), last + 1):
            (path / folder / str(number)).write_text(text)
            (path / folder / f".{number}.crc").write_bytes(b"crc")
    (path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    return path


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path / "none")) is None


def test_a_query_that_has_not_begun_a_batch(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    read = read_checkpoint(str(tmp_path))
    assert read is not None
    assert (read.query_id, read.committed, read.planned, read.has_unfinished) == (QUERY, -1, -1, False)


@pytest.mark.parametrize(("planned", "committed"), [(0, -1), (0, 0), (12, 11), (12, 12), (10, 9)])
def test_what_is_committed_and_what_is_not(tmp_path: Path, planned: int, committed: int) -> None:
    read = read_checkpoint(str(spark_checkpoint(tmp_path, planned=planned, committed=committed)))
    assert read is not None
    assert (read.committed, read.planned) == (committed, planned)
    assert read.has_unfinished is (planned > committed)


def test_a_number_is_no_text(tmp_path: Path) -> None:
    # By name 9 comes after 10.
    read = read_checkpoint(str(spark_checkpoint(tmp_path, planned=10, committed=10)))
    assert read is not None
    assert read.committed == 10


def test_where_a_batch_ends(tmp_path: Path) -> None:
    read = read_checkpoint(f"file://{spark_checkpoint(tmp_path, planned=3, committed=2)}")
    assert read is not None
    assert read.end_offsets(3) == {"orders": {0: 17, 1: 20}, "aioproduce.audit": {0: 3}}
    with pytest.raises(CheckpointError, match="offsets/9 is missing"):
        read.end_offsets(9)


def test_offsets_as_spark_writes_them() -> None:
    offsets = parse_offsets('{"b":{"10":1,"2":-2},"a":{"0":9007199254740993}}')
    assert offsets == {"b": {10: 1, 2: -2}, "a": {0: 9007199254740993}}
    assert format_offsets(offsets) == '{"a":{"0":9007199254740993},"b":{"2":-2,"10":1}}'


@pytest.mark.parametrize("text", ["", "[]", "-", '{"a":1}', '{"a":{"x":1}}', '{"a":{"0":null}}', "nonsense"])
def test_what_are_no_offsets(text: str) -> None:
    with pytest.raises(CheckpointError, match="not offsets of Kafka"):
        parse_offsets(text)


@pytest.mark.parametrize("metadata", ["", "{}", "[]", '"id"', "not json"])
def test_a_damaged_checkpoint_is_no_empty_one(tmp_path: Path, metadata: str) -> None:
    (spark_checkpoint(tmp_path, planned=1, committed=0) / "metadata").write_text(metadata)
    with pytest.raises(CheckpointError, match="metadata is not Spark's"):
        read_checkpoint(str(tmp_path))


def test_batches_of_nobody_are_an_error(tmp_path: Path) -> None:
    (spark_checkpoint(tmp_path, planned=1, committed=0) / "metadata").unlink()
    with pytest.raises(CheckpointError, match="no file `metadata`") as raised:
        read_checkpoint(str(tmp_path))
    assert raised.value.path == str(tmp_path)


def test_sources_of_nobody_are_an_error(tmp_path: Path) -> None:
    # A new query would begin where these say.
    (tmp_path / "sources" / "0").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="sources but no file `metadata`"):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize("text", ["v1", "v1\n{}", "v1\n{}\n{}\n{}", "x\n{}\n{}", ""])
def test_offsets_of_another_kind_of_query(tmp_path: Path, text: str) -> None:
    (spark_checkpoint(tmp_path, planned=1, committed=0) / "offsets" / "1").write_text(text)
    read = read_checkpoint(str(tmp_path))
    assert read is not None
    with pytest.raises(CheckpointError, match="does not belong to a query with one source"):
        read.end_offsets(1)
