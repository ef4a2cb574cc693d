"""What all jobs share, without a JVM: arguments, errors in one line, exit codes, signals, the progress line."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from aioproduce.spark.__main__ import JOBS, main
from aioproduce.spark.connector import JARS, coordinates, jars_of
from aioproduce.spark.errors import ConnectorMissingError, OptionError
from aioproduce.spark.jobs.land import LandSummary, complete
from aioproduce.spark.jobs.progress import ProgressLine, StreamTotals, news_of
from aioproduce.spark.jobs.running import (
    Ending,
    ExitCode,
    JobInterrupted,
    is_told,
    message_of,
    pairs_of,
)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_each_job_says_what_it_takes(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([job, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"aioproduce.spark {job}" in told
    assert "--jars" in told
    assert "--json" in told


def test_the_jobs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(job in told for job in JOBS)


@pytest.mark.parametrize("arguments", [["landing"], [], ["land"], ["land", "--lake", "/x", "--topics", "t"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == ExitCode.BAD_INPUT
    assert "usage:" in capsys.readouterr().err


def test_the_file_for_spark_submit_does_the_same() -> None:
    submit = Path(sys.modules["aioproduce.spark.__main__"].__file__ or "").with_name("submit.py")
    done = subprocess.run(
        [sys.executable, submit, "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "land" in done.stdout


def test_no_java_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no-java-here")
    code = main(["land", "--bootstrap-servers", "x:1", "--lake", "/nowhere/lake", "--topics", "t"])
    assert code == ExitCode.FAILED
    told = capsys.readouterr().err
    assert told.startswith("error: Spark needs Java, but JAVA_HOME is '/no-java-here'")
    assert told.count("\n") == 1


def test_settings_as_pairs() -> None:
    assert pairs_of(["a=b", " c =d=e", "f="], "--conf") == {"a": "b", "c": "d=e", "f": ""}
    for wrong in ("secret", "=secret"):
        with pytest.raises(OptionError, match="--conf must be KEY=VALUE") as raised:
            pairs_of([wrong], "--conf")
        assert raised.value.option == "--conf"
        assert "secret" not in str(raised.value)


def test_an_error_of_ours_in_a_callback_of_sparks_is_found_again() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy.\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in call\n    raise error\n'
        "aioproduce.spark.errors.CheckpointError: the checkpoint /c was deleted: start again\n\n"
        "=== Streaming Query ===\nplan\n\nJVM stacktrace:\njava.lang.X"
    )
    assert message_of(RuntimeError(text)) == "the checkpoint /c was deleted: start again"
    assert message_of(RuntimeError("a table\n=== Streaming Query ===\nplan")) == "a table"
    assert message_of(RuntimeError("a\n\nJVM stacktrace:\nb")) == "a"


def test_bugs_are_not_told_as_errors() -> None:
    assert is_told(AnalysisException("no such table"))
    assert is_told(OptionError("x"))
    assert is_told(FileNotFoundError("x"))
    assert not is_told(KeyError("x"))
    assert not is_told(AssertionError())


def test_a_signal_before_there_is_a_session() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ending = Ending()
    with pytest.raises(JobInterrupted, match="SIGTERM"), ending:
        signal.raise_signal(signal.SIGTERM)
    assert ending.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_where_the_connector_is(tmp_path: Path) -> None:
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    one = str(tmp_path / "a.jar")
    assert jars_of([str(tmp_path), "https://host/x.jar", one]) == [
        one,
        str(tmp_path / "b.jar"),
        "https://host/x.jar",
        one,
    ]
    (tmp_path / "empty").mkdir()
    for place, says in ((tmp_path / "empty", "there is no jar in"), (tmp_path / "c.jar", "no such jar")):
        with pytest.raises(ConnectorMissingError, match=says) as raised:
            jars_of([str(place)])
        assert raised.value.coordinates == coordinates()
        assert all(jar in str(raised.value) for jar in JARS)
    assert coordinates("4.2.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def test_a_line_on_a_terminal_is_written_over() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with ProgressLine("land", stream=stream) as line:
            line.show("batch 10")
            line.show("batch")
    assert terminal.getvalue() == "\rland: batch 10\rland: batch   \n"
    assert file.getvalue() == ""
    with ProgressLine("land", is_quiet=True, stream=terminal) as line:
        line.show("batch 10")
    assert terminal.getvalue().endswith("batch   \n")


def test_the_progress_of_batches_adds_up() -> None:
    totals = StreamTotals()
    for batch, rows in ((0, 10), (1, 0), (1, 5), (2, 7)):
        source = {"metrics": {"maxOffsetsBehindLatest": "3"}}
        totals.take(
            {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 1000.4, "sources": [source]}
        )
    assert (totals.rows, totals.batches, totals.batch, totals.behind) == (17, 2, 2, 3)
    assert totals.line() == "batch 2, 17 rows, 1,000 rows/s, at most 3 behind in a partition"


@pytest.mark.parametrize(
    ("kept", "known", "news"),
    [([], -1, []), ([0], -1, [0]), ([0, 1], 0, [1]), ([0, 1, 2], 2, []), ([4, 5, 6], 4, [4, 5, 6])],
)
def test_only_news_of_a_stream_are_asked_for(kept: list[int], known: int, news: list[int]) -> None:
    asked: list[str] = []

    class Query:
        @property
        def lastProgress(self) -> Any:
            asked.append("last")
            return SimpleNamespace(batchId=kept[-1]) if kept else None

        @property
        def recentProgress(self) -> list[Any]:
            asked.append("all")
            return [SimpleNamespace(batchId=number) for number in kept]

    assert [each.batchId for each in news_of(cast("Any", Query()), known)] == news
    assert asked == (["last", "all"] if len(news) > 1 else ["last"])


def test_what_is_told_at_the_end() -> None:
    summary = LandSummary("q", 2_000_000, 3, 2, 40, "/lake", removed=1, seconds=8.0)
    assert summary.exit_code == ExitCode.DONE
    assert summary.lines() == [
        "landed 2,000,000 rows in 3 batches and 8.0 s (250,000 rows/s) in /lake",
        "of these in quarantine: 2 (see the column `reason`)",
        "marks of producers: 40",
        "incomplete directories of killed runs, removed: 1",
    ]
    told = summary.to_json()
    assert (told["job"], told["rows"], told["quarantined"]) == ("land", 2_000_000, 2)


def test_a_local_path_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete("lake") == str(tmp_path / "lake")
    assert complete("file:/lake") == "/lake"
    assert complete("s3a://bucket/lake/") == "s3a://bucket/lake"


def test_a_path_that_spark_would_take_for_one_of_its_default_file_system() -> None:
    default = "hdfs://name:8020"
    with pytest.raises(OptionError, match="write hdfs://name:8020/lake or file:///lake"):
        complete("/lake", default)
    # Without its scheme Spark would write to the default.
    assert complete("file:/lake", default) == complete("file:///lake/", default) == "file:///lake"
    assert complete("hdfs://name:8020/lake/", default) == "hdfs://name:8020/lake"
