"""Our producer when the whole cluster is gone: for good, for a while, or to other addresses.

One real broker, which is stopped, and started again where it was or elsewhere. Nothing may hang on it: what is not
delivered in time fails, and what is still in time is delivered when the broker is back.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import DeliveryTimeoutError, FlushTimeoutError, ForcedCloseError, MetadataTimeoutError
from tests.integration.traffic import Traffic, Verdict, by_name

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

KINDS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "acks=all": {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    "acks=1": {"enable_idempotence": False, "acks": "1", "max_in_flight_requests_per_connection": 1},
}
QUICK: dict[str, Any] = {"retry_backoff_max_ms": 200, "reconnect_backoff_max_ms": 200}
IMPATIENT: dict[str, Any] = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000, "max_block_ms": 500}


async def test_flush_and_close_end_while_the_cluster_is_down(kafka1: KafkaCluster, topic_name: str) -> None:
    """Their own time-out ends them, or that of the deliveries: others hang here for ever."""
    await asyncio.to_thread(kafka1.create_topic, topic_name)
    traffics: dict[str, Traffic] = {}
    async with AsyncExitStack() as stack:
        for kind, settings in KINDS.items():
            patient = await stack.enter_async_context(Producer(kafka1.bootstrap_servers, **QUICK, **settings))
            traffics[f"kept-{kind}"] = Traffic(patient, topic_name, name=f"kept-{kind}")
            impatient = Producer(kafka1.bootstrap_servers, **QUICK, **IMPATIENT, **settings)
            await impatient.start()
            traffics[f"lost-{kind}"] = Traffic(impatient, topic_name, name=f"lost-{kind}")
        await settle_after(traffics)
        await asyncio.to_thread(kafka1.kill, 1)
        for name, traffic in traffics.items():
            await traffic.send(5)
            if name.startswith("kept"):
                with pytest.raises(FlushTimeoutError):
                    await traffic.producer.flush(0.1)
                assert (len(traffic.acked), traffic.failed) == (5, {})
                continue
            await traffic.settle()
            assert [type(error) for error in traffic.failed.values()] == [DeliveryTimeoutError] * 5
            with pytest.raises(MetadataTimeoutError):
                await traffic.producer.send(f"{topic_name}-unknown", b"")
            await traffic.send(5)
            await traffic.producer.close(0.1)
            assert [type(error) for error in traffic.failed.values()][5:] == [ForcedCloseError] * 5
            assert traffic.producer.outstanding_bytes == 0
        await asyncio.to_thread(kafka1.start, 1)
        kept = {name: traffic for name, traffic in traffics.items() if name.startswith("kept")}
        await asyncio.gather(*(traffic.settle() for traffic in kept.values()))
        await settle_after(kept)

    records = by_name(await asyncio.to_thread(kafka1.console_consume, topic_name))
    for name, traffic in traffics.items():
        assert (name, len(traffic.acked)) == (name, 15 if name in kept else 5)
        assert (name, traffic.judge(records[name])) == (name, Verdict())


@pytest.mark.scenario(27, "K")
@pytest.mark.extended("starts and stops brokers; its simulation stays in the gate")
async def test_every_broker_is_somewhere_else(kafka1: KafkaCluster, topic_name: str) -> None:
    """KIP-899: no address that metadata told is of any use, and one of bootstrap.servers is, of late."""
    await asyncio.to_thread(kafka1.create_topic, topic_name, partitions=3)
    port = kafka1.free_port()
    servers = f"{kafka1.bootstrap_servers},127.0.0.1:{port}"
    traffics: dict[str, Traffic] = {}
    async with AsyncExitStack() as stack:
        for kind, settings in KINDS.items():
            producer = await stack.enter_async_context(Producer(servers, **QUICK, **settings))
            traffics[kind] = await stack.enter_async_context(Traffic(producer, topic_name, name=kind))
        await acknowledged(traffics, 100)
        await asyncio.to_thread(kafka1.move, 1, port)
        await acknowledged(traffics, 300)

    records = by_name(await asyncio.to_thread(kafka1.console_consume, topic_name))
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors()) == (kind, [])
        verdict = traffic.judge(records[kind])
        if kind != "idempotent":
            # An answer that the stopping broker could not give any more.
            verdict.duplicated.clear()
        assert (kind, verdict) == (kind, Verdict())


async def settle_after(traffics: dict[str, Traffic]) -> None:
    for traffic in traffics.values():
        await traffic.send(5)
    await asyncio.gather(*(traffic.settle() for traffic in traffics.values()))


async def acknowledged(traffics: dict[str, Traffic], count: int) -> None:
    await asyncio.gather(*(traffic.acknowledged(count) for traffic in traffics.values()))
