"""Fixtures of the tests of the pipeline on Spark: one session for all of them, and real brokers.

The session and its JVM start when the first test asks for ``spark``; those that ask for neither need no Java.

1. One session for the whole run: a test names its own folders, views and topics, and stops its own queries. A test
   that leaves a query running fails, and the query is stopped for those after it.
2. Workers import the tree that is tested: its root is on their path, before anything installed. PySpark they take
   from the environment (``worker_path``): half of the time of a first write went into compiling it.
3. Nothing is left at the end: the JVM and all that it started are gone, the environment and the handler of SIGINT
   are as they were.
4. Without Java or the connector's jars these tests skip with the reason; in CI ``tests/conftest.py`` fails them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import (  # noqa: F401  (fixtures and the logs of a failed test's brokers)
    _kafka1_session,
    _kafka3_session,
    kafka1,
    kafka3,
    kafka_tools,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
    topic_name,
)
from tests.kafka_install import KafkaUnavailableError, find_or_install_connector
from tests.spark.jvm_archive import FLAGS, java_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WORKER_PATH = Path(__file__).with_name("worker_path")

JVM_FLAGS = f"{FLAGS} -XX:-UsePerfData"
"""It starts in two thirds of the time; a test's JVM does not live for as long as the better compiler takes."""

JVM_END_TIMEOUT = 60.0


def spark_environment() -> dict[str, str]:
    """What the environment of a JVM must say, whether it is the tests' own or that of a job as a process."""
    paths = [str(WORKER_PATH), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **java_options(),
    }


def spark_settings(jars: tuple[Path, ...], scratch: Path) -> dict[str, str]:
    """The configuration of a session for tests: small, on loopback, everything that it writes under ``scratch``."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{JVM_FLAGS} -Djava.io.tmpdir={scratch}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@pytest.fixture(scope="session")
def connector() -> tuple[Path, ...]:
    """The jars of Spark's Kafka connector; skips where they, or Java, are not to be had."""
    try:
        return find_or_install_connector()
    except KafkaUnavailableError as error:
        pytest.skip(f"no Spark: {error}")


@pytest.fixture(scope="session")
def _spark_session(
    connector: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="no Spark: the extra `spark` is not installed")
    scratch = tmp_path_factory.mktemp("spark")
    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment().items():
            patch.setenv(name, value)
        session = _start(spark_settings(connector, scratch))
        # Spark's handler cancels jobs, and stays when the session is gone.
        signal.signal(signal.SIGINT, handler)
        try:
            yield session
        finally:
            _end(session)
            signal.signal(signal.SIGINT, handler)


def _start(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("aioproduce-tests").master("local[2,3]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _end(session: SparkSession) -> None:
    """Stop the session and its JVM: PySpark leaves the latter, with its sockets, to the end of the process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc  # type: ignore[attr-defined, unused-ignore]
    # The JVM of PySpark lives as long as its standard input.
    assert process.stdin is not None
    process.stdin.close()
    process.wait(JVM_END_TIMEOUT)


@pytest.fixture
def spark(_spark_session: SparkSession) -> Iterator[SparkSession]:
    """The one session, for one test."""
    yield _spark_session
    left = _spark_session.streams.active
    for query in left:
        query.stop()
    assert left == [], "the test left queries running"
