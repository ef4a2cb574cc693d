"""A table of keys, which reads and checks mappings: Kafka's `ConfigDef` and its `ConfigKey`.

Used by every table: Kafka's own keys (`table`), the options of the Spark sink, librdkafka's properties. A key is
one row. Refused and ignored keys are rows, too, with a kind of their own, and so are conflicts between keys.
Callers with error classes of their own only need to catch `ConfigError`.

Invariants:
1. `ConfigDef.parse` returns checked values, or raises a `ConfigError` that names the key, the value and the allowed
   values. No key is silently skipped, except those of the kind `IGNORED` without a text.
2. Messages do not contain the value of a key that may hold a secret, nor the value of an unknown key, which may be
   a secret under a misspelled name.
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
"""The default of a required key."""


def is_secret(name: str) -> bool:
    """Return whether a key with this name holds a secret, judging by the name."""
    return _SECRET.search(name) is not None


def shown(name: str, value: object) -> str:
    """Return `name=value` for a message or a repr, shortened, and without the value if that may be a secret."""
    if is_secret(name):
        return f"{name}=<hidden>"
    if value is not None and not isinstance(value, (str, bytes, int, float)):
        # Other objects may show a secret in their repr, e.g. a functools.partial.
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
        kind: The values that it accepts; `Unused` for a refused key, `IGNORED` for one without effect.
        default: The default as a user would write it, or `REQUIRED`.
        text: What it does, with units; for a refused key the reason, and what to use instead.
        becomes: The name of the setting, if it does not follow from the key (`attribute`); for a refused key, the
            key to set instead.
        aliases: Other accepted names; `config.providers.*` means all names with that prefix.
        default_text: The default as shown in the docs, if the value itself does not show it.
        is_own: Whether it is aioproduce's own key, which Kafka does not have.
        has_secret: Whether it holds a secret; also true if the name shows that (`is_secret`).
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
        """The attribute that holds the value; `None` if there is none."""
        if self.is_refused or self.kind is IGNORED:
            return None
        return self.becomes or (
            self.keyword.removesuffix("_ms") if isinstance(self.kind, Milliseconds) else self.keyword
        )

    @property
    def is_refused(self) -> bool:
        """Whether this version does not support the key."""
        return isinstance(self.kind, Unused)

    def shown(self, value: object, name: str = "") -> str:
        """Return `name=value` as the function `shown()` does, with one of the key's names."""
        name = name or self.name
        return f"{name}=<hidden>" if self.has_secret or is_secret(self.name) else shown(name, value)

    def parse(self, value: object, name: str = "") -> Any:
        """Return the checked value.

        Args:
            value: The user's value.
            name: The alias that the user wrote.

        Raises:
            ConfigError: If the key does not accept the value.
        """
        name = name or self.name
        try:
            return self.kind.parse(value)
        except WrongValueError as error:
            allowed = self.kind.allowed
            if not self.is_refused:
                what = self.shown((*error.parts, value)[0], name)
                raise ConfigError(f"{what} {error.why}: it accepts {allowed}.", key=name) from None
        # Whatever is wrong with the value, the reason that matters is that the key is not supported.
        message = (
            f"{name} is refused: {self.text.removesuffix('.')}.{f' It accepts {allowed}.' if allowed else ''}"
        )
        raise ConfigError(message, key=name, suggestion=self.becomes)


@final
class Conflict(NamedTuple):
    """Settings that contradict each other.

    Attributes:
        key: The key to report, or `None`.
        is_there: Whether they contradict each other, given the values of all keys and the names of those that
            were set.
        text: The message with the remedy; `{v[linger.ms]}` is a value.
    """

    key: str | None
    is_there: Callable[[Mapping[str, Any], Collection[str]], object]
    text: str


@final
class ConfigDef(Mapping[str, Key]):
    """A table of keys, by their names.

    Args:
        keys: The rows.
        conflicts: Combinations of settings that are not allowed; the first one found is reported.
        unknown: The message for an unknown name; `{}` is the name.
        otherwise: The remedy if no other name is similar.
        elsewhere: Another client's name for a key -> its name here, for suggestions only.
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
                    raise AssertionError(f"{name} is twice in the table")
                self._named[name] = key

    def __getitem__(self, name: str) -> Key:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The parsed defaults of all supported keys; `None` for required ones."""
        return MappingProxyType(
            {
                key.name: None if key.default is REQUIRED else key.parse(key.default)
                for key in self._rows.values()
                if key.attribute is not None
            }
        )

    def find(self, name: object) -> Key:
        """Return the row of a name or of an alias.

        Raises:
            ConfigError: If there is none; `suggestion` is the most similar name.
        """
        # The keys of a mapping may be anything, whatever its type says.
        if not isinstance(name, str):
            raise ConfigError(
                f"A configuration key must be a str, not {type(name).__name__}: {str(name)[:80]}."
            )
        if name in self._named:
            return self._named[name]
        for alias, key in self._named.items():
            if alias.endswith("*") and name.startswith(alias[:-1]):
                return key
        raise self.unknown(name)

    def parse(self, settings: Mapping[Any, object]) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the values of a mapping, checked one by one and together, under the names of their rows.

        Args:
            settings: Name or alias -> value.

        Returns:
            The values of all keys, and the names of those that were set, without ignored ones.

        Raises:
            ConfigError: If a key is unknown or refused, its value is wrong, or it contradicts another.
        """
        with naming_origins(origins_of(settings)):
            return self._parse(settings)

    def _parse(self, settings: Mapping[Any, object]) -> tuple[dict[str, Any], frozenset[str]]:
        # Unknown keys first: a misspelled key is a more useful message than a wrong value of another key.
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
        """Return the error for an unknown name, never with its value.

        Args:
            name: The name that the user wrote.
            separator: The separator in the suggestion: `_` for keyword arguments.
        """
        dotted = name.replace("_", ".")
        meant = self._elsewhere.get(dotted, dotted)[:200].lower()
        near = difflib.get_close_matches(meant, self._named, n=1, cutoff=0.7)
        suggestion = near[0].replace(".", separator) if near else None
        remedy = self._otherwise if suggestion is None else f"did you mean {suggestion!r}?"
        return ConfigError(f"{self._unknown.format(name[:200])}: {remedy}", key=name, suggestion=suggestion)
