"""The state tables of a transactional producer.

Used by `transaction_manager`. Java's states (TransactionManager.State), with two more transitions: from the
coordinator's time-out back to work, and from a fence of transaction.version 1 back to the beginning.
"""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproduce.core.state_table import StateTable
from aioproduce.errors import TransactionOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping


class TransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = auto()
    """There is no producer id: none was requested, or it was lost."""
    INITIALIZING = auto()
    """InitProducerId is in flight, for a producer id or for a new epoch."""
    READY = auto()
    """No transaction is open."""
    IN_TRANSACTION = auto()
    """A transaction is open."""
    PREPARED = auto()
    """Its records are in the log. Any holder of its `PreparedTransaction` may end it, here or elsewhere."""
    COMMITTING = auto()
    """It is being committed; only `commit()` may be called again."""
    ABORTING = auto()
    """It is being aborted."""
    ABORTABLE_ERROR = auto()
    """A part of it failed: it can only be aborted."""
    FATAL_ERROR = auto()
    """This producer cannot be used any more."""


Event: TypeAlias = Literal[
    "ask for an id",
    "resume",
    "id given",
    "id refused",
    "begin",
    "prepare",
    "commit",
    "abort",
    "ended",
    "ended, new epoch wanted",
    "failed",
    "start again",
    "fatal",
]

TRANSACTION_STATES: Final[StateTable[TransactionState, Event]] = StateTable(
    "the transaction manager",
    {
        TransactionState.UNINITIALIZED: {
            "ask for an id": TransactionState.INITIALIZING,
            "resume": TransactionState.PREPARED,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.INITIALIZING: {
            "id given": TransactionState.READY,
            "id refused": TransactionState.UNINITIALIZED,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.READY: {
            "begin": TransactionState.IN_TRANSACTION,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.IN_TRANSACTION: {
            "prepare": TransactionState.PREPARED,
            "commit": TransactionState.COMMITTING,
            "abort": TransactionState.ABORTING,
            "failed": TransactionState.ABORTABLE_ERROR,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.PREPARED: {
            "commit": TransactionState.COMMITTING,
            "abort": TransactionState.ABORTING,
            "failed": TransactionState.ABORTABLE_ERROR,
            "start again": TransactionState.UNINITIALIZED,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.COMMITTING: {
            "ended": TransactionState.READY,
            "ended, new epoch wanted": TransactionState.INITIALIZING,
            "failed": TransactionState.ABORTABLE_ERROR,
            "start again": TransactionState.UNINITIALIZED,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.ABORTING: {
            "ended": TransactionState.READY,
            "ended, new epoch wanted": TransactionState.INITIALIZING,
            "start again": TransactionState.UNINITIALIZED,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.ABORTABLE_ERROR: {
            "abort": TransactionState.ABORTING,
            "failed": TransactionState.ABORTABLE_ERROR,
            "fatal": TransactionState.FATAL_ERROR,
        },
        TransactionState.FATAL_ERROR: {"fatal": TransactionState.FATAL_ERROR},
    },
)

OPEN: Final = frozenset(
    {TransactionState.IN_TRANSACTION, TransactionState.PREPARED, TransactionState.ABORTABLE_ERROR}
)
"""A transaction is open, and its end was not requested."""

ENDING: Final = frozenset({TransactionState.COMMITTING, TransactionState.ABORTING})
"""Its end was requested."""

MAY_FAIL: Final = frozenset(
    {TransactionState.IN_TRANSACTION, TransactionState.PREPARED, TransactionState.COMMITTING}
)
"""A part that fails makes the commit impossible."""

VERDICTS: Final[Mapping[TransactionState, TransactionOutcome]] = MappingProxyType(
    {
        TransactionState.COMMITTING: TransactionOutcome.COMMITTED,
        TransactionState.ABORTING: TransactionOutcome.ABORTED,
    }
)
"""The outcome of a confirmed end."""
