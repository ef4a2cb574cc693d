"""Log records as JSON: one object each, with the usual fields of log stores.

Used as the default formatter of `KafkaLogHandler`, and usable with any other handler.

Invariants:

1. Every record becomes a valid JSON object: values that JSON cannot represent are written as text.
2. An application's `extra` cannot replace one of our fields.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

# The attributes of every record; all others come from `extra`.
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object without line breaks.

    Fields: `timestamp` (ISO 8601, UTC, milliseconds), `level`, `logger`, `message`, `file`, `line`, `function`,
    `process`, `thread`, and `task` from Python 3.12 on; `exception` with `type`, `message` and `stacktrace`, and
    `stack`, if there are any; then the application's `extra` under their own names, or under `extra_<name>` if
    one of these fields has the name.

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
        """Return the object as text."""
        document = self._document(record)
        try:
            return json.dumps(document, default=_text, allow_nan=False, ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            # NaN, keys that are not text, or a cycle, in the application's own values.
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
        elif record.exc_text:  # a QueueHandler has converted it to text
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
    """Return an object's text; an object that fails to provide one must not cost the record."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
