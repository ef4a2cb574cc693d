"""JSON lines and the log: a line a period, a last one at the end, and nothing that goes wrong gets out."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import sys
import threading
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.metrics import MetricsSnapshot
from aioproduce.reporters import periodic
from aioproduce.reporters.json_lines import JsonLinesReporter
from aioproduce.reporters.logging import LoggingReporter, summary
from aioproduce.testing import FakeCluster
from tests.drivers.producing import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LONG = 1000.0
"""A period that no test waits for."""


@pytest.fixture
async def producer() -> AsyncIterator[Producer]:
    async with (
        FakeCluster() as cluster,
        Producer(cluster.bootstrap_servers, client_id="checkout", linger_ms=0) as producer,
    ):
        yield producer


def lines(text: str) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


async def test_a_line_each_period_and_the_last_at_the_end(producer: Producer, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    async with JsonLinesReporter(producer, path, period=0.02):
        await until(lambda: path.exists() and len(path.read_text().splitlines()) >= 3)
        await producer.send_and_wait("orders", b"v")
    told = lines(path.read_text())
    assert len(told) >= 4
    assert {line["client_id"] for line in told} == {"checkout"}
    times = [line["taken_at_ms"] for line in told]
    assert times == sorted(times)
    assert told[0]["metrics"]["producer-metrics"]["record-send-total"] == 0
    last = told[-1]["metrics"]
    assert last["producer-metrics"]["record-send-total"] == 1
    assert last["producer-metrics"]["send-wait-time-avg"] is None, "NaN is no JSON"
    assert last["producer-topic-metrics"]["record-send-total{topic=orders}"] == 1
    assert last["app-info"]["version"] == "0.1.0"


async def test_a_short_run_has_its_one_line(producer: Producer) -> None:
    stream = io.StringIO()
    async with JsonLinesReporter(producer, stream, period=LONG):
        await producer.send_and_wait("orders", b"v")
    (line,) = lines(stream.getvalue())
    assert line["metrics"]["producer-metrics"]["record-send-total"] == 1
    assert not stream.closed


async def test_a_file_may_be_rotated_and_is_appended_to(producer: Producer, tmp_path: Path) -> None:
    path, aside = tmp_path / "metrics.jsonl", tmp_path / "metrics.jsonl.1"
    path.write_text('{"of": "before"}\n')
    async with JsonLinesReporter(producer, str(path), period=0.02):
        await until(lambda: len(path.read_text().splitlines()) >= 2)
        path.rename(aside)
        await until(path.exists)
    assert lines(aside.read_text())[0] == {"of": "before"}
    assert lines(path.read_text())[0]["client_id"] == "checkout"


async def test_what_cannot_be_written_is_logged_once_and_tried_again(
    producer: Producer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "missing" / "metrics.jsonl"
    tried = 0

    class Counted(os.PathLike[str]):
        def __fspath__(self) -> str:
            nonlocal tried
            tried += 1
            return str(path)

    async with JsonLinesReporter(producer, Counted(), period=0.01):
        await until(lambda: tried >= 5)
        await producer.send_and_wait("orders", b"v")
        path.parent.mkdir()
        await until(path.exists)
    assert lines(path.read_text())[-1]["metrics"]["producer-metrics"]["record-send-total"] == 1
    failures = [record for record in caplog.records if "JsonLinesReporter failed" in record.getMessage()]
    assert len(failures) == 1
    assert failures[0].levelno == logging.WARNING
    assert "FileNotFoundError" in failures[0].getMessage()
    assert str(path) in failures[0].getMessage()


async def test_a_stream_that_hangs_does_not_hang_the_end(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(periodic, "_END_PATIENCE", 0.05)
    let_go = threading.Event()

    class Hangs(io.StringIO):
        def write(self, text: str, /) -> int:
            let_go.wait()
            return 0

    try:
        async with JsonLinesReporter(producer, Hangs(), period=LONG):
            pass
    finally:
        let_go.set()
    assert "JsonLinesReporter: the last report was not made within 0.05 s" in caplog.text


HANGS = """
import asyncio, sys
from aioproduce import Producer
from aioproduce.reporters import periodic
from aioproduce.reporters.json_lines import JsonLinesReporter

async def main():
    periodic._END_PATIENCE = 0.05
    async with JsonLinesReporter(Producer("localhost:1"), sys.argv[1], period=1000):
        pass

asyncio.run(main())
print("ended")
"""


async def test_a_disk_that_hangs_does_not_hang_the_end_of_the_process(tmp_path: Path) -> None:
    """A pipe that nobody reads: opening it waits for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HANGS, pipe, stdout=PIPE)
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, out) == (0, b"ended\n")


