"""The example services under their real servers and a real broker, killed and restarted under load.

1. A client believes what it was answered: 201 with a place says that the record lies there; 503 that it is nowhere.
   Kafka's own consumer judges both.
2. The load is bounded in count: each life of a service ends after so many more acknowledgements. Nothing here waits
   for time.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.gate.marks import others_extended
from tests.integrations.serving import client_for
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CLIENTS = 8
# Between two signals: enough for every client to have several requests answered, and one on its way.
ACKNOWLEDGED_PER_LIFE = 60


class Load:
    """Clients that send numbered orders one after the other, whatever happens, and keep what they were answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._next = 0
        self._is_over = False
        self._progress = asyncio.Condition()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.answered: dict[int, int] = {}
        self.unanswered: dict[int, Exception] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client())
            yield
            self._is_over = True

    async def _client(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=None) as client:
            while not self._is_over:
                number, self._next = self._next, self._next + 1
                order = {"customer": str(number % 10), "article": str(number), "pieces": 1}
                try:
                    answer = await client.post("/orders", json=order)
                except httpx.TransportError as error:
                    self.unanswered[number] = error  # the service was killed: the client knows nothing
                    continue
                self.answered[number] = answer.status_code
                if answer.status_code == 201:
                    place = answer.json()
                    async with self._progress:
                        self.acknowledged[number] = (place["partition"], place["offset"])
                        self._progress.notify_all()

    async def acknowledgements(self, count: int) -> None:
        """Wait for so many more."""
        wanted = len(self.acknowledged) + count
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) >= wanted)


class Service:
    """A service that is started again and again on one listening socket."""

    def __init__(self, framework: str, cluster: KafkaCluster, topic: str, folder: Path) -> None:
        self._framework = framework
        self._environment = os.environ | {
            "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "KAFKA_TOPIC": topic,
            # However slow the machine is: no answer here hangs on how long it takes.
            "REQUEST_TIMEOUT": "3600",
            "DRAIN_TIMEOUT": "3600",
        }
        self._folder = folder
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._process: asyncio.subprocess.Process | None = None
        self.logs: list[Path] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    async def start(self) -> None:
        self.logs.append(self._folder / f"{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.integration.service_process"),
                *(self._framework, str(self._listener.fileno())),
                env=self._environment,
                stderr=log,
                stdout=log,
                pass_fds=(self._listener.fileno(),),
            )

    async def end(self, number: int) -> str:
        """Send a signal, wait for the end; gives what it logged."""
        assert self._process is not None
        assert self._process.returncode is None, self.logs[-1].read_text()
        self._process.send_signal(number)
        await self._process.wait()
        return self.logs[-1].read_text()

    async def close(self) -> None:
        self._listener.close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.mark.parametrize("framework", ["fastapi", "aiohttp"])
@pytest.mark.extended("kills brokers under load")
async def test_killed_and_restarted_under_load_every_201_is_in_the_log(
    kafka1: KafkaCluster, topic_name: str, tmp_path: Path, framework: str
) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    service = Service(framework, kafka1, topic_name, tmp_path)
    load = Load(service.url)
    try:
        await service.start()
        async with load.running():
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                await load.acknowledgements(ACKNOWLEDGED_PER_LIFE)
                told = await service.end(number)
                if number == signal.SIGTERM:
                    assert "ended: every accepted record has its outcome" in told
                await service.start()
            await load.acknowledgements(ACKNOWLEDGED_PER_LIFE)
        # The clients have their last answers; nothing is on its way any more.
        told = await service.end(signal.SIGTERM)
        assert "ended: every accepted record has its outcome" in told
    finally:
        await service.close()

    found: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for record in await asyncio.to_thread(kafka1.console_consume, topic_name):
        assert record.value is not None
        order = json.loads(record.value)
        assert record.key == order["customer"].encode()
        found[int(order["article"])].append((record.partition, record.offset))
    assert len(load.acknowledged) >= 5 * ACKNOWLEDGED_PER_LIFE
    # Each answer was true: the record is there, at its place, once.
    assert {number: found[number] for number in load.acknowledged} == {
        number: [place] for number, place in load.acknowledged.items()
    }
    refused = [number for number, status in load.answered.items() if status == 503]
    assert [number for number in refused if found.get(number)] == []
    assert set(load.answered.values()) <= {201, 503, 504}
    # Without an answer the outcome is unknown: the record is in the log once or not at all.
    assert all(len(places) == 1 for places in found.values() if places)
    assert {number for number, places in found.items() if places} <= {*load.answered, *load.unanswered}


@pytest.mark.parametrize(
    "framework",
    others_extended(["fastapi", "aiohttp"], keep=["fastapi"], reason="one framework stays in the gate"),
)
async def test_started_before_its_broker_it_becomes_ready_by_itself(
    kafka1: KafkaCluster, topic_name: str, tmp_path: Path, framework: str
) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    await asyncio.to_thread(kafka1.terminate, 1)
    service = Service(framework, kafka1, topic_name, tmp_path)
    try:
        await service.start()
        async with client_for(service.url) as client:
            assert (await client.get("/health/live")).status_code == 200
            answer = await client.get("/health/ready")
            assert answer.status_code == 503
            assert answer.json()["reasons"] == ["no broker has answered yet", "2 topic(s) are not known yet"]
            order = {"customer": "1", "article": "too early", "pieces": 1}
            answer = await client.post("/orders", json=order, headers={"x-request-timeout": "0.1"})
            assert (answer.status_code, answer.json()["outcome"]) == (503, "not_written")
            assert answer.headers["retry-after"] == "1"

            await asyncio.to_thread(kafka1.start, 1)
            while (await client.get("/health/ready")).status_code != 200:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.05)
            answer = await client.post("/orders", json={"customer": "1", "article": "in time", "pieces": 1})
            assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
        await service.end(signal.SIGTERM)
    finally:
        await service.close()
    (record,) = await asyncio.to_thread(kafka1.console_consume, topic_name)
    assert json.loads(record.value or b"")["article"] == "in time"
