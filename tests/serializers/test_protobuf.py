"""Protobuf: message indexes and references as Confluent's own serializer makes them, read back by its reader."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.errors import IncompatibleSchemaError, SchemaRegistryError
from aioproduce.serializers import ProtobufSerializer, SchemaRegistryClient, SerializationContext, record_name
from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent
from tests.serializers.messages import Order, Plain, Refund, RefundLine, class_of, file, message, pool_of

VALUE = SerializationContext("orders", "value")


async def bytes_of(given: bytes | Awaitable[bytes]) -> bytes:
    return given if isinstance(given, bytes) else await given


def with_registry(fake: FakeSchemaRegistry, test: Callable[[SchemaRegistryClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url, retries=0) as registry:
            await test(registry)

    anyio.run(main)


def write(fake: FakeSchemaRegistry, value: Any, **options: Any) -> bytes:
    written: list[bytes] = []

    async def main(registry: SchemaRegistryClient) -> None:
        serializer = ProtobufSerializer(registry, type(value), **options)
        written.append(await bytes_of(serializer.serialize(value, VALUE)))

    with_registry(fake, main)
    return written[0]


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        (Plain(id=7, note="n"), b"\0\0\0\0\1\0"),
        (Order(id=7, note="n"), b"\0\0\0\0\3\0"),
        (
            Refund(id=7, amount={"units": 3, "currency": {"code": "EUR"}}, at={"seconds": 5}),
            b"\0\0\0\0\3\2\2",
        ),
        (RefundLine(text="a line"), b"\0\0\0\0\3\4\2\2"),
    ],
    ids=["alone", "first", "second", "nested"],
)
def test_as_confluents_own_serializer_writes_it(fake: FakeSchemaRegistry, value: Any, prefix: bytes) -> None:
    written = write(fake, value)
    ours = [(request.path, request.body) for request in fake.requests if request.method == "POST"]

    with FakeSchemaRegistry() as other:
        confluents = confluent.protobuf_writer(other.url, type(value))(value, confluent.context())
        theirs = [(request.path, request.body) for request in other.requests if request.method == "POST"]

    assert written == confluents
    assert written.startswith(prefix)
    assert confluent.protobuf_reader(fake.url, type(value))(written, confluent.context()) == value
    # The same schemas and references under the same subjects, in the same order.
    assert ours == [(path, {name: given for name, given in body.items() if given}) for path, body in theirs]


def test_whatever_is_written_is_read_back(fake: FakeSchemaRegistry) -> None:
    made: list[Any] = []

    async def prepare(registry: SchemaRegistryClient) -> None:
        made.append(ProtobufSerializer(registry, Refund))
        await made[0].prepare("orders")

    with_registry(fake, prepare)
    reader = confluent.protobuf_reader(fake.url, Refund)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
    longs = st.integers(-(2**63), 2**63 - 1)

    @settings(max_examples=100, deadline=None)
    @given(longs, longs, text, st.integers(0, 2**31))
    def check(number: int, units: int, code: str, seconds: int) -> None:
        value = Refund(
            id=number, amount={"units": units, "currency": {"code": code}}, at={"seconds": seconds}
        )

        written = made[0].serialize(value, VALUE)

        assert isinstance(written, bytes)
        assert reader(written, confluent.context()) == value

    check()


def test_a_thousand_firsts_register_each_file_once(fake: FakeSchemaRegistry, backend: str) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry, anyio.create_task_group() as tasks:
            serializer = ProtobufSerializer(registry, Refund)

            async def serialize(number: int) -> None:
                await bytes_of(serializer.serialize(Refund(id=number), VALUE))

            for number in range(1000):
                tasks.start_soon(serialize, number)

    anyio.run(main, backend=backend)
    assert sorted(request.path for request in fake.requests) == [
        "/subjects/orders-value/versions",
        "/subjects/shop%2Fcurrency.proto",
        "/subjects/shop%2Fcurrency.proto/versions",
        "/subjects/shop%2Fmoney.proto",
        "/subjects/shop%2Fmoney.proto/versions",
    ]


def test_subjects_of_imports_and_of_the_message(fake: FakeSchemaRegistry) -> None:
    write(fake, Refund(id=1), reference_subject=lambda path: f"protos/{path}", subject=record_name)

    assert [*fake.subjects._names({})] == [
        "protos/shop/currency.proto",
        "protos/shop/money.proto",
        "shop.Refund",
    ]


def test_without_auto_register_imports_must_be_there_too(fake: FakeSchemaRegistry) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        write(fake, Refund(id=1), auto_register=False)
    assert (caught.value.subject, caught.value.error_code) == ("shop/currency.proto", 40401)

    registered = write(fake, Refund(id=1))

    assert write(fake, Refund(id=1), auto_register=False) == registered


def test_a_message_of_another_class(fake: FakeSchemaRegistry) -> None:
    async def main(registry: SchemaRegistryClient) -> None:
        with pytest.raises(TypeError, match="accepts Order, not Plain"):
            await bytes_of(ProtobufSerializer[Any](registry, Order).serialize(Plain(id=1), VALUE))

    with_registry(fake, main)


# The newest version of the subject has other messages before ours.
GROWN = file(
    "shop/plain.proto",
    message("Before", ("id", 3, "")),
    message("Plain", ("id", 3, ""), ("note", 9, ""), nested=(message("Inner", ("id", 3, "")),)),
)


def serialized(grown: FileDescriptorProto) -> str:
    return base64.b64encode(grown.SerializeToString()).decode()


def test_the_latest_version_says_where_the_message_stands(fake: FakeSchemaRegistry) -> None:
    fake.register("orders-value", serialized(GROWN), "PROTOBUF")

    written = write(fake, Plain(id=7, note="n"), use_latest_version=True)

    assert written == b"\0\0\0\0\1\2\2" + Plain(id=7, note="n").SerializeToString()
    grown = class_of(pool_of(GROWN), "shop.Plain")
    assert confluent.protobuf_reader(fake.url, grown)(written, confluent.context()) == grown(id=7, note="n")
    assert fake.requests[0].query == {"format": "serialized"}
    assert write(fake, Plain(id=7, note="n"), schema_id=1) == written


def test_the_latest_version_has_no_such_message(fake: FakeSchemaRegistry) -> None:
    fake.register(
        "orders-value", serialized(file("other.proto", message("Other", ("id", 3, "")))), "PROTOBUF"
    )

    with pytest.raises(IncompatibleSchemaError, match=r"has no message shop\.Plain") as caught:
        write(fake, Plain(id=7), use_latest_version=True)
    assert caught.value.subject == "orders-value"


def test_the_latest_version_is_avro(fake: FakeSchemaRegistry) -> None:
    fake.register("orders-value", '"string"')

    with pytest.raises(IncompatibleSchemaError, match="is AVRO"):
        write(fake, Plain(id=7), use_latest_version=True)


def test_a_registry_that_knows_text_only(fake: FakeSchemaRegistry) -> None:
    fake.register(
        "orders-value", 'syntax = "proto3"; package shop; message Plain { int64 id = 1; }', "PROTOBUF"
    )

    assert write(fake, Plain(id=7), use_latest_version=True).startswith(b"\0\0\0\0\1\0")


def test_messages_without_a_package(fake: FakeSchemaRegistry) -> None:
    grown = file(
        "bare.proto", message("A", nested=(message("C"),)), message("B", nested=(message("C"),)), package=""
    )
    fake.register("orders-value", serialized(grown), "PROTOBUF")
    inner = class_of(pool_of(grown), "B.C")

    assert write(fake, inner(), use_latest_version=True) == b"\0\0\0\0\1\4\2\0"


def test_a_key_has_one_form_though_a_map_has_no_order(fake: FakeSchemaRegistry) -> None:
    from google.protobuf.struct_pb2 import Struct

    first, second = Struct(), Struct()
    first.update({"a": 1, "b": 2, "c": 3})
    second.update({"c": 3, "b": 2, "a": 1})

    assert write(fake, first) == write(fake, second)
