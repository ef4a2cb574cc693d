"""The broker model's encoder, judged by kio's: the same bytes for every answer in every version."""

from __future__ import annotations

import dataclasses
import io
import struct
import typing
import uuid
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial.errors import OutOfBoundValue

from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS
from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.wire.api import ApiKey
from tests.wire_oracle import response_class

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERSIONS = [
    (api, version)
    for api, (lowest, highest) in BROKER_VERSIONS.items()
    for version in range(lowest, highest + 1)
]


def integers(bits: int, *, is_signed: bool = True) -> st.SearchStrategy[int]:
    if is_signed:
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(0, 2**bits - 1)


# kio's type -> (what the model gives, the same for kio).
VALUES: dict[str, st.SearchStrategy[tuple[Any, Any]]] = {
    "bool": st.booleans().map(lambda value: (value, value)),
    **{f"int{bits}": integers(bits).map(lambda value: (value, value)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integers(bits, is_signed=False).map(lambda value: (value, value)) for bits in (16, 32)},
    "error_code": st.sampled_from(ErrorCode).map(lambda code: (int(code), code)),
    "timedelta_i32": integers(31).map(lambda ms: (ms / 1000, timedelta(milliseconds=ms))),
    "timedelta_i64": integers(40).map(lambda ms: (ms / 1000, timedelta(milliseconds=ms))),
    "datetime_i64": st.integers(0, 2**41).map(lambda ms: (ms, EPOCH + timedelta(milliseconds=ms))),
    "string": st.text(max_size=200).map(lambda text: (text, text)),
    "bytes": st.binary(max_size=200).map(lambda data: (data, data)),
    "records": st.binary(max_size=200).map(lambda data: (data, data)),
    "uuid": st.one_of(st.none(), st.uuids()).map(lambda value: (value, value or uuid.UUID(int=0))),
}


def answers(entity: type[Any]) -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    """(mapping for our encoder, entity for kio's)."""
    fields = {field.name: values(field) for field in dataclasses.fields(entity)}
    return st.fixed_dictionaries(fields).map(
        lambda drawn: (
            {name: value for name, (value, _) in drawn.items()},
            entity(**{name: value for name, (_, value) in drawn.items()}),
        )
    )


def values(field: dataclasses.Field[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    arguments = typing.get_args(field.type)
    is_nullable = NoneType in arguments
    hint: Any = next(hint for hint in arguments if hint is not NoneType) if is_nullable else field.type
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = typing.get_args(hint)[0]
    kind = field.metadata.get("kafka_type")
    one = answers(hint) if kind is None else VALUES[kind]
    if is_array:
        one = st.lists(one, max_size=3).map(
            lambda items: ([item[0] for item in items], tuple(item[1] for item in items))
        )
    # kio cannot write a tagged null that is not the default, and reads the zero UUID as null everywhere.
    may_be_null = is_nullable and kind != "uuid" and ("tag" not in field.metadata or field.default is None)
    if not may_be_null:
        return one
    null = (-1, None) if kind == "datetime_i64" else (None, None)
    return st.one_of(st.just(null), one)


@pytest.mark.parametrize(("api", "version"), _VERSIONS, ids=lambda value: str(int(value)))
def test_as_kio_encodes(api: int, version: int) -> None:
    entity = response_class(api, version)

    @settings(max_examples=5, deadline=None)
    @given(answers(entity))
    def check(answer: tuple[dict[str, Any], Any]) -> None:
        body, judged = answer
        buffer = io.BytesIO()
        entity_writer(entity)(buffer, judged)
        is_new_header = entity.__header_schema__.__version__ == 1
        expected = struct.pack(">i", 77) + (b"\x00" if is_new_header else b"") + buffer.getvalue()
        assert encode_response(api, version, 77, body) == expected

    check()


def test_what_is_left_out() -> None:
    left_out = encode_response(
        ApiKey.INIT_PRODUCER_ID, 4, 1, {"error_code": 0, "producer_id": 5, "producer_epoch": 1}
    )
    given_all = encode_response(
        ApiKey.INIT_PRODUCER_ID,
        4,
        1,
        {"throttle_time": 0.0, "error_code": 0, "producer_id": 5, "producer_epoch": 1},
    )
    assert left_out == given_all
    with pytest.raises(KeyError, match="producer_epoch"):
        encode_response(ApiKey.INIT_PRODUCER_ID, 4, 1, {"error_code": 0, "producer_id": 5})


def test_a_code_from_the_future() -> None:
    frame = encode_response(ApiKey.HEARTBEAT, 1, 1, {"error_code": 999})

    assert frame == struct.pack(">iih", 1, 0, 999)


def test_an_old_string_has_two_length_bytes() -> None:
    body = {"error_code": 0, "error_message": None, "node_id": 1, "host": "h" * 2**15, "port": 1}

    with pytest.raises(OutOfBoundValue):
        encode_response(ApiKey.FIND_COORDINATOR, 2, 1, body)


def test_null_where_none_may_be() -> None:
    body = {"error_code": 0, "error_message": None, "node_id": 1, "host": None, "port": 1}

    with pytest.raises(TypeError, match="host"):
        encode_response(ApiKey.FIND_COORDINATOR, 2, 1, body)
