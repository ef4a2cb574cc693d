"""Scenarios of a send that waits for memory: what lingers goes, and the topic may be another when the wait ends.

Those on the producer itself, and not on a `Scenario`, play calls that only it has. A test holds the pool's memory
itself where what holds it is not the point: it gives it back when the story wants.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest
from aiokafka.partitioner import murmur2

from aioproduce import Producer
from aioproduce.errors import PartialSendError, PartitionOutOfRangeError
from aioproduce.testing.simulation import Simulation
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario, in_modes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.partitioners import TopicView
    from aioproduce.testing.fake_cluster.connections import ReceivedRequest

Call = Literal["send", "send_many", "send_batch"]
CALLS = get_args(Call)

AT_ONCE = 0.05
"""Seconds: some ways to a broker and back, of a millisecond or two each."""

IN_TIME = 1.5
"""Seconds: a topic that is not there is asked for again after a second at most."""

LINGER: dict[str, Any] = {"linger_ms": 30_000, "batch_size": 1_000, "buffer_memory": 2_000}
"""Room for two batches, which would linger for half a minute."""


async def send(producer: Producer, call: Call, value: bytes = b"v", **record: Any) -> Any:
    """One record, by this call; what settles it."""
    if call == "send":
        return await producer.send(TOPIC, value, **record)
    if call == "send_many":
        return await producer.send_many(TOPIC, [value], **record)
    batch = producer.create_batch()
    batch.append(value)
    return await producer.send_batch(batch, TOPIC, **record)


# -- what lingers goes ---


@in_modes()
def test_what_lingers_goes_when_a_send_waits_for_memory(mode: str, side: str) -> None:
    scene = Scenario(mode, side, LINGER)

    async def story() -> None:
        await scene.warm_up()
        for _ in range(3):  # each time, and not only the first
            entries = [*await scene.send(0), *await scene.send(1)]
            assert scene.sender.pool.available == 0
            await scene.sleep(1.0)
            began = scene.now
            entries += await scene.send(2)
            assert scene.now - began < AT_ONCE
            await scene.side.flush()
            scene.assert_acknowledged(entries, 1)

    scene.play(story())


@in_modes("idempotent")
def test_what_lingers_goes_though_the_longest_waiter_gave_up(mode: str, side: str) -> None:
    """Nobody waits any more when the brokers can be reached again: who waits next says so again."""
    scene = Scenario(mode, side, LINGER | {"max_block_ms": 5_000})

    async def story() -> None:
        await scene.warm_up()
        for partition in (0, 1):
            scene.network.hold(scene.host(partition))
            await scene.send(partition)
        [refused] = await scene.send(2)
        assert refused.refusal is not None
        scene.simulation.heal()
        await scene.side.flush()
        await scene.send(0)
        await scene.send(1)
        await scene.sleep(1.0)
        began = scene.now
        [entry] = await scene.send(2)
        assert scene.now - began < AT_ONCE
        await scene.side.flush()
        scene.assert_acknowledged([entry])

    scene.play(story())


@pytest.mark.parametrize("call", CALLS)
def test_what_lingers_goes_whichever_call_waits(call: Call) -> None:
    simulation = Simulation(topics={TOPIC: 3})

    async def main() -> float:
        async with Producer(simulation.bootstrap_servers, **LINGER) as producer:
            for partition in range(3):
                await producer.send_and_wait(TOPIC, b"warm", partition=partition)
            for partition in (0, 1):
                await producer.send(TOPIC, b"v", partition=partition)
            await asyncio.sleep(1.0)
            began = simulation.clock.now
            await send(producer, call, partition=2)
            return simulation.clock.now - began

    assert simulation.run(main()) < AT_ONCE
    assert simulation.cluster.values(TOPIC) == {b"warm": 3, b"v": 3}


# -- a topic that is another when the wait ends ---

RENEWED: dict[str, Any] = {
    "batch_size": 1_000,
    "buffer_memory": 2_000,
    "metadata_max_age_ms": 1_000,
    "metadata_max_idle_ms": 5_000,
}


class Story:
    """A producer that has no memory to give, and the cluster, whose topic goes and comes."""

    def __init__(self, simulation: Simulation, producer: Producer) -> None:
        self.simulation = simulation
        self.producer = producer
        self._sender = producer._life.sender
        self._lease = self._sender.pool.try_allocate(self._sender.pool.total)
        self._released_at = 0.0

    @property
    def metadata(self) -> ClusterMetadata:
        return self._sender.metadata

    async def wait_for_memory(self, call: Call, **record: Any) -> asyncio.Task[Any]:
        """Have a call wait for memory."""
        task = asyncio.ensure_future(send(self.producer, call, **record))
        await asyncio.sleep(0.1)
        assert self._sender.pool.waiting == 1
        return task

    def delete_topic(self) -> None:
        self.simulation.cluster.state.delete_topic(TOPIC)

    def make_topic(self, partitions: int) -> None:
        self.simulation.cluster.state.create_topic(TOPIC, partitions)

    def release(self) -> None:
        """The memory is there."""
        assert self._lease is not None
        self._lease.release()
        self._released_at = self.simulation.clock.now

    def requests(self) -> list[ReceivedRequest]:
        """The Produce requests since then."""
        requests = self.simulation.cluster.model.requests.entries(0)
        return [request for request in requests if request.at >= self._released_at]


@asynccontextmanager
async def without_memory(simulation: Simulation, **settings: Any) -> AsyncIterator[Story]:
    """A producer that knows the topic; it is closed at the end, which takes no time."""
    async with Producer(simulation.bootstrap_servers, **RENEWED, **settings) as producer:
        await producer.partitions_for(TOPIC)
        yield Story(simulation, producer)
        began = simulation.clock.now
    assert simulation.clock.now - began < 1.0, "a record was accepted that nobody can deliver"


def make_simulation(partitions: int = 3) -> Simulation:
    return Simulation(topics={TOPIC: partitions}, auto_create_topics=False)


async def replaced(story: Story, partitions: int) -> None:
    """The topic is another when the producer asks for it again."""
    story.delete_topic()
    story.make_topic(partitions)
    await asyncio.sleep(2.0)
    story.release()


async def gone(story: Story, partitions: int) -> None:
    """The producer hears that there is no such topic, and it is made again when the wait is over."""
    story.delete_topic()
    await asyncio.sleep(2.0)
    assert story.metadata.topic(TOPIC) is None
    story.release()
    await asyncio.sleep(0.5)
    assert story.producer.outstanding_records == 0, "accepted for a topic that is not there"
    story.make_topic(partitions)


async def forgotten(story: Story, partitions: int) -> None:
    """The topic goes out of use, and is another when somebody else asks for it."""
    await asyncio.sleep(7.0)
    assert not story.metadata.is_wanted(TOPIC)
    story.delete_topic()
    story.make_topic(partitions)
    assert len(await story.producer.partitions_for(TOPIC)) == partitions
    story.release()


WAYS = {"replaced": replaced, "gone": gone, "forgotten": forgotten}
MEANWHILE = pytest.mark.parametrize("meanwhile", WAYS)


@pytest.mark.parametrize("call", CALLS)
@MEANWHILE
def test_a_topic_that_is_made_anew_with_fewer_partitions(meanwhile: str, call: Call) -> None:
    simulation = make_simulation()

    async def main() -> None:
        async with without_memory(simulation) as story:
            waiting = await story.wait_for_memory(call, partition=2)
            await WAYS[meanwhile](story, 2)
            began = simulation.clock.now
            with pytest.raises((PartitionOutOfRangeError, PartialSendError)) as caught:
                await waiting
            assert isinstance(caught.value.__cause__ or caught.value, PartitionOutOfRangeError)
            assert simulation.clock.now - began < IN_TIME

    simulation.run(main())
    assert simulation.cluster.values(TOPIC) == {}


@pytest.mark.parametrize("call", CALLS)
@MEANWHILE
def test_a_topic_that_is_made_anew_with_as_many_partitions(meanwhile: str, call: Call) -> None:
    """It has another id, under which the record is written at once: no broker refuses the old one first."""
    simulation = make_simulation()

    async def main() -> None:
        async with without_memory(simulation) as story:
            waiting = await story.wait_for_memory(call, partition=2)
            await WAYS[meanwhile](story, 3)
            began = simulation.clock.now
            await (await waiting)
            assert simulation.clock.now - began < IN_TIME
            assert len(story.requests()) == 1

    simulation.run(main())
    assert simulation.cluster.values(TOPIC, 2) == {b"v": 1}


@pytest.mark.parametrize("has_queues", [False, True], ids=["first record", "later record"])
@MEANWHILE
def test_a_key_goes_where_the_new_topic_has_it(meanwhile: str, has_queues: bool) -> None:
    simulation = make_simulation(5)
    # As any client of Kafka's would: 31 bits of the hash, among as many partitions as there are.
    hashes = {key: murmur2(key) & 0x7FFFFFFF for key in (b"%d" % number for number in range(100))}
    [key, *_] = [key for key, number in hashes.items() if number % 5 >= 3]

    async def main() -> None:
        async with Producer(simulation.bootstrap_servers, **RENEWED) as producer:
            await producer.partitions_for(TOPIC)
            if has_queues:
                await producer.send_and_wait(TOPIC, b"old", key=key)
            story = Story(simulation, producer)
            waiting = await story.wait_for_memory("send", key=key)
            await WAYS[meanwhile](story, 3)
            assert (await (await waiting)).partition == hashes[key] % 3

    simulation.run(main())
    assert simulation.cluster.values(TOPIC, hashes[key] % 3) == {b"v": 1}


class Last:
    """A partitioner that takes the last partition."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: TopicView) -> int:
        self.asked.append(view.partition_count)
        return view.partition_count - 1


@MEANWHILE
def test_a_partitioner_is_asked_again_where_the_topic_is_another(meanwhile: str) -> None:
    simulation = make_simulation()
    mine = Last()

    async def main() -> None:
        async with without_memory(simulation, partitioner_class=mine) as story:
            waiting = await story.wait_for_memory("send")
            await WAYS[meanwhile](story, 2)
            assert (await (await waiting)).partition == 1

    simulation.run(main())
    assert mine.asked == [3, 2]


@pytest.mark.parametrize("call", CALLS)
@MEANWHILE
def test_a_record_that_names_no_partition_finds_one(meanwhile: str, call: Call) -> None:
    """Also a whole batch, whose partition is chosen before it waits: the choice is not its sender's."""
    for seed in range(5):
        simulation = Simulation(seed, topics={TOPIC: 50}, auto_create_topics=False)

        async def main(simulation: Simulation = simulation) -> None:
            async with without_memory(simulation) as story:
                waiting = await story.wait_for_memory(call)
                await WAYS[meanwhile](story, 1)
                await (await waiting)

        simulation.run(main())
        assert simulation.cluster.values(TOPIC, 0) == {b"v": 1}
