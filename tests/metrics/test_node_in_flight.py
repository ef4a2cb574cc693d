"""`requests-in-flight` of each broker: what a broker that does not answer holds, and nothing after it answered."""

from __future__ import annotations

import asyncio

from aioproduce import Producer
from aioproduce.testing import FakeCluster


def in_flight(producer: Producer) -> dict[str, float]:
    return {
        metric.tags["node-id"]: float(metric.value)
        for metric in producer.metrics().find("requests-in-flight")
        if "node-id" in metric.tags
    }


async def test_the_requests_of_the_broker_that_stalls() -> None:
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        leaders = [cluster.leader("t", partition) for partition in (0, 1)]
        assert leaders[0] != leaders[1]
        async with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=0) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"first", partition=partition)
            cluster.faults.stall(leaders[0])
            waiting = []
            for number in range(3):
                waiting.append(await producer.send("t", b"%d" % number, partition=0))
                while in_flight(producer)[f"node-{leaders[0]}"] < number + 1:  # noqa: ASYNC110  (nothing tells)
                    await asyncio.sleep(0)
            assert await producer.send_and_wait("t", b"elsewhere", partition=1)

            found = in_flight(producer)
            assert found[f"node-{leaders[0]}"] == 3
            assert sum(found.values()) == producer.metrics().value("requests-in-flight") == 3

            cluster.faults.resume(leaders[0])
            await asyncio.gather(*waiting)
            assert set(in_flight(producer).values()) == {0.0}
