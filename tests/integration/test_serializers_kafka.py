"""Objects into a real broker, and out again with Confluent's consumer and deserializers, which are not ours.

1. What was sent is compared as a whole with what came out: no record is lost, changed, or there twice.
2. The registry is the fake one, which Confluent's own client is tried against (`tests/serializers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.deserializing_consumer import DeserializingConsumer
from confluent_kafka.serialization import StringDeserializer

from aioproduce.errors import SchemaRegistryError
from aioproduce.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistryClient,
    SerializingProducer,
    StringSerializer,
)
from aioproduce.testing import FakeSchemaRegistry
from tests.kafka_cluster import KafkaCluster
from tests.serializers import confluent
from tests.serializers.messages import Refund

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

ORDER = (
    '{"type": "record", "name": "Order", "fields": '
    '[{"name": "id", "type": "long"}, {"name": "by", "type": "string"}]}'
)
JSON_ORDER = {"title": "Order", "type": "object", "required": ["id", "by"]}
PARTITIONS = 3
COUNT = 3000


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as started:
        yield started
    confluent.close_all()


def read_back(cluster: KafkaCluster, topic: str, count: int, *, key: Any, value: Any) -> list[Any]:
    """All records of a topic by Confluent's consumer: key, value and headers; and that there is none more."""
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"readers-of-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "earliest",
            "key.deserializer": key,
            "value.deserializer": value,
        }
    )
    try:
        partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(each)[1] for each in partitions)
        assert ends == count
        consumer.assign(partitions)
        found: list[Any] = []
        while len(found) < count:
            message = consumer.poll(10.0)
            if message is not None:
                assert message.error() is None
                found.append((message.key(), message.value(), message.headers()))
        return found
    finally:
        consumer.close()


Make = Callable[[SchemaRegistryClient], Any]
FORMATS: dict[str, tuple[Make, Callable[[int], Any], Callable[[str], Any]]] = {
    "avro": (
        lambda registry: AvroSerializer[Any](registry, ORDER),
        lambda number: {"id": number, "by": f"customer-{number}"},
        confluent.avro_reader,
    ),
    "protobuf": (
        lambda registry: ProtobufSerializer(registry, Refund),
        lambda number: Refund(id=number, amount={"units": number, "currency": {"code": "EUR"}}),
        lambda url: confluent.protobuf_reader(url, Refund),
    ),
    "json schema": (
        lambda registry: JsonSchemaSerializer[Any](registry, JSON_ORDER),
        lambda number: {"id": number, "by": f"customer-{number}"},
        confluent.json_reader,
    ),
}


@pytest.mark.parametrize("form", FORMATS)
async def test_confluents_consumer_reads_what_was_sent(
    kafka1: KafkaCluster, topic_name: str, fake: FakeSchemaRegistry, form: str
) -> None:
    make, value_of, reader = FORMATS[form]
    await asyncio.to_thread(kafka1.create_topic, topic_name, partitions=PARTITIONS)
    async with (
        SchemaRegistryClient(fake.url) as registry,
        SerializingProducer(
            kafka1.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=make(registry)
        ) as producer,
    ):
        await asyncio.gather(
            *(
                producer.send_and_wait(
                    topic_name, value_of(number), f"key-{number}", headers=[("n", b"%d" % number)]
                )
                for number in range(COUNT)
            )
        )

    found = await asyncio.to_thread(
        read_back, kafka1, topic_name, COUNT, key=StringDeserializer(), value=reader(fake.url)
    )

    by_key = {key: (value, headers) for key, value, headers in found}
    assert by_key == {f"key-{number}": (value_of(number), [("n", b"%d" % number)]) for number in range(COUNT)}
    registered = [(request.method, request.path) for request in fake.requests]
    assert registered.count(("POST", f"/subjects/{topic_name}-value/versions")) == 1


async def test_a_registry_that_fails_now_and_then_loses_nothing(
    kafka1: KafkaCluster, topic_name: str, fake: FakeSchemaRegistry
) -> None:
    await asyncio.to_thread(kafka1.create_topic, topic_name, partitions=PARTITIONS)
    accepted: list[int] = []
    refused: list[int] = []
    async with SchemaRegistryClient(fake.url, retries=0) as registry:
        orders = AvroSerializer[Any](registry, ORDER, subject=lambda context, _: f"s{len(context.headers)}")
        async with SerializingProducer(kafka1.bootstrap_servers, value_serializer=orders) as producer:
            for number in range(100):
                # Each a subject of its own, and every third finds the registry failing.
                if number % 3 == 0:
                    fake.fail_next(500)
                headers = [("h", b"")] * number
                try:
                    await producer.send(topic_name, {"id": number, "by": ""}, headers=headers)
                except SchemaRegistryError:
                    refused.append(number)
                else:
                    accepted.append(number)
            await producer.flush()
            assert producer.producer.outstanding_bytes == 0

    found = await asyncio.to_thread(
        read_back, kafka1, topic_name, len(accepted), key=None, value=confluent.avro_reader(fake.url)
    )
    assert sorted(value["id"] for _, value, _ in found) == accepted
    assert refused == list(range(0, 100, 3))
