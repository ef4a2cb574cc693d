"""Common to all jobs: arguments, the signals that end them, the summary, and the exit codes.

Used by `aioproduce.spark.__main__` and `submit`.

Invariants:

1. Standard output has only the summary: lines for people, or one JSON document with `--json`. (`alert` first prints
   its alerts, one per line.) Progress and errors go to standard error.
2. Ctrl-C and SIGTERM end a job in order: committed work stays, the rest is repeated by the next run.
3. An error is one line with the remedy, and the exit code; with `--traceback` it is only the traceback.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast, final

from aioproduce.errors import ProducerError
from aioproduce.spark.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import FrameType

    from pyspark.sql import SparkSession


class ExitCode(IntEnum):
    """The outcome of a job."""

    DONE = 0
    """The job is done; an audit found nothing missing and nothing twice."""
    FAILED = 1
    """The job failed, and the error says why; it can be run again."""
    BAD_INPUT = 2
    """Wrong usage, or arguments that are refused before anything is touched."""
    FINDINGS = 3
    """The job is done, and found problems: an audit with loss or duplicates."""
    INTERRUPTED = 130
    """Ended by SIGINT (Ctrl-C)."""
    TERMINATED = 143
    """Ended by SIGTERM."""


@dataclass(kw_only=True)
class Summary:
    """The summary of a job.

    Attributes:
        seconds: How long it took.
    """

    job: ClassVar[str]
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """One of `ExitCode`, unless the job has its own codes."""
        return ExitCode.DONE

    def lines(self) -> Sequence[str]:
        """Return the summary for people."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the summary for programs, as a value for `json.dumps`."""
        return {"job": self.job, **asdict(self), "seconds": round(self.seconds, 3)}


class Job(Protocol):
    """A module of `jobs` that implements a job."""

    HELP: str
    SETTINGS: dict[str, str]
    NEEDS_CONNECTOR: bool

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the job's arguments."""

    def run(self, args: argparse.Namespace, spark: SparkSession) -> Summary:
        """Run the job."""


class JobInterrupted(BaseException):
    """A signal came before there was a session, or again; like KeyboardInterrupt it is not an `Exception`."""


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every job, in their own group."""
    group = parser.add_argument_group("Spark and output")
    group.add_argument("--master", help="where Spark runs; default: spark-submit's, else local[*]")
    add_repeated(group, "--conf", "KEY=VALUE", "a setting of Spark's")
    jars = "jars to add, for example of Spark's Kafka connector: a file, a folder or a URL"
    add_repeated(group, "--jars", "PLACE", jars)
    group.add_argument("--packages", help="Maven coordinates of jars to add, as for spark.jars.packages")
    group.add_argument("--json", action="store_true", help="print the summary as a line of JSON")
    group.add_argument("--quiet", action="store_true", help="no progress line")
    group.add_argument("--traceback", action="store_true", help="show where an error came from")


def add_repeated(group: argparse._ActionsContainer, option: str, metavar: str, what: str) -> None:
    """Add an option that may be repeated, and collects a list."""
    group.add_argument(option, action="append", default=[], metavar=metavar, help=f"{what}; may be repeated")


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse arguments of the form KEY=VALUE.

    Raises:
        OptionError: If one has no `=`, or no key.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            # Without its text: the value may be a password whose `=` was forgotten.
            raise OptionError(f"{option} must be KEY=VALUE, as in {option} name=value", option=option)
        found[key.strip()] = value
    return found


def run_job(name: str, job: Job, args: argparse.Namespace) -> int:
    """Run a job in its own session, print its summary, and return the exit code."""
    from aioproduce.spark.jobs.session import job_session

    ending = Ending()
    try:
        with ending, contextlib.ExitStack() as stack:
            # `compact` never needs one, nor does `audit` of a small lake: no JVM is started then.
            needs_spark = getattr(job, "needs_spark", lambda _: getattr(job, "NEEDS_SPARK", True))
            if needs_spark(args):
                session = job_session(
                    name,
                    job.SETTINGS,
                    master=args.master,
                    own=pairs_of(args.conf, "--conf"),
                    jars=args.jars,
                    packages=args.packages,
                    needs_connector=job.NEEDS_CONNECTOR,
                )
                ending.session = stack.enter_context(session)
            summary = job.run(args, cast("SparkSession", ending.session))
    except (Exception, JobInterrupted) as error:
        if ending.number is None:
            # A job whose exit codes report findings has a different one for its own failure.
            failed = getattr(job, "FAILED_EXIT_CODE", ExitCode.FAILED)
            return _tell(error, failed, with_traceback=args.traceback)
    if ending.number is not None:
        name_of_signal = signal.Signals(ending.number).name
        print(f"ended by {name_of_signal}; the next run continues from here", file=sys.stderr)
        return 128 + ending.number
    text = json.dumps(summary.to_json(), sort_keys=True) if args.json else "\n".join(summary.lines())
    print(text, flush=True)
    return int(summary.exit_code)


def _tell(error: BaseException, failed: int, *, with_traceback: bool) -> int:
    if with_traceback or not is_told(error):
        # Not raised: Python would exit with 1, which for an audit means lost records.
        traceback.print_exception(error)
    else:
        print(f"error: {message_of(error)}", file=sys.stderr)
    return ExitCode.BAD_INPUT if isinstance(error, ValueError) else int(failed)


def is_told(error: BaseException) -> bool:
    """Return whether a user can do something about an error: ours and Spark's, but not bugs of this program."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, ProducerError | PySparkException | Py4JError | OSError)


def message_of(error: BaseException) -> str:
    """Return an error's message, without the tracebacks of the two languages that it passed through."""
    text = str(error)
    # One of our errors, raised in a callback of Spark's: the last line of its traceback.
    own = [line for line in text.splitlines() if line.lstrip().startswith("aioproduce.spark.errors.")]
    if own:
        return own[-1].partition(": ")[2]
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = f"{java.getClass().getSimpleName()}: {java.getMessage()}"
    # Spark's stream errors end with the whole plan.
    return text.partition("\n\nJVM stacktrace")[0].partition("\n=== Streaming Query ===")[0].strip()


@final
class Ending:
    """Handles SIGINT and SIGTERM during a job; use it as a context manager in the main thread.

    A signal does not raise within a call into the JVM, because the next call would then read its answer. Instead a
    separate thread stops the session, and the current call fails by itself.

    Attributes:
        number: The signal that came; `None` if none came.
        session: The session to stop; `None` before there is one, when the signal raises `JobInterrupted`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.session: SparkSession | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        is_first, self.number = self.number is None, number
        if self.session is None or not is_first:
            raise JobInterrupted(signal.Signals(number).name)
        # Nothing is raised within a py4j call, because the next call would read its answer. The call fails when the
        # session stops.
        threading.Thread(target=_end, args=(self.session,), name="job-ending", daemon=True).start()


def _end(session: SparkSession) -> None:
    for query in session.streams.active:
        query.stop()
    session.sparkContext._jsc.sc().stop()
