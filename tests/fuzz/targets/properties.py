r"""The reader of `.properties` files against one that goes by the character, as Java's documentation describes it.

1. Any bytes give what `java.util.Properties.load()` says of them, or a ConfigError exactly where a `\u` lacks its
   four digits.
2. The error tells the line, and nothing of what is in it.

`reference()` is written from the text of Java's documentation, and was held against Java 17 itself on this corpus.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aioproduce.config import load_properties
from aioproduce.errors import ConfigError
from tests.fuzz.target import Target

_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-properties-")
_FILE = Path(_FOLDER.name) / "fuzz.properties"


def logical_lines(text: str) -> Iterator[str]:
    """Natural lines without their comments and blanks, joined where one ends in an odd number of backslashes."""
    line = ""
    is_new, is_comment, is_skipping, is_escaped = True, False, True, False
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if is_skipping and char in " \t\f":
            continue
        if char in "\r\n":
            if is_comment or (is_new and not line):
                line, is_new, is_comment, is_skipping, is_escaped = "", True, False, True, False
                continue
            if is_escaped and at == len(text):
                yield line[:-1]  # a pair even if nothing is left of it
                return
            if char == "\r" and text[at : at + 1] == "\n":
                at += 1
            if is_escaped:
                line = line[:-1]
                is_skipping, is_escaped = True, False
                is_new = not line
                continue
            yield line
            line, is_new, is_skipping = "", True, True
            continue
        is_skipping = False
        if is_new and not is_comment:
            is_new = False
            is_comment = char in "#!"
        if is_comment:
            continue
        line += char
        is_escaped = char == "\\" and not is_escaped
    if line and not is_comment:
        yield line[:-1] if is_escaped else line


def unescaped(text: str) -> str:
    """Java's escapes; a ValueError for a `\\u` without four digits."""
    units = ""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at == len(text):
                break
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                at += 4
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError
                char = chr(int(digits, 16))
            else:
                char = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}.get(char, char)
        units += char
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def reference(content: bytes) -> dict[str, str]:
    """What Java reads; a ValueError where it throws."""
    found: dict[str, str] = {}
    for line in logical_lines(content.decode("latin-1")):
        at = 0
        while at < len(line) and line[at] not in "=: \t\f":
            at += 2 if line[at] == "\\" else 1
        key = line[:at]
        while at < len(line) and line[at] in " \t\f":
            at += 1
        if at < len(line) and line[at] in "=:":
            at += 1
            while at < len(line) and line[at] in " \t\f":
                at += 1
        found[unescaped(key)] = unescaped(line[at:])
    return found


def run(data: bytes) -> None:
    _FILE.write_bytes(data)
    try:
        expected = reference(data)
    except ValueError:
        expected = None
    found: dict[str, str] | None = None
    told = ""
    try:
        found = load_properties(_FILE)
    except ConfigError as error:
        told = str(error)
    assert found == expected
    assert found is not None or re.search(
        r"fuzz\.properties', line [0-9]+: \\u is not followed by four", told
    )


def seeds() -> Iterator[bytes]:
    yield b"# what\n! ever\nlinger.ms=5\nacks : all\ncompression.type zstd\n"
    yield b"bootstrap.servers = a:1,\\\n    b:2\r\nkey\\ with\\:all\\=of = \\u00e9\\t\\\\\n"
    yield b"a=1\\\r\n# no comment\n\\\nb\\\\\nc=\\\n\n \t\f=x\n=\n:"
    yield b"a=\\ud83d\\ude00 \xe9\nb=\\u12g4\n"
    yield b"last\\"


TARGETS = {"properties": Target(run, seeds, max_size=200)}
