"""Starts the measured process, and makes of two runs what one record costs.

Used by the command and by the test. Nothing here is measured.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.budget.modes import ALONE_OF, alone
from tests.budget.program import RECORDS, TRANSACTIONS, Counts

REPOSITORY: Final = Path(__file__).parents[2]
Figures = dict[str, dict[str, float]]
"""Per record: mode, then figure."""

WORLD: Final = "world.so"
_CALLGRIND_HEADER: Final = "#include <valgrind/callgrind.h>\n"


class CannotMeasureError(Exception):
    """Something that measuring needs is not here; the message says what."""


def frames() -> Figures:
    """Python frames and calls of C functions from them, per record."""
    return _plainly("frames")


def live() -> Figures:
    """Blocks, tracked objects and bytes per delivery that is kept."""
    return _plainly("live")


def frames_in_transaction() -> Figures:
    """As `frames()`, for the same records without a transaction and in one."""
    return _plainly("frames", TRANSACTIONS)


def instructions(keep: Path | None = None, *of: str) -> Figures:
    """Instructions per record.

    Args:
        *of: `TRANSACTIONS` for the same records without a transaction and in one; `SILENT` for all modes of a
            producer whose sensors keep nothing; else all modes.
        keep: A folder for callgrind's files, one a run, for `callgrind_annotate`: where the instructions go.

    Raises:
        CannotMeasureError: valgrind or its header is not installed.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotMeasureError("valgrind is not installed: instructions cannot be counted")
    with TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind"
        preloaded = Path(_world(has_callgrind=True).name) / WORLD
        counts = _run(
            [
                valgrind,
                "--quiet",
                "--tool=callgrind",
                "--instr-atstart=no",
                f"--callgrind-out-file={out}",
                sys.executable,
            ],
            "instructions",
            preloaded,
            *of,
        )
        dumped = {}
        for path in out.parent.glob("callgrind.*"):
            name, total = _read_dump(path)
            dumped[name] = total
            if keep is not None and name:
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, keep / f"callgrind.out.{name.replace(' ', '.')}")
    for name, figures in counts.items():
        figures["instructions"] = [dumped[f"{name} {size}"] for size in (RECORDS, 2 * RECORDS)]
    return _per_record(counts)


def _plainly(what: str, *of: str) -> Figures:
    preloaded = Path(_world(has_callgrind=False).name) / WORLD
    return _per_record(_run([sys.executable], what, preloaded, *of))


def _per_record(counts: Counts) -> Figures:
    sent = dict.fromkeys(counts, RECORDS) | {alone.__name__: RECORDS // ALONE_OF}
    return {
        name: {figure: (larger - smaller) / sent[name] for figure, (smaller, larger) in figures.items()}
        for name, figures in counts.items()
    }


def _run(command: list[str], what: str, preloaded: Path, *of: str) -> Counts:
    done = subprocess.run(
        [*command, "-m", "tests.budget.program", what, *of],
        cwd=REPOSITORY,
        # Nothing else of the environment: its size moves the stack, and some of it moves Python.
        env={
            "PATH": os.defpath,
            "LD_PRELOAD": str(preloaded),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            **{name: os.environ[name] for name in ("LD_LIBRARY_PATH", "VALGRIND_LIB") if name in os.environ},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    if done.returncode:
        raise RuntimeError(f"the measured process failed:\n{done.stdout}{done.stderr}")
    counts: Counts = json.loads(done.stdout)
    return counts


@functools.cache
def _world(*, has_callgrind: bool) -> TemporaryDirectory[str]:
    """The folder of what is preloaded, compiled once in a process: who writes files waits while a disk is busy."""
    if sys.platform != "linux":
        raise CannotMeasureError("a process's clock is replaced by LD_PRELOAD, which is Linux's")
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None:
        raise CannotMeasureError("there is no C compiler for the clock that is preloaded")
    if has_callgrind and not _compiles(compiler, _CALLGRIND_HEADER):
        raise CannotMeasureError("valgrind/callgrind.h is not installed: instructions cannot be counted")
    folder = TemporaryDirectory()
    options = ["-O2", "-shared", "-fPIC", *(["-DHAS_CALLGRIND"] if has_callgrind else [])]
    source = Path(__file__).with_name("world.c")
    subprocess.run([compiler, *options, str(source), "-o", str(Path(folder.name, WORLD))], check=True)
    return folder


@functools.cache
def _compiles(compiler: str, text: str) -> bool:
    tried = subprocess.run(
        [compiler, "-x", "c", "-fsyntax-only", "-"], input=text, text=True, capture_output=True, check=False
    )
    return tried.returncode == 0


def _read_dump(path: Path) -> tuple[str, float]:
    """The name that the program gave, and the instructions; the last file, of the end, has no name."""
    text = path.read_text()
    name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
    total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
    return (name[1] if name else "", float(total[1]) if total else 0.0)
