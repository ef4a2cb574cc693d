"""Fixtures of the tests that talk to brokers which somebody else wrote: real Kafka and librdkafka's mock.

Used by ``tests/integration``. The real clusters start when the first test asks for them and are shared by the
rest of the session, so a test names its own topics (``topic_name``) and leaves every node running.

1. Without Java or Maven the real-Kafka tests skip with the reason; in CI ``tests/conftest.py`` fails them.
2. After a test that used a cluster every node runs again, whatever the test did and however it ended.
3. After the last test of a group that used a cluster its nodes end: an idle node takes a thirtieth of a processor
   for the rest of the session.
4. A failed test's report ends with what the nodes logged during that test.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import uuid
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

from tests.groups import group_of
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import KafkaUnavailableError, find_or_install
from tests.kafka_tools import KafkaTools
from tests.mock_cluster import LAST_SOUND_METADATA, Api, MockCluster
from tests.secured.kafka import SecuredKafka
from tests.secured.listeners import LISTENERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

# A node logs some 20 KB while it starts: enough for the last start and what led to it, and still readable.
LOG_LIMIT = 30_000


@pytest.fixture(scope="session")
def kafka_tools() -> KafkaTools:
    """Kafka's command line tools; skips where they cannot run."""
    try:
        return KafkaTools(find_or_install())
    except KafkaUnavailableError as error:
        pytest.skip(f"no real Kafka: {error}")


@pytest.fixture(scope="session")
def _kafka1_session(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_tools, tmp_path_factory.mktemp("kafka1"), brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _kafka3_session(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_tools, tmp_path_factory.mktemp("kafka3"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def kafka1(_kafka1_session: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A real broker, alone."""
    yield from _lend(_kafka1_session, request.node)


class MakeTopic(Protocol):
    """Makes a topic with a name that a program of ours has in its text."""

    def __call__(self, name: str, *, partitions: int) -> str:
        """Make it; it is deleted after the test, as another test may have the same name."""


@pytest.fixture
def make_topic(kafka1: KafkaCluster) -> Iterator[MakeTopic]:
    """Make topics for one test alone."""
    made: list[str] = []

    def make(name: str, *, partitions: int) -> str:
        kafka1.create_topic(name, partitions=partitions)
        made.append(name)
        return name

    yield make
    for name in made:
        kafka1.delete_topic(name)


@pytest.fixture
def kafka3(_kafka3_session: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three real brokers, default replication 3."""
    yield from _lend(_kafka3_session, request.node)


@pytest.fixture(scope="session")
def _secured1_session(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    with SecuredKafka(kafka_tools, tmp_path_factory.mktemp("secured1")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _secured3_session(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    listeners = {"TLS13_SASL": LISTENERS["TLS13_SASL"]}
    with SecuredKafka(
        kafka_tools, tmp_path_factory.mktemp("secured3"), brokers=3, listeners=listeners
    ) as cluster:
        yield cluster


@pytest.fixture
def secured1(_secured1_session: SecuredKafka, request: pytest.FixtureRequest) -> Iterator[SecuredKafka]:
    """A real broker with every listener of `tests.secured.listeners`."""
    yield from _lend(_secured1_session, request.node)


@pytest.fixture
def secured3(_secured3_session: SecuredKafka, request: pytest.FixtureRequest) -> Iterator[SecuredKafka]:
    """Three real brokers with the listener `TLS13_SASL`, default replication 3."""
    yield from _lend(_secured3_session, request.node)


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """librdkafka's mock cluster of three brokers, for one test.

    Its answers to Metadata from v9 on, the first flexible version, end with a byte too many.
    """
    with MockCluster(brokers=3) as cluster:
        cluster.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        yield cluster


@pytest.fixture
async def nothing_unhandled(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """What the test started has ended when it ends, and no exception of a task or callback went unseen."""
    before = asyncio.all_tasks()
    yield
    gc.collect(1)  # the test's own garbage: only then does a task that failed unobserved say so
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"left behind: {left}"
    cried = [record for phase in ("setup", "call") for record in caplog.get_records(phase)]  # type: ignore[arg-type, unused-ignore]
    errors = [record.getMessage() for record in (*cried, *caplog.records) if record.levelno >= logging.ERROR]
    assert errors == []


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of the session uses, and that a log can be searched for."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:100]
    return f"{readable}-{uuid.uuid4().hex[:8]}"


_LOGS_SINCE = pytest.StashKey[dict[KafkaCluster, dict[int, int]]]()
_LENT = pytest.StashKey[set[KafkaCluster]]()

Cluster = TypeVar("Cluster", bound=KafkaCluster)


def _lend(cluster: Cluster, item: pytest.Item) -> Iterator[Cluster]:
    """Give a session's cluster to one test, and mend it afterwards."""
    cluster.mend()  # it rests, if the tests of another group came between
    item.config.stash.setdefault(_LENT, set()).add(cluster)
    starts = {node.node_id: node.log.stat().st_size for node in cluster.nodes.values()}
    item.stash.setdefault(_LOGS_SINCE, {})[cluster] = starts
    yield cluster
    cluster.mend()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the nodes with the last test of a group: after pytest's own teardown, which mends them."""
    if nextitem is not None and group_of(nextitem) != group_of(item):
        for cluster in item.config.stash.get(_LENT, set()):
            cluster.rest()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append to a failed test's report what its brokers logged meanwhile."""
    report = yield
    if report.failed:
        for cluster, starts in item.stash.get(_LOGS_SINCE, {}).items():
            for node in cluster.nodes.values():
                logged = node.log.read_bytes()[starts[node.node_id] :][-LOG_LIMIT:].decode(errors="replace")
                report.sections.append((f"log of Kafka node {node.node_id} ({node.log})", logged))
    return report
