"""Spark's own Kafka connector, which the jobs read with: whether it is present, and how to install it.

PySpark does not include it. It is four jars from Maven Central. `coordinates` is for Spark's own dependency
resolution, and `JARS` lists the files to copy where that is not possible.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproduce.spark.errors import ConnectorMissingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

SCALA: Final = "2.13"
"""The Scala version of Spark 4."""

JARS: Final = (
    f"spark-sql-kafka-0-10_{SCALA}",
    f"spark-token-provider-kafka-0-10_{SCALA}",
    "kafka-clients",
    "commons-pool2",
)
"""The names of the connector's jars, without versions."""


def coordinates(spark_version: str | None = None) -> str:
    """Return the coordinates for `--packages` and `spark.jars.packages`: the connector of the installed Spark.

    Args:
        spark_version: By default that of the installed PySpark.
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark_version or version('pyspark')}"


def jars_of(places: Sequence[str]) -> list[str]:
    """Return the jars for files, folders and URLs.

    Args:
        places: The values of the option `--jars`; a folder stands for all its jars.

    Raises:
        ConnectorMissingError: If a local file does not exist, or if a folder has no jars.
    """
    found: list[str] = []
    for place in places:
        path = Path(place)
        if "://" in place:
            found.append(place)
        elif path.is_dir():
            inside = sorted(str(jar) for jar in path.glob("*.jar"))
            if not inside:
                raise _missing(f"there is no jar in {place}")
            found += inside
        elif path.is_file():
            found.append(str(path))
        else:
            raise _missing(f"no such jar: {place}")
    return found


def check_connector(spark: SparkSession) -> None:
    """Check that a session can read from Kafka.

    Raises:
        ConnectorMissingError: If it cannot.
    """
    lookup = spark.sparkContext._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr]  # started: it has one
    conf = spark._jsparkSession.sessionState().conf()
    try:
        lookup.lookupDataSource("kafka", conf)
    except Exception as error:
        raise _missing("Spark does not know the data source `kafka`") from error


def _missing(what: str) -> ConnectorMissingError:
    text = coordinates()
    return ConnectorMissingError(
        f"{what}: install Spark's Kafka connector with `--packages {text}` or, where that is not possible, "
        f"with four jars ({', '.join(JARS)}: copy them with `mvn dependency:copy`) and `--jars <folder>`; "
        "under spark-submit these are options of spark-submit",
        coordinates=text,
    )
