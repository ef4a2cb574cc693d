"""Damaged bytes of a log: kept in a file, with a report that a person can read."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from aioproduce.spool.disk import Disk

_LONGEST_LOG: Final = 180


class Damage(NamedTuple):
    """A piece of a log that is no record batch.

    Attributes:
        directory: The log's directory.
        segment: The segment's file name.
        start: Where it begins in the segment.
        end: Where it ends.
        first_offset: The first offset that may be lost.
        next_offset: The offset behind the last that may be lost.
        is_tail: Whether it is at the end of what an earlier process wrote: most likely a batch that was being
            written when the process or the machine stopped, and of which no `send()` had returned.
    """

    directory: str
    segment: str
    start: int
    end: int
    first_offset: int
    next_offset: int
    is_tail: bool

    @property
    def record_count(self) -> int:
        """The records that may be lost."""
        return self.next_offset - self.first_offset

    def __str__(self) -> str:
        if self.start == self.end:
            return (
                f"{self.record_count} records from offset {self.first_offset} on are in no file of "
                f"{self.directory}; they are missing at byte {self.start} of {self.segment}"
            )
        what = "end with a batch that is not whole" if self.is_tail else "are no record batch"
        return (
            f"bytes {self.start} to {self.end} of {self.directory}/{self.segment} {what}: {self.record_count} "
            f"records from offset {self.first_offset} on"
        )


@final
class Quarantine:
    """A directory for damaged bytes.

    Args:
        disk: The disk.
        directory: The directory; it is made when it is needed. Its parent exists.
    """

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def keep(self, damage: Damage, content: bytes) -> None:
        """Keep a copy of damaged bytes, and a report. The same damage is kept under the same name again.

        Raises:
            OSError: if that failed.
        """
        self._disk.make_directory(self._directory)
        stem = f"{self._directory}/{name_of(damage)}"
        report = json.dumps({**damage._asdict(), "what": str(damage)}, indent=2) + "\n"
        for path, piece in ((f"{stem}.bytes", content), (f"{stem}.json", report.encode())):
            file = self._disk.create(path)
            try:
                file.write(0, [piece])
                file.sync()
            finally:
                file.close()
        self._disk.sync_directory(self._directory)


def name_of(damage: Damage) -> str:
    """Return the name of the copy and of the report of damaged bytes, without its ending."""
    log = damage.directory.rpartition("/")[2]
    if len(log) > _LONGEST_LOG:  # a file's name has at most 255 bytes
        log = f"{log[:_LONGEST_LOG]}~{blake2b(log.encode(), digest_size=8).hexdigest()}"
    return f"{log}-{damage.segment.partition('.')[0]}-{damage.start}"
