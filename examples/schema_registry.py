"""Objects instead of bytes: Avro with a schema registry, a compatible schema change and an incompatible one.

python examples/schema_registry.py                                        # a cluster and a registry in memory
python examples/schema_registry.py localhost:9092 http://localhost:8081   # yours; sends to the topic "orders-avro"
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import sys

import fastavro

from aioproduce.errors import IncompatibleSchemaError, ProducerError, SchemaRegistryError, SerializationError
from aioproduce.serializers import AvroSerializer, SchemaRegistryClient, SerializingProducer
from aioproduce.testing import FakeCluster, FakeSchemaRegistry

TOPIC = "orders-avro"

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
}
# A new field with a default: a reader with this schema can read older records.
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
# A new field without a default: a reader with this schema cannot read older records.
WITH_PRICE = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": "double"}]}


@dataclasses.dataclass
class Order:
    id: int
    customer: str
    note: str = ""


async def send_orders(servers: str, registry: SchemaRegistryClient) -> None:
    orders = AvroSerializer(registry, WITH_NOTE, to_dict=dataclasses.asdict)
    async with SerializingProducer(
        servers, key_serializer=str.encode, value_serializer=orders, linger_ms=5
    ) as producer:
        # Fails at the start if the registry is down or refuses the schema. Without it, the first send() asks.
        await producer.prepare(TOPIC)

        # A type checker knows that values are orders and keys are text.
        deliveries = [
            await producer.send(TOPIC, Order(number, f"customer-{number % 3}"), f"customer-{number % 3}")
            for number in range(1000)
        ]
        for delivery in deliveries:
            await delivery
        print(f"{len(deliveries):,} orders acknowledged")

        # A value that does not fit its schema fails alone: nothing is queued for it.
        try:
            await producer.send(TOPIC, Order("seven", "customer-7"))  # type: ignore[arg-type]  # wrong on purpose
        except SerializationError as error:
            print(f"refused: {error}")


async def change_the_schema(servers: str, registry: SchemaRegistryClient) -> None:
    # Check before a deployment, from a test or a script:
    answer = await registry.check_compatibility(f"{TOPIC}-value", AvroSerializer(registry, WITH_PRICE).schema)
    print(f"with a price: {'compatible' if answer else 'not compatible'}")

    # A service that is deployed without this check gets this error:
    changed = AvroSerializer(registry, WITH_PRICE)
    async with SerializingProducer(servers, value_serializer=changed) as producer:
        try:
            await producer.send(TOPIC, {"id": 1, "customer": "customer-1", "price": 12.5})
        except IncompatibleSchemaError as error:
            print(f"refused: {error.subject}: {error.remedy}")


async def read_back(cluster: FakeCluster, registry: SchemaRegistryClient) -> None:
    """Decode the bytes as a consumer does: the id at their start names the schema of the rest."""
    customers = set()
    for record in cluster.records(TOPIC):
        assert record.value is not None
        schema_id = int.from_bytes(record.value[1:5], "big")
        schema = fastavro.parse_schema(json.loads((await registry.schema(schema_id)).text))
        order = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), schema, None)
        customers.add(Order(**order).customer)  # type: ignore[arg-type]  # as the schema has it
    print(f"{len(cluster.records(TOPIC)):,} orders read back, of {len(customers)} customers")


async def main() -> None:
    if len(sys.argv) > 2:
        async with SchemaRegistryClient(sys.argv[2]) as registry:
            await send_orders(sys.argv[1], registry)
            await change_the_schema(sys.argv[1], registry)
        return
    with FakeSchemaRegistry() as fake:
        async with FakeCluster(topics={TOPIC: 3}) as cluster, SchemaRegistryClient(fake.url) as registry:
            # Another producer has registered the first schema before.
            fake.register(f"{TOPIC}-value", json.dumps(ORDER))
            await send_orders(cluster.bootstrap_servers, registry)
            await change_the_schema(cluster.bootstrap_servers, registry)
            await read_back(cluster, registry)
        print(f"the registry was asked {len(fake.requests)} times")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except SchemaRegistryError as error:
        sys.exit(f"the registry: {error}")
    except ProducerError as error:
        sys.exit(f"{type(error).__name__}: {error}")
