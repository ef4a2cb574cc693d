"""Encodes answers: converts plain mappings to bytes, with functions compiled from kio's description of a message.

Used by `model` for every answer. The handlers create one mapping per answer with the fields of all versions; this
module omits those that a version does not have. Checked against kio's own encoder and decoder
(`tests/unit/test_fake_broker_encoding.py`). It shares no code with `aioproduce.wire`, which reads these answers.

Invariants:
1. A missing field without a default is a `KeyError`, because it is a bug of the model. Only `throttle_time` (0) is
   filled in.
2. Error codes are plain numbers, including those that Kafka does not know (yet).
3. Only trusted text is compiled: field names of kio's classes, never bytes from the network.

Code is compiled because kio's encoder needs an object per struct and iterates over its fields: in a simulation of
an hour it took a third of the whole time.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from kio.serial.errors import OutOfBoundValue

from aioproduce.wire.api import ApiKey
from aioproduce.wire.schema import response_class

if TYPE_CHECKING:
    from collections.abc import Callable

Body: TypeAlias = Mapping[str, Any]
_Write: TypeAlias = "Callable[[bytearray, Any], None]"

_CORRELATION_ID: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_UUID: Final = bytes(16)
_MAX_INT16: Final = 2**15 - 1

_STRUCT_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""kio's name for a type of fixed size -> its code in the struct module."""


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Body) -> bytes:
    """Encode one answer, without its size prefix.

    Args:
        api_key: The API.
        api_version: The version of the request.
        correlation_id: The request's id.
        body: The fields with kio's names; durations in seconds, timestamps in milliseconds, codes as int.

    Raises:
        OutOfBoundValue: If a string is too long for the two length bytes of an old version.
    """
    write, is_flexible = _encoder(api_key, api_version)
    out = bytearray(_CORRELATION_ID.pack(correlation_id))
    # The answer to ApiVersions has the old header in every version, because the client has not negotiated yet.
    if is_flexible and api_key != ApiKey.API_VERSIONS:
        out.append(0)
    write(out, body)
    return bytes(out)


@cache
def _encoder(api_key: int, api_version: int) -> tuple[_Write, bool]:
    entity = response_class(api_key, api_version)
    return _struct_writer(entity), entity.__flexible__


@final
@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """kio's description of one field."""

    name: str
    kafka_type: str | None  # None for a struct
    struct_class: type[Any] | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    is_required: bool
    default: object

    @property
    def struct_code(self) -> str | None:
        """The struct code, if the field is one number."""
        return None if self.is_array else _STRUCT_CODES.get(self.kafka_type or "")


def _field_of(field: dataclasses.Field[Any]) -> _Field:
    hints = [hint for hint in typing.get_args(field.type) or (field.type,) if hint is not NoneType]
    is_union = NoneType in typing.get_args(field.type)
    hint = hints[0] if is_union else field.type
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = typing.get_args(hint)[0]
    has_default = field.default is not dataclasses.MISSING
    default: object = field.default if has_default else None
    if field.name == "throttle_time" and not has_default:
        has_default, default = True, timedelta(0)
    return _Field(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type"),
        struct_class=hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None,
        is_array=is_array,
        is_nullable=is_union,
        tag=field.metadata.get("tag"),
        is_required=not has_default,
        default=_plain(default),
    )


def _plain(value: object) -> object:
    """Convert one of kio's defaults to the value that a handler would use."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bool | NoneType | float | str | bytes):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, tuple):
        return tuple(_plain(element) for element in value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _struct_writer(entity: type[Any]) -> _Write:
    """Generate the Python code of one struct's writer, and compile it."""
    names: dict[str, Any] = {}
    lines: list[str] = []
    run: list[tuple[str, str]] = []  # (expression, struct code) of consecutive fixed-size fields

    def end_run() -> None:
        if run:
            names[f"pack{len(lines)}"] = struct.Struct(">" + "".join(code for _, code in run)).pack
            lines.append(f"out += pack{len(lines)}({', '.join(expression for expression, _ in run)})")
            run.clear()

    fields = [_field_of(field) for field in dataclasses.fields(entity)]
    for index, field in enumerate(field for field in fields if field.tag is None):
        value = f"body[{field.name!r}]" if field.is_required else f"get({field.name!r}, default{index})"
        names[f"default{index}"] = field.default
        if field.struct_code is not None:
            run.append((_number(field, value), field.struct_code))
            continue
        end_run()
        names[f"write{index}"] = _value_writer(field, entity.__flexible__)
        lines.append(f"write{index}(out, {value})")
    end_run()
    if entity.__flexible__:
        tagged = sorted(
            (field for field in fields if field.tag is not None), key=lambda field: field.tag or 0
        )
        names["tags"] = [(field, _tag_writer(field)) for field in tagged]
        names["write_tags"] = _write_tags
        if tagged:
            present = " or ".join(f"{field.name!r} in body" for field in tagged)
            lines += [f"if {present}:", "    write_tags(out, body, tags)", "else:", "    out.append(0)"]
        else:
            lines.append("out.append(0)")
    source = "def write(out, body):\n    get = body.get\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, f"<writer of {entity.__name__} v{entity.__version__}>", "exec"), names)
    writer: _Write = names["write"]
    return writer


