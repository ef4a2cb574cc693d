"""How aiokafka's producer starts, flushes, stops, and complains. A test runs on both, or says why not."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError, KafkaConnectionError, ProducerClosed

from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.compat.aiokafka_sides import nobody_there, started


def is_closed(producer: Any) -> bool:
    """As programs ask it, private or not."""
    return producer._closed is True


async def test_a_start_without_a_broker_fails(side: Any) -> None:
    with nobody_there() as first, nobody_there() as second:
        producer = side(bootstrap_servers=[first, second])
        for _ in range(2):  # users try again in a loop
            with pytest.raises(KafkaConnectionError, match="Unable to bootstrap from"):
                await producer.start()
        await producer.stop()


async def test_one_broker_is_enough_to_start(side: Any, cluster: FakeCluster) -> None:
    with nobody_there() as nobody:
        async with started(side, [nobody, *cluster.bootstrap_servers.split(",")]) as producer:
            assert (await producer.send_and_wait("one", b"x")).offset == 0


async def test_every_address_of_a_name_is_tried(
    side: Any, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As "localhost" is the IPv6 address first in many places, where nobody listens."""
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo
    port = cluster.ports[0]

    async def find(host: Any, *arguments: Any, **keywords: Any) -> Any:
        found = await look_up("127.0.0.1", *arguments, **keywords)
        return [(*found[0][:4], ("127.0.0.1", 1)), *found] if host == "localhost" else found

    monkeypatch.setattr(loop, "getaddrinfo", find)
    async with started(side, f"localhost:{port}") as producer:
        assert (await producer.send_and_wait("one", b"x")).offset == 0


async def test_a_start_that_failed_may_be_tried_again(side: Any) -> None:
    async with FakeCluster(1, topics={"one": 1}) as cluster:
        await cluster.stop_broker(0)
        producer = side(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        batch = producer.create_batch()
        batch.append(key=None, value=b"made before", timestamp=None)
        await cluster.start_broker(0)
        await producer.start()
        assert (await producer.send_and_wait("one", b"x")).offset == 0
        assert (await (await producer.send_batch(batch, "one", partition=0))).offset == 1
        await producer.stop()


class NoBroker:
    """Listens, and says nothing: it hangs up at once, or when the other does.

    Attributes:
        connected: Set when somebody has connected.
        gone: Set when somebody has gone again.
    """

    def __init__(self, *, hangs_up: bool) -> None:
        self._hangs_up = hangs_up
        self.connected = asyncio.Event()
        self.gone = asyncio.Event()
        self._handlers: set[asyncio.Task[Any]] = set()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connected.set()
        while not self._hangs_up and await reader.read(1000):
            pass
        self.gone.set()
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])

    async def __aenter__(self) -> NoBroker:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.wait(self._handlers)


async def test_a_broker_that_hangs_up_is_none(side: Any) -> None:
    async with NoBroker(hangs_up=True) as server:
        producer = side(bootstrap_servers=server.address)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()


async def test_a_broker_that_says_nothing_is_given_up(side: Any) -> None:
    async with NoBroker(hangs_up=False) as server:
        producer = side(bootstrap_servers=server.address, request_timeout_ms=200)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        assert server.connected.is_set()
        await producer.stop()
        gc.collect()  # aiokafka forgets the connection


async def test_a_start_that_is_cancelled_leaves_nothing_running() -> None:
    """Ours alone: aiokafka's leaves its connection behind."""
    async with NoBroker(hangs_up=False) as server:
        producer = OurProducer(bootstrap_servers=server.address)
        before = asyncio.all_tasks()
        starting = asyncio.ensure_future(producer.start())
        await server.connected.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await server.gone.wait()
        await producer.stop()
        assert not [task for task in asyncio.all_tasks() - before if "aioproduce" in task.get_name()]


async def test_as_a_context(side: Any, cluster: FakeCluster) -> None:
    producer = side(bootstrap_servers=cluster.bootstrap_servers)
    async with producer as entered:
        assert entered is producer
        assert not producer._closed
        await producer.send("one", b"is delivered at the end", key=b"KEY")
    assert is_closed(producer)
    assert len(cluster.records("one")) == 1

    producer = side(bootstrap_servers=cluster.bootstrap_servers)

    async def fail_within() -> None:
        async with producer:
            await producer.send("one", b"also with an error")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail_within()
    assert is_closed(producer)
    assert len(cluster.records("one")) == 2


async def test_a_context_whose_start_fails(side: Any) -> None:
    with nobody_there() as nobody:
        producer = side(bootstrap_servers=nobody)
        with pytest.raises(KafkaConnectionError):
            async with producer:
                pytest.fail("there is no broker")
        await producer.stop()


