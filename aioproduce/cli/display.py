"""Messages, progress bar and summary for the user.

Called by the commands. Standard output gets the result (the summary, or one JSON object) and nothing else. Messages
and the progress bar go to standard error.

Invariants:

1. If standard output cannot be written to, there is no traceback, and the exit code still reports the outcome of
   the records. If its reader is gone (`| head`), the command prints nothing, as others do. A closed output or a
   full disk is an error.
2. The bar is drawn on a terminal only. Elsewhere plain lines are printed on request, without cursor movements.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import sys
from abc import ABC, abstractmethod
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TextIO, final

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

from aioproduce.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from rich.console import RenderableType

    from aioproduce.cli.inputs import Input
    from aioproduce.cli.send import SendRun
    from aioproduce.cli.tally import Tally

_PICTURE: Final = 0.1
_LINE: Final = 5.0
_PICTURES_PER_COUNT: Final = 10


def complain(message: str) -> None:
    """Write a line for the user to standard error, if there is one."""
    if sys.stderr is None:
        return
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    """Discard the stream's buffer: at exit Python would write it again, and fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextlib.contextmanager
def hushed_warnings() -> Iterator[None]:
    """Hide the library's warnings during a call whose error names the cause anyway; not with --verbose."""
    logger = logging.getLogger("aioproduce")
    level = logger.level
    if not logging.getLogger().handlers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def write_output(text: str) -> ExitCode:
    """Write to standard output, and flush it.

    Returns:
        `DONE`; or, if that was not possible, the exit code of the command if nothing else is wrong.
    """
    if sys.stdout is None:
        complain("error: standard output is closed")
        return ExitCode.NO_OUTPUT
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
        return ExitCode.OUTPUT_CLOSED
    except OSError as error:
        _abandon(sys.stdout)
        complain(f"error: cannot write to standard output: {error.strerror or error}")
        return ExitCode.NO_OUTPUT
    return ExitCode.DONE


def rendered(content: RenderableType) -> str:
    """Return a rich object as text for standard output, with colour if that is a terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=is_terminal, width=None if is_terminal else 100)
    console.print(content)
    return buffer.getvalue()


def shows_bar() -> bool:
    """Return whether there is a terminal to draw a progress bar on."""
    return sys.stderr is not None and sys.stderr.isatty()


def summary_grid() -> Table:
    """Return an empty table of names, figures and remarks."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    return table


@final
class _BarConsole(Console):
    """A console whose broken pipe does not end the run, as that of rich's own class would."""

    def on_broken_pipe(self) -> None:
        """Stop drawing."""
        self.quiet = True


