"""`aioproduce spool`: look into the queue on disk of a `SpooledProducer`, check it, repair it, send dead letters.

Called by `app`, which adds the commands. The package `aioproduce.spool` does the work, `spool_view` makes the
tables, `spool_replay` sends.

Invariants:

1. `stat`, `verify` and `dump` write nothing, and work while a producer uses the queue.
2. `repair` and `compact` refuse a queue that is in use.
3. What cannot be made again (`compact --quarantine`) is removed only after a confirmation.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aioproduce.cli.display import as_json_line, complain, rendered, shows_bar, write_output
from aioproduce.cli.exit_codes import EPILOG, ExitCode, exit_code_of
from aioproduce.cli.options import AsJson, Bootstrap, ConfigFile, Overrides, ProgressFlag, Timeout, failure
from aioproduce.cli.settings import build_config
from aioproduce.errors import ConfigError, MissingExtraError, SpoolDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproduce.spool.queue_files import QueueFiles

_LINES: Final = 500
_ID_SIZE: Final = 24

spool: Final = typer.Typer(
    name="spool",
    no_args_is_help=True,
    help="Look into the queue on disk of a SpooledProducer, and repair it.",
)

Directory = Annotated[
    Path,
    typer.Argument(help="The directory of a SpooledProducer, or of one of its queues.", show_default=False),
]
OnlyTopic = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="Only this topic.", show_default=False)
]
IsDry = Annotated[bool, typer.Option("--dry-run", help="Write nothing; show what would be done.")]


def add_commands(app: typer.Typer) -> None:
    """Add `spool` with its commands."""
    app.add_typer(spool)


@contextmanager
def _expected_errors() -> Iterator[None]:
    """End the command with the exit code of an expected error."""
    try:
        yield
    except (SpoolDirectoryError, ConfigError, MissingExtraError) as error:
        raise failure(error, exit_code_of(error)) from None
    except sqlite3.Error as error:
        raise failure(f"the table of dead letters: {error}", ExitCode.NOT_ACKNOWLEDGED) from None
    except OSError as error:
        raise failure(
            f"{error.filename or ''}: {error.strerror or error}", ExitCode.NOT_ACKNOWLEDGED
        ) from None


def _queues(directory: Path) -> list[QueueFiles]:
    from aioproduce.spool.queue_files import find_queues

    return find_queues(directory)


@spool.command(epilog=EPILOG)
def stat(directory: Directory, as_json: AsJson = False) -> None:
    """Show what is in each queue: records that wait, since when, bytes, dead letters.

    It works while a producer uses the queue, and takes no longer with a large one: it reads the heads of a few
    batches. So it looks for no damage; `verify` does.
    """
    from aioproduce.cli.spool_view import stat_as_json, stat_text
    from aioproduce.spool.inspection import look_at

    stats = []
    exit_code = ExitCode.DONE
    with _expected_errors():
        for queue in _queues(directory):
            try:
                stats.append(look_at(queue))
            except SpoolDirectoryError as error:
                complain(f"error: {error}")
                exit_code = exit_code_of(error)
    for problem in (problem for each in stats for problem in each.problems):
        complain(f"error: {problem}")
        exit_code = exit_code or ExitCode.NOT_ACKNOWLEDGED
    found = stat_as_json(stats, time.time())
    written = write_output(as_json_line(found) if as_json else stat_text(found))
    raise typer.Exit(exit_code or written)


@spool.command(epilog=EPILOG)
def verify(directory: Directory, progress: ProgressFlag = None, as_json: AsJson = False) -> None:
    """Read everything, check every checksum, and show what is damaged: files, places and offsets.

    The exit code is 1 if anything is damaged. A torn batch at the end of a log is not damage: it was being written
    when its process ended. Damage that is in the quarantine already is shown, and does not count.

    It writes nothing, and works while a producer uses the queue.
    """
    from aioproduce.cli.spool_verify import verify_all
    from aioproduce.cli.spool_view import verified_as_json, verified_text

    is_shown = shows_bar() if progress is None else progress
    with _expected_errors():
        results, stopped_by = asyncio.run(verify_all(_queues(directory), shows_progress=is_shown))
    if stopped_by is not ExitCode.DONE:
        complain("not all of it was read")
    written = write_output(as_json_line(verified_as_json(results)) if as_json else verified_text(results))
    damaged = ExitCode.DONE if all(each.is_clean for each in results) else ExitCode.NOT_ACKNOWLEDGED
    raise typer.Exit(damaged or stopped_by or written)


@spool.command(epilog=EPILOG)
def dump(
    directory: Directory,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.", show_default=False)] = None,
    from_offset: Annotated[int, typer.Option(min=0, metavar="N", help="The first offset.")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="At most N records.", show_default=False)
    ] = None,
    waits: Annotated[
        bool, typer.Option("--waiting", help="Only records that are not acknowledged yet.")
    ] = False,
    dead: Annotated[bool, typer.Option("--dead-letters", help="Dead letters instead, with reasons.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per record, for programs.")
    ] = False,
) -> None:
    """Print the records on disk: topic, offset, time, id, key, value, headers.

    What is not UTF-8 is {"base64": "..."}. It works while a producer uses the queue.
    """
    from aioproduce.cli.spool_dump import dead_letter_rows, record_rows
    from aioproduce.cli.spool_view import row_line

    if dead and (from_offset or waits):
        raise failure("--from-offset and --waiting are for records that are no dead letters: leave them out")
    problems: list[str] = []
    with _expected_errors():
        queues = _queues(directory)
        if dead:
            rows = dead_letter_rows(queues, topic)
        else:
            if topic is not None and not any(each.log(topic) for each in queues):
                raise failure(f"no queue in {directory} has a log of {topic!r}", ExitCode.NOT_ACKNOWLEDGED)
            rows = record_rows(queues, topic, from_offset=from_offset, waits=waits, problems=problems)
        written = _write_lines(map(as_json_line if as_json else row_line, islice(rows, limit)))
        rows.close()
    for problem in problems:
        complain(f"error: {problem}")
    raise typer.Exit(ExitCode.NOT_ACKNOWLEDGED if problems else written)


def _write_lines(lines: Iterable[str]) -> ExitCode:
    """Write lines in groups, until the output takes no more."""
    lines = iter(lines)
    while group := "".join(islice(lines, _LINES)):
        written = write_output(group)
        if written is not ExitCode.DONE:
            return written
    return ExitCode.DONE


@spool.command(epilog=EPILOG)
def replay(
    directory: Directory,
    topic: OnlyTopic = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="HEX", help="Only the dead letter with this id, as `dump` shows it; repeatable."
        ),
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Send them to this topic, not to their own.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = 10.0,
    progress: ProgressFlag = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, with the same ids, and remove each after its acknowledgement.

    Those that fail again stay where they are. It works while a producer uses the queue.
    """
    from aioproduce.cli.display import summary_grid
    from aioproduce.cli.spool_replay import ReplayJob, ReplayProgress, ReplayRun

    with _expected_errors():
        config = build_config(
            bootstrap=bootstrap,
            file=config_file,
            overrides=overrides or [],
            options={"max.block.ms": str(int(timeout * 1000))},
            client_id="aioproduce-spool",
        )
        if config.acks == 0 or config.transactional_id is not None:
            raise failure(
                "acks=0 and transactional.id: a dead letter is removed when it is acknowledged; leave them out"
            )
        job = ReplayJob(
            queues=_queues(directory),
            topic=topic,
            ids=[_id(each) for each in ids or ()],
            to_topic=to_topic,
            config=config,
            timeout=timeout,
        )
        total = job.total()
        if not total:
            complain("there is no such dead letter")
        run = ReplayRun(job, complain)
        is_shown = shows_bar() if progress is None else progress
        if total:
            asyncio.run(_run(run, ReplayProgress(run, total) if is_shown else None))
    if run.problem is not None:
        complain(f"error: {run.problem}")
    values = run.as_json()
    missing = ExitCode.NOT_ACKNOWLEDGED if job.ids and total < len(set(job.ids)) else ExitCode.DONE
    table = summary_grid()
    table.add_row("acknowledged", f"{run.acknowledged:,}", "sent again, and removed from the dead letters")
    table.add_row("failed", f"{run.failed:,}", "still dead letters" if run.failed else "")
    written = write_output(as_json_line(values) if as_json else rendered(table))
    raise typer.Exit(run.exit_code or missing or written)