async def test_after_the_stop_nothing_is_sent(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", b"x")
    await producer.stop()  # again, and nothing happens
    for call in (producer.send, producer.send_and_wait):
        with pytest.raises(ProducerClosed):
            await call("one", b"late")
    await producer.flush()
    assert len(cluster.records("one")) == 1


async def test_a_producer_that_was_never_started(side: Any) -> None:
    producer = side()
    await producer.flush()
    await producer.stop()
    assert is_closed(producer)


async def test_before_the_start_nothing_is_sent() -> None:
    """Ours alone: aiokafka's `send()` waits for a start that may never come."""
    producer = OurProducer()
    for call in (
        producer.send("t", b"x"),
        producer.send_and_wait("t", b"x"),
        producer.partitions_for("t"),
        producer.send_batch(producer.create_batch(), "t", partition=0),
    ):
        with pytest.raises(IllegalStateError, match="not started"):
            await call
    await producer.stop()


async def test_no_start_after_the_stop(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka's start succeeds, and every send fails."""
    async with started(OurProducer, cluster.bootstrap_servers) as producer:
        await producer.start()  # it runs already, and goes on
        await producer.send_and_wait("one", b"x")
    with pytest.raises(ProducerClosed):
        await producer.start()


async def test_a_flush_waits_for_what_was_sent(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        first = await producer.send("t", b"text1", partition=0)
        second = await producer.send("t", b"text2", partition=1)
        assert not first.done()
        assert not second.done()
        await producer.flush()
        assert first.done()
        assert second.done()
        assert len(cluster.records("t")) == 2


async def test_a_flush_raises_nothing(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(10)
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("one", b"x")
        await producer.flush()
        assert future.exception() is not None


async def test_a_flush_lingers_no_longer(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka's flush waits until what lingers has lingered."""
    async with started(OurProducer, cluster.bootstrap_servers, linger_ms=3_600_000) as producer:
        future = await producer.send("one", b"x")
        await producer.flush()
        assert future.done()


async def test_the_stop_waits_for_what_was_sent(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        futures = [await producer.send("t", b"%d" % number) for number in range(100)]
    assert all(future.done() for future in futures)
    assert len(cluster.records("t")) == 100


async def test_what_is_sent_while_it_stops_is_refused(side: Any, cluster: FakeCluster) -> None:
    answers = cluster.faults.delay_answers(0.2, times=1, api=ApiKey.PRODUCE)
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("one", b"x")
        stopping = asyncio.ensure_future(producer.stop())
        await asyncio.sleep(0)  # it has begun; aiokafka's goes on in a task of its own
        await asyncio.sleep(0)
        assert producer._closed
        with pytest.raises(ProducerClosed):
            await producer.send("one", b"late")
        await producer.flush()  # waits for the same
        assert future.done()
        await stopping
    assert answers.is_spent
    assert [record.value for record in cluster.records("one")] == [b"x"]


async def test_one_that_is_forgotten_warns(side: Any, cluster: FakeCluster) -> None:
    told: list[tuple[str, type]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: told.append((context["message"], type(context.get("producer"))))
    )
    producer = side(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("one", b"x")
    inside = getattr(producer, "_sends", None)
    reference = weakref.ref(producer)
    try:
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):  # noqa: PT031
            del producer
            gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert reference() is None
    assert told == [("Unclosed AIOKafkaProducer", side)]
    if inside is not None:  # ours: what runs goes on until it is stopped, or the loop ends
        await inside.stop()
    else:
        await _let_go_of_theirs()


async def _let_go_of_theirs() -> None:
    """aiokafka's tasks and connections live on when nobody has the producer any more."""
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not current and "aiokafka" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_in_debug_mode_it_tells_where_it_was_made(side: Any) -> None:
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.set_exception_handler(lambda _, context: told.append(context))
    try:
        producer = side()
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):  # noqa: PT031
            del producer
            gc.collect()
    finally:
        loop.set_exception_handler(None)
        loop.set_debug(False)
    (context,) = told
    assert context["source_traceback"][-1].name == "test_in_debug_mode_it_tells_where_it_was_made"


async def test_one_that_was_refused_warns_of_nothing(side: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="Invalid ACKS"):
            side(acks=122)
        gc.collect()


async def test_the_client_tells_of_the_cluster(cluster: FakeCluster) -> None:
    """What programs ask of `producer.client`, of ours alone: aiokafka's has much more."""
    async with started(OurProducer, cluster.bootstrap_servers, client_id="me") as producer:
        client = producer.client
        assert repr(client) == "<AIOKafkaClient client_id=me>"
        assert [f"{host}:{port}" for host, port in client.hosts] == cluster.bootstrap_servers.split(",")
        found = await client.fetch_all_metadata()
        assert {(broker.nodeId, broker.port) for broker in found.brokers()} == set(cluster.ports.items())
        assert found.broker_metadata(1).port == cluster.ports[1]
        assert found.broker_metadata(7) is None
        assert await client.force_metadata_update() is True
        with pytest.raises(AttributeError, match=r"not have client\.coordinator_lookup"):
            _ = client.coordinator_lookup
    with pytest.raises(ProducerClosed):
        await client.fetch_all_metadata()


async def test_the_client_tells_that_nobody_is_there(cluster: FakeCluster) -> None:
    """Ours alone, as above."""
    async with started(OurProducer, cluster.bootstrap_servers, request_timeout_ms=1000) as producer:
        for broker in cluster.ports:
            await cluster.stop_broker(broker)
        assert await producer.client.force_metadata_update() is False
        with pytest.raises(KafkaConnectionError):
            await producer.client.fetch_all_metadata()
