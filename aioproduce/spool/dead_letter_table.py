"""The table of dead letters, for the tools: count, read, remove, check, compact.

`dead_letters` writes it. SQLite's own locks let a tool and a producer use it at a time.

Invariants:

1. What only reads opens the file to read it, and makes none.
2. A dead letter is removed by its id alone, and durably.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from aioproduce.records import Header

_COLUMNS: Final = "topic, id, key, value, headers, timestamp, reason, at"
_NO_TABLE: Final = "no such table"


class DeadLetter(NamedTuple):
    """A record that the cluster refused for good.

    Attributes:
        topic: The topic.
        id: The 24 bytes of the header `ap.id`.
        key: The key.
        value: The value.
        headers: The headers, without `ap.id`.
        timestamp: Milliseconds since the epoch.
        reason: The error.
        at: When it was put there, in seconds since the epoch.
    """

    topic: str
    id: bytes
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int
    reason: str
    at: float


def count_dead_letters(path: str) -> dict[str, int]:
    """Return the number of dead letters by topic.

    Raises:
        sqlite3.Error: if the file cannot be read.
    """
    with _opened(path, "ro") as connection:
        return dict(
            _rows(connection, "SELECT topic, COUNT(*) FROM dead_letters GROUP BY topic ORDER BY topic", ())
        )


def read_dead_letters(
    path: str,
    *,
    topic: str | None = None,
    ids: Sequence[bytes] = (),
    after: DeadLetter | None = None,
    limit: int = -1,
) -> list[DeadLetter]:
    """Return dead letters by topic and id, which is the order of their `send()`s.

    Args:
        path: The file.
        topic: Only those of this topic.
        ids: Only those with these ids; all, if there are none.
        after: Only those behind this one.
        limit: The most; all, if it is negative.

    Raises:
        sqlite3.Error: if the file cannot be read.
        ValueError: if the headers of a dead letter cannot be read.
    """
    conditions, values = ["1"], list[object]()
    if topic is not None:
        conditions.append("topic = ?")
        values.append(topic)
    if ids:
        conditions.append(f"id IN ({', '.join('?' * len(ids))})")
        values += ids
    if after is not None:
        conditions.append("(topic, id) > (?, ?)")
        values += (after.topic, after.id)
    query = f"SELECT {_COLUMNS} FROM dead_letters WHERE {' AND '.join(conditions)} ORDER BY topic, id LIMIT ?"
    with _opened(path, "ro") as connection:
        return [_letter(row) for row in _rows(connection, query, [*values, limit])]


def remove_dead_letters(path: str, letters: Iterable[DeadLetter]) -> None:
    """Remove dead letters, durably.

    Raises:
        sqlite3.Error: if that failed; all are still there.
    """
    with _opened(path, "rw") as connection, connection:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.executemany(
            "DELETE FROM dead_letters WHERE topic = ? AND id = ?", [(each.topic, each.id) for each in letters]
        )


def compact_dead_letters(path: str) -> None:
    """Give the room of removed dead letters back.

    Raises:
        sqlite3.Error: if that failed; nothing is lost.
    """
    with _opened(path, "rw") as connection:
        connection.execute("VACUUM")


def check_dead_letters(path: str) -> str | None:
    """Return what is wrong with the file; None if it is whole."""
    try:
        with _opened(path, "ro") as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return None if found == "ok" else str(found)


@contextmanager
def _opened(path: str, mode: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True)
    try:
        yield connection
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if _NO_TABLE in str(error):  # a process was killed before its first dead letter
            return []
        raise


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    topic, record_id, key, value, headers, timestamp, reason, at = row
    listed = [(name, None if each is None else b64decode(each)) for name, each in json.loads(headers)]
    return DeadLetter(topic, record_id, key, value, listed, timestamp, reason, at)
