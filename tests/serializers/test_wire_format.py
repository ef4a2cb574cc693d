"""The bytes before a payload, against Confluent's documentation and its own reader."""

from __future__ import annotations

from io import BytesIO

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.serializers.wire_format import message_indexes, schema_prefix


def test_the_prefix_is_a_zero_and_the_id_from_its_highest_byte() -> None:
    assert schema_prefix(1) == b"\0\0\0\0\1"
    assert schema_prefix(0x01020304) == b"\0\1\2\3\4"
    assert schema_prefix(0x7FFFFFFF) == b"\0\x7f\xff\xff\xff"


# Confluent's documentation: "the array [1, 0] would be encoded as the variable length ints 2,1,0", zigzag.
@pytest.mark.parametrize(
    ("indexes", "encoded"),
    [
        ([0], b"\0"),
        ([1], b"\2\2"),
        ([1, 0], b"\4\2\0"),
        ([0, 0], b"\4\0\0"),
        ([63], b"\2\x7e"),
        ([64], b"\2\x80\1"),
        ([300, 1], b"\4\xd8\4\2"),
    ],
)
def test_message_indexes(indexes: list[int], encoded: bytes) -> None:
    assert message_indexes(indexes) == encoded


@given(
    st.integers(0, 0x7FFFFFFF), st.lists(st.integers(0, 2**20), min_size=1, max_size=8), st.binary(max_size=8)
)
def test_confluents_reader_finds_what_was_written(schema_id: int, indexes: list[int], payload: bytes) -> None:
    read = SchemaId("PROTOBUF")

    rest = read.from_bytes(BytesIO(schema_prefix(schema_id) + message_indexes(indexes) + payload))

    assert (read.id, read.message_indexes, rest.read()) == (schema_id, indexes, payload)
