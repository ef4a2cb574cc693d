"""The Spark session of a job: on this machine with `python -m`, or the one that spark-submit has made ready.

Invariants:

1. What the user says (`--master`, `--conf`, spark-submit's options, spark-defaults.conf under spark-submit) goes
   before what is set here, but for the time zone: dates and hours of the lake are UTC.
2. Workers run the same Python as the driver, and import the same aioproduce.
3. Java is looked for before Spark is started, so that its absence is one line and not a traceback of Spark's.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproduce.spark.connector import check_connector, jars_of
from aioproduce.spark.requirements import check_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_ROOT: Final = Path(__file__).parents[3]

LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Throughput before pauses: a job answers nobody.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""For a session that is driver and executor on this machine."""

COMMON_SETTINGS: Final = {
    "spark.log.level": "ERROR",
    # On top of spark.redaction.regex, whose default leaves a login and a key readable in plans and event logs.
    "spark.sql.redaction.options.regex": "(?i)url|passphrase|jaas|keystore[.]key",
    # Spark's default is a type of Parquet's that was given up in 2016.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""For every job's session."""


@contextmanager
def job_session(
    name: str,
    settings: Mapping[str, str],
    *,
    master: str | None = None,
    own: Mapping[str, str] | None = None,
    jars: Sequence[str] = (),
    packages: str | None = None,
    needs_connector: bool = False,
) -> Iterator[SparkSession]:
    """A session for a job, which ends with it.

    Args:
        name: The application's.
        settings: What the job wants of Spark.
        master: Where to run; by default what spark-submit says, else all cores of this machine.
        own: What the user wants of Spark (`--conf`).
        jars: Files and folders to add (`--jars`).
        packages: Maven coordinates to add (`--packages`).
        needs_connector: See that Kafka can be read.

    Raises:
        JavaError: Java is missing or too old.
        ConnectorMissingError: the connector is needed and not there.
    """
    was_submitted = is_submitted()
    chosen = {**COMMON_SETTINGS, **settings}
    if not was_submitted:
        check_java()
        _prepare_environment()
        chosen = {**LOCAL_SETTINGS, **chosen}
    if found := jars_of(jars):
        chosen["spark.jars"] = ",".join(found)
    if packages:
        chosen["spark.jars.packages"] = packages
    # At last, because it is slow, and --help and bad arguments need none of it.
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"aioproduce {name}")
    if master or not was_submitted:
        builder = builder.master(master or "local[*]")
    for key, value in {**chosen, **(own or {}), "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(key, value)
    handler = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    # Spark's own cancels jobs in the midst of a signal handler; ours ends the job by an exception.
    signal.signal(signal.SIGINT, handler)
    try:
        if needs_connector:
            check_connector(session)
        yield session
    finally:
        session.stop()


def is_submitted() -> bool:
    """Whether spark-submit started this process, beside a JVM that is there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare_environment() -> None:
    """For the JVM and the workers that it starts, which inherit it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, paths)])
