"""A broker's refusals, as exceptions inside the model.

Raised by `record_batch`, `producer_state` and `log`; `produce` turns them into the error code of one partition.
They never leave the model.
"""

from __future__ import annotations

from typing import final

from aioproduce.portable_error import PortableError


class RefusedError(PortableError):
    """The broker refuses, with an error code.

    Attributes:
        code: Kafka's error code.
        record_errors: The records at fault, as (index in the batch, message).
    """

    def __init__(self, code: int, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.code: int = int(code)
        self.record_errors = record_errors


@final
class InvalidBatchError(RefusedError):
    """The bytes are not a record batch that a broker accepts."""


@final
class SequenceError(RefusedError):
    """The batch does not follow the producer's last one in this partition."""
