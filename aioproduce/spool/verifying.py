"""Check all of a queue: every batch's checksum, the positions, the description, the table of dead letters.

The tools call it, also while a producer uses the queue. It writes nothing.

Invariants:

1. It finds in a log what a forwarder would find: the same reader reads it.
2. Damage with a report in the quarantine is known: a forwarder or a repair has dealt with it.
3. A batch that was being written when its process ended is a torn tail, and no damage. If a log was closed, its
   last batch ends with its file, and then it is damage.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.errors import SpoolDirectoryError, SpoolFormatError
from aioproduce.spool.batch_head import HEAD_SIZE, read_head
from aioproduce.spool.dead_letter_table import check_dead_letters
from aioproduce.spool.directory import DESCRIPTION, read_description
from aioproduce.spool.log_scan import LogScan
from aioproduce.spool.position import NAME as POSITION
from aioproduce.spool.position import Position
from aioproduce.spool.quarantine import name_of
from aioproduce.spool.queue_files import size_of, unreadable
from aioproduce.spool.read_only_disk import ReadOnlyDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.queue_files import LogFiles, QueueFiles

# Not the first offset: a forwarder leaves out what is before its position.
_OF_A_REPORT: Final = ("segment", "start", "end", "next_offset")


class FindingKind(StrEnum):
    """What is wrong with a place of a queue."""

    DAMAGED = "damaged"
    """Bytes of a log are no batch, or records are in no file."""
    KNOWN = "known"
    """The same, and a copy and a report are in the quarantine."""
    TORN = "torn"
    """A log ends with a batch that was being written when its process ended."""
    POSITION = "position"
    """The position of a log cannot be read."""
    DESCRIPTION = "description"
    """The id of the queue cannot be read."""
    DEAD_LETTERS = "dead letters"
    """The table of dead letters is damaged."""
    UNREADABLE = "unreadable"
    """The system cannot read a file."""


_ARE_NO_DAMAGE: Final = frozenset({FindingKind.KNOWN, FindingKind.TORN})


@final
class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        kind: What it is.
        path: The directory or the file.
        message: What is wrong, for people.
        topic: The topic, if it is a log.
        damage: The place and the offsets, if it is a piece of a log.
    """

    kind: FindingKind
    path: str
    message: str
    topic: str | None = None
    damage: Damage | None = None

    @property
    def is_damage(self) -> bool:
        """Whether the queue is damaged by it: a known damage and a torn tail are none."""
        return self.kind not in _ARE_NO_DAMAGE


