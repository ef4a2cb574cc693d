"""The oracle of the transactions of the broker model: a real broker answers the same scripts alike."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.drivers.blocking_client import BlockingConnection
from tests.kafka_cluster import KafkaCluster
from tests.unit.fake_broker_peer import decoded
from tests.unit.transaction_script import CASES, Script
from tests.wire_oracle import request_frame, response_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka_tools import KafkaTools

_NAMES = [case.__name__ for case, _, _ in CASES]


class RealPeer:
    """A blocking connection to the one broker, made again where the broker has closed it."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._port = cluster.nodes[1].port
        self._connection = BlockingConnection("127.0.0.1", self._port, timeout=30)

    def ask(self, request: Any) -> Any:
        cls = type(request)
        try:
            answer = self._connection.exchange(request_frame(request))
        except OSError:
            self.close()
            self._connection = BlockingConnection("127.0.0.1", self._port, timeout=30)
            return None
        return decoded(response_class(cls.__api_key__, cls.__version__), bytes(answer))

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._connection.close()


def answers(cluster: KafkaCluster, case: Callable[[Script], Any], version: int, topic: str) -> Any:
    cluster.create_topic(topic, partitions=1)
    with contextlib.closing(RealPeer(cluster)) as peer:
        return case(Script(peer, version, topic))


@pytest.mark.parametrize(("case", "_", "expected"), CASES, ids=_NAMES)
def test_version_2(
    kafka1: KafkaCluster, topic_name: str, case: Callable[[Script], Any], _: Any, expected: Any
) -> None:
    assert answers(kafka1, case, 2, topic_name) == expected


@pytest.fixture(scope="module")
def kafka_of_version_1(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("transactions1")
    with KafkaCluster(kafka_tools, directory, features={"transaction.version": "1"}) as cluster:
        yield cluster


@pytest.mark.extended("version 2 and the model's own run of these cases stay in the gate")
@pytest.mark.kafka
@pytest.mark.parametrize(("case", "expected", "_"), CASES, ids=_NAMES)
def test_version_1(
    kafka_of_version_1: KafkaCluster,
    topic_name: str,
    case: Callable[[Script], Any],
    expected: Any,
    _: Any,
) -> None:
    assert answers(kafka_of_version_1, case, 1, topic_name) == expected
