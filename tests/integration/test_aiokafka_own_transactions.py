"""aiokafka's own tests of transactions, run against the drop-in on a real broker.

They are fetched when they are run, and never copied in: from aiokafka's repository, or from the one that
`AIOPRODUCE_AIOKAFKA_REPOSITORY` names (its package has none of its tests). Their conftest wants Docker; another one
takes its place, with a broker of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_tools import KafkaTools

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("twenty tests of another project; our ports of them stay in the gate"),
]

ROOT = Path(__file__).parents[2]
REPOSITORY = os.environ.get("AIOPRODUCE_AIOKAFKA_REPOSITORY", "https://github.com/aio-libs/aiokafka")
FILES = ("__init__.py", "_testutil.py", "test_transactional_producer.py", "test_transactional_consumer.py")

PRIVATE = {
    # They read or change `producer._txn_manager`; in its place each has a test of ours.
    "test_producer_transactional_restart_reaquire_pid": "test_another_producer_takes_over",
    "test_producer_transactional_raise_out_of_sequence": "test_what_ours_becomes (code 45)",
    "test_producer_transactional_aborting_previous_failure": "test_a_failed_record_is_never_left_out",
    "test_producer_transactional_cancel_txn_methods": "test_a_cancelled_commit_goes_on",
}
"""Tests that use private names of aiokafka's producer, and what has their place in tests/compat."""

CONFTEST = """
import asyncio
import os

import aiokafka
import aiokafka.producer
import pytest

from tests import _testutil  # its messages are sent by aiokafka's own producer

from aioproduce.compat.aiokafka import AIOKafkaProducer

aiokafka.AIOKafkaProducer = aiokafka.producer.AIOKafkaProducer = AIOKafkaProducer


@pytest.fixture(scope="class")
def setup_test_class(request):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    request.cls.loop = loop
    request.cls.hosts = os.environ["BOOTSTRAP_SERVERS"].split(",")
    request.cls.kafka_version = "4.3.1"
    yield
    loop.close()
    asyncio.set_event_loop(None)
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with their tests, of the release that is installed."""
    folder = tmp_path_factory.mktemp("aiokafka")
    checkout, tag = folder / "checkout", f"v{version('aiokafka')}"
    command = ("git", "clone", "--quiet", "--depth", "1", "--branch", tag, REPOSITORY, str(checkout))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(
            f"aiokafka's own tests cannot be had from {REPOSITORY} (AIOPRODUCE_AIOKAFKA_REPOSITORY names another): "
            f"{done.stderr.strip()[-200:]}"
        )
    (folder / "tests").mkdir()
    for name in FILES:
        (checkout / "tests" / name).rename(folder / "tests" / name)
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


@pytest.fixture(scope="module")
def kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that makes topics of two partitions when they are asked for, as theirs."""
    properties = {"num.partitions": "2", "auto.create.topics.enable": "true"}
    with KafkaCluster(kafka_tools, tmp_path_factory.mktemp("kafka"), properties=properties) as cluster:
        yield cluster


@pytest.mark.parametrize(("file", "count"), [(FILES[2], 15), (FILES[3], 5)], ids=["producer", "consumer"])
def test_theirs_pass(theirs: Path, kafka: KafkaCluster, file: str, count: int) -> None:
    report = theirs / f"{file}.xml"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        f"tests/{file}",
        f"--junitxml={report}",
    )
    done = subprocess.run(
        command, cwd=theirs, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert report.is_file(), done.stdout + done.stderr
    cases = {each.get("name"): {part.tag for part in each} for each in ET.parse(report).iter("testcase")}
    assert len(cases) == count, done.stdout
    failed = {name for name, parts in cases.items() if parts & {"failure", "error", "skipped"}}
    assert failed == PRIVATE.keys() & cases.keys(), done.stdout
