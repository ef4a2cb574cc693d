"""Spark's own Kafka connector, which the jobs read through: whether it is there, and how it is brought.

PySpark comes without it. It is four jars from Maven Central; `coordinates` is what Spark's own dependency
resolution takes, and `JARS` what there is to copy where that resolves nothing.
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
"""What Spark 4 is built with."""

JARS: Final = (
    f"spark-sql-kafka-0-10_{SCALA}",
    f"spark-token-provider-kafka-0-10_{SCALA}",
    "kafka-clients",
    "commons-pool2",
)
"""The names of the jars that the connector is made of, without versions."""


def coordinates(spark_version: str | None = None) -> str:
    """What `--packages` and `spark.jars.packages` take: the connector of the Spark that is installed.

    Args:
        spark_version: By default that of PySpark here.
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark_version or version('pyspark')}"


def jars_of(places: Sequence[str]) -> list[str]:
    """The jars that are meant by files, folders and URLs.

    Args:
        places: As the option `--jars` has them; of a folder all its jars.

    Raises:
        ConnectorMissingError: a local file is not there, or a folder is without jars.
    """
    found: list[str] = []
    for place in places:
        path = Path(place)
        if "://" in place:
            found.append(place)
        elif path.is_dir():
            inside = sorted(str(jar) for jar in path.glob("*.jar"))
            if not inside:
                raise _missing(f"no jar is in {place}")
            found += inside
        elif path.is_file():
            found.append(str(path))
        else:
            raise _missing(f"no such jar: {place}")
    return found


def check_connector(spark: SparkSession) -> None:
    """See that a session can read from Kafka.

    Raises:
        ConnectorMissingError: it cannot.
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
        f"{what}: Spark's Kafka connector comes by `--packages {text}`, or, where that resolves nothing, as four"
        f" jars ({', '.join(JARS)}: copy them with `mvn dependency:copy`) and `--jars <folder>`; under spark-submit"
        " these are options of spark-submit",
        coordinates=text,
    )
