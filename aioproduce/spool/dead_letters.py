"""Records that the cluster will never accept: kept in a table, with the reason, until a person looks at them.

Another table notes which records were dropped.

The table is SQLite's (`dead-letters.db` in the spool's directory), since it is read, searched and emptied by tools.

Invariants:

1. A record is in the table, durably, before the position moves over it.
2. A record is there once: a second time it replaces the first.
"""

from __future__ import annotations

import json
import sqlite3
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import BrokerRejectedError
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from aioproduce.core.batching.serialized_record import SerializedRecord
    from aioproduce.spool.writer_messages import Dropped

NAME: Final = "dead-letters.db"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS dead_letters (
    topic TEXT NOT NULL, id BLOB NOT NULL, key BLOB, value BLOB, headers TEXT NOT NULL, timestamp INTEGER NOT NULL,
    reason TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (topic, id)
) WITHOUT ROWID
"""
_DROPPED_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS dropped (
    topic TEXT NOT NULL, first_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL, records INTEGER NOT NULL,
    reason TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (topic, first_offset)
) WITHOUT ROWID
"""
_NEVER_ACCEPTED: Final = frozenset(
    (
        codes.MESSAGE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_TIMESTAMP,
        codes.INVALID_RECORD,
        codes.POLICY_VIOLATION,
        codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)


@final
class DeadLetters:
    """The dead letters of one spool.

    Args:
        directory: The spool's directory.
        in_thread: Calls a function in another thread.

    Attributes:
        count: How many records were put there since the start.
        path: The table's file.
        has_new: Called after a record was put there.
    """

    def __init__(self, directory: str, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self.path: str = f"{directory}/{NAME}"
        self.has_new: Callable[[], None] = lambda: None
        self._in_thread = in_thread
        self.count: int = 0

    async def put(self, record: SerializedRecord, error: BaseException) -> None:
        """Keep a record, with the reason.

        Raises:
            sqlite3.Error: if that failed.
        """
        await self._in_thread(self._put, record, str(error))
        self.count += 1
        self.has_new()

    async def mark_dropped(self, dropped: Dropped) -> None:
        """Note which records were dropped.

        Raises:
            sqlite3.Error: if that failed.
        """
        row = (
            *(dropped.topic, dropped.first_offset, dropped.end_offset),
            dropped.record_count,
            dropped.reason,
        )
        insert = "INSERT OR REPLACE INTO dropped VALUES (?, ?, ?, ?, ?, ?)"
        await self._in_thread(self._execute, _DROPPED_SCHEMA, insert, (*row, time.time()))

    def _put(self, record: SerializedRecord, reason: str) -> None:
        *headers, (_, record_id) = record.headers or ()
        listed = [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
        row = (
            *(record.topic, record_id, record.key, record.value, json.dumps(listed)),
            *(record.timestamp, reason, time.time()),
        )
        self._execute(_SCHEMA, "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _execute(self, schema: str, statement: str, row: tuple[object, ...]) -> None:
        connection = sqlite3.connect(self.path)
        try:
            with connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute(schema)
                connection.execute(statement, row)
        finally:
            connection.close()


def is_never_accepted(error: BaseException) -> bool:
    """Return whether a record that failed with this error can never be accepted by the cluster."""
    # A record that shared its batch with a refused one has the code, too, but can be sent again.
    return isinstance(error, BrokerRejectedError) and error.code in _NEVER_ACCEPTED and not error.retriable
