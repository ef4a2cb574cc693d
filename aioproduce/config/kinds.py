"""The kinds of values of keys: each checks a value, and describes what it accepts.

Used by the tables of keys, and by `Key.parse` (`config_def`). A value has two forms: *parsed* (checked, still in
the key's units, so that sums of milliseconds are exact) and *attribute* (as the settings hold it, with durations
in seconds).

Invariants:
1. `Kind.parse` returns a checked value, or raises `WrongValueError`, whose text never contains the value.
2. Strings are read as Java reads them from a properties file: surrounding white space is dropped, numbers are
   decimal. Typed values are not converted: a bool is not an int, and a float is not an int.
"""

from __future__ import annotations

import difflib
import inspect
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast, final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")  # beyond every range; int() is slow with thousands
_SERVER: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9_+.-]*)://)?(?:\[([^\]]*)\]|([A-Za-z0-9._%:-]*)):([0-9]+)"
)
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ITEMS: Final = "str | list[str] | tuple[str, ...]"
_STRING_LENGTH_MAX: Final = 2**15 - 1  # a string's length is an int16 in the request header


@final
class WrongValueError(ValueError):
    """A value that its kind does not accept; `Key.parse` turns it into a `ConfigError`.

    Attributes:
        why: What is wrong, in words that follow the value.
        parts: The part that is wrong, if the message shows that instead of the value; else empty.
    """

    def __init__(self, why: str, *parts: object) -> None:
        super().__init__(why)
        self.why = why
        self.parts = parts


class Kind:
    """The values of a key.

    Args:
        label: The type's name, for the table.
        allowed: A description of the values that completes "it accepts ...".
        parse: Returns the checked value for the user's value; raises `WrongValueError`.
        annotation: The type of the values, for the keyword argument (`settings`). It is narrower than what `parse`
            accepts: a number in a file is text, a number in Python is not.
    """

    def __init__(
        self, label: str, allowed: str, parse: Callable[[object], Any], annotation: str = "object"
    ) -> None:
        self.label = label
        self.allowed = allowed
        self.parse = parse
        self.annotation = annotation

    def to_attribute(self, parsed: Any) -> Any:
        """Return the parsed value as the settings hold it."""
        return parsed


class Int(Kind):
    """A whole number in a range, or one of a few outside of it; as an int or as decimal digits."""

    minimum: int
    maximum: int

    def __init__(self, minimum: int, maximum: int = INT_MAX, *extra: int, unit: str = "") -> None:
        self.minimum, self.maximum, self._extra = minimum, maximum, extra
        also = "".join(f" or {number}" for number in extra)
        super().__init__(
            "int", f"{minimum} to {maximum}{also}{' ' + unit if unit else ''}", self._parse, "int"
        )

    def _parse(self, value: object) -> int:
        if isinstance(value, str):
            if _INTEGER.fullmatch(value.strip()) is None:
                raise WrongValueError("is not a whole number")
            number = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        else:
            raise WrongValueError(f"({type(value).__name__}) is not a whole number")
        if not self.minimum <= number <= self.maximum and number not in self._extra:
            raise WrongValueError("is out of range")
        return number


@final
class Milliseconds(Int):
    """A duration in whole milliseconds, held in seconds; -1 means no limit, if allowed."""

    def __init__(self, minimum: int = 0, maximum: int = LONG_MAX, *, is_optional: bool = False) -> None:
        unlimited = " (-1: no limit)" if minimum < 0 else ""
        super().__init__(minimum, maximum, unit=f"whole milliseconds{unlimited}")
        self.label = "int, ms"
        if is_optional:
            self.parse: Callable[[object], Any] = self._parse_optional
            self.annotation: str = "int | None"

    def _parse_optional(self, value: object) -> int | None:
        return None if value is None else self._parse(value)

    def to_attribute(self, parsed: int | None) -> float | None:
        """Return seconds; negative for "no limit"."""
        if parsed is None:
            return None
        return -1.0 if parsed < 0 else parsed / 1000


