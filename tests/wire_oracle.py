"""kio as the oracle of the wire tests: messages made from its schemas, encoded by its encoder.

1. What is expected of our reader is computed here from kio's values alone, without our code.
2. kio's decoder only ever sees bytes that we or kio encoded: hostile bytes abort the process there.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from dataclasses import fields, is_dataclass
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

ZERO_UUID = uuid.UUID(int=0)
STRATEGIES: dict[type[Any], st.SearchStrategy[Any]] = {}


def versions_of(api_key: int) -> list[int]:
    """Return every version of the API that kio knows."""
    return sorted(schema_name_map[api_key_map[api_key]])


def response_class(api_key: int, version: int) -> type[Any]:
    return load_response_schema(api_key, version)  # type: ignore[arg-type, unused-ignore]


def request_class(api_key: int, version: int) -> type[Any]:
    return load_request_schema(api_key, version)  # type: ignore[arg-type, unused-ignore]


def encoded(entity: Any) -> bytes:
    """Encode a message with kio, without a header."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def response_frame(entity: Any, correlation_id: int = 7) -> memoryview:
    """Encode a response with kio as it comes from a `FrameReader`."""
    header_class = type(entity).__header_schema__
    return memoryview(encoded(header_class(correlation_id=correlation_id)) + encoded(entity))


def request_frame(entity: Any, correlation_id: int = 7, client_id: str | None = "tests") -> bytes:
    """Encode a request with kio, length and header included."""
    cls = type(entity)
    header = cls.__header_schema__(
        request_api_key=cls.__api_key__,
        request_api_version=cls.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    frame = encoded(header) + encoded(entity)
    return struct.pack(">i", len(frame)) + frame


def decoded_request(cls: type[Any], frame: bytes) -> tuple[Any, Any]:
    """Decode a request that is known to be well-formed with kio: (header, body)."""
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    payload = frame[4:]
    header, size = entity_reader(cls.__header_schema__)(payload, 0)
    body, body_size = entity_reader(cls)(payload, size)
    assert size + body_size == len(payload)
    return header, body


def plain(value: Any, kafka_type: str | None = None) -> Any:
    """Turn kio's value into what our reader promises for it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name), field.metadata.get("kafka_type"))
            for field in fields(value)
        }
    if isinstance(value, tuple):
        return [plain(element, kafka_type) for element in value]
    if value is None:
        return -1 if kafka_type == "datetime_i64" else None
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return value.value
    return None if value == ZERO_UUID else value


def entities(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Build messages of one class, with every field drawn (kio registers strategies for its types)."""
    if cls not in STRATEGIES:
        STRATEGIES[cls] = st.builds(cls, **{field.name: _values(field.type) for field in fields(cls)})
    return STRATEGIES[cls]


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not NoneType]
        return st.none() | st.one_of([_values(member) for member in members])
    if get_origin(hint) is tuple:
        return st.lists(_values(get_args(hint)[0]), max_size=3).map(tuple)
    if is_dataclass(hint) and isinstance(hint, type):
        return entities(hint)
    if hint is Records:
        return st.binary(max_size=50)
    strategy: st.SearchStrategy[Any] = st.from_type(hint)
    return strategy
