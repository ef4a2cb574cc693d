"""The pytest plugin: a cluster in memory and a producer for every test that needs them, with assertions on records.

Loaded by pytest in every run where aioproduce is installed (entry point `aioproduce`; `-p no:aioproduce` disables
it), so it loads nothing of aioproduce before a test uses one of its fixtures. See `docs/reference/api/testing.md`.

All fixtures are ordinary functions: an async one would belong to one of pytest-asyncio, anyio and pytest-trio, and
would not work under the others. So the cluster has its own thread, and the test starts the producer.

Invariants:

1. Each test has its own cluster, which is gone when the test is over.
2. A producer that the test has started on its cluster and not closed fails that test, unless it failed already. The
   producer's accepted records may never have been sent, and its tasks and sockets would affect the next test.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Unpack

    from aioproduce import Producer, ProducerSettings
    from aioproduce.producer.life import ProducerLife
    from aioproduce.testing import ClusterThread

_MARKER: Final = "aioproduce"
# Options of the marker that are not options of `ClusterThread`.
_PRODUCER: Final = "producer"
_MAY_LEAVE_OPEN: Final = "may_leave_open"

_cluster_key: Final = pytest.StashKey["ClusterThread"]()
_has_failed_key: Final = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, for `--strict-markers`."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(brokers=3, topics={{name: partitions}}, {_PRODUCER}={{setting: value}}, "
        f"{_MAY_LEAVE_OPEN}=False, ...): the options of the fixtures kafka_cluster and producer; "
        "other options are those of aioproduce.testing.FakeCluster",
    )


@pytest.fixture
def kafka_cluster_options() -> dict[str, Any]:
    """Options of `kafka_cluster`: override it to return options of `aioproduce.testing.FakeCluster`.

    Options of the marker `aioproduce` override these.
    """
    return {}


@pytest.fixture
def producer_options() -> dict[str, Any]:
    """Settings of `producer` and `make_producer`: override it to return settings of `aioproduce.Producer`.

    Settings of the marker (`aioproduce(producer={...})`) override these, and those of a call override both.
    """
    return {}


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: dict[str, Any]
) -> Iterator[ClusterThread]:
    """A Kafka cluster in memory, in its own thread: `aioproduce.testing.ClusterThread`.

    It has three brokers on free ports of the loopback address, and creates topics on demand. It can be made to fail
    (`kafka_cluster.faults`), and gives access to the produced records (`kafka_cluster.assert_produced()`).
    """
    from aioproduce.testing import ClusterThread

    marked = _marked(request.node)
    cluster = ClusterThread(**{**kafka_cluster_options, **marked.cluster})
    cluster.start()
    request.node.stash[_cluster_key] = cluster
    try:
        yield cluster
        left = [] if request.node.stash.get(_has_failed_key, False) else _left_open(request.node)
    finally:
        del request.node.stash[_cluster_key]
        cluster.stop()
    if left:
        pytest.fail(_complaint(left), pytrace=False)


class MakeProducer(Protocol):
    """What `make_producer` is: it makes producers for the test's cluster."""

    def __call__(self, **settings: Unpack[ProducerSettings]) -> Producer[Any, Any]:
        """Make one, with settings of `aioproduce.Producer`."""
        ...


@pytest.fixture
def make_producer(
    request: pytest.FixtureRequest, kafka_cluster: ClusterThread, producer_options: dict[str, Any]
) -> MakeProducer:
    """A function that creates producers for the test's cluster, e.g. `make_producer(linger_ms=20)`."""
    from aioproduce import Producer

    marked = _marked(request.node)

    def make(**settings: Unpack[ProducerSettings]) -> Producer[Any, Any]:
        return Producer(
            **{
                "bootstrap_servers": kafka_cluster.bootstrap_servers,
                **_secured(kafka_cluster),
                **producer_options,
                **marked.producer,
                **settings,
            }
        )

    return make


@pytest.fixture
def producer(make_producer: MakeProducer) -> Producer[Any, Any]:
    """A producer for the test's cluster, not started: `async with producer:` in the test."""
    return make_producer()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that has started a producer and leaves it open.

    Producers that fixtures have started are checked together with the cluster: their fixtures may close them.
    """
    if _cluster_key not in item.stash:
        return (yield)
    before = _left_open(item)
    try:
        result = yield
    except BaseException:
        item.stash[_has_failed_key] = True
        raise
    left = [each for each in _left_open(item) if each not in before]
    if left:
        item.stash[_has_failed_key] = True
        pytest.fail(_complaint(left), pytrace=False)
    return result


def _secured(cluster: ClusterThread) -> dict[str, str]:
    """Return the settings with which a producer connects to a cluster that requires TLS or a login."""
    return {name.replace(".", "_"): value for name, value in cluster.client_settings().items()}


@dataclass(slots=True)
class _Marked:
    """The options in a test's markers; those of the function override those of its class and its module."""

    cluster: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)
    may_leave_open: bool = False


def _marked(item: pytest.Item) -> _Marked:
    marked = _Marked()
    for mark in reversed([*item.iter_markers(_MARKER)]):
        if mark.args:
            pytest.fail(
                f"@pytest.mark.{_MARKER} needs options by name, e.g. brokers=1, not {mark.args!r}",
                pytrace=False,
            )
        options = dict(mark.kwargs)
        marked.producer |= options.pop(_PRODUCER, {})
        marked.may_leave_open = options.pop(_MAY_LEAVE_OPEN, marked.may_leave_open)
        marked.cluster |= options
    _check_names(marked.cluster)
    return marked


def _check_names(options: dict[str, Any]) -> None:
    import difflib
    import inspect

    from aioproduce.testing import ClusterThread

    known = [*inspect.signature(ClusterThread).parameters, _PRODUCER, _MAY_LEAVE_OPEN]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(known)}"
            pytest.fail(f"@pytest.mark.{_MARKER} does not have an option {name!r}; {hint}", pytrace=False)


def _left_open(item: pytest.Item) -> list[ProducerLife]:
    """Return the producers on the test's cluster that are started and not closed."""
    if "aioproduce.producer.life" not in sys.modules or _marked(item).may_leave_open:
        return []
    from aioproduce.producer.life import open_producers

    ports = set(item.stash[_cluster_key].ports.values())
    return [each for each in open_producers() if ports & {port for _, port in each.config.bootstrap_servers}]


def _complaint(left: list[ProducerLife]) -> str:
    producers = ", ".join(f"the producer {each.config.client_id!r}" for each in left)
    return (
        f"left open: {producers}. Close every producer that you start, or its accepted records may never be sent: "
        "`async with producer:`, or await producer.close() (a service: end it before the test ends). "
        f"If that is intended: @pytest.mark.{_MARKER}({_MAY_LEAVE_OPEN}=True)"
    )
