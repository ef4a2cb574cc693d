"""The commands and their options: what the user typed becomes a job, or an error that says what to type.

Called by `aioproduce.cli.main`. Imports typer; what a single command needs is imported when it runs.

Invariants:

1. Standard output has the result and nothing else, standard error has everything for people.
2. No expected error shows a traceback; an unexpected one does, since it is a bug.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aioproduce import build_info
from aioproduce.cli.display import (
    SendProgress,
    as_json_line,
    complain,
    hushed_warnings,
    rendered,
    shows_bar,
    summary,
    summary_table,
    tell_problems,
    write_output,
)
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.inputs import STDIN_NAME, InputError, find_inputs
from aioproduce.cli.line_format import LineParser, json_lines, keyed_lines
from aioproduce.cli.look import add_commands as add_look_commands
from aioproduce.cli.options import (
    Acks,
    AsJson,
    Bootstrap,
    CheckedTopic,
    Compression,
    ConfigFile,
    Files,
    Format,
    Headers,
    KeyField,
    KeySeparator,
    LineFormat,
    Mechanism,
    OnError,
    OnErrorOption,
    Overrides,
    Partition,
    Password,
    ProgressFlag,
    Rate,
    Sasl,
    Timeout,
    Tls,
    Topic,
    User,
    WriteConfig,
    failure,
)
from aioproduce.cli.perf_command import PerfCommand, perf
from aioproduce.cli.settings import build_config, parse_headers, parse_separator
from aioproduce.cli.txn import add_commands as add_txn_commands
from aioproduce.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from aioproduce.cli.send import SendJob, SendRun
    from aioproduce.config import Key

app: Final = typer.Typer(
    name="aioproduce",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Send records to Kafka, and what helps with it.",
)

_EXIT_CODES = """
Exit codes: 0 every record is acknowledged; 1 one was not, or no broker or topic could be reached; 2 wrong usage,
configuration or input (what was sent before the bad line is acknowledged); 130 ended by Ctrl-C and 143 by SIGTERM,
with everything sent until then acknowledged.
"""

_CHECK_EXIT_CODES = """
Exit codes: 0 every broker can be reached; 1 one cannot, or the topic is not there; 2 wrong usage or configuration;
3 it fails at TLS; 4 at the login; 5 this client may not write to the topic. A bootstrap server that no metadata
names may be down where another one answers.
"""


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version, and how it was built.")
    ] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log to standard error; twice for more.")
    ] = 0,
) -> None:
    """Send records to Kafka, and what helps with it."""
    if verbose:
        logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG)
    if version:
        write_output(f"{build_info()}\n")
        raise typer.Exit(ExitCode.DONE)


@app.command(epilog=_EXIT_CODES)
def send(
    topic: Topic,
    files: Files = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    line_format: Format = LineFormat.LINES,
    key_field: KeyField = None,
    key_separator: KeySeparator = None,
    headers: Headers = None,
    partition: Partition = None,
    compression: Compression = None,
    acks: Acks = None,
    rate: Rate = None,
    on_error: OnErrorOption = OnError.STOP,
    timeout: Timeout = 10.0,
    progress: ProgressFlag = None,
    as_json: AsJson = False,
) -> None:
    """Send the lines of files, or of standard input, as records.

    A line is what stands between newlines, as bytes, unchanged. Nothing is sent before files, cluster and topic
    are known to be there. Ctrl-C stops reading, waits (--timeout) for what was sent, and reports; a second one
    does not wait.
    """
    from aioproduce.cli.send import SendJob

    try:
        job = SendJob(
            topic=topic,
            parse=_line_parser(line_format, key_field, key_separator),
            headers=parse_headers(headers or []) or None,
            config=build_config(
                bootstrap=bootstrap,
                file=config_file,
                overrides=overrides or [],
                options={"compression.type": compression, "acks": acks},
                client_id="aioproduce-send",
            ),
            inputs=find_inputs(files or []),
            partition=partition,
            skips=on_error is OnError.SKIP,
            rate=rate,
            timeout=timeout,
        )
    except (ConfigError, InputError) as error:
        raise failure(error) from None
    if any(item.path is None for item in job.inputs) and sys.stdin.isatty():
        complain(f"reading {STDIN_NAME} from the terminal: one record per line, Ctrl-D ends")
    run = asyncio.run(_send(job, shows_progress=progress))
    tell_problems(run)
    values = summary(run, topic, job.config.acks)
    if as_json:
        write_output(as_json_line(values))
    elif run.tally.sent or run.problem is None:
        write_output(rendered(summary_table(values)))
    raise typer.Exit(run.exit_code)


async def _send(job: SendJob, *, shows_progress: bool | None) -> SendRun:
    from aioproduce.cli.send import SendRun

    run = SendRun(job, complain)
    # A bar over what is being typed would be in the way.
    is_typed = any(item.path is None for item in job.inputs) and sys.stdin.isatty()
    is_shown = shows_bar() and not is_typed if shows_progress is None else shows_progress
    async with (
        SendProgress(job.inputs, run.tally, is_forced=shows_progress is True).drawn()
        if is_shown
        else contextlib.nullcontext()
    ):
        await run.run()
    return run


def _line_parser(
    line_format: LineFormat, key_field: str | None, key_separator: str | None
) -> LineParser | None:
    if line_format is LineFormat.JSON:
        if key_separator is not None:
            raise ConfigError("--key-separator is for --format lines; with --format json use --key-field")
        try:
            return json_lines(key_field)
        except ValueError as error:
            raise ConfigError(f"--key-field: {error}") from error
    if key_field is not None:
        raise ConfigError("--key-field needs --format json; for plain lines there is --key-separator")
    return None if key_separator is None else keyed_lines(parse_separator(key_separator))


app.command(cls=PerfCommand)(perf)


@app.command(epilog=_CHECK_EXIT_CODES)
def check(
    topic: CheckedTopic = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Try every broker, and say at which step one cannot be reached, and why.

    The steps: resolve, connect, tls, versions, login, metadata, and with a topic authorize: may we write to it?
    Nothing is written, and no topic is created.
    """
    from aioproduce.cli.check import examine
    from aioproduce.cli.check_view import findings_view, problem_lines

    try:
        config = build_config(
            bootstrap=bootstrap,
            file=config_file,
            overrides=overrides or [],
            options={},
            client_id="aioproduce-check",
        )
        with hushed_warnings():
            findings = asyncio.run(examine(config, topic, timeout))
    except (ConfigError, MissingExtraError) as error:
        raise failure(error) from None
    is_written = write_output(
        as_json_line(findings.as_json()) if as_json else rendered(findings_view(findings))
    )
    for line in problem_lines(findings):
        complain(line)
    exit_code = findings.exit_code
    raise typer.Exit(exit_code if is_written or exit_code else ExitCode.NOT_ACKNOWLEDGED)


