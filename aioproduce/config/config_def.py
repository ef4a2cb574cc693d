"""A table of keys, and the one way to read a mapping by it: Kafka's `ConfigDef` and its `ConfigKey`.

Called by whoever has a table: Kafka's own keys (`table`), the options of the Spark sink, librdkafka's
properties. A key is one row; what is refused or ignored is a row too, with a kind that says so; and so is a
conflict of keys. Whoever has error classes of its own catches `ConfigError` once.

Invariants:
1. `ConfigDef.parse` returns checked values or raises `ConfigError` that names the key, the value and what is
   allowed. No key is skipped in silence, but those of the kind `IGNORED` without a text.
2. The value of a key that may hold a secret is in no message, nor is the value of a key that nobody knows: it
   may be a secret under a misspelled name.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, final

from aioproduce.config.kinds import IGNORED, Kind, Milliseconds, Unused, WrongValueError
from aioproduce.config.origins import Originated, naming_origins, origins_of
from aioproduce.errors import ConfigError

_log = logging.getLogger("aioproduce")

_SECRET: Final = re.compile(
    r"password|passphrase|secret|token|jaas|credential|private|certificate|keystore[._]key", re.IGNORECASE
)
_SHOWN_LENGTH: Final = 80


REQUIRED: Final = object()
"""The default of a key that has none."""


def is_secret(name: str) -> bool:
    """Whether a key of this name holds a secret, as far as the name tells."""
    return _SECRET.search(name) is not None


def shown(name: str, value: object) -> str:
    """`name=value` for a message or a repr; short, and without the value where that may be a secret."""
    if is_secret(name):
        return f"{name}=<hidden>"
    if value is not None and not isinstance(value, (str, bytes, int, float)):
        # Anything else may carry a secret in its repr, e.g. a functools.partial.
        parts = value if isinstance(value, tuple) else (value,)
        return f"{name}=<{', '.join(type(part).__name__ for part in parts)}>"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"{name}=<int of {value.bit_length()} bits>"  # str() of a huge int is slow, then refused
    text = repr(value)
    return f"{name}={text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + '...'}"


@final
@dataclass(frozen=True, slots=True)
class Key:
    """One row of a table.

    Attributes:
        name: The key, with dots.
        kind: The values it takes; `Unused` for a refused key, `IGNORED` for one that asks nothing here.
        default: As a user would write it, or `REQUIRED`.
        text: What it does, with units; for a refused key why it is, and what to do instead.
        becomes: What the value is called behind the table, where the name does not say it (`attribute`); of a
            refused key, the key to set instead.
        aliases: Other names that are taken; `config.providers.*` is all names that begin so.
        default_text: What the page shows for the default where the value itself does not say it.
        is_own: aioproduce's own key, which Kafka does not have.
        has_secret: Whether it holds a secret; also true where the name tells (`is_secret`).
    """

    name: str
    kind: Kind
    default: object
    text: str = ""
    becomes: str | None = None
    aliases: tuple[str, ...] = ()
    default_text: str | None = None
    is_own: bool = False
    has_secret: bool = False

    @property
    def keyword(self) -> str:
        """The key as a keyword argument: `linger_ms`."""
        return self.name.replace(".", "_")

    @property
    def attribute(self) -> str | None:
        """The attribute that holds the value; `None` where there is nothing to hold."""
        if self.is_refused or self.kind is IGNORED:
            return None
        return self.becomes or (
            self.keyword.removesuffix("_ms") if isinstance(self.kind, Milliseconds) else self.keyword
        )

    @property
    def is_refused(self) -> bool:
        """Whether this version has no use for the key."""
        return isinstance(self.kind, Unused)

    def shown(self, value: object, name: str = "") -> str:
        """`name=value`, as `shown()` does it, under one of the key's names."""
        name = name or self.name
        return f"{name}=<hidden>" if self.has_secret or is_secret(self.name) else shown(name, value)

    def parse(self, value: object, name: str = "") -> Any:
        """The value, checked.

        Args:
            value: As the user gave it.
            name: The alias that the user wrote.

        Raises:
            ConfigError: It is not one that the key takes.
        """
        name = name or self.name
        try:
            return self.kind.parse(value)
        except WrongValueError as error:
            allowed = self.kind.allowed
            if not self.is_refused:
                what = self.shown((*error.parts, value)[0], name)
                raise ConfigError(f"{what} {error.why}: it takes {allowed}.", key=name) from None
        # Whatever is wrong with the value, the reason that matters is that nothing is done with any.
        message = (
            f"{name} is refused: {self.text.removesuffix('.')}.{f' It takes {allowed}.' if allowed else ''}"
        )
        raise ConfigError(message, key=name, suggestion=self.becomes)


