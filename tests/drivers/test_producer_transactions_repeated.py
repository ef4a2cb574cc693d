"""A call of a transaction that was given up, and is made again after its answer came.

Scenarios of Java's TransactionManagerTest (tests/README.md says which test stands for which).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from aioproduce import Producer
from aioproduce.errors import TransactionOutcome, TransactionStateError
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import spawn
from tests.drivers.producing import until

if TYPE_CHECKING:
    from aioproduce.testing import FakeCluster

End = Literal["commit", "abort"]
OUTCOMES: dict[End, TransactionOutcome] = {
    "commit": TransactionOutcome.COMMITTED,
    "abort": TransactionOutcome.ABORTED,
}
OPPOSITE: dict[End, End] = {"commit": "abort", "abort": "commit"}


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("version", [1, 2], ids=["version 1", "version 2"])
async def test_an_end_that_nobody_waited_for_is_told_to_the_same_call(
    cluster: FakeCluster, version: int, end: End
) -> None:
    """In Java nothing else may be called before it; here the transaction has ended, and the next may begin."""
    cluster.set_transaction_version(version)
    async with Producer(cluster.bootstrap_servers, transactional_id="orders-1", linger_ms=0) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait("t", b"1")
        held = cluster.faults.delay_answers(0.05, api=ApiKey.END_TXN)
        task = spawn(getattr(txn, end)())
        await until(lambda: not txn.is_open)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: txn.outcome is not None)
        held.cancel()
        assert txn.outcome is OUTCOMES[end]
        with pytest.raises(TransactionStateError, match="not open"):
            await getattr(txn, OPPOSITE[end])()
        with pytest.raises(TransactionStateError):
            await txn.send("t", b"2")
        await getattr(txn, end)()
        with pytest.raises(TransactionStateError, match="not open"):
            await getattr(txn, end)()
        async with producer.transaction() as after:
            await after.send("t", b"3")
    await until(lambda: not cluster.open_transactions)
    expected = [b"1", b"3"] if end == "commit" else [b"3"]
    assert [record.value for record in cluster.records("t", isolation="read_committed")] == expected
