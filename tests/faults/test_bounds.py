"""The bounds that a user can count on, shown on real sockets: memory with a stalled broker, fairness among 10,000
waiting tasks. `python -m benchmarks` measures the same at length; here it is a matter of yes or no.
"""

from __future__ import annotations

import asyncio
import resource

import pytest

from aioproduce import Producer
from aioproduce.errors import BufferExhaustedError, ForcedCloseError
from aioproduce.testing import FakeCluster

VALUE = b"x" * 100


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def test_a_stalled_broker_with_open_sockets_cannot_make_memory_grow() -> None:
    # Full rate into a broker that reads nothing: three times the buffer is offered, never more than it is taken.
    async with FakeCluster(brokers=2, topics={"t": 6}) as cluster:
        producer = Producer(
            cluster.bootstrap_servers,
            max_block_ms=20,
            buffer_memory=8 << 20,
            request_timeout_ms=600_000,
            delivery_timeout_ms=900_000,
        )
        await producer.start()
        await producer.send_and_wait("t", VALUE)
        at_start = resident_bytes()
        for broker in (0, 1):
            cluster.faults.stall(broker)
        offered = 0
        refusals: list[BufferExhaustedError] = []
        deliveries = []
        while offered < 3 * (8 << 20) // len(VALUE) and len(refusals) < 20:
            offered += 1
            try:
                deliveries.append(await producer.send("t", VALUE))
            except BufferExhaustedError as error:
                refusals.append(error)
            assert producer.outstanding_bytes <= producer.config.buffer_memory
        assert len(refusals) == 20
        assert all(error.available < error.needed == 16384 for error in refusals)
        assert resident_bytes() - at_start < (64 << 20) + (8 << 20)
        await producer.close(0)
        assert producer.outstanding_bytes == 0
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(isinstance(outcome, ForcedCloseError) for outcome in outcomes)


@pytest.mark.parametrize("tasks", [10_000])
async def test_tasks_that_wait_for_memory_are_served_first_come_first_served(tasks: int) -> None:
    record = b"z" * 2000  # fills a batch: each needs memory of its own
    served: list[int] = []
    async with (
        FakeCluster(topics={"t": 1}) as cluster,
        Producer(
            cluster.bootstrap_servers,
            batch_size=2048,
            buffer_memory=4 * 2100,
            linger_ms=0,
            max_block_ms=600_000,
        ) as producer,
    ):
        await producer.send_and_wait("t", b"first")
        cluster.faults.stall(cluster.leader("t", 0))
        fill = [await producer.send("t", record) for _ in range(4)]

        async def one(number: int) -> None:
            delivery = await producer.send("t", b"%d" % number + record)
            served.append(number)
            await delivery

        waiting = [asyncio.ensure_future(one(number)) for number in range(tasks)]
        await asyncio.sleep(0)
        assert producer._life.sender.pool.waiting == tasks
        assert served == []
        cluster.faults.resume(cluster.leader("t", 0))
        await asyncio.gather(*fill, *waiting)
        assert served == list(range(tasks))
        assert producer.outstanding_bytes == 0
        in_the_log = [record.value for record in cluster.records("t")][5:]
    assert in_the_log == [b"%d" % number + record for number in range(tasks)]
