"""`python -m benchmarks.spool`: measure, print tables and targets, and write the figures with `--json FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.null_broker import NullBroker, null_broker
from benchmarks.spool import always, append, direct, drain, peers, startup
from benchmarks.spool.tables import PARTS, Rows
from benchmarks.spool.workload import PARTITIONS, TOPIC, Target, scratch

REPOSITORY: Final = Path(__file__).parents[2]


def measure(
    parts: Sequence[str],
    broker: NullBroker,
    folder: Path,
    rounds: int,
    scale: float,
    show: Callable[[str], object],
) -> dict[str, Any]:
    """Measure the parts; return figures and targets."""
    told: dict[str, Any] = {}
    targets: list[Target] = []
    if "append" in parts:
        told["append"], more = append.measure(broker, folder, rounds, scale, show)
        targets += more
    if "always" in parts:
        told["always"], each = always.measure(folder, rounds, scale, show)
        targets.append(each)
    if "drain" in parts:
        told["drain"], each = drain.measure(broker, folder, rounds, scale, show)
        targets.append(each)
    if "direct" in parts:
        told["direct"], more = direct.measure(broker, folder, rounds, scale, show)
        targets += more
    if "start-up" in parts:
        told["start-up"], more = startup.measure(broker, folder, min(rounds, 3), show)
        targets += more
    if "peers" in parts:
        told["peers"] = peers.measure(broker, folder, rounds, scale, show)
    return {**told, "targets": [each.as_json() for each in targets]}


def print_tables(told: dict[str, Any], console: Console) -> None:
    """Print what was measured."""
    for name, rows_of in PARTS.items():
        if name in told:
            console.print(_table(name, rows_of(told[name])))


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left")
    headings, *cells = rows
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in cells:
        table.add_row(*row)
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spool", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS)[:-1], default=list(PARTS)[:-1])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each part (7; starts: at most 3)")
    parser.add_argument("--quick", action="store_true", help="one round, a twentieth of the records")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "build", help="where the queues are: on a disk (build)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    rounds, scale = (1, 0.05) if given.quick else (given.rounds, 1.0)
    with (
        Console(stderr=True).status("Measuring") as status,
        null_broker(topics={TOPIC: PARTITIONS}) as broker,
        scratch(given.folder) as folder,
    ):
        told = measure(given.only, broker, folder, rounds, scale, status.update)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    print_tables(told, Console(width=140))
    return 0


if __name__ == "__main__":
    sys.exit(main())
