"""The end of a `LogReader` that a thread may still use.

A task that is cancelled leaves its thread reading. If the queue closed the reader meanwhile, two would close one
file, and the second close could end what somebody else has opened. Waiting for the thread is no way out: a disk may
hang.

Invariant: the side that finds the reader closed, and nobody reading, closes its file. One of the two always does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.spool.log_reader import Batch, LogReader
    from aioproduce.spool.segments import Segment


@final
class ReadingThread:
    """Reads in a thread.

    Args:
        reader: The reader; the loop uses it while no thread reads.
    """

    __slots__ = ("_is_closed", "_lock", "_reader")

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._is_closed = False

    def read(self, segments: Sequence[Segment], most: int) -> list[Batch]:
        """Read, as `LogReader.read()`, in the thread that calls this."""
        try:
            with self._lock:
                return self._reader.read(segments, most)
        finally:
            if self._is_closed:  # looked at behind the release
                self.close()

    def read_cached(self, segments: Sequence[Segment], most: int) -> list[Batch]:
        """Read what is in memory, in the loop's thread; nothing while another thread reads."""
        if not self._lock.acquire(blocking=False):
            return []
        try:
            return self._reader.read_cached(segments, most)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the reader's file, now or when the thread has read. It never waits."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._reader.close()
            finally:
                self._lock.release()
