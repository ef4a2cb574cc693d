"""`check(tries_each_once=True)`, to hear early that nobody is there; and the code of a delivery time-out."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from aioproduce import Producer
from aioproduce.errors import DeliveryTimeoutError, NoBrokerAvailableError
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import wait_for
from tests.drivers.producing import PATIENCE

pytestmark = pytest.mark.usefixtures("nothing_left")


async def test_nobody_is_there() -> None:
    with socket.socket() as first, socket.socket() as second:
        addresses = []
        for taken in (first, second):
            taken.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{taken.getsockname()[1]}")
        async with Producer(addresses) as producer:
            with pytest.raises(NoBrokerAvailableError, match="none of the bootstrap servers") as caught:
                await wait_for(producer.check(3600, tries_each_once=True), PATIENCE)
            # They have failed, and are tried once more all the same by who asks again.
            with pytest.raises(NoBrokerAvailableError):
                await wait_for(producer.check(3600, tries_each_once=True), PATIENCE)
    assert sorted(caught.value.causes) == sorted(addresses)


async def test_one_of_them_is_there(cluster: FakeCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        async with Producer([nobody, f"127.0.0.1:{cluster.ports[0]}"]) as producer:
            found = await producer.check(PATIENCE, tries_each_once=True)
    assert len(found.brokers) == 3


SHORT: dict[str, Any] = {
    "request_timeout_ms": 250,
    "delivery_timeout_ms": 500,
    "linger_ms": 0,
}


async def code_after(cluster: FakeCluster, producer: Producer) -> int | None:
    with pytest.raises(DeliveryTimeoutError) as caught:
        await producer.send_and_wait("one", b"x", partition=0)
    cluster.faults.clear()
    return caught.value.code


async def test_the_code_of_the_latest_answer(cluster: FakeCluster) -> None:
    # One attempt: another might be under way when the time is over.
    settings = {**SHORT, "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("one", PATIENCE)
        cluster.faults.fail_produce(codes.NOT_ENOUGH_REPLICAS, times=None)
        assert await code_after(cluster, producer) == codes.NOT_ENOUGH_REPLICAS


async def test_the_code_of_an_answer_that_did_not_come(cluster: FakeCluster) -> None:
    settings = {**SHORT, "request_timeout_ms": 500, "delivery_timeout_ms": 500}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("one", PATIENCE)
        cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
        assert await code_after(cluster, producer) == codes.REQUEST_TIMED_OUT


async def test_the_code_of_a_partition_without_a_leader(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **SHORT) as producer:
        cluster.take_leader("one", 0)
        await producer.partitions_for("one", PATIENCE)
        assert await code_after(cluster, producer) == codes.LEADER_NOT_AVAILABLE
