"""An application for a cluster: the rows of the fault tests, slowly, by the sink; run by ``test_standalone``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tests.spark.fault_world import SLOW, options

WRITE = "standalone"
TASKS = 2
"""Of two cores, which Spark cuts the few small files into."""


def main(source: str, servers: str, topic: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    rows = spark.read.text(source)
    given = options(servers, topic, write_id=WRITE, rate_limit_records=SLOW)
    rows.write.format("aioproduce").mode("append").options(**given).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