async def _run(run: Any, bar: Any) -> None:
    async with contextlib.nullcontext() if bar is None else bar.drawn():
        await run.run()


def _id(text: str) -> bytes:
    try:
        parsed = bytes.fromhex(text)
    except ValueError:
        parsed = b""
    if len(parsed) != _ID_SIZE:
        raise ConfigError(
            f"--id {text!r} is not {2 * _ID_SIZE} hexadecimal digits: `dump --dead-letters` shows ids"
        )
    return parsed


@spool.command(epilog=EPILOG)
def repair(
    directory: Directory,
    has_new_id: Annotated[
        bool,
        typer.Option("--new-id", help="If the id of a queue is lost, make another one."),
    ] = False,
    is_dry: IsDry = False,
    as_json: AsJson = False,
) -> None:
    """Cut torn batches, copy damaged bytes to the quarantine, and write lost descriptions and positions again.

    It removes no record that is whole. No producer may use the queue. With a new id, a record that was sent before
    and is sent again has another id than the first time.

    The exit code is 1 if something is left to do by hand.
    """
    from aioproduce.cli.spool_view import repaired_as_json, repaired_text
    from aioproduce.spool.repairing import Repair
    from aioproduce.spool.repairing import repair as repair_queue

    repaired, exit_code = _for_each_queue(
        directory, lambda queue: repair_queue(queue, has_new_id=has_new_id, is_dry=is_dry)
    )
    if any(isinstance(each, Repair) and not each.is_done for done in repaired.values() for each in done):
        exit_code = exit_code or ExitCode.NOT_ACKNOWLEDGED
    written = write_output(
        as_json_line(repaired_as_json(repaired, is_dry=is_dry))
        if as_json
        else repaired_text(repaired, is_dry=is_dry)
    )
    raise typer.Exit(exit_code or written)


