"""Waiting for what the core was asked for: an id, offsets, the end of a transaction.

A call that stops waiting, by its bound or as it is cancelled, stops nothing: the operation goes on. The same call
again waits for it, or hears how it ended: also where that came between the two.
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
        operation: Which.
        life: The producer's.
        tells: Whether to raise its error.

    Raises:
        TransactionUnconfirmedError: If no answer came in time; the operation goes on.
        SenderDiedError: If the sender died before the operation ended.
        ProducerClosedError: If the producer was closed before the operation ended.
        TransactionError: It failed, and `tells`.
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
            "goes on asking: make the same call again to wait on",
            recover="call again",
        )
    if tells:
        operation.is_told = True
        if operation.error is not None:
            raise copy_of(operation.error)


def untold(operation: Operation | None, kind: Kind) -> Operation | None:
    """The operation of an earlier call of this kind that did not hear how it ended; `None` where there is none."""
    return None if operation is None or operation.kind != kind or operation.is_told else operation
