"""Run entries one after the other, and keep their results. Called by `__main__`.

1. An entry whose result is of the same product and the same program is not run again.
2. An entry that fails is reported, and the next one runs. Only its JSON counts: a program that misses a target and
   reports this by its exit code has a result, with that code in it.
3. A program's output goes to a separate log, and its last line is shown while it runs.
4. A program is ended with its process group: after Ctrl-C, or after ten times its normal time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, final
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.evidence import results, setting
from benchmarks.evidence.entries import Entry
from benchmarks.evidence.results import Document

LOGS: Final = setting.REPOSITORY / "build" / "evidence"
TRIALS: Final = LOGS / "trials"
_POLL: Final = 0.2
_PATIENCE: Final = 10.0
_LEAST_MINUTES: Final = 10.0
_END: Final = 30.0
_TAIL: Final = 20


class EntryError(Exception):
    """An entry has no result; the text says why, with the end of its log."""


class Outcome(Enum):
    """The outcome of an entry."""

    MEASURED = "measured"
    ODD_EXIT = "measured, but its exit code reports a miss"
    CURRENT = "up to date"
    FAILED = "failed"


@final
@dataclass(frozen=True, slots=True)
class Done:
    """The end of an entry: its outcome, and why."""

    entry: Entry
    outcome: Outcome
    seconds: float = 0.0
    why: str = ""


def is_current(entry: Entry, folder: Path) -> bool:
    """Return whether there is a result of this product and program, from a clean tree and a successful run."""
    document = results.read(entry.name + setting.python_suffix(), folder)
    return (
        document is not None
        and document["is_clean"]
        and document["exit_code"] == entry.exit_code
        and document["command"] == ["python", *entry.command]
        and setting.is_unchanged_since(document["commit"], entry.command)
    )


def run_all(
    entries: Sequence[Entry], folder: Path, console: Console, *, again: bool, quick: bool
) -> list[Done]:
    """Run them in order.

    Args:
        entries: The entries.
        folder: The folder of the results.
        console: The console for the bar, and for a line for each entry.
        again: Whether to run also entries with a current result.
        quick: Whether to run trials, with each entry's quick options.
    """
    done: list[Done] = []
    columns = (
        *(TextColumn("{task.description:>24}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")),
        *(
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[line]}"),
        ),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("evidence", total=sum(entry.minutes for entry in entries), line="")
        for number, entry in enumerate(entries, 1):
            progress.update(bar, description=f"{number} of {len(entries)}: {entry.name}", line="")
            done.append(
                _one(entry, folder, lambda line: progress.update(bar, line=line), again=again, quick=quick)
            )
            progress.advance(bar, entry.minutes)
            progress.console.print(line_of(done[-1]), markup=False, highlight=False, soft_wrap=True)
    return done


def _one(entry: Entry, folder: Path, show: Callable[[str], object], *, again: bool, quick: bool) -> Done:
    if not again and is_current(entry, folder):
        return Done(entry, Outcome.CURRENT)
    began = time.monotonic()
    try:
        document = run(entry, show, quick=quick)
    except EntryError as error:
        return Done(entry, Outcome.FAILED, time.monotonic() - began, str(error))
    results.write(document, folder)
    code = document["exit_code"]
    seconds = time.monotonic() - began
    if code != entry.exit_code:
        return Done(
            entry, Outcome.ODD_EXIT, seconds, f"exit code {code}; {log_of(entry)} has what it printed"
        )
    return Done(entry, Outcome.MEASURED, seconds)


def line_of(done: Done) -> str:
    """Return an entry's end in a line, and the cause of a failure in some more lines."""
    took = f" ({done.seconds:,.0f} s)" if done.seconds else ""
    why = f": {done.why}" if done.why else ""
    return f"{done.entry.name}: {done.outcome.value}{took}{why}"


def log_of(entry: Entry) -> Path:
    """Return the path of an entry's log."""
    return LOGS / f"{entry.name}.log"


