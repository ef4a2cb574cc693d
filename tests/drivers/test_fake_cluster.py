"""`FakeCluster` on real sockets, with clients that are not ours: aiokafka and librdkafka.

1. What each client sent is in the log, and each client reads back what is in the log.
2. Whatever happens to brokers and connections, nothing is left behind after `close()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka import Consumer, KafkaError, Producer

from aioproduce.testing import FakeCluster, ReplicationConfig
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import batch, produce_request
from tests.wire_oracle import request_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

# Far above what any of it takes: a bound for a hang, not a budget.
PATIENCE = 60.0
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@contextlib.asynccontextmanager
async def clean_cluster() -> AsyncIterator[FakeCluster]:
    """A cluster of three that leaves nothing behind."""
    async with FakeCluster(3, topics={"t": 3}) as started:
        yield started
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert started.connections == []


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with clean_cluster() as started:
        yield started


@contextlib.asynccontextmanager
async def producer(cluster: FakeCluster, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def read_back(
    cluster: FakeCluster, count: int, *topics: str, **settings: Any
) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of `count` records, by aiokafka's consumer."""
    consumer = AIOKafkaConsumer(
        *topics, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings
    )
    await consumer.start()
    try:
        if not topics:
            consumer.assign([TopicPartition("t", partition) for partition in range(3)])
        found: list[tuple[int, int, bytes]] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                record = await consumer.getone()
                found.append((record.partition, record.offset, record.value))
        return sorted(found)
    finally:
        await consumer.stop()


def logged(cluster: FakeCluster, topic: str = "t") -> list[tuple[int, int, bytes | None]]:
    return [(record.partition, record.offset, record.value) for record in cluster.records(topic)]


def rdkafka(cluster: FakeCluster, **settings: object) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def rdkafka_send(config: dict[str, Any], topic: str, values: list[bytes]) -> list[int | None]:
    """Send with librdkafka; the error code of each report."""
    reports: list[int | None] = []

    def report(error: KafkaError | None, _: object) -> None:
        reports.append(None if error is None else error.code())

    client = Producer(config)
    for value in values:
        client.produce(topic, value, on_delivery=report)
    assert client.flush(PATIENCE) == 0
    return reports


def rdkafka_read(config: dict[str, Any], topic: str, count: int) -> list[tuple[int, int, bytes]]:
    client = Consumer({**config, "group.id": "rdkafka", "auto.offset.reset": "earliest"})
    client.subscribe([topic])
    found: list[tuple[int, int, bytes]] = []
    while len(found) < count:
        message = client.poll(PATIENCE)
        assert message is not None, "nothing came"
        if message.error() is None:
            found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
    client.close()
    return sorted(found)


# Foreign clients


@pytest.mark.parametrize("codec", CODECS, ids=str)
async def test_aiokafka_writes_and_reads(cluster: FakeCluster, codec: str | None) -> None:
    async with producer(cluster, enable_idempotence=True, compression_type=codec) as client:
        sent = [
            await client.send(
                "t", b"value %d" % n, key=b"%d" % n, headers=[("n", b"%d" % n)], timestamp_ms=1000 + n
            )
            for n in range(300)
        ]
        metadata = await asyncio.gather(*sent)

    kept = {(record.partition, record.offset): record for record in cluster.records("t")}
    assert len(kept) == 300
    for n, acknowledged in enumerate(metadata):
        record = kept[acknowledged.partition, acknowledged.offset]
        assert (record.value, record.key, record.timestamp) == (b"value %d" % n, b"%d" % n, 1000 + n)
        assert record.headers == (("n", b"%d" % n),)
    batches = [stored for partition in range(3) for stored in cluster.log("t", partition)]
    assert {(stored.producer_id, stored.producer_epoch) for stored in batches} == {(1000, 0)}
    assert {stored.header.codec_id for stored in batches} == {CODECS.index(codec)}
    assert await read_back(cluster, 300) == logged(cluster)


