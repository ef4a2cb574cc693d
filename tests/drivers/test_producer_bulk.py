"""The bulk calls end to end: `send_many()` by columns, `create_batch()` and `send_batch()`; on asyncio and uvloop.

What they share with `send()` call by call is in `test_producer_flush.py`; here is what is different when many go
at once.
"""

from __future__ import annotations

import asyncio
import gc
import random
import reprlib
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    BatchClosedError,
    BrokerRejectedError,
    BufferExhaustedError,
    DeliveryError,
    InvalidRecordError,
    InvalidTopicError,
    MetadataTimeoutError,
    NotStartedError,
    PartialSendError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
)
from aioproduce.partitioners import partition_for_key
from aioproduce.producer import bulk
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import gather, sleep, spawn, within
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    know_topic,
    let_the_sender_rest,
    read_back,
    until,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.records import ProducerRecord, RecordMetadata
    from aioproduce.testing import FakeCluster

SMALL: dict[str, Any] = {"batch_size": 1000, "buffer_memory": 20_000, "linger_ms": 1}
LINGERING: dict[str, Any] = {"linger_ms": FOREVER_MS, "delivery_timeout_ms": 2 * FOREVER_MS}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


# -- send_many ---


async def test_every_record_is_where_its_future_says(cluster: FakeCluster) -> None:
    """Thousands of keyed, keyless and null records through a buffer of a few hundred, and read by aiokafka."""
    chooser = random.Random(4)
    sent = [
        (
            chooser.choice([None, b"", b"key-%d" % chooser.randrange(50)]),
            chooser.choice([None, b"%06d" % number, b"%06d" % number * chooser.randrange(40)]),
        )
        for number in range(5_000)
    ]
    async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
        deliveries = await producer.send_many(
            "t", (value for _, value in sent), (key for key, _ in sent), headers=[("h", b"x")]
        )
        metadata = await deliveries
        await deliveries.wait()
        assert [await deliveries[index] for index in range(0, 5_000, 97)] == metadata[::97]
    found = {(record.partition, record.offset): record for record in await read_back(cluster, "t", 5_000)}
    for (key, value), told in zip(sent, metadata, strict=True):
        record = found[told.partition, told.offset]
        assert (record.key, record.value, record.headers) == (key, value, (("h", b"x"),))
        assert record.timestamp == told.timestamp
        assert told.serialized_key_size == (-1 if key is None else len(key))
        assert told.serialized_value_size == (-1 if value is None else len(value))
        assert key is None or told.partition == partition_for_key(key, 3)
    for partition in range(3):
        offsets = [told.offset for told in metadata if told.partition == partition]
        assert offsets == list(range(len(offsets))), "in the order of sending"


async def test_keyless_records_stick_for_a_batch_and_spread(cluster: FakeCluster) -> None:
    # Not adaptive: which brokers are slow meanwhile is the machine's doing.
    async with Producer(
        cluster.bootstrap_servers, batch_size=1000, partitioner_adaptive_partitioning_enable=False
    ) as producer:
        metadata = await (await producer.send_many("t", numbered(10_000)))
    switches = [
        index for index in range(1, 10_000) if metadata[index].partition != metadata[index - 1].partition
    ]
    # KIP-794: batch.size at least, which some 70 records fill, and twice that at most; and a third of the choices
    # is the same partition again. So some 47 to 95 switches.
    assert 25 < len(switches) < 130
    counts = [sum(told.partition == partition for told in metadata) for partition in range(3)]
    assert min(counts) > 1_000


