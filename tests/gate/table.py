"""`python -m tests.gate.table`: write TIERS.md, which lists the tests outside the gate with their reasons.

The page is made from the tests that pytest collects, so it cannot miss one. Where a library of a file of tests is
missing, nothing is written, since that file's rows would be.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).resolve().parents[1] / "TIERS.md"

CANNOT_TELL: Final = 9
"""The exit status if not all tests can be collected here; those of pytest end at 5."""

_HEAD: Final = """\
# Which tier each test is in

`python -m tests.gate.table` writes this page. Paths are relative to this folder. The gate (`make test`) runs every
test that is not listed below; `make test-full` runs all tests. A test leaves the gate only by a mark, so none is
dropped. The last column is the number of tests of the same function that stay in the gate.
"""


class Collected:
    """A pytest plugin that keeps the collected tests, and the files that were left out."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []
        self.left_out: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file was left out."""
        if report.skipped:
            self.left_out.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the collected tests."""
        self.items = list(session.items)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def make_page(items: list[pytest.Item]) -> str:
    """Write the page for the collected tests."""
    tiers: dict[str, Counter[str]] = defaultdict(Counter)
    stays: Counter[str] = Counter()
    leaves: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        tier, reason = tier_of(item)
        tiers[name.partition("/")[0]][tier] += 1
        if tier == "gate":
            stays[name] += 1
        else:
            leaves[name][tier, reason] += 1
    total = sum(tiers.values(), Counter())
    lines = [_HEAD, "| folder | gate | extended | native |", "|---|---|---|---|"]
    for folder, counts in [*sorted(tiers.items()), ("all", total)]:
        lines.append(f"| `{folder}` | {counts['gate']} | {counts['extended']} | {counts['native']} |")
    lines += ["", "| test | tier | tests | reason | stay in the gate |", "|---|---|---|---|---|"]
    for name, marks in sorted(leaves.items()):
        for (tier, reason), count in sorted(marks.items()):
            lines.append(f"| `{name}` | {tier} | {count} | {_cell(reason)} | {stays[name] or ''} |")
    return "\n".join(lines) + "\n"


def tier_of(item: pytest.Item) -> tuple[str, str]:
    """The tier of one test and the reason that its mark gives."""
    if item.get_closest_marker("native"):
        return "native", "in the gate if the sources of the native build changed"
    mark = item.get_closest_marker("extended")
    if mark is None:
        return "gate", ""
    if not mark.args:
        raise ValueError(f"{item.nodeid}: give `extended` its reason: @pytest.mark.extended('...')")
    return "extended", str(mark.args[0])


def main(arguments: list[str]) -> int:
    """Collect all tests and write the page; with `--check`, report whether the page is up to date (1 if not).

    Returns:
        The exit status; `CANNOT_TELL` if files of tests were left out.
    """
    collected = Collected()
    status = pytest.main(["--collect-only", "-qq", "--no-summary", "tests"], plugins=[collected])
    if status:
        return int(status)
    if collected.left_out:
        print(*("the page would miss tests:", *collected.left_out), sep="\n", file=sys.stderr)
        return CANNOT_TELL
    page = make_page(collected.items)
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == page:
            return 0
        print(f"{PAGE.name} is out of date: run python -m tests.gate.table", file=sys.stderr)
        return 1
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE.name}: {len(collected.items)} tests")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
