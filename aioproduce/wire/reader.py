"""Our decoder: compiles kio's description of a message once into a bounds-checked function.

Used by `wire.responses` (answers) and by the embedded broker (requests). A decoded message is a dict from
kio's field names to plain values. Nested structs are dicts, arrays are lists.

| on the wire | here |
|---|---|
| int8 to int64, uint16, bool, float64 | int, bool, float |
| error code | int, known or not |
| milliseconds, as a duration or as an instant | int, unchanged (-1 stays -1) |
| uuid | `uuid.UUID`, `None` for the zero UUID |
| string | str |
| bytes, records | bytes, a copy |
| null | `None`, where the schema allows it |
| a tagged field that is absent | its default in the schema |

1. Decoding any bytes gives a message or a ProtocolError and nothing else.
2. Time and memory are linear in the bytes. Every length and count is checked against the remaining bytes
   before anything is allocated (an element takes at least one byte), and recursion is no deeper than the
   schema. For a hostile message, Python's objects take some tens of bytes per byte; the frame limit of
   `wire.framing` bounds the memory.
3. Bytes after the message's end raise ProtocolError; unknown tagged fields are skipped.
4. Only trusted text is compiled: field names and defaults of kio's classes, never bytes from the network.

Code is compiled, as in `dataclasses` and `namedtuple`, because a Produce response is decoded for every
request. One function per struct, with one unpack for each run of fixed-size fields, halves the cost.
"""

from __future__ import annotations

import struct
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, final, get_args, get_origin

from aioproduce.errors import ProtocolError
from aioproduce.wire import primitives, schema

if TYPE_CHECKING:
    from dataclasses import Field

    from aioproduce.wire.primitives import Reader

_STRUCT_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""kio's name for a type of fixed size -> its code in the struct module."""

_UUID_SIZE: Final = 16
_REQUEST_HEADER: Final = struct.Struct(">hhi")
# The client id is an old-style string in every version, so that a broker can read it in any (KIP-511).
_read_client_id: Final = primitives.string_reader(is_compact=False, is_nullable=True)
_HEADER_WITH_TAGS: Final = 2
_READERS: Final[dict[type[Any], Reader]] = {}


@final
@dataclass(frozen=True, slots=True)
class _FieldType:
    """kio's description of one field."""

    name: str
    kafka_type: str | None  # None for a struct
    struct_class: type[Any] | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object

    @property
    def struct_code(self) -> str | None:
        """The struct code, if the field is one number or bool of fixed size."""
        return None if self.is_array or self.kafka_type is None else _STRUCT_CODES.get(self.kafka_type)


@final
@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request.

    Attributes:
        api_key: The API, whether or not it is known here.
        api_version: The API's version, whether or not it is known here.
        correlation_id: The id that the answer must repeat.
        client_id: The client's name for itself.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@final
