"""`python -m aioproduce.spark <job> ...`: the jobs of the pipeline, each with `--help`.

A job's module is imported on demand, and Spark when the job runs.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from aioproduce.errors import MissingExtraError
from aioproduce.spark.requirements import check_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

JOBS: Final = {
    "land": "Kafka -> lake: Parquet by topic, date and hour",
    "audit": "lost, duplicated or conflicting records of a lake",
    "compact": "lake: merge the small files of an hour",
    "replay": "lake -> Kafka, through the sink",
    "alert": "gaps and duplicates, reported while records arrive",
}
"""Each job is the module of that name in `aioproduce.spark.jobs`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job.

    Args:
        arguments: The arguments after the program's name; `sys.argv` by default.

    Returns:
        The exit code: `jobs.running.ExitCode`.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    chooser = argparse.ArgumentParser(prog="aioproduce.spark", description="The data pipeline on Spark.")
    jobs = "\n".join(f"  {name:9} {what}" for name, what in JOBS.items())
    chooser.formatter_class = argparse.RawDescriptionHelpFormatter
    chooser.epilog = f"jobs:\n{jobs}\n\n`<job> --help` lists the options of each."
    chooser.add_argument("job", choices=JOBS, metavar="job", help="one of the jobs below")
    name: str = chooser.parse_args(given[:1]).job
    try:
        return _run(name, given[1:])
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(name: str, arguments: Sequence[str]) -> int:
    check_extra(f"aioproduce.spark {name}")
    from aioproduce.spark.jobs import running

    job = cast("running.Job", cast("Any", import_module(f"aioproduce.spark.jobs.{name}")))
    parser = argparse.ArgumentParser(
        prog=f"aioproduce.spark {name}",
        description=job.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job.add_arguments(parser)
    running.add_common_arguments(parser)
    return running.run_job(name, job, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
