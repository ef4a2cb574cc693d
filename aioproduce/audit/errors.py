"""What is raised by readers and writers of stamps and marks.

ProducerError
├── StampError (ValueError)  bytes that are no stamp of a record, or a number that fits none
└── MarkError (ValueError)   bytes that are no mark of a producer, or fields that make none
"""

from __future__ import annotations

from aioproduce.errors import ProducerError


class StampError(ProducerError, ValueError):
    """The value of a record's `ap.id` header is no stamp, or what was to be packed fits none."""


class MarkError(ProducerError, ValueError):
    """A record of the audit topic is no mark, or fields contradict each other.

    Attributes:
        field: The field that is wrong; `None` where the whole is.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
