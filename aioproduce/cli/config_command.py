"""`aioproduce config`: the producer's settings, all in a list or one by one.

Called by `app`.
"""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aioproduce.cli.display import as_json_line, write_output
from aioproduce.cli.options import AsJson, failure
from aioproduce.cli.settings import PREFIX

if TYPE_CHECKING:
    from aioproduce.config import Key

_WIDTH: Final = 92
_NEARLY: Final = 0.6

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="Keys to explain, or a part of their names; by default a list of all keys.",
        show_default=False,
    ),
]


def config(names: Names = None, as_json: AsJson = False) -> None:
    """Explain a setting: type, default, values, effect, and its spelling elsewhere.

    A KEY may be spelled as in Kafka (linger.ms), in Python (linger_ms), or as a variable
    (AIOPRODUCE_LINGER_MS). A part of a name, as in `aioproduce config ssl`, lists all keys that contain it.
    docs/reference/configuration.md shows everything on one page.
    """
    from aioproduce.config import KEYS

    keys: list[Key] = []
    is_list = not names
    for name in names or [""]:
        found = _find(name)
        is_list = is_list or len(found) > 1
        keys += found
    if as_json:
        rows = [_key_row(key) for key in (keys if names else KEYS.values())]
        raise typer.Exit(write_output(as_json_line(rows)))
    show = _listed if is_list else _explained
    raise typer.Exit(write_output("\n".join(show(key) for key in keys)))


def _find(name: str) -> list[Key]:
    """Return the key of that name, or all keys whose names contain it."""
    from aioproduce.config import KEYS

    wanted = name.strip().lower().removeprefix(PREFIX.lower()).replace("_", ".").replace("-", ".")
    by_name = {
        spelled.replace("_", "."): key for key in KEYS.values() for spelled in (key.name, *key.aliases)
    }
    if wanted in by_name:
        return [by_name[wanted]]
    found = [key for key in KEYS.values() if wanted in key.name]
    if not found:
        near = difflib.get_close_matches(wanted, by_name, n=3, cutoff=_NEARLY)
        hint = f"did you mean {' or '.join(near)}?" if near else "`aioproduce config` lists all keys"
        raise failure(f"there is no setting {name!r}: {hint}")
    return found


def _listed(key: Key) -> str:
    """Return two or three lines: the key's name, and the first sentence about it."""
    text = f"Refused: {key.text}" if key.is_refused else key.text
    first = _plain(text).partition(". ")[0].removesuffix(".")
    indent = " " * 4
    lines = textwrap.wrap(f"{key.name} ({_default(key)})", _WIDTH, subsequent_indent=indent)
    lines += textwrap.wrap(f"{first}.", _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def _explained(key: Key) -> str:
    facts = [
        ("type", key.kind.label),
        ("default", _default(key)),
        ("values", key.kind.allowed),
        ("in Python", f"Producer({key.keyword}=...)"),
        ("in Java", "there is no such setting" if key.is_own else f"{key.name}, as in Kafka's producer"),
        (
            "environment",
            f"{PREFIX}{key.keyword.upper()} (command line), KAFKA_{key.keyword.upper()} (Python)",
        ),
        ("other names", ", ".join(key.aliases)),
    ]
    if key.is_refused:
        facts[0] = (
            "refused",
            f"use {key.becomes} instead" if key.becomes else "this version has no use for it",
        )
    lines = [key.name, ""]
    lines += textwrap.wrap(_plain(key.text[:1].upper() + key.text[1:]), _WIDTH)
    lines.append("")
    for name, value in facts:
        if value:
            lines += textwrap.wrap(
                _plain(value), _WIDTH, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15
            )
    return "\n".join(lines) + "\n"


def _default(key: Key) -> str:
    from aioproduce.config.markdown import default_cell

    return _plain(default_cell(key))


def _plain(text: str) -> str:
    return text.replace("`", "")


def _key_row(key: Key) -> dict[str, Any]:
    has_default = key.default is None or isinstance(key.default, (str, int, float))
    return {
        "key": key.name,
        "type": key.kind.label,
        "default": key.default if has_default else None,
        "allowed": key.kind.allowed,
        "is_refused": key.is_refused,
        "text": key.text,
    }