@final
class Float(Kind):
    """A number in a range, or its digits."""

    minimum: float
    maximum: float

    def __init__(self, minimum: float = -math.inf, maximum: float = math.inf) -> None:
        self.minimum, self.maximum = minimum, maximum
        super().__init__("float", f"{minimum} to {maximum}", self._parse, "float")

    def _parse(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise WrongValueError(f"({type(value).__name__}) is not a number")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise WrongValueError("is not a number") from None
        if not self.minimum <= number <= self.maximum:
            raise WrongValueError("is out of range")
        return number


@final
class Choice(Kind):
    """One of a few words; some may be refused with a reason.

    Args:
        values: Words that mean themselves, or spelling -> parsed value. A number is converted to its digits.
        refused: Kafka's spelling -> why it is refused here.
        is_any_case: Whether case does not matter.
        label: The type's name.
        allowed: A description of the values, if the spellings do not suffice.
        annotation: The type of the values, if it is not the words themselves.
    """

    def __init__(
        self,
        values: Mapping[str, object] | Iterable[str],
        refused: Mapping[str, str] = MappingProxyType({}),
        *,
        is_any_case: bool = False,
        label: str = "str",
        allowed: str = "",
        annotation: str = "",
    ) -> None:
        self.values: dict[str, object] | dict[str, str] = (
            dict(values) if isinstance(values, Mapping) else {word: word for word in values}
        )
        words = ("one of " if len(self.values) > 1 else "only ") + ", ".join(self.values)
        super().__init__(label, allowed or words, self._parse, annotation or literal(self.values))
        self._spell: Callable[[str], str] = str.lower if is_any_case else str
        self._parsed = {self._spell(word): parsed for word, parsed in self.values.items()}
        self._refused = {self._spell(word): why for word, why in refused.items()}

    def _parse(self, value: object) -> object:
        if not isinstance(value, (str, int)):
            raise WrongValueError(f"({type(value).__name__}) is not allowed")
        if not isinstance(value, str) and value.bit_length() > 64:
            raise WrongValueError("is not allowed")  # str() of a huge int is slow, then refused
        spelling = self._spell(str(value).lower() if isinstance(value, bool) else str(value).strip())
        if spelling in self._parsed:
            return self._parsed[spelling]
        if spelling in self._refused:
            raise WrongValueError(f"is refused ({self._refused[spelling]})")
        raise WrongValueError(f"is not allowed{_hint(spelling, self.values)}")


def literal(words: Iterable[str]) -> str:
    """The words as a type; digits are a number."""
    shown = (word if _INTEGER.fullmatch(word) else json.dumps(word) for word in words)
    return f"Literal[{', '.join(shown)}]"


def _hint(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:200].lower(), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"({type(value).__name__}) is not a str")
    text = value.strip()
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise WrongValueError("cannot be written in UTF-8") from None
    if size > _STRING_LENGTH_MAX:
        raise WrongValueError("is too long")
    return text


def optional_text(allowed: str) -> Kind:
    """Return the kind of a string that is not empty, or None; `allowed` describes it."""

    def parse(value: object) -> str | None:
        text = None if value is None else _text(value)
        if text == "":
            raise WrongValueError("is empty")
        return text

    return Kind("str", allowed, parse, "str | None")


