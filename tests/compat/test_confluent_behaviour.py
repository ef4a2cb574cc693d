"""What confluent-kafka's AIOProducer does, and ours does as well: every test runs on both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.aio import AIOProducer as ConfluentProducer

from aioproduce.compat.confluent import AIOProducer as OurProducer
from tests.compat.confluent_sides import SIDES, code_of, mock_cluster, nobody_there, outcome, produced
from tests.mock_cluster import Api, MockCluster

KEYS = [b"customer-%d" % number for number in range(300)] + [b"\x00", b"\xff" * 40, "käse".encode()]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as mock:
        mock.create_topic("t", 6)
        yield mock


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Any:
    return SIDES[request.param]


def conf(cluster: MockCluster, **options: Any) -> dict[str, Any]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, **dotted}


async def test_a_message_tells_where_it_is(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        message = await produced(producer, "t", b"value", b"key")
    assert isinstance(message, Message)
    assert (message.topic(), message.offset(), message.key(), message.value()) == ("t", 0, b"key", b"value")
    assert message.partition() in range(6)
    assert message.error() is None
    assert message.latency() is None or (message.latency() or 0) > 0
    assert message.leader_epoch() is None
    assert message.delivery_count() is None
    # The mock appends at 1234, whatever the clock says.
    assert message.timestamp() == (2, 1234)


async def test_what_is_returned_is_a_future_of_the_loop(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        future = await producer.produce("t", b"value")
        assert asyncio.isfuture(future)
        assert future.get_loop() is asyncio.get_running_loop()
        assert not future.done()
        assert len(producer) == 1
        assert await producer.flush() == 0
        assert len(producer) == 0
        await future


async def test_all_that_asyncio_does_with_futures(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        bad, good, cancelled = [
            await producer.produce("t", b"v", partition=partition) for partition in (77, 0, 0)
        ]
        called: list[Any] = []
        good.add_done_callback(called.append)
        bad.add_done_callback(called.append)
        good.add_done_callback(print)
        assert good.remove_done_callback(print) == 1
        with pytest.raises(asyncio.InvalidStateError):
            good.result()
        with pytest.raises(asyncio.InvalidStateError):
            good.exception()
        assert cancelled.cancel()
        assert not cancelled.cancel()
        assert (cancelled.cancelled(), good.cancelled(), cancelled.done()) == (True, False, True)
        await producer.flush()
        done, pending = await asyncio.wait([asyncio.ensure_future(good), bad])
        assert (len(done), len(pending)) == (2, 0)
        message = await asyncio.wait_for(asyncio.shield(good), 60)
        gathered: Any = await asyncio.gather(good, bad, return_exceptions=True)
        assert gathered[0].offset() == message.offset() == good.result().offset() == 0
        assert isinstance(gathered[1], KafkaException)
        assert good.exception() is None
        assert bad.exception().args[0].code() == KafkaError._UNKNOWN_PARTITION
        with pytest.raises(KafkaException):
            bad.result()
        assert [future async for future in _all_done(good, bad)] == [0, KafkaError._UNKNOWN_PARTITION]
        assert sorted(map(id, called)) == sorted(map(id, (good, bad)))
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(asyncio.CancelledError):
            await asyncio.gather(cancelled)


async def _all_done(*futures: Any) -> AsyncIterator[int]:
    for future in futures:
        for done in asyncio.as_completed([future]):
            try:
                yield (await done).offset()
            except KafkaException as error:
                yield error.args[0].code()


@pytest.mark.parametrize(
    ("value", "key", "value_bytes", "key_bytes"),
    [("wert", "käse", b"wert", "käse".encode()), (None, None, None, None), (b"", b"", b"", b"")],
    ids=["text", "null", "empty"],
)
async def test_keys_and_values(
    side: Any,
    cluster: MockCluster,
    value: Any,
    key: Any,
    value_bytes: bytes | None,
    key_bytes: bytes | None,
) -> None:
    async with side(conf(cluster)) as producer:
        message = await produced(producer, "t", value=value, key=key)
    assert (message.value(), message.key()) == (value_bytes, key_bytes)


async def test_the_partition_that_is_named(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        for partition in (3, 0, 5):
            assert (await produced(producer, "t", b"v", partition=partition)).partition() == partition


@pytest.mark.parametrize(
    "partitioner",
    ["", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"],
    ids=lambda name: name or "default",
)
async def test_keys_land_where_librdkafka_puts_them(cluster: MockCluster, partitioner: str) -> None:
    options = {"partitioner": partitioner} if partitioner else {}
    landed = []
    for make in SIDES.values():
        async with make(conf(cluster, **options)) as producer:
            futures = [await producer.produce("t", b"v", key) for key in KEYS]
            assert await producer.flush() == 0
            landed.append({message.key(): message.partition() for message in await asyncio.gather(*futures)})
    theirs, ours = landed
    assert len(theirs) == len(KEYS)
    assert len(set(theirs.values())) == 6
    assert ours == theirs


async def test_keyless_messages_are_spread(side: Any, cluster: MockCluster) -> None:
    # librdkafka keeps to a partition for 10 ms by default.
    async with side(conf(cluster, **{"sticky.partitioning.linger.ms": 0})) as producer:
        futures = [await producer.produce("t", b"v") for _ in range(600)]
        await producer.flush()
        partitions = {message.partition() for message in await asyncio.gather(*futures)}
    # That one of six is missed by chance comes about once in 10^46.
    assert partitions == set(range(6))


async def test_messages_of_a_key_keep_their_order(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster), batch_size=7) as producer:
        futures = [await producer.produce("t", b"%d" % number, b"key") for number in range(100)]
        await producer.flush()
        messages = await asyncio.gather(*futures)
    assert [message.offset() for message in messages] == list(range(100))


# -- errors ---


@pytest.mark.parametrize("partition", [6, 1000, -2])
async def test_a_partition_that_there_is_not(side: Any, cluster: MockCluster, partition: int) -> None:
    async with side(conf(cluster)) as producer:
        answer = await produced(producer, "t", b"v", partition=partition)
        assert code_of(answer) == KafkaError._UNKNOWN_PARTITION
        assert (await produced(producer, "t", b"next")).offset() == 0


async def test_a_message_that_is_too_large(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster, **{"message.max.bytes": 10_000})) as producer:
        answer = await produced(producer, "t", bytes(20_000))
        assert code_of(answer) == KafkaError.MSG_SIZE_TOO_LARGE
        assert not answer.fatal()
        assert not answer.retriable()
        assert (await produced(producer, "t", bytes(9_000))).offset() == 0


async def test_the_brokers_error(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        await produced(producer, "t", b"first", b"k")
        cluster.push_errors(Api.PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        answer = await produced(producer, "t", b"denied", b"k")
        assert code_of(answer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert answer.name() == "TOPIC_AUTHORIZATION_FAILED"


async def test_what_can_be_sent_again_is(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster, **{"retry.backoff.ms": 1})) as producer:
        await produced(producer, "t", b"first", b"k")
        cluster.push_errors(Api.PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS)
        assert (await produced(producer, "t", b"second", b"k")).offset() == 1


async def test_retries_end(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster, **{"retry.backoff.ms": 1, "retries": 1})) as producer:
        await produced(producer, "t", b"first", b"k")
        cluster.push_errors(Api.PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 2)
        assert code_of(await produced(producer, "t", b"v", b"k")) == KafkaError.NOT_ENOUGH_REPLICAS


async def test_without_a_broker_a_message_is_taken_and_times_out(side: Any) -> None:
    with nobody_there() as address:
        async with side(
            {"bootstrap.servers": address, "message.timeout.ms": 300}, buffer_timeout=0.1
        ) as producer:
            future = await producer.produce("t", b"v")
            assert not future.done()
            # librdkafka counts its own error events among the messages.
            assert len(producer) >= 1
            answer = await outcome(producer, future)
    assert code_of(answer) == KafkaError._MSG_TIMED_OUT


async def test_a_flush_that_takes_too_long_tells_how_many_are_left(side: Any) -> None:
    with nobody_there() as address:
        producer = side({"bootstrap.servers": address}, buffer_timeout=0.1)
        futures = [await producer.produce("t", b"v") for _ in range(3)]
        assert await producer.flush(0.01) >= 3
        await producer.purge()
        answers = [await outcome(producer, future) for future in futures]
        await producer.close()
    assert [code_of(answer) for answer in answers] == [KafkaError._PURGE_QUEUE] * 3


async def test_a_producer_goes_on_after_a_purge(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        await producer.purge()
        assert (await produced(producer, "t", b"v")).offset() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"no.such.option": 1},
        {"linger.ms": -1},
        {"linger.ms": "soon"},
        {"acks": "some"},
        {"partitioner": "alphabetical"},
        {"compression.type": "brotli"},
        {"enable.idempotence": "yes"},
        {"enable.idempotence": True, "acks": 1},
        {"enable.idempotence": True, "max.in.flight": 6},
        {"message.timeout.ms": 5, "linger.ms": 10},
        {"message.max.bytes": 10},
        {"retries": True},
        {"linger.ms": None},
        {"on_delivery": 3},
        {7: 8},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
async def test_options_that_are_refused(side: Any, cluster: MockCluster, options: dict[Any, Any]) -> None:
    with pytest.raises(KafkaException) as refused:
        side(conf(cluster) | options)
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize(
    "options",
    [
        {"linger.ms": "7"},
        {"linger.ms": 0.5},
        {"acks": "all"},
        {"acks": 0},
        {"request.required.acks": "1"},
        {"enable.idempotence": "True"},
        {"compression.codec": "ZSTD"},
        {"compression.type": "zstd", "compression.level": 3},
        {"default.topic.config": {"acks": 1}},
        {"group.id": "a consumer's"},
        {"message.timeout.ms": 6},
        {"security.protocol": "PLAINTEXT"},
        {"queue.buffering.max.kbytes": 1, "batch.size": 2000},
        {"client.id": "me", "client.rack": "a"},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
async def test_options_that_are_taken(side: Any, cluster: MockCluster, options: dict[str, Any]) -> None:
    async with side(conf(cluster) | options):
        pass


# -- asking ---


async def test_the_topics_partitions(side: Any, cluster: MockCluster) -> None:
    async with side(conf(cluster)) as producer:
        metadata = await producer.list_topics("t", timeout=30)
        assert metadata.cluster_id == await producer.cluster_id(timeout=30)
    topic = metadata.topics["t"]
    assert (topic.topic, topic.error, sorted(topic.partitions)) == ("t", None, list(range(6)))
    assert {(part.leader, *part.replicas, *part.isrs) for part in topic.partitions.values()} == {(1, 1, 1)}
    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == cluster.bootstrap_servers
    assert broker.id == 1


async def test_nobody_to_ask(side: Any) -> None:
    with nobody_there() as address:
        async with side({"bootstrap.servers": address}) as producer:
            with pytest.raises(KafkaException) as failed:
                await producer.list_topics("t", timeout=0.05)
    assert failed.value.args[0].code() == KafkaError._TRANSPORT


def test_outside_of_a_loop(side: Any) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        side({"bootstrap.servers": "localhost"})


def test_nothing_public_is_missing() -> None:
    public = {name for name in vars(ConfluentProducer) if not name.startswith("_")}
    assert public <= set(dir(OurProducer))
    assert inspect.signature(OurProducer.__init__).parameters.keys() == (
        inspect.signature(ConfluentProducer.__init__).parameters.keys()
    )
    defaults = [
        [parameter.default for parameter in inspect.signature(side.__init__).parameters.values()]
        for side in (ConfluentProducer, OurProducer)
    ]
    assert defaults[0] == defaults[1]
    for name in public:
        theirs, ours = getattr(ConfluentProducer, name), getattr(OurProducer, name)
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name
