"""The sink through Spark Connect: a server and its client in a process of their own, next to the tests' session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import ROOT, spark_environment
from tests.spark.test_sink_spark import read_back

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.extended("starts a Spark Connect server")

CONNECT_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

servers, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.remote("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": topic, "stamp": "off"}
rows = spark.range(20).selectExpr("concat('row-', id) AS value")
rows.write.format("aioproduce").mode("append").options(**options).save()
import aioproduce.spark
aioproduce.spark.register(spark)
rows.limit(1).write.format("aioproduce").mode("append").options(**options).save()
try:
    rows.write.format("aioproduce").mode("append").options(**options, colour="red").save()
except Exception as error:
    print(type(error).__module__, str(error))
spark.stop()
"""


def test_through_spark_connect(
    spark: SparkSession, kafka1: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    kafka1.create_topic(topic_name)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "512m",
        "spark.local.dir": str(tmp_path),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }

    done = subprocess.run(
        [sys.executable, "-c", CONNECT_PROGRAM, kafka1.bootstrap_servers, topic_name, json.dumps(settings)],
        cwd=ROOT,
        # By which PySpark lets its server choose a port, and its client ask for it.
        env={**os.environ, **spark_environment(), "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("pyspark.errors.exceptions.connect"), done.stdout
    assert "OptionError: unknown option 'colour'" in done.stdout
    found = Counter(bytes(row.value) for row in read_back(spark, kafka1, topic_name))
    assert len(found) == 20
    assert found.total() == 21
