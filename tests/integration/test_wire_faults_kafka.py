"""Wire faults in front of a real broker: rows 4, 5, 6, 8, 9 and 14, a part of what `faults/test_wire_faults*` does.

The broker tells those who come through the proxy to come back through it (``has_proxies`` of ``KafkaCluster``): our
producer does, while the harness and Kafka's own consumer, which judges, talk to it directly.

1. The broker's state is Kafka's own: duplicates are told by its producer state, not by a model of it.
2. Each test has a topic, a proxy and producers of its own; the broker is shared.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import DeliveryTimeoutError
from aioproduce.wire.api import ApiKey
from tests.drivers.producing import until
from tests.faults.proxy import FaultProxy
from tests.faults.verdict import Promise, Trial
from tests.faults.wire import EAGER, KINDS
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.integration.traffic import Verdict
    from tests.kafka_tools import KafkaTools

# Kafka takes longer than the model, and pauses: a request that times out here was meant to.
SETTINGS: dict[str, Any] = {**EAGER, "request_timeout_ms": 2000, "delivery_timeout_ms": 120_000}

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def proxied1(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One real broker; the proxy in front of it is each test's own."""
    with KafkaCluster(
        kafka_tools, tmp_path_factory.mktemp("proxied1"), brokers=1, has_proxies=True
    ) as cluster:
        yield cluster


@dataclass(slots=True)
class Wire:
    """A producer that sends through a proxy to a real broker; `verdict` comes at the end."""

    kafka: KafkaCluster
    proxy: FaultProxy
    trial: Trial
    may_fail: bool = False
    promise: Promise | None = None
    verdict: Verdict | None = None

    async def met(self, fault: Any) -> None:
        """The fault has happened, and what it happened to is acknowledged."""
        await until(lambda: fault.is_spent)
        await self.trial.caught_up()


@contextlib.asynccontextmanager
async def behind_proxy(
    kafka: KafkaCluster, topic: str, kind: str, *, is_sending: bool = True, **settings: Any
) -> AsyncIterator[Wire]:
    """Send while the test scripts its faults; then Kafka's own consumer reads the log, and it is judged."""
    await asyncio.to_thread(kafka.create_topic, topic, partitions=3)
    [node] = kafka.nodes.values()
    proxy = FaultProxy(
        {node.node_id: ("127.0.0.1", node.proxied_port)}, ports={node.node_id: node.proxy_port}
    )
    chosen = {**SETTINGS, **KINDS[kind].settings, **settings}
    async with proxy:
        async with Producer(proxy.bootstrap_servers, **chosen) as producer:
            trial = Trial(producer, topic, KINDS[kind].promise, is_sending=is_sending)
            wire = Wire(kafka, proxy, trial)
            async with trial:
                if is_sending:
                    await trial.acknowledged(50)
                else:
                    await trial.send(50)
                    await trial.settle()
                yield wire
        # Everything went through the proxy, or the faults were for nobody.
        assert proxy.count(ApiKey.PRODUCE) > 0
        await until(lambda: not proxy.links)
    log = await asyncio.to_thread(kafka.console_consume, topic)
    wire.verdict = trial.judge(log, may_fail=wire.may_fail, promise=wire.promise)


def is_written_twice(wire: Wire) -> bool:
    assert wire.verdict is not None
    return bool(wire.verdict.duplicated)


@pytest.mark.scenario(4, "P")
@every_kind
async def test_reset_after_the_append(proxied1: KafkaCluster, topic_name: str, kind: str) -> None:
    async with behind_proxy(proxied1, topic_name, kind) as wire:
        for skip in (0, 1, 4):
            await wire.met(wire.proxy.reset_after(ApiKey.PRODUCE, skip=skip))
    assert is_written_twice(wire) == (kind != "idempotent")


@pytest.mark.scenario(5, "P")
@every_kind
async def test_answer_cut(proxied1: KafkaCluster, topic_name: str, kind: str) -> None:
    async with behind_proxy(proxied1, topic_name, kind) as wire:
        for length in (2, 6, 20):
            await wire.met(wire.proxy.cut_answer(ApiKey.PRODUCE, length=length))
    assert is_written_twice(wire) == (kind != "idempotent")


@pytest.mark.scenario(6, "P")
@every_kind
async def test_answer_swallowed(proxied1: KafkaCluster, topic_name: str, kind: str) -> None:
    async with behind_proxy(proxied1, topic_name, kind) as wire:
        fault = wire.proxy.swallow_answer(ApiKey.PRODUCE)
        await wire.met(fault)
        assert fault.links[0] not in wire.proxy.links
    assert is_written_twice(wire) == (kind != "idempotent")


@pytest.mark.scenario(8, "P")
@every_kind
async def test_black_hole_shorter_than_the_delivery_time_out(
    proxied1: KafkaCluster, topic_name: str, kind: str
) -> None:
    """What was on its way reaches the broker when it heals, on connections that nobody listens to any more."""
    async with behind_proxy(proxied1, topic_name, kind, request_timeout_ms=500) as wire:
        connections = wire.proxy.connections()
        wire.proxy.hold()
        await until(lambda: wire.proxy.connections() >= connections + 3)
        wire.proxy.heal()
        await wire.trial.caught_up()


@pytest.mark.scenario(9, "P")
@every_kind
async def test_black_hole_longer_than_the_delivery_time_out(
    proxied1: KafkaCluster, topic_name: str, kind: str
) -> None:
    """Records fail; those sent afterwards are written once, with no gap in the sequence that stalls them."""
    async with behind_proxy(
        proxied1, topic_name, kind, request_timeout_ms=500, delivery_timeout_ms=2500
    ) as wire:
        wire.may_fail = True
        wire.proxy.hold()
        await wire.trial.failures(100)
        wire.proxy.heal()
        await wire.trial.acknowledged(200)
    assert {type(error) for error in wire.trial.failed.values()} == {DeliveryTimeoutError}


@pytest.mark.scenario(14, "P")
@every_kind
async def test_idle_connections_are_closed(proxied1: KafkaCluster, topic_name: str, kind: str) -> None:
    async with behind_proxy(proxied1, topic_name, kind, is_sending=False) as wire:
        wire.promise = Promise.ONCE
        for is_noticed in (True, False) * 5:
            await until(lambda: any(link.is_idle for link in wire.proxy.links))
            idle = set(wire.proxy.close_idle())
            if is_noticed:
                await until(lambda: idle.isdisjoint(wire.proxy.links))  # noqa: B023  # awaited in the loop
            await wire.trial.send(20)
            await wire.trial.settle()


@pytest.mark.scenario(14, "P")
@every_kind
async def test_connection_closed_after_each_answer(
    proxied1: KafkaCluster, topic_name: str, kind: str
) -> None:
    async with behind_proxy(proxied1, topic_name, kind) as wire:
        fault = wire.proxy.close_after_answer(ApiKey.PRODUCE)
        await wire.trial.acknowledged(200)
        await until(lambda: fault.hits > 10)
        fault.cancel()
