"""`python -m benchmarks.partitioners [--full]`: three experiments, a table and a panel each.

They run in parallel, in processes, each with its own virtual clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.partitioners import balance
from benchmarks.partitioners.experiments import RECORDS, RUNS, Row

_console = Console(stderr=True)


TITLES = {
    "batching": "KIP-480: 3 producers of {:,} records, 1,000/s each, 16 partitions",
    "slow_broker": "KIP-794: {:,} records, 2,048/s, 3 partitions, one broker takes 20 ms longer",
    "balance": "{:,} keyless records over 4 partitions; of 380,000 was published: "
    + "{:,} to {:,}".format(*balance.PUBLISHED),
}


# Short enough for all columns of a table to fit in `WIDTH`; `--json` has everything.
HEADINGS = {
    "linger_ms": "linger\n.ms",
    "mean_ms": "mean\nms",
    "p50_ms": "p50\nms",
    "p99_ms": "p99\nms",
    "published_mean_ms": "published\nmean, ms",
    "published_p99_ms": "published\np99, ms",
    "records_per_request": "records\n/request",
    "by_broker": "brokers'\nshares, %",
    "by_partition": "by partition",
    "spread_percent": "spread, %",
}
LEFT_OUT = {
    "batching": {"by_partition", "records_per_second"},
    "slow_broker": {"by_partition", "records_per_second", "p50_ms"},
    "balance": set(),
}
WIDTH = 100


def table_of(name: str, rows: list[Row], records: int) -> Table:
    """Return an experiment's table, at most `WIDTH` columns wide."""
    table = Table(title=TITLES[name].format(records), title_justify="left")
    columns = [column for column in rows[0] if column not in LEFT_OUT[name]]
    for column in columns:
        justify: Literal["left", "right"] = "left" if isinstance(rows[0][column], str) else "right"
        table.add_column(HEADINGS.get(column, column), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(shown(column, row[column]) for column in columns))
    return table


def shown(column: str, value: Any) -> str:
    if column == "by_broker":
        return " ".join(f"{100 * each / sum(value):.0f}" for each in value)
    if isinstance(value, list):
        return " ".join(f"{each:,}" for each in value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return value if isinstance(value, str) else f"{value:,}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitioners", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="as many records as in the publications: minutes")
    parser.add_argument("--records", type=int, help="this number of records instead, in each run")
    parser.add_argument("--only", choices=RUNS, action="append", help="run only this experiment")
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument("--plot", type=Path, help="also draw them, .svg or .png; needs the extra 'bench'")
    arguments = parser.parse_args()
    if arguments.records is not None and arguments.records < balance.AT_ONCE:
        parser.error(f"--records: at least {balance.AT_ONCE:,}")
    began = time.monotonic()
    results: dict[str, list[Row]] = {}
    # In new processes: a simulation replaces the clock and the sockets of its process.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        wanted = [name for name in RUNS if name in (arguments.only or RUNS)]
        records = {name: arguments.records or RECORDS[name][arguments.full] for name in wanted}
        running = {name: pool.submit(RUNS[name], arguments.seed, records[name]) for name in wanted}
        for name, outcome in running.items():
            with _console.status(TITLES[name].format(records[name])):
                results[name] = outcome.result()
            if not arguments.json:
                console = Console(width=None if sys.stdout.isatty() else WIDTH)
                console.print(table_of(name, results[name], records[name]))
    if arguments.plot is not None:
        from benchmarks.partitioners.plot import draw

        draw(arguments.plot, results)
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "records": records, "experiments": results}))
    else:
        print(
            f"seed {arguments.seed}, {time.monotonic() - began:.0f} s; the same seed gives the same figures"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
