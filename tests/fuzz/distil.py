"""Chooses from many inputs the few that together reach what all of them reach: what is kept in the repository.

Called by `python -m tests.fuzz --keep`. Reach is counted in pairs of lines of `aioproduce` that ran one after the
other, by Python's own tracing: the compiled hot path is not seen.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

import aioproduce
from tests.fuzz.target import CORPUS, Target, corpus_of, load

_PACKAGE: Final = str(Path(aioproduce.__file__).parent)
_COMPILED_READER: Final = "<reader of "

Reach: TypeAlias = frozenset[tuple[CodeType, int, int]]


def reach_of(run: Callable[[bytes], None], data: bytes) -> Reach:
    """The pairs of lines that one input reaches."""
    pairs: set[tuple[CodeType, int, int]] = set()
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith((_PACKAGE, _COMPILED_READER)):
            return None
        if event == "return":
            last.pop(frame, None)
        else:
            pairs.add((code, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(before)
    return frozenset(pairs)


def chosen(target: Target, inputs: Iterable[bytes], most: int) -> list[bytes]:
    """At most so many inputs; the shortest first, as long as each reaches what those before it do not."""
    kept: list[bytes] = []
    reached: set[tuple[CodeType, int, int]] = set()
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        target.run(data)  # what is done once only (imports, compiled readers) is not this input's
        reach = reach_of(target.run, data)
        if not reach <= reached:
            reached |= reach
            kept.append(data)
    # Twice, from the last on: a late one often reaches all that some early ones did.
    needed: list[bytes] = []
    reached.clear()
    for data in reversed(kept):
        reach = reach_of(target.run, data)
        if not reach <= reached:
            reached |= reach
            needed.append(data)
    return needed[:most]


def keep(name: str, found: Path, *, most: int, largest: int) -> list[Path]:
    """Make the target's corpus again from its inputs and the findings; inputs of fixed crashes stay.

    Args:
        name: The target.
        found: The folder with what was found.
        most: Files to keep at most, the crashes not counted.
        largest: Bytes of a file at most.
    """
    target = load(name)
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    files = corpus_of(name)
    inputs = [path.read_bytes() for path in (*files, *found.iterdir())]
    kept = chosen(target, [data for data in inputs if len(data) <= largest], most)
    for path in files:
        if not path.name.startswith("crash-"):
            path.unlink()
    paths = [folder / hashlib.sha256(data).hexdigest()[:12] for data in kept]
    for path, data in zip(paths, kept, strict=True):
        path.write_bytes(data)
    return paths
