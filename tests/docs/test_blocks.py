"""Every block of README and docs is listed, and those of the gate run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ALL, PAGES, ROOT, Block, blocks_of
from tests.docs.running import run

RUN_HERE = [page for page in PAGES if any(block.is_run_here for block in blocks_of(page))]
EXTENDED = re.compile(
    r"@pytest\.mark\.(extended|native)|others_extended|marks=\[?pytest\.mark\.extended|pytestmark"
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_block_is_listed() -> None:
    unlisted = [block.place for block in ALL if block.kind == "unlisted"]
    assert unlisted == [], (
        "put a marker above each of these blocks: tests/docs/blocks.py says which there are"
    )


def test_what_is_only_shown_says_why() -> None:
    assert [block.place for block in ALL if block.kind == "shown" and not block.words] == []


@pytest.mark.parametrize("block", [block for block in ALL if block.test], ids=lambda block: block.place)
def test_the_test_that_a_block_names_is_there_and_in_that_tier(block: Block) -> None:
    assert block.test is not None
    file = ROOT / block.test
    assert file.is_file()
    if block.kind == "extended":
        assert EXTENDED.search(file.read_text()), f"nothing in {block.test} is of the extended tier"


@pytest.mark.parametrize("page", RUN_HERE, ids=name_of)
async def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await run([block for block in blocks_of(page) if block.is_run_here], tmp_path, ROOT)


def test_a_marker_is_read(tmp_path: Path) -> None:
    text = {
        "<!-- block: gate -->": ("gate", None, None, None),
        "<!-- block: gate as a.properties -->": ("gate", "a.properties", None, None),
        "<!-- block: gate tests/a/test_b.py: why -->": ("gate", None, "tests/a/test_b.py", "why"),
        "<!-- block: extended tests/a/test_b.py -->": ("extended", None, "tests/a/test_b.py", None),
        "<!-- block: shown: a picture -->": ("shown", None, None, "a picture"),
        "<!-- block: sometimes -->": ("unlisted", None, None, None),
        "": ("unlisted", None, None, None),
    }
    page = tmp_path / "page.md"
    page.write_text("".join(f"Words.\n\n{marker}\n```sh\nls\n```\n\n" for marker in text) + "    indented\n")
    found = [(each.kind, each.file, each.test, each.words) for each in blocks_of(page)]
    assert found == [*text.values(), ("unlisted", None, None, None)]


async def test_a_block_that_fails_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- block: gate -->\n```sh\nfalse\n```\n")
    (block,) = blocks_of(page)
    with pytest.raises(AssertionError, match="ended with 1"):
        await run([block], tmp_path, ROOT)
