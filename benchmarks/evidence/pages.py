"""The blocks in the pages: find them, write them, and check them against the results. Called by `__main__`.

1. Every Markdown file of `PAGES` is searched, so a page can be moved, and a block within it. A marker begins its
   line: an indented one is an example.
2. `check()` compares a block byte by byte, except the number of later commits: that is the number of the day when
   the block was written, since each commit would make every page wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.evidence import blocks, results, setting
from benchmarks.evidence.blocks import MissingResultError
from benchmarks.evidence.markdown import UNKNOWN
from benchmarks.evidence.results import Document

PAGES: Final = ("README.md", "CHANGELOG.md", "docs", "benchmarks", "tests", "examples")
"""Files and folders, below the root, whose pages have blocks."""

_BLOCK: Final = re.compile(
    r"^(?P<begin><!-- evidence: (?P<name>\S+) -->\n)(?P<text>.*?)^(?P<end><!-- end -->)$",
    re.DOTALL | re.MULTILINE,
)
_BEGIN: Final = re.compile(r"^<!-- evidence: ", re.MULTILINE)
_LATER: Final = re.compile(rf"Since then (?:[\d,]+|{UNKNOWN}) commits changed")
_MASK: Final = "Since then N commits changed"


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where pages, results and plots are."""

    root: Path = setting.REPOSITORY

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.root / setting.RESULTS

    @property
    def plots(self) -> Path:
        """The folder of plots."""
        return self.root / setting.PLOTS

    def pages(self) -> Iterator[Path]:
        """Every page that can have a block."""
        for name in PAGES:
            path = self.root / name
            yield from sorted(path.rglob("*.md")) if path.is_dir() else [path] * path.exists()


def names_in(text: str) -> list[str]:
    """Return the names of the blocks of a page.

    Raises:
        ValueError: if a marker has no end.
    """
    found, begun = [match["name"] for match in _BLOCK.finditer(text)], len(_BEGIN.findall(text))
    if len(found) != begun:
        raise ValueError(f"of {begun} blocks {len(found)} have an end: {found}")
    return found


def _rendered(page: Path, block: str, place: Place) -> str:
    def later(document: Document) -> int | None:
        return setting.commits_since(document["commit"])

    plots_at, results_at = (os.path.relpath(folder, page.parent) for folder in (place.plots, place.results))
    text = blocks.render(block, blocks.documents_of(block, place.results), plots_at, results_at, later)
    return f"\n{text}\n"


def write(place: Place) -> list[str]:
    """Write every block and plot again.

    Returns:
        A description of the written files.

    Raises:
        MissingResultError: if a block shows a missing result; nothing is written.
        ValueError: if a marker has no end; nothing is written.
    """
    new: dict[Path, str] = {}
    drawn: dict[str, str] = {}
    told = []
    for page in place.pages():
        text = page.read_text(encoding="utf-8")
        names = names_in(text)
        for name in names:
            plot = blocks.plot_of(name, blocks.documents_of(name, place.results))
            if plot is not None:
                drawn[blocks.plot_name(name)] = plot
        if names:
            new[page] = _with_blocks(page, text, place)
            told.append(f"{page.relative_to(place.root)}: {', '.join(names)}")
    for page, text in new.items():
        page.write_text(text, encoding="utf-8")
    for name, text in drawn.items():
        place.plots.mkdir(parents=True, exist_ok=True)
        (place.plots / name).write_text(text, encoding="utf-8")
    return told


def _with_blocks(page: Path, text: str, place: Place) -> str:
    return _BLOCK.sub(
        lambda match: f"{match['begin']}{_rendered(page, match['name'], place)}{match['end']}", text
    )


def add(page: Path, place: Place) -> list[str]:
    """Add a heading and markers to the end of a page for each block that has results and is on no page.

    Returns:
        The blocks.
    """
    shown = {name for each in place.pages() for name in names_in(each.read_text(encoding="utf-8"))}
    added = []
    for name, block in blocks.BLOCKS.items():
        try:
            blocks.documents_of(name, place.results)
        except MissingResultError:
            continue
        if name not in shown:
            added.append(name)
            with page.open("a", encoding="utf-8") as file:
                file.write(f"\n## {block.title}\n\n<!-- evidence: {name} -->\n<!-- end -->\n")
    return added


def check(place: Place) -> list[str]:
    """Return the problems of results and pages, in words; none if all is well."""
    found = [problem for path in sorted(place.results.glob("*.json")) for problem in results.problems(path)]
    if found:
        return found
    drawn: set[str] = set()
    for page in place.pages():
        found += _wrong_with(page, place, drawn)
    kept = {path.name for path in place.plots.glob("*.svg")}
    found += [f"{setting.PLOTS}/{name}: no page has its block" for name in sorted(kept - drawn)]
    return found


def _wrong_with(page: Path, place: Place, drawn: set[str]) -> list[str]:
    where, text = page.relative_to(place.root), page.read_text(encoding="utf-8")
    found = []
    try:
        names_in(text)
    except ValueError as error:
        return [f"{where}: {error}"]
    for match in _BLOCK.finditer(text):
        name = match["name"]
        try:
            expected = _rendered(page, name, place)
        except MissingResultError as error:
            found.append(f"{where}: {error}")
            continue
        if _LATER.sub(_MASK, match["text"]) != _LATER.sub(_MASK, expected):
            found.append(f"{where}: the block {name!r} is not what the results give: {_REMEDY}")
        plot = blocks.plot_of(name, blocks.documents_of(name, place.results))
        if plot is not None:
            file = place.plots / blocks.plot_name(name)
            drawn.add(file.name)
            if not file.exists() or file.read_text(encoding="utf-8") != plot:
                found.append(f"{file.name}: the plot is not what the results give: {_REMEDY}")
    return found


_REMEDY: Final = "python -m benchmarks.evidence tables"