@dataclass(frozen=True, slots=True)
class Request:
    """A request as a broker reads it, with `body` as the module's docstring describes."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: dict[str, Any]


def decode_entity(
    cls: type[Any], data: memoryview, at: int = 0, *, may_go_on: bool = False
) -> dict[str, Any]:
    """Decode one message that takes all of `data` from `at` on.

    Args:
        cls: kio's class of the message.
        data: The bytes.
        at: Where the message begins.
        may_go_on: Whether to ignore bytes after the message. Java ignores them in responses, so some brokers
            send them (librdkafka's mock sends one after Metadata v9 and later).

    Raises:
        ProtocolError: If the bytes are not such a message, or if bytes follow it and `may_go_on` is not set.
    """
    read = entity_reader(cls)
    try:
        entity, end = read(data, at)
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{_title(cls)}: the bytes end within the message") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{_title(cls)}: a string is not UTF-8") from error
    except ProtocolError as error:
        raise ProtocolError(f"{_title(cls)}: {error}") from error
    if end != len(data) and not may_go_on:
        raise ProtocolError(f"{_title(cls)}: {len(data) - end} bytes are left after the message")
    return entity  # type: ignore[no-any-return]  # kio reads any class


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Read only the header, for any API and version, in order to answer a request that is not supported.

    Raises:
        ProtocolError: If the bytes are not a request header.
    """
    return _read_request_header(frame)[0]


def decode_request(frame: memoryview) -> Request:
    """Decode a whole request, as a broker receives it.

    Args:
        frame: The frame without its length.

    Raises:
        UnsupportedVersionError: If the version is not known here (`decode_request_header()` still reads it).
        ProtocolError: If the API is not known, or the bytes are not such a request.
    """
    header, at = _read_request_header(frame)
    cls = schema.request_class(header.api_key, header.api_version)
    if cls.__header_schema__.__version__ >= _HEADER_WITH_TAGS:
        at = skip_tags(frame, at)
    return Request(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        decode_entity(cls, frame, at),
    )


def skip_tags(frame: memoryview, at: int) -> int:
    """Skip a header's tagged fields, and return the offset after them.

    Raises:
        ProtocolError: If the bytes end within these fields.
    """
    try:
        return primitives.read_tags(frame, at, {}, primitives.NO_TAGS)
    except IndexError as error:
        raise ProtocolError("the bytes end within the header") from error


def _read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    try:
        api_key, api_version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
        client_id, at = _read_client_id(frame, _REQUEST_HEADER.size)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError("the bytes are not a request header") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), at


def entity_reader(cls: type[Any]) -> Reader:
    """Return the compiled reader of kio's class; `decode_entity()` is the safe way to use it."""
    read = _READERS.get(cls)
    if read is None:
        read = _READERS[cls] = _compile(cls)
    return read


def _title(cls: type[Any]) -> str:
    return f"{cls.__name__} v{cls.__version__}"


def _field_types(cls: type[Any]) -> list[_FieldType]:
    return [_field_type(field) for field in fields(cls)]