class ProgressBar(ABC):
    """A progress bar on standard error; plain lines if that is no terminal.

    Args:
        name: The name of the input.
        total: Its size; `None` if that is not known.
        columns: The columns between the bar and the time: columns of rich, or their text.
        seconds: Seconds between two pictures: drawing one takes about 2 ms of the loop that sends.
        **fields: The first values of the columns.
    """

    def __init__(
        self,
        name: str,
        total: float | None,
        columns: Sequence[str | ProgressColumn],
        *,
        seconds: float,
        **fields: Any,
    ) -> None:
        self._seconds = seconds
        self._texts = [column for column in columns if isinstance(column, str)]
        self._progress = Progress(
            _text("[bold]{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4)),
            *(_text(column) if isinstance(column, str) else column for column in columns),
            _text("[red]{task.fields[trouble]}"),
            TimeElapsedColumn(table_column=unwrapped()),
            console=_BarConsole(stderr=True),
            auto_refresh=False,
            expand=True,
            # The result's lines and the bar share the screen on a terminal only.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._task = self._progress.add_task(name, total=total, trouble="", **fields)

    @contextlib.asynccontextmanager
    async def drawn(self) -> AsyncIterator[None]:
        """Draw until the end of the context, then once more."""
        draw = self._draw() if shows_bar() else self._tell()
        drawing = asyncio.create_task(draw, name="aioproduce progress bar")
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.wait([drawing])

    async def _draw(self) -> None:
        with self._progress:
            try:
                while True:
                    self._picture()
                    await asyncio.sleep(self._seconds)
            finally:
                self._picture()

    async def _tell(self) -> None:
        try:
            while True:
                complain(self._line())
                await asyncio.sleep(_LINE)
        finally:
            complain(self._line())

    def _picture(self) -> None:
        self._progress.update(self._task, refresh=True, **self._fields())

    def _line(self) -> str:
        self._progress.update(self._task, **self._fields())
        [task] = self._progress.tasks
        words = [text.format(task=task) for text in self._texts]
        return ", ".join(filter(None, [task.description, *words, task.fields["trouble"]]))

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return the columns' values now, and `completed`."""


def unwrapped() -> Column:
    """Return a column that a narrow terminal cuts: a second line of the bar would leave traces."""
    return Column(no_wrap=True)


def _text(text: str) -> TextColumn:
    return TextColumn(text, table_column=unwrapped())


@final
class SendProgress(ProgressBar):
    """The progress bar of `aioproduce send`.

    Args:
        inputs: The inputs that are read.
        tally: The counts, which the bar also updates.
    """

    def __init__(self, inputs: Sequence[Input], tally: Tally) -> None:
        self._tally = tally
        self._pictures = 0
        self._acknowledged = 0
        sizes = [item.size for item in inputs]
        known = [size for size in sizes if size is not None]
        super().__init__(
            os.path.basename(inputs[0].name) if len(inputs) == 1 else f"{len(inputs)} inputs",
            sum(known) if len(known) == len(sizes) else None,
            [
                DownloadColumn(table_column=unwrapped()),
                "{task.fields[acknowledged]:,} acked {task.fields[rate]:,.0f}/s",
            ],
            seconds=_PICTURE,
            acknowledged=0,
            rate=0.0,
        )

    def _fields(self) -> dict[str, Any]:
        tally = self._tally
        tally.settle()
        acknowledged = tally.acknowledged
        if self._pictures % _PICTURES_PER_COUNT == 0:
            # Includes records settled behind one that waits: too expensive to count for each picture.
            acknowledged = tally.acknowledged_so_far
        self._pictures += 1
        self._acknowledged = max(self._acknowledged, acknowledged)
        trouble = tally.failed + tally.rejected
        return {
            "completed": tally.read_bytes,
            "acknowledged": self._acknowledged,
            "rate": self._acknowledged / tally.seconds if tally.seconds else 0.0,
            "trouble": f"{trouble:,} not sent" if trouble else "",
        }


def summary(run: SendRun, topic: str, acks: int) -> dict[str, Any]:
    """Return the summary that `--json` prints. Its keys are part of the interface."""
    tally = run.tally
    return {
        "topic": topic,
        "acks": acks,
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "failed": tally.failed,
        "possibly_written": tally.possibly_written,
        "rejected_lines": tally.rejected,
        "blank_lines": tally.blank,
        "left_out": tally.left_out,
        "bytes": tally.sent_bytes,
        "seconds": round(tally.seconds, 6),
        "records_per_second": round(tally.rate, 1),
        "latency_ms": tally.latency.summary(),
        "errors": dict(tally.errors),
        "causes": [
            {"what": what, "error": error, "cause": cause, "count": count}
            for (what, error, cause), count in tally.causes.most_common()
        ],
        "problems": [problem.as_json() for problem in tally.problems],
        "stopped_by": None if run.problem is None else run.problem.as_json(),
        "next_line": run.next_line_as_json(),
        "signal": None if run.signal is None else run.signal.name,
        "exit_code": int(run.exit_code),
    }


def summary_table(values: dict[str, Any]) -> Table:
    """Return the summary as a table for people."""
    table = summary_grid()
    table.add_row("sent", f"{values['sent']:,}", f"to {values['topic']}, {size_text(values['bytes'])}")
    without = "acks=0: written to a connection, no broker confirms" if values["acks"] == 0 else ""
    table.add_row("acknowledged", f"{values['acknowledged']:,}", without)
    maybe = values["possibly_written"]
    table.add_row("failed", f"{values['failed']:,}", f"{maybe:,} of them possibly written" if maybe else "")
    if values["rejected_lines"]:
        table.add_row("rejected lines", f"{values['rejected_lines']:,}", "not sent at all")
    if values["blank_lines"]:
        table.add_row("blank lines", f"{values['blank_lines']:,}", "skipped")
    if values["left_out"]:
        table.add_row("left out", f"{values['left_out']:,}", "possibly written by an earlier run")
    table.add_row("records/s", f"{values['records_per_second']:,.0f}", f"in {values['seconds']:.3f} s")
    latency = values["latency_ms"]
    if latency is not None:
        how = f"from send() to acknowledgement, {latency['samples']:,} records measured"
        table.add_row("p50 latency", f"{latency['p50']:,.1f} ms", how)
        table.add_row("p99 latency", f"{latency['p99']:,.1f} ms", f"at most {latency['max']:,.1f} ms")
    return table


def tell_problems(run: SendRun) -> None:
    """Report to standard error the first problems with their lines, then how many records failed of each cause."""
    tally = run.tally
    told = list(tally.problems)
    if run.problem is not None and run.problem not in told:
        told.append(run.problem)
    for (source, message), same in groupby(told, lambda problem: (problem.source, problem.message)):
        complain(f"error: {_place_of(source, [problem.line for problem in same])}{message}")
    if tally.failed + tally.rejected > len(tally.problems):
        for (what, error, cause), count in tally.causes.most_common():
            of = "records failed" if what == "failed" else "lines were rejected"
            complain(f"error: in total {count:,} {of}: {error}: {cause}")


def _place_of(source: str | None, lines: Sequence[int | None]) -> str:
    """Return the place of a problem, for the beginning of a message."""
    if source is None:
        return ""
    return f"{source}, line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}: "


def as_json_line(values: object) -> str:
    """Return one line of JSON."""
    return json.dumps(values) + "\n"


def size_text(count: int) -> str:
    """Return a number of bytes for people."""
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= limit:
            return f"{count / limit:,.1f} {unit}"
    return f"{count} bytes"
