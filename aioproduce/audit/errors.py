"""The errors of readers and writers of stamps and marks.

ProducerError
├── StampError (ValueError)  bytes that are not a record's stamp, or a number out of range
└── MarkError (ValueError)   bytes that are not a producer's mark, or invalid fields
"""

from __future__ import annotations

from aioproduce.errors import ProducerError


class StampError(ProducerError, ValueError):
    """The value of a record's `ap.id` header is not a stamp, or the values to pack are out of range."""


class MarkError(ProducerError, ValueError):
    """A record of the audit topic is not a mark, or its fields contradict each other.

    Attributes:
        field: The field that is wrong; `None` if the whole mark is.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
