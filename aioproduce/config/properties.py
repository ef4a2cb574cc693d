r"""Reads a `.properties` file as Java does (`java.util.Properties.load` from a stream), and writes one's text.

Called by `Producer` and the CLI; the values come back as strings, for `ProducerConfig.from_mapping`.

Invariants:
1. A file means here what it means to Kafka's own tools, so the encoding is ISO-8859-1 with `\uXXXX` for the
   rest, and of a key that comes twice the last one counts.
2. Any bytes give a dict or a `ConfigError` that names the file (and the line, where there is one).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aioproduce.config.origins import Originated
from aioproduce.errors import ConfigError

_NATURAL_LINE: Final = re.compile(r"\r\n|\r|\n")
_WHITE: Final = " \t\f"
# The key goes up to the first separator that no backslash escapes: "=" or ":" with white space around it, or
# white space alone.
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u(.{0,4})|(.)|$)", re.DOTALL)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NOT_ASCII: Final = re.compile("[^ -~]")
_ESCAPES: Final = str.maketrans(
    {"\\": r"\\", **{control: "\\" + letter for letter, control in _LETTERS.items()}}
)


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""The keys and values of a Java `.properties` file.

    Args:
        path: The file.

    Returns:
        Every value as a string, which knows its line; `ProducerConfig.from_mapping` checks them, and names file and
        line of what it refuses.

    Raises:
        ConfigError: The file cannot be read, or has a broken `\uXXXX`.

    Example:
        >>> config = ProducerConfig.from_mapping(load_properties("producer.properties"))
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"The properties file {os.fspath(path)!r} cannot be read: {reason}.") from error
    properties: dict[str, str] = {}
    for number, line in _logical_lines(content.decode("latin-1")):
        match = _PAIR.fullmatch(line)
        assert match is not None  # both groups may be empty, and the last one takes all that is left
        origin = f"{os.fspath(path)!r}, line {number}"
        try:
            properties[_unescape(match[1])] = Originated(_unescape(match[2]), origin)
        except ValueError as error:
            # Without the text: it may be a password.
            raise ConfigError(f"{origin}: {error}") from None
    return properties


def properties_text(settings: Mapping[str, str]) -> str:
    r"""Settings as the text of a `.properties` file, ASCII: a line each.

    Args:
        settings: Dotted key -> value, any text.

    Example:
        >>> properties_text({"sasl.username": "José", "ssl.truststore.certificates": "one\ntwo"})
        'sasl.username=Jos\\u00e9\nssl.truststore.certificates=one\\ntwo\n'
    """
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    text = value.translate(_ESCAPES)
    if text.startswith(" "):
        text = "\\" + text  # else it is white space behind the separator
    return _NOT_ASCII.sub(_units, text)


def _units(match: re.Match[str]) -> str:
    r"""A character as Java has it: `\uXXXX`, or two of them."""
    digits = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[start : start + 4]}" for start in range(0, len(digits), 4))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continued lines joined; each with its first line's number."""
    lines = _NATURAL_LINE.split(text)
    if not lines[-1]:
        lines.pop()  # what follows the last line's end is no line
    parts: list[str] = []  # of the logical line so far
    start = 0
    is_open = False
    for number, natural in enumerate(lines, start=1):
        line = natural.lstrip(_WHITE)
        if not parts:
            if not line or line[0] in "#!":
                is_open = False  # a backslash all alone continues nothing
                continue
            start = number
        is_open = _is_continued(line)
        if not is_open:
            yield start, "".join([*parts, line])
            parts = []
        elif len(line) > 1:
            parts.append(line[:-1])
    # Java takes a last backslash all alone for an empty pair, unless CR and LF follow it.
    if is_open and (parts or not text.endswith("\\\r\n")):
        yield start, "".join(parts)


def _is_continued(line: str) -> bool:
    """Whether the line ends in a backslash that no other one escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    result = _ESCAPE.sub(_replacement, text)
    # Java's strings are UTF-16: two escaped surrogates are one character.
    return result.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _replacement(match: re.Match[str]) -> str:
    digits, letter = match[1], match[2]
    if digits is None:
        return _LETTERS.get(letter, letter) if letter else ""
    if _HEX.fullmatch(digits) is None:
        raise ValueError(r"\u is not followed by four hexadecimal digits; a backslash itself is written \\.")
    return chr(int(digits, 16))