@pytest.mark.parametrize("memory", [20_000, 400_000])
async def test_an_iterable_is_asked_little_ahead_of_what_is_accepted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    # Items that take no time at all, on whatever machine: as many as ever are asked for at once.
    monkeypatch.setattr(bulk, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    most, asked = memory // 100, 0

    def endless() -> Iterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield b"x" * 100

    async with Producer(cluster.bootstrap_servers, **SMALL | {"buffer_memory": memory}) as producer:
        assert producer.waiting_sends == 0
        await producer.partitions_for("one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        sending = spawn(producer.send_many("one", endless()))
        await until(lambda: producer.outstanding_bytes == memory)
        await let_the_sender_rest()
        assert producer.waiting_sends == 1
        assert asked <= most + 1024
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        stuck.cancel()
        cluster.faults.reset_connections()
        await producer.flush()
        await assert_still_works(producer, cluster, "one")
    assert 0.75 * most < len(values(cluster, "one")) <= most + 1


async def test_the_loop_has_its_turns_meanwhile(cluster: FakeCluster) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await sleep(0)
            turns += 1

    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        await producer.partitions_for("one")
        ticking = spawn(tick())
        await producer.send_many("one", [b"x"] * 200_000, partition=0)
        ticking.cancel()
        # Some 100 ns a record at best, on a machine that may be ten times faster than any.
        assert turns > 1
        await producer.flush()


async def test_many_senders_share_the_buffer_fairly(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
        async with within(PATIENCE):
            handles = await gather(
                *(producer.send_many("t", numbered(1_000, 1_000 * sender)) for sender in range(8)),
                *(
                    producer.send_many("t", numbered(1_000, 1_000 * sender), [b"k"] * 1_000)
                    for sender in range(8, 10)
                ),
            )
            for handle in handles:
                await handle.wait()
        await until(lambda: producer.outstanding_bytes == 0)
    assert sorted(value for value in values(cluster) if value) == numbered(10_000)
    for partition in range(3):
        of_partition = [int(value) for value in values(cluster, "t", partition) if value]
        for sender in range(10):
            mine = [number for number in of_partition if number // 1_000 == sender]
            assert mine == sorted(mine)


async def test_callbacks_come_once_a_record_in_order(cluster: FakeCluster) -> None:
    told: list[RecordMetadata] = []
    async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
        deliveries = await producer.send_many(
            "one", numbered(2_000), on_delivery=lambda metadata, error: told.append(metadata)
        )
        await producer.flush()
        assert told == await deliveries


async def test_serializers_go_record_by_record(cluster: FakeCluster) -> None:
    async with Producer[Any, Any](
        cluster.bootstrap_servers, value_serializer=str.encode, key_serializer=lambda key: b"%d" % key
    ) as producer:
        await (await producer.send_many("one", ["a", None, "b"], [1, 2, None]))
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", ["c", "d", b"no text", "e"])
        assert caught.value.index == len(caught.value.deliveries) == 2
        await gather(*caught.value.deliveries)
    assert [(record.key, record.value) for record in cluster.records("one")] == [
        (b"1", b"a"),
        (b"2", None),
        (None, b"b"),
        (None, b"c"),
        (None, b"d"),
    ]


async def test_buffers_that_are_no_bytes(cluster: FakeCluster) -> None:
    mixed: list[Any] = [b"0", bytearray(b"1"), memoryview(b"2"), None, b"4"]
    async with Producer[Any, Any](cluster.bootstrap_servers) as producer:
        await (await producer.send_many("one", mixed, reversed(mixed)))
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", [bytearray(b"5"), bytearray(b"6"), "text", b"8"])
        assert caught.value.index == 2
        await producer.flush()
    assert values(cluster, "one") == [b"0", b"1", b"2", None, b"4", b"5", b"6"]


class Interceptor:
    def __init__(self) -> None:
        self.seen: list[object] = []
        self.acknowledged: list[int] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record.value)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.acknowledged.append(metadata.offset)


async def test_interceptors_see_each_record(cluster: FakeCluster) -> None:
    interceptor = Interceptor()
    async with Producer(cluster.bootstrap_servers, interceptors=[interceptor]) as producer:
        await (await producer.send_many("one", iter(numbered(3)), iter([b"k"] * 3)))
        batch = producer.create_batch()
        batch.append_many(numbered(2))
        await (await producer.send_batch(batch, "one", partition=0))
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", [b"5"], partition=9)
        assert isinstance(caught.value.__cause__, PartitionOutOfRangeError)
    assert interceptor.seen == [*numbered(3), b"5"]
    assert interceptor.acknowledged == [0, 1, 2, 3, 4, -1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topic": "no such name!"}, InvalidTopicError),
        ({"topic": 5}, InvalidTopicError),
        ({"partition": 7}, PartitionOutOfRangeError),
        ({"partition": -1}, InvalidRecordError),
        ({"partition": True}, InvalidRecordError),
        ({"partition": 2**70}, PartitionOutOfRangeError),
        ({"timestamp": -5}, InvalidRecordError),
        ({"headers": [("h",)]}, InvalidRecordError),
        ({"values": [b"x" * 2_000_000]}, RecordTooLargeError),
        ({"topic": "unknown", "timeout": 0.01}, MetadataTimeoutError),
    ],
    ids=reprlib.repr,
)
@pytest.mark.parametrize("is_sent_to", [False, True], ids=["known topic", "topic sent to before"])
async def test_nothing_is_accepted_where_the_first_is_refused(
    cluster: FakeCluster, wrong: dict[str, Any], error: type[Exception], is_sent_to: bool
) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("one")
        if is_sent_to:
            await producer.send_and_wait("one", b"before")
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many(**{"topic": "one", "values": [b"0", b"1"], **wrong})
        assert isinstance(caught.value.__cause__, error)
        assert caught.value.index == len(caught.value.deliveries) == 0
        await assert_still_works(producer, cluster, "one")


async def test_the_rows_before_the_one_that_is_serialized_are_accepted_already(cluster: FakeCluster) -> None:
    """What a serializer takes is not known before its first value: with a slow one, the first records go early."""
    accepted: list[int] = []

    def serialize(value: str) -> bytes:
        accepted.append(producer.outstanding_records)
        return value.encode()

    async with Producer(cluster.bootstrap_servers, value_serializer=serialize, **LINGERING) as producer:
        await producer.partitions_for("one")
        await producer.send_many("one", ["first", "second"])
    assert accepted == [0, 1]


# -- the handle ---


async def test_a_batch_that_is_split_resolves_each_of_its_records(cluster: FakeCluster) -> None:
    cluster.configure_topic("one", max_message_bytes=1_500)
    async with Producer(cluster.bootstrap_servers, batch_size=20_000, linger_ms=50) as producer:
        deliveries = await producer.send_many("one", numbered(1_000), [b"k"] * 1_000)
        assert [told.offset for told in await deliveries] == list(range(1_000))
        batch = producer.create_batch()
        batch.append_many(numbered(500))
        handle = await producer.send_batch(batch, "one", partition=0)
        await handle.wait()
        assert [told.offset for told in await handle] == list(range(1_000, 1_500))
        assert "500 of 500" in repr(handle)
    assert values(cluster, "one") == [*numbered(1_000), *numbered(500)]


async def test_failures_one_by_one_and_all_at_once(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, batch_size=300, linger_ms=0, retry_backoff_ms=1
    ) as producer:
        await producer.partitions_for("one")
        cluster.configure_topic("one", max_message_bytes=200)
        sent = [b"x" * 150 if number % 10 == 3 else b"small" for number in range(40)]
        deliveries = await producer.send_many("one", sent)
        with pytest.raises(BrokerRejectedError, match="MESSAGE_TOO_LARGE"):
            await deliveries.wait()
        with pytest.raises(BrokerRejectedError, match="MESSAGE_TOO_LARGE"):
            await deliveries
        failed = await deliveries.failed()
        assert sorted(failed) == [3, 13, 23, 33]
        assert all(isinstance(error, DeliveryError) for error in failed.values())
        outcomes = await deliveries.outcomes()
        assert [
            index for index, outcome in enumerate(outcomes) if isinstance(outcome, DeliveryError)
        ] == sorted(failed)
        del deliveries, failed, outcomes
        gc.collect(1)
        await sleep(0)
        assert producer.unobserved_failures == 0


async def test_failures_that_nobody_asks_for_are_counted_exactly(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers, **LINGERING)
    await producer.start()
    await producer.partitions_for("t")
    forgotten = await producer.send_many("t", numbered(1_000), [b"%d" % number for number in range(1_000)])
    asked = [forgotten[index] for index in (0, 5, 5, 999)]
    waited_for = await producer.send_many("t", numbered(300))
    await producer.close(0)
    for delivery in asked:
        assert delivery.exception() is not None
    assert len(await waited_for.failed()) == 300
    assert len(await waited_for.outcomes()) == 300
    del forgotten, asked, delivery, waited_for
    gc.collect(1)
    await until(lambda: producer.unobserved_failures)
    await sleep(0)
    assert producer.unobserved_failures == 1_000 - 3


async def test_handles_that_were_cancelled_do_not_stand_for_their_records(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        deliveries = await producer.send_many("one", numbered(10))
        for delivery in deliveries:
            assert delivery.cancel()
        waiting = spawn(deliveries.outcomes())
        await let_the_sender_rest()
        for delivery in deliveries:
            delivery.cancel()
        await let_the_sender_rest()
        assert not waiting.done()
        await producer.flush()
        assert [told.offset for told in await waiting if not isinstance(told, DeliveryError)] == list(
            range(10)
        )
        assert len(await deliveries) == 10


async def test_the_handle_waits_for_what_lingers(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        deliveries = await producer.send_many("t", numbered(100), [b"%d" % number for number in range(100)])
        waiting = [spawn(deliveries.wait()) for _ in range(3)]
        await let_the_sender_rest()
        waiting[0].cancel()
        await let_the_sender_rest()
        assert [each.done() for each in waiting] == [True, False, False]
        await producer.flush()
        await gather(*waiting[1:])
        assert await gather(*deliveries) == await deliveries


# -- ready-made batches ---


async def test_a_batch_goes_whole_behind_what_was_accepted_before(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        before = await producer.send("one", b"before")
        batch = producer.create_batch()
        batch.append(b"first", b"k", timestamp=5, headers=[("h", b"1")])
        batch.append_many([b"second", None])
        deliveries = await producer.send_batch(batch, "one", partition=0)
        after = await producer.send("one", b"after")
        await producer.flush()
        assert (await before).offset == 0
        told = await deliveries
        assert [(each.offset, each.serialized_key_size, each.serialized_value_size) for each in told] == [
            (1, 1, 5),
            (2, -1, 6),
            (3, -1, -1),
        ]
        assert told[0].timestamp == 5
        assert (await after).offset == 4
    assert values(cluster, "one") == [b"before", b"first", b"second", None, b"after"]
    assert cluster.records("one")[1].headers == (("h", b"1"),)


@pytest.mark.parametrize(
    "settings", [{}, {"compression_type": "zstd"}, {"acks": 0}, {"enable_idempotence": False}], ids=repr
)
async def test_many_batches_through_a_small_buffer(cluster: FakeCluster, settings: dict[str, Any]) -> None:
    async with Producer(cluster.bootstrap_servers, **SMALL, **settings) as producer:
        handles = []
        for number in range(60):
            batch = producer.create_batch(max_size=3_000)
            assert batch.append_many(numbered(100, 100 * number)) == 100
            handles.append(await producer.send_batch(batch, "t", partition=number % 3))
        for handle in handles:
            await handle.wait()
        await until(lambda: producer.outstanding_bytes == 0)
        await until(lambda: len(values(cluster)) == 6_000)
    for partition in range(3):
        expected = [value for number in range(partition, 60, 3) for value in numbered(100, 100 * number)]
        assert values(cluster, "t", partition) == expected


async def send_keyed(producer: Producer, count: int) -> tuple[int, list[int]]:
    """A batch of records with keys of their own, sent without a partition: its size, and where they went."""
    batch = producer.create_batch()
    assert batch.append_many(numbered(count), numbered(count)) == count
    told = await (await producer.send_batch(batch, "t"))
    return batch.size, [each.partition for each in told]


async def test_a_batch_without_a_partition_gets_one_for_all_its_records(cluster: FakeCluster) -> None:
    """Keys have no say; where it goes changes after batch.size bytes (KIP-794), and a leader must be there."""
    cluster.take_leader("t", 1)
    batch_size = 4_000
    async with Producer(cluster.bootstrap_servers, batch_size=batch_size) as producer:
        size, [first, *others] = await send_keyed(producer, 50)
        assert set(others) == {first}
        went = [(size, first)]
        for _ in range(100):
            size, [partition, *others] = await send_keyed(producer, 50)
            assert set(others) == {partition}
            went.append((size, partition))
    assert {partition for _, partition in went} == {0, 2}
    bytes_there = 0
    for (size, partition), (_, following) in pairwise(went):
        bytes_there += size
        if following != partition:
            assert bytes_there >= batch_size
            bytes_there = 0
        elif bytes_there >= batch_size:
            bytes_there = 0  # chosen again
    assert len(values(cluster)) == 101 * 50


async def test_batches_that_wait_for_the_topic_and_for_room_spread(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
        batches = [producer.create_batch(max_size=3_000) for _ in range(60)]
        for batch in batches:
            batch.append_many(numbered(100))
        handles = await gather(*[producer.send_batch(batch, "t") for batch in batches])
        for handle in handles:
            await handle.wait()
        assert {handle[0].partition for handle in handles} == {0, 1, 2}
        await until(lambda: producer.outstanding_bytes == 0)
    assert len(values(cluster)) == 6_000


async def test_a_timeout_bounds_a_batch_without_a_partition(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS) as producer:
        batch = producer.create_batch()
        batch.append(b"late")
        with pytest.raises(MetadataTimeoutError):
            await producer.send_batch(batch, "unknown", timeout=0.01)
        with pytest.raises(ValueError, match="timeout"):
            await producer.send_batch(batch, "one", timeout=-1)
        assert len(await (await producer.send_batch(batch, "one"))) == 1


async def test_a_batch_survives_retries_in_its_place(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, retry_backoff_ms=1, **LINGERING) as producer:
        await producer.partitions_for("one")
        for _ in range(3):
            batch = producer.create_batch()
            batch.append_many(numbered(50))
            dropped = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
            handle = await producer.send_batch(batch, "one", partition=0)
            # Only then is there an answer to miss: a reset before it leaves the fault to the second attempt, and
            # request.timeout.ms passes.
            await until(partial(getattr, dropped, "is_spent"))
            assert producer.outstanding_bytes > 0
            cluster.faults.reset_connections()
            await handle.wait()
    assert values(cluster, "one") == numbered(50) * 3


async def test_a_batch_that_could_not_be_sent_can_be_sent_again(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=100, **SMALL) as producer:
        await know_topic(producer, "one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        with pytest.raises(PartialSendError):
            await producer.send_many("one", [b"x" * 900] * 100)
        batch = producer.create_batch()
        batch.append(b"late")
        with pytest.raises(BufferExhaustedError):
            await producer.send_batch(batch, "one", partition=0)
        sending = spawn(producer.send_batch(batch, "one", partition=0))
        await let_the_sender_rest()
        with pytest.raises(BatchClosedError, match="sent once"):
            await producer.send_batch(batch, "one", partition=0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        stuck.cancel()
        cluster.faults.reset_connections()
        await producer.flush()
        assert len(await (await producer.send_batch(batch, "one", partition=0))) == 1
        with pytest.raises(BatchClosedError, match="sent once"):
            await producer.send_batch(batch, "one", partition=0)
        await until(lambda: producer.outstanding_bytes == 0)
    assert values(cluster, "one").count(b"late") == 1


async def test_batches_that_cannot_be_sent(cluster: FakeCluster) -> None:
    async with (
        Producer(cluster.bootstrap_servers, max_request_size=2_000) as strict,
        Producer(cluster.bootstrap_servers, **SMALL) as small,
        Producer(cluster.bootstrap_servers) as other,
    ):
        large = other.create_batch(max_size=30_000)
        large.append_many([b"x" * 1_000] * 25)
        for producer, limited_by in ((strict, "max.request.size"), (small, "buffer.memory")):
            with pytest.raises(RecordTooLargeError) as caught:
                await producer.send_batch(large, "one", partition=0)
            assert (caught.value.limited_by, caught.value.size) == (limited_by, large.size)
        wrongs: list[tuple[Any, Any, type[Exception]]] = [
            ("one", 1, PartitionOutOfRangeError),
            ("one", -1, InvalidRecordError),
            ("one", True, InvalidRecordError),
            ("what name", 0, InvalidTopicError),
            ("what name", None, InvalidTopicError),
            (None, None, InvalidTopicError),
        ]
        for topic, partition, error in wrongs:
            with pytest.raises(error):
                await other.send_batch(large, topic, partition=partition)
        assert len(await (await other.send_batch(large, "one", partition=0))) == 25
        with pytest.raises(TypeError):
            await other.send_batch([b"v"], "one", partition=0)  # type: ignore[arg-type]
    assert len(values(cluster, "one")) == 25


async def test_a_batch_without_records(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        deliveries = await producer.send_batch(batch, "one", partition=0)
        assert (len(deliveries), await deliveries) == (0, [])
        assert producer.outstanding_bytes == 0
        with pytest.raises(BatchClosedError):
            batch.append(b"late")


async def test_callbacks_of_a_batch(cluster: FakeCluster) -> None:
    told: list[int] = []
    async with Producer(cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        batch.append_many(numbered(20))
        await producer.send_batch(
            batch, "one", partition=0, on_delivery=lambda metadata, _: told.append(metadata.offset)
        )
        await producer.flush()
    assert told == list(range(20))


async def test_before_the_start(cluster: FakeCluster) -> None:
    assert Producer(cluster.bootstrap_servers).waiting_sends == 0
    producer = Producer(cluster.bootstrap_servers)
    batch = producer.create_batch()
    batch.append(b"early")
    with pytest.raises(NotStartedError):
        await producer.send_batch(batch, "one", partition=0)
    async with producer:
        await (await producer.send_batch(batch, "one", partition=0))
    assert values(cluster, "one") == [b"early"]
