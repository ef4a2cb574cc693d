"""Log files to Kafka by Spark, through `format("aioproduce")`: no jar and no other code is needed.

    python -m examples.lake.logs FOLDER --bootstrap-servers HOST:PORT --topic logs --write-id logs-1

If a Python worker is killed or a task repeats, the same records get the same stamps: Spark reads the files in the
same order each time, and `write.id` names the load.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def session() -> SparkSession:
    """Return a session with two tasks at once, three attempts each. Without the 3, a local Spark does not retry."""
    return (
        SparkSession.builder.appName("logs")
        .master("local[2,3]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.pyspark.python", sys.executable)
        # A tenth of Spark's default: the load is small, and should take a while.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", 1_000)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def main(options: argparse.Namespace) -> None:
    """Write all lines of the folder's files to Kafka, once."""
    spark = session()
    try:
        lines = spark.read.text(str(options.folder))
        (
            lines.write.format("aioproduce")
            .mode("append")
            .option("kafka.bootstrap.servers", options.bootstrap_servers)
            .option("topic", options.topic)
            .option("write.id", options.write_id)
            .option("rate.limit.records", options.rate // 2)  # for each of the two tasks
            .option("metrics.path", str(options.metrics))
            .save()
        )
    finally:
        spark.stop()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.lake.logs", description=__doc__)
    parser.add_argument("folder", type=Path, help="text files")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="logs")
    parser.add_argument(
        "--write-id", required=True, help="the name of this load; repeat a load under the same name"
    )
    parser.add_argument("--rate", type=int, default=5_000, help="records a second, both tasks together")
    parser.add_argument(
        "--metrics", type=Path, required=True, help="the file in which the sink reports each write"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
