"""Answers on the wire: plain mappings through kio's generated classes and its encoder.

Called by `model` for every answer. The handlers build one mapping per answer with the fields of all versions;
this module leaves out those that a version does not have.

Invariants:
1. A field that a version has, that has no default, and that the mapping lacks is a `KeyError`: a bug of the
   model, never a guess. Only `throttle_time` (0) is filled in.
2. Error codes are plain numbers, those included that Kafka does not know (yet).
"""

from __future__ import annotations

import dataclasses
import io
import struct
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kio.serial import entity_writer

from aioproduce.wire.api import ApiKey
from aioproduce.wire.schema import response_class

if TYPE_CHECKING:
    from collections.abc import Callable

Body: TypeAlias = Mapping[str, Any]
_Convert: TypeAlias = "Callable[[Any], Any]"

_CORRELATION_ID: Final = struct.Struct(">i")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class _WireCode:
    """An error code as kio's encoder takes it: kio's enum has no member for a code from the future."""

    value: int


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Body) -> bytes:
    """One answer, without its size prefix.

    Args:
        api_key: The API.
        api_version: The version of the request that is answered.
        correlation_id: That of the request.
        body: The fields under kio's names; durations in seconds, timestamps in milliseconds, codes as int.
    """
    build, write, is_flexible = _encoder(api_key, api_version)
    buffer = io.BytesIO()
    buffer.write(_CORRELATION_ID.pack(correlation_id))
    # The answer to ApiVersions has the old header in every version: the client cannot know better yet.
    if is_flexible and api_key != ApiKey.API_VERSIONS:
        buffer.write(b"\x00")
    write(buffer, build(body))
    return buffer.getvalue()


@cache
def _encoder(api_key: int, api_version: int) -> tuple[_Convert, Callable[[Any, Any], None], bool]:
    entity = response_class(api_key, api_version)
    return _builder(entity), entity_writer(entity), entity.__flexible__


def _builder(entity: type[Any]) -> _Convert:
    required: list[tuple[str, _Convert | None]] = []
    optional: list[tuple[str, _Convert | None]] = []
    for field in dataclasses.fields(entity):
        has_default = field.default is not dataclasses.MISSING or field.name == "throttle_time"
        (optional if has_default else required).append((field.name, _converter(field)))
    has_throttle = any(name == "throttle_time" for name, _ in optional)

    def build(body: Body) -> Any:
        values = {name: body[name] if convert is None else convert(body[name]) for name, convert in required}
        for name, convert in optional:
            if name in body:
                values[name] = body[name] if convert is None else convert(body[name])
        if has_throttle and "throttle_time" not in values:
            values["throttle_time"] = timedelta(0)
        return entity(**values)

    return build


def _converter(field: dataclasses.Field[Any]) -> _Convert | None:
    kind = field.metadata.get("kafka_type")
    if kind is not None:
        return _PRIMITIVES.get(kind)
    nested = _entity_of(field.type)
    assert nested is not None, f"{field.name} is neither a primitive nor an entity"
    build = _builder(nested)
    if not _is_array(field.type):
        return build

    def build_all(bodies: Any) -> Any:
        return None if bodies is None else tuple([build(body) for body in bodies])

    return build_all


def _entity_of(annotation: Any) -> type[Any] | None:
    if dataclasses.is_dataclass(annotation):
        return typing.cast("type[Any]", annotation)
    for argument in typing.get_args(annotation):
        nested = _entity_of(argument)
        if nested is not None:
            return nested
    return None


def _is_array(annotation: Any) -> bool:
    if typing.get_origin(annotation) is tuple:
        return True
    return any(_is_array(argument) for argument in typing.get_args(annotation))


def _instant(milliseconds: int) -> datetime | None:
    return None if milliseconds == -1 else _EPOCH + timedelta(milliseconds=milliseconds)


def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


_PRIMITIVES: Final[Mapping[str, _Convert]] = {
    "error_code": _WireCode,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _instant,
}
