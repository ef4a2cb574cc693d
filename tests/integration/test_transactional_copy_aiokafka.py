"""`examples/transactional_copy_aiokafka.py` on a real broker: killed twice and started again, exactly once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from aioproduce import Producer

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.extended("kills and restarts a copier")]

ROOT = Path(__file__).parents[2]
COUNT = 20_000
"""Of each of two partitions: some twenty transactions."""


async def copier(servers: str, source: str, target: str) -> asyncio.subprocess.Process:
    program = str(ROOT / "examples" / "transactional_copy_aiokafka.py")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, program, servers, source, target, "0", "1"),
        stdout=DEVNULL,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


async def test_each_record_once(kafka1: KafkaCluster, topic_name: str) -> None:
    servers = kafka1.bootstrap_servers
    source = kafka1.create_topic(topic_name, partitions=2)
    target = kafka1.create_topic(f"{topic_name}-copy", partitions=2)
    async with Producer(servers) as producer:
        for partition in (0, 1):
            await (
                await producer.send_many(
                    source, [b"%d" % number for number in range(COUNT)], partition=partition
                )
            )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(target, partition) for partition in (0, 1)])
    found: dict[int, list[bytes]] = {0: [], 1: []}
    kills = 0
    process = await copier(servers, source, target)
    try:
        while min(map(len, found.values())) < COUNT:
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                found[place.partition] += [record.value for record in records]
            if kills < 2 and sum(map(len, found.values())) > (kills + 1) * 5_000:
                process.kill()
                await process.wait()
                kills += 1
                process = await copier(servers, source, target)
        # What would come twice comes within the next transactions: there are none.
        assert await consumer.getmany(timeout_ms=1500) == {}
    finally:
        process.kill()
        await process.wait()
        await consumer.stop()
    assert kills == 2
    for values in found.values():
        assert values == [b"%d" % number for number in range(COUNT)]
