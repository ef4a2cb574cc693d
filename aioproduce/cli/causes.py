"""The root cause of a failure, in the same words for each record: failures are counted by it.

Called by `tally`. "Connection refused" is a root cause. A leader that is missing because of it is none.
"""

from __future__ import annotations

from aioproduce.cli.line_format import BadLineError
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    DisconnectedError,
    ForcedCloseError,
    NoBrokerAvailableError,
    RecordTooLargeError,
)
from aioproduce.wire import error_codes as codes


def cause_of(error: BaseException) -> str:
    """Return the root cause of an error, without the details of one record or batch."""
    root = error.__cause__
    if isinstance(root, NoBrokerAvailableError):
        return "; ".join(sorted(root.causes.values()))
    match error:
        case BadLineError():
            return error.kind
        case BrokerRejectedError():
            return f"{error.name}: {codes.message_of(error.code)}"
        case DeliveryTimeoutError(code=None):
            return "the broker accepts no more requests"
        case DeliveryTimeoutError(code=int(code)):
            return f"{codes.name_of(code)}: {codes.message_of(code)}"
        case DisconnectedError():
            return "the connection was lost, and no attempt was left"
        case ForcedCloseError():
            return "the run ended before the broker acknowledged it"
        case RecordTooLargeError():
            return f"is larger than {error.limited_by}={error.limit}"
        case _:
            return type(error).__name__ if root is None else repr(root)
