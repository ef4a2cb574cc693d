"""The reader of `sasl.jaas.config` against one that goes by the character, as Java's StreamTokenizer does.

1. Any text gives the login module and the options that Java reads, or a ConfigError exactly where Java refuses it,
   or where an option has no name.
2. `parse()` gives a login or a ConfigError, which names the key and shows no value.

`reference()` is written from the source of java.io.StreamTokenizer and Kafka's JaasConfig;
`tests/security/test_jaas.py` holds it against what Kafka's own client printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.jaas import entry, parse
from tests.fuzz.target import Target

Entry: TypeAlias = tuple[str, dict[str, str]]
Token: TypeAlias = tuple[str, str | None]
"""The type (`a` for a word, or a character) and `sval`."""


class Tokenizer:
    """java.io.StreamTokenizer with Kafka's settings, a character at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def read(self) -> str:
        self.at += 1
        return self.text[self.at - 1 : self.at]

    def skip_line(self) -> None:
        while self.peek() not in ("", "\n", "\r"):
            self.at += 1

    def skip_comment(self) -> None:
        if self.peek() == "/":
            self.skip_line()
            return
        if self.read() == "*":
            before = ""
            while (char := self.read()) and not (before == "*" and char == "/"):
                before = char
        else:  # where the first is the line's end, the comment goes on to the end of the next
            self.skip_line()

    def quoted(self, quote: str) -> str:
        value = ""
        while self.peek() not in ("", "\n", "\r", quote):
            char = self.read()
            if char == "\\":
                char = self.escape()
            value += char
        if self.peek() == quote:
            self.at += 1
        return value

    def escape(self) -> str:
        char = self.read()
        if char == "" or char not in "01234567":
            return {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(
                char, char
            )
        most = 3 if char <= "3" else 2
        while len(char) < most and self.peek() and self.peek() in "01234567":
            char += self.read()
        return chr(int(char, 8))

    def __iter__(self) -> Iterator[Token]:
        while char := self.read():
            if char <= " ":
                continue
            if char in "0123456789.-":
                yield self.number(char)
            elif is_alpha(char):
                while self.peek() and (is_alpha(self.peek()) or self.peek() in "0123456789."):
                    char += self.read()
                yield "a", char
            elif char in "\"'":
                yield char, self.quoted(char)
            elif char == "/":
                self.skip_comment()
            else:
                yield char, None

    def number(self, char: str) -> Token:
        if char == "-":
            if self.peek() == "" or self.peek() not in ".0123456789":
                return "-", None
            char = self.read()
        has_dot = char == "."
        while self.peek() and self.peek() in (".0123456789" if not has_dot else "0123456789"):
            has_dot |= self.read() == "."
        return "0", None


def is_alpha(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "-_$" or char >= "\xa0"


def reference(text: str) -> Entry | None:
    """What Java reads; `None` where it throws, and where an option has no name."""
    tokens = list(Tokenizer(text))
    found: list[Entry] = []
    while tokens:
        (_, module), (_, flag) = tokens[0], tokens[1] if len(tokens) > 1 else ("", None)
        if (
            not module
            or flag is None
            or flag.upper() not in ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
        ):
            return None
        del tokens[:2]
        options: dict[str, str] = {}
        while tokens and tokens[0][0] != ";":
            if len(tokens) < 3 or tokens[1][0] != "=" or tokens[2][1] is None or tokens[0][1] is None:
                return None
            options[tokens[0][1]] = tokens[2][1]
            del tokens[:3]
        if not tokens:
            return None
        del tokens[0]
        found.append((module, options))
    return found[0] if len(found) == 1 else None


def run(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    expected = reference(text)
    found: Entry | None = None
    try:
        module, options = entry(Secret(text))
        found = module.reveal(), {key.reveal(): value.reveal() for key, value in options.left().items()}
    except ConfigError as error:
        check(error, "", ())
    assert found == expected
    try:
        parse(Secret(text))
    except ConfigError as error:
        check(error, *(expected[0], expected[1].values()) if expected else ("", ()))


def check(error: ConfigError, module: str, values: Iterable[str]) -> None:
    assert error.key == "sasl.jaas.config"
    assert len(str(error)) < 2000
    # Of ours, no sentence has one of these characters; a module's name may, and is told.
    ours = [value for value in values if re.search(r"[$-]|[^\x00-\x7f]", value[3:]) and value not in module]
    assert [value for value in ours if value in str(error)] == []


def seeds() -> Iterator[bytes]:
    kafka = b"org.apache.kafka.common.security."
    yield kafka + b'plain.PlainLoginModule required username="alice" password="a\\"b\\101";'
    yield kafka + b"scram.ScramLoginModule required username=a password='b' tokenauth=true;"
    yield kafka + b"oauthbearer.OAuthBearerLoginModule required extension_a='b' clientId=c;"
    yield b"com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab='/a' // comment\n;"
    yield b"software.amazon.msk.auth.iam.IAMLoginModule optional awsDebugCreds=true /* comment */;"
    yield b"M required /\n a=b;\n c=-5.5 d=.-;"


TARGETS = {"jaas": Target(run, seeds, max_size=300)}
