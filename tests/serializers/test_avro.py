"""Avro: what is written is read back by fastavro and by Confluent's deserializer; schemas come and go as asked."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

import anyio
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.errors import ConfigError, IncompatibleSchemaError, SchemaRegistryError
from aioproduce.serializers import (
    AvroSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    record_name,
    topic_record_name,
)
from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent

ORDER = '{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}'
WITH_NOTE = ORDER.replace("]", ', {"name": "note", "type": "string", "default": "-"}]')
VALUE = SerializationContext("orders", "value")


async def bytes_of(given: bytes | Awaitable[bytes]) -> bytes:
    return given if isinstance(given, bytes) else await given


def with_registry(fake: FakeSchemaRegistry, test: Callable[[SchemaRegistryClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url, retries=0) as registry:
            await test(registry)

    anyio.run(main)


def read(framed: bytes, schema: Any) -> Any:
    """By fastavro, without the registry."""
    return fastavro.schemaless_reader(BytesIO(framed[5:]), fastavro.parse_schema(schema), None)


def test_the_first_is_awaited_and_all_others_are_not(fake: FakeSchemaRegistry, backend: str) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            serializer = AvroSerializer[dict[str, int]](registry, ORDER)
            first = serializer.serialize({"id": 1}, VALUE)
            assert not isinstance(first, bytes)
            assert await first == b"\0\0\0\0\1\2"
            assert serializer.serialize({"id": -1}, VALUE) == b"\0\0\0\0\1\1"
            elsewhere = serializer.serialize({"id": 1}, SerializationContext("other", "key"))
            assert await bytes_of(elsewhere) == b"\0\0\0\0\1\2"

    anyio.run(main, backend=backend)
    assert [request.path for request in fake.requests] == [
        "/subjects/orders-value/versions",
        "/subjects/other-key/versions",
    ]


def test_a_thousand_firsts_register_once(fake: FakeSchemaRegistry, backend: str) -> None:
    written: list[bytes] = []

    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry, anyio.create_task_group() as tasks:
            serializer = AvroSerializer[dict[str, int]](registry, ORDER)

            async def serialize(number: int) -> None:
                written.append(await bytes_of(serializer.serialize({"id": number}, VALUE)))

            for number in range(1000):
                tasks.start_soon(serialize, number)

    anyio.run(main, backend=backend)
    assert len(fake.requests) == 1
    assert sorted(read(each, json.loads(ORDER))["id"] for each in written) == list(range(1000))


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "test",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "long"},
        {"name": "c", "type": "double"},
        {"name": "d", "type": "boolean"},
        {"name": "e", "type": "bytes"},
        {"name": "f", "type": "string"},
        {"name": "g", "type": ["null", "string", "long"]},
        {"name": "h", "type": {"type": "array", "items": "long"}},
        {"name": "i", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "j", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "k", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "l", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "m", "type": ["null", "Everything"]},
    ],
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_LONGS = st.integers(-(2**63), 2**63 - 1)


def _everything(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "a": st.integers(-(2**31), 2**31 - 1),
            "b": _LONGS,
            "c": st.floats(allow_nan=False),
            "d": st.booleans(),
            "e": st.binary(max_size=20),
            "f": _TEXT,
            "g": st.one_of(st.none(), _TEXT, _LONGS),
            "h": st.lists(_LONGS, max_size=5),
            "i": st.dictionaries(_TEXT, st.one_of(st.none(), _TEXT), max_size=5),
            "j": st.sampled_from(["RED", "BLUE"]),
            "k": st.binary(min_size=4, max_size=4),
            "l": st.datetimes(
                datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC)
            ),
            "m": inner,
        }
    )


def test_whatever_is_written_is_read_back_by_confluents_reader(fake: FakeSchemaRegistry) -> None:
    made: list[AvroSerializer[Any]] = []

    async def prepare(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, EVERYTHING)
        assert await serializer.prepare("orders") == "orders-value"
        made.append(serializer)

    with_registry(fake, prepare)
    reader = confluent.avro_reader(fake.url)
    confluents = confluent.avro_writer(fake.url, json.dumps(EVERYTHING))

    @settings(max_examples=100, deadline=None)
    @given(_everything(st.one_of(st.none(), _everything(st.none()))))
    def check(value: Any) -> None:
        written = made[0].serialize(value, VALUE)

        assert isinstance(written, bytes)
        assert reader(written, confluent.context()) == value
        assert confluents(value, confluent.context()) == written

    check()
    assert len([request for request in fake.requests if request.method == "POST"]) == 2


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"string"', "text"),
        ("string", "text"),
        ('"long"', 7),
        ('{"type": "string"}', "text"),
        ('["null", "string"]', "text"),
        ('{"type": "array", "items": "long"}', [1, 2]),
        ('"bytes"', b"as they are"),
        ('{"type": "bytes"}', b"\0"),
    ],
)
def test_schemas_that_are_no_records(fake: FakeSchemaRegistry, schema: str, value: Any) -> None:
    written: list[bytes] = []

    async def write(registry: SchemaRegistryClient) -> None:
        text = schema if schema != "string" else '"string"'
        serializer = AvroSerializer[Any](registry, text)
        written.append(await bytes_of(serializer.serialize(value, VALUE)))

    with_registry(fake, write)
    assert confluent.avro_reader(fake.url)(written[0], confluent.context()) == value
    if isinstance(value, bytes):
        assert written[0][5:] == value


def test_bytes_that_are_none(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        with pytest.raises(TypeError, match="the value is str"):
            await bytes_of(AvroSerializer[Any](registry, '"bytes"').serialize("text", VALUE))

    with_registry(fake, write)


@dataclasses.dataclass
class Order:
    id: int


def test_objects_by_to_dict(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer(registry, ORDER, to_dict=dataclasses.asdict)
        written = await bytes_of(serializer.serialize(Order(7), VALUE))
        assert read(written, json.loads(ORDER)) == {"id": 7}

    with_registry(fake, write)


def test_a_field_too_many_is_refused_unless_one_lets_it_be_dropped(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        strict = AvroSerializer[Any](registry, WITH_NOTE)
        written = await bytes_of(strict.serialize({"id": 1}, VALUE))
        assert read(written, json.loads(WITH_NOTE)) == {"id": 1, "note": "-"}
        with pytest.raises(ValueError, match=r"note_"):
            strict.serialize({"id": 1, "note_": "a slip of the pen"}, VALUE)
        lax = AvroSerializer[Any](registry, WITH_NOTE, strict=False)
        written = await bytes_of(lax.serialize({"id": 1, "note_": "a slip of the pen"}, VALUE))
        assert read(written, json.loads(WITH_NOTE)) == {"id": 1, "note": "-"}

    with_registry(fake, write)


def test_values_that_do_not_fit(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, ORDER)
        await serializer.prepare("orders")
        for value in ({"id": "text"}, {}, 7, [1]):
            with pytest.raises(Exception, match=r".") as caught:
                serializer.serialize(value, VALUE)
            assert not isinstance(caught.value, SchemaRegistryError)
        assert serializer.serialize({"id": 0}, VALUE) == b"\0\0\0\0\1\0"

    with_registry(fake, write)


# -- which schema ---


def test_subjects(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        for subject in (record_name, topic_record_name, lambda context, record: f"{record}/{context.field}"):
            await AvroSerializer[Any](registry, ORDER, subject=subject).prepare("orders")
        union = AvroSerializer[Any](registry, '["null", "string"]', subject=record_name)
        with pytest.raises(ValueError, match="has no name"):
            union.serialize("text", VALUE)

    with_registry(fake, write)
    assert [*fake.subjects._names({})] == ["orders-shop.Order", "shop.Order", "shop.Order/value"]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (ORDER, "shop.Order"),
        (ORDER.replace("Order", "other.Order"), "other.Order"),
        (ORDER.replace('"namespace": "shop", ', ""), "Order"),
        ('"string"', "string"),
        ('{"type": "array", "items": "long"}', "array"),
    ],
)
def test_names_of_records_are_those_that_confluent_finds(
    fake: FakeSchemaRegistry, schema: str, name: str
) -> None:
    serializer = AvroSerializer[Any](SchemaRegistryClient(fake.url), schema)

    assert serializer._record == name == confluent.avro_writer(fake.url, schema)._schema_name


def test_without_auto_register_the_schema_must_be_there(fake: FakeSchemaRegistry) -> None:
    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, ORDER, auto_register=False)
        with pytest.raises(SchemaRegistryError, match="register the schema first") as caught:
            await bytes_of(serializer.serialize({"id": 1}, VALUE))
        assert caught.value.error_code == 40401
        fake.register("orders-value", '"string"')
        fake.register("elsewhere", ORDER)
        with pytest.raises(SchemaRegistryError) as caught:
            await bytes_of(serializer.serialize({"id": 1}, VALUE))
        assert caught.value.error_code == 40403
        fake.subjects._delete_subject({}, "orders-value")
        fake.register("orders-value", ORDER)
        assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\2\2"

    with_registry(fake, write)


def test_an_incompatible_schema_fails_and_is_asked_again(fake: FakeSchemaRegistry) -> None:
    fake.register("orders-value", '"string"')

    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, ORDER)
        with pytest.raises(IncompatibleSchemaError):
            await bytes_of(serializer.serialize({"id": 1}, VALUE))
        fake.subjects._set_subject_level({}, "orders-value", {"compatibility": "NONE"})
        assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\2\2"

    with_registry(fake, write)


def test_the_latest_version_is_what_is_written_with(fake: FakeSchemaRegistry) -> None:
    now = 0.0
    fake.register("orders-value", ORDER)

    async def main() -> None:
        nonlocal now
        async with SchemaRegistryClient(fake.url, latest_ttl=60, retries=0, clock=lambda: now) as registry:
            serializer = AvroSerializer[Any](registry, use_latest_version=True)
            assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\1\2"
            fake.register("orders-value", WITH_NOTE)
            assert serializer.serialize({"id": 1}, VALUE) == b"\0\0\0\0\1\2"
            now = 60.0
            assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\2\2\2-"
            assert serializer.serialize({"id": 1}, VALUE) == b"\0\0\0\0\2\2\2-"
            # The registry is away: what is known goes on being written with.
            now = 120.0
            fake.fail_next(500)
            assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\2\2\2-"
            assert serializer.serialize({"id": 1}, VALUE) == b"\0\0\0\0\2\2\2-"

    anyio.run(main)


def test_while_one_asks_for_the_latest_version_the_others_go_on(
    fake: FakeSchemaRegistry, backend: str
) -> None:
    now = 0.0
    fake.register("orders-value", ORDER)

    async def main() -> None:
        nonlocal now
        async with SchemaRegistryClient(fake.url, latest_ttl=60, clock=lambda: now) as registry:
            serializer = AvroSerializer[Any](registry, use_latest_version=True)
            await serializer.prepare("orders")
            fake.register("orders-value", WITH_NOTE)
            now = 60.0
            fake.hold()
            written: list[bytes] = []

            async def ask() -> None:
                written.append(await bytes_of(serializer.serialize({"id": 1}, VALUE)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.to_thread.run_sync(fake.wait_for_requests, 2)
                assert serializer.serialize({"id": 1}, VALUE) == b"\0\0\0\0\1\2"
                fake.release()
            assert written == [b"\0\0\0\0\2\2\2-"]
            assert serializer.serialize({"id": 1}, VALUE) == b"\0\0\0\0\2\2\2-"

    anyio.run(main, backend=backend)


def test_a_schema_by_its_id(fake: FakeSchemaRegistry) -> None:
    fake.register("somewhere", '"string"')
    fake.register("somewhere-else", WITH_NOTE)

    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, schema_id=2)
        assert await bytes_of(serializer.serialize({"id": 1, "note": "n"}, VALUE)) == b"\0\0\0\0\2\2\2n"
        with pytest.raises(SchemaRegistryError) as caught:
            await bytes_of(AvroSerializer[Any](registry, schema_id=9).serialize({"id": 1}, VALUE))
        assert caught.value.error_code == 40403

    with_registry(fake, write)


def test_references_within_references_and_twice(fake: FakeSchemaRegistry) -> None:
    currency = '{"type": "enum", "name": "Currency", "namespace": "shop", "symbols": ["EUR", "USD"]}'
    money = (
        '{"type": "record", "name": "Money", "namespace": "shop", "fields": '
        '[{"name": "units", "type": "long"}, {"name": "in", "type": "Currency"}]}'
    )
    refund = (
        '{"type": "record", "name": "Refund", "namespace": "shop", "fields": '
        '[{"name": "amount", "type": "Money"}, {"name": "asked_in", "type": "shop.Currency"}]}'
    )
    to_currency = SchemaReference("shop.Currency", "currency", 1)
    fake.register("currency", currency)
    fake.register("money", money, references=[to_currency._asdict()])
    value = {"amount": {"units": 7, "in": "USD"}, "asked_in": "EUR"}
    written: list[bytes] = []

    async def write(registry: SchemaRegistryClient) -> None:
        schema = Schema(refund, references=(SchemaReference("shop.Money", "money", 1), to_currency))
        written.append(await bytes_of(AvroSerializer[Any](registry, schema).serialize(value, VALUE)))
        latest = AvroSerializer[Any](registry, use_latest_version=True)
        written.append(await bytes_of(latest.serialize(value, VALUE)))

    with_registry(fake, write)
    assert written[0] == written[1]
    assert confluent.avro_reader(fake.url)(written[0], confluent.context()) == value


@pytest.mark.parametrize("options", [{"use_latest_version": True}, {"schema_id": 1}], ids=str)
def test_the_registrys_schema_is_of_another_type(fake: FakeSchemaRegistry, options: dict[str, Any]) -> None:
    fake.register("orders-value", '{"type": "object"}', "JSON")

    async def write(registry: SchemaRegistryClient) -> None:
        with pytest.raises(
            IncompatibleSchemaError, match="is JSON, but AvroSerializer writes AVRO"
        ) as caught:
            await bytes_of(AvroSerializer[Any](registry, **options).serialize({"id": 1}, VALUE))
        assert caught.value.subject == "orders-value"

    with_registry(fake, write)


@pytest.mark.parametrize(
    ("rules", "is_refused"),
    [
        (
            {
                "domainRules": [
                    {"name": "encrypt-pii", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}
                ]
            },
            True,
        ),
        ({"encodingRules": [{"name": "encrypt-pii", "mode": "WRITE"}]}, True),
        ({"domainRules": [{"name": "encrypt-pii", "mode": "WRITE", "disabled": True}]}, False),
        ({"domainRules": [{"name": "check", "mode": "READ"}], "migrationRules": [{"name": "up"}]}, False),
        (None, False),
        ([7], False),
        ({"domainRules": 7, "encodingRules": [7]}, False),
    ],
    ids=["domain", "encoding", "disabled", "on reading", "none", "list", "nonsense"],
)
def test_rules_that_are_not_executed_are_not_passed_over(
    fake: FakeSchemaRegistry, rules: object, is_refused: bool
) -> None:
    answer = {"subject": "orders-value", "version": 1, "id": 1, "schema": ORDER, "ruleSet": rules}
    fake.fail_next(200, body=json.dumps(answer).encode())

    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, use_latest_version=True)
        if not is_refused:
            assert await bytes_of(serializer.serialize({"id": 1}, VALUE)) == b"\0\0\0\0\1\2"
            return
        with pytest.raises(IncompatibleSchemaError, match=r"does not execute \(encrypt-pii\)"):
            await bytes_of(serializer.serialize({"id": 1}, VALUE))

    with_registry(fake, write)


def test_own_strategies_do_not_fill_memory(fake: FakeSchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproduce.serializers.registered._MAX_SUBJECTS", 3)

    async def write(registry: SchemaRegistryClient) -> None:
        serializer = AvroSerializer[Any](registry, ORDER, subject=lambda context, _: context.topic)
        for number in range(5):
            await serializer.prepare(f"topic-{number}")
        assert [*serializer._writes] == ["topic-2", "topic-3", "topic-4"]
        written = serializer.serialize({"id": 1}, SerializationContext("topic-0", "value"))
        assert await bytes_of(written) == b"\0\0\0\0\1\2"

    with_registry(fake, write)
    assert len(fake.requests) == 5  # the client still knows


# -- what cannot be ---


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ("{", {}),
        ('{"type": "record"}', {}),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "B"}]}', {}),
        (Schema('{"type": "object"}', "JSON"), {}),
        (None, {}),
        (None, {"auto_register": False}),
        (ORDER, {"auto_register": True, "use_latest_version": True}),
        (ORDER, {"schema_id": 1, "use_latest_version": True}),
        (ORDER, {"schema_id": -1}),
        (ORDER, {"subject": "orders-value"}),
    ],
    ids=str,
)
def test_what_is_refused_when_it_is_made(
    fake: FakeSchemaRegistry, schema: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        AvroSerializer[Any](SchemaRegistryClient(fake.url), schema, **options)
    assert fake.requests == []


def test_an_option_that_there_is_not(fake: FakeSchemaRegistry) -> None:
    options: Any = {"auto_registre": True}
    with pytest.raises(TypeError, match="AvroSerializer does not have an option 'auto_registre'"):
        AvroSerializer[Any](SchemaRegistryClient(fake.url), ORDER, **options)
