"""Compression in other threads, on real loops: what arrives, what the loop does meanwhile, and how it ends.

A codec that waits for the test stands in for a slow one: whatever happens "while a thread compresses" happens then,
not with luck.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import aioproduce
from aioproduce import Producer
from aioproduce.drivers.asyncio import AsyncioDriver
from aioproduce.drivers.trio import TrioDriver
from aioproduce.errors import (
    DeliveryError,
    DeliveryTimeoutError,
    ForcedCloseError,
    ProducerClosedError,
    SenderDiedError,
)
from aioproduce.producer import life as producer_life
from tests.drivers.concurrency import gather, kill_sender, sleep, spawn, within
from tests.drivers.producing import PATIENCE, assert_still_works, read_back, until, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.testing import FakeCluster

VALUE = b"some value " * 100


def workers() -> list[threading.Thread]:
    """The threads that compress."""
    return [each for each in threading.enumerate() if each.name.startswith("aioproduce compression")]


class GatedCodec:
    """Gzip that begins when the test says so."""

    id = 1
    name = "gzip"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun_count = 0
        self.error: BaseException | None = None
        self.threads: set[threading.Thread] = set()

    def compress(self, data: bytes | bytearray | memoryview, /) -> bytes:
        self.threads.add(threading.current_thread())
        self.begun_count += 1
        before = bytes(data)
        assert self.gate.wait(PATIENCE)
        assert bytes(data) == before, "the memory was reused while this thread read it"
        if self.error is not None:
            raise self.error
        return gzip.compress(data)

    def cost(self, size: int, /) -> float:
        return 1.0 if size > 1000 else 0.0


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedCodec]:
    """What every producer of the test compresses with."""
    gated = GatedCodec()
    monkeypatch.setattr(producer_life, "codec_of", lambda config: gated)
    yield gated
    gated.gate.set()


@pytest.mark.parametrize(
    ("name", "level"),
    [("gzip", {}), ("snappy", {}), ("lz4", {}), ("lz4", {"compression_lz4_level": 12}), ("zstd", {})],
    ids=["gzip", "snappy", "lz4", "lz4-12", "zstd"],
)
@pytest.mark.parametrize("batch_size", [16_384, 262_144])
async def test_a_foreign_client_reads_what_threads_compressed(
    cluster: FakeCluster, name: Any, level: dict[str, Any], batch_size: int
) -> None:
    random = Random(7)
    sent = [b"%d %s" % (n, random.randbytes(20).hex().encode() * 5) for n in range(6000)]
    async with Producer(
        cluster.bootstrap_servers, compression_type=name, batch_size=batch_size, linger_ms=5, **level
    ) as producer:
        deliveries = [await producer.send("t", value, partition=n % 3) for n, value in enumerate(sent)]
        placed = await gather(*deliveries)
        # Batches of 16 KiB take snappy and lz4 less time than to hand them over.
        assert workers() or batch_size < 20_000
    await until(lambda: not workers())
    assert producer.outstanding_bytes == 0
    found = await read_back(cluster, "t", len(sent))
    assert len(found) == len(sent)
    by_partition = [[n for n in range(6000) if n % 3 == partition] for partition in range(3)]
    assert [record.value for record in found] == [sent[n] for numbers in by_partition for n in numbers]
    assert [placed[n].offset for n in by_partition[1]] == list(range(2000))


async def test_the_loop_goes_on_while_a_thread_compresses(cluster: FakeCluster, codec: GatedCodec) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="gzip") as producer:
        slow = await producer.send("t", VALUE, partition=0)
        await until(lambda: codec.begun_count)
        behind = await producer.send("t", b"behind", partition=0)
        assert not slow.done()
        assert not behind.done()
        assert values(cluster) == []
        assert threading.current_thread() not in codec.threads
        codec.gate.set()
        async with within(PATIENCE):
            assert ((await slow).offset, (await behind).offset) == (0, 1)
    assert values(cluster) == [VALUE, b"behind"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
async def test_the_loop_goes_first_where_both_want_the_processor(
    cluster: FakeCluster, codec: GatedCodec
) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="gzip") as producer:
        delivery = await producer.send("t", VALUE, partition=0)
        await until(lambda: codec.begun_count)
        ours = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        [worker] = codec.threads
        assert worker.native_id is not None
        assert os.getpriority(os.PRIO_PROCESS, worker.native_id) == min(ours + 10, 19)
        codec.gate.set()
        await delivery


async def test_a_record_fails_in_time_though_a_thread_still_compresses_it(
    cluster: FakeCluster, codec: GatedCodec
) -> None:
    async with Producer(
        cluster.bootstrap_servers,
        compression_type="gzip",
        linger_ms=0,
        delivery_timeout_ms=500,
        request_timeout_ms=250,
        batch_size=16_384,
        buffer_memory=16_384,
    ) as producer:
        delivery = await producer.send("t", VALUE)
        async with within(PATIENCE):
            with pytest.raises(DeliveryTimeoutError, match="still being compressed") as caught:
                await delivery
        assert not caught.value.possibly_written
        assert producer.outstanding_bytes == 16_384
        waiting = spawn(producer.send("t", b"next"))
        await until(lambda: producer._life.sender.pool.waiting)
        codec.gate.set()
        async with within(PATIENCE):
            await (await waiting)
    assert values(cluster) == [b"next"]
    assert producer.outstanding_bytes == 0


@pytest.mark.parametrize("error", [MemoryError("no room"), BaseException("a panic")], ids=repr)
async def test_a_batch_that_cannot_be_compressed_fails_alone(
    cluster: FakeCluster, codec: GatedCodec, error: BaseException
) -> None:
    codec.error = error
    codec.gate.set()
    async with Producer(cluster.bootstrap_servers, compression_type="gzip") as producer:
        delivery = await producer.send("t", VALUE)
        async with within(PATIENCE):
            with pytest.raises(DeliveryError, match="could not be compressed with gzip") as caught:
                await delivery
        assert caught.value.__cause__ is error
        codec.error = None
        await assert_still_works(producer, cluster)
    assert values(cluster) == [b"good"]


# -- the end ---


async def test_close_sends_what_a_thread_compresses(cluster: FakeCluster, codec: GatedCodec) -> None:
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    delivery = await producer.send("t", VALUE)
    await until(lambda: codec.begun_count)
    closing = spawn(producer.close())
    await sleep(0)
    codec.gate.set()
    async with within(PATIENCE):
        await closing
    assert delivery.result().offset == 0
    await until(lambda: not workers())


async def test_a_forced_close_settles_at_once_and_ends_with_the_thread(
    cluster: FakeCluster, codec: GatedCodec
) -> None:
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    deliveries = [await producer.send("t", VALUE, partition=partition) for partition in range(3)]
    await until(lambda: codec.begun_count)
    closing = spawn(producer.close(0))
    async with within(PATIENCE):
        for delivery in deliveries:
            with pytest.raises(ForcedCloseError) as caught:
                await delivery
            assert not caught.value.possibly_written
    assert not closing.done()
    codec.gate.set()
    async with within(PATIENCE):
        await closing
    assert producer.outstanding_bytes == 0
    assert codec.begun_count <= 2
    assert values(cluster) == []
    await until(lambda: not workers())


@pytest.mark.parametrize("timeout", [0, 0.01])
async def test_a_forced_close_leaves_a_thread_to_itself_that_does_not_end(
    cluster: FakeCluster,
    codec: GatedCodec,
    timeout: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(producer_life, "_ABORT_BOUND", 0.01)
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    told: list[BaseException | None] = []
    deliveries = [
        await producer.send(
            "t", VALUE, partition=partition, on_delivery=lambda _metadata, error: told.append(error)
        )
        for partition in range(3)
    ]
    await until(lambda: codec.begun_count == 2)
    async with within(PATIENCE):
        await producer.close(timeout)

    for delivery in deliveries:
        error = delivery.exception()
        assert isinstance(error, ForcedCloseError)
        assert not error.possibly_written
    assert [type(error) for error in told] == [ForcedCloseError] * 3
    assert "closed" in repr(producer)
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"v")
    await producer.close()
    assert [record.levelname for record in caplog.records if "died" in record.message] == []
    assert "is left behind" in caplog.text
    # What the threads still read is nobody else's, and comes back.
    assert len(workers()) == 2
    assert producer.outstanding_bytes == 2 * producer.config.batch_size
    codec.gate.set()
    await until(lambda: producer.outstanding_bytes == 0)
    await until(lambda: not workers())
    assert values(cluster) == []


async def test_a_forced_close_takes_back_what_no_thread_has_begun(
    cluster: FakeCluster, codec: GatedCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_life, "_ABORT_BOUND", 0.01)
    # So short that more of them are given away than there are threads.
    monkeypatch.setattr(codec, "cost", lambda size: 1e-3)
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    driver = producer._life.driver
    assert isinstance(driver, AsyncioDriver | TrioDriver)
    deliveries = [await producer.send("t", VALUE, partition=partition) for partition in range(3)]
    await until(lambda: codec.begun_count == 2 and driver.core.compression._jobs)
    async with within(PATIENCE):
        await producer.close(0)

    assert all(isinstance(delivery.exception(), ForcedCloseError) for delivery in deliveries)
    assert producer.outstanding_bytes == 2 * producer.config.batch_size
    codec.gate.set()
    await until(lambda: producer.outstanding_bytes == 0)
    await until(lambda: not workers())
    assert codec.begun_count == 2


async def test_a_cancelled_close_ends_with_the_thread(
    cluster: FakeCluster, codec: GatedCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_life, "_ABORT_BOUND", 0.01)  # trio: it waits, since nothing may outlive it
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    delivery = await producer.send("t", VALUE)
    await until(lambda: codec.begun_count)
    closing = spawn(producer.close())
    await sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert isinstance(delivery.exception(), ForcedCloseError)
    codec.gate.set()
    await until(lambda: producer.outstanding_bytes == 0)
    await until(lambda: not workers())


async def test_the_senders_death_ends_the_threads(
    cluster: FakeCluster, codec: GatedCodec, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(cluster.bootstrap_servers, compression_type="gzip")
    await producer.start()
    delivery = await producer.send("t", VALUE)
    await until(lambda: codec.begun_count)
    kill_sender()
    async with within(PATIENCE):
        with pytest.raises(DeliveryError, match="before the producer was closed"):
            await delivery
    codec.gate.set()
    await until(lambda: not workers())
    with pytest.raises(SenderDiedError):
        await producer.send("t", b"v")
    await producer.close()
    assert values(cluster) == []
    assert "was left open" in caplog.text


SLOW = """
    import asyncio, os, sys, threading
    from aioproduce import Producer
    from aioproduce.testing import FakeCluster

    async def begin():
        # Some hundred milliseconds of gzip, and nobody waits for them.
        cluster = await FakeCluster(1, topics={"t": 1}).__aenter__()
        producer = Producer(
            cluster.bootstrap_servers,
            compression_type="gzip",
            compression_gzip_level=9,
            batch_size=8_000_000,
            max_request_size=9_000_000,
        )
        await producer.start()
        await producer.send("t", b"abcdefghi " * 700_000)
        while not any(each.name.startswith("aioproduce compression") for each in threading.enumerate()):
            await asyncio.sleep(0)
        return cluster, producer

    def new_loop():
        if sys.argv[1] == "uvloop":
            import uvloop
            return uvloop.new_event_loop()
        return asyncio.new_event_loop()
