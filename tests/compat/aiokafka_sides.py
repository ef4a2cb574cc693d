"""The two classes that the tests hold side by side: aiokafka's own is the oracle of the drop-in.

Used by ``tests/compat/test_aiokafka_*.py`` and ``tests/integration/test_compat_aiokafka_kafka.py``. A test
runs on both unless it says why not.

1. What is expected is written down once, and holds for both: a test that ours alone could pass proves
   nothing.
2. A producer that a test makes is stopped when it ends.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from aiokafka import AIOKafkaProducer as TheirProducer

from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer

SIDES: Final[dict[str, Any]] = {"aiokafka": TheirProducer, "aioproduce": OurProducer}


@contextlib.asynccontextmanager
async def started(side: Any, servers: str | list[str], **arguments: Any) -> AsyncIterator[Any]:
    """A producer that runs."""
    producer = side(bootstrap_servers=servers, **arguments)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


@contextlib.contextmanager
def nobody_there() -> Iterator[str]:
    """An address where connections are refused, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
