"""The tests' own session: what all tests of this folder stand on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyspark

from tests.spark.conftest import ROOT
from tests.spark.in_workers import where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_has_the_connector_and_its_workers_the_tree_that_is_tested(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    rows = spark.range(1).mapInArrow(where, "file string, pyspark string, python string").collect()
    assert [row.file for row in rows] == [str(ROOT / "aioproduce" / "__init__.py")]
    assert [row.pyspark for row in rows] == [pyspark.__file__]
    assert [row.python for row in rows] == [sys.executable]
    fields = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    )
    assert fields.load().columns[:3] == ["key", "value", "topic"]
