"""`python -m tests.budget [--record] [KIND ...]`: measure, show next to the budget, and compare or record."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.budget import ledger, measure
from tests.budget.measure import CannotMeasureError, Figures

KINDS: Final = ("frames", "live", "instructions")


def main() -> int:
    """Run the command; the exit code says whether everything is within the budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget", description=__doc__)
    parser.add_argument("--record", action="store_true", help="make what is measured the budget")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep callgrind's files: callgrind_annotate FILE"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures for a program, and compare nothing"
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all by default")
    options = parser.parse_args()
    kinds: dict[str, Callable[[], Figures]] = {
        "frames": measure.frames,
        "live": measure.live,
        "instructions": partial(measure.instructions, options.keep),
    }
    if unknown := set(options.kinds) - set(kinds):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    found = []
    measured = {}
    for kind in options.kinds or KINDS:
        try:
            measured[kind] = figures = kinds[kind]()
        except CannotMeasureError as error:
            print(f"{kind}: not measured: {error}", file=sys.stderr)
            continue
        if options.json:
            continue
        print(f"\nper record, measured and budget: {kind}\n{ledger.table(kind, figures)}")
        if options.record:
            ledger.record(kind, figures)
        else:
            found += ledger.findings(kind, figures)
    if options.json:
        print(json.dumps(measured))
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
