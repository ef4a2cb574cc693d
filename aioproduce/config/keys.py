"""What one configuration key is: its name, the values it takes, its default and its text.

Called by `table.py`, which makes one `Key` per key, and by `producer_config.py`, which has them parse what
the user gave. A value goes through two forms: *parsed* (checked, still in Kafka's units, so that sums of
milliseconds are exact) and *attribute* (what `ProducerConfig` holds, durations in seconds).

Invariants:
1. `Kind.parse` returns a checked value or raises `ConfigError` that names the key, the value and what is
   allowed.
2. Strings are read as Java reads them from a properties file: surrounding white space goes, numbers are
   decimal. Typed values are taken as they are: a bool is no int, a float is no int.
3. The value of a key that may hold a secret is in no message (`shown`).
"""

from __future__ import annotations

import difflib
import inspect
import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast, final

from aioproduce.errors import ConfigError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_SECRET: Final = re.compile(
    r"password|passphrase|secret|token|jaas|credential|private|certificate|keystore[._]key", re.IGNORECASE
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_SERVER: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9_+.-]*)://)?(?:\[([^\]]*)\]|([A-Za-z0-9._%:-]*)):([0-9]+)"
)
_SHOWN_LENGTH: Final = 80
_STRING_LENGTH_MAX: Final = 2**15 - 1  # a string's length is an int16 in the request header


class _Required:
    """The default of a key that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()


def is_secret(name: str) -> bool:
    """Whether the key's value must never be shown: in a message, a log line or a repr."""
    return _SECRET.search(name) is not None


def shown(name: str, value: object) -> str:
    """`name=value` for a message; short, and without the value where that may be a secret."""
    if is_secret(name):
        return f"{name}=<hidden>"
    if value is not None and not isinstance(value, (str, bytes, int, float)):
        # Anything else may carry a secret in its repr, e.g. a functools.partial.
        return f"{name}=<{type(value).__name__}>"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"{name}=<int of {value.bit_length()} bits>"  # str() of a huge int is slow, then refused
    text = repr(value)
    return f"{name}={text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + '...'}"


