"""Text, JSON and JSON Schema: what is sent is what Confluent's deserializer and the standard library read."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Awaitable
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from aioproduce.errors import ConfigError
from aioproduce.serializers import (
    JsonSchemaSerializer,
    JsonSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    StringSerializer,
    record_name,
)
from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent

VALUE = SerializationContext("orders", "value")
ORDER = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXT
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXT, inner, max_size=4)),
    max_leaves=10,
)


@given(_TEXT)
def test_text(text: str) -> None:
    assert StringSerializer().serialize(text, VALUE) == text.encode()
    assert StringSerializer("utf-16-le").serialize(text, VALUE).decode("utf-16-le") == text


@pytest.mark.parametrize("value", [7, b"bytes", ["a"]], ids=str)
def test_what_is_no_text(value: Any) -> None:
    with pytest.raises(TypeError, match="takes str, not"):
        StringSerializer().serialize(value, VALUE)


def test_an_encoding_that_there_is_not() -> None:
    with pytest.raises(LookupError):
        StringSerializer("utf-7777")
    with pytest.raises(UnicodeEncodeError):
        StringSerializer("ascii").serialize("\u00e9", VALUE)


@given(_JSON)
def test_json(value: Any) -> None:
    assert json.loads(JsonSerializer().serialize(value, VALUE)) == value


def test_json_is_compact_and_readable() -> None:
    assert JsonSerializer().serialize({"a": [1, "\u00e9"]}, VALUE) == '{"a":[1,"\u00e9"]}'.encode()


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), {1, 2}], ids=["nan", "inf", "object", "set"]
)
def test_what_is_no_json(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        JsonSerializer().serialize(value, VALUE)


@pytest.mark.parametrize(
    "dumps", [orjson.dumps, functools.partial(json.dumps, default=str)], ids=["orjson", "json"]
)
def test_an_encoder_of_ones_own(dumps: Any) -> None:
    assert json.loads(JsonSerializer(dumps).serialize({"id": [7, None]}, VALUE)) == {"id": [7, None]}


# -- with a schema ---


async def bytes_of(given: bytes | Awaitable[bytes]) -> bytes:
    return given if isinstance(given, bytes) else await given


def write(fake: FakeSchemaRegistry, value: Any, schema: Any, **options: Any) -> bytes:
    async def main() -> bytes:
        async with SchemaRegistryClient(fake.url, retries=0) as registry:
            serializer = JsonSchemaSerializer[Any](registry, schema, **options)
            return await bytes_of(serializer.serialize(value, VALUE))

    return anyio.run(main)


def test_confluents_reader_reads_it(fake: FakeSchemaRegistry) -> None:
    written = write(fake, {"id": 7, "note": "\u00e9"}, ORDER)

    assert written[:5] == b"\0\0\0\0\1"
    assert confluent.json_reader(fake.url)(written, confluent.context()) == {"id": 7, "note": "\u00e9"}
    assert fake.requests[0].body == {"schema": json.dumps(ORDER), "schemaType": "JSON"}
    theirs = confluent.json_writer(fake.url, json.dumps(ORDER))({"id": 7}, confluent.context())
    assert theirs[:5] == written[:5]


@dataclasses.dataclass
class Order:
    id: int


def test_objects_encoders_and_subjects(fake: FakeSchemaRegistry) -> None:
    written = write(
        fake, Order(7), json.dumps(ORDER), to_dict=dataclasses.asdict, dumps=orjson.dumps, subject=record_name
    )

    assert written == b'\0\0\0\0\1{"id":7}'
    assert [*fake.subjects._names({})] == ["Order"]
    with pytest.raises(ValueError, match="its title"):
        write(fake, {}, {"type": "object"}, subject=record_name)


def test_a_validator_says_whether_values_fit(fake: FakeSchemaRegistry) -> None:
    validate = Draft202012Validator(ORDER).validate

    assert write(fake, {"id": 7}, ORDER, validate=validate) == b'\0\0\0\0\1{"id":7}'
    with pytest.raises(ValidationError):
        write(fake, {"id": "seven"}, ORDER, validate=validate)


def test_the_latest_version(fake: FakeSchemaRegistry) -> None:
    fake.register("orders-value", '{"type": "object"}', "JSON")

    assert write(fake, {"id": 7}, None, use_latest_version=True) == b'\0\0\0\0\1{"id":7}'


@pytest.mark.parametrize("schema", ["{", "7", [1], Schema('"string"'), None], ids=str)
def test_what_is_no_schema(fake: FakeSchemaRegistry, schema: Any) -> None:
    with pytest.raises(ConfigError):
        JsonSchemaSerializer[Any](SchemaRegistryClient(fake.url), schema)
