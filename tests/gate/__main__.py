"""`python -m tests.gate build/gate.json`: what a recorded run cost, by directory, file, function or test.

python -m tests.gate build/gate.json                       by row: directories, named groups, shared fixtures
python -m tests.gate build/gate.json --by file --top 20    the files that cost the most
python -m tests.gate build/gate.json --only tests/cli      what begins so; --by function is meant then
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.gate import ledger
from tests.gate.ledger import Budget, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = ("row", "directory", "file", "function", "test")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="what a run with --gate-budget or --gate-measure wrote")
    parser.add_argument("--by", choices=KINDS, help="default: row; with --only: function")
    parser.add_argument("--only", default="", metavar="BEGINNING", help="of the names")
    parser.add_argument("--top", type=int, default=40, help="lines (default: 40)")
    parser.add_argument("--budget", type=Path, default=ledger.FILE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.by = options.by or ("function" if options.only else "row")
    return options


def sums(run: dict[str, Any], by: str) -> dict[str, Row]:
    """The rows of a run, of one kind.

    Args:
        run: The file's content.
        by: One of `KINDS`. Of tests, the file has the slowest only.
    """
    if by == "row":
        return {name: Row(**figures) for name, figures in run["rows"].items()}
    if by == "test":
        figures_of = ("cpu_s", "waiting_s", "surely_s", "wall_s", "loops")
        return {each["test"]: Row(1, *(each[name] for name in figures_of)) for each in run["slowest"]}
    found: dict[str, Row] = defaultdict(Row)
    for name, figures in run["functions"].items():
        file = name.split("::", 1)[0]
        key = {"directory": str(Path(file).parent), "file": file, "function": name}[by]
        found[key].add(Row(**figures))
    return dict(found)


def table_of(rows: dict[str, Row], by: str, top: int, budget: Budget) -> Table:
    """The costliest, and the sum of all."""
    table = Table(
        title="What the tests cost, in seconds", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column(by, overflow="fold", min_width=20)
    budgets = ("budget", "x") if by == "row" else ()
    for heading in ("tests", "CPU", *budgets, "waiting", *budgets, *(() if by == "row" else ("wall",))):
        table.add_column(heading, justify="right")
    order = sorted(rows.items(), key=lambda each: -each[1].cpu_s - each[1].waiting_s)
    for name, row in order[:top]:
        # Not as markup: it takes a parameter in brackets away.
        table.add_row(
            Text(name), *cells(row, budget.rows.get(name), budget.slowness(row), with_budget=by == "row")
        )
    left_out = len(order) - top
    table.add_section()
    table.add_row(
        f"all {len(order)}, {left_out} not shown" if left_out > 0 else "all",
        *cells(ledger.total_of(rows.values()), None, 1.0, with_budget=by == "row"),
    )
    return table


def cells(row: Row, recorded: Row | None, slowness: float, *, with_budget: bool) -> list[str]:
    """One line's figures."""

    def beside(measured: float, allowed: float | None) -> list[str]:
        if not with_budget:
            return [f"{measured:,.2f}"]
        if allowed is None:
            return [f"{measured:,.2f}", "", ""]
        return [f"{measured:,.2f}", f"{allowed:,.2f}", ledger.ratio(measured, allowed)]

    return [
        f"{row.tests:,}",
        *beside(row.cpu_s, recorded.cpu_s * slowness if recorded else None),
        *beside(row.waiting_s, recorded.waiting_s if recorded else None),
        *(() if with_budget else (f"{row.wall_s:,.2f}",)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 2 if there is no such run."""
    options = parse(arguments)
    if not options.run.exists():
        print(f"{options.run}: no such file; a run of pytest with --gate-measure writes it", file=sys.stderr)
        return 2
    run = json.loads(options.run.read_text())
    budget = Budget.read(options.budget)
    rows = {name: row for name, row in sums(run, options.by).items() if name.startswith(options.only)}
    console = Console()
    console.print(table_of(rows, options.by, options.top, budget))
    told = run["environment"]
    console.print(f"{told['python']}, {told['machine']}" + ("" if run["is_whole"] else "; not a whole run"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
