"""The audit's passes in Spark's workers give what they give in one process; a job's error comes back as itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproduce.spark.errors import LayoutError
from aioproduce.spark.jobs.audit import AuditOptions, audit
from tests.spark.lake_making import Row, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_find_what_one_process_finds(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Row(number % 3, number // 3, partition=number % 2) for number in range(3000)]
    damaged = [row for row in rows if row.number % 500 != 7] + [
        Row(1, 9, partition=1),
        Row(2, 11, checksum=5),
    ]
    write_files(tmp_path, [damaged[:2000], damaged[2000:], [Row(None), Row(0, 70_000)]])
    told = []
    for session, reader in ((None, "auto"), (spark, "files"), (spark, "spark")):
        report = audit(AuditOptions(str(tmp_path), reader=reader), session).to_json()
        told.append(
            {
                name: report[name]
                for name in report
                if name not in ("seconds", "rows_per_second", "files", "size")
            }
        )
    assert told[0] == told[1] == told[2]
    assert (told[0]["lost"], told[0]["duplicates"], told[0]["conflicts"]) == (69_006, 1, 1)


def test_a_damaged_file_fails_the_audit_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    (file,) = write_files(tmp_path, [[Row(1, 0)]])
    Path(file.path).write_bytes(b"PAR1")
    with pytest.raises(LayoutError, match="cannot be read as Parquet") as caught:
        audit(AuditOptions(str(tmp_path), reader="files"), spark)
    assert file.path in str(caught.value)
