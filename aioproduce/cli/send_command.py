"""`aioproduce send`: from its options to a job, and the report at the end.

Called by `app`. Standard output gets the result and nothing else; everything for people goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shlex
import sys
from typing import TYPE_CHECKING, Final

import typer

from aioproduce.cli.display import (
    SendProgress,
    as_json_line,
    complain,
    rendered,
    shows_bar,
    summary,
    summary_table,
    tell_problems,
    write_output,
)
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.inputs import STDIN_NAME, InputError, find_inputs
from aioproduce.cli.line_format import json_lines, keyed_lines
from aioproduce.cli.options import (
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    ConfigFile,
    FailedTo,
    Files,
    Format,
    FromFailed,
    FromLine,
    Headers,
    KeyField,
    KeySeparator,
    LineFormat,
    OnError,
    OnErrorOption,
    Overrides,
    Partition,
    PossiblyWrittenOption,
    ProgressFlag,
    Rate,
    Timeout,
    Topic,
    failure,
)
from aioproduce.cli.settings import build_config, parse_headers, parse_separator
from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.cli.failed_records import FailedRecord
    from aioproduce.cli.line_format import LineParser
    from aioproduce.cli.send import SendJob, SendRun

_IN_THE_FILE: Final = ("FILES", "--format", "--key-field", "--key-separator", "--header", "--partition")
"""Options whose values a file of `--failed-to` has for each record."""
_GARBAGE_EVERY: Final = 50_000


def send(
    topic: Topic,
    files: Files = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    line_format: Format = None,
    key_field: KeyField = None,
    key_separator: KeySeparator = None,
    headers: Headers = None,
    partition: Partition = None,
    compression: Compression = None,
    acks: Acks = None,
    rate: Rate = None,
    on_error: OnErrorOption = OnError.STOP,
    failed_to: FailedTo = None,
    from_failed: FromFailed = None,
    possibly_written: PossiblyWrittenOption = None,
    from_line: FromLine = 1,
    timeout: Timeout = 10.0,
    progress: ProgressFlag = None,
    as_json: AsJson = False,
) -> None:
    """Send the lines of files, or of standard input, as records.

    A line is the bytes between two newlines, unchanged. Blank lines (empty, or only white space) are skipped and
    counted, in every format. Nothing is sent before files, cluster and topic have been found.

    Ctrl-C stops reading, waits at most --timeout for the acknowledgement of the records sent, and reports. A second
    Ctrl-C ends the wait.

    To continue a run that failed: --failed-to keeps every record that failed, --from-failed sends these again, and
    --from-line continues with the rest of the input. docs/how-to/send-files.md has an example.
    """
    from aioproduce.cli.failed_records import FailedFile
    from aioproduce.cli.send import SendJob

    try:
        given = (files, line_format, key_field, key_separator, headers, partition)
        restore = _restorer(topic, from_failed, possibly_written, on_error, given)
        parse = _line_parser(line_format, key_field, key_separator)
        parsed_headers = parse_headers(headers or []) or None
        config = build_config(
            bootstrap=bootstrap,
            file=config_file,
            overrides=overrides or [],
            options={"compression.type": compression, "acks": acks},
            client_id="aioproduce-send",
        )
        job = SendJob(
            topic=topic,
            inputs=find_inputs(files or [] if from_failed is None else [from_failed]),
            from_line=from_line,
            parse=parse,
            restore=restore,
            headers=parsed_headers,
            config=config,
            partition=partition,
            skips=on_error is OnError.SKIP,
            rate=rate,
            timeout=timeout,
            failed_to=None if failed_to is None else FailedFile(failed_to, topic),
        )
    except (ConfigError, InputError) as error:
        raise failure(error) from None
    _perform(job, shows_progress=progress, as_json=as_json)


def _perform(job: SendJob, *, shows_progress: bool | None, as_json: bool) -> None:
    """Send, report, and end the process."""
    if job.failed_to is not None:
        # Every record that waits is kept for the file. The garbage collector's passes over them took a quarter of
        # the processor time.
        gc.set_threshold(_GARBAGE_EVERY)
    is_typed = any(item.path is None for item in job.inputs) and sys.stdin.isatty()
    if is_typed:
        complain(f"reading {STDIN_NAME} from the terminal: one record per line, Ctrl-D ends")
    run = asyncio.run(_send(job, shows_progress=shows_progress, is_typed=is_typed))
    tell_problems(run)
    if not is_typed:
        _report_missing(job, run)
    values = summary(run, job.topic, job.config.acks)
    written = ExitCode.DONE
    if as_json:
        written = write_output(as_json_line(values))
    elif run.tally.sent or run.problem is None:
        written = write_output(rendered(summary_table(values)))
    raise typer.Exit(run.exit_code or written)


async def _send(job: SendJob, *, shows_progress: bool | None, is_typed: bool) -> SendRun:
    from aioproduce.cli.send import SendRun

    run = SendRun(job, complain)
    # A bar would hide the lines that the user types.
    is_shown = shows_bar() and not is_typed if shows_progress is None else shows_progress
    async with SendProgress(job.inputs, run.tally).drawn() if is_shown else contextlib.nullcontext():
        await run.run()
    return run


def _report_missing(job: SendJob, run: SendRun) -> None:
    """Report after an incomplete run what is missing, and how to send it."""
    topic = shlex.quote(job.topic)
    failed = job.failed_to
    if failed is not None and failed.written:
        count = run.tally.failed + run.tally.rejected
        complain(
            f"{count:,} records or lines that failed are in {failed.path}. To send them again: "
            f"aioproduce send {topic} --from-failed {shlex.quote(failed.path)}"
        )
    if run.next_line is None or not run.tally.sent + run.tally.rejected:
        return
    place, number = run.next_line
    name, *rest = [item.name for item in job.inputs[place:]]
    after = f", and nothing of {', '.join(rest)}" if rest else ""
    complain(f"not sent: {name} from line {number:,} on{after}. To continue there: --from-line {number}")


def _line_parser(
    line_format: LineFormat | None, key_field: str | None, key_separator: str | None
) -> LineParser | None:
    if line_format is LineFormat.JSON or (line_format is None and key_field is not None):
        if key_separator is not None:
            raise ConfigError("--key-separator is for --format lines; with JSON use --key-field")
        try:
            return json_lines(key_field)
        except ValueError as error:
            raise ConfigError(f"--key-field: {error}") from error
    if key_field is not None:
        raise ConfigError("--key-field needs --format json; for plain lines there is --key-separator")
    return None if key_separator is None else keyed_lines(parse_separator(key_separator))


def _restorer(
    topic: str,
    path: str | None,
    possibly_written: PossiblyWrittenOption,
    on_error: OnError,
    given: tuple[object, ...],
) -> Callable[[bytes], FailedRecord] | None:
    """Check the file of `--from-failed`, and return the function that makes a line of it a record.

    Returns:
        The function; `None` without that option.
    """
    from aioproduce.cli.failed_records import check_failed_file, failed_records

    if path is None:
        if possibly_written is not None:
            raise ConfigError("--possibly-written needs --from-failed: give both")
        return None
    names = [name for name, value in zip(_IN_THE_FILE, given, strict=True) if value not in (None, [])]
    if names:
        raise ConfigError(
            f"{', '.join(names)}: leave it out, the file of --from-failed has it for each record"
        )
    restore = failed_records(topic, possibly_written)
    check_failed_file(path, restore, skips=on_error is OnError.SKIP)
    return restore