async def test_aiokafka_reads_in_a_group_and_goes_on_where_it_committed(cluster: FakeCluster) -> None:
    async with producer(cluster) as client:
        for n in range(20):
            await client.send("t", b"%d" % n)
        await client.flush()
        assert await read_back(cluster, 20, "t", group_id="g") == logged(cluster)
        before = cluster.records("t")
        for n in range(20, 30):
            await client.send("t", b"%d" % n)
    later = [
        place for place in logged(cluster) if place not in [(r.partition, r.offset, r.value) for r in before]
    ]
    assert await read_back(cluster, 10, "t", group_id="g") == later


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
    """Tells when the partitions are shared."""

    def __init__(self, sizes: dict[object, int], changed: asyncio.Event) -> None:
        self._sizes = sizes
        self._changed = changed

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._sizes[self] = 0

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._sizes[self] = len(assigned)
        if sorted(self._sizes.values()) == [1, 2]:
            self._changed.set()


async def test_two_aiokafka_consumers_share_a_topic(cluster: FakeCluster) -> None:
    shared = asyncio.Event()
    sizes: dict[object, int] = {}
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            found.put_nowait(record.value)

    async with asyncio.timeout(PATIENCE), contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
            )
            consumer.subscribe(["t"], listener=Assignments(sizes, shared))
            await consumer.start()
            stack.push_async_callback(consumer.stop)
            reader = asyncio.create_task(read(consumer))
            stack.callback(reader.cancel)
        await shared.wait()
        async with producer(cluster) as client:
            for n in range(30):
                await client.send("t", b"%d" % n, partition=n % 3)
        values = [await found.get() for _ in range(30)]
    assert sorted(values) == sorted(b"%d" % n for n in range(30))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_writes_and_reads(cluster: FakeCluster, codec: str) -> None:
    config = rdkafka(cluster, enable_idempotence=True, compression_type=codec)
    values = [b"value %d" % n for n in range(300)]

    reports = await asyncio.to_thread(rdkafka_send, config, "new", values)

    assert reports == [None] * 300
    assert sorted(value or b"" for _, _, value in logged(cluster, "new")) == sorted(values)
    assert await asyncio.to_thread(rdkafka_read, rdkafka(cluster), "new", 300) == logged(cluster, "new")


async def test_an_idempotent_client_that_lost_the_answer_is_not_doubled(cluster: FakeCluster) -> None:
    """The window of five at work: librdkafka's own mock keeps such a record twice."""
    for _ in range(3):
        cluster.faults.reset_connections_on(ApiKey.PRODUCE)
    config = rdkafka(cluster, enable_idempotence=True, linger_ms=0)
    values = [b"%d" % n for n in range(200)]

    reports = await asyncio.to_thread(rdkafka_send, config, "t", values)

    assert reports == [None] * 200
    assert sorted(value or b"" for _, _, value in logged(cluster)) == sorted(values)


async def test_a_client_without_idempotence_that_lost_the_answer_is_doubled(cluster: FakeCluster) -> None:
    cluster.faults.reset_connections_on(ApiKey.PRODUCE)

    async with producer(cluster, enable_idempotence=False, retry_backoff_ms=1) as client:
        await client.send_and_wait("t", b"v", partition=0)

    assert [record.value for record in cluster.records("t", 0)] == [b"v", b"v"]


async def test_error_codes_reach_a_client(cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(10)
    async with producer(cluster) as client:
        with pytest.raises(MessageSizeTooLargeError):
            await client.send_and_wait("t", b"v")
        await client.send_and_wait("t", b"w")
    assert [record.value for record in cluster.records("t")] == [b"w"]


async def test_librdkafka_reports_a_denied_topic(cluster: FakeCluster) -> None:
    cluster.deny_topic("t")
    config = rdkafka(cluster)

    reports = await asyncio.to_thread(rdkafka_send, config, "t", [b"v"])

    assert reports == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


async def test_clients_follow_a_leader_that_moves(cluster: FakeCluster) -> None:
    async with producer(cluster, retry_backoff_ms=1) as client:
        for n in range(6):
            cluster.move_leader("t", 0, n % 3)
            await client.send_and_wait("t", b"%d" % n, partition=0)
    assert [record.value for record in cluster.records("t", 0)] == [b"%d" % n for n in range(6)]
    assert [stored.header.partition_leader_epoch for stored in cluster.log("t", 0)] == [0, 1, 2, 3, 4, 5]


async def test_clients_survive_brokers_that_stop_and_start(cluster: FakeCluster) -> None:
    async with producer(cluster, retry_backoff_ms=1, enable_idempotence=True) as client:
        for broker in (0, 1, 2):
            await client.send_and_wait("t", b"before %d" % broker, partition=0)
            await cluster.stop_broker(broker)
            await client.send_and_wait("t", b"during %d" % broker, partition=0)
            await cluster.start_broker(broker)
    values = [record.value for record in cluster.records("t", 0)]
    assert values == [b"%s %d" % (when, n) for n in range(3) for when in (b"before", b"during")]


async def test_aiokafka_understands_an_ancient_broker(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.API_VERSIONS: (0, 0), ApiKey.METADATA: (0, 1), ApiKey.PRODUCE: (3, 3)})
    async with producer(cluster) as client:
        await client.send_and_wait("t", b"v")
    assert {entry.api_version for entry in cluster.requests.entries(ApiKey.PRODUCE)} == {3}


