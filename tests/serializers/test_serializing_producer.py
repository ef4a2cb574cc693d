"""The producer that takes objects, over a cluster and a registry in memory: what gets through, and what never is
queued.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any, assert_type

import pytest
import trio

from aioproduce import Producer
from aioproduce.errors import (
    ConfigError,
    IncompatibleSchemaError,
    InvalidHeadersError,
    InvalidTopicError,
    NotStartedError,
    ProducerClosedError,
    SchemaRegistryError,
    SerializationError,
    SerializationTimeoutError,
)
from aioproduce.serializers import (
    AvroSerializer,
    JsonSerializer,
    ProtobufSerializer,
    SchemaRegistryClient,
    SerializationContext,
    SerializingProducer,
    StringSerializer,
)
from aioproduce.testing import FakeCluster, FakeSchemaRegistry
from tests.drivers.loop_thread import cluster_aside
from tests.serializers import confluent
from tests.serializers.messages import Refund

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
# Longer than any test: what waits for this in vain hangs, and the hang is the failure.
FOREVER_MS = 3_600_000


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, topics={"orders": 1, "refunds": 1}) as started:
        yield started


@pytest.fixture
async def registry(fake: FakeSchemaRegistry) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(fake.url, retries=0) as client:
        yield client


async def test_objects_go_in_and_confluents_reader_gets_them_out(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    orders = AvroSerializer[dict[str, int]](registry, ORDER)
    async with SerializingProducer(
        cluster.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=orders, linger_ms=5
    ) as producer:
        delivery = await producer.send("orders", {"id": 1}, key="a")
        assert (await delivery).serialized_key_size == 1
        metadata = await producer.send_and_wait(
            "orders", {"id": 2}, partition=0, timestamp=5, headers=[("h", b"v")]
        )
        assert (metadata.offset, metadata.timestamp) == (1, 5)
        assert (await producer.send_and_wait("orders", None, key="a")).serialized_value_size == -1
        assert producer.producer.config.linger == 0.005
        assert producer.metrics().value("record-send-total") == 3.0

    read = confluent.avro_reader(fake.url)
    records = cluster.records("orders")
    assert [record.key for record in records] == [b"a", None, b"a"]
    assert [read(record.value, confluent.context()) for record in records[:2]] == [{"id": 1}, {"id": 2}]
    assert records[2].value is None
    assert records[1].headers == (("h", b"v"),) or list(records[1].headers) == [("h", b"v")]
    assert len([request for request in fake.requests if request.method == "POST"]) == 1


async def test_a_thousand_sends_of_a_new_schema_ask_once(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    values = AvroSerializer[dict[str, int]](registry, ORDER)
    keys = AvroSerializer[dict[str, int]](registry, ORDER)
    async with SerializingProducer(
        cluster.bootstrap_servers, key_serializer=keys, value_serializer=values
    ) as producer:
        await asyncio.gather(
            *(producer.send_and_wait("orders", {"id": number}, {"id": number}) for number in range(1000))
        )

    assert sorted(request.path for request in fake.requests) == [
        "/subjects/orders-key/versions",
        "/subjects/orders-value/versions",
    ]
    assert len({record.value for record in cluster.records("orders")}) == 1000


async def test_two_types_in_one_topic_over_one_connection(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    async with Producer(cluster.bootstrap_servers) as shared:
        orders = SerializingProducer(shared, value_serializer=JsonSerializer())
        refunds = SerializingProducer(shared, value_serializer=ProtobufSerializer(registry, Refund))
        await orders.send_and_wait("orders", {"id": 1})
        async with refunds:
            await refunds.send_and_wait("refunds", Refund(id=2))
        # It was given, so it goes on.
        await refunds.close()
        await orders.send_and_wait("orders", {"id": 3})
        assert orders.producer is refunds.producer is shared
        assert repr(orders).startswith("<SerializingProducer on <Producer ")

    assert [record.value for record in cluster.records("orders")] == [b'{"id":1}', b'{"id":3}']
    read = confluent.protobuf_reader(fake.url, Refund)
    assert read(cluster.records("refunds")[0].value, confluent.context("refunds")) == Refund(id=2)


async def test_bytes_need_no_serializer(cluster: FakeCluster) -> None:
    async with SerializingProducer(cluster.bootstrap_servers) as producer:
        assert_type(producer, SerializingProducer[bytes, bytes])
        await producer.send("orders", b"value", b"key")
        await producer.flush()

    assert cluster.records("orders")[0].value == b"value"


async def test_types_are_those_of_the_serializers(
    cluster: FakeCluster, registry: SchemaRegistryClient
) -> None:
    async with Producer(cluster.bootstrap_servers) as shared:
        assert_type(
            SerializingProducer(shared, key_serializer=StringSerializer()), SerializingProducer[str, bytes]
        )
        assert_type(SerializingProducer(shared, value_serializer=str.encode), SerializingProducer[bytes, str])
        by_object = SerializingProducer(
            shared, value_serializer=AvroSerializer[dict[str, int]](registry, ORDER)
        )
        assert_type(by_object, SerializingProducer[bytes, dict[str, int]])


async def test_functions_and_awaited_ones(cluster: FakeCluster) -> None:
    async def encode(text: str) -> bytes:
        await asyncio.sleep(0)
        return text.upper().encode()

    class Object:
        async def serialize(self, value: int, context: SerializationContext) -> bytearray:
            return bytearray(b"%d" % value)

    seen: list[SerializationContext] = []

    class Looks:
        def serialize(self, value: str, context: SerializationContext) -> memoryview:
            seen.append(context)
            return memoryview(value.encode())

    async with Producer(cluster.bootstrap_servers) as shared:
        await SerializingProducer(shared, key_serializer=str.encode, value_serializer=encode).send(
            "orders", "text", "key"
        )
        await SerializingProducer(shared, value_serializer=Object()).send("orders", 7)
        looks = SerializingProducer(shared, value_serializer=Looks(), key_serializer=Looks())
        await looks.send("orders", "a", "b", headers=iter([("h", b"v")]))
        await looks.send("orders", "a")
        await SerializingProducer[bytes, str](shared, value_serializer=lambda _: None).send("orders", "none")
        await shared.flush()

    records = cluster.records("orders")
    assert [record.value for record in records] == [b"TEXT", b"7", b"a", b"a", None]
    assert [record.key for record in records] == [b"key", None, b"b", None, None]
    assert seen == [
        ("orders", "key", [("h", b"v")]),
        ("orders", "value", [("h", b"v")]),
        ("orders", "value", ()),
    ]


async def test_prepared_nothing_has_to_be_asked(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    async with SerializingProducer(
        cluster.bootstrap_servers,
        key_serializer=StringSerializer(),
        value_serializer=AvroSerializer[dict[str, int]](registry, ORDER),
    ) as producer:
        await producer.prepare("orders", "refunds")
        fake.hold()
        await producer.send_and_wait("orders", {"id": 1}, "a")
        fake.release()
        fake.register("third-value", '"string"')
        with pytest.raises(IncompatibleSchemaError):
            await producer.prepare("third")


# -- what fails, fails alone ---


class Broken(Exception):
    pass


def fails(value: object) -> bytes:
    raise Broken(f"no {value}")


async def fails_later(value: object) -> bytes:
    await asyncio.sleep(0)
    raise Broken(f"no {value}")


async def gives_text(value: object) -> Any:
    return "text"


def gives_number(value: object) -> Any:
    return 7


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize(
    ("serializer", "cause", "message"),
    [
        (fails, Broken, "failed: Broken: no 1"),
        (fails_later, Broken, "failed: Broken: no 1"),
        (gives_text, None, "returned str, not bytes"),
        (gives_number, None, "returned int, not bytes"),
        (str.encode, TypeError, "failed: TypeError"),
    ],
    ids=["raises", "raises later", "text", "number", "wrong type"],
)
async def test_a_serializer_that_fails(
    cluster: FakeCluster, field: str, serializer: Any, cause: type[Exception] | None, message: str
) -> None:
    options: dict[str, Any] = {f"{field}_serializer": serializer}
    async with SerializingProducer[Any, Any](cluster.bootstrap_servers, **options) as producer:
        with pytest.raises(
            SerializationError, match=f"the {field} serializer for topic 'orders' {message}"
        ) as caught:
            await producer.send("orders", 1 if field == "value" else b"", 1 if field == "key" else b"")
        assert (caught.value.field, caught.value.topic) == (field, "orders")
        assert (
            (caught.value.__cause__ is None) if cause is None else isinstance(caught.value.__cause__, cause)
        )
        assert producer.producer.outstanding_bytes == 0
        assert producer.metrics().value("record-error-total") == 1.0
        other: dict[str, Any] = {"value" if field == "key" else "key": b"1"}
        await (await producer.send("orders", **other))

    assert len(cluster.records("orders")) == 1


async def test_values_that_do_not_fit_the_schema(
    cluster: FakeCluster, registry: SchemaRegistryClient
) -> None:
    orders = AvroSerializer[Any](registry, ORDER)
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=orders) as producer:
        for _ in range(2):  # the first is awaited, the second is not
            with pytest.raises(SerializationError, match="the value serializer for topic 'orders' failed"):
                await producer.send("orders", {"number": 1})
        await producer.send_and_wait("orders", {"id": 1})


async def test_a_registry_that_is_down_fails_the_call_and_nothing_else(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    orders = AvroSerializer[dict[str, int]](registry, ORDER)
    async with SerializingProducer(
        cluster.bootstrap_servers,
        value_serializer=orders,
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=2 * FOREVER_MS,
    ) as producer:
        accepted = await producer.send("refunds", {"id": 0})
        before = producer.producer.outstanding_bytes
        fake.fail_next(503, error_code=50003, times=2)
        for _ in range(2):
            with pytest.raises(SchemaRegistryError, match="for subject 'orders-value'") as caught:
                await producer.send("orders", {"id": 1})
            assert caught.value.status == 503
        assert producer.producer.outstanding_bytes == before
        # What was accepted goes on, and so does the topic whose schema is known.
        known = await producer.send("refunds", {"id": 1})
        again = await producer.send("orders", {"id": 2})
        await producer.flush()
        assert [(await each).offset for each in (accepted, known, again)] == [0, 1, 0]

    assert len(cluster.records("orders")) == 1
    assert producer.metrics().value("record-error-total") == 2.0


async def test_an_incompatible_schema_fails_the_call(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    fake.register("orders-value", '"string"')
    orders = AvroSerializer[dict[str, int]](registry, ORDER)
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=orders) as producer:
        with pytest.raises(IncompatibleSchemaError) as caught:
            await producer.send("orders", {"id": 1})
        assert caught.value.subject == "orders-value"
        assert producer.producer.outstanding_bytes == 0
        await producer.send_and_wait("refunds", {"id": 1})


@pytest.mark.parametrize("bound", ["timeout", "max.block.ms"])
@pytest.mark.parametrize("field", ["key", "value"])
async def test_a_registry_that_stalls_is_waited_for_no_longer_than_send_may(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient, bound: str, field: str
) -> None:
    fake.hold()
    orders = AvroSerializer[Any](registry, ORDER)
    is_key = field == "key"
    settings: dict[str, Any] = {} if bound == "timeout" else {"max_block_ms": 20}
    async with SerializingProducer[Any, Any](
        cluster.bootstrap_servers,
        key_serializer=orders if is_key else None,
        value_serializer=None if is_key else orders,
        **settings,
    ) as producer:
        with pytest.raises(
            SerializationTimeoutError, match=f"the {field} serializer for topic 'orders'"
        ) as caught:
            await producer.send(
                "orders",
                b"" if is_key else {"id": 1},
                {"id": 1} if is_key else b"",
                timeout=0.02 if bound == "timeout" else None,
            )
        assert (caught.value.field, caught.value.topic) == (field, "orders")
        assert 0 <= caught.value.waited <= 0.02
        assert producer.producer.outstanding_bytes == 0
        fake.release()
    assert cluster.records("orders") == []


async def test_key_and_value_share_one_time_out(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("aioproduce.serializers.producer.time", SimpleNamespace(monotonic=lambda: now))
    never = asyncio.Event()

    async def slow(value: bytes) -> bytes:
        nonlocal now
        now += 29.75
        return value

    async def stuck(value: bytes) -> bytes:
        await never.wait()
        return value

    async with SerializingProducer(
        cluster.bootstrap_servers, key_serializer=slow, value_serializer=stuck
    ) as producer:
        with pytest.raises(SerializationTimeoutError, match="the value serializer") as caught:
            await producer.send("orders", b"", b"", timeout=30)
        assert caught.value.waited == 0.25


async def test_a_send_that_is_cancelled_while_it_serializes_leaves_nothing(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    orders = AvroSerializer[dict[str, int]](registry, ORDER)
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=orders) as producer:
        fake.hold()
        sending = [
            asyncio.create_task(producer.send_and_wait("orders", {"id": number})) for number in range(3)
        ]
        await asyncio.to_thread(fake.wait_for_requests, 1)
        sending[0].cancel()  # the one that asks
        with pytest.raises(asyncio.CancelledError):
            await sending[0]
        assert producer.producer.outstanding_bytes == 0
        fake.release()
        await asyncio.gather(*sending[1:])

    assert len(cluster.records("orders")) == 2


async def test_not_started_and_closed(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    producer = SerializingProducer(
        cluster.bootstrap_servers, value_serializer=AvroSerializer[dict[str, int]](registry, ORDER)
    )
    with pytest.raises(NotStartedError):
        await producer.send("orders", {"id": 1})
    async with producer:
        pass
    with pytest.raises(ProducerClosedError):
        await producer.send("orders", {"id": 1})
    assert fake.requests == []  # nobody asks for what cannot be sent


async def test_closed_while_it_serializes(
    cluster: FakeCluster, fake: FakeSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    fake.hold()
    async with SerializingProducer(
        cluster.bootstrap_servers, value_serializer=AvroSerializer[dict[str, int]](registry, ORDER)
    ) as producer:
        sending = asyncio.create_task(producer.send("orders", {"id": 1}))
        await asyncio.to_thread(fake.wait_for_requests, 1)
    fake.release()
    with pytest.raises(ProducerClosedError):
        await sending


async def test_what_is_wrong_with_the_record_itself(cluster: FakeCluster) -> None:
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=str.encode) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.send("no topic", "text")
        wrong: Any = ["orders"]
        with pytest.raises(InvalidTopicError):
            await producer.send(wrong, "text")
        wrong = "h"
        with pytest.raises(InvalidHeadersError):
            await producer.send("orders", "text", headers=wrong)
        assert producer.metrics().value("record-error-total") == 3.0
        with pytest.raises(ValueError, match="timeout must be"):
            await producer.send("orders", "text", timeout=-1)


async def test_callbacks_get_through(cluster: FakeCluster) -> None:
    outcomes: list[Any] = []
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=JsonSerializer()) as producer:
        await producer.send("orders", {"id": 1}, on_delivery=lambda *outcome: outcomes.append(outcome))
        await producer.flush()

    assert [(metadata.offset, error) for metadata, error in outcomes] == [(0, None)]


async def test_topics_made_up_do_not_fill_memory(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.serializers.producer._MAX_TOPICS", 3)
    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=str.encode) as producer:
        for number in range(7):
            await producer.send(f"made-up-{number}", "text")
        assert len(producer._contexts) <= 3


# -- what cannot be made ---


def test_serializers_that_are_none() -> None:
    wrong: Any
    for wrong, message in ((7, "not int"), (StringSerializer, "is the class StringSerializer")):
        with pytest.raises(TypeError, match=message):
            SerializingProducer("localhost:9092", value_serializer=wrong)


def test_two_places_for_serializers() -> None:
    with pytest.raises(ConfigError, match="serializers of its own"):
        SerializingProducer(
            {"bootstrap.servers": "localhost:9092", "value.serializer": str.encode},
            key_serializer=str.encode,
        )
    with pytest.raises(ConfigError, match="serializers of its own"):
        SerializingProducer(Producer[Any, Any]("localhost:9092", key_serializer=str.encode))


def test_settings_beside_a_producer() -> None:
    with pytest.raises(TypeError, match="a Producer is already configured"):
        SerializingProducer(Producer("localhost:9092"), linger_ms=5)


async def test_serializers_of_the_registry_are_not_for_the_plain_producer(
    registry: SchemaRegistryClient,
) -> None:
    serializer: Any = AvroSerializer[Any](registry, ORDER)
    with pytest.raises(ConfigError, match=r"value.serializer"):
        Producer("localhost:9092", value_serializer=serializer)


async def test_a_serializer_that_awaits_only_at_times(cluster: FakeCluster) -> None:
    keys: dict[str, bytes] = {}

    class Encrypted:
        """Asks a key service once per topic."""

        def serialize(self, value: str, context: SerializationContext) -> bytes | Awaitable[bytes]:
            key = keys.get(context.topic)
            return self._ask(value, context) if key is None else key + value.encode()

        async def _ask(self, value: str, context: SerializationContext) -> bytes:
            await asyncio.sleep(0)
            keys[context.topic] = b"k:"
            return b"k:" + value.encode()

    async with SerializingProducer(cluster.bootstrap_servers, value_serializer=Encrypted()) as producer:
        assert_type(producer, SerializingProducer[bytes, str])
        for text in ("a", "b"):
            await producer.send_and_wait("orders", text)

    assert [record.value for record in cluster.records("orders")] == [b"k:a", b"k:b"]
    assert json.dumps(keys, default=bytes.decode) == '{"orders": "k:"}'


def test_under_trio(fake: FakeSchemaRegistry) -> None:
    with cluster_aside(1, topics={"orders": 1}) as aside:

        async def main() -> None:
            async with (
                SchemaRegistryClient(fake.url, retries=0) as registry,
                SerializingProducer(
                    aside.bootstrap_servers,
                    key_serializer=str.encode,
                    value_serializer=AvroSerializer[dict[str, int]](registry, ORDER),
                ) as producer,
                trio.open_nursery() as nursery,
            ):
                for number in range(100):
                    nursery.start_soon(producer.send_and_wait, "orders", {"id": number}, "a")
            fake.hold()
            async with (
                SchemaRegistryClient(fake.url, retries=0) as registry,
                SerializingProducer(
                    aside.bootstrap_servers, value_serializer=AvroSerializer[Any](registry, ORDER)
                ) as producer,
            ):
                with pytest.raises(SerializationTimeoutError):
                    await producer.send("orders", {"id": 1}, timeout=0.02)
                with trio.move_on_after(0.02) as scope:
                    await producer.send("orders", {"id": 1})
                assert scope.cancelled_caught
                assert producer.producer.outstanding_bytes == 0
            fake.release()

        trio.run(main)
        read = confluent.avro_reader(fake.url)
        found = [read(record.value, confluent.context()) for record in aside.records("orders")]

    assert sorted(order["id"] for order in found) == list(range(100))
    posted = [request for request in fake.requests if request.method == "POST"]
    assert len(posted) <= 3  # one of the hundred, and what was given up
