"""The two classes that the tests hold side by side, and clusters that both can talk to.

Used by ``tests/compat/test_confluent_*.py``. confluent-kafka's own class is the oracle wherever it can run.

1. Futures of confluent-kafka's are settled by threads, which do not wake the loop: ``flush()``, then await.
2. The mock cluster is somebody else's broker (see ``tests/mock_cluster.py``), in this process.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.aio import AIOProducer as ConfluentProducer

from aioproduce.compat.confluent import AIOProducer as OurProducer
from tests.mock_cluster import LAST_SOUND_METADATA, Api, MockCluster

SIDES: Final[dict[str, Any]] = {"confluent_kafka": ConfluentProducer, "aioproduce": OurProducer}


@contextlib.contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    """Mock brokers whose Metadata answers both clients read."""
    with MockCluster(brokers) as cluster:
        cluster.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        yield cluster


@contextlib.contextmanager
def nobody_there() -> Iterator[str]:
    """An address where connections are refused, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def outcome(producer: Any, future: Any) -> Any:
    """The message of a future, or its KafkaError."""
    await producer.flush()
    try:
        return await future
    except KafkaException as error:
        return error.args[0]


async def produced(producer: Any, *args: Any, **kwargs: Any) -> Any:
    """Produce one message, and its outcome."""
    return await outcome(producer, await producer.produce(*args, **kwargs))


def code_of(answer: Any) -> int:
    """The code of what must be a KafkaError."""
    assert isinstance(answer, KafkaError), answer
    return int(answer.code())
