"""The lake's names: the only text that the jobs and other engines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproduce.spark.errors import LayoutError
from aioproduce.spark.layout import LandedBatch, PartitionPath, Table, is_hidden, table_path

QUERY = "a1cc365a-d2bd-4c7e-adb1-071156ad6f08"


def test_a_directory_says_what_is_in_it() -> None:
    path = f"table=data/topic=orders.v1/date=2026-11-22/hour=07/batch={QUERY}-12"
    read = PartitionPath.parse(path)
    assert read == PartitionPath(Table.DATA, "orders.v1", "2026-11-22", 7, f"{QUERY}-12")
    assert read.landed == LandedBatch(QUERY, 12)
    assert not read.is_compacted
    assert read.path == path
    assert read.hour_path == "table=data/topic=orders.v1/date=2026-11-22/hour=07"


def test_what_compaction_wrote_is_no_landed_batch() -> None:
    read = PartitionPath.parse("table=marks/topic=a/date=2026-11-22/hour=23/batch=compact-7f")
    assert read.is_compacted
    assert read.landed is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "table=data",
        f"table=other/topic=t/date=2026-11-22/hour=07/batch={QUERY}-1",
        f"table=data/topic=t/date=2026-11-22/hour=7/batch={QUERY}-1",
        f"table=data/topic=t/date=22.11.2026/hour=07/batch={QUERY}-1",
        f"/table=data/topic=t/date=2026-11-22/hour=07/batch={QUERY}-1",
        f"table=data/topic=t/date=2026-11-22/hour=07/batch={QUERY}-1/part-0.parquet",
    ],
)
def test_what_is_no_directory_of_a_lake_is_refused(path: str) -> None:
    with pytest.raises(LayoutError, match="is no directory of a lake") as raised:
        PartitionPath.parse(path)
    assert raised.value.path == path


@pytest.mark.parametrize("name", ["7", "compact-7", f"{QUERY}", f"{QUERY}-", f"{QUERY}-1x", f"x{QUERY}-1"])
def test_what_is_no_batch_of_a_query(name: str) -> None:
    assert LandedBatch.parse(name) is None


def test_a_batch_has_its_name_back() -> None:
    assert LandedBatch.parse(LandedBatch(QUERY, 3).name) == LandedBatch(QUERY, 3)


def test_tables_lie_beside_each_other(tmp_path: Path) -> None:
    assert table_path("/lake/", Table.QUARANTINE) == "/lake/table=quarantine"


def test_hidden_names() -> None:
    assert [is_hidden(name) for name in ("_land", ".spark-staging-1", "part-0.parquet")] == [
        True,
        True,
        False,
    ]
