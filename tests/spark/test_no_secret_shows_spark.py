"""What Spark shows of a write with secrets among its options: plans, event log, the driver's log, and its error.

A session of its own, in a process: event logs and redaction are chosen before a session begins. The program plants
nothing by itself: the secrets come by standard input, and everything that it prints is searched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from aioproduce.spark.jobs.session import COMMON_SETTINGS
from aioproduce.testing import ClusterThread, FakeSecurity
from tests.security.leaks import Shown
from tests.spark.conftest import ROOT, spark_environment, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.extended("starts its own Spark session")]

PASSWORD: Final = "pass-word/of+alice-Kd83hs"
WRONG: Final = "another/word+of-nobody-Pw52nf"
KEY_PASSWORD: Final = "key-word/of+alice-Zt47qm"
KEY: Final = "MIIEvgIBADANBgkqhkiG9w0BAQEFAASC"
PROGRAM: Final = """
import json, sys
from pyspark.sql import SparkSession

given = json.loads(sys.stdin.read())
builder = SparkSession.builder.master("local[1]").appName("secrets")
for name, value in given["settings"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("INFO")  # at DEBUG Spark prints each statement, and its source's parameters
rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")

def write(options):
    writer = rows.write.format("aioproduce").mode("append").options(**options)
    try:
        writer.save()
        print("WRITTEN")
    except Exception as error:
        print("REFUSED", type(error).__name__, error, getattr(error, "__cause__", None))

for options in given["writes"]:
    write(options)
    columns = "(value STRING) USING aioproduce OPTIONS (" + ", ".join(
        f"`{name}` {json.dumps(value)}" for name, value in options.items()) + ")"
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW sink " + columns)
    print(spark.sql("EXPLAIN EXTENDED INSERT INTO sink SELECT CAST(id AS STRING) FROM range(3)").first()[0])
    source = {name: value for name, value in options.items() if name.startswith("kafka.")}
    try:
        spark.read.format("kafka").options(**source, subscribe="t").load().explain("extended")
    except Exception as error:  # its Java client has other ways to log in
        print("UNREAD", error)
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for number in range(executions.size()):
        print(executions.apply(number).physicalPlanDescription(), executions.apply(number).modifiedConfigs())
spark.stop()
"""


def run(connector: tuple[Path, ...], folder: Path, extra: dict[str, str]) -> tuple[Shown, str]:
    """What Spark showed of a write that goes and one that is refused, and what the program printed."""
    events = folder / "events"
    events.mkdir()
    with ClusterThread(
        1,
        topics={"t": 1, "aioproduce.audit": 1},
        security=FakeSecurity("SASL_PLAINTEXT", users={"alice": PASSWORD}),
    ) as cluster:
        writes = [
            {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.ssl.key.password": KEY_PASSWORD,
                "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {KEY} -----END PRIVATE KEY-----",
                "kafka.ssl.keystore.certificate.chain": "a chain",
                "topic": "t",
                "topic.timeout.ms": "10000",
                **login,
            }
            for login in (
                {
                    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                    f"username='alice' password='{PASSWORD}';"
                },
                {"kafka.sasl.username": "alice", "kafka.sasl.password": WRONG},
            )
        ]
        settings = {
            **spark_settings(connector, folder),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            **extra,
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps({"settings": settings, "writes": writes}),
            cwd=ROOT,
            env={**os.environ, **spark_environment()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(cluster.records("t")) == 3
    shown = Shown()
    shown.add("output", done.stdout)
    shown.add("the driver's log", done.stderr)
    logs = [path for path in events.rglob("*") if path.is_file()]
    shown.add("event log", *(path.read_text() for path in logs))
    assert any("SparkListenerSQLExecutionStart" in text for text in shown.texts["event log"])
    return shown, done.stdout


SECRETS: Final = {"password": PASSWORD, "wrong password": WRONG, "key's password": KEY_PASSWORD, "key": KEY}


def test_with_the_redaction_of_our_jobs_nothing_is_shown(connector: tuple[Path, ...], tmp_path: Path) -> None:
    redaction = "spark.sql.redaction.options.regex"
    shown, out = run(connector, tmp_path, {redaction: COMMON_SETTINGS[redaction]})
    assert out.count("WRITTEN") == 1
    assert "REFUSED" in out
    assert "sasl.password" in out  # which Spark's error names
    assert "*********(redacted)" in out
    assert shown.leaks(SECRETS) == {}


def test_without_it_spark_shows_a_key_and_the_search_finds_it(
    connector: tuple[Path, ...], tmp_path: Path
) -> None:
    """Spark's default looks for words like `password` in name and value; a key in PEM has none of them."""
    shown, _ = run(connector, tmp_path, {})
    found = shown.leaks(SECRETS)
    assert found
    assert set().union(*found.values()) == {"key"}
