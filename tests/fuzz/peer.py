"""What well-meaning peers write, as seeds: every message of kio's schemas with a few values, encoded by kio.

kio's encoder is the independent source of the bytes. Its decoder is never shown what a fuzzer made: it aborts the
process on some of it.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.errors import ErrorCode

from tests.wire_oracle import encoded, request_class, response_class

_NUMBERS = {"bool": True, "float64": 0.5}


def _value(hint: Any, kafka_type: str | None, name: str, count: int) -> Any:
    """A value of a field: null and empty where `count` is 0 and that is legal."""
    if get_origin(hint) in (Union, UnionType):
        if count == 0:
            return None
        (hint,) = (member for member in get_args(hint) if member is not NoneType)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], kafka_type, name, count) for _ in range(count))
    if is_dataclass(hint) and isinstance(hint, type):
        return entity(hint, count)
    match kafka_type:
        case "string":
            return "t" if "topic" in name or name == "name" else "1.0"
        case "bytes" | "records":
            return b"r" * count
        case "uuid":
            return uuid.UUID(int=1) if count else None
        case "error_code":
            return ErrorCode.none
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=100 * count)
        case "datetime_i64":
            return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return _NUMBERS.get(kafka_type or "", count)


def entity(cls: type[Any], count: int) -> Any:
    """A message whose arrays have so many elements."""
    return cls(
        **{
            field.name: _value(field.type, field.metadata.get("kafka_type"), field.name, count)
            for field in fields(cls)
        }
    )


def response_bodies(api: int, version: int) -> Iterator[bytes]:
    """Answers to a request, without their header."""
    for count in (0, 1, 2):
        yield encoded(entity(response_class(api, version), count))


def request_bodies(api: int, version: int) -> Iterator[bytes]:
    """Requests, without their header."""
    for count in (0, 1, 2):
        yield encoded(entity(request_class(api, version), count))


def has_response_tags(api: int, version: int) -> bool:
    """Whether the header of the answer ends in tagged fields."""
    return bool(response_class(api, version).__header_schema__.__flexible__)


def has_request_tags(api: int, version: int) -> bool:
    """Whether the header of the request ends in tagged fields."""
    return bool(request_class(api, version).__header_schema__.__flexible__)


def framed(payload: bytes) -> bytes:
    """With its length in front."""
    return struct.pack(">i", len(payload)) + payload
