"""The bounds that the README reports: a stalled broker, tasks that wait for memory, idle, order of keys.

Called by `__main__.py`, in its process. Each uses a new FakeCluster, which can stall.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from aioproduce import Producer, TopicPartition
from benchmarks.broker import BrokerProcess, broker_process
from benchmarks.cases import PARTITIONS, TOPIC
from benchmarks.process import resident

VALUE = b"x" * 100
Figures = dict[str, float]


async def stalled_broker(broker: BrokerProcess, seconds: float) -> Figures:
    """Send at full rate to a broker that reads nothing, and check that memory stays within its bound."""
    settings: dict[str, Any] = {
        "linger_ms": 5,
        "max_block_ms": 100,
        "request_timeout_ms": 600_000,
        "delivery_timeout_ms": 900_000,
    }
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        at_start = resident()
        await asyncio.get_running_loop().run_in_executor(None, broker.stall)
        until = time.perf_counter() + seconds
        accepted = refused = most_outstanding = most_resident = 0
        while time.perf_counter() < until:
            for _ in range(1000):
                try:
                    await producer.send(TOPIC, VALUE)
                    accepted += 1
                except TimeoutError:
                    refused += 1
                    break
            most_outstanding = max(most_outstanding, producer.outstanding_bytes)
            most_resident = max(most_resident, resident())
        bound = producer.config.buffer_memory
        await producer.close(0)
        return {
            "seconds": seconds,
            "accepted": accepted,
            "refused": refused,
            "most_outstanding_bytes": most_outstanding,
            "buffer_memory": bound,
            "resident_growth_mib": (most_resident - at_start) / 2**20,
            "resident_allowed_mib": 64 + bound / 2**20,
            "outstanding_after_close": producer.outstanding_bytes,
        }


async def waiting_tasks(broker: BrokerProcess, tasks: int) -> Figures:
    """Measure the order and the cost of tasks that wait in `send()` on a full buffer; first come, first served."""
    settings: dict[str, Any] = {
        "batch_size": 16384,
        "buffer_memory": 16384 * 4,
        "linger_ms": 0,
        "acks": 1,
        "max_block_ms": 300_000,
    }
    served: list[int] = []
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        await asyncio.get_running_loop().run_in_executor(None, broker.stall)
        fill = [await producer.send(TOPIC, b"y" * 16000, partition=0) for _ in range(4)]

        async def one(number: int) -> None:
            # A record that fills a batch, so each task waits for memory.
            delivery = await producer.send(TOPIC, b"z" * 16000, partition=0)
            served.append(number)
            await delivery

        waiting = [asyncio.ensure_future(one(number)) for number in range(tasks)]
        await asyncio.sleep(0)
        assert len(served) == 0
        await asyncio.get_running_loop().run_in_executor(None, broker.resume)
        cpu = time.process_time()
        await asyncio.gather(*fill, *waiting)
        burnt = time.process_time() - cpu
        return {
            "tasks": tasks,
            "in_fifo_order": float(served == sorted(served)),
            "cpu_microseconds_per_task": burnt / tasks * 1e6,
            "outstanding_after": producer.outstanding_bytes,
        }


async def idle(broker: BrokerProcess, seconds: float) -> Figures:
    """Measure the CPU time of a connected producer with nothing to do."""
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        return {"seconds": seconds, "cpu_percent": (time.process_time() - cpu) / seconds * 100}


async def order_of_keys(broker: BrokerProcess, records: int) -> Figures:
    """Count keyed records whose offsets ascend in their partition in the order of sending."""
    async with Producer(broker.bootstrap_servers) as producer:
        deliveries = [await producer.send(TOPIC, VALUE, key=b"%d" % (n % 100)) for n in range(records)]
        last: dict[TopicPartition, int] = {}
        ascending = 0
        for delivery in deliveries:
            metadata = await delivery
            ascending += metadata.offset > last.get(metadata.topic_partition, -1)
            last[metadata.topic_partition] = metadata.offset
        return {"records": records, "in_order": ascending}


def measures(
    seconds: float, records: int
) -> dict[str, Callable[[BrokerProcess], Coroutine[Any, Any, Figures]]]:
    """Return all measures by their names in the tables."""
    return {
        "stalled broker": lambda broker: stalled_broker(broker, seconds),
        "tasks waiting for memory: 1,000": lambda broker: waiting_tasks(broker, 1_000),
        "tasks waiting for memory: 10,000": lambda broker: waiting_tasks(broker, 10_000),
        "idle": lambda broker: idle(broker, min(seconds, 30.0)),
        "keyed records": lambda broker: order_of_keys(broker, records),
    }


def run(measure: Callable[[BrokerProcess], Coroutine[Any, Any, Figures]]) -> Figures:
    """Run one measure against new brokers."""
    with broker_process(topic=TOPIC, partitions=PARTITIONS) as broker:
        return asyncio.run(measure(broker))
