"""Several worker processes, scraped through one endpoint: real processes, a real directory, real locks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aioproduce import Producer
from aioproduce.errors import WorkerSlotError
from aioproduce.reporters.prometheus import MetricsServer, WorkerFile, WorkersCollector
from aioproduce.reporters.worker_files import read_workers
from aioproduce.testing import FakeCluster
from tests.drivers.producing import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[2]
SENT = "kafka_producer_producer_metrics_record_send_total"


class Workers:
    """Worker processes; those that still run end with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[str]] = []

    def start(self, records: int, *options: str) -> tuple[subprocess.Popen[str], int, int]:
        """The process, its worker number, and the pid of what it forked."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.metrics.worker_process",
                str(self.directory),
                str(records),
                *options,
            ],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        ready, number, child = process.stdout.readline().split()
        assert ready == "ready"
        return process, int(number), int(child)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path / "metrics")
    yield started
    started.end()


@pytest.fixture
def endpoint(workers: Workers) -> Iterator[int]:
    """One port for all of them, in this process, which has no producer."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(WorkersCollector(workers.directory))
    with MetricsServer(0, "127.0.0.1", registry=registry) as server:
        yield server.port


def scrape(port: int) -> dict[str, float]:
    """By worker: how many records it has sent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == SENT
    ]
    assert all(sample.labels["client_id"] == "web" for sample in samples)
    return {sample.labels["worker"]: sample.value for sample in samples}


def scrape_until(port: int, is_wanted: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """What one scrape told when it was as wanted; the test's own time limit bounds it."""
    while not is_wanted(told := scrape(port)):
        pass
    return told


def test_two_processes_are_scraped_through_one_endpoint(workers: Workers, endpoint: int) -> None:
    assert scrape(endpoint) == {}, "before the first worker there is not even a directory"
    first, number, _ = workers.start(30)
    assert number == 0
    second, number, _ = workers.start(12)
    assert number == 1
    assert scrape_until(endpoint, lambda told: len(told) == 2) == {"0": 30, "1": 12}
    second.communicate("")  # the end of its input: it closes
    assert second.returncode == 0
    assert scrape(endpoint) == {"0": 30}
    first.communicate("")
    assert scrape(endpoint) == {}


@pytest.mark.extended("starts uvicorn and its workers; one pair of processes stays in the gate")
def test_a_killed_worker_is_not_shown_and_its_successor_has_its_number(
    workers: Workers, endpoint: int
) -> None:
    first, _, _ = workers.start(30)
    workers.start(12)
    scrape_until(endpoint, lambda told: len(told) == 2)
    first.kill()
    first.communicate()
    assert (workers.directory / "worker-0.json").exists(), "it had no time to clean up"
    assert scrape(endpoint) == {"1": 12}
    _, number, _ = workers.start(7)
    assert number == 0
    assert scrape_until(endpoint, lambda told: len(told) == 2) == {"0": 7, "1": 12}


def test_what_a_worker_forked_does_not_keep_it_alive(workers: Workers, endpoint: int) -> None:
    first, _, child = workers.start(5, "fork")
    try:
        scrape_until(endpoint, lambda told: told == {"0": 5})
        first.kill()
        first.wait()
        assert scrape(endpoint) == {}
    finally:
        os.kill(child, signal.SIGKILL)


async def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer("localhost:1", client_id="web")
    async with (
        WorkerFile(producer, directory=tmp_path, period=1000) as broken,
        WorkerFile(producer, directory=tmp_path, period=1000) as newer,
        WorkerFile(producer, directory=tmp_path, period=1000) as good,
    ):
        await until(lambda: len(read_workers(tmp_path)) == 3)
        (tmp_path / f"worker-{broken.number}.json").write_text("{")
        (tmp_path / f"worker-{newer.number}.json").write_text('{"format": 2}')
        for _ in range(3):
            assert [worker.number for worker in read_workers(tmp_path)] == [good.number]
    messages = [record.getMessage() for record in caplog.records]
    assert sum("is not a worker's metrics" in message for message in messages) == 1
    assert sum("another version of aioproduce" in message for message in messages) == 1


async def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    producer = Producer("localhost:1", client_id="web")
    async with WorkerFile(producer, directory=tmp_path, period=1000):
        await until(lambda: read_workers(tmp_path))
        (worker,) = read_workers(tmp_path)
    (snapshot,) = worker.snapshots
    told = producer.metrics()
    assert repr(list(snapshot)) == repr(list(told)), "by repr, since NaN is not equal to itself"
    assert snapshot.histograms == told.histograms
    assert worker.age >= 0


async def test_a_directory_that_cannot_be_used_is_told_with_a_remedy(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    producer = Producer("localhost:1")
    for directory in (taken, taken / "below"):
        with pytest.raises(WorkerSlotError, match="name a local directory") as caught:
            async with WorkerFile(producer, directory=directory):
                raise AssertionError("not reached")
        assert caught.value.directory == str(directory)
    file = WorkerFile(producer, directory=tmp_path / "own")
    with pytest.raises(RuntimeError, match="within its `async with`"):
        _ = file.number
    async with file:
        assert file.number == 0
    with pytest.raises(RuntimeError, match="used only once"):
        await file.__aenter__()
    async with WorkerFile(producer, directory=tmp_path / "own") as another:
        assert another.number == 0, "no lock was left"


@pytest.mark.extended("starts uvicorn and its workers; one pair of processes stays in the gate")
async def test_a_service_of_two_uvicorn_workers(tmp_path: Path) -> None:
    """One endpoint shows the service's own metrics (multiprocess mode's) and its producers'."""
    multiprocess = tmp_path / "multiprocess"
    multiprocess.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with FakeCluster() as cluster:
        environment = {
            **os.environ,
            "PROMETHEUS_MULTIPROC_DIR": str(multiprocess),
            "KAFKA_METRICS_DIR": str(tmp_path / "kafka"),
            "BOOTSTRAP": cluster.bootstrap_servers,
        }
        command = [
            "-m",
            "uvicorn",
            "tests.metrics.uvicorn_service:app",
            "--workers",
            "2",
            "--port",
            str(port),
        ]
        service = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=REPOSITORY, env=environment
        )
        try:
            await asyncio.to_thread(serve_and_look, port)
        finally:
            service.terminate()
            await service.wait()
        assert len(cluster.records("orders")) > 1
    assert not list((tmp_path / "kafka").glob("*.json")), "each worker ended in order"


def serve_and_look(port: int) -> None:
    """Ask until each worker has answered, then compare what one scrape tells with what was asked for."""
    asked = 0
    pids: set[bytes] = set()
    while len(pids) < 2:
        try:
            pids.add(get(port, "/"))
        except ConnectionError:
            continue  # it begins
        asked += 1
    while True:
        families = {
            family.name: family for family in text_string_to_metric_families(get(port, "/metrics").decode())
        }
        sent = [
            (sample.labels["worker"], sample.value)
            for sample in families["kafka_producer_producer_metrics_record_send"].samples
        ]
        (requests,) = families["requests"].samples
        if sum(value for _, value in sent) == requests.value == asked:
            break
    assert {worker for worker, _ in sent} == {"0", "1"}
    assert all(value >= 1 for _, value in sent)


def get(port: int, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return bytes(answer.read())
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            raise error.reason from error
        raise