async def test_librdkafka_falls_back_to_old_api_versions(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.API_VERSIONS: (0, 2)})

    assert await asyncio.to_thread(rdkafka_send, rdkafka(cluster), "t", [b"v"]) == [None]

    asked = {entry.api_version for entry in cluster.requests.entries(ApiKey.API_VERSIONS)}
    assert asked == {0, 3}


async def test_a_consumer_reads_what_every_replica_has() -> None:
    """And an unclean election takes away what the elected one does not have."""
    replication = ReplicationConfig(lag=0.01)
    async with FakeCluster(3, topics={"t": 1}, replication=replication) as cluster:
        async with producer(cluster, acks="all") as client:
            await client.send_and_wait("t", b"a")
            assert cluster.high_watermark("t", 0) == 1
            cluster.faults.pause_replication(1)
            # The answer comes when the follower has been behind for so long that it is waited for no more.
            replication.lag_timeout = 0.1
            await client.send_and_wait("t", b"b")
            assert 1 not in cluster.isr("t", 0)
        assert await read_back(cluster, 2, "t") == [(0, 0, b"a"), (0, 1, b"b")]
        assert cluster.elect_unclean("t", 0, 1) == 1
        assert await read_back(cluster, 1, "t") == logged(cluster) == [(0, 0, b"a")]


async def test_a_leader_that_metadata_does_not_show_yet(cluster: FakeCluster) -> None:
    cluster.delay_metadata(3600.0)
    cluster.move_leader("t", 0, 2)
    async with producer(cluster) as client:
        await client.partitions_for("t")
        assert client.client.cluster.leader_for_partition(TopicPartition("t", 0)) == 0
        cluster.delay_metadata(0.0)
        await client.client.force_metadata_update()
        assert client.client.cluster.leader_for_partition(TopicPartition("t", 0)) == 2


# Sockets


