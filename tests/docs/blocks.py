"""Every block of code in README and docs, and its marker: the comment above it, which no reader sees.

| marker | what it says |
|---|---|
| `<!-- block: gate -->` | `test_blocks.py` runs it in the gate, with a FakeCluster for localhost:9092 |
| `<!-- block: gate as NAME -->` | it is the file NAME, which the other blocks of the page use |
| `<!-- block: gate tests/FILE.py: words -->` | that test runs it, in the gate; the words are optional |
| `<!-- block: extended tests/FILE.py: words -->` | that test runs it, in the extended tier |
| `<!-- block: shown: REASON -->` | nobody runs it, and why |

A block without a marker is a failure. What Sphinx reads (`{toctree}`) needs none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_MARKER = re.compile(
    r"<!-- block: (?P<kind>gate|extended|shown)(?: as (?P<file>\S+)| (?P<test>tests/[\w/]+\.py))?"
    r"(?:: (?P<words>.+))? -->$"
)


@dataclass(frozen=True)
class Block:
    """One block, and what its marker says."""

    page: Path
    line: int
    language: str
    text: str
    kind: Literal["gate", "extended", "shown", "unlisted"]
    file: str | None
    test: str | None
    words: str | None

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{page}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        """Whether `test_blocks.py` runs it itself."""
        return self.kind == "gate" and self.test is None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of one page, in order."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text())
    found = []
    for number, token in enumerate(tokens):
        if token.type not in ("fence", "code_block") or token.info.startswith("{"):
            continue
        above = tokens[number - 1] if number else None
        marker = _MARKER.match(above.content.strip()) if above and above.type == "html_block" else None
        assert token.map is not None
        if marker is None:
            block = Block(page, token.map[0] + 1, token.info, token.content, "unlisted", None, None, None)
        else:
            fields: dict[str, Any] = marker.groupdict()
            block = Block(page, token.map[0] + 1, token.info, token.content, **fields)
        found.append(block)
    return found


ALL: Final = [block for page in PAGES for block in blocks_of(page)]
