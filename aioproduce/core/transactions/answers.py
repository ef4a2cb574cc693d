"""The action for each error code of each transactional request, as a table.

Used by `transaction_manager`. Kafka's TransactionManager has the same decisions in its handlers; where this table
differs, the comment at the row says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey


class Action(Enum):
    """The action that an answer requires."""

    DONE = auto()
    """The request succeeded."""
    RETRY = auto()
    """Send it again after a back-off."""
    RETRY_SOON = auto()
    """Send it again after the short back-off of CONCURRENT_TRANSACTIONS: markers are being written."""
    FIND = auto()
    """Find the coordinator, then send it again."""
    ABORTABLE = auto()
    """The transaction can only be aborted."""
    FENCED = auto()
    """Another producer of the same id, or the coordinator's time-out, ended this epoch."""
    FATAL = auto()
    """The producer cannot be used any more."""


_RETRIED_BY_ALL: Final = {
    codes.NONE: Action.DONE,
    codes.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    codes.COORDINATOR_NOT_AVAILABLE: Action.FIND,
    codes.NOT_COORDINATOR: Action.FIND,
    codes.CONCURRENT_TRANSACTIONS: Action.RETRY_SOON,
    codes.TRANSACTION_ABORTABLE: Action.ABORTABLE,
    codes.PRODUCER_FENCED: Action.FENCED,
    codes.INVALID_PRODUCER_EPOCH: Action.FENCED,
}

ACTIONS: Final[Mapping[ApiKey, Mapping[int, Action]]] = MappingProxyType(
    {
        ApiKey.FIND_COORDINATOR: {
            codes.NONE: Action.DONE,
            codes.COORDINATOR_NOT_AVAILABLE: Action.RETRY,
            codes.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.TRANSACTION_ABORTABLE: Action.ABORTABLE,
        },
        # A missing permission ends the call and nothing else: it may be granted later.
        ApiKey.INIT_PRODUCER_ID: _RETRIED_BY_ALL
        | {
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.CLUSTER_AUTHORIZATION_FAILED: Action.ABORTABLE,
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: _RETRIED_BY_ALL
        | {
            codes.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
            codes.TOPIC_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.OPERATION_NOT_ATTEMPTED: Action.ABORTABLE,
            codes.UNKNOWN_PRODUCER_ID: Action.ABORTABLE,
            # The next transaction would fail in the same way.
            codes.INVALID_TXN_STATE: Action.FATAL,
            codes.INVALID_PRODUCER_ID_MAPPING: Action.FATAL,
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.FATAL,
        },
        ApiKey.ADD_OFFSETS_TO_TXN: _RETRIED_BY_ALL
        | {
            codes.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.UNKNOWN_PRODUCER_ID: Action.ABORTABLE,
        },
        # A group's offsets concern this transaction and not the producer. In Java, metadata that is too large and a
        # stale member epoch (KIP-848) are fatal, and it retries an unknown partition for ever.
        ApiKey.TXN_OFFSET_COMMIT: _RETRIED_BY_ALL
        | {
            codes.REQUEST_TIMED_OUT: Action.FIND,
            codes.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
            codes.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.TOPIC_AUTHORIZATION_FAILED: Action.ABORTABLE,
            codes.FENCED_INSTANCE_ID: Action.ABORTABLE,
            codes.ILLEGAL_GENERATION: Action.ABORTABLE,
            codes.UNKNOWN_MEMBER_ID: Action.ABORTABLE,
            codes.STALE_MEMBER_EPOCH: Action.ABORTABLE,
            codes.OFFSET_METADATA_TOO_LARGE: Action.ABORTABLE,
            codes.INVALID_COMMIT_OFFSET_SIZE: Action.ABORTABLE,
            codes.INVALID_GROUP_ID: Action.ABORTABLE,
        },
        ApiKey.END_TXN: _RETRIED_BY_ALL
        | {
            codes.UNKNOWN_PRODUCER_ID: Action.ABORTABLE,
            # The meaning depends on the verdict and the version: see `transaction_manager`.
            codes.INVALID_TXN_STATE: Action.FENCED,
        },
        # Any other answer means that somebody else has the id now.
        ApiKey.DESCRIBE_TRANSACTIONS: {
            codes.NONE: Action.DONE,
            codes.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
            codes.COORDINATOR_NOT_AVAILABLE: Action.FIND,
            codes.NOT_COORDINATOR: Action.FIND,
            codes.TRANSACTIONAL_ID_NOT_FOUND: Action.DONE,
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.DONE,
        },
    }
)

_OTHERS: Final[Mapping[ApiKey, Action]] = MappingProxyType({ApiKey.ADD_PARTITIONS_TO_TXN: Action.ABORTABLE})


def action_for(api: ApiKey, code: int) -> Action:
    """Return the action for a code; one that no table has is retried if Kafka calls it retriable."""
    found = ACTIONS[api].get(code)
    if found is not None:
        return found
    return Action.RETRY if codes.is_retriable(code) else _OTHERS.get(api, Action.FATAL)


DEFINITE: Final = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_COORDINATOR, codes.CONCURRENT_TRANSACTIONS}
)
"""Codes after which it certainly has not executed the request."""

PRODUCE_FATAL: Final = frozenset(
    {
        codes.PRODUCER_FENCED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.UNSUPPORTED_VERSION,
        codes.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Codes of Produce that are fatal. INVALID_PRODUCER_EPOCH is not among them: the end of the transaction
distinguishes a time-out from a fence."""
