r"""Reads a `.properties` file as Java does (`java.util.Properties.load` from a stream), and writes its text.

Used by `Producer` and the CLI; the values are strings, for `ProducerConfig.from_mapping`.

Invariants:
1. A file has the same meaning as for Kafka's own tools: the encoding is ISO-8859-1 with `\uXXXX` for other
   characters, and the last occurrence of a key counts.
2. Any bytes give a dict, or a `ConfigError` that names the file (and the line, if there is one).
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
# The key ends at the first unescaped separator: "=" or ":" with white space around it, or white space alone.
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u(.{0,4})|(.)|$)", re.DOTALL)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NOT_ASCII: Final = re.compile("[^ -~]")
_ESCAPES: Final = str.maketrans(
    {"\\": r"\\", **{control: "\\" + letter for letter, control in _LETTERS.items()}}
)


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the keys and values of a Java `.properties` file.

    Args:
        path: The file.

    Returns:
        All values as strings that know their line; `ProducerConfig.from_mapping` checks them, and its errors name
        the file and the line.

    Raises:
        ConfigError: If the file cannot be read, or has an invalid `\uXXXX`.

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
        assert match is not None  # both groups may be empty, and the last one matches the rest
        origin = f"{os.fspath(path)!r}, line {number}"
        try:
            properties[_unescape(match[1])] = Originated(_unescape(match[2]), origin)
        except ValueError as error:
            # Without the text, which may be a password.
            raise ConfigError(f"{origin}: {error}") from None
    return properties


def properties_text(settings: Mapping[str, str]) -> str:
    r"""Return settings as the ASCII text of a `.properties` file, one per line.

    Args:
        settings: Dotted key -> value, which may be any text.

    Example:
        >>> properties_text({"sasl.username": "José", "ssl.truststore.certificates": "one\ntwo"})
        'sasl.username=Jos\\u00e9\nssl.truststore.certificates=one\\ntwo\n'
    """
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    text = value.translate(_ESCAPES)
    if text.startswith(" "):
        text = "\\" + text  # else it is white space after the separator
    return _NOT_ASCII.sub(_units, text)


def _units(match: re.Match[str]) -> str:
    r"""Return a character in Java's form: `\uXXXX`, or two of them."""
    digits = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[start : start + 4]}" for start in range(0, len(digits), 4))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines, without comments and blank lines, each with its first line's number."""
    lines = _NATURAL_LINE.split(text)
    if not lines[-1]:
        lines.pop()  # the text after the last line end is not a line
    parts: list[str] = []  # of the logical line so far
    start = 0
    is_open = False
    for number, natural in enumerate(lines, start=1):
        line = natural.lstrip(_WHITE)
        if not parts:
            if not line or line[0] in "#!":
                is_open = False  # a lone backslash does not continue a line
                continue
            start = number
        is_open = _is_continued(line)
        if not is_open:
            yield start, "".join([*parts, line])
            parts = []
        elif len(line) > 1:
            parts.append(line[:-1])
    # Java reads a final lone backslash as an empty pair, unless CR and LF follow it.
    if is_open and (parts or not text.endswith("\\\r\n")):
        yield start, "".join(parts)


def _is_continued(line: str) -> bool:
    """Return whether the line ends in an unescaped backslash."""
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