@spool.command(epilog=EPILOG)
def compact(
    directory: Directory,
    has_quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Also remove the damaged bytes in the quarantine.")
    ] = False,
    is_confirmed: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove segments whose records are all acknowledged, reserved room, leftovers, and room in the dead letters.

    No producer may use the queue. The files that have the positions stay: they keep ids from being used again.
    """
    from aioproduce.cli.spool_view import compacted_as_json, compacted_text
    from aioproduce.spool.compacting import compact as compact_queue

    if has_quarantine and not is_confirmed:
        complain(
            f"The damaged bytes in the quarantine of {directory} cannot be made again. Remove them? [y/N]"
        )
        answer = "" if sys.stdin is None else sys.stdin.readline()
        if answer.strip().lower() not in {"y", "yes"}:
            raise failure(
                "nothing was removed: it was not confirmed (--yes does not ask)", ExitCode.NOT_ACKNOWLEDGED
            )
    compacted, exit_code = _for_each_queue(
        directory, lambda queue: compact_queue(queue, has_quarantine=has_quarantine)
    )
    written = write_output(
        as_json_line(compacted_as_json(compacted)) if as_json else compacted_text(compacted)
    )
    raise typer.Exit(exit_code or written)


def _for_each_queue(
    directory: Path, change: Callable[[QueueFiles], Iterator[Any]]
) -> tuple[dict[str, list[Any]], ExitCode]:
    """Change each queue, and return what was done to each, also to one that an error stopped."""
    done: dict[str, list[Any]] = {}
    exit_code = ExitCode.DONE
    with _expected_errors():
        for queue in _queues(directory):
            steps = done.setdefault(queue.path, [])
            try:
                steps.extend(change(queue))
            except SpoolDirectoryError as error:
                complain(f"error: {error}")
                exit_code = exit_code or exit_code_of(error)
            except sqlite3.Error as error:
                complain(f"error: {queue.dead_letters}: {error}")
                exit_code = exit_code or ExitCode.NOT_ACKNOWLEDGED
    return done, exit_code