def _field_type(field: Field[Any]) -> _FieldType:
    hint, is_nullable = _without_none(field.type)
    is_array = get_origin(hint) is tuple
    if is_array:
        # For an element, None always stands for the zero UUID.
        hint, _ = _without_none(get_args(hint)[0])
    tag = field.metadata.get("tag")
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return _FieldType(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type"),
        struct_class=hint if is_dataclass(hint) and isinstance(hint, type) else None,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=tag,
        default=default,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return the hint without its `| None`, and whether it had one."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    (inner,) = (member for member in get_args(hint) if member is not NoneType)
    return inner, True


def _minimum_size(cls: type[Any]) -> int:
    """Return the fewest bytes that one struct of this class takes, at least 1."""
    size = sum(
        _minimum_field_size(field, cls.__flexible__) for field in _field_types(cls) if field.tag is None
    )
    return max(1, size + (1 if cls.__flexible__ else 0))


def _minimum_field_size(field: _FieldType, is_flexible: bool) -> int:
    if field.is_array:
        return 1 if is_flexible else 4
    if field.struct_class is not None:
        return 1 if field.is_nullable else _minimum_size(field.struct_class)
    if field.struct_code is not None:
        return struct.calcsize(">" + field.struct_code)
    if field.kafka_type == "uuid":
        return _UUID_SIZE
    if is_flexible:
        return 1
    return 2 if field.kafka_type == "string" else 4


def _element_reader(field: _FieldType, is_flexible: bool, *, is_nullable: bool) -> tuple[Reader, int]:
    """Return the reader of one value of the field's type, or of an array's element, and its smallest size."""
    if field.struct_class is not None:
        read_struct = entity_reader(field.struct_class)
        if is_nullable:
            return primitives.nullable_struct_reader(read_struct), 1
        return read_struct, _minimum_size(field.struct_class)
    if field.kafka_type == "uuid":
        return primitives.read_uuid, _UUID_SIZE
    if field.kafka_type == "string":
        return primitives.string_reader(
            is_compact=is_flexible, is_nullable=is_nullable
        ), 1 if is_flexible else 2
    if field.kafka_type in ("bytes", "records"):
        return primitives.bytes_reader(
            is_compact=is_flexible, is_nullable=is_nullable
        ), 1 if is_flexible else 4
    code = _STRUCT_CODES[field.kafka_type or ""]
    return _number_reader(code), struct.calcsize(">" + code)


def _number_reader(code: str) -> Reader:
    number = struct.Struct(">" + code)

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return number.unpack_from(data, at)[0], at + number.size

    return read


def _field_reader(field: _FieldType, is_flexible: bool) -> Reader:
    if not field.is_array:
        return _element_reader(field, is_flexible, is_nullable=field.is_nullable)[0]
    if field.struct_class is None and field.kafka_type in _STRUCT_CODES:
        return primitives.number_array_reader(
            _STRUCT_CODES[field.kafka_type], is_compact=is_flexible, is_nullable=field.is_nullable
        )
    read_element, minimum_size = _element_reader(field, is_flexible, is_nullable=False)
    return primitives.array_reader(
        read_element, minimum_size, is_compact=is_flexible, is_nullable=field.is_nullable
    )


def _plain(value: object) -> object:
    """Convert one of kio's defaults to the value that the reader would return for it."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)  # an enum's or a phantom type's number
    return value


def _implicit_default(field: _FieldType) -> object:
    """Return the default value of an absent tagged field."""
    if field.default is not MISSING:
        return -1 if field.default is None and field.kafka_type == "datetime_i64" else _plain(field.default)
    if field.is_array:
        return []
    if field.struct_class is not None:
        return {inner.name: _implicit_default(inner) for inner in _field_types(field.struct_class)}
    if field.is_nullable or field.kafka_type == "uuid":
        return None
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(field.kafka_type or "", 0)


def _compile(cls: type[Any]) -> Reader:
    """Generate the Python code of one struct's reader, and compile it."""
    is_flexible: bool = cls.__flexible__
    names: dict[str, Any] = {}
    lines: list[str] = []
    values: list[str] = []
    run: list[tuple[str, str]] = []  # (variable, struct code) of consecutive fixed-size fields

    def end_run() -> None:
        if run:
            packed = struct.Struct(">" + "".join(code for _, code in run))
            unpack = f"unpack{len(lines)}"
            names[unpack] = packed.unpack_from
            lines.append(f"{', '.join(variable for variable, _ in run)}, = {unpack}(data, at)")
            lines.append(f"at += {packed.size}")
            run.clear()

    tagged: dict[int, tuple[str, Reader]] = {}
    for index, field in enumerate(_field_types(cls)):
        variable = f"v{index}"
        if field.tag is not None:
            values.append(f"{field.name!r}: {_implicit_default(field)!r}")
            tagged[field.tag] = (field.name, _field_reader(field, is_flexible))
            continue
        values.append(f"{field.name!r}: {variable}")
        if field.struct_code is not None:
            run.append((variable, field.struct_code))
            continue
        end_run()
        names[f"read{index}"] = _field_reader(field, is_flexible)
        lines.extend(_read_lines(field, is_flexible, variable, f"read{index}"))
    end_run()
    lines.append(f"entity = {{{', '.join(values)}}}")
    if is_flexible:
        names.update(read_tags=primitives.read_tags, tagged=tagged)
        lines += ["if data[at]:", "    at = read_tags(data, at, entity, tagged)", "else:", "    at += 1"]
    lines.append("return entity, at")
    source = "def read(data, at):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, f"<reader of {_title(cls)}>", "exec"), names)
    reader: Reader = names["read"]
    return reader


def _read_lines(field: _FieldType, is_flexible: bool, variable: str, read: str) -> list[str]:
    """Generate the reading of one field of varying size, without a call for the usual Produce response."""
    general = f"{variable}, at = {read}(data, at)"
    if not is_flexible or field.kafka_type == "uuid":
        return [general]
    if field.is_array:
        return ["if data[at] == 1:", f"    {variable} = []", "    at += 1", "else:", f"    {general}"]
    if field.is_nullable and field.struct_class is None:
        return ["if data[at] == 0:", f"    {variable} = None", "    at += 1", "else:", f"    {general}"]
    return [general]
