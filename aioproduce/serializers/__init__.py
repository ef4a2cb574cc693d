"""Keys and values as objects: serializers, schema registries, and the producer that uses them.

    from aioproduce.serializers import AvroSerializer, SchemaRegistryClient, SerializingProducer

    async with SchemaRegistryClient("http://registry:8081") as registry:
        orders = AvroSerializer(registry, SCHEMA)
        async with SerializingProducer("kafka:9092", value_serializer=orders) as producer:
            await producer.send("orders", {"id": 42})

`Producer` does not use this package, so a producer that sends bytes pays nothing for it. The names are loaded on
first use, each with only the libraries of its own extra (`avro`, `protobuf`, `registry`). See
`docs/how-to/serializers.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aioproduce.serializers.avro import AvroSerializer as AvroSerializer
    from aioproduce.serializers.json_schema import JsonSchemaSerializer as JsonSchemaSerializer
    from aioproduce.serializers.plain import JsonSerializer as JsonSerializer
    from aioproduce.serializers.plain import StringSerializer as StringSerializer
    from aioproduce.serializers.producer import SerializingProducer as SerializingProducer
    from aioproduce.serializers.protobuf import ProtobufSerializer as ProtobufSerializer
    from aioproduce.serializers.protocol import SerializationContext as SerializationContext
    from aioproduce.serializers.protocol import Serializer as Serializer
    from aioproduce.serializers.registry import SchemaRegistryClient as SchemaRegistryClient
    from aioproduce.serializers.schemas import Compatibility as Compatibility
    from aioproduce.serializers.schemas import RegisteredSchema as RegisteredSchema
    from aioproduce.serializers.schemas import Schema as Schema
    from aioproduce.serializers.schemas import SchemaReference as SchemaReference
    from aioproduce.serializers.subjects import record_name as record_name
    from aioproduce.serializers.subjects import topic_name as topic_name
    from aioproduce.serializers.subjects import topic_record_name as topic_record_name

_HOMES: Final = {
    "AvroSerializer": "avro",
    "Compatibility": "schemas",
    "JsonSchemaSerializer": "json_schema",
    "JsonSerializer": "plain",
    "ProtobufSerializer": "protobuf",
    "RegisteredSchema": "schemas",
    "Schema": "schemas",
    "SchemaReference": "schemas",
    "SchemaRegistryClient": "registry",
    "SerializationContext": "protocol",
    "Serializer": "protocol",
    "SerializingProducer": "producer",
    "StringSerializer": "plain",
    "record_name": "subjects",
    "topic_name": "subjects",
    "topic_record_name": "subjects",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aioproduce.serializers' has no attribute {name!r}")
    return getattr(import_module(f"aioproduce.serializers.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