@final
class Conflict(NamedTuple):
    """Settings that contradict each other.

    Attributes:
        key: The one to blame, or `None`.
        is_there: Whether they do, by the values of all keys and the names of those that were given.
        text: What is said, with the remedy; `{v[linger.ms]}` is a value.
    """

    key: str | None
    is_there: Callable[[Mapping[str, Any], Collection[str]], object]
    text: str


@final
class ConfigDef(Mapping[str, Key]):
    """A table of keys, by their names.

    Args:
        keys: The rows.
        conflicts: What keys may not be set to together; the first that is there is told.
        unknown: What is said of a name that no row has; `{}` is the name.
        otherwise: What is said where no other name is near.
        elsewhere: What others call a key -> its name here: for suggestions only.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        conflicts: Iterable[Conflict] = (),
        *,
        unknown: str,
        otherwise: str,
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._rows: dict[str, Key] = {}
        self._named: dict[str, Key] = {}
        self._conflicts = tuple(conflicts)
        self._unknown, self._otherwise, self._elsewhere = unknown, otherwise, elsewhere
        for key in keys:
            self._rows[key.name] = key
            for name in (key.name, *key.aliases):
                if name in self._named:
                    raise AssertionError(f"{name} stands twice in the table")
                self._named[name] = key

    def __getitem__(self, name: str) -> Key:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The parsed defaults of all keys that are taken; `None` for those that are required."""
        return MappingProxyType(
            {
                key.name: None if key.default is REQUIRED else key.parse(key.default)
                for key in self._rows.values()
                if key.attribute is not None
            }
        )

    def find(self, name: object) -> Key:
        """The row of a name or of an alias.

        Raises:
            ConfigError: There is none; with the nearest name as `suggestion`.
        """
        # A mapping may hold anything, whatever its type says.
        if not isinstance(name, str):
            raise ConfigError(f"A configuration key is a str, not {type(name).__name__}: {str(name)[:80]}.")
        if name in self._named:
            return self._named[name]
        for alias, key in self._named.items():
            if alias.endswith("*") and name.startswith(alias[:-1]):
                return key
        raise self.unknown(name)

    def parse(self, settings: Mapping[Any, object]) -> tuple[dict[str, Any], frozenset[str]]:
        """The values of a mapping, checked one by one and together, under the names of their rows.

        Args:
            settings: Name or alias -> value.

        Returns:
            The values of all keys, and the names of those that were given; nothing of what is ignored.

        Raises:
            ConfigError: A key is unknown or refused, its value is wrong, or it contradicts another.
        """
        with naming_origins(origins_of(settings)):
            return self._parse(settings)

    def _parse(self, settings: Mapping[Any, object]) -> tuple[dict[str, Any], frozenset[str]]:
        # Unknown keys first: the value of another key is easier to judge without a typing error beside it.
        keys = {name: self.find(name) for name in settings}
        given = {}
        for name, key in keys.items():
            if key.kind is not IGNORED:
                value = settings[name]
                given[key.name] = key.parse(str(value) if isinstance(value, Originated) else value, name)
            elif key.text:
                _log.warning("%s %s", name, key.text)
        values = {**self.defaults, **given}
        for blamed, is_there, text in self._conflicts:
            if is_there(values, given):
                raise ConfigError(text.format(v=values), key=blamed)
        return values, frozenset(given)

    def unknown(self, name: str, separator: str = ".") -> ConfigError:
        """The error for a name that no row has; never with its value.

        Args:
            name: As the user wrote it.
            separator: How the suggestion is spelled: `_` for keyword arguments.
        """
        dotted = name.replace("_", ".")
        meant = self._elsewhere.get(dotted, dotted)[:200].lower()
        near = difflib.get_close_matches(meant, self._named, n=1, cutoff=0.7)
        suggestion = near[0].replace(".", separator) if near else None
        remedy = self._otherwise if suggestion is None else f"did you mean {suggestion!r}?"
        return ConfigError(f"{self._unknown.format(name[:200])}: {remedy}", key=name, suggestion=suggestion)
