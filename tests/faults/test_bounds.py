"""The bounds that a user can count on, shown on real sockets: memory with a stalled broker, fairness among 10,000
waiting tasks. `python -m benchmarks` measures the same at length; here it is a matter of yes or no.
"""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING

import pytest

from aioproduce import Producer
from aioproduce.errors import BufferExhaustedError, DeliveryTimeoutError, ForcedCloseError
from aioproduce.testing import FakeCluster
from tests.drivers.producing import know_topic

if TYPE_CHECKING:
    from aioproduce.records import RecordMetadata

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
        await know_topic(producer, "t")  # the 20 ms are for room, however slow the machine is
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


@pytest.mark.extended("takes 60 s of wall-clock time")
async def test_brokers_that_stall_for_a_minute_cannot_make_memory_grow() -> None:
    """Full rate all the time: what is given up after 10 s makes room, and is on its way in vain again and again."""
    buffer_memory, senders, seconds = 8 << 20, 50, 60.0
    async with FakeCluster(brokers=2, topics={"t": 6}) as cluster:
        producer = Producer(
            cluster.bootstrap_servers,
            max_block_ms=100,
            buffer_memory=buffer_memory,
            request_timeout_ms=5_000,
            delivery_timeout_ms=10_000,
        )
        await producer.start()
        await know_topic(producer, "t")
        await producer.send_and_wait("t", VALUE)
        loop = asyncio.get_running_loop()
        began_at, at_start = loop.time(), resident_bytes()
        grown: list[int] = []
        counts = dict.fromkeys(("accepted", "refused", "given up", "acknowledged"), 0)

        def settled(_metadata: RecordMetadata, error: BaseException | None) -> None:
            counts["acknowledged" if error is None else "given up"] += 1
            assert error is None or isinstance(error, DeliveryTimeoutError)

        async def send_all_the_time() -> None:
            while loop.time() < began_at + seconds:
                try:
                    delivery = await producer.send("t", VALUE)
                except BufferExhaustedError:
                    counts["refused"] += 1
                else:
                    counts["accepted"] += 1
                    delivery._add_delivery_callback(settled)
                assert producer.outstanding_bytes <= buffer_memory

        async def look() -> None:
            while loop.time() < began_at + seconds:
                grown.append(resident_bytes() - at_start)
                await asyncio.sleep(0.1)

        for broker in (0, 1):
            cluster.faults.stall(broker)
        await asyncio.gather(look(), *(send_all_the_time() for _ in range(senders)))
        for broker in (0, 1):
            cluster.faults.resume(broker)
        await producer.flush()
        assert producer.outstanding_bytes == 0
        await producer.close()

    third = len(grown) // 3
    early, late = max(grown[:third]), max(grown[-third:])
    print(f"{counts}, resident: {early:,} bytes more in the first third, {late:,} in the last")
    assert counts["given up"] + counts["acknowledged"] == counts["accepted"]
    # The memory was used several times over.
    assert counts["accepted"] > 3 * buffer_memory // len(VALUE)
    assert counts["refused"] > senders
    assert early < buffer_memory + (64 << 20)
    assert late - early < buffer_memory


@pytest.mark.parametrize(
    "tasks",
    [
        2_000,
        pytest.param(10_000, marks=pytest.mark.extended("5 times as many tasks; 2,000 stay in the gate")),
    ],
)
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