"""

EXIT = """
    loop = new_loop()
    kept = loop.run_until_complete(begin())
    print("leaving", flush=True)
    sys.exit(0)
"""

CLOSED_LOOP = """
    loop = new_loop()
    kept = loop.run_until_complete(begin())
    print("leaving", flush=True)
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
    loop.close()
    sys.exit(0)
"""

FORK = """
    async def anew():
        async with FakeCluster(1, topics={"t": 1}) as other:
            async with Producer(other.bootstrap_servers, compression_type="gzip") as own:
                await own.send_and_wait("t", b"of the child " * 5000)
            return len(other.records("t"))

    async def go_on(cluster, producer, child):
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        await producer.flush()
        print("the parent's:", len(cluster.records("t")), "status", status, flush=True)
        await producer.close()
        await cluster.__aexit__(None, None, None)

    # Forked between two runs of the loop: on 3.14 a child cannot leave through a task that the parent began.
    loop = new_loop()
    cluster, producer = loop.run_until_complete(begin())
    child = os.fork()
    if child == 0:
        print("the child's:", asyncio.run(anew()), flush=True)
        if sys.argv[1] == "uvloop":
            os._exit(0)  # uvloop's own copies of the parent's sockets crash it otherwise, producer or none
        sys.exit(0)  # the ordinary way out, with copies of the parent's workers
    loop.run_until_complete(go_on(cluster, producer, child))
    loop.close()
"""


def run(script: str, loop: str) -> str:
    root = str(Path(aioproduce.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW) + textwrap.dedent(script), loop],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Fatal" not in ran.stderr
    return ran.stdout


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("script", [EXIT, CLOSED_LOOP], ids=["exit", "closed loop"])
def test_the_interpreter_ends_while_a_thread_compresses(script: str, loop: str) -> None:
    assert run(script, loop) == "leaving\n"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_fork_while_a_thread_compresses(loop: str) -> None:
    assert run(FORK, loop) == "the child's: 1\nthe parent's: 1 status 0\n"
