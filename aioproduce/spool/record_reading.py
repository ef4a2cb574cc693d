"""The records of a log, one by one, for people and programs; also while a producer uses the queue.

The tools call it. It writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from aioproduce._native.batch_rows import BatchRows
from aioproduce.spool.log_scan import LogScan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.records import Header
    from aioproduce.spool.log_reader import Batch
    from aioproduce.spool.queue_files import LogFiles


@final
class StoredRecord(NamedTuple):
    """A record on disk.

    Attributes:
        topic: The topic.
        offset: Its offset in the log.
        timestamp: Milliseconds since the epoch.
        key: The key.
        value: The value.
        headers: The headers; `ap.id` is added when it is sent.
    """

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


@final
class LogRecords:
    """Reads the records of one topic.

    Args:
        log: The log.
        from_offset: The first offset that is wanted.
        waits: Whether only records behind the position are wanted.
        is_in_use: Returns whether a producer may be writing the log.

    Raises:
        OSError: if the log cannot be read.
    """

    __slots__ = ("_log", "_scan", "_start", "_unreadable")

    def __init__(
        self, log: LogFiles, *, from_offset: int, waits: bool, is_in_use: Callable[[], bool]
    ) -> None:
        self._log = log
        scan = LogScan(log.path, is_in_use=is_in_use)
        self._start = max(from_offset, scan.first_waiting if waits else 0)
        self._scan = LogScan(log.path, offset=self._start, is_in_use=is_in_use)
        self._unreadable: list[str] = []

    def records(self) -> Iterator[StoredRecord]:
        """Yield the records, in order.

        Raises:
            OSError: if a file cannot be read.
        """
        for batch in self._scan.batches():
            yield from self._rows(batch)

    def problems(self) -> list[str]:
        """Return what could not be read so far, for people.

        Raises:
            OSError: if a file cannot be read.
        """
        return [*self._unreadable, *map(str, self._scan.damages())]

    def _rows(self, batch: Batch) -> Iterator[StoredRecord]:
        head = batch.head
        try:
            rows = BatchRows(batch.content, head.record_count, head.first_timestamp)
        except ValueError as error:
            self._unreadable.append(
                f"the batch at offset {head.base_offset} of {self._log.path} has no records: {error}"
            )
            return
        for row in range(max(self._start - head.base_offset, 0), head.record_count):
            headers = rows.headers and rows.headers.at(row)
            timestamp = rows.timestamps.at(row)
            assert timestamp is not None
            yield StoredRecord(
                topic=self._log.topic,
                offset=head.base_offset + row,
                timestamp=timestamp,
                key=None if rows.keys is None else rows.keys.at(row),
                value=rows.values.at(row),
                headers=list(headers or ()),
            )
