"""Where a setting comes from: file and line of a value, for the error that refuses it.

`load_properties()` makes values that know their origin. They stay strings like any other, whatever mapping they are
merged into, until a table of keys has parsed them.

Invariants:

1. An error is given its origin once, by anyone who catches it first.
2. Only what came from a file is blamed on the file: an error that names a key names the line of that key's value.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@final
class Originated(str):
    """A value that knows where it stands: a string like any other.

    Attributes:
        origin: The file and the line.
    """

    origin: str

    def __new__(cls, text: str, origin: str) -> Originated:
        """Make one of a text."""
        made = super().__new__(cls, text)
        made.origin = origin
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Another process gets the text: the file need not be there.
        return str, (str(self),)


def origins_of(settings: Mapping[Any, object]) -> dict[str, str]:
    """Key -> file and line, of the settings that came from a file."""
    return {
        key: value.origin
        for key, value in settings.items()
        if isinstance(key, str) and isinstance(value, Originated)
    }


@contextmanager
def naming_origins(origins: Mapping[str, str]) -> Iterator[None]:
    """Have a ConfigError that is raised here say in which file and line the setting stands.

    Args:
        origins: Key -> file and line.
    """
    try:
        yield
    except ConfigError as error:
        if error.origin is None and error.args:
            text = str(error.args[0])
            blamed = [
                origin
                for key, origin in origins.items()
                if key == error.key or (error.key is None and key in text)
            ]
            if blamed:
                error.origin = " and ".join(dict.fromkeys(blamed))
                error.args = (f"{error.origin}: {text}", *error.args[1:])
        raise
