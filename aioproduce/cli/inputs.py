"""The inputs: files and standard input, read by a thread and cut into lines on the event loop.

Called by `send`. A silent pipe or a file on a dead network share must not block the event loop (acknowledgements,
Ctrl-C), so a thread reads. It is a daemon, so that a read that never returns does not keep the process alive.

Invariants:

1. At most `_CHUNKS_AHEAD` chunks and one line below the limit are in memory, however large the input.
2. A line is the bytes between two newlines, unchanged: any encoding, and a carriage return stays. A last line
   without a newline is a line.
3. Every input is checked before anything is read: a missing third file must not end a run in the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

# Large, because the thread needs the interpreter's lock once per chunk, and a busy loop yields it only every 5 ms:
# 64 KiB per 5 ms would limit the speed to 13 MB/s. Linux lets any user enlarge a pipe to this size.
CHUNK_SIZE: Final = 1 << 20
_CHUNKS_AHEAD: Final = 3
STDIN_NAME: Final = "<stdin>"


class InputError(Exception):
    """An input cannot be read; the message names it and the remedy."""


@final
@dataclass(frozen=True, slots=True)
class Input:
    """One file, or standard input.

    Attributes:
        name: The name in messages.
        path: The file; `None` for standard input.
        size: Bytes; `None` if that is not known before the end, e.g. for a pipe.
    """

    name: str
    path: str | None
    size: int | None


def find_inputs(files: Sequence[str]) -> list[Input]:
    """Check the named inputs, and return them; standard input if none was named.

    Raises:
        InputError: if any cannot be read; the message names all of these.
    """
    if list(files).count("-") > 1:
        raise InputError("standard input (-) can be read once only: name it once")
    found: list[Input] = []
    problems: list[str] = []
    for file in files or ["-"]:
        try:
            found.append(_standard_input() if file == "-" else _file(file))
        except OSError as error:
            problems.append(f"cannot read {file!r}: {error.strerror or error}")
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("; ".join(problems) + ". Nothing was sent")
    return found


def _standard_input() -> Input:
    # None if the process was started with it closed.
    if sys.stdin is None:
        raise InputError("standard input is closed: name a file")
    about = os.fstat(sys.stdin.fileno())
    return Input(STDIN_NAME, None, about.st_size if stat.S_ISREG(about.st_mode) else None)


def _file(file: str) -> Input:
    about = os.stat(file)
    if stat.S_ISDIR(about.st_mode):
        raise InputError(f"{file!r} is a directory: name the files in it")
    if stat.S_ISREG(about.st_mode):
        os.close(os.open(file, os.O_RDONLY))
        return Input(file, file, about.st_size)
    # Opening a named pipe waits for its writer: the reading thread does that.
    if not os.access(file, os.R_OK):
        raise InputError(f"cannot read {file!r}: permission denied")
    return Input(file, file, None)


@final
class InputReader:
    """A reader of inputs, one after the other, some chunks ahead.

    Args:
        inputs: The inputs.

    Example:
        >>> async for source, chunk in InputReader(find_inputs(["a.txt"])).chunks():
        ...     ...  # chunk is b"" once at the end of each input
    """

    __slots__ = ("_arrived", "_inputs", "_is_stopped", "_loop", "_room")

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[tuple[Input, bytes] | OSError | None] = asyncio.Queue()

    async def chunks(self) -> AsyncIterator[tuple[Input, bytes]]:
        """Yield the content in order; an empty chunk ends each input.

        Raises:
            InputError: if an input becomes unreadable.
        """
        threading.Thread(target=self._read_all, name="aioproduce input", daemon=True).start()
        try:
            while (item := await self._arrived.get()) is not None:
                if isinstance(item, OSError):
                    raise InputError(f"reading {item.filename!r} failed: {item.strerror or item}") from item
                yield item
                self._room.release()
        finally:
            self._is_stopped = True
            self._room.release()

    # -- in the thread ---

    def _read_all(self) -> None:
        try:
            for source in self._inputs:
                try:
                    self._read(source)
                except OSError as error:
                    error.filename = source.name
                    self._post(error)
                    return
            self._post(None)
        except RuntimeError:
            # The event loop is closed: the run is over.
            return

    def _read(self, source: Input) -> None:
        descriptor = sys.stdin.fileno() if source.path is None else os.open(source.path, os.O_RDONLY)
        _widen_pipe(descriptor)
        try:
            while True:
                self._room.acquire()
                if self._is_stopped:
                    return
                chunk = os.read(descriptor, CHUNK_SIZE)
                self._post((source, chunk))
                if not chunk:
                    return
        finally:
            if source.path is not None:
                os.close(descriptor)

    def _post(self, item: tuple[Input, bytes] | OSError | None) -> None:
        self._loop.call_soon_threadsafe(self._arrived.put_nowait, item)


def _widen_pipe(descriptor: int) -> None:
    """Let a pipe hold a whole chunk on Linux: writer and reader then wait for each other less often."""
    if sys.platform == "linux":
        import fcntl

        # Not a pipe, or not allowed: reading works without it.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK_SIZE)


@final
class LineSplitter:
    r"""A splitter of one input's chunks into lines.

    Args:
        limit: The longest line that is kept. A longer one could not be sent, and could be as long as the input. It
            is dropped, and reported by `overlong_size`.

    Attributes:
        overlong_size: The size of the line that the last `feed()` or `finish()` dropped, or 0. That line came
            before all lines that the call returned.

    Example:
        >>> splitter = LineSplitter(limit=100)
        >>> splitter.feed(b"one\ntw"), splitter.feed(b"o\n"), splitter.finish()
        ([b'one'], [b'two'], [])
    """

    __slots__ = ("_held", "_held_size", "_limit", "overlong_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_size = 0
        self.overlong_size: int = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk."""
        self.overlong_size = 0
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._hold(chunk)
            return []
        rest = lines.pop()
        if self._held_size:
            lines[0:1] = self._end_held(lines[0])
        self._hold(rest)
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line, if it had no newline."""
        self.overlong_size = 0
        return self._end_held(b"") if self._held_size else []

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        self._held_size += len(part)
        if self._held_size > self._limit:
            self._held.clear()
        else:
            self._held.append(part)

    def _end_held(self, part: bytes) -> list[bytes]:
        size = self._held_size + len(part)
        is_overlong = size > self._limit
        line = b"" if is_overlong else b"".join((*self._held, part))
        self._held.clear()
        self._held_size = 0
        if is_overlong:
            self.overlong_size = size
            return []
        return [line]
