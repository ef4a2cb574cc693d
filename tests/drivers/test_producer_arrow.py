"""`send_arrow()` end to end, on asyncio and uvloop; which columns it takes is in `unit/test_arrow_columns.py`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    ArrowColumnError,
    InvalidTopicError,
    PartialSendError,
    PartitionOutOfRangeError,
    SerializationError,
)
from aioproduce.partitioners import partition_for_key
from tests.drivers.producing import assert_still_works, read_back, values

if TYPE_CHECKING:
    from aioproduce.records import ProducerRecord, RecordMetadata
    from aioproduce.testing import FakeCluster

pa = pytest.importorskip("pyarrow", reason="send_arrow() needs the extra aioproduce[arrow]")

SMALL: dict[str, Any] = {"batch_size": 1000, "buffer_memory": 20_000, "linger_ms": 1}


def some_rows(count: int) -> Any:
    """A table with every column, nulls in each."""
    chooser = random.Random(7)

    def or_null(item: Any) -> Any:
        return None if chooser.randrange(5) == 0 else item

    return pa.table(
        {
            "key": pa.array(
                [or_null(f"key-{chooser.randrange(50)}") for _ in range(count)], pa.large_string()
            ),
            "value": pa.array(
                [or_null(b"%06d" % n * chooser.randrange(20)) for n in range(count)], pa.binary()
            ),
            "headers": pa.array(
                [or_null([("h", b"%d" % n), ("none", None)]) for n in range(count)],
                pa.map_(pa.string(), pa.binary()),
            ),
            "partition": pa.array([or_null(chooser.randrange(3)) for _ in range(count)], pa.int16()),
            "timestamp": pa.array(
                [or_null(1_700_000_000_000 + n) for n in range(count)], pa.timestamp("ms", "UTC")
            ),
        }
    )


@pytest.mark.parametrize("slices", [False, True])
async def test_every_row_is_where_its_future_says(cluster: FakeCluster, slices: bool) -> None:
    table = some_rows(3_000)
    if slices:
        table = table.slice(501, 2_001)
    count = len(table)
    async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
        deliveries = await producer.send_arrow("t", table)
        metadata = await deliveries
        assert len(deliveries) == count
    found = {(record.partition, record.offset): record for record in await read_back(cluster, "t", count)}
    for row, told in zip(table.to_pylist(), metadata, strict=True):
        record = found[told.partition, told.offset]
        key = None if row["key"] is None else row["key"].encode()
        assert (record.key, record.value) == (key, row["value"])
        assert record.headers == tuple(row["headers"] or ())
        if row["timestamp"] is not None:
            assert record.timestamp == told.timestamp == int(row["timestamp"].timestamp() * 1000 + 0.5)
        if row["partition"] is not None:
            assert told.partition == row["partition"]
        elif key is not None:
            assert told.partition == partition_for_key(key, 3)
    for partition in range(3):
        offsets = [told.offset for told in metadata if told.partition == partition]
        assert offsets == list(range(len(offsets)))


async def test_more_rows_than_are_taken_at_once_into_one_open_batch(cluster: FakeCluster) -> None:
    count = 5_000
    async with Producer(cluster.bootstrap_servers, batch_size=1_000_000, linger_ms=1000) as producer:
        await producer.send("one", b"opens it")
        sent = await producer.send_arrow("one", pa.table({"value": [b"%d" % row for row in range(count)]}))
        assert len(sent) == count
        await producer.flush()
    assert values(cluster, "one") == [b"opens it", *(b"%d" % row for row in range(count))]


async def test_defaults_for_what_no_column_tells(cluster: FakeCluster) -> None:
    table = pa.table({"payload": ["a", None]})
    told: list[int] = []
    async with Producer(cluster.bootstrap_servers) as producer:
        deliveries = await producer.send_arrow(
            "t",
            table,
            columns={"value": "payload"},
            partition=2,
            timestamp=5,
            headers=[("h", b"1")],
            on_delivery=lambda metadata, _: told.append(metadata.offset),
        )
        assert [(each.partition, each.offset, each.timestamp) for each in await deliveries] == [
            (2, 0, 5),
            (2, 1, 5),
        ]
        await producer.flush()
    assert told == [0, 1]
    assert [(record.value, record.headers) for record in cluster.records("t")] == [
        (b"a", (("h", b"1"),)),
        (None, (("h", b"1"),)),
    ]


async def test_topics_from_a_column(cluster: FakeCluster) -> None:
    table = pa.table(
        {"value": ["0", "1", "2", "3"], "topic": ["one", "one", "t", "one"], "partition": [0, 0, 1, 0]}
    )
    async with Producer(cluster.bootstrap_servers) as producer:
        metadata = await (await producer.send_arrow(None, table))
        assert [(each.topic, each.partition, each.offset) for each in metadata] == [
            ("one", 0, 0),
            ("one", 0, 1),
            ("t", 1, 0),
            ("one", 0, 2),
        ]
        nobody = table.set_column(1, "topic", pa.array(["one", "one", None, "one"]))
        with pytest.raises(PartialSendError) as caught:
            await producer.send_arrow(None, nobody)
        assert isinstance(caught.value.__cause__, InvalidTopicError)
        assert caught.value.index == 2


async def test_what_is_refused_before_anything_is_sent(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(ArrowColumnError):
            await producer.send_arrow("one", pa.table({"value": [1, 2]}))
        with pytest.raises(ArrowColumnError):
            await producer.send_arrow(None, pa.table({"value": [b"1"]}))
        with pytest.raises(TypeError):
            await producer.send_arrow("one", [b"v"])
        assert len(await producer.send_arrow("one", pa.table({"value": pa.array([], pa.binary())}))) == 0
        await assert_still_works(producer, cluster, "one")


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ({"partition": pa.array([0, 0, 1])}, PartitionOutOfRangeError),
        ({"partition": pa.array([0, 0, -1])}, ValueError),
        ({"timestamp": pa.array([0, 0, -1])}, ValueError),
    ],
    ids=["too high a partition", "a negative one", "a negative timestamp"],
)
async def test_a_row_that_cannot_be_sent_ends_it_there(
    cluster: FakeCluster, column: dict[str, Any], error: type[Exception]
) -> None:
    table = pa.table({"value": ["0", "1", "2"], **column})
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(PartialSendError, match="send_arrow") as caught:
            await producer.send_arrow("one", table)
        assert isinstance(caught.value.__cause__, error)
        assert caught.value.index == len(caught.value.deliveries) == 2
        await producer.flush()
    assert values(cluster, "one") == [b"0", b"1"]


async def test_memory_that_lies_is_refused_where_it_does(cluster: FakeCluster) -> None:
    """Offsets that point beyond the data: pyarrow makes such an array without a look."""
    offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 1, 2_000_000_000, 2)))
    lying = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"ab")])
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(PartialSendError) as caught:
            await producer.send_arrow("one", pa.record_batch([lying], ["value"]))
        assert isinstance(caught.value.__cause__, SerializationError)
        assert caught.value.index == 1
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == [b"a", b"good"]


class Upper:
    """An interceptor that changes values."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return type(record)(
            topic=record.topic, key=record.key, value=record.value.upper(), headers=record.headers
        )

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.acknowledged.append(metadata.offset)


async def test_interceptors_and_serializers(cluster: FakeCluster) -> None:
    """Interceptors see each row; what is bytes in Arrow is not serialized again."""
    interceptor = Upper()
    told: list[int] = []
    async with Producer(
        cluster.bootstrap_servers, interceptors=[interceptor], value_serializer=str.encode
    ) as producer:
        deliveries = await producer.send_arrow(
            "one",
            pa.table({"value": ["a", "b"], "key": ["k", None]}),
            on_delivery=lambda metadata, _: told.append(metadata.offset),
        )
        assert [metadata.offset for metadata in await deliveries] == [0, 1]
    assert told == [0, 1]
    async with Producer(cluster.bootstrap_servers, value_serializer=str.encode) as producer:
        await (await producer.send_arrow("one", pa.table({"value": ["c", "d"]})))
    assert [(record.key, record.value) for record in cluster.records("one")] == [
        (b"k", b"A"),
        (None, b"B"),
        (None, b"c"),
        (None, b"d"),
    ]
    assert interceptor.acknowledged == [0, 1]
