"""The status of a transactional producer in plain values, for its owner, a dashboard or a health check.

Made by `Producer.transaction_status()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from aioproduce.core.transactions.transaction_states import TransactionState

if TYPE_CHECKING:
    from aioproduce.errors import TransactionError
    from aioproduce.producer.life import ProducerLife


@final
@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """The status of a transactional producer at one instant.

    Attributes:
        transactional_id: Kafka's `transactional.id`.
        state: The state of its transactions.
        open_for: Seconds since the coordinator may know of the open transaction; 0 if none is open.
        error: The reason why the open transaction can only be aborted, or why the producer can do nothing more; or
            `None`.
    """

    transactional_id: str
    state: TransactionState
    open_for: float
    error: TransactionError | None


def status_of(life: ProducerLife) -> TransactionStatus | None:
    """Return the status of a producer; `None` if it has no `transactional.id`."""
    transactional_id = life.config.transactional_id
    if transactional_id is None:
        return None
    manager = life.sender.transactions if life.was_started else None
    if manager is None:
        return TransactionStatus(transactional_id, TransactionState.UNINITIALIZED, 0.0, None)
    transaction, error, open_for = manager.transaction, manager.error, 0.0
    if transaction is not None:
        error, open_for = error or transaction.error, transaction.open_for(life.driver.now())
    return TransactionStatus(transactional_id, manager.state, open_for, error)
