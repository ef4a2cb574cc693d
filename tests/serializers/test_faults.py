"""Random faults of the registry under many senders, some of whom give up: who is told what, and what is in the log.

1. A record whose `send()` gave a future is acknowledged and in the log, once; after an error it is not there.
2. Whatever happened, no memory of the buffer is held afterwards, and no task is left.
3. What is asked does not grow with the number of senders: a subject that is known is never asked for again.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aioproduce.errors import IncompatibleSchemaError, MaxBlockTimeoutError, SchemaRegistryError
from aioproduce.serializers import AvroSerializer, SchemaRegistryClient, SerializingProducer
from aioproduce.testing import FakeCluster, FakeSchemaRegistry
from tests.serializers import confluent

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
TOPICS = [f"topic-{number}" for number in range(6)]
SENDERS = 120
EACH = 5


class Story:
    """What became of each record, as its sender was told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.hearing: list[asyncio.Task[None]] = []
        self.is_over = False


async def send_some(story: Story, producer: SerializingProducer[Any, Any], sender: int) -> None:
    for step in range(EACH):
        number = sender * EACH + step
        timeout = story.random.choice([None, None, 0.0, 0.01])
        try:
            delivery = await producer.send(story.random.choice(TOPICS), {"id": number}, timeout=timeout)
        except (SchemaRegistryError, MaxBlockTimeoutError):
            story.refused.append(number)
        except asyncio.CancelledError:
            story.refused.append(number)
            raise
        else:
            story.hearing.append(asyncio.create_task(hear(story, delivery, number)))
            await asyncio.sleep(0)


async def hear(story: Story, delivery: Any, number: int) -> None:
    await delivery
    story.acknowledged.append(number)


async def make_trouble(story: Story, fake: FakeSchemaRegistry) -> None:
    while not story.is_over:
        trouble = story.random.randrange(4)
        if trouble == 0:
            fake.fail_next(story.random.choice([500, 503, 429, None]))
        elif trouble == 1:
            fake.hold()
        else:
            fake.release()
        await asyncio.sleep(story.random.uniform(0, 0.01))
    fake.heal()


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_refused_is_not_in_the_log_and_all_else_is(seed: int) -> None:
    story = Story(seed)
    with FakeSchemaRegistry() as fake:
        fake.register(f"{TOPICS[0]}-value", '"string"')  # where nothing gets through
        async with (
            FakeCluster(1, topics=dict.fromkeys(TOPICS, 1)) as cluster,
            SchemaRegistryClient(fake.url, retries=1, backoff=0.001) as registry,
        ):
            before = asyncio.all_tasks()
            async with SerializingProducer(
                cluster.bootstrap_servers, value_serializer=AvroSerializer[Any](registry, ORDER)
            ) as producer:
                troubling = asyncio.create_task(make_trouble(story, fake))
                sending = [
                    asyncio.create_task(send_some(story, producer, sender)) for sender in range(SENDERS)
                ]
                for task in story.random.sample(sending, SENDERS // 4):
                    await asyncio.sleep(story.random.uniform(0, 0.005))
                    task.cancel()
                await asyncio.wait(sending)
                story.is_over = True
                await troubling
                await producer.flush()
                await asyncio.gather(*story.hearing)
                assert producer.producer.outstanding_bytes == 0
                # It has recovered, and is asked for what it has not answered yet, and for nothing else.
                with pytest.raises(IncompatibleSchemaError):
                    await producer.send(TOPICS[0], {"id": -1})
                asked = []
                for _ in range(2):
                    for number, topic in enumerate(TOPICS[1:]):
                        await producer.send_and_wait(topic, {"id": -2 - number})
                    asked.append(len(fake.requests))
                assert asked[0] == asked[1]
            assert asyncio.all_tasks() - before == set()

            read = confluent.avro_reader(fake.url)
            found = sorted(
                read(record.value, confluent.context(topic))["id"]
                for topic in TOPICS
                for record in cluster.records(topic)
            )

    assert [task for task in sending if not task.cancelled() and task.exception()] == []
    again = sorted([-2 - number for number in range(5)] * 2)
    assert found == again + sorted(story.acknowledged)
    assert not set(found) & set(story.refused)
    assert cluster.records(TOPICS[0]) == []
    assert len(story.acknowledged) + len(story.refused) > SENDERS