def run(entry: Entry, show: Callable[[str], object], *, quick: bool) -> Document:
    """Run an entry from start to end, and make its result.

    Raises:
        EntryError: if it printed no figures, or does not end.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    file = LOGS / f"{entry.name}.out"
    file.unlink(missing_ok=True)
    command, changed = [*entry.command, *(entry.quick if quick else ())], setting.changed()
    places = {"{json}": str(file), "{junit}": str(file)}
    document: Document = {
        "name": entry.name + setting.python_suffix(),
        "title": entry.title,
        "command": ["python", *command],
        "environment": dict(entry.environment),
        "commit": setting.commit(),
        "is_clean": not changed,
        "changed": changed,
        "began_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": setting.machine(),
        "load_before": setting.load(),
    }
    began = time.monotonic()
    words = [sys.executable, *(places.get(word, word) for word in command)]
    printed = _output(words, entry, show)
    document |= {
        "seconds": round(time.monotonic() - began, 1),
        "load_after": setting.load(),
        "exit_code": printed[0],
        "versions": setting.versions(),
    }
    try:
        document["figures"] = figures = _figures(entry, printed[1], file)
        document["medians"] = entry.medians(figures)
        for key in entry.left_out:
            del figures[key]
    except (OSError, ValueError, LookupError, TypeError, ElementTree.ParseError) as error:
        raise EntryError(
            f"no figures (exit code {printed[0]}, {type(error).__name__}: {error}); the end of {log_of(entry)}:\n"
            + "\n".join(log_of(entry).read_text(errors="replace").splitlines()[-_TAIL:])
        ) from error
    return document


def _output(words: list[str], entry: Entry, show: Callable[[str], object]) -> tuple[int, str]:
    """Return the exit code and standard output of a program; its other output is in its log."""
    until = time.monotonic() + 60 * max(_LEAST_MINUTES, _PATIENCE * entry.minutes)
    out = LOGS / f"{entry.name}.stdout"
    with out.open("wb") as stdout, log_of(entry).open("wb") as log:
        process = subprocess.Popen(
            words,
            cwd=setting.REPOSITORY,
            env={**os.environ, **entry.environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=log,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if time.monotonic() > until:
                    raise EntryError(f"it did not end; {log_of(entry)} has what it printed")
                show(_last_line(log_of(entry)))
                time.sleep(_POLL)
        finally:
            if process.poll() is None:
                _end(process)
    return process.returncode, out.read_text(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program and its child processes to end, and kill those that do not."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END)
            return


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 500))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip()[:60] for line in reversed(lines) if line.strip()), "")


def _figures(entry: Entry, printed: str, file: Path) -> Any:
    """Return a program's figures, from its file or from its output."""
    if "{json}" in entry.command:
        return json.loads(file.read_text(encoding="utf-8"))
    if "{junit}" in entry.command:
        return _of_junit(file)
    return last_json(printed)


def last_json(printed: str) -> Any:
    """Return the JSON document at the end of a program's output; a child may have printed before it.

    Raises:
        ValueError: if the output does not end with one.
    """
    lines = printed.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line[:1] in "[{":
            with suppress(ValueError):
                return json.loads("".join(lines[number:]))
    raise ValueError("the output does not end with JSON")


def _of_junit(file: Path) -> dict[str, Any]:
    """Return how many tests passed, and the properties that they recorded.

    Raises:
        ValueError: if one did not pass, or none ran.
    """
    root = ElementTree.parse(file).getroot()
    counts = {name: sum(int(suite.get(name, 0)) for suite in root.iter("testsuite"))
              for name in ("tests", "failures", "errors", "skipped")}  # fmt: skip
    if not counts["tests"] or counts["failures"] or counts["errors"] or counts["skipped"]:
        raise ValueError(f"not all tests passed: {counts}")
    properties = {each.get("name", ""): float(each.get("value", "")) for each in root.iter("property")}
    return {**counts, "properties": properties}
