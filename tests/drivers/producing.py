"""What producer tests do again and again: wait for a condition, read a topic back with a client that is not ours,
and see that a producer still works after something went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import trio
from aiokafka import AIOKafkaConsumer, TopicPartition

from aioproduce.errors import MetadataTimeoutError
from tests.drivers.concurrency import is_trio, rest, run_asyncio, sleep, to_thread, within
from tests.drivers.loop_thread import loop_thread

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
    async with within(PATIENCE):
        while True:
            if condition():
                return
            await sleep(0.001)


async def know_topic(producer: Producer, *topics: str) -> None:
    """Have it learn them, however long that takes: its `max.block.ms` may be as short as the test wants to wait."""
    async with within(PATIENCE):
        for topic in topics:
            while True:
                with contextlib.suppress(MetadataTimeoutError):
                    await producer.partitions_for(topic)
                    break


async def let_the_sender_rest() -> None:
    """More turns of the loop than the sender task needs for what it knows already."""
    await rest()


async def read_back(cluster: FakeCluster, topic: str, count: int) -> list[Any]:
    """`count` records of a topic, by partition and offset, from aiokafka's consumer."""
    partitions = len(cluster.topics[topic].partitions)
    return await run_asyncio(_read_back(cluster.bootstrap_servers, topic, partitions, count))


async def _read_back(servers: str, topic: str, partitions: int, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
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
    async with within(PATIENCE):
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
        takes_connections: Whether the kernel still completes handshakes; otherwise its queue is full, and a
            connecting client waits.
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
    listener = _Listener(*answers)
    if is_trio():
        with loop_thread() as thread:
            address = await to_thread(thread.submit(listener.open).result)
            try:
                yield address
            finally:
                with trio.CancelScope(shield=True):
                    await to_thread(thread.submit(listener.close).result)
    else:
        try:
            yield await listener.open()
        finally:
            await listener.close()


class _Listener:
    def __init__(self, *answers: bytes) -> None:
        self._left = list(answers)
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            if self._left:
                writer.write(self._left.pop(0))
            await reader.read()
        finally:
            writer.close()