@final
@dataclass(slots=True)
class Verification:
    """What a check of one queue found.

    Attributes:
        path: The queue's directory.
        user: The process that uses the queue; None if none does.
        batches: The whole batches.
        records: Their records.
        bytes: Their bytes.
        findings: What is wrong.
    """

    path: str
    user: str | None
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is damaged."""
        return not any(each.is_damage for each in self.findings)


def bytes_to_verify(queue: QueueFiles) -> int:
    """Return the bytes of a queue's segments, for a progress bar.

    Raises:
        SpoolDirectoryError: if the queue cannot be read.
    """
    total = 0
    for log in queue.logs():
        try:
            scan = LogScan(log.path, is_in_use=lambda: False)
        except OSError:  # the check reports it
            continue
        total += sum(size_of(f"{log.path}/{segment.name}") for segment in scan.segments)
    return total


def verify(queue: QueueFiles, result: Verification) -> Iterator[None]:
    """Check a queue, a step at a time.

    Args:
        queue: The queue.
        result: Gets what is found. It is complete after the last step.

    Yields:
        Nothing, after each batch.

    Raises:
        SpoolDirectoryError: if the queue's directory cannot be read, or has another format.
    """
    result.findings += description_findings(queue)
    for log in queue.logs():
        try:
            yield from _verify_log(queue, log, result)
        except FileNotFoundError:  # nobody has it any more
            continue
        except OSError as error:
            result.findings.append(unreadable_finding(log, error))
    result.findings += dead_letter_findings(queue)


def _verify_log(queue: QueueFiles, log: LogFiles, result: Verification) -> Iterator[None]:
    scan = LogScan(log.path, is_in_use=queue.is_in_use)
    result.findings += position_findings(log, scan)
    for batch in scan.batches():
        result.batches += 1
        result.records += batch.head.record_count
        result.bytes += batch.head.size
        yield
    result.findings += log_findings(queue, log, scan)


def unreadable_finding(log: LogFiles, error: OSError) -> Finding:
    """Return the finding of a log that the system cannot read."""
    message = f"{error.filename or log.path} cannot be read: {error.strerror or error}"
    return Finding(FindingKind.UNREADABLE, log.path, message, log.topic)


def dead_letter_findings(queue: QueueFiles) -> list[Finding]:
    """Return what is wrong with the table of dead letters."""
    path = queue.dead_letters
    problem = check_dead_letters(path) if queue.has_dead_letters else None
    return (
        [] if problem is None else [Finding(FindingKind.DEAD_LETTERS, path, f"{path} is damaged: {problem}")]
    )


def description_findings(queue: QueueFiles) -> list[Finding]:
    """Return what is wrong with the description of a queue.

    Raises:
        SpoolDirectoryError: if the system cannot read it, or it is of another format.
    """
    path = f"{queue.path}/{DESCRIPTION}"
    try:
        if read_description(queue.path) is not None:
            return []
    except SpoolFormatError:  # nothing else of it can be understood
        raise
    except SpoolDirectoryError as error:
        return [Finding(FindingKind.DESCRIPTION, path, str(error))]
    except OSError as error:
        raise unreadable(path, error) from error
    message = f"{path} is missing: records keep their ids only with the id in it; restore it"
    return [Finding(FindingKind.DESCRIPTION, path, message)]


def position_findings(log: LogFiles, scan: LogScan) -> list[Finding]:
    """Return what is wrong with the position of a log."""
    path = f"{log.path}/{POSITION}"
    is_read = scan.position is not None or Position(ReadOnlyDisk(), log.path).offset is not None
    if is_read or not os.path.exists(path):
        return []
    what = (
        "what the files have is sent again" if scan.segments else "new records get ids that were used before"
    )
    message = f"{path} is damaged in both of its places: {what}"
    return [Finding(FindingKind.POSITION, path, message, log.topic)]


def log_findings(queue: QueueFiles, log: LogFiles, scan: LogScan) -> list[Finding]:
    """Return what a scan has found, which has come to its end."""
    return [
        Finding(_kind_of(queue, damage), log.path, str(damage), log.topic, damage)
        for damage in scan.damages()
    ]


def _kind_of(queue: QueueFiles, damage: Damage) -> FindingKind:
    if damage.is_tail and not _ends_with_its_file(damage):
        return FindingKind.TORN
    return FindingKind.KNOWN if _is_known(queue, damage) else FindingKind.DAMAGED


def _ends_with_its_file(damage: Damage) -> bool:
    """Return whether the last batch of a log ends where its file ends, as in a log that was closed.

    If its head cannot be read, a file that was not closed is known by the room behind it, which ends with zeros or
    with the hole of an earlier use.
    """
    file = ReadOnlyDisk().open(f"{damage.directory}/{damage.segment}")
    try:
        if read_head(file.read(damage.start, HEAD_SIZE)) is None:
            end = file.read(max(file.size - HEAD_SIZE, 0), HEAD_SIZE)
            last = read_head(end)
            return any(end) and not (
                last and not last.record_count and last.end_offset <= damage.first_offset
            )
        at = damage.start
        offset: int | None = None
        while (head := read_head(file.read(at, HEAD_SIZE))) is not None and offset in (
            None,
            head.base_offset,
        ):
            at += head.size
            offset = head.end_offset
        return at == file.size
    finally:
        file.close()


def _is_known(queue: QueueFiles, damage: Damage) -> bool:
    """Return whether the quarantine has a report of this damage; see `Quarantine` for its names."""
    path = f"{queue.quarantine}/{name_of(damage)}.json"
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return False
    values = damage._asdict()
    return isinstance(report, dict) and all(report.get(each) == values[each] for each in _OF_A_REPORT)