class Kind(ABC):
    """The values that a key takes."""

    __slots__ = ()

    label: ClassVar[str]
    """Name of the type, for the table."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """The values in words, to complete "it takes ..."."""

    @abstractmethod
    def parse(self, name: str, value: object) -> object:
        """The value, checked; `ConfigError` if it is not one of `allowed`."""

    def to_attribute(self, parsed: Any) -> object:
        """The parsed value as `ProducerConfig` holds it."""
        return parsed

    def refuse(self, name: str, value: object, why: str = "is not allowed") -> ConfigError:
        """The error for a value that is not allowed."""
        return ConfigError(f"{shown(name, value)} {why}: it takes {self.allowed}.", key=name)


def _parse_int(
    kind: Kind, name: str, value: object, minimum: int, maximum: int, extra: tuple[int, ...]
) -> int:
    if isinstance(value, str):
        text = value.strip()
        # 40 digits are beyond every range; int() itself refuses thousands of them with a bare ValueError.
        if _INTEGER.fullmatch(text) is None or len(text) > 40:
            raise kind.refuse(name, value, "is not a whole number")
        number = int(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise kind.refuse(name, value, f"({type(value).__name__}) is not a whole number")
    if not minimum <= number <= maximum and number not in extra:
        raise kind.refuse(name, value, "is out of range")
    return number


@final
@dataclass(frozen=True, slots=True)
class Int(Kind):
    """A whole number in a range, or one of a few outside of it."""

    label: ClassVar[str] = "int"
    minimum: int
    maximum: int
    extra: tuple[int, ...] = ()
    unit: str = ""

    @property
    def allowed(self) -> str:
        """The range."""
        also = "".join(f" or {number}" for number in self.extra)
        return f"{self.minimum} to {self.maximum}{also}{' ' + self.unit if self.unit else ''}"

    def parse(self, name: str, value: object) -> int:
        """An int, or its decimal digits."""
        return _parse_int(self, name, value, self.minimum, self.maximum, self.extra)


@final
@dataclass(frozen=True, slots=True)
class Milliseconds(Kind):
    """A duration, given in whole milliseconds and held in seconds; -1 is no limit where it is allowed."""

    label: ClassVar[str] = "int, ms"
    minimum: int
    maximum: int

    @property
    def allowed(self) -> str:
        """The range."""
        unlimited = " (-1: no limit)" if self.minimum < 0 else ""
        return f"{self.minimum} to {self.maximum} whole milliseconds{unlimited}"

    def parse(self, name: str, value: object) -> int:
        """An int, or its decimal digits."""
        return _parse_int(self, name, value, self.minimum, self.maximum, ())

    def to_attribute(self, parsed: int) -> float:
        """Seconds; negative for "no limit"."""
        return -1.0 if parsed < 0 else parsed / 1000


@final
@dataclass(frozen=True, slots=True)
class Bool(Kind):
    """True or false."""

    label: ClassVar[str] = "bool"

    @property
    def allowed(self) -> str:
        """The two."""
        return "true or false"

    def parse(self, name: str, value: object) -> bool:
        """A bool, or its name in either case, as Java reads it."""
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise self.refuse(name, value)


@final
@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of a few words (or numbers), some of which may be refused with a reason."""

    label: ClassVar[str] = "str"
    values: Mapping[str | int, object]
    """Spelling -> parsed value."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Spelling that Kafka knows -> why it is refused here."""
    is_any_case: bool = False

    @property
    def allowed(self) -> str:
        """The words."""
        words = dict.fromkeys(str(value) for value in self.values)
        return "one of " + ", ".join(words) if len(words) > 1 else f"only {next(iter(words))}"

    def parse(self, name: str, value: object) -> object:
        """A word; in either case only where Kafka takes it so."""
        spelling = value
        if isinstance(value, str):
            spelling = value.strip().lower() if self.is_any_case else value.strip()
        if isinstance(spelling, bool) or not isinstance(spelling, (str, int)):
            raise self.refuse(name, value, f"({type(value).__name__}) is not allowed")
        for known, parsed in self.values.items():
            if spelling == (known.lower() if self.is_any_case and isinstance(known, str) else known):
                return parsed
        for known, reason in self.refused.items():
            if spelling == (known.lower() if self.is_any_case else known):
                raise self.refuse(name, value, f"is refused ({reason})")
        raise self.refuse(name, value)


@final
@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A string that goes over the wire."""

    label: ClassVar[str] = "str"

    @property
    def allowed(self) -> str:
        """The bound is the wire's."""
        return f"a str of at most {_STRING_LENGTH_MAX} bytes in UTF-8"

    def parse(self, name: str, value: object) -> str:
        """A str, without surrounding white space."""
        if not isinstance(value, str):
            raise self.refuse(name, value, f"({type(value).__name__}) is not a str")
        text = value.strip()
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise self.refuse(name, value, "cannot be written in UTF-8") from error
        if size > _STRING_LENGTH_MAX:
            raise self.refuse(name, value, "is too long")
        return text


@final
@dataclass(frozen=True, slots=True)
class Servers(Kind):
    """`host:port` addresses."""

    label: ClassVar[str] = "list"

    @property
    def allowed(self) -> str:
        """The form."""
        return '"host:port,host:port" or a list of "host:port", ports 1 to 65535, IPv6 as "[::1]:9092"'

    def parse(self, name: str, value: object) -> tuple[tuple[str, int], ...]:
        """Addresses in order, each once."""
        if isinstance(value, str):
            items: list[object] = list(value.split(","))
        elif isinstance(value, (list, tuple)):
            items = list(value)
        else:
            raise self.refuse(name, value, f"({type(value).__name__}) is not a list of addresses")
        if not items or (len(items) == 1 and isinstance(items[0], str) and not items[0].strip()):
            raise self.refuse(name, value, "names no server")
        return tuple(dict.fromkeys(self._address(name, item) for item in items))

    def _address(self, name: str, item: object) -> tuple[str, int]:
        if not isinstance(item, str):
            raise self.refuse(name, item, f"({type(item).__name__}) is not an address")
        text = item.strip()
        named = text.rpartition("@")[2]  # what stands before an @ is somebody's password
        match = _SERVER.fullmatch(text)
        if match is None:
            raise self.refuse(name, named, "is not an address with a port")
        scheme, bracketed, plain, port_text = match.groups()
        if scheme is not None and scheme.upper() != "PLAINTEXT":
            raise self.refuse(name, named, f"asks for {scheme}; this version speaks PLAINTEXT only")
        if plain is not None and (not plain or ":" in plain):
            why = "has no host" if not plain else "is ambiguous; an IPv6 address goes in brackets"
            raise self.refuse(name, named, why)
        if bracketed is not None:
            try:
                ipaddress.IPv6Address(bracketed)
            except ValueError as error:
                raise self.refuse(name, named, "is not an IPv6 address") from error
        port = int(port_text) if len(port_text) <= 5 else 0
        if not 1 <= port <= 65535:
            raise self.refuse(name, named, "has a port out of range")
        return (str(bracketed or plain), port)


