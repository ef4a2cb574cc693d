"""What all jobs share: their common arguments, the signals that end them, the summary, and what exit codes mean.

Called by `aioproduce.spark.__main__` and `submit`.

Invariants:

1. Standard output has the summary and nothing else: lines for people, or one JSON document with `--json`. (What
   `alert` tells as it comes is before it, a line each.)
   Progress and errors go to standard error.
2. Ctrl-C and SIGTERM end a job in order: what is committed stays, what is not is done again by the next run.
3. An error is one line that says what to do, and the exit code; with `--traceback` it is all there is.
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
    """It did what it was to do; an audit found nothing missing and nothing twice."""
    FAILED = 1
    """It could not, and says why; it can be run again."""
    BAD_INPUT = 2
    """Wrong usage, or arguments that are refused before anything is touched."""
    FINDINGS = 3
    """It did, and what it looked for is there: an audit that found loss or duplicates."""
    INTERRUPTED = 130
    """Ended by SIGINT (Ctrl-C)."""
    TERMINATED = 143
    """Ended by SIGTERM."""


@dataclass(kw_only=True)
class Summary:
    """What a job tells at its end.

    Attributes:
        seconds: How long it took.
    """

    job: ClassVar[str]
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """One of `ExitCode`, unless the job has codes of its own."""
        return ExitCode.DONE

    def lines(self) -> Sequence[str]:
        """For people."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """For programs; what `json.dumps` takes."""
        return {"job": self.job, **asdict(self), "seconds": round(self.seconds, 3)}


class Job(Protocol):
    """A module of `jobs` that is one."""

    HELP: str
    SETTINGS: dict[str, str]
    NEEDS_CONNECTOR: bool

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what it takes."""

    def run(self, args: argparse.Namespace, spark: SparkSession) -> Summary:
        """Do it."""


class JobInterrupted(BaseException):
    """A signal came before there was a session, or for the second time; like KeyboardInterrupt no `Exception`."""


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every job takes, in a group of their own."""
    group = parser.add_argument_group("Spark and output")
    group.add_argument("--master", help="where Spark runs; default: spark-submit's, else local[*]")
    add_repeated(group, "--conf", "KEY=VALUE", "a setting of Spark's")
    jars = "jars to add, for example of Spark's Kafka connector: a file, a folder or a URL"
    add_repeated(group, "--jars", "PLACE", jars)
    group.add_argument(
        "--packages", help="Maven coordinates of jars to add, as spark.jars.packages takes them"
    )
    group.add_argument("--json", action="store_true", help="print the summary as a line of JSON")
    group.add_argument("--quiet", action="store_true", help="no progress line")
    group.add_argument("--traceback", action="store_true", help="show where an error came from")


def add_repeated(group: argparse._ActionsContainer, option: str, metavar: str, what: str) -> None:
    """Add an option that may be given several times, and makes a list."""
    group.add_argument(option, action="append", default=[], metavar=metavar, help=f"{what}; may be repeated")


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """Read arguments of the shape KEY=VALUE.

    Raises:
        OptionError: one has no `=`, or no key.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            # Not its text: the value may be a password with the `=` forgotten.
            raise OptionError(f"{option} takes KEY=VALUE, as in {option} name=value", option=option)
        found[key.strip()] = value
    return found


def run_job(name: str, job: Job, args: argparse.Namespace) -> int:
    """Run a job in a session of its own, and print its summary; gives the exit code."""
    from aioproduce.spark.jobs.session import job_session

    ending = Ending()
    try:
        with ending, contextlib.ExitStack() as stack:
            # `compact` says that it needs none, and `audit` of a small lake: no JVM is started then.
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
            # A job whose exit codes say what it found has another one for that it could not look.
            failed = getattr(job, "FAILED_EXIT_CODE", ExitCode.FAILED)
            return _tell(error, failed, with_traceback=args.traceback)
    if ending.number is not None:
        name_of_signal = signal.Signals(ending.number).name
        print(f"ended by {name_of_signal}; the next run goes on from here", file=sys.stderr)
        return 128 + ending.number
    text = json.dumps(summary.to_json(), sort_keys=True) if args.json else "\n".join(summary.lines())
    print(text, flush=True)
    return int(summary.exit_code)


def _tell(error: BaseException, failed: int, *, with_traceback: bool) -> int:
    if with_traceback or not is_told(error):
        # Not raised: Python would end with 1, which of an audit says that records are lost.
        traceback.print_exception(error)
    else:
        print(f"error: {message_of(error)}", file=sys.stderr)
    return ExitCode.BAD_INPUT if isinstance(error, ValueError) else int(failed)


def is_told(error: BaseException) -> bool:
    """Whether an error is one that a user can do something about: ours and Spark's, but no bug of this program."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, ProducerError | PySparkException | Py4JError | OSError)


def message_of(error: BaseException) -> str:
    """What an error says, without the traces of the two languages that it came through."""
    text = str(error)
    # An error of ours that was raised in a callback of Spark's: the last line of its traceback.
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
    """SIGINT and SIGTERM during a job; use as a context manager in the main thread.

    A signal does not raise in the midst of a call into the JVM, whose answer would then be taken for that of the
    next one. It ends what the session does, from a thread of its own, and the call under way fails by itself.

    Attributes:
        number: The signal that came; `None` so far.
        session: What it is to end; `None` before there is one, when the signal raises `JobInterrupted`.
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
        # Nothing is raised in the midst of a py4j call: the next call would read its answer. The call fails when
        # the session stops.
        threading.Thread(target=_end, args=(self.session,), name="job-ending", daemon=True).start()


def _end(session: SparkSession) -> None:
    for query in session.streams.active:
        query.stop()
    session.sparkContext._jsc.sc().stop()