def _items(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise WrongValueError(f"({type(value).__name__}) is not a list of str")
    stripped = tuple(item.strip() for item in items)
    return () if stripped == ("",) else stripped


BOOL: Final = Choice(
    {"true": True, "false": False}, is_any_case=True, label="bool", allowed="true or false", annotation="bool"
)
"""A bool, or its name in any case, as Java reads it."""

TEXT: Final = Kind("str", f"a str of at most {_STRING_LENGTH_MAX} bytes in UTF-8", _text, "str")
"""A string that is sent to brokers, without surrounding white space."""

ITEMS: Final = Kind("list", "a list of str, or one str with commas", _items, _ITEMS)
"""Strings in order, without surrounding white space."""

IGNORED: Final = Kind("ignored", "anything", lambda value: value)
"""The kind of a key without effect. If the key has a text, it is logged as a warning."""

_TYPES: Final[Mapping[str, Kind]] = {
    "BOOLEAN": BOOL,
    **dict.fromkeys(("SHORT", "INT", "LONG"), Int(-LONG_MAX - 1, LONG_MAX)),
    "DOUBLE": Float(),
    "LIST": ITEMS,
    **dict.fromkeys(("STRING", "CLASS", "PASSWORD"), TEXT),
    "WORD": Kind("str", "any text", lambda value: str(value).lower()),
}


@final
class Unused(Kind):
    """The value of a refused key, checked only for whether it changes nothing.

    Args:
        type_name: Java's name of its type, or `WORD` for librdkafka's values, which are text in any case.
        accepted: Values that change nothing here; none if the key is always refused.
    """

    def __init__(self, type_name: str, *accepted: object) -> None:
        self.type_name = type_name
        self.accepted: tuple[object, ...] = tuple(self.read(value) for value in accepted)
        words = " or ".join(map(self._spell, self.accepted))
        super().__init__("refused", f"only {words}" if accepted else "", self._parse)

    @staticmethod
    def _spell(value: object) -> str:
        if value in ("", ()):
            return '"" (empty)'
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def read(self, value: object) -> object:
        """Return the value in the form of its type, whether it is accepted or not."""
        return None if value is None else _TYPES[self.type_name].parse(value)

    def _parse(self, value: object) -> object:
        if (found := self.read(value)) not in self.accepted:
            raise WrongValueError("is refused")
        return found


@final
class Function(Kind):
    """A callable, or None; in a properties file one of the Java names in `java_names`."""

    def __init__(
        self,
        takes: str,
        java_names: Mapping[str, Any] = MappingProxyType({}),
        *,
        annotation: str = "Callable[..., Any]",
        can_be_async: bool = False,
    ) -> None:
        self._java_names, self._can_be_async = java_names, can_be_async
        names = "".join(f", or the name {name}" for name in java_names)
        allowed = f"{takes}{'' if can_be_async else ' (not async)'}, or None{names}"
        super().__init__("callable", allowed, self._parse, f"{annotation} | None")

    def _parse(self, value: object) -> Callable[..., Any] | None:
        if value is None:
            return None
        if isinstance(value, str):
            if value.strip() in self._java_names:
                return cast("Callable[..., Any] | None", self._java_names[value.strip()])
            raise WrongValueError("is a name, but only a callable can be called from Python")
        if not callable(value):
            hint = "; pass its bound method .serialize" if hasattr(value, "serialize") else ""
            raise WrongValueError(f"is not callable{hint}")
        call = getattr(value, "__call__", None)  # noqa: B004 - the method of an object, to see whether it is async
        is_async = inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)
        if is_async and not self._can_be_async:
            raise WrongValueError("is async, but it is called within send()")
        return value


# -- kinds of a producer's own keys ---


class Server(NamedTuple):
    """A server as the user wrote it: `SASL_SSL://host:9092` has a protocol, most have none."""

    protocol: str
    host: str
    port: int


def _servers(value: object) -> tuple[Server, ...]:
    if not isinstance(value, (str, list, tuple)):
        raise WrongValueError(f"({type(value).__name__}) is not a list of addresses")
    items: list[object] = list(value.split(",") if isinstance(value, str) else value)
    if not items or (len(items) == 1 and isinstance(items[0], str) and not items[0].strip()):
        raise WrongValueError("does not name a server")
    return tuple(dict.fromkeys(map(_address, items)))


def _address(item: object) -> Server:
    if not isinstance(item, str):
        raise WrongValueError(f"({type(item).__name__}) is not an address", item)
    text = item.strip()
    named = text.rpartition("@")[2]  # a password may precede an @
    match = _SERVER.fullmatch(text)
    if match is None:
        raise WrongValueError("is not an address with a port", named)
    scheme, bracketed, plain, port_text = match.groups()
    protocol = (scheme or "").upper()
    if protocol and protocol not in SECURITY_PROTOCOLS:
        raise WrongValueError(f"asks for {scheme}, which is not a security.protocol", named)
    if plain is not None and (not plain or ":" in plain):
        why = "has no host" if not plain else "is ambiguous; an IPv6 address goes in brackets"
        raise WrongValueError(why, named)
    if bracketed is not None:
        try:
            ipaddress.IPv6Address(bracketed)
        except ValueError:
            raise WrongValueError("is not an IPv6 address", named) from None
    port = int(port_text) if len(port_text) <= 5 else 0
    if not 1 <= port <= 65535:
        raise WrongValueError("has a port out of range", named)
    return Server(protocol, str(bracketed or plain), port)


