"""The file of `send --failed-to`: one JSON object for each record or line that was not acknowledged.

`send` writes it, and reads it again with `--from-failed`. Its format is part of the interface:
docs/how-to/send-files.md describes it.

Invariants:

1. An existing file is never overwritten. A file that is empty at the end is removed, so that a script can test
   whether it exists.
2. A record is kept in memory only until it is acknowledged: the producer's buffer bounds their number.
3. A record that may be in the log already (`possibly_written`) is sent again only if the user chose so.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

from aioproduce.cli.inputs import InputError
from aioproduce.cli.line_format import BadLineError, LeftOutError, UndecidedError
from aioproduce.errors import ConfigError, DeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.records import Header, RecordMetadata

    Settled = Callable[[RecordMetadata, BaseException | None], object]

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_FIELDS: Final = frozenset(
    [
        "file",
        "line",
        "error",
        "message",
        "possibly_written",
        "topic",
        "partition",
        "key",
        "value",
        "headers",
        "rejected_line",
    ]
)


class PossiblyWritten(StrEnum):
    """The treatment by `--from-failed` of a record that may be in the log already."""

    SEND = "send"
    SKIP = "skip"


@final
class FailedRecord(NamedTuple):
    """A record of the file."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: list[Header] | None


# -- writing ---


@final
class FailedFile:
    """The file that failures are written to, as soon as they are known.

    Args:
        path: The path. Its folder must exist, and the file must not.
        topic: The topic of the records.

    Attributes:
        path: The path.
        written: The number of records and lines in the file.

    Raises:
        ConfigError: if the file cannot be created, or exists already.
    """

    def __init__(self, path: str, topic: str) -> None:
        self.path = path
        self.written: int = 0
        self._topic = topic
        # A producer's callback must not raise it. After it nothing more is written.
        self._problem: OSError | None = None
        try:
            # Only the owner may read the records.
            self._file = os.fdopen(os.open(path, _NEW, 0o600), "wb")
        except FileExistsError:
            raise ConfigError(
                f"--failed-to {path}: the file exists, and may hold the failed records of an earlier run; name "
                "another file, or move this one away"
            ) from None
        except OSError as error:
            raise ConfigError(f"--failed-to {path}: cannot be written: {error.strerror or error}") from None

    def watch(
        self, source: str, line: int, record: FailedRecord, then: Settled | None
    ) -> Callable[[RecordMetadata, BaseException | None], None]:
        """Return the `on_delivery` that writes this record if it fails.

        Args:
            source: The input's name.
            line: The number of its line.
            record: The record.
            then: Another `on_delivery`, which is called first.
        """
        return partial(self._settled, source, line, record, then)

    def _settled(
        self,
        source: str,
        line: int,
        record: FailedRecord,
        then: Settled | None,
        metadata: RecordMetadata,
        error: BaseException | None,
    ) -> None:
        if then is not None:
            then(metadata, error)
        if error is not None:
            self.add_record(source, line, record, error)

    def add_record(self, source: str, line: int, record: FailedRecord, error: BaseException) -> None:
        """Write a record that failed, or that was refused."""
        self._write(
            source,
            line,
            error,
            partition=record.partition,
            key=content_as_json(record.key),
            value=content_as_json(record.value),
            headers=[[name, content_as_json(value)] for name, value in record.headers or ()],
        )

    def add_line(self, source: str, line: int, text: bytes | None, error: Exception) -> None:
        """Write a line that is not a record; `None` for one that was too long to be kept."""
        self._write(source, line, error, rejected_line=content_as_json(text))

    def copy(self, line: bytes) -> None:
        """Write a line of an earlier file unchanged: one that is not a record yet."""
        if self._problem is not None:
            return
        try:
            self._file.write(line + b"\n")
            self.written += 1
        except OSError as problem:
            self._problem = problem

    def _write(self, source: str, line: int, error: BaseException, **what: Any) -> None:
        row = {
            "file": source,
            "line": line,
            "error": type(error).__name__,
            "message": str(error),
            "possibly_written": isinstance(error, DeliveryError) and error.possibly_written,
            "topic": self._topic,
            **what,
        }
        self.copy(json.dumps(row, ensure_ascii=False).encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Write the buffered lines to the file.

        Raises:
            InputError: if they cannot be written: records that fail from now on would be lost.
        """
        try:
            self._file.flush()
        except OSError as problem:
            self._fail(problem)
        if self._problem is not None:
            self._fail(self._problem)

    def close(self) -> None:
        """Close the file, and remove it if it is empty.

        Raises:
            InputError: if it cannot be written.
        """
        try:
            self._file.close()
        except OSError as problem:
            self._fail(problem)
        if self._problem is not None:
            self._fail(self._problem)
        if not self.written:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

    def _fail(self, problem: OSError) -> NoReturn:
        self._problem = problem
        raise InputError(
            f"--failed-to {self.path} cannot be written: {problem.strerror or problem}. It lacks records that "
            "failed"
        )


def content_as_json(content: bytes | None) -> object:
    """Return a key, a value or a header's value for JSON: as text, or with base64 if it is not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


# -- reading ---


def failed_records(topic: str, choice: PossiblyWritten | None) -> Callable[[bytes], FailedRecord]:
    """Return the function that makes a line of the file a record again.

    Args:
        topic: The required topic of the records.
        choice: The treatment of a record that may be in the log already; `None` if there must be none.
    """

    def restore(line: bytes) -> FailedRecord:
        row = _row(line)
        if row.get("topic", topic) != topic:
            raise BadLineError(f"is of topic {row['topic']!r}, not of {topic!r}", "is of another topic")
        if "value" not in row:
            why = f": {row['message']}" if "message" in row else ""
            raise BadLineError(
                f"has no record, but a line that was rejected before{why}. Correct it: give it a `value`, and a "
                "`key` if it has one",
                "has a line that was rejected before",
            )
        if row.get("possibly_written"):
            if choice is None:
                raise UndecidedError(
                    "may be in the log already: choose with --possibly-written to send it again or to skip it",
                    "may be in the log already",
                )
            if choice is PossiblyWritten.SKIP:
                raise LeftOutError("may be in the log already", "may be in the log already")
        return FailedRecord(
            _from_json("key", row.get("key")),
            _from_json("value", row["value"]),
            _partition(row.get("partition")),
            _headers(row),
        )

    return restore


def check_failed_file(path: str, restore: Callable[[bytes], FailedRecord], *, skips: bool) -> None:
    """Check every line before anything is sent.

    Args:
        path: The file.
        restore: The function that makes a line a record.
        skips: Whether lines that are no records are skipped.

    Raises:
        InputError: if it cannot be read, or the user must decide about a record or correct a line first.
    """
    undecided = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    restore(line)
                except LeftOutError:
                    continue
                except UndecidedError:
                    undecided += 1
                except BadLineError as error:
                    if not skips:
                        raise InputError(
                            f"{path}, line {number}: {error} (--on-error skip skips it). Nothing was sent"
                        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}. Nothing was sent") from None
    if undecided:
        raise InputError(
            f"{undecided:,} of the records in {path} may be in the log already: --possibly-written send sends them "
            "again, and some may then be there twice; --possibly-written skip leaves them out, and some may then "
            "be missing. Nothing was sent"
        )


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if type(row) is not dict or not {"error", "possibly_written"} <= row.keys() <= _FIELDS:
        raise BadLineError("is not a line that --failed-to wrote", "is not a line of --failed-to")
    return row


def _from_json(field: str, content: object) -> bytes | None:
    if content is None:
        return None
    if isinstance(content, str):
        with contextlib.suppress(UnicodeEncodeError):
            return content.encode()
    elif isinstance(content, dict) and content.keys() == {"base64"}:
        with contextlib.suppress(binascii.Error, ValueError, TypeError):
            return base64.b64decode(content["base64"], validate=True)
    raise BadLineError(
        f'has a {field} that is neither a text nor {{"base64": "..."}} nor null',
        f"has a {field} that cannot be read",
    )


def _partition(number: object) -> int | None:
    if number is None or (type(number) is int and number >= 0):
        return number
    raise BadLineError("has a partition that is not a number from 0", "has a partition that cannot be read")


def _headers(row: dict[str, Any]) -> list[Header] | None:
    pairs = row.get("headers") or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise BadLineError(
            "has headers that are not pairs of a name and a value", "has headers that cannot be read"
        )
    return [(name, _from_json("header", value)) for name, value in pairs] or None
