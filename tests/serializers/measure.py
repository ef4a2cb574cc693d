"""The cost of serializing a record, next to the libraries beneath it: the table of docs/how-to/serializers.md.

    python -m tests.serializers.measure [--json]

Microseconds of this process's own time per record, so that other load on the machine counts little; the variants
take turns within each round, and the table has the median of the rounds. `send()` is that of a producer whose
`send()` ends at once, so that what is added to it is seen, and not what Kafka costs.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import fastavro

from aioproduce import Producer
from aioproduce.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    JsonSerializer,
    ProtobufSerializer,
    SchemaRegistryClient,
    SerializationContext,
    SerializingProducer,
)
from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent
from tests.serializers.messages import Order

ROUNDS: Final = 9
RECORDS: Final = 20_000
SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
VALUE: Final = {
    "id": 123456789,
    "customer": "customer-4711",
    "amount": 129.9,
    "paid": True,
    "note": None,
    "lines": ["tea", "cups", "a pot"],
}
CONTEXT: Final = SerializationContext("orders", "value")


def plain_avro() -> Callable[[], object]:
    parsed = fastavro.parse_schema(SCHEMA)

    def write() -> bytes:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, parsed, VALUE)
        return buffer.getvalue()

    return write


async def variants(registry: SchemaRegistryClient, url: str) -> dict[str, Callable[[], object]]:
    """By name; each made ready, so that nothing is asked of the registry while it is measured."""
    avro = AvroSerializer[Any](registry, SCHEMA)
    lax = AvroSerializer[Any](registry, SCHEMA, strict=False)
    json_schema = JsonSchemaSerializer[Any](registry, {"title": "Order"}, subject=lambda _, name: name or "")
    protobuf = ProtobufSerializer(registry, Order, subject=lambda _, name: name or "")
    for serializer in (avro, lax, json_schema, protobuf):
        await serializer.prepare("orders")
    message = Order(id=123456789, note="customer-4711")
    as_json = JsonSerializer()
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
    theirs = confluent.avro_writer(url, json.dumps(SCHEMA))
    their_context = confluent.context()
    theirs(VALUE, their_context)
    return {
        "fastavro alone": plain_avro(),
        "AvroSerializer": lambda: avro.serialize(VALUE, CONTEXT),
        "AvroSerializer, strict=False": lambda: lax.serialize(VALUE, CONTEXT),
        "confluent-kafka's AvroSerializer": lambda: theirs(VALUE, their_context),
        "json alone": lambda: encode(VALUE).encode(),
        "JsonSerializer": lambda: as_json.serialize(VALUE, CONTEXT),
        "JsonSchemaSerializer": lambda: json_schema.serialize(VALUE, CONTEXT),
        "protobuf alone": functools.partial(message.SerializeToString, deterministic=True),
        "ProtobufSerializer": lambda: protobuf.serialize(message, CONTEXT),
    }


def cost_of(call: Callable[[], object]) -> float:
    """Microseconds of processor time for a call."""
    began = time.process_time()
    for _ in range(RECORDS):
        call()
    return (time.process_time() - began) / RECORDS * 1e6


async def costs_of_sends(registry: SchemaRegistryClient) -> dict[str, list[float]]:
    """`send()` with and without a serializer over one that does nothing."""
    sink = Producer("localhost:1")

    async def accept(*_: object, **__: object) -> None:
        return None

    vars(sink)["send"] = accept
    avro = AvroSerializer[Any](registry, SCHEMA)
    await avro.prepare("orders")
    serializing = SerializingProducer(sink, value_serializer=avro)
    through = SerializingProducer(sink)
    payload = b"x" * 40
    costs: dict[str, list[float]] = {"bytes": [], "through": [], "avro": []}
    for _ in range(ROUNDS):
        for name in costs:
            began = time.process_time()
            for _ in range(RECORDS):
                if name == "bytes":
                    await accept("orders", payload)
                elif name == "through":
                    await through.send("orders", payload)
                else:
                    await serializing.send("orders", VALUE)
            costs[name].append((time.process_time() - began) / RECORDS * 1e6)
    return {
        f"SerializingProducer.send(), {what}: added": [
            cost - alone for cost, alone in zip(costs[name], costs["bytes"], strict=True)
        ]
        for what, name in (("bytes", "through"), ("Avro", "avro"))
    }


async def measured() -> dict[str, list[float]]:
    """Microseconds of each variant, in each round."""
    with FakeSchemaRegistry() as fake:
        async with SchemaRegistryClient(fake.url) as registry:
            measured = await variants(registry, fake.url)
            costs: dict[str, list[float]] = {name: [] for name in measured}
            for _ in range(ROUNDS):
                for name, call in measured.items():
                    costs[name].append(cost_of(call))
            costs |= await costs_of_sends(registry)
        confluent.close_all()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.serializers.measure")
    parser.add_argument("--json", action="store_true", help="for a program: also each round")
    options = parser.parse_args()
    costs = asyncio.run(measured())
    if options.json:
        found = {name: {"median": statistics.median(each), "rounds": each} for name, each in costs.items()}
        print(json.dumps(found))
        return
    for name, each in costs.items():
        print(f"{name:45} {statistics.median(each):6.2f} us")


if __name__ == "__main__":
    main()
