"""The manifest of docs/how-to/kubernetes.md: its limits add up, and its paths are those of the service."""

from __future__ import annotations

import inspect
import re

from fastapi import FastAPI
from fastapi.testclient import TestClient

from aioproduce.integrations.fastapi import install
from aioproduce.integrations.service import ProducerService
from aioproduce.producer.producer import Producer
from tests.docs.blocks import ROOT, blocks_of

(MANIFEST,) = [
    block.text for block in blocks_of(ROOT / "docs" / "how-to" / "kubernetes.md") if block.language == "yaml"
]


def seconds(pattern: str) -> int:
    found = re.search(pattern, MANIFEST)
    assert found, pattern
    return int(found[1])


def test_the_limits_add_up() -> None:
    drain = inspect.signature(ProducerService).parameters["drain_timeout"].default
    server = seconds(r'--timeout-graceful-shutdown, "(\d+)"')
    before = seconds(r"sleep: {seconds: (\d+)}")
    assert before + server + drain < seconds(r"terminationGracePeriodSeconds: (\d+)")


def test_the_probes_ask_for_what_the_service_answers() -> None:
    app = FastAPI()
    install(app, ProducerService(lambda: Producer("localhost:9092")))
    probes = re.findall(r"httpGet: {path: (\S+), port: (\d+)}", MANIFEST)
    assert len(probes) == 2
    assert {port for _, port in probes} == set(re.findall(r'--port, "(\d+)"', MANIFEST))
    client = TestClient(app)
    # Not started: it is not ready, and it is no reason to restart the process.
    assert [client.get(path).status_code for path, _ in probes] == [503, 200]
