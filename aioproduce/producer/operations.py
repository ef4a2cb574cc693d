"""Waits for operations of the core: a producer id, offsets, the end of a transaction.

A call that reaches its bound or is cancelled stops only its own wait: the operation goes on. The same call again
waits for the operation or reports its result, also if it ended between the two calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce.errors import TransactionUnconfirmedError
from aioproduce.portable_error import copy_of

if TYPE_CHECKING:
    from aioproduce.core.transactions.operation import Kind, Operation
    from aioproduce.producer.life import ProducerLife

_METRICS: Final = {
    "init": "txn-init",
    "send_offsets": "txn-send-offsets",
    "prepare": "txn-prepare",
    "commit": "txn-commit",
    "abort": "txn-abort",
}


async def wait_for(operation: Operation, life: ProducerLife, *, tells: bool = True) -> None:
    """Wait for an operation of the core, for at most `max.block.ms`.

    Args:
        operation: The operation.
        life: The producer's life.
        tells: Whether to raise the operation's error.

    Raises:
        TransactionUnconfirmedError: if no answer came in time; the operation goes on.
        SenderDiedError: if the sender died before the operation ended.
        ProducerClosedError: if the producer was closed before the operation ended.
        TransactionError: if the operation failed and `tells` is set.
    """
    if not operation.is_done and life.is_over:
        life.check_running()
    driver = life.driver
    waiter = driver.make_waiter()
    began = driver.now()
    operation.when_done(waiter.notify)
    driver.wake()
    try:
        await waiter.wait(began + life.config.max_block)
    finally:
        operation.forget(waiter.notify)
        if operation.kind in _METRICS:
            life.metrics.spent(_METRICS[operation.kind], driver.now() - began)
    if not operation.is_done:
        life.check_running()
        raise TransactionUnconfirmedError(
            f"no answer came for {operation.kind} within max.block.ms ({life.config.max_block:g} s); the producer "
            "keeps asking: make the same call again to wait for it",
            recover="call again",
        )
    if tells:
        operation.is_told = True
        if operation.error is not None:
            raise copy_of(operation.error)


def untold(operation: Operation | None, kind: Kind) -> Operation | None:
    """Return the operation of an earlier call of this kind whose result no call has reported; `None` if none."""
    return None if operation is None or operation.kind != kind or operation.is_told else operation
