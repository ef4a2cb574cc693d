"""Makes reStructuredText of the house's docstrings, which are plain text with a little Markdown.

Sphinx calls it for each docstring, before napoleon reads the Google sections:

| in a docstring | on the page |
|---|---|
| `name` | a literal; a link where it is a public name |
| an indented block | a block of code |
| a list right under its paragraph | a list |
| a table | a table |
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import aioproduce
import aioproduce.errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_CODE = re.compile(r"(?<![`:\w])`([^`\n]+)`(?!`)")
_SECTION = re.compile(r"(Args|Attributes|Example|Examples|Raises|Returns|Yields|Note|Warning|Keyword Args):$")
_ITEM = re.compile(r"\s*([-*]|\d+\.) ")

_PUBLIC = {name: f"aioproduce.{name}" for name in aioproduce.__all__ if not name.startswith("_")}
_PUBLIC |= {
    name: f"aioproduce.errors.{name}"
    for name, value in vars(aioproduce.errors).items()
    if isinstance(value, type) and value.__module__ == "aioproduce.errors"
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    # In front of napoleon's 500.
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"version": "1", "parallel_read_safe": True}


def _process(_app: object, what: str, _name: str, value: object, _options: object, lines: list[str]) -> None:
    # A constant that another module re-exports has no text of its own, and shows its class's.
    is_foreign = what == "data" and "\n".join(lines).strip() == inspect.getdoc(type(value))
    lines[:] = [] if is_foreign else converted(lines)


def converted(lines: list[str]) -> list[str]:
    """The docstring's lines, as reStructuredText with Google sections."""
    return list(_spaced(_tabled(_literal(lines))))


def _literal(lines: list[str]) -> Iterator[str]:
    """Code is indented by four more than the paragraph in front of its blank line."""
    code: int | None = None
    paragraph = 0
    was_blank = True
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            was_blank = True
            yield line
            continue
        if code is not None and indent < code:
            code = None
        if code is None:
            if was_blank and indent >= paragraph + 4:
                code = indent
                yield from (" " * (indent - 4) + "::", "")
            else:
                paragraph = indent + (4 if _SECTION.match(line.strip()) else 0)
        was_blank = False
        yield line if code is not None else _marked(line)


def _marked(line: str) -> str:
    return _CODE.sub(_role, line)


def _role(match: re.Match[str]) -> str:
    words = match[1]
    name = words.removesuffix("()")
    if name in _PUBLIC:
        return f":py:obj:`{words} <{_PUBLIC[name]}>`"
    return f"``{words}``"


def _tabled(lines: Iterator[str]) -> Iterator[str]:
    """Markdown's rows become a list-table."""
    rows: list[str] = []
    for line in (*lines, ""):
        if line.lstrip().startswith("|"):
            rows.append(line)
            continue
        if rows:
            margin = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
            yield from ("", f"{margin}.. list-table::", f"{margin}   :header-rows: 1", "")
            for row in rows:
                cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
                if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                    continue
                for number, cell in enumerate(cells):
                    yield f"{margin}   {'* -' if number == 0 else '  -'} {cell}"
            yield ""
            rows = []
        yield line


def _spaced(lines: Iterator[str]) -> Iterator[str]:
    """A list gets the blank line in front of it that reStructuredText wants."""
    was = ""
    for line in lines:
        if _ITEM.match(line) and was.strip() and not _ITEM.match(was) and _indent(was) == _indent(line):
            yield ""
        yield line
        was = line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
