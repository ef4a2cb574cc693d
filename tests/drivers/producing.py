"""What producer tests do again and again: wait for a condition, read a topic back with a client that is not ours,
and see that a producer still works after something went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from aioproduce import Producer
    from aioproduce.testing import FakeCluster

# Far above what any of it takes: a bound for a hang, not a budget.
PATIENCE = 30.0
# Longer than any test: what waits for this in vain hangs, and the hang is the failure.
FOREVER_MS = 3_600_000


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def let_the_sender_rest() -> None:
    """More turns of the loop than the sender task needs for what it knows already."""
    for _ in range(10):
        await asyncio.sleep(0)


async def read_back(cluster: FakeCluster, topic: str, count: int) -> list[Any]:
    """`count` records of a topic, by partition and offset, from aiokafka's consumer."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign(
            [TopicPartition(topic, each) for each in range(len(cluster.topics[topic].partitions))]
        )
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                found.append(await consumer.getone())
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        await consumer.stop()


def values(cluster: FakeCluster, topic: str = "t", partition: int | None = None) -> list[bytes | None]:
    """What lies in the log."""
    return [record.value for record in cluster.records(topic, partition)]


async def assert_still_works(producer: Producer, cluster: FakeCluster, topic: str = "t") -> None:
    """Good input is accepted, written once and acknowledged at its place, and all memory comes back."""
    async with asyncio.timeout(PATIENCE):
        delivery = await producer.send(topic, b"good", key=b"k", headers=[("h", None)])
        await producer.flush()
        metadata = await delivery
    [record] = [each for each in cluster.records(topic) if each.value == b"good"]
    assert (record.partition, record.offset) == (metadata.partition, metadata.offset)
    await until(lambda: producer.outstanding_bytes == 0)


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """The address of a port where nobody listens, and nobody else can meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextlib.contextmanager
def silent_port(*, takes_connections: bool = True) -> Iterator[str]:
    """A black hole: it listens, never accepts and never answers.

    Args:
        takes_connections: Whether the kernel still completes handshakes; otherwise its queue is full, and whoever
            connects waits.
    """
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(100 if takes_connections else 0)
        if not takes_connections:
            for _ in range(4):  # one more than the kernel queues with a backlog of 0
                filler = sockets.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def port_that_says(*answers: bytes) -> AsyncIterator[str]:
    """A listener that answers each first chunk of a connection with these bytes, one connection each, then none."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            if left:
                writer.write(left.pop(0))
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()
