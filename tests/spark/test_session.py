"""The tests' own session: what all tests of this folder stand on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker: what it imports, and with which Python."""
    import pyarrow

    import aioproduce

    for _ in batches:
        row = {"file": aioproduce.__file__, "python": sys.executable, "zone": os.environ.get("TZ", "")}
        yield pyarrow.RecordBatch.from_pylist([row])


def test_the_session_has_the_connector_and_its_workers_the_tree_that_is_tested(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    rows = spark.range(1).mapInArrow(_where, "file string, python string, zone string").collect()
    assert [row.file for row in rows] == [str(ROOT / "aioproduce" / "__init__.py")]
    assert [row.python for row in rows] == [sys.executable]
    fields = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    )
    assert fields.load().columns[:3] == ["key", "value", "topic"]
