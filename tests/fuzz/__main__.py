"""`python -m tests.fuzz [--seconds N] [TARGET ...]`: fuzz each target in turn, and print what came of it.

The exit code is 1 if a target's invariant was broken. Ctrl-C ends the run with the table of what was done.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import campaign
from tests.fuzz.target import NAMES, load

_TELL_SECONDS = 5.0


def main() -> int:
    """Run the command."""
    options = _options()
    if options.replay:
        return _replay(*options.replay)
    reason = campaign.missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        reports = _fuzz(options, Path(scratch) if options.folder is None else options.folder)
    print(campaign.table(reports), file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps([_plain(report) for report in reports], indent=2))
    for report in reports:
        if not report.is_well:
            print(f"\n{report.describe()}", file=sys.stderr)
    return 0 if all(report.is_well for report in reports) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, metavar="N", help="for each target; 60 by default"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the engine's choices; new by default"
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON, the table on stderr")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="keep what is found there, and go on from it the next time",
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="then make each corpus again, of at most so many inputs"
    )
    parser.add_argument(
        "--largest",
        type=int,
        default=300,
        metavar="BYTES",
        help="with --keep: no larger inputs; 300 by default",
    )
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "HEX"), help="try one input, without atheris")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(NAMES)}; all by default")
    options = parser.parse_args()
    wanted = [*options.targets, *(options.replay or [])[:1]]
    if unknown := set(wanted) - set(NAMES):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    return options


def _fuzz(options: argparse.Namespace, folder: Path) -> list[campaign.Report]:
    reports = []
    try:
        for name in options.targets or NAMES:
            place = folder / name
            report = campaign.fuzz(
                name, place, seconds=options.seconds, seed=options.seed, tell=_Progress(name).tell
            )
            reports.append(report)
            if options.keep and report.is_well:
                from tests.fuzz import distil

                # Nobody reads what is logged of so many lives; a child has silenced its own.
                logging.getLogger("aioproduce").setLevel(logging.CRITICAL)
                kept = distil.keep(name, place / "found", most=options.keep, largest=options.largest)
                print(f"{name}: {len(kept)} inputs kept", file=sys.stderr)
    except KeyboardInterrupt:
        print("ended early", file=sys.stderr)
    return reports


class _Progress:
    """A line to stderr now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_at = time.monotonic()

    def tell(self, runs: int, edges: int) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + _TELL_SECONDS
            print(f"{self._name}: {runs:,} executions, {edges:,} edges", file=sys.stderr)


def _replay(name: str, content: str) -> int:
    load(name).run(bytes.fromhex(content))
    print(f"{name}: nothing is wrong with these {len(content) // 2} bytes")
    return 0


def _plain(report: campaign.Report) -> dict[str, object]:
    fields = dataclasses.asdict(report)
    fields["crash"] = None if report.crash is None else report.crash.hex()
    return fields


if __name__ == "__main__":
    sys.exit(main())
