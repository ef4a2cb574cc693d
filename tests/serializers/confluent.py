"""Confluent's own client and serializers, as the independent readers of what ours writes, and writers for ours."""

from __future__ import annotations

from typing import Any, Literal

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}


_opened: list[Any] = []


def client(url: str, **settings: object) -> Any:
    opened = SchemaRegistryClient({"url": url, "max.retries": 0, **settings})
    _opened.append(opened)
    return opened


def close_all() -> None:
    """Close every client of the test: unclosed they warn, and warnings are errors."""
    while _opened:
        _opened.pop().__exit__(None, None, None)


def context(topic: str = "orders", field: Literal["key", "value"] = "value") -> Any:
    return SerializationContext(topic, MessageField(field))


def avro_reader(url: str) -> Any:
    return AvroDeserializer(client(url), conf=BY_TOPIC)


def avro_writer(url: str, schema: str, **conf: object) -> Any:
    return AvroSerializer(client(url), schema, conf=BY_TOPIC | conf)


def protobuf_reader(url: str, message_type: type[Any]) -> Any:
    return ProtobufDeserializer(message_type, BY_TOPIC, client(url))


def protobuf_writer(url: str, message_type: type[Any], **conf: object) -> Any:
    return ProtobufSerializer(message_type, client(url), BY_TOPIC | conf)


def json_reader(url: str) -> Any:
    return JSONDeserializer(None, schema_registry_client=client(url), conf=BY_TOPIC)


def json_writer(url: str, schema: str, **conf: object) -> Any:
    return JSONSerializer(schema, client(url), conf=BY_TOPIC | conf)
