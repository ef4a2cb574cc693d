"""The Spark session of a job: on this machine with `python -m`, or the one prepared by spark-submit.

Invariants:

1. The user's settings (`--master`, `--conf`, spark-submit's options, spark-defaults.conf under spark-submit)
   override those set here, except for the time zone: dates and hours of the lake are UTC.
2. Workers use the driver's Python and aioproduce.
3. Java is checked before Spark is started, so that its absence is one line and not a traceback of Spark.
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
    # Throughput is more important than pauses: a job answers no requests.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of a session with driver and executor on this machine."""

COMMON_SETTINGS: Final = {
    "spark.log.level": "ERROR",
    # In addition to spark.redaction.regex, whose default leaves logins and keys readable in plans and event logs.
    "spark.sql.redaction.options.regex": "(?i)url|passphrase|jaas|keystore[.]key",
    # Spark's default is a Parquet type that was deprecated in 2016.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""The settings of every job's session."""


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
    """Provide a session for a job, and stop it at the end.

    Args:
        name: The application's name.
        settings: The job's settings of Spark.
        master: Where to run; by default spark-submit's choice, else all cores of this machine.
        own: The user's settings of Spark (`--conf`).
        jars: Files and folders to add (`--jars`).
        packages: Maven coordinates to add (`--packages`).
        needs_connector: Whether to check that Kafka can be read.

    Raises:
        JavaError: If Java is missing or too old.
        ConnectorMissingError: If the connector is needed and missing.
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
    # Imported late, because it is slow, and --help and invalid arguments do not need it.
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"aioproduce {name}")
    if master or not was_submitted:
        builder = builder.master(master or "local[*]")
    for key, value in {**chosen, **(own or {}), "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(key, value)
    handler = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    # Spark's own handler cancels jobs within a signal handler; ours ends the job with an exception.
    signal.signal(signal.SIGINT, handler)
    try:
        if needs_connector:
            check_connector(session)
        yield session
    finally:
        session.stop()


def is_submitted() -> bool:
    """Return whether spark-submit started this process, with a running JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare_environment() -> None:
    """Set the environment of the JVM and its workers, which inherit it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, paths)])