def serialize_string(value: object) -> bytes | None:
    """What Java's StringSerializer does: UTF-8; a null stays a null.

    Raises:
        TypeError: The value is not a str.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        msg = f"StringSerializer takes str, not {type(value).__name__}"
        raise TypeError(msg)
    return value.encode()


_JAVA_SERIALIZERS: Final[Mapping[str, Callable[[Any], bytes | None] | None]] = {
    "org.apache.kafka.common.serialization.ByteArraySerializer": None,
    "org.apache.kafka.common.serialization.StringSerializer": serialize_string,
}


@final
@dataclass(frozen=True, slots=True)
class Function(Kind):
    """A plain callable, or None; in a properties file the Java names that `java_names` understands."""

    label: ClassVar[str] = "callable"
    takes: str
    java_names: Mapping[str, Callable[[Any], bytes | None] | None] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        """What is called with what, and the names."""
        names = "".join(f", or the name {name}" for name in self.java_names)
        return f"{self.takes} (not async), or None{names}"

    def parse(self, name: str, value: object) -> Callable[..., Any] | None:
        """The callable."""
        if value is None:
            return None
        if isinstance(value, str):
            if value.strip() in self.java_names:
                return self.java_names[value.strip()]
            raise self.refuse(name, value, "is a name, and only a callable can be called from Python")
        if not callable(value):
            hint = "; pass its bound method .serialize" if hasattr(value, "serialize") else ""
            raise self.refuse(name, value, f"is not callable{hint}")
        call = getattr(value, "__call__", None)  # noqa: B004 - the method of an object, to see whether it is async
        if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call):
            raise self.refuse(name, value, "is async, and it is called in the middle of send()")
        return cast("Callable[..., Any]", value)


def serializer() -> Function:
    """The kind of `key.serializer` and `value.serializer`."""
    return Function("a callable from the object to bytes or None", _JAVA_SERIALIZERS)


@final
@dataclass(frozen=True, slots=True)
class Interceptors(Kind):
    """Objects that see each record go and each acknowledgement come."""

    label: ClassVar[str] = "list"

    @property
    def allowed(self) -> str:
        """What each must have."""
        return (
            "a list of objects that have on_send(record), on_acknowledgement(metadata, error) or both, or "
            "intercept(record), or an Auditor"
        )

    def parse(self, name: str, value: object) -> tuple[object, ...]:
        """The objects in order."""
        if not isinstance(value, (list, tuple)):
            raise self.refuse(name, value, f"({type(value).__name__}) is not a list")
        for item in value:
            if isinstance(item, type):
                raise self.refuse(name, value, f"holds the class {item.__name__} where an instance belongs")
            methods = [
                getattr(item, method, None)
                for method in ("on_send", "on_acknowledgement", "intercept", "begin_audit")
            ]
            if not any(callable(method) for method in methods):
                raise self.refuse(name, value, f"holds a {type(item).__name__} without any of these methods")
        return tuple(value)


PARTITIONERS: Final = (
    "uniform_sticky",
    "sticky",
    "sticky_ignoring_keys",
    "round_robin",
    "random",
    "murmur2",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "fnv1a",
    "fnv1a_random",
)
"""What can be named; `aioproduce.partitioners.NAMED` has what each does."""

_JAVA_PARTITIONERS: Final[Mapping[str, str]] = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky_ignoring_keys",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "sticky",
}


@final
@dataclass(frozen=True, slots=True)
class PartitionerClass(Kind):
    """The name of a partitioner, or one of the user's own."""

    label: ClassVar[str] = "str"

    @property
    def allowed(self) -> str:
        """The names, and what an object must have."""
        return (
            f"one of {', '.join(PARTITIONERS)}, the name of a partitioner class of Kafka's, or an object with "
            "partition(topic, key, value, view)"
        )

    def parse(self, name: str, value: object) -> object:
        """The name, one of `PARTITIONERS`, or the object; Kafka's null is the first."""
        if value is None:
            return PARTITIONERS[0]
        if isinstance(value, str):
            text = value.strip()
            known = _JAVA_PARTITIONERS.get(text, text)
            if known in PARTITIONERS:
                return known
            near = difflib.get_close_matches(text[:200].lower(), PARTITIONERS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise self.refuse(name, value, f"is not the name of a partitioner{hint}")
        if isinstance(value, type):
            raise self.refuse(name, value, f"is the class {value.__name__} where an instance belongs")
        method = getattr(value, "partition", None)
        if not callable(method):
            raise self.refuse(name, value, f"({type(value).__name__}) has no method partition()")
        if inspect.iscoroutinefunction(method):
            raise self.refuse(
                name, value, "has an async partition(), and it is called in the middle of send()"
            )
        return value


@final
@dataclass(frozen=True, slots=True)
class Unused(Kind):
    """A value of a refused key: read only to see whether it is one that changes nothing."""

    label: ClassVar[str] = "refused"
    java_type: str
    accepted: tuple[object, ...]
    """Parsed values that change nothing here."""

    @property
    def allowed(self) -> str:
        """What may be left in a file."""
        words = " or ".join('"" (empty)' if value == () else self._spell(value) for value in self.accepted)
        return f"only {words}"

    @staticmethod
    def _spell(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def parse(self, name: str, value: object) -> object:
        """The value in the form of its Java type; `ConfigError` if it is not of that type."""
        if value is None:
            return None
        match self.java_type:
            case "BOOLEAN":
                return Bool().parse(name, value)
            case "SHORT" | "INT" | "LONG":
                return _parse_int(self, name, value, -LONG_MAX - 1, LONG_MAX, ())
            case "DOUBLE":
                return self._parse_double(name, value)
            case "LIST":
                items = value.split(",") if isinstance(value, str) else value
                if isinstance(items, (list, tuple)) and all(isinstance(item, str) for item in items):
                    stripped = tuple(item.strip() for item in items)
                    return () if stripped == ("",) else stripped
            case _:
                if isinstance(value, str):
                    return value.strip()
        raise self.refuse(name, value)

    def _parse_double(self, name: str, value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        try:
            return float(cast("str", value))
        except (TypeError, ValueError) as error:
            raise self.refuse(name, value) from error


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One row of the table.

    Attributes:
        name: Kafka's dotted key.
        kind: The values it takes.
        default: Kafka 4.3's default as a user would write it, or `REQUIRED`.
        text: What it does, with units; for a refused key why it is, and what to use instead.
        attribute: The attribute of `ProducerConfig`, or `None` where there is nothing to hold.
        is_own: aioproduce's own key, which Kafka does not have.
        default_text: What the table shows for the default where the value itself does not say it.
    """

    name: str
    kind: Kind
    default: object
    text: str
    attribute: str | None
    is_own: bool = False
    default_text: str | None = None

    @property
    def keyword(self) -> str:
        """The key as a keyword argument: `linger_ms`."""
        return self.name.replace(".", "_")

    @property
    def is_refused(self) -> bool:
        """Whether this version has no use for the key."""
        return isinstance(self.kind, Unused)

    def parse(self, value: object) -> object:
        """The value, checked.

        Raises:
            ConfigError: It is not one that the key takes.
        """
        kind = self.kind
        if not isinstance(kind, Unused):
            return kind.parse(self.name, value)
        try:
            parsed = kind.parse(self.name, value)
        except ConfigError:
            pass  # of another type altogether: refused below, with the reason that matters
        else:
            if parsed in kind.accepted:
                return parsed
        raise ConfigError(f"{self.name} is refused: {self.text} It takes {kind.allowed}.", key=self.name)
