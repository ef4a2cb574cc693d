"""A producer of bytes: what is sent, what is awaited, and what asyncio does with deliveries."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import assert_type

from aioproduce import (
    ClusterInfo,
    Deliveries,
    DeliveryFuture,
    PartitionInfo,
    Producer,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from aioproduce.errors import DeliveryError, MaxBlockTimeoutError, ProducerError


def told(metadata: RecordMetadata, error: BaseException | None) -> None:
    print(metadata.topic_partition, error)


async def one_record(producer: Producer) -> TopicPartition:
    delivery = await producer.send("orders", b"42", key=b"customer-7", on_delivery=told)
    assert_type(delivery, DeliveryFuture)
    assert_type(delivery.topic, str)
    assert_type(delivery.partition, int)
    metadata = await delivery
    assert_type(metadata, RecordMetadata)
    assert_type(metadata.offset, int)
    assert_type(await producer.send_and_wait("orders", bytearray(b"42")), RecordMetadata)
    producer.try_send("orders", memoryview(b"42"), timestamp=datetime.now(UTC), headers=[("trace", None)])
    await producer.send(ProducerRecord(topic="orders", value=b"42", key=b"customer-7"))
    return metadata.topic_partition


async def what_asyncio_does(producer: Producer) -> None:
    first, second = await producer.send("orders", b"1"), await producer.send("orders", b"2")
    one, two = await asyncio.gather(first, second)
    assert_type(one, RecordMetadata)
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    print([outcome for outcome in outcomes if isinstance(outcome, DeliveryError)], two)
    done, pending = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    assert_type(done, set[DeliveryFuture])
    for delivery in pending:
        delivery.cancel()
    for settled in asyncio.as_completed([first, second]):
        assert_type(await settled, RecordMetadata)
    assert_type(await asyncio.shield(first), RecordMetadata)
    assert_type(await asyncio.wait_for(second, timeout=5), RecordMetadata)
    later: asyncio.Future[RecordMetadata] = first
    later.add_done_callback(lambda future: print(future.result().offset))
    if first.done() and not first.cancelled():
        assert_type(first.exception(), BaseException | None)
        assert_type(first.result(), RecordMetadata)


async def many_records(producer: Producer) -> None:
    deliveries = await producer.send_many("orders", [b"1", None, b"3"], [b"a", b"b", None])
    assert_type(deliveries, Deliveries)
    assert_type(await deliveries, list[RecordMetadata])
    assert_type(await deliveries.outcomes(), list[RecordMetadata | DeliveryError])
    assert_type(await deliveries.failed(), dict[int, DeliveryError])
    assert_type(deliveries[0], DeliveryFuture)
    assert_type(deliveries[1:], list[DeliveryFuture])
    batch = producer.create_batch(max_size=1_000_000)
    if batch.append(b"1", b"customer-7") is not None:
        await (await producer.send_batch(batch, "orders", partition=3)).wait()


async def asked(producer: Producer) -> list[PartitionInfo]:
    info = await producer.check(timeout=5)
    assert_type(info, ClusterInfo)
    assert_type(info.brokers, dict[int, str])
    assert_type(producer.metrics().value("record-error-total"), float)
    assert_type(producer.outstanding_bytes, int)
    return await producer.partitions_for("orders")


async def main() -> None:
    async with Producer("localhost:9092", linger_ms=5, compression_type="lz4", acks="all") as producer:
        try:
            print(await one_record(producer))
        except MaxBlockTimeoutError as error:
            print(error.waited)
        except DeliveryError as error:
            print(error.possibly_written, error.topic_partition)
        except ProducerError:
            raise
        await producer.flush(timeout=10)


asyncio.run(main())
