"""The lake's names: the only text that the jobs and other engines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproduce.spark.layout import LandedBatch, Table, is_hidden, table_path

QUERY = "a1cc365a-d2bd-4c7e-adb1-071156ad6f08"


@pytest.mark.parametrize("name", ["7", "compact-7", f"{QUERY}", f"{QUERY}-", f"{QUERY}-1x", f"x{QUERY}-1"])
def test_what_is_no_batch_of_a_query(name: str) -> None:
    assert LandedBatch.parse(name) is None


def test_a_batch_has_its_name_back() -> None:
    assert LandedBatch(QUERY, 3).name == f"{QUERY}-3"
    assert LandedBatch.parse(f"{QUERY}-3") == LandedBatch(QUERY, 3)


def test_tables_lie_beside_each_other(tmp_path: Path) -> None:
    assert table_path("/lake/", Table.QUARANTINE) == "/lake/table=quarantine"


def test_hidden_names() -> None:
    assert [is_hidden(name) for name in ("_land", ".spark-staging-1", "part-0.parquet")] == [
        True,
        True,
        False,
    ]