async def connect(cluster: FakeCluster, broker: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", cluster.ports[broker])


def produce_frame(cluster: FakeCluster, correlation_id: int = 1) -> bytes:
    """A Produce request for partition 0 of `t`, which broker 0 leads."""
    assert cluster.leader("t", 0) == 0
    return request_frame(produce_request("t", {0: batch(b"v", timestamp=0)}), correlation_id)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def test_a_reset_is_an_rst(cluster: FakeCluster) -> None:
    cluster.faults.reset_connections_on(ApiKey.PRODUCE)
    reader, writer = await connect(cluster)
    writer.write(produce_frame(cluster))

    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    assert len(cluster.records("t")) == 1


async def test_a_quota_is_told_and_kept(cluster: FakeCluster) -> None:
    frame = produce_frame(cluster)
    cluster.limit_produce((len(frame) - 4) / 3600)
    reader, writer = await connect(cluster)
    writer.write(frame)

    # `throttle_time_ms` is the last field of an answer of version 8: an hour's worth, less one second.
    throttle = int.from_bytes((await read_frame(reader))[-4:], "big")
    writer.write(frame)
    other_reader, other_writer = await connect(cluster)
    cluster.limit_produce(None)
    other_writer.write(frame)
    await read_frame(other_reader)
    writer.close()
    other_writer.close()

    assert throttle == 3_599_000
    assert len(cluster.records("t")) == 2


async def test_half_a_frame_ends_with_a_fin(cluster: FakeCluster) -> None:
    cluster.faults.cut_answers(length=5)
    reader, writer = await connect(cluster)
    writer.write(produce_frame(cluster))

    assert len(await reader.read()) == 5
    writer.close()


async def test_late_answers_come_by_the_loops_own_timer(cluster: FakeCluster) -> None:
    cluster.faults.delay_answers(0.05)
    reader, writer = await connect(cluster)
    loop = asyncio.get_running_loop()
    sent_at = loop.time()
    writer.write(produce_frame(cluster))

    await read_frame(reader)

    # uvloop counts in milliseconds.
    assert loop.time() - sent_at >= 0.049
    writer.close()


async def test_a_stalled_broker_accepts_and_goes_on_later(cluster: FakeCluster) -> None:
    reader, writer = await connect(cluster)
    writer.write(produce_frame(cluster, 1))
    await read_frame(reader)
    cluster.faults.stall(0)
    writer.write(produce_frame(cluster, 2))
    late_reader, late_writer = await connect(cluster)
    late_writer.write(produce_frame(cluster, 3))
    answers = [asyncio.create_task(read_frame(stream)) for stream in (reader, late_reader)]
    # Another broker is asked meanwhile, so that the loop has had every chance to serve the stalled one.
    other_reader, other_writer = await connect(cluster, 1)
    for n in range(20):
        other_writer.write(request_frame(produce_request("t", {1: batch(b"v", timestamp=0)}), n))
        await read_frame(other_reader)
    assert not any(answer.done() for answer in answers)
    assert len(cluster.records("t", 0)) == 1

    cluster.faults.resume(0)

    async with asyncio.timeout(PATIENCE):
        frames = await asyncio.gather(*answers)
    assert [struct.unpack_from(">i", frame)[0] for frame in frames] == [2, 3]
    for stream in (writer, late_writer, other_writer):
        stream.close()


async def test_a_stalled_broker_lets_the_senders_buffer_fill(cluster: FakeCluster) -> None:
    cluster.faults.stall(0)
    sender = socket.create_connection(("127.0.0.1", cluster.ports[0]))
    sender.setblocking(False)
    # The kernel's buffers on loopback grow to some megabytes, and then no further.
    taken = 0
    is_full = False
    while not is_full and taken < 1 << 30:
        try:
            taken += sender.send(bytes(1 << 20))
        except BlockingIOError:
            is_full = True
        await asyncio.sleep(0)
    sender.close()
    assert is_full


async def test_a_stopped_broker_refuses_and_keeps_its_port(cluster: FakeCluster) -> None:
    reader, writer = await connect(cluster)
    port = cluster.ports[0]
    await cluster.stop_broker(0)

    with pytest.raises(ConnectionError):
        await reader.readexactly(1)
    with pytest.raises(ConnectionRefusedError):
        await connect(cluster)
    writer.close()
    await cluster.start_broker(0)
    assert cluster.ports[0] == port
    _, writer = await connect(cluster)
    writer.close()


async def test_connections_are_reset_at_once(cluster: FakeCluster) -> None:
    streams = [await connect(cluster, broker) for broker in (0, 1)]
    # Both are known to the model once it has served something on them.
    for broker, (reader, writer) in enumerate(streams):
        writer.write(request_frame(produce_request("t", {broker: batch(b"v", timestamp=0)})))
        await read_frame(reader)

    cluster.faults.reset_connections(1)

    with pytest.raises(ConnectionResetError):
        await streams[1][0].readexactly(1)
    streams[0][1].write(produce_frame(cluster))
    await read_frame(streams[0][0])
    for _, writer in streams:
        writer.close()


async def test_an_advertised_address_is_what_metadata_shows(cluster: FakeCluster) -> None:
    cluster.advertise(0, "127.0.0.1", 1)
    async with producer(cluster, request_timeout_ms=1000, retry_backoff_ms=1) as client:
        await client.client.force_metadata_update()
        addresses = {broker.nodeId: broker.port for broker in client.client.cluster.brokers()}
    assert addresses == {0: 1, 1: cluster.ports[1], 2: cluster.ports[2]}


async def test_log_append_time_is_the_wall_clock() -> None:
    import time

    before = int(time.time() * 1000)
    async with FakeCluster(1, topics={"t": 1}, log_append_time_topics=["t"]) as cluster:
        async with producer(cluster) as client:
            metadata = await client.send_and_wait("t", b"v", timestamp_ms=5)
        # A millisecond of rounding on either side.
        assert before - 1 <= metadata.timestamp <= int(time.time() * 1000) + 1
        assert [record.timestamp for record in cluster.records("t")] == [metadata.timestamp]


# Life


async def test_close_ends_connections_that_clients_left_open() -> None:
    cluster = FakeCluster(2)
    await cluster.start()
    streams = [await connect(cluster) for _ in range(10)]
    await cluster.stop_broker(1)
    await cluster.close()
    await cluster.close()

    for reader, writer in streams:
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    assert cluster.connections == []


async def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free = FakeCluster(2, ports=[0, taken.getsockname()[1]])
        with pytest.raises(OSError, match="address already in use"):
            await free.start()
        with pytest.raises(ConnectionRefusedError):
            await connect(free)


async def test_given_ports_are_used_and_used_again() -> None:
    async with FakeCluster(2) as first:
        ports = [first.ports[0], first.ports[1]]
    async with FakeCluster(2, ports=ports) as second:
        assert second.bootstrap_servers == f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
        _, writer = await connect(second, 1)
        writer.close()


async def test_records_can_be_looked_at_after_the_end() -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, producer(cluster) as client:
        await client.send_and_wait("t", b"v")
    assert [record.value for record in cluster.records("t")] == [b"v"]


async def test_ipv6() -> None:
    try:
        async with FakeCluster(1, host="::1", topics={"t": 1}) as cluster:
            assert cluster.bootstrap_servers.startswith("[::1]:")
            reader, writer = await asyncio.open_connection("::1", cluster.ports[0])
            writer.write(produce_frame(cluster))
            await read_frame(reader)
            await cluster.stop_broker(0)
            await cluster.start_broker(0)
            writer.close()
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")


async def test_a_bug_in_the_model_is_raised_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(1, topics={"t": 1})
    await cluster.start()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("aioproduce.testing.fake_cluster.log.PartitionLog.append", broken)
    reader, writer = await connect(cluster)
    writer.write(produce_frame(cluster))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await cluster.close()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        FakeCluster(0)
    with pytest.raises(ValueError, match="3 brokers need 3 ports"):
        FakeCluster(3, ports=[1])
    with pytest.raises(ValueError, match="legal topic name"):
        FakeCluster(topics={"no/slash": 1})


async def test_it_starts_once() -> None:
    async with FakeCluster(1) as cluster:
        with pytest.raises(RuntimeError, match="already started"):
            await cluster.start()
    with pytest.raises(RuntimeError, match="not started"):
        await cluster.stop_broker(0)


@pytest.mark.parametrize(
    "scenario",
    [
        test_two_aiokafka_consumers_share_a_topic,
        test_an_idempotent_client_that_lost_the_answer_is_not_doubled,
        test_clients_survive_brokers_that_stop_and_start,
        test_a_reset_is_an_rst,
        test_half_a_frame_ends_with_a_fin,
        test_late_answers_come_by_the_loops_own_timer,
        test_a_stalled_broker_accepts_and_goes_on_later,
        test_a_stalled_broker_lets_the_senders_buffer_fill,
        test_a_stopped_broker_refuses_and_keeps_its_port,
        test_connections_are_reset_at_once,
    ],
)
def test_the_same_under_uvloop(scenario: Callable[[FakeCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with clean_cluster() as cluster:
            await scenario(cluster)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("ends", ["the cluster", "one broker"])
async def test_a_client_that_came_just_before_the_end_is_not_forgotten(ends: str, turns: int) -> None:
    """Accepted some turns of the loop before its broker ends: nobody else would close its socket."""
    async with FakeCluster(1) as cluster:
        with socket.create_connection(("127.0.0.1", cluster.ports[0])) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await (cluster.close() if ends == "the cluster" else cluster.stop_broker(0))
            client.setblocking(False)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