@final
class Servers(Kind):
    """`host:port` addresses in order, without duplicates, which may name their `security.protocol`."""

    def __init__(self) -> None:
        allowed = '"host:port,host:port" or a list of "host:port", ports 1 to 65535, IPv6 as "[::1]:9092"'
        super().__init__("list", allowed, _servers, _ITEMS)

    def to_attribute(self, parsed: tuple[Server, ...]) -> tuple[tuple[str, int], ...]:
        """Return the addresses without protocols."""
        return tuple(dict.fromkeys((server.host, server.port) for server in parsed))


def serialize_string(value: object) -> bytes | None:
    """Serialize as Java's StringSerializer does: as UTF-8; null stays null.

    Raises:
        TypeError: If the value is not a str.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"StringSerializer accepts str, not {type(value).__name__}")
    return value.encode()


SERIALIZER: Final = Function(
    "a callable from the object to bytes or None",
    {
        "org.apache.kafka.common.serialization.ByteArraySerializer": None,
        "org.apache.kafka.common.serialization.StringSerializer": serialize_string,
    },
    annotation="Serializer",
)
"""The kind of `key.serializer` and `value.serializer`."""


# fmt: off
PARTITIONERS: Final = (
    "uniform_sticky", "sticky", "sticky_ignoring_keys", "round_robin", "random",
    "murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random",
)
# fmt: on
"""The names of partitioners; `aioproduce.partitioners.NAMED` describes them."""

_JAVA_PARTITIONERS: Final[Mapping[str, str]] = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky_ignoring_keys",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "sticky",
}


def _partitioner(value: object) -> object:
    if value is None:  # null means the first, as in Kafka
        return PARTITIONERS[0]
    if isinstance(value, str):
        text = value.strip()
        known = _JAVA_PARTITIONERS.get(text, text)
        if known in PARTITIONERS:
            return known
        raise WrongValueError(f"is not the name of a partitioner{_hint(text, PARTITIONERS)}")
    if isinstance(value, type):
        raise WrongValueError(f"is the class {value.__name__} instead of an instance")
    method = getattr(value, "partition", None)
    if not callable(method):
        raise WrongValueError(f"({type(value).__name__}) does not have a method partition()")
    if inspect.iscoroutinefunction(method):
        raise WrongValueError("has an async partition(), but it is called within send()")
    return value


PARTITIONER: Final = Kind(
    "str",
    f"one of {', '.join(PARTITIONERS)}, the name of a partitioner class of Kafka's, or an object with "
    "partition(topic, key, value, view)",
    _partitioner,
    f"{literal(PARTITIONERS)} | ChoosesPartition | None",
)
"""One of `PARTITIONERS`, or the user's own object."""


def _interceptors(value: object) -> tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise WrongValueError(f"({type(value).__name__}) is not a list")
    for item in value:
        if isinstance(item, type):
            raise WrongValueError(f"contains the class {item.__name__} instead of an instance")
        methods = ("on_send", "on_acknowledgement", "intercept", "intercept_transaction", "begin_audit")
        if not any(callable(getattr(item, method, None)) for method in methods):
            raise WrongValueError(f"contains a {type(item).__name__} without any of these methods")
    return tuple(value)


INTERCEPTORS: Final = Kind(
    "list",
    "a list of objects that have on_send(record), on_acknowledgement(metadata, error) or both, or "
    "intercept(record), or intercept_transaction(transactional_id), or an Auditor",
    _interceptors,
    "list[Any] | tuple[Any, ...]",
)
"""Objects that are called for each record sent and each acknowledgement, in order."""
