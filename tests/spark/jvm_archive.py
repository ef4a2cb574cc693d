"""Spark's classes in a file (`tests.class_archive`): with it a JVM of the tests starts in half of the time.

``python -m tests.spark.jvm_archive`` makes the file, once in an environment (``make test`` does, before pytest);
the tests use it where it is there. It lies in the Python environment whose jars it is of, and its name is also of
when they were put there, which the JVM looks at.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import class_archive
from tests.kafka_install import KafkaUnavailableError, find_java

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MAKE_TIMEOUT = 300.0


def java_options() -> dict[str, str]:
    """What the environment of a JVM must say to have the archive; nothing where there is none."""
    archive = _archive()
    flags = () if archive is None else class_archive.flags(archive)
    return {"JDK_JAVA_OPTIONS": " ".join(f'"{flag}"' for flag in flags)} if flags else {}


@functools.cache
def _archive() -> Path | None:
    """Where it is, or would be; None where Java or PySpark is missing."""
    try:
        java = find_java()
        import pyspark
    except (KafkaUnavailableError, ImportError):
        return None
    about = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    made_from = (java, about, *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars))
    return class_archive.place(Path(sys.prefix), "spark-classes", made_from)


def dump(archive: Path) -> None:
    """Run `load_classes` in a process of its own, whose JVM ends with it.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.jvm_archive", str(archive), scratch],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            text=True,
            check=False,
            timeout=MAKE_TIMEOUT,
        )
    if done.returncode != 0:
        raise RuntimeError(f"no archive of Spark's classes was made:\n{done.stdout[-3000:]}")


def load_classes(archive: Path, scratch: Path) -> None:
    """A little of everything that the tests let Spark do, in a JVM that writes the archive at its end."""
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", " ".join((FLAGS, *class_archive.dump_flags(archive))))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    rows = spark.range(1000).selectExpr("id % 7 AS hour", "id", "cast(id AS string) AS value")
    rows.write.partitionBy("hour").parquet(str(scratch / "table"))
    rows.groupBy("hour").count().join(rows.select("hour").distinct(), "hour").orderBy("hour").collect()
    rows.select("value").write.text(str(scratch / "lines"))

    def again(some: DataFrame, number: int) -> None:
        some.write.mode("overwrite").parquet(str(scratch / f"batch-{number}"))

    lines = spark.readStream.text(str(scratch / "lines"))
    query = lines.mapInArrow(lambda batches: batches, "value string").writeStream.foreachBatch(again)
    query.option("checkpointLocation", str(scratch / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert spark.read.parquet(str(scratch / "batch-0")).count() == 1000
    spark.stop()


def main(arguments: list[str]) -> int:
    """Make the archive, and say where it is; without Java or PySpark there is nothing to be made."""
    if arguments:
        archive, scratch = map(Path, arguments)
        load_classes(archive, scratch)
        return 0
    if (place := _archive()) is None:
        return 0
    if class_archive.make(place, dump):
        print(f"Spark's classes for the JVMs of the tests: {place}")
    else:
        print("this Java has written no archive of Spark's classes: the JVMs of the tests start without")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
