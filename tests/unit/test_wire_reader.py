"""The reader's own arithmetic: least sizes, defaults of absent tagged fields, single values; kio is the oracle."""

from __future__ import annotations

import datetime
import importlib
import struct
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from kio.schema.errors import ErrorCode

from aioproduce.errors import ProtocolError
from aioproduce.wire.api import ApiKey
from aioproduce.wire.primitives import (
    NO_TAGS,
    array_reader,
    bytes_reader,
    number_array_reader,
    read_tags,
    read_uvarint,
    string_reader,
)
from aioproduce.wire.reader import _minimum_size, decode_entity
from tests import wire_oracle as oracle

SMALLEST = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "uuid": oracle.ZERO_UUID,
}
CLASSES = [
    make(api, version)
    for api in ApiKey
    for version in oracle.versions_of(api)
    for make in (oracle.request_class, oracle.response_class)
]


def sample(cls: type[Any], elements: int) -> Any:
    """Make kio's smallest message of the class, with so many elements in each array and no tagged field set."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        if "tag" in field.metadata:
            assert field.default is not MISSING
        elif get_origin(field.type) in (Union, UnionType):
            values[field.name] = None
        elif get_origin(field.type) is tuple:
            (inner, _) = get_args(field.type)
            values[field.name] = (value(inner, field.metadata, elements),) * elements
        else:
            values[field.name] = value(field.type, field.metadata, elements)
    return cls(**values)


def value(hint: Any, metadata: Any, elements: int) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return sample(hint, elements)
    return SMALLEST.get(metadata["kafka_type"], 0)


def classes_within(cls: type[Any]) -> list[type[Any]]:
    found = [cls]
    for field in fields(cls):
        hint: Any = field.type
        while get_args(hint):
            hint = next(member for member in get_args(hint) if member is not NoneType)
        if is_dataclass(hint) and isinstance(hint, type):
            found += classes_within(hint)
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__name__}-v{cls.__version__}")
def test_least_sizes_are_exact(cls: type[Any]) -> None:
    # Too low a bound would let a hostile count through; too high a one would refuse a legal message.
    for inner in classes_within(cls):
        assert _minimum_size(inner) == max(1, len(oracle.encoded(sample(inner, 0)))), inner


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__name__}-v{cls.__version__}")
@pytest.mark.parametrize("elements", [0, 1, 2])
def test_absent_tagged_fields_have_their_default(cls: type[Any], elements: int) -> None:
    entity = sample(cls, elements)
    decoded = decode_entity(cls, memoryview(oracle.encoded(entity)))
    assert decoded == oracle.plain(entity)
    assert types_of(decoded) <= {dict, list, str, bytes, int, float, bool, NoneType}


def types_of(decoded: Any) -> set[type]:
    if isinstance(decoded, dict):
        return {dict}.union(*map(types_of, decoded.values()))
    if isinstance(decoded, list):
        return {list}.union(*map(types_of, decoded))
    return {type(decoded)}


def test_defaults_are_not_shared_between_messages() -> None:
    cls = oracle.response_class(0, 13)
    data = memoryview(oracle.encoded(sample(cls, 1)))
    first = decode_entity(cls, data)
    partition = first["responses"][0]["partition_responses"][0]
    partition["current_leader"]["leader_id"] = 5
    first["node_endpoints"].append("mine")
    assert decode_entity(cls, data) == oracle.plain(sample(cls, 1))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\x80\x01", 128),
        (b"\xac\x02", 300),  # the protobuf documentation's own example
        (b"\x80\x80\x80\x80\x08", 2**31),
        (b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        (b"\x80\x00", 0),  # longer than need be, and legal
    ],
)
def test_varints(data: bytes, expected: int) -> None:
    assert read_uvarint(memoryview(b"x" + data + b"y"), 1) == (expected, 1 + len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_varints_of_more_than_32_bits(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        read_uvarint(memoryview(data), 0)


def never(data: memoryview, at: int) -> tuple[Any, int]:
    raise AssertionError("an element was read before its array's count was checked")


@pytest.mark.parametrize("is_compact", [True, False])
def test_a_count_is_checked_before_the_first_element(is_compact: bool) -> None:
    # Three elements of 4 bytes need 12; 11 are there.
    data = memoryview((b"\x04" if is_compact else b"\0\0\0\3") + bytes(11))
    for read in (
        array_reader(never, 4, is_compact=is_compact, is_nullable=True),
        number_array_reader("i", is_compact=is_compact, is_nullable=True),
    ):
        with pytest.raises(ProtocolError, match="array of 3 elements cannot fit into the 11 bytes"):
            read(data, 0)


@pytest.mark.parametrize(("is_compact", "length"), [(True, b"\x04"), (False, b"\0\3")])
def test_a_string_reaches_to_the_last_byte_and_no_further(is_compact: bool, length: bytes) -> None:
    read = string_reader(is_compact=is_compact, is_nullable=False)
    assert read(memoryview(length + b"abc"), 0) == ("abc", len(length) + 3)
    with pytest.raises(ProtocolError, match="3 bytes is more than the 2"):
        read(memoryview(length + b"ab"), 0)


@pytest.mark.parametrize("length", [-2, -32768])
def test_only_minus_one_is_null(length: int) -> None:
    string = string_reader(is_compact=False, is_nullable=True)
    assert string(memoryview(b"\xff\xff"), 0) == (None, 2)
    with pytest.raises(ProtocolError, match="negative"):
        string(memoryview(struct.pack(">h", length)), 0)
    for read in (
        bytes_reader(is_compact=False, is_nullable=True),
        array_reader(never, 1, is_compact=False, is_nullable=True),
        number_array_reader("b", is_compact=False, is_nullable=True),
    ):
        assert read(memoryview(b"\xff\xff\xff\xff"), 0) == (None, 4)
        with pytest.raises(ProtocolError, match="negative"):
            read(memoryview(struct.pack(">i", length)), 0)


def test_tags_reach_to_the_last_byte_and_no_further() -> None:
    assert read_tags(memoryview(b"\x01\x05\x02ab"), 0, {}, NO_TAGS) == 5
    with pytest.raises(ProtocolError, match="tagged field 5 has 2 bytes, more than are left"):
        read_tags(memoryview(b"\x01\x05\x02a"), 0, {}, NO_TAGS)
    with pytest.raises(ProtocolError, match="array of 3 elements cannot fit into the 5 bytes"):
        read_tags(memoryview(b"\x03" + bytes(5)), 0, {}, NO_TAGS)


def test_bytes_are_copies_that_do_not_hold_on_to_the_frame() -> None:
    cls = oracle.request_class(0, 9)
    module = importlib.import_module(cls.__module__)
    batch = module.PartitionProduceData(index=0, records=b"records")
    topic = module.TopicProduceData(name="t", partition_data=(batch,))
    frame = bytearray(oracle.encoded(cls(acks=1, timeout=datetime.timedelta(0), topic_data=(topic,))))
    decoded = decode_entity(cls, memoryview(frame))
    frame[:] = bytes(len(frame))
    records = decoded["topic_data"][0]["partition_data"][0]["records"]
    assert type(records) is bytes
    assert records == b"records"
