"""`python -m benchmarks.evidence [--only ENTRY ...] [--short]`: measure the figures that the pages quote.

`python -m benchmarks.evidence tables`: write the pages' tables and plots again from the results, or `--check` them.
The exit code is 0 after success, 1 if an entry failed or a page is wrong, 2 for a wrong option, and 130 after
Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from benchmarks.evidence import blocks, pages, results, running, setting
from benchmarks.evidence.blocks import MissingResultError
from benchmarks.evidence.entries import ENTRIES, SHORT_MINUTES, Entry
from benchmarks.evidence.pages import Place
from benchmarks.evidence.running import Outcome

TABLES = "tables"
_IDLE_LOAD = 0.5


def main(arguments: list[str]) -> int:
    """Measure, or write the pages."""
    return _tables(arguments[1:]) if arguments[:1] == [TABLES] else _measure(arguments)


# -- measure ---


def _measure(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ENTRIES,
        metavar="ENTRY",
        help="run only these entries; --list names them",
    )
    parser.add_argument(
        "--short", action="store_true", help=f"run only entries of at most {SHORT_MINUTES:g} minutes"
    )
    parser.add_argument(
        "--again", action="store_true", help="run also entries whose results are of this code"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a trial with meaningless figures, kept in build/"
    )
    parser.add_argument(
        "--list", action="store_true", help="name the entries and their minutes, and run nothing"
    )
    options = parser.parse_args(arguments)
    chosen = [ENTRIES[name] for name in options.only or ENTRIES]
    chosen = [entry for entry in chosen if entry.is_short or not options.short]
    console = Console(stderr=True)
    folder = running.TRIALS if options.quick else results.FOLDER
    if options.list:
        _list(chosen, folder)
        return 0
    for warning in _warnings(is_quick=options.quick):
        console.print(warning, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        done = running.run_all(
            chosen, folder, console, again=options.again or options.quick, quick=options.quick
        )
    except KeyboardInterrupt:
        console.print("interrupted: what has a result is kept, and the next run goes on behind it")
        return 130
    counted = Counter(each.outcome for each in done)
    summary = ", ".join(f"{counted[outcome]} {outcome.value}" for outcome in Outcome if counted[outcome])
    seconds = sum(each.seconds for each in done)
    console.print(f"{len(done)} entries: {summary or 'none'}; {seconds / 60:,.0f} minutes; results: {folder}",
                  markup=False, highlight=False, soft_wrap=True)  # fmt: skip
    return 1 if counted[Outcome.FAILED] or counted[Outcome.ODD_EXIT] else 0


def _interrupt(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt, so that the running entry is ended first; a background process ignores Ctrl-C."""
    raise KeyboardInterrupt


def _warnings(*, is_quick: bool) -> list[str]:
    found: list[str] = []
    if is_quick:
        return found
    if changed := setting.changed():
        found.append(
            f"{len(changed)} files are not as committed ({changed[0]}, ...): the results will say so, and are "
            "measured again next time"
        )
    if (busy := os.getloadavg()[0]) > _IDLE_LOAD * (os.cpu_count() or 1):
        found.append(
            f"the load is {busy:.1f}: other work makes rates and latencies worse; the results tell it"
        )
    return found


def _list(entries: list[Entry], folder: Path) -> None:
    table = Table("entry", "minutes", "what", "result")
    for entry in entries:
        document = results.read(entry.name + setting.python_suffix(), folder)
        if document is None:
            state = "none"
        elif running.is_current(entry, folder):
            state = f"{document['began_at'][:10]}, up to date"
        else:
            state = f"{document['began_at'][:10]} at {document['commit'][:7]}, to be measured again"
        table.add_row(entry.name, f"{entry.minutes:g}", entry.title, state)
    Console().print(table)
    print(
        f"{len(entries)} entries, {sum(entry.minutes for entry in entries):,.0f} minutes on two quiet cores"
    )


# -- tables ---


def _tables(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.evidence {TABLES}")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a page differs from the results"
    )
    parser.add_argument(
        "--show", nargs="+", choices=blocks.BLOCKS, metavar="BLOCK", help="print these blocks instead"
    )
    parser.add_argument(
        "--add", type=Path, metavar="PAGE", help="first add to this page the blocks that no page has"
    )
    parser.add_argument(
        "--results", type=Path, default=results.FOLDER, help="with --show: the folder of the results"
    )
    options = parser.parse_args(arguments)
    place = Place()
    try:
        if options.show:
            for name in options.show:
                print(_shown(name, options.results))
            return 0
        if options.add:
            pages.add(options.add, place)
        if not options.check:
            print(*pages.write(place), sep="\n")
    except (MissingResultError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    wrong = pages.check(place)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def _shown(name: str, folder: Path) -> str:
    documents = blocks.documents_of(name, folder)
    return blocks.render(
        name, documents, setting.PLOTS, setting.RESULTS, lambda each: setting.commits_since(each["commit"])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
