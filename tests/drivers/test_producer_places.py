"""When and where a producer may be called: before start, after close, on another loop, after fork; how it starts.

Scenarios of Kafka's own tests: ProducerFailureHandling `sendAfterClosed`; aiokafka#759 (a forgotten `start()`).
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import aioproduce
from aioproduce import Producer, ProducerConfig
from aioproduce.drivers.asyncio import AsyncioDriver, _Connection
from aioproduce.drivers.trio import TrioDriver
from aioproduce.drivers.trio_connection import TrioConnection
from aioproduce.errors import (
    ConfigError,
    ForkedProcessError,
    NoBrokerAvailableError,
    NotStartedError,
    ProducerClosedError,
    ProducerStateError,
    WrongEventLoopError,
)
from aioproduce.producer.life import open_producers
from aioproduce.testing import FakeCluster
from tests.drivers.concurrency import loop_here, sleep, spawn, to_thread
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    closed_port,
    silent_port,
    until,
    values,
)

CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"v"),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"v"),
    "try_send": lambda producer: producer.try_send("t", b"v"),
    "send_many": lambda producer: producer.send_many("t", [b"v"]),
    "send_many of nothing": lambda producer: producer.send_many("t", []),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "check": lambda producer: producer.check(),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


async def outcome(call: Callable[[Producer], Any], producer: Producer) -> BaseException:
    async def run() -> None:
        result = call(producer)
        if inspect.isawaitable(result):
            await result

    with pytest.raises(ProducerStateError) as caught:
        await run()
    return caught.value


# Before start


@EVERY_CALL
async def test_a_forgotten_start_is_told_at_once(call: Callable[[Producer], Any]) -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=3_600_000)
    error = await outcome(call, producer)
    assert type(error) is NotStartedError
    assert "async with" in str(error)
    assert "start()" in str(error)
    assert producer.outstanding_bytes == 0
    await producer.close()


AT_IMPORT = Producer("127.0.0.1:1")
"""Made when pytest imports this module: no loop runs."""


def test_a_producer_is_made_without_a_loop() -> None:
    assert "127.0.0.1:1" in repr(AT_IMPORT)
    assert "new" in repr(AT_IMPORT)


async def test_a_producer_made_outside_of_the_loop_runs_in_it(cluster: FakeCluster) -> None:
    made: list[Producer] = []
    thread = threading.Thread(target=lambda: made.append(Producer(cluster.bootstrap_servers)))
    thread.start()
    thread.join()
    async with made[0] as producer:
        assert producer is made[0]
        await assert_still_works(producer, cluster)


async def test_an_open_producer_is_found_by_who_looks_for_what_was_forgotten(nothing_left: None) -> None:
    """The pytest plugin does."""
    names = ["closed", "open"]
    closed, still_open = (Producer("127.0.0.1:1", client_id=name) for name in names)

    def found() -> list[str]:
        return sorted(life.config.client_id for life in open_producers() if life.config.client_id in names)

    assert found() == []
    await closed.start()
    await still_open.start()
    assert found() == names
    await closed.close()
    assert found() == ["open"]
    await still_open.close()
    assert found() == []


async def test_closing_what_was_never_started(nothing_left: None) -> None:
    producer = Producer("127.0.0.1:1")
    assert producer.outstanding_records == 0
    await producer.close()
    await producer.close(0)
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"v")
    with pytest.raises(ProducerStateError, match="closed"):
        await producer.start()
    assert producer.outstanding_bytes == 0


# Start


async def test_start_waits_for_no_broker(nothing_left: None) -> None:
    """Nobody listens, and nothing answers: `start()` is back before any of that is known."""
    with closed_port() as refused, silent_port() as silent:
        for address in (refused, silent):
            producer = Producer(address)
            task = spawn(producer.start())
            await sleep(0)
            assert task.done(), "start() suspended"
            await task
            await producer.close()


async def test_start_twice(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(ProducerStateError, match="started once; this one is running"):
            await producer.start()
        await assert_still_works(producer, cluster)
    with pytest.raises(ProducerStateError, match="closed"):
        await producer.start()


async def test_start_that_requires_a_broker_and_finds_one(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    await producer.start(require_broker=True)
    assert cluster.requests.count() > 0
    await assert_still_works(producer, cluster)
    await producer.close()


async def test_start_that_requires_a_broker_waits_for_it(cluster: FakeCluster) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    producer = Producer(cluster.bootstrap_servers)
    starting = spawn(producer.start(require_broker=True))
    await until(lambda: cluster.connections)
    assert not starting.done()
    for broker in range(3):
        cluster.faults.resume(broker)
    await starting
    await assert_still_works(producer, cluster)
    await producer.close()


async def test_start_that_requires_a_broker_where_none_is(nothing_left: None) -> None:
    with closed_port() as address:
        producer = Producer(address, max_block_ms=300)
        with pytest.raises(NoBrokerAvailableError) as caught:
            await producer.start(require_broker=True)
        assert list(caught.value.causes) == [address]
        assert address in str(caught.value)
        assert "advertised.listeners" in str(caught.value)
        for call in CALLS.values():
            assert type(await outcome(call, producer)) is ProducerClosedError


async def test_a_start_that_is_cancelled_leaves_nothing(nothing_left: None) -> None:
    with silent_port() as address:
        producer = Producer(address)
        starting = spawn(producer.start(require_broker=True))
        await sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"v")


# After close


@EVERY_CALL
async def test_after_close(cluster: FakeCluster, call: Callable[[Producer], Any]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("one", b"before")
    error = await outcome(call, producer)
    assert type(error) is ProducerClosedError
    assert "make a new one" in str(error)
    assert values(cluster, "one") == [b"before"]


@EVERY_CALL
async def test_while_it_closes(cluster: FakeCluster, call: Callable[[Producer], Any]) -> None:
    producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    await producer.start()
    await producer.send("one", b"before")
    for broker in range(3):
        cluster.faults.stall(broker)
    closing = spawn(producer.close())
    await sleep(0)
    error = await outcome(call, producer)
    assert type(error) is ProducerClosedError
    assert not closing.done()
    for broker in range(3):
        cluster.faults.resume(broker)
    await closing
    assert values(cluster, "one") == [b"before"]


# Another loop, no loop, another thread


@EVERY_CALL
async def test_from_another_event_loop(cluster: FakeCluster, call: Callable[[Producer], Any]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("t")

        def in_thread() -> BaseException:
            return asyncio.run(outcome(call, producer))

        error = await to_thread(in_thread)
        assert type(error) is WrongEventLoopError
        assert "one producer per loop" in str(error)
        assert "run_coroutine_threadsafe" in str(error)
        assert producer.outstanding_bytes == 0
        await assert_still_works(producer, cluster)


async def test_close_from_another_event_loop_closes_nothing(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:

        def in_thread() -> None:
            with pytest.raises(WrongEventLoopError):
                asyncio.run(producer.close())

        await to_thread(in_thread)
        await assert_still_works(producer, cluster)


async def test_try_send_from_a_thread_without_a_loop(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        with pytest.raises(WrongEventLoopError):
            await to_thread(producer.try_send, "t", b"v")
        await assert_still_works(producer, cluster)


async def test_the_remedy_works(cluster: FakeCluster) -> None:
    """What WrongEventLoopError says to use: `run_coroutine_threadsafe()`, or `trio.from_thread.run()`."""
    async with Producer(cluster.bootstrap_servers) as producer:
        loop: Any = loop_here()

        def in_thread() -> int:
            if isinstance(loop, trio.lowlevel.TrioToken):
                metadata = trio.from_thread.run(producer.send_and_wait, "one", b"v", trio_token=loop)
                return metadata.offset
            sent = asyncio.run_coroutine_threadsafe(producer.send_and_wait("one", b"v"), loop)
            return sent.result(PATIENCE).offset

        assert await to_thread(in_thread) == 0


# After fork

FORKED = """
    import asyncio, os, sys
    from aioproduce import Producer
    from aioproduce.testing import FakeCluster

    CALLS = {
        "send": lambda producer: producer.send("t", b"child"),
        "try_send": lambda producer: producer.try_send("t", b"child"),
        "send_many": lambda producer: producer.send_many("t", [b"child"]),
        "flush": lambda producer: producer.flush(),
        "partitions_for": lambda producer: producer.partitions_for("t"),
        "check": lambda producer: producer.check(),
        "close": lambda producer: producer.close(),
    }

    async def outcome(name, producer):
        try:
            result = CALLS[name](producer)
            if name != "try_send":
                await result
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
        return f"{name}: no error"

    def drive(coroutine):
        # On the parent's loop as the fork left it: a child that goes on where the parent was.
        try:
            coroutine.send(None)
        except StopIteration as stopped:
            return stopped.value
        return "suspended"

    async def main():
        async with FakeCluster(1, topics={"t": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"before")
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    told = [drive(outcome(name, producer)) for name in CALLS]
                    asyncio.events._set_running_loop(None)
                    told += [asyncio.run(outcome(name, producer)) for name in CALLS]
                    os.write(writer, "\\n".join(told).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            await asyncio.to_thread(os.waitpid, child, 0)
            with os.fdopen(reader) as pipe:
                print(pipe.read())
            await producer.send_and_wait("t", b"after")
            print("log:", [record.value for record in cluster.records("t")])

    if sys.argv[1] == "uvloop":
        import uvloop
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
    else:
        asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_after_fork(loop: str) -> None:
    """In the child every call says so, on the loop that it inherited and on a new one; the parent goes on."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), loop],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        cwd=Path(aioproduce.__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(aioproduce.__file__).parents[1])},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    *told, log = ran.stdout.splitlines()
    calls = ["send", "try_send", "send_many", "flush", "partitions_for", "check", "close"]
    assert [line.partition(": ")[0] for line in told] == calls * 2
    for line in told:
        assert f": {ForkedProcessError.__name__}: " in line
        assert "Make and start a new one in the child" in line
    assert log == "log: [b'before', b'after']"


# How it is made


async def test_the_ways_to_configure_one(cluster: FakeCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    file = tmp_path / "producer.properties"
    file.write_text(f"# ours\nbootstrap.servers={servers}\nlinger.ms = 7\nclient.id: from-file\n")
    made = [
        Producer(servers, linger_ms=7),
        Producer(servers.split(","), linger_ms=7),
        Producer(bootstrap_servers=servers, linger_ms=7),
        Producer({"bootstrap.servers": servers, "linger.ms": "7"}),
        Producer({"bootstrap.servers": servers, "linger.ms": "99"}, linger_ms=7),
        Producer(ProducerConfig.from_keywords(bootstrap_servers=servers, linger_ms=7)),
        Producer.from_properties(file),
        Producer.from_properties(str(file), client_id="ours"),
    ]
    for producer in made:
        assert producer.config.linger == 0.007
        async with producer:
            await producer.send_and_wait("one", b"v")
    assert len(values(cluster, "one")) == len(made)
    assert made[-2].config.client_id == "from-file"
    assert made[-1].config.client_id == "ours"


def test_a_whole_configuration_takes_no_settings_beside_it() -> None:
    with pytest.raises(TypeError, match="complete"):
        Producer(ProducerConfig.from_keywords(bootstrap_servers="localhost:1"), linger_ms=1)


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"liger_ms": 5}, "liger_ms", ["did you mean 'linger_ms'"]),
        ({"linger_ms": -1}, "linger.ms", ["-1"]),
        ({"buffer_memory": "much"}, "buffer.memory", ["much"]),
        ({"compression_type": "rar"}, "compression.type", ["rar", "zstd"]),
        ({"acks": 2}, "acks", ["2"]),
        ({"send_buffer_bytes": -2}, "send.buffer.bytes", ["-2"]),
        ({"receive_buffer_bytes": -2}, "receive.buffer.bytes", ["-2"]),
        ({"enable_idempotence": True, "acks": 1}, None, ["enable.idempotence", "acks"]),
        ({"enable_idempotence": True, "retries": 0}, None, ["enable.idempotence", "retries"]),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            None,
            ["enable.idempotence", "max.in.flight.requests.per.connection"],
        ),
        (
            {"delivery_timeout_ms": 1000, "linger_ms": 999, "request_timeout_ms": 2},
            None,
            ["delivery.timeout.ms", "linger.ms", "request.timeout.ms"],
        ),
        (
            {"transactional_id": "t", "acks": 1},
            "transactional.id",
            ["acks=all", "leave out transactional.id"],
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_wrong_settings_make_no_producer(settings: dict[str, Any], key: str | None, words: list[str]) -> None:
    """The whole table is tried in tests/unit/test_config*.py; here, that the constructor asks it."""
    with pytest.raises(ConfigError) as caught:
        Producer("localhost:9092", **settings)
    if key is not None:
        assert caught.value.key == key
    for word in words:
        assert word in str(caught.value)


def test_no_servers() -> None:
    servers: Any
    for servers in (None, {}, "", []):
        with pytest.raises(ConfigError, match=r"bootstrap.servers"):
            Producer(servers)


async def test_a_host_name_with_several_addresses(cluster: FakeCluster) -> None:
    """`localhost` is ::1 on many machines, where nobody listens, and 127.0.0.1 (KIP-302: each is tried)."""
    servers = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
    async with Producer(servers) as producer:
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize("size", [20_000, -1], ids=["given", "the system's"])
async def test_socket_buffers(cluster: FakeCluster, size: int) -> None:
    """KafkaProducerTest `osDefaultSocketBufferSizes`: -1 leaves them alone."""
    async with Producer(
        cluster.bootstrap_servers, send_buffer_bytes=size, receive_buffer_bytes=size
    ) as producer:
        await assert_still_works(producer, cluster)
        driver = producer._life.driver
        assert isinstance(driver, AsyncioDriver | TrioDriver)
        assert driver.core.connections
        for each in driver.core.connections.values():
            if isinstance(each, TrioConnection):
                sock: Any = each._socket
            else:
                assert isinstance(each, _Connection)
                assert each.transport is not None
                sock = each.transport.get_extra_info("socket")
            assert sock is not None
            sizes = {
                sock.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            }
            if size > 0:
                assert sizes <= {size, 2 * size}, "Linux doubles what is asked for"
            else:
                assert min(sizes) > 2 * 20_000


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), float("-inf")])
async def test_a_negative_timeout_is_refused(cluster: FakeCluster, timeout: float) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("t", b"v", timeout=timeout),
            lambda: producer.send_and_wait("t", b"v", timeout=timeout),
            lambda: producer.flush(timeout),
            lambda: producer.partitions_for("t", timeout),
            lambda: producer.check(timeout),
            lambda: producer.client_instance_id(timeout),
            lambda: producer.close(timeout),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="timeout must be 0 or more seconds"):
                await call()
        assert producer.outstanding_bytes == 0
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_a_producer_is_not_copied(cluster: FakeCluster, copied: Callable[[Producer], object]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copied(producer)
        await assert_still_works(producer, cluster)
