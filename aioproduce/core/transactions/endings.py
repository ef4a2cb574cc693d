"""The outcome of a transaction whose EndTxn was refused, as a table.

Used by `transaction_manager`. With version 2 each end brings a new epoch. If the coordinator knows a higher epoch,
this transaction has ended, or another producer has taken over: the answer to an abort at the same epoch depends on
how it ended. With version 1 a time-out looks like a fence, and the coordinator is asked who owns the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproduce.errors import TransactionOutcome
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerIdAndEpoch
    from aioproduce.wire.messages import TransactionDescription

Verdict: TypeAlias = Literal["commit", "abort", "abort prepared", "probe"]
"""The verdict of an EndTxn.

A probe is an abort that finds out the outcome of a commit. Only a prepared transaction may have been committed by
somebody else.
"""


class Ending(Enum):
    """The meaning of a refusal, or the next request."""

    TIMED_OUT = auto()
    """The coordinator aborted it because it was open for too long."""
    NOTHING_OPEN = auto()
    """There was nothing to abort."""
    COMMITTED = auto()
    """It was committed before."""
    COMMITTED_ELSEWHERE = auto()
    """Another holder of its PreparedTransaction committed it."""
    PROBE = auto()
    """Send an abort at the same epoch."""
    DESCRIBE = auto()
    """Ask the coordinator who owns the epoch."""
    FENCED = auto()
    """Another producer has taken over."""


REFUSED_ENDS: Final[Mapping[tuple[int, Verdict, bool], Ending]] = MappingProxyType(
    {
        # (version, verdict, whether the code is INVALID_TXN_STATE and not that of a fence)
        (1, "commit", True): Ending.TIMED_OUT,
        (1, "commit", False): Ending.DESCRIBE,
        (1, "abort", True): Ending.NOTHING_OPEN,
        (1, "abort", False): Ending.DESCRIBE,
        (1, "abort prepared", True): Ending.COMMITTED_ELSEWHERE,
        (1, "abort prepared", False): Ending.DESCRIBE,
        (2, "commit", True): Ending.PROBE,
        (2, "commit", False): Ending.PROBE,
        (2, "probe", True): Ending.COMMITTED,
        (2, "probe", False): Ending.FENCED,
        (2, "abort", True): Ending.NOTHING_OPEN,
        (2, "abort", False): Ending.FENCED,
        (2, "abort prepared", True): Ending.COMMITTED_ELSEWHERE,
        (2, "abort prepared", False): Ending.FENCED,
    }
)

_ABORTED_BY_THE_COORDINATOR: Final = frozenset({"CompleteAbort", "PrepareAbort", "PrepareEpochFence"})


def is_still_ours(producer: ProducerIdAndEpoch, found: TransactionDescription | None) -> bool:
    """Return whether the coordinator raised the epoch by an abort of its own, and nobody has taken over.

    It aborts a transaction that is open for too long, and one that a late AddPartitionsToTxn opened again.
    """
    return (
        found is not None
        and found.error_code == codes.NONE
        and (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch + 1)
        and found.state in _ABORTED_BY_THE_COORDINATOR
    )


_DECIDED: Final[Mapping[str, TransactionOutcome]] = MappingProxyType(
    {
        "PrepareCommit": TransactionOutcome.COMMITTED,
        "CompleteCommit": TransactionOutcome.COMMITTED,
        "PrepareAbort": TransactionOutcome.ABORTED,
        "CompleteAbort": TransactionOutcome.ABORTED,
    }
)


def outcome_of(
    producer: ProducerIdAndEpoch, version: int, found: TransactionDescription | None
) -> TransactionOutcome | None:
    """Return the outcome of a prepared transaction from its coordinator's description; `None` while it is open.

    | epoch | version | what it proves |
    |---|---|---|
    | ours | 1, 2 | the outcome of ours: its producer gets another epoch for the next one |
    | the next one | 2 | the outcome of ours: its end brought the epoch, and a rival gets a later one |
    | the next one | 1 | nothing: a time-out looks like a rival's own abort, which may have followed our commit |
    | any other | 1, 2 | nothing: later events hide the outcome of ours |
    """
    if found is None or found.error_code != codes.NONE or found.producer_id != producer.producer_id:
        return TransactionOutcome.UNKNOWN
    ahead = found.producer_epoch - producer.epoch
    if ahead == 0 and found.state == "Ongoing":
        return None
    if ahead == 0 or (ahead == 1 and version > 1):
        return _DECIDED.get(found.state, TransactionOutcome.UNKNOWN)
    return TransactionOutcome.UNKNOWN
