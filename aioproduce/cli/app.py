"""The commands and their options: what the user typed becomes a job, or an error that says what to type.

Called by `aioproduce.cli.main`. Imports typer; what a single command needs is imported when it runs.

Invariants:

1. Standard output has the result and nothing else, standard error has everything for people.
2. No expected error shows a traceback; an unexpected one does, since it is a bug.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from aioproduce import build_info
from aioproduce.cli.config_command import config
from aioproduce.cli.display import (
    as_json_line,
    complain,
    hushed_warnings,
    rendered,
    write_output,
)
from aioproduce.cli.exit_codes import EPILOG
from aioproduce.cli.help_texts import lay_out
from aioproduce.cli.look import add_commands as add_look_commands
from aioproduce.cli.options import (
    AsJson,
    Bootstrap,
    CheckedTopic,
    ConfigFile,
    Mechanism,
    Overrides,
    Password,
    Sasl,
    Timeout,
    Tls,
    User,
    WriteConfig,
    failure,
)
from aioproduce.cli.perf_command import PerfCommand, perf
from aioproduce.cli.send_command import send
from aioproduce.cli.settings import build_config
from aioproduce.cli.txn import add_commands as add_txn_commands
from aioproduce.errors import ConfigError, MissingExtraError

app = typer.Typer(
    name="aioproduce",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Send records to Kafka, and what helps with it.",
)


@app.callback(invoke_without_command=True, epilog=EPILOG)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version, and how it was built.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Log to standard error; twice for more. It comes before the command: aioproduce -v send.",
        ),
    ] = 0,
) -> None:
    """Send records to Kafka, and what helps with it."""
    if verbose:
        logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG)
    # A bare -v asks for the version, as with many programs: there is nothing else to be verbose about.
    if version or (verbose and context.invoked_subcommand is None):
        raise typer.Exit(write_output(f"{build_info()}\n"))


app.command(epilog=EPILOG)(send)
app.command(cls=PerfCommand, epilog=EPILOG)(perf)


@app.command(epilog=EPILOG)
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
    Nothing is written, and no topic is created. A bootstrap server that the cluster's metadata does not name may be
    down if another one answers.
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
    written = write_output(as_json_line(findings.as_json()) if as_json else rendered(findings_view(findings)))
    for line in problem_lines(findings):
        complain(line)
    raise typer.Exit(findings.exit_code or written)


app.command(epilog=EPILOG)(config)


@app.command(epilog=EPILOG)
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
    lay_out(app)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks must not end a run in a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(args=None if arguments is None else list(arguments), prog_name="aioproduce")
