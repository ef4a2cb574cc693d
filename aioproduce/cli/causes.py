"""The cause of a failure in words that are the same for each record that failed of it: they are counted by it.

Called by `tally`. A cause is the root: "Connection refused", not that the partition had no leader because of it.
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
    """Return the root of an error, without what is of one record or batch only."""
    root = error.__cause__
    if isinstance(root, NoBrokerAvailableError):
        return "; ".join(sorted(root.causes.values()))
    match error:
        case BadLineError():
            return error.kind
        case BrokerRejectedError():
            return f"{error.name}: {codes.message_of(error.code)}"
        case DeliveryTimeoutError(code=None):
            return "the broker takes no more requests"
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
