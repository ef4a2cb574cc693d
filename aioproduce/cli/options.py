"""The options of the commands: names, values, help texts; and the end of a command that an error stops.

The command functions import them as the types of their parameters, as typer requires.
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aioproduce.cli.display import complain
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.failed_records import PossiblyWritten
from aioproduce.cli.settings import ENVIRONMENT


class LineFormat(StrEnum):
    """The format of the input's lines."""

    LINES = "lines"
    JSON = "json"


class OnError(StrEnum):
    """The reaction to a line that cannot be sent or a record that is not acknowledged."""

    STOP = "stop"
    SKIP = "skip"


class Mechanism(StrEnum):
    """The login of clients of `aioproduce dev`, by Kafka's names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


def failure(error: object, exit_code: ExitCode = ExitCode.BAD_INPUT) -> typer.Exit:
    """Report the error, and return the exception that ends the command, for the caller to raise."""
    complain(f"error: {error}")
    return typer.Exit(exit_code)


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number that can be used here")
    return value


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", envvar=ENVIRONMENT, metavar="HOST:PORT,...", help="Brokers to try first."
    ),
]
ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="A Java .properties file with producer keys.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="Any producer key, e.g. -X linger.ms=20 (see `config`)."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.0,
        callback=_finite,
        metavar="SECONDS",
        help="The longest wait for the cluster; with send and perf also for acknowledgements after Ctrl-C.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, for programs.")]
Topic = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
CheckedTopic = Annotated[
    str | None, typer.Argument(help="A topic to check: may this client write to it?", show_default=False)
]
Files = Annotated[
    list[str] | None,
    typer.Argument(help="Files to send line by line; - or none is standard input.", show_default=False),
]
Format = Annotated[
    LineFormat | None,
    typer.Option(
        "--format",
        help="lines: the default. json: each line must be a JSON object, and is sent unchanged.",
        show_default=False,
    ),
]
KeyField = Annotated[
    str | None,
    typer.Option(metavar="A.B", help="Take the key from this field of each line; implies --format json."),
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help=r"The key ends at the first TEXT of each line. \t is a tab, \xNN a byte, \\ a backslash.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Send all records to this partition.")
]
Compression = Annotated[
    str | None,
    typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
]
Acks = Annotated[
    str | None, typer.Option(metavar="ACKS", help="How many replicas must have a record: all, 1 or 0.")
]
Rate = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.001, callback=_finite, help="At most N records per second."),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="If a line cannot be sent or a record fails: stop, or skip and count it.",
    ),
]
FailedTo = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write each record that fails and each line that is refused to this new file, for --from-failed.",
    ),
]
FromFailed = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Send the records in a file of --failed-to instead of FILES."),
]
PossiblyWrittenOption = Annotated[
    PossiblyWritten | None,
    typer.Option(
        "--possibly-written",
        help="With --from-failed: send or skip records that may be in the log already.",
        show_default=False,
    ),
]
FromLine = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Begin at line N of the first file, where an earlier run stopped."),
]
ProgressFlag = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show a bar, by default on a terminal; elsewhere --progress prints a line every 5 s.",
        show_default=False,
    ),
]
Tls = Annotated[
    bool, typer.Option("--tls", help="Use TLS, with an authority and certificates made for this run.")
]
Sasl = Annotated[
    Mechanism | None,
    typer.Option(
        "--sasl",
        case_sensitive=False,
        metavar="MECHANISM",
        help=f"Clients must log in: {', '.join(Mechanism)}.",
        show_default=False,
    ),
]
User = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --sasl: the user (developer).", show_default=False),
]
Password = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="With --sasl: the password. Other users of this machine can see it. By default a new one.",
        show_default=False,
    ),
]
WriteConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Write the clients' settings to this file; by default, with --tls or --sasl, to a temporary one.",
        show_default=False,
    ),
]
