"""The commands: from a command line to a job, or to an error that names the remedy.

Called by `aioproduce.cli.main`. It imports typer. Each command imports the rest when it runs.

Invariants:

1. Standard output gets the result and nothing else. Standard error gets everything for people.
2. No expected error shows a traceback; an unexpected one does, since it is a bug.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Final

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
from aioproduce.cli.spool import add_commands as add_spool_commands
from aioproduce.cli.txn import add_commands as add_txn_commands
from aioproduce.errors import ConfigError, MissingExtraError

app: Final = typer.Typer(
    name="aioproduce",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Send records to Kafka, and test and observe a producer.",
)


@app.callback(invoke_without_command=True, epilog=EPILOG)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and the build.")] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Log to standard error; twice for more. Give it before the command: aioproduce -v send.",
        ),
    ] = 0,
) -> None:
    """Send records to Kafka, and test and observe a producer."""
    if verbose:
        logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG)
    # -v alone shows the version, as in many programs: without a command there is nothing to log.
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
    """Try every broker, and report at which step one fails, and why.

    The steps are resolve, connect, tls, versions, login and metadata. With a topic there is one more, authorize:
    may this client write to it? The check writes nothing and creates no topic. A bootstrap server may be down if
    another one answers and the cluster's metadata does not name it.
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
    brokers: Annotated[int, typer.Option(min=1, max=100, help="The number of brokers.")] = 3,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_435, help="The first broker's port; the others take the next ones. 0: free ports."
        ),
    ] = 9092,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="NAME[:PARTITIONS]", help="A topic to create at the start; repeatable."
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=1, help="The number of partitions of a topic that names none.")
    ] = 6,
    has_tls: Tls = False,
    mechanism: Sasl = None,
    user: User = None,
    password: Password = None,
    write_config: WriteConfig = None,
    as_json: AsJson = False,
) -> None:
    """Run a Kafka cluster in memory on loopback, until Ctrl-C. For development: all data is lost at the end.

    With --tls or --sasl it writes the settings that clients need to a file, for their --config. Only its owner may
    read the file.
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
add_spool_commands(app)


def run(arguments: Sequence[str] | None) -> None:
    """Run a command, and raise `SystemExit`."""
    lay_out(app)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks must not end a run with a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(args=None if arguments is None else list(arguments), prog_name="aioproduce")
