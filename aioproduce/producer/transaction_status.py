"""Where a transactional producer is, as its owner, a dashboard or a health check may read it: plain values.

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
    """Where a transactional producer is at one instant.

    Attributes:
        transactional_id: Kafka's `transactional.id`.
        state: Where it is.
        open_for: Seconds for which the coordinator may have known of the open transaction; 0 where there is none.
        error: Why the open transaction can only be aborted, or why the producer can do nothing more; or `None`.
    """

    transactional_id: str
    state: TransactionState
    open_for: float
    error: TransactionError | None


def status_of(life: ProducerLife) -> TransactionStatus | None:
    """That of a producer; `None` where it has no `transactional.id`."""
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