FULL = """
import asyncio, logging, pathlib, resource, sys
from aioproduce import Producer
from aioproduce.reporters.json_lines import JsonLinesReporter

async def main():
    path = pathlib.Path(sys.argv[1])
    failed = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record):
            if "failed and continues" in record.getMessage():
                failed.set()

    logging.basicConfig()
    logging.getLogger("aioproduce").addHandler(Told())
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    async with JsonLinesReporter(Producer("localhost:1"), path, period=0.02):
        # Not until the file has 100 bytes: the thread may write them, and its next bytes under the other limit.
        await failed.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while path.stat().st_size <= 10_000:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


async def test_what_a_full_disk_left_of_a_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A file that may not be longer than 100 bytes is written to as a disk is that has no more room."""
    path = tmp_path / "metrics.jsonl"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FULL, path, stderr=PIPE)
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = f"JsonLinesReporter failed and continues: OSError: [Errno 27] File too large: '{path}'"
    assert told in err.decode()
    torn, *whole = path.read_text().splitlines()
    assert len(torn) == 100
    assert len(lines("\n".join(whole))) >= 2


async def test_a_reporter_outlives_its_producer(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    async with FakeCluster() as cluster:
        producer = Producer(cluster.bootstrap_servers)
        async with JsonLinesReporter(producer, path, period=LONG), producer:
            await producer.send_and_wait("orders", b"v")
    (line,) = lines(path.read_text())
    assert line["metrics"]["producer-metrics"]["record-send-total"] == 1


async def test_the_last_line_is_written_when_the_task_is_cancelled(producer: Producer) -> None:
    stream = io.StringIO()

    async def serve() -> None:
        async with JsonLinesReporter(producer, stream, period=LONG):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(lines(stream.getvalue())) == 1


@pytest.mark.parametrize("period", [0, -1.0, float("nan")])
async def test_a_period_is_more_than_nothing(producer: Producer, period: float) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        JsonLinesReporter(producer, "metrics.jsonl", period=period)
    with pytest.raises(ValueError, match="more than 0 seconds"):
        LoggingReporter(producer, period=period)


async def test_a_reporter_is_used_once(producer: Producer) -> None:
    reporter = LoggingReporter(producer, period=LONG)
    async with reporter:
        with pytest.raises(RuntimeError, match="LoggingReporter can be used only once"):
            await reporter.__aenter__()


async def test_a_log_line_tells_what_matters(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aioproduce.metrics"):
        async with LoggingReporter(producer, period=LONG):
            for _ in range(50):
                await producer.send("orders", b"v")
            await producer.flush()
    (record,) = [record for record in caplog.records if record.name == "aioproduce.metrics"]
    assert record.levelno == logging.INFO
    assert re.fullmatch(
        r"checkout: [\d,]+ records/s, [\d,.]+ \w+/s, delivered in [\d.]+ ms \(p50\) [\d.]+ ms \(p99\), request "
        r"latency [\d.]+ ms \(p50\) [\d.]+ ms \(p99\), errors 0, retries 0, buffer 0% of 32.0 MiB, 0 waiting",
        record.getMessage(),
    )


async def test_a_log_line_adds_up(producer: Producer) -> None:
    """Numbers chosen by hand: 1,500 records and 3 MiB in two seconds, a quarter of the buffer in use."""
    values = {
        "buffer-total-bytes": 32 * 2**20,
        "buffer-available-bytes": 24 * 2**20,
        "delivery-time-p50": 4.25,
        "delivery-time-p99": float("nan"),
        "request-latency-p50": 1.0,
        "request-latency-p99": 12.34,
        "waiting-threads": 7,
    }

    class Told(MetricsSnapshot):  # type: ignore[misc]  # final, but for this
        def value(self, name: str, **tags: str) -> float:
            return values[name]

    since = {
        "record-send-total": 3000.0,
        "outgoing-byte-total": 3.0 * 2**20,
        "record-error-total": 1234.0,
        "record-retry-total": 5.0,
    }
    assert summary(Told([]), since, 2.0) == (
        "1,500 records/s, 1.5 MiB/s, delivered in 4.2 ms (p50) - (p99), request latency 1.0 ms (p50) "
        "12.3 ms (p99), errors 1,234, retries 5, buffer 25% of 32.0 MiB, 7 waiting"
    )


async def test_the_log_tells_of_the_time_since_the_line_before(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "aioproduce.metrics"):
        async with LoggingReporter(producer, period=0.02):
            for _ in range(50):
                await producer.send("orders", b"v")
            await producer.flush()
            told = len(caplog.records)
            # The two lines after all is sent: the second of them has nothing new to tell.
            await until(lambda: len(caplog.records) >= told + 2)
    assert " 0 records/s" in caplog.records[-1].getMessage()
