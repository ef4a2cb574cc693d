"""`send("orders")`: a value that was forgotten is an error, and no tombstone. `value=None` says that one is meant.

Drop-ins follow their peers: `tests/compat` has those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import BlockingProducer, Producer, ProducerRecord
from aioproduce.errors import InvalidRecordError
from aioproduce.serializers import SerializingProducer
from aioproduce.testing import ClusterThread
from tests.drivers.producing import values

if TYPE_CHECKING:
    from aioproduce.testing import FakeCluster

SETTINGS = {"plain": {}, "serializers": {"value_serializer": str.encode, "key_serializer": str.encode}}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_neither_value_nor_key_is_refused(cluster: FakeCluster, settings: dict[str, Any]) -> None:
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("one")
        for refused in (
            producer.send("one"),
            producer.send("one", headers=[("h", b"1")], partition=0),
            producer.send_and_wait("one"),
        ):
            with pytest.raises(
                InvalidRecordError, match="'one' has neither a value nor a key: give it a value"
            ):
                await refused
        with pytest.raises(InvalidRecordError, match="write value=None"):
            producer.try_send("one")
        assert producer.metrics().value("record-error-total") == 4
        assert producer.outstanding_records == 0
    assert values(cluster, "one") == []


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_who_says_none_or_gives_a_key_means_it(cluster: FakeCluster, settings: dict[str, Any]) -> None:
    key: Any = "k" if settings else b"k"
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("one", None)
        await producer.send_and_wait("one", key=key)
        await producer.try_send("one", value=None)
        await producer.try_send("one", key=key)
        # A record that is an object says it by its own field, which is None unless it is given.
        await producer.send_and_wait(ProducerRecord(topic="one"))
        await producer.try_send(ProducerRecord(topic="one", key=key))
    assert values(cluster, "one") == [None] * 6
    assert [record.key for record in cluster.records("one")] == [None, b"k", None, b"k", None, b"k"]


async def test_a_serializing_producer(cluster: FakeCluster) -> None:
    async with SerializingProducer(
        cluster.bootstrap_servers, key_serializer=str.encode, value_serializer=str.encode
    ) as producer:
        with pytest.raises(InvalidRecordError, match="neither a value nor a key"):
            await producer.send("one")
        await producer.send_and_wait("one", None)
        await producer.send_and_wait("one", key="k")
    assert [(record.key, record.value) for record in cluster.records("one")] == [(None, None), (b"k", None)]


def test_a_blocking_producer() -> None:
    with (
        ClusterThread(topics={"one": 1}) as cluster,
        BlockingProducer(cluster.bootstrap_servers) as producer,
    ):
        for _ in range(2):  # the second time the topic is known, and the short way is open
            with pytest.raises(InvalidRecordError, match="neither a value nor a key"):
                producer.send("one")
            with pytest.raises(InvalidRecordError, match="neither a value nor a key"):
                producer.send_and_wait("one", headers=[("h", b"1")])
            producer.send_and_wait("one", None)
            producer.send_and_wait("one", key=b"k")
        assert [(record.key, record.value) for record in cluster.records("one")] == [
            (None, None),
            (b"k", None),
        ] * 2