def _number(field: _Field, value: str) -> str:
    """Return the expression of the value that the struct module packs."""
    if field.kafka_type in ("timedelta_i32", "timedelta_i64"):
        return f"round({value} * 1000)"
    return value


def _value_writer(field: _Field, is_flexible: bool) -> _Write:
    if not field.is_array:
        return _element_writer(field, is_flexible, is_nullable=field.is_nullable)
    write_length = _write_compact_length if is_flexible else _write_int32_length
    code = _STRUCT_CODES.get(field.kafka_type or "")
    if code is not None:

        def write_numbers(out: bytearray, values: Any) -> None:
            write_length(out, values)
            if values:
                out += struct.pack(f">{len(values)}{code}", *values)

        return write_numbers
    write_element = _element_writer(field, is_flexible, is_nullable=False)

    def write_array(out: bytearray, values: Any) -> None:
        write_length(out, values)
        for value in values or ():
            write_element(out, value)

    return write_array


def _element_writer(field: _Field, is_flexible: bool, *, is_nullable: bool) -> _Write:
    if field.struct_class is not None:
        write_struct = _struct_writer(field.struct_class)
        return _nullable(write_struct) if is_nullable else write_struct
    if field.kafka_type == "uuid":
        return _write_uuid
    write: _Write
    if field.kafka_type == "string":
        write = _write_compact_string if is_flexible else _write_old_string
    elif field.kafka_type in ("bytes", "records"):
        write = _write_compact_bytes if is_flexible else _write_old_bytes
    else:
        code = struct.Struct(">" + _STRUCT_CODES[field.kafka_type or ""])
        return lambda out, value: out.extend(code.pack(value))
    return write if is_nullable else _never_null(write, field.name)


def _nullable(write_struct: _Write) -> _Write:
    def write(out: bytearray, body: Body | None) -> None:
        # KIP-893.
        out.append(0xFF if body is None else 1)
        if body is not None:
            write_struct(out, body)

    return write


def _never_null(write_value: _Write, name: str) -> _Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            raise TypeError(f"{name} may not be null")
        write_value(out, value)

    return write


def _tag_writer(field: _Field) -> _Write:
    if field.struct_code is None:
        return _value_writer(field, True)
    packed = struct.Struct(">" + field.struct_code)
    is_duration = field.kafka_type in ("timedelta_i32", "timedelta_i64")
    return lambda out, value: out.extend(packed.pack(round(value * 1000) if is_duration else value))


def _write_tags(out: bytearray, body: Body, tags: list[tuple[_Field, _Write]]) -> None:
    """Write the tagged fields (KIP-482) that are present and not equal to their defaults."""
    written: list[tuple[int, bytearray]] = []
    for field, write in tags:
        if field.name not in body or _is_default(field, body[field.name]):
            continue
        content = bytearray()
        write(content, body[field.name])
        written.append((field.tag or 0, content))
    _write_uvarint(out, len(written))
    for tag, content in written:
        _write_uvarint(out, tag)
        _write_uvarint(out, len(content))
        out += content


def _is_default(field: _Field, value: Any) -> bool:
    if field.is_array:
        return not value and not field.default
    return bool(value == field.default)


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


def _write_compact_length(out: bytearray, values: Any) -> None:
    length = 0 if values is None else len(values) + 1
    if length < 0x80:
        out.append(length)
    else:
        _write_uvarint(out, length)


def _write_int32_length(out: bytearray, values: Any) -> None:
    out += _INT32.pack(-1 if values is None else len(values))


def _write_compact_bytes(out: bytearray, value: bytes | None) -> None:
    _write_compact_length(out, value)
    if value:
        out += value


def _write_old_bytes(out: bytearray, value: bytes | None) -> None:
    _write_int32_length(out, value)
    if value:
        out += value


def _write_compact_string(out: bytearray, value: str | None) -> None:
    _write_compact_bytes(out, None if value is None else value.encode())


def _write_old_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += _INT16.pack(-1)
        return
    content = value.encode()
    if len(content) > _MAX_INT16:
        raise OutOfBoundValue(f"a string of {len(content)} bytes is too long for this version")
    out += _INT16.pack(len(content))
    out += content


def _write_uuid(out: bytearray, value: Any) -> None:
    out += _NO_UUID if value is None else value.bytes