@app.command()
def config(as_json: AsJson = False) -> None:
    """Show every producer key: type, default, values, and what it does."""
    from aioproduce.config import KEYS, markdown_page

    text = as_json_line([_key_row(key) for key in KEYS.values()]) if as_json else markdown_page()
    raise typer.Exit(ExitCode.DONE if write_output(text) else ExitCode.NOT_ACKNOWLEDGED)


def _key_row(key: Key) -> dict[str, Any]:
    has_default = key.default is None or isinstance(key.default, (str, int, float))
    return {
        "key": key.name,
        "type": key.kind.label,
        "default": key.default if has_default else None,
        "allowed": key.kind.allowed,
        "is_refused": key.is_refused,
        "text": key.text,
    }


@app.command()
def dev(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 3,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65_435, help="Of the first broker, the others follow; 0 takes free ones."),
    ] = 9092,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME[:PARTITIONS]", help="Created at the start; repeatable."),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Of topics that do not say how many.")] = 6,
    has_tls: Tls = False,
    mechanism: Sasl = None,
    user: User = None,
    password: Password = None,
    write_config: WriteConfig = None,
    as_json: AsJson = False,
) -> None:
    """Run a Kafka cluster in memory on loopback, until Ctrl-C. For development: all is lost at the end.

    With --tls or --sasl it writes a file with what clients need, for their --config. Only its owner may read it.
    """
    from aioproduce.cli.dev import parse_topics, run_dev
    from aioproduce.cli.dev_access import make_access

    try:
        at_start = parse_topics(topics or [], partitions)
    except ValueError as error:
        raise failure(error) from None
    if mechanism is Mechanism.PLAIN and not has_tls:
        complain(
            "warning: --sasl PLAIN without --tls sends the password unencrypted: add --tls, or use SCRAM"
        )
    try:
        access = make_access(
            has_tls=has_tls, mechanism=mechanism, user=user, password=password, path=write_config
        )
        ended = asyncio.run(run_dev(brokers, host, port, at_start, partitions, access, as_json=as_json))
    except (ConfigError, MissingExtraError) as error:
        raise failure(error) from None
    raise typer.Exit(ended)


add_look_commands(app)
add_txn_commands(app)


def run(arguments: Sequence[str] | None) -> None:
    """Run a command; ends by `SystemExit`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks must not end a run in a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(args=None if arguments is None else list(arguments), prog_name="aioproduce")
