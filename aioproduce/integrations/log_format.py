"""Log records as JSON: one object each, with the fields that log stores look for.

Used as the default formatter of `KafkaLogHandler`, and usable with any other handler.

Invariants:

1. Whatever a record carries becomes a valid JSON object: what JSON cannot hold is there as text.
2. No `extra` of the application's can take the place of a field of ours.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

# What every record has; the rest of its attributes came by `extra`.
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object without line breaks.

    Fields: `timestamp` (ISO 8601, UTC, milliseconds), `level`, `logger`, `message`, `file`, `line`, `function`,
    `process`, `thread`, and `task` where Python tells it (3.12); `exception` with `type`, `message` and
    `stacktrace`, and `stack`, where there are such; then whatever the application gave as `extra`, under its
    own name, or under `extra_<name>` where a field of these has it.

    Args:
        fields: Fixed fields for every record, e.g. `{"service": "orders", "version": "1.2"}`.

    Example:
        >>> record = logging.LogRecord("shop", logging.INFO, "shop.py", 7, "%d sold", (3,), None)
        >>> json.loads(JsonFormatter().format(record))["message"]
        '3 sold'
    """

    def __init__(self, fields: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """The object as text."""
        document = self._document(record)
        try:
            return json.dumps(document, default=_text, allow_nan=False, ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            # NaN, keys that are no text, or a circle: the application's own.
            plain = {name: value if _is_plain(value) else _text(value) for name, value in document.items()}
            return json.dumps(plain, allow_nan=False, ensure_ascii=False)

    def _document(self, record: logging.LogRecord) -> dict[str, Any]:
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {
            "timestamp": timestamp.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "file": record.pathname,
            "line": record.lineno,
            "function": record.funcName,
            "process": record.process,
            "thread": record.threadName,
        }
        task = getattr(record, "taskName", None)
        if task is not None:
            document["task"] = task
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, _ = record.exc_info
            document["exception"] = {
                "type": f"{kind.__module__}.{kind.__qualname__}",
                "message": _text(error),
                "stacktrace": self.formatException(record.exc_info),
            }
        elif record.exc_text:  # a QueueHandler has made text of it
            document["exception"] = {"stacktrace": record.exc_text}
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        for name, value in self._fields.items():
            document.setdefault(name, value)
        for name, value in record.__dict__.items():
            if name not in _STANDARD:
                document[f"extra_{name}" if name in document else name] = value
        return document


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int)


def _text(value: object) -> str:
    """What an object says of itself; what fails to say anything must not cost the record."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
