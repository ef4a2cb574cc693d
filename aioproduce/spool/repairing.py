"""Repair a queue that nobody uses: cut torn tails, copy what is damaged, write a lost id or position again.

The tools call it.

Invariants:

1. It holds the queue's lock from the first look to the last write.
2. It removes no record that is whole, and writes no batch. A damaged range in the middle of a log is copied to the
   quarantine and stays where it is: readers pass it, and to take it out would be to write what is behind it again.
3. What is cut or replaced is in the quarantine, durably, before.
4. A position is never guessed ahead: records are sent again rather than not at all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.spool.directory import (
    DESCRIPTION,
    begin_description,
    in_use_error,
    lock_queue,
)
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.log_scan import LogScan
from aioproduce.spool.position import NAME as POSITION
from aioproduce.spool.position import Position
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.queue_files import unreadable
from aioproduce.spool.verifying import (
    Finding,
    FindingKind,
    dead_letter_findings,
    description_findings,
    log_findings,
    position_findings,
    unreadable_finding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.queue_files import LogFiles, QueueFiles

_OF_DEAD_LETTERS: Final = (
    "not repaired: `sqlite3 dead-letters.db .recover` prints what is whole; then move the file away, and the queue "
    "makes another one"
)


@final
class Repair(NamedTuple):
    """One thing that is wrong, and what became of it.

    Attributes:
        finding: What is wrong.
        action: What was done, or would be; for people.
        is_done: Whether it is repaired, or would be; otherwise `action` names the remedy.
    """

    finding: Finding
    action: str
    is_done: bool


def repair(queue: QueueFiles, *, has_new_id: bool = False, is_dry: bool = False) -> Iterator[Repair]:
    """Repair a queue, and yield each thing when it is done.

    Args:
        queue: The queue.
        has_new_id: Whether a new id is wanted if the old one is lost. What was sent before and is sent again then
            has another id.
        is_dry: Whether nothing is to be written.

    Raises:
        SpoolInUseError: if a producer uses the queue.
        SpoolDirectoryError: if the queue cannot be read or written, or has another format.
    """
    lock: int | None = None
    try:
        if is_dry:
            user = queue.user()
            if user is not None:
                raise in_use_error(queue.path, user)
        else:
            lock = lock_queue(queue.path)
        yield from _Repairer(queue, has_new_id=has_new_id, is_dry=is_dry).run()
    except OSError as error:
        raise unreadable(queue.path, error) from error
    finally:
        if lock is not None:
            os.close(lock)


@final
class _Repairer:
    """Repairs one queue, which is locked."""

    __slots__ = ("_disk", "_has_begun_anew", "_has_new_id", "_is_dry", "_quarantine", "_queue")

    def __init__(self, queue: QueueFiles, *, has_new_id: bool, is_dry: bool) -> None:
        self._queue = queue
        self._has_new_id = has_new_id
        self._has_begun_anew = False
        self._is_dry = is_dry
        self._disk = FileSystem()
        self._quarantine = Quarantine(self._disk, queue.quarantine)

    def run(self) -> Iterator[Repair]:
        """Repair, and yield each thing when it is done."""
        for finding in description_findings(self._queue):
            yield self._description(finding)
        for log in self._queue.logs():
            try:
                yield from self._repair_log(log)
            except OSError as error:
                action = "not repaired: look at the kernel's log, and at the rights and the room of the disk"
                yield Repair(unreadable_finding(log, error), action, is_done=False)
        for finding in dead_letter_findings(self._queue):
            yield Repair(finding, _OF_DEAD_LETTERS, is_done=False)

    # -- the id ---

    def _description(self, finding: Finding) -> Repair:
        if not self._has_new_id:
            action = (
                "not repaired: restore the file; or use --new-id, and what was sent before and is sent again has "
                "another id"
            )
            return Repair(finding, action, is_done=False)
        self._begin_anew()
        return Repair(finding, "the queue gets a new id", is_done=True)

    def _begin_anew(self) -> None:
        """Give the queue a new id, once."""
        if self._is_dry or self._has_begun_anew:
            return
        self._has_begun_anew = True
        self._keep_file(f"{self._queue.path}/{DESCRIPTION}", DESCRIPTION)
        begin_description(self._queue.path)
        self._disk.sync_directory(self._queue.path)

    def _keep_file(self, path: str, name: str) -> None:
        """Keep a copy of a small file that is replaced; the first copy of a name stays."""
        copy = f"{self._queue.quarantine}/{name}"
        if not os.path.exists(path) or os.path.exists(copy):
            return
        self._disk.make_directory(self._queue.quarantine)
        with open(path, "rb") as damaged:
            content = damaged.read()
        kept = self._disk.create(copy)
        try:
            kept.write(0, [content])
            kept.sync()
        finally:
            kept.close()
        self._disk.sync_directory(self._queue.quarantine)

    # -- logs ---

    def _repair_log(self, log: LogFiles) -> Iterator[Repair]:
        scan = LogScan(log.path, is_in_use=lambda: False)
        for finding in position_findings(log, scan):
            yield self._position(log, scan, finding)
        for _ in scan.batches():
            pass
        for finding in log_findings(self._queue, log, scan):
            assert finding.damage is not None
            if finding.damage.is_tail:
                yield self._tail(finding, finding.damage)
            elif finding.kind is FindingKind.KNOWN:
                yield Repair(finding, "a copy is in the quarantine already", is_done=True)
            else:
                self._keep(finding.damage)
                action = f"copied to {self._queue.quarantine}; what is behind it is whole, and is sent"
                yield Repair(finding, action, is_done=True)

    def _position(self, log: LogFiles, scan: LogScan, finding: Finding) -> Repair:
        path = f"{log.path}/{POSITION}"
        if scan.segments:
            first = scan.segments[0].base_offset
            if not self._is_dry:
                self._keep_file(path, f"{log.topic}-{POSITION}")
                position = Position(self._disk, log.path)
                position.move(first)
                position.close()
            return Repair(finding, f"set to {first}, the first offset of the files", is_done=True)
        if not self._has_new_id:
            action = "not repaired: no file of the log tells which offsets were used; use --new-id"
            return Repair(finding, action, is_done=False)
        self._begin_anew()
        if not self._is_dry:
            self._keep_file(path, f"{log.topic}-{POSITION}")
            self._disk.unlink(path)
            self._disk.sync_directory(log.path)
        return Repair(finding, "removed; the queue gets a new id", is_done=True)

    def _tail(self, finding: Finding, damage: Damage) -> Repair:
        if not self._is_dry:
            self._keep(damage)
            file = self._disk.open(f"{damage.directory}/{damage.segment}")
            try:
                file.truncate(damage.start)
                file.sync()
            finally:
                file.close()
        action = f"copied to {self._queue.quarantine}, and {damage.segment} cut at byte {damage.start}"
        return Repair(finding, action, is_done=True)

    def _keep(self, damage: Damage) -> None:
        if self._is_dry:
            return
        content = b""
        if damage.start < damage.end:
            file = self._disk.open(f"{damage.directory}/{damage.segment}")
            try:
                content = file.read(damage.start, damage.end - damage.start)
            finally:
                file.close()
        # Behind a torn tail is the room that the log reserved.
        self._quarantine.keep(damage, content.rstrip(b"\0") if damage.is_tail else content)
