"""The format of lines: from a line to the key and value of a record.

Called by `send` once per line, in its hot loop. A line of another format than the user named raises `BadLineError`.
The value is the line unchanged, or the bytes after the key separator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from aioproduce.portable_error import PortableError

# Line -> (key, value).
LineParser = Callable[[bytes], "tuple[bytes | None, bytes]"]

_UNESCAPED_DOT: Final = re.compile(r"(?<!\\)\.")
_BYTE_ORDER_MARK: Final = "\ufeff"


class BadLineError(PortableError):
    """A line cannot become a record; the message completes "line 7 ...".

    Attributes:
        kind: The problem without the details of this line: lines are counted by it.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class BlankLineError(BadLineError):
    """A line is empty or only white space: it is skipped and counted, in every format."""

    def __init__(self) -> None:
        super().__init__("is blank", "is blank")


class LeftOutError(BadLineError):
    """The user does not want to send this failed record again: it is skipped and counted."""


class UndecidedError(BadLineError):
    """The user has not chosen whether to send this failed record again."""


class _Number(str):
    """A number as spelled in the line: the key `1.50` must not become `1.5`, nor a long integer an error."""

    __slots__ = ()


def keyed_lines(separator: bytes) -> LineParser:
    """Return the parser of lines with a key before the first separator, and the value after it."""

    def parse(line: bytes) -> tuple[bytes | None, bytes]:
        key, found, value = line.partition(separator)
        if not found:
            text = f"has no key separator {separator.decode(errors='backslashreplace')!r}"
            raise BadLineError(text, text)
        return key, value

    return parse


def json_lines(key_field: str | None) -> LineParser:
    r"""Return the parser of lines that are JSON objects (RFC 8259, UTF-8); the value is the line unchanged.

    Args:
        key_field: The field with the key: `a.b` is field `b` of the object in field `a`, `a\.b` is field `a.b`. The
            key is a string's UTF-8 text, or the JSON spelling of a number or boolean. Null means no key.
    """
    decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_refuse_constant)
    path = () if key_field is None else tuple(_field_path(key_field))

    def parse(line: bytes) -> tuple[bytes | None, bytes]:
        try:
            value = decoder.decode(line.decode())
        except UnicodeDecodeError as error:
            raise BadLineError(
                f"is not UTF-8 (byte {error.start + 1}), and JSON must be", "is not UTF-8"
            ) from None
        except ValueError as error:
            raise _why_not_json(line.decode(), error) from None
        except RecursionError:
            raise BadLineError("is JSON nested too deeply to be checked", "is nested too deeply") from None
        if type(value) is not dict:
            raise BadLineError(
                f"is JSON, but not an object: {_shortened(line)}", "is JSON, but not an object"
            )
        return (_key(value, path, key_field) if path else None), line

    return parse


def _field_path(key_field: str) -> list[str]:
    fields = [field.replace("\\.", ".") for field in _UNESCAPED_DOT.split(key_field)]
    if not all(fields):
        raise ValueError(f"{key_field!r} has an empty part: write it as a.b, and a dot inside a name as \\.")
    return fields


def _key(value: dict[str, Any], path: tuple[str, ...], key_field: str | None) -> bytes | None:
    found: Any = value
    for field in path:
        if type(found) is not dict or field not in found:
            text = f"has no field {key_field!r} to take the key from"
            raise BadLineError(text, text)
        found = found[field]
    if isinstance(found, str):
        try:
            return found.encode()
        except UnicodeEncodeError:
            text = f"has text in {key_field!r} that is not Unicode (a lone surrogate)"
            raise BadLineError(text, text) from None
    if found is None:
        return None
    if isinstance(found, bool):
        return b"true" if found else b"false"
    kind = "an object" if isinstance(found, dict) else "an array"
    text = f"has {kind} in {key_field!r}: a key is a string, number, boolean or null"
    raise BadLineError(text, text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _why_not_json(text: str, error: ValueError) -> BadLineError:
    if text.startswith(_BYTE_ORDER_MARK):
        why = "begins with a byte order mark: save the file as UTF-8 without one"
        return BadLineError(why, why)
    why = str(error)
    if isinstance(error, json.JSONDecodeError):
        why = f"{error.msg} at column {error.colno}: {_shortened(text.encode())}"
    return BadLineError(f"is not JSON: {why}", "is not JSON")


def _shortened(line: bytes, length: int = 60) -> str:
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= length else text[:length] + "...")
