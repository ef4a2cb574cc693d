"""The sink's driver side without a JVM: topics, writers, what is told at the end, and what must be installed."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StringType, StructField, StructType

import pyspark_aioproduce
from aioproduce.audit.mark import Mark
from aioproduce.config import ProducerConfig
from aioproduce.errors import MissingExtraError
from aioproduce.spark import requirements, topics
from aioproduce.spark.datasource import AioproduceDataSource, AtLeastOnceStreamWriter, AtLeastOnceWriter
from aioproduce.spark.errors import (
    ColumnError,
    JavaError,
    OptionError,
    RowError,
    SparkPipelineError,
    TopicError,
)
from aioproduce.spark.ids import task_id
from aioproduce.spark.report import LOG, TaskReport, WriteSummary, summarize, tell
from tests.spark.conftest import ROOT
from tests.spark.task_bench import AUDIT, QUERY, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aioproduce.testing import ClusterThread

VALUES = StructType([StructField("value", StringType())])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_AGAIN_AFTER", 0.01)


@pytest.fixture
def found() -> Iterator[ClusterThread]:
    with cluster(t=2) as running:
        yield running


def source(running: ClusterThread, **options: str) -> AioproduceDataSource:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return AioproduceDataSource({"kafka.bootstrap.servers": running.bootstrap_servers, "topic": "t", **named})


class StubContext:
    """What `TaskContext.get()` tells in a worker."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name.rpartition(".")[2])

    def partitionId(self) -> int:
        return 1

    def attemptNumber(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 7


def task_of(monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: StubContext(**properties))


def batches(count: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": [f"row-{row}" for row in range(count)]})])


def written(writer: DataSourceArrowWriter, count: int) -> TaskReport:
    report = writer.write(batches(count))
    assert isinstance(report, TaskReport)
    return report


# -- topics ---


def check(servers: str, *names: str, timeout: float = 10.0, **settings: object) -> None:
    config = ProducerConfig.from_mapping({"bootstrap.servers": servers, **settings})
    topics.check_topics(config, names, timeout)


def test_topics_that_are_there(found: ClusterThread) -> None:
    check(found.bootstrap_servers, "t", "aioproduce.audit", "t")
    check(found.bootstrap_servers)


def test_a_missing_topic_is_refused_and_not_created(found: ClusterThread) -> None:
    with pytest.raises(TopicError, match=r"topic 'orders' does not exist: create it, e\.g\. with") as caught:
        check(found.bootstrap_servers, "t", "orders")

    assert (caught.value.topic, caught.value.is_missing) == ("orders", True)
    assert "orders" not in found.topics


def test_a_broker_that_would_create_it_is_not_made_to() -> None:
    from aioproduce.testing import ClusterThread

    with ClusterThread(auto_create_topics=True) as running:
        with pytest.raises(TopicError, match="does not exist"):
            check(running.bootstrap_servers, "orders")
        assert list(running.topics) == []


def test_a_topic_that_was_made_a_moment_ago_is_waited_for(
    found: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def make_it(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 2:
            found.create_topic("new", partitions=1)

    monkeypatch.setattr(time, "sleep", make_it)
    check(found.bootstrap_servers, "new")

    assert len(asked) == 2


def test_a_topic_that_is_denied(found: ClusterThread) -> None:
    found.deny_topic("t")

    with pytest.raises(TopicError, match="the cluster denies topic 't'") as caught:
        check(found.bootstrap_servers, "t")
    assert not caught.value.is_missing


def test_a_name_that_is_none(found: ClusterThread) -> None:
    with pytest.raises(TopicError, match="is not a valid topic name: use letters, digits"):
        check(found.bootstrap_servers, "a/b")


def test_no_broker_answers() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]  # bound, and nobody listens
        with pytest.raises(
            TopicError, match=rf"no broker of 127\.0\.0\.1:{port} answered within 0\.1 s"
        ) as caught:
            check(f"127.0.0.1:{port}", "t", timeout=0.1)
    assert "kafka.bootstrap.servers" in str(caught.value)
    assert not caught.value.is_missing


def test_a_server_that_says_nothing_leaves_time_for_the_next(found: ClusterThread) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        both = f"127.0.0.1:{silent.getsockname()[1]},{found.bootstrap_servers}"
        check(both, "t", **{"socket.connection.setup.timeout.ms": 50})


def test_a_server_that_closes_instead_of_answering() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def close_all() -> None:
            server.settimeout(0.02)
            while not stopped.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=close_all)
        thread.start()
        try:
            with pytest.raises(TopicError, match="answered within"):
                check(f"127.0.0.1:{server.getsockname()[1]}", "t", timeout=0.2)
        finally:
            stopped.set()
            thread.join()


# -- the data source ---


def test_spark_finds_it_by_its_name() -> None:
    assert pyspark_aioproduce.DefaultSource is AioproduceDataSource
    assert AioproduceDataSource.name() == "aioproduce"


def test_a_writer_for_each_kind_of_write(found: ClusterThread) -> None:
    assert type(source(found).writer(VALUES, overwrite=False)) is AtLeastOnceWriter
    assert type(source(found).streamWriter(VALUES, overwrite=False)) is AtLeastOnceStreamWriter
    # Output mode complete: all rows are appended, as Spark's own sink does.
    assert type(source(found).streamWriter(VALUES, overwrite=True)) is AtLeastOnceStreamWriter


def test_overwriting_is_refused(found: ClusterThread) -> None:
    with pytest.raises(
        OptionError, match=r"a topic cannot be overwritten, only appended to\. Use \.mode\('append'\)"
    ):
        source(found).writer(VALUES, overwrite=True)


def test_a_streaming_query_has_an_id_of_its_own(found: ClusterThread) -> None:
    with pytest.raises(OptionError, match=r"write\.id='a' is for batch writes"):
        source(found, write_id="a").streamWriter(VALUES, overwrite=False)


def test_reading_is_refused_with_what_reads(found: ClusterThread) -> None:
    with pytest.raises(ColumnError, match=r"read with format\('kafka'\); in SQL list the columns"):
        source(found).schema()
    for reader in (source(found).reader, source(found).streamReader):
        with pytest.raises(SparkPipelineError, match=r"is a sink: read with format\('kafka'\)"):
            reader(VALUES)


@pytest.mark.parametrize(
    ("option", "value"), [("topic", "orders"), ("audit_topic", "marks"), ("dead_letter_topic", "bad")]
)
def test_a_missing_topic_is_refused_before_any_row_moves(
    found: ClusterThread, option: str, value: str
) -> None:
    more = {"on_error": "dead_letter"} if option == "dead_letter_topic" else {}

    with pytest.raises(TopicError, match=f"topic '{value}' does not exist"):
        source(found, **{option: value}, **more).writer(VALUES, overwrite=False)


def test_topics_of_marks_are_not_asked_for_where_there_are_none(found: ClusterThread) -> None:
    source(found, audit_topic="marks", stamp="off").writer(VALUES, overwrite=False)
    found.delete_topic("aioproduce.audit")  # the default one may be missing
    source(found).writer(VALUES, overwrite=False)


def test_what_commits_asks_no_cluster(found: ClusterThread) -> None:
    fresh = source(found)
    travelled = pickle.loads(pickle.dumps(fresh))
    found.stop()

    assert type(travelled.streamWriter(VALUES, overwrite=False)) is AtLeastOnceStreamWriter
    with pytest.raises(TopicError, match="answered within"):
        source(found, topic_timeout_ms="50").streamWriter(VALUES, overwrite=False)


@pytest.mark.parametrize(
    ("path", "problem"), [("nowhere/m.json", "there is no directory"), (".", "it is a directory")]
)
def test_a_metrics_path_that_cannot_be_written(
    found: ClusterThread, tmp_path: Path, path: str, problem: str
) -> None:
    with pytest.raises(OptionError, match=f"{problem}.*name a file on the driver") as caught:
        source(found, metrics_path=str(tmp_path / path)).writer(VALUES, overwrite=False)
    assert caught.value.option == "metrics.path"


# -- write, commit, abort ---


def test_a_batch_write(found: ClusterThread, monkeypatch: pytest.MonkeyPatch) -> None:
    task_of(monkeypatch)
    writer = pickle.loads(pickle.dumps(source(found, write_id="monday").writer(VALUES, overwrite=False)))

    report = written(writer, 3)

    assert (report.rows, report.partition, report.query_id) == (3, 1, "monday")
    records = found.records("t")
    assert {record.value for record in records} == {b"row-0", b"row-1", b"row-2"}
    # The format: 16 bytes of BLAKE2b, then the row's number.
    stamps = {dict(record.headers)["ap.id"] for record in records}
    assert stamps == {task_id("monday", 0, 1) + row.to_bytes(8, "big") for row in range(3)}


def test_a_batch_write_without_a_name_has_one_for_all_its_tasks(
    found: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_of(monkeypatch)
    writer = source(found).writer(VALUES, overwrite=False)

    first = written(writer, 1)
    again = written(pickle.loads(pickle.dumps(writer)), 1)
    other = written(source(found).writer(VALUES, overwrite=False), 1)

    assert first.query_id
    assert first.producer_id == again.producer_id != other.producer_id


def test_batch_writes_within_foreach_batch_are_the_query_s_and_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same rows to two topics: a reader that drops duplicates must find no id twice."""
    task_of(monkeypatch, queryId=QUERY, batchId="7")
    with cluster(t=1, u=1) as running:
        reports = [
            written(source(running, **options).writer(VALUES, overwrite=False), 1)
            for options in ({}, {"topic": "u"}, {"write_id": "again"})
        ]
        marks = [Mark.from_json(record.value).run for record in running.records(AUDIT)]

    assert [report.producer_id for report in reports] == [
        task_id(f"{QUERY}\n{name}", 7, 1).hex() for name in ("t", "u", "again")
    ]
    assert {report.query_id for report in reports} == {QUERY}
    assert [run["write"] for run in marks] == ["t", "u", "again"]


def test_a_row_that_cannot_be_sent_fails_the_task(
    found: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_of(monkeypatch)
    two = StructType([*VALUES, StructField("topic", StringType())])
    options = {"kafka.bootstrap.servers": found.bootstrap_servers}
    writer = AioproduceDataSource(options).writer(two, overwrite=False)

    with pytest.raises(RowError, match="row 1 "):
        writer.write(iter([pa.record_batch({"value": ["a", "b"], "topic": ["t", None]})]))


REPORTS = [
    TaskReport(
        partition=0, rows=10, bytes=100, requests=2, ack_p50_ms=4.0, ack_p99_ms=9.0, producer_id="aa", next_row=10,
        query_id="q", seconds=1.5, topics={"t": 10}, batches=1,
    ),
    TaskReport(
        partition=1, rows=90, bytes=900, requests=3, retries=1, ack_p50_ms=7.0, ack_p99_ms=8.0, producer_id="bb",
        next_row=95, query_id="q", seconds=0.5, topics={"t": 80, "u": 10}, batches=2, dead_letters=2, dropped=3,
    ),
]  # fmt: skip


def test_the_sum_of_the_tasks() -> None:
    assert summarize(REPORTS, is_aborted=False, batch_id=3) == WriteSummary(
        outcome="committed", query_id="q", batch_id=3, tasks=2, rows=100, bytes=1000, batches=3, requests=5,
        retries=1, ack_p50_ms=7.0, ack_p99_ms=9.0, dead_letters=2, dropped=3, seconds=1.5,
        topics={"t": 90, "u": 10}, ids={"aa": 10, "bb": 95},
    )  # fmt: skip


def test_the_sum_of_nothing() -> None:
    assert summarize([], is_aborted=False) == WriteSummary(outcome="committed")


def test_ids_are_bounded() -> None:
    many = [TaskReport(partition=part, producer_id=f"{part:032x}", next_row=1) for part in range(1003)]

    summary = summarize(many, is_aborted=False)

    assert (len(summary.ids), summary.ids_more) == (1000, 3)


def test_a_line_of_json_and_one_of_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.json"
    writer = AtLeastOnceStreamWriter.__new__(AtLeastOnceStreamWriter)
    writer.options = _options(metrics_path=str(path))

    writer.commit(REPORTS, 3)
    writer.abort([REPORTS[0], None], 4)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["committed", "aborted"]
    assert [line["batch_id"] for line in lines] == [3, 4]
    assert (lines[1]["rows"], lines[1]["tasks"], lines[1]["failed_tasks"]) == (10, 1, 1)
    assert (lines[0]["version"], lines[0]["topics"]) == (1, {"t": 90, "u": 10})
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "committed q batch 3: 100 rows acknowledged" in caplog.records[0].getMessage()
    assert "aborted q batch 4: 10 rows acknowledged" in caplog.records[1].getMessage()


def test_a_file_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = AtLeastOnceWriter.__new__(AtLeastOnceWriter)
    writer.options = _options(metrics_path=str(tmp_path / "gone" / "m.json"))

    writer.commit(REPORTS)
    writer.abort([None])

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING", "WARNING"]
    assert "cannot be written, the line is lost" in caplog.records[1].getMessage()


def test_the_log_line_comes_out_where_nobody_set_logging_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LOG, "propagate", False)

    tell(WriteSummary(outcome="committed", query_id="q", rows=5), None)

    assert "INFO aioproduce.spark: committed q: 5 rows acknowledged" in capsys.readouterr().err
    assert (LOG.handlers, LOG.level) == ([], logging.NOTSET)


def _options(**more: str) -> Any:
    from aioproduce.spark.options import SinkOptions

    named = {name.replace("_", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", **named})


# -- what must be installed ---


def _java(folder: Path, says: str) -> dict[str, str]:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_a_java_that_will_do(tmp_path: Path, says: str, version: int) -> None:
    assert requirements.check_java(_java(tmp_path, says)) == version


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_412"', 8), ('openjdk version "11.0.2"', 11)]
)
def test_a_java_that_is_too_old(tmp_path: Path, says: str, version: int) -> None:
    with pytest.raises(JavaError, match=f"is Java {version}, but Spark needs 17: install Java 17") as caught:
        requirements.check_java(_java(tmp_path, says))
    assert (caught.value.found, caught.value.needed) == (version, 17)


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="there is no java on the PATH: install Java 17"):
        requirements.check_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaError, match="which lacks bin/java"):
        requirements.check_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_that_does_not_say(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="does not print its version"):
        requirements.check_java(_java(tmp_path, "no"))


def test_an_older_spark_finds_a_sink_that_says_what_is_missing() -> None:
    """Where a package of this kind cannot be imported, Spark leaves out the sinks of all others as well."""
    program = (
        "import pyspark.sql.datasource as theirs; del theirs.DataSourceStreamArrowWriter\n"
        "from pyspark_aioproduce import DefaultSource\n"
        "assert issubclass(DefaultSource, theirs.DataSource) and DefaultSource.name() == 'aioproduce'\n"
        "DefaultSource({})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "ImportError: cannot import name 'DataSourceStreamArrowWriter'" in done.stderr


@pytest.mark.parametrize(("told", "is_enough"), [("4.2.0", True), ("4.1.0.dev1", True), ("4.0.1", False)])
def test_a_spark_that_was_not_installed_but_unpacked(
    monkeypatch: pytest.MonkeyPatch, told: str, is_enough: bool
) -> None:
    """`spark-submit` puts SPARK_HOME/python on the path, and no metadata of any distribution."""
    real = metadata.version

    def version(name: str) -> str:
        if name.startswith("pyspark"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(requirements, "version", version)
    monkeypatch.setattr(pyspark, "__version__", told)

    if is_enough:
        requirements.check_extra("the sink")
    else:
        with pytest.raises(MissingExtraError, match=r"found pyspark 4\.0 and needs"):
            requirements.check_extra("the sink")


def test_a_library_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(requirements, "version", lambda name: "4.0.1" if name == "pyspark" else real(name))

    with pytest.raises(
        MissingExtraError, match=r"found pyspark 4\.0 and needs pyspark>=4\.1.*aioproduce\[spark\]"
    ):
        AioproduceDataSource({})
