"""A producer's metrics as JSON lines: for `jq`, a notebook, or a collector of container logs.

A line is `{"client_id": ..., "taken_at_ms": ..., "metrics": {group: {name: value}}}`; NaN is written as null.

Invariants: those of `PeriodicReporter`. A file is opened for each line and written in one call, so that it may be
rotated or removed at any time, and several processes may append to it. A partial line left by a full disk does not
corrupt the next one.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Protocol, final

from aioproduce.reporters.periodic import PeriodicReporter, in_a_thread

if TYPE_CHECKING:
    from aioproduce.reporters.sources import Measured


class TextStream(Protocol):
    """A text stream such as `sys.stdout`; a thread writes one line at a time."""

    def write(self, text: str, /) -> object:
        """Write a text."""

    def flush(self) -> object:
        """Flush the stream."""


@final
class JsonLinesReporter(PeriodicReporter):
    """Appends a line every period, and a last one at the end.

    Args:
        producer: The producer.
        target: A file's path, or a stream, which is not closed.
        period: Seconds between lines.

    Raises:
        ValueError: If the period is not above 0.

    Example:
        >>> async with Producer("localhost:9092") as producer:
        ...     async with JsonLinesReporter(producer, "producer.jsonl"):
        ...         await serve(producer)
    """

    def __init__(
        self, producer: Measured, target: str | os.PathLike[str] | TextStream, *, period: float = 10.0
    ) -> None:
        super().__init__(period)
        self._producer = producer
        self._target = target
        self._is_torn = False

    async def _report(self) -> None:
        snapshot = self._producer.metrics()
        client_id = self._producer.config.client_id
        line = json.dumps({"client_id": client_id, **snapshot.as_dict()}, allow_nan=False) + "\n"
        await in_a_thread(self._append, line)

    def _append(self, line: str) -> None:
        target = self._target
        if not isinstance(target, str | os.PathLike):
            target.write(line)
            target.flush()
            return
        # One write to a file that is open for appending, so that lines of several processes do not mix.
        with open(target, "ab", buffering=0) as file:
            is_after_torn = self._is_torn and file.tell() > 0
            content = b"\n" * is_after_torn + line.encode()
            written = 0
            try:
                while written < len(content):
                    # A full disk writes as much as it can, and refuses the rest.
                    written += file.write(content[written:])
            except OSError as error:  # which does not name the file
                raise OSError(error.errno, error.strerror, os.fspath(target)) from error
            finally:
                if written:
                    self._is_torn = content[written - 1] != ord("\n")
