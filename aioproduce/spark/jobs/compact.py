"""The job `compact`: merges the small files of each hour.

It needs no JVM: pyarrow reads and writes Parquet in this process. Run it by cron, or after `land`.

Invariants:

1. It may be killed at any moment and run again, concurrently with `land` and readers (`compaction`).
2. An hour that cannot be compacted stays unchanged, is named in the summary, and fails the job after all others are
   done.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.spark.compaction import Compactor, Outcome, Policy, SafeBatches
from aioproduce.spark.errors import OptionError
from aioproduce.spark.jobs.progress import ProgressLine
from aioproduce.spark.jobs.running import ExitCode, Summary, add_repeated
from aioproduce.spark.jobs.selection import names_of
from aioproduce.spark.layout import Table
from aioproduce.spark.safety import safe_batches
from aioproduce.spark.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

HELP: Final = """Compact a lake: merge the small files of an hour into one, sorted by partition and offset.

Touches only batches that their query has committed and can never write again. May be killed and run again at any
moment, concurrently with land and readers. Needs no JVM; the lake must be on a local file system."""

SETTINGS: Final[dict[str, str]] = {}
NEEDS_CONNECTOR: Final = False
NEEDS_SPARK: Final = False

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_LEAST_SIZE: Final = 1 << 20


@final
@dataclass
class CompactSummary(Summary):
    """The result of a run.

    Attributes:
        lake: The lake.
        tables: The result for each table.
        planned: With `--dry-run`: by table and hour, how many files each group would merge.
    """

    job = "compact"
    lake: str
    tables: dict[str, Outcome] = field(default_factory=dict)
    planned: dict[str, dict[str, list[int]]] | None = None

    @property
    def exit_code(self) -> int:
        """Failed if an hour could not be compacted."""
        return ExitCode.FAILED if any(outcome.failed for outcome in self.tables.values()) else ExitCode.DONE

    def lines(self) -> Sequence[str]:
        """Return the summary for people."""
        lines = []
        for table, outcome in self.tables.items():
            if self.planned is None:
                lines += _done_lines(table, outcome)
            else:
                groups = [group for hour in self.planned[table].values() for group in hour]
                lines.append(f"{table}: {sum(groups):,} files would become {len(groups):,}")
            lines += [f"{table}: left alone: {n:,} batches {why}" for why, n in sorted(outcome.left.items())]
            lines += [f"{table}: failed: {hour}: {why}" for hour, why in sorted(outcome.failed.items())]
        lines.append(f"{self.lake}: {self.seconds:.1f} s")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the summary for programs."""
        told = super().to_json()
        for table, outcome in self.tables.items():
            told["tables"][table]["hours"] = sorted(outcome.hours)
        if self.planned is None:
            del told["planned"]
        return told


def _done_lines(table: str, outcome: Outcome) -> list[str]:
    lines = [
        f"{table}: {outcome.files_before:,} files became {outcome.compactions:,},"
        f" hours touched: {len(outcome.hours):,}, rows: {outcome.rows:,},"
        f" MB: {outcome.bytes_before / 1e6:,.1f} -> {outcome.bytes_after / 1e6:,.1f}"
    ]
    if outcome.resumed:
        lines.append(f"{table}: finished {outcome.resumed} that an earlier run had begun")
    if outcome.given_up:
        lines.append(
            f"{table}: undid {outcome.given_up} that an earlier run had begun and that cannot be finished"
        )
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    what = parser.add_argument_group("what")
    what.add_argument("--lake", required=True, metavar="DIR", help="the lake: a local directory")
    what.add_argument(
        "--table",
        action="append",
        choices=[str(table) for table in Table],
        help="only this table; may be repeated (default: all)",
    )
    what.add_argument("--topics", metavar="T,...", help="only these topics (default: all)")
    safe = parser.add_argument_group("safety")
    moved = "a checkpoint that was moved, or whose query is unknown to the lake"
    add_repeated(safe, "--checkpoint", "DIR", moved)
    add_repeated(safe, "--retired", "QUERY", "the id of a query whose checkpoint is gone for good")
    safe.add_argument(
        "--with-last",
        action="store_true",
        help="also each query's last committed batch: only after its files are safe from a power cut, and not if"
        " somebody deletes commits to repeat a batch",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--target-size",
        default="256m",
        metavar="SIZE",
        help="target size of a file: 64m, 1g, ... (default: 256m)",
    )
    how.add_argument(
        "--min-files",
        type=int,
        default=2,
        metavar="N",
        help="minimum number of files in an hour (default: 2)",
    )
    how.add_argument(
        "--memory", default="256m", metavar="SIZE", help="approximate memory for sorting (default: 256m)"
    )
    how.add_argument("--dry-run", action="store_true", help="report what would be done, and touch nothing")
    how.add_argument(
        "--repair",
        action="store_true",
        help="rebuild a damaged or lost manifest from the compacted files, and compact nothing else",
    )


def run(args: argparse.Namespace, spark: SparkSession | None) -> CompactSummary:  # noqa: ARG001
    """Compact each table.

    Raises:
        OptionError: If an argument is out of range.
        LayoutError: If the lake is not local, does not exist, or has a damaged manifest.
        CheckpointError: If a checkpoint cannot be read.
        CompactRunningError: If another compact is running.
    """
    policy = _policy(args)
    topics = names_of(args.topics, "--topics") or None

    def safe() -> SafeBatches:
        return safe_batches(
            args.lake, checkpoints=args.checkpoint, retired=args.retired, has_last=args.with_last
        )

    stores = {name: Store(args.lake, Table(name)) for name in args.table or [str(table) for table in Table]}
    lake = next(iter(stores.values())).root.parent
    if not lake.is_dir():
        raise OptionError(f"--lake {args.lake}: there is no such directory", option="--lake")
    # Invalid arguments are refused before anything is touched.
    safe()
    summary = CompactSummary(lake=str(lake), planned={} if args.dry_run else None)
    started_at = time.monotonic()
    with ProgressLine("compact", is_quiet=args.quiet or args.json) as line:
        for name, store in stores.items():
            compactor = Compactor(store, safe, policy)
            if args.repair:
                summary.tables[name] = compactor.repair()
            elif summary.planned is not None:
                planned, summary.tables[name] = compactor.plan(topics)
                summary.planned[name] = {
                    hour: [sum(len(each.files) for each in group) for group in groups]
                    for hour, groups in planned.items()
                }
            else:
                summary.tables[name] = compactor.run(
                    topics,
                    progress=lambda hour, outcome: line.show(
                        f"{hour}: {outcome.files_before:,} files became {outcome.compactions:,} so far"
                    ),
                )
    summary.seconds = time.monotonic() - started_at
    return summary


def _policy(args: argparse.Namespace) -> Policy:
    if args.min_files < 2:
        raise OptionError(f"--min-files is {args.min_files}, but must be at least 2", option="--min-files")
    return Policy(
        target_bytes=size_of(args.target_size, "--target-size"),
        min_files=args.min_files,
        memory_bytes=size_of(args.memory, "--memory"),
    )


def size_of(text: str, option: str) -> int:
    """Return the bytes of a size as people write it: `64m`, `1g`, `200000000`.

    Raises:
        OptionError: If it is not a size, or less than a mebibyte.
    """
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _UNITS[found[2].lower()] if found else 0
    if size < _LEAST_SIZE:
        raise OptionError(
            f"{option} is {text!r}, but must be a size of at least 1m, e.g. 64m or 1g", option=option
        )
    return size
