"""Records that can never be sent: each is refused by a typed error, at once, and nothing of it is queued or lost.

Each is tried against a topic that the producer does not know yet, and against one with an open batch, where
`send()` takes its short way; and through `try_send()`, `send_many()` and a whole `ProducerRecord`.

Scenarios of Kafka's own tests: KafkaProducerTest `noSerializerProvided`, `sendToInvalidTopic`, `nullTopicName`,
`negativePartitionShouldThrow`, `metadataWithPartitionOutOfRange`; PlaintextProducerSend `wrongSerializer`,
`maxRequestSizeAndHigher`, timestamps; ProducerFailureHandling `tooLargeRecord`, `invalidPartition`.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from aioproduce import Producer, ProducerRecord
from aioproduce.errors import (
    BrokerRejectedError,
    InvalidHeadersError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    PartialSendError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
    SerializationError,
)
from aioproduce.testing import FakeCluster
from tests.drivers.concurrency import gather, is_trio, wait_for
from tests.drivers.producing import FOREVER_MS, PATIENCE, assert_still_works, until, values


class Bad(NamedTuple):
    """One bad record: what `send()` is given, the error, its attributes, and words of the message."""

    send: dict[str, Any]
    error: type[InvalidRecordError]
    attributes: dict[str, Any]
    words: list[str]


def topic(name: Any, *words: str) -> Bad:
    return Bad({"topic": name}, InvalidTopicError, {"topic": name}, list(words))


def headers(headers: Any, *words: str) -> Bad:
    return Bad({"headers": headers}, InvalidHeadersError, {}, ["header", *words])


def timestamp(timestamp: Any, *words: str) -> Bad:
    return Bad({"timestamp": timestamp}, InvalidTimestampError, {}, list(words))


def unserialized(field: str, value: Any, *words: str) -> Bad:
    return Bad({field: value}, SerializationError, {"field": field}, [field, type(value).__name__, *words])


RULE = "a-z, A-Z, 0-9"
BAD = {
    "topic empty": topic("", RULE),
    "topic with a space": topic("topic abc", "topic abc", RULE),
    "topic too long": topic("x" * 250, "249"),
    "topic .": topic(".", RULE),
    "topic ..": topic("..", RULE),
    "topic with a line feed": topic("t\n", RULE),
    "topic not ascii": topic("тема", RULE),
    "topic None": topic(None, "str", "NoneType"),
    "topic bytes": topic(b"t", "str", "bytes"),
    "topic a number": topic(5, "str", "int"),
    "partition negative": Bad({"partition": -1}, InvalidRecordError, {}, ["-1", "None lets"]),
    "partition a bool": Bad({"partition": True}, InvalidRecordError, {}, ["partition", "bool"]),
    "partition a str": Bad({"partition": "0"}, InvalidRecordError, {}, ["partition", "str"]),
    "partition a float": Bad({"partition": 1.0}, InvalidRecordError, {}, ["partition", "float"]),
    "partition too high": Bad(
        {"partition": 3},
        PartitionOutOfRangeError,
        {"topic": "t", "partition": 3, "partition_count": 3},
        ["'t'", "0 to 2", "partition 3"],
    ),
    "partition beyond C": Bad(
        {"partition": 2**70},
        PartitionOutOfRangeError,
        {"topic": "t", "partition": 2**70, "partition_count": 3},
        ["0 to 2"],
    ),
    "str value": unserialized("value", "text", "value_serializer", "str.encode"),
    "str key": unserialized("key", "text", "key_serializer", "str.encode"),
    "int value": unserialized("value", 5, "value_serializer"),
    "dict value": unserialized("value", {"a": 1}, "value_serializer"),
    "int key": unserialized("key", 0, "key_serializer"),
    "list key": unserialized("key", [], "key_serializer"),
    "headers a dict": headers({"a": b"1"}, "headers.items()"),
    "headers a str": headers("ab", "pairs"),
    "headers bytes": headers(b"ab", "pairs"),
    "headers a number": headers(5, "pairs"),
    "headers not pairs": headers([5], "pair", "5"),
    "headers a single": headers([("a",)]),
    "headers a triple": headers([("a", b"1", b"2")]),
    "headers a str as pair": headers(["ab"]),
    "header name bytes": headers([(b"a", b"1")], "bytes"),
    "header name None": headers([(None, b"1")], "NoneType"),
    "header value str": headers([("a", b"1"), ("b", "1")], "str"),
    "header value int": headers([("a", 1)], "int"),
    "header name a lone surrogate": headers([("\ud800", b"")]),
    "headers a tuple of bad": headers((("a", 1),), "int"),
    "timestamp naive": timestamp(datetime(2020, 1, 1), "2020", "no time zone", "aware"),
    "timestamp float": timestamp(1.5, "float", "time.time()"),
    "timestamp bool": timestamp(True, "timestamp", "bool"),
    "timestamp str": timestamp("now", "timestamp", "str"),
    "timestamp negative": timestamp(-1, "-1"),
    "timestamp too high": timestamp(2**63, str(2**63)),
    "timestamp before the epoch": timestamp(datetime.fromisoformat("1969-12-31T23:59:59+00:00"), "-1000"),
    "value too large": Bad(
        {"value": b"x" * 1_048_576},
        RecordTooLargeError,
        {"limit": 1_048_576, "limited_by": "max.request.size"},
        ["max.request.size=1048576", "raise"],
    ),
    "key too large": Bad(
        {"key": b"x" * 2_000_000}, RecordTooLargeError, {"limited_by": "max.request.size"}, ["2000"]
    ),
    "headers too large": Bad(
        {"headers": [("h", b"x" * 2_000_000)]}, RecordTooLargeError, {"limited_by": "max.request.size"}, []
    ),
}
BAD_RECORDS = pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())


def check(error: BaseException | None, bad: Bad) -> None:
    assert type(error) is bad.error
    for name, value in bad.attributes.items():
        assert getattr(error, name) == value
    for word in bad.words:
        assert word in str(error)
    assert len(str(error)) < 500


@BAD_RECORDS
async def test_a_bad_record_is_refused_and_the_next_one_sent(cluster: FakeCluster, bad: Bad) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        arguments = {"topic": "t", "value": b"v", **bad.send}

        with pytest.raises(bad.error) as unknown_topic:
            await producer.send(**arguments)
        check(unknown_topic.value, bad)
        assert producer.outstanding_bytes == 0

        before = [await producer.send("t", b"before", partition=partition) for partition in range(3)]
        outstanding = producer.outstanding_bytes
        with pytest.raises(bad.error) as open_batch:
            await producer.send(**arguments)
        check(open_batch.value, bad)
        with pytest.raises(bad.error) as whole:
            await producer.send(ProducerRecord(**arguments))
        check(whole.value, bad)
        with pytest.raises(bad.error) as at_once:
            producer.try_send(**arguments)
        check(at_once.value, bad)
        assert producer.outstanding_bytes == outstanding

        after = await producer.send("t", b"after", partition=0)
        await producer.flush()
        assert [(await delivery).offset for delivery in (*before, after)] == [0, 0, 0, 1]
        await until(lambda: producer.outstanding_bytes == 0)
    assert values(cluster) == [b"before", b"after", b"before", b"before"]


# Headers that are no list at all are refused before the first record: the test after this one.
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(bad, id=name)
        for name, bad in BAD.items()
        if not isinstance(bad.send.get("headers"), dict | str | bytes | int)
    ],
)
async def test_a_bad_record_in_the_middle_of_many(cluster: FakeCluster, bad: Bad) -> None:
    if "topic" in bad.send or "partition" in bad.send:
        many: dict[str, Any] = {"values": [b"v"], **bad.send}
        sent = 0
    elif "value" in bad.send or "key" in bad.send:
        many = {
            "values": [b"0", b"1", bad.send.get("value", b"2"), b"3"],
            "keys": [b"0", b"1", bad.send.get("key", b"2"), b"3"],
        }
        sent = 2
    else:
        many, sent = {"values": [b"v"], **bad.send}, 0
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many(**{"topic": "t", **many})
        check(caught.value.__cause__, bad)
        assert caught.value.index == len(caught.value.deliveries) == sent
        for word in bad.words:
            assert word in str(caught.value)
        await gather(*caught.value.deliveries)
        assert sorted(values(cluster), key=str) == [b"0", b"1"][:sent]
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize("wrong", [{"a": b"1"}, "ab", b"ab", 5], ids=repr)
async def test_wrong_headers_of_many(cluster: FakeCluster, wrong: Any) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(InvalidHeadersError):
            await producer.send_many("t", [b"v"], headers=wrong)
        await assert_still_works(producer, cluster)
    assert values(cluster) == [b"good"]


# Serializers


async def asynchronous(value: object) -> bytes:
    return b""


class AsynchronousCall:
    async def __call__(self, value: object) -> bytes:
        return b""


def raises(value: object) -> bytes:
    raise KeyError(f"no schema for {value}")


class Later:
    """What is to be awaited, and no loop's."""

    def __await__(self) -> Any:
        raise AssertionError("a serializer's result is not awaited")


def a_future() -> Any:
    return Later() if is_trio() else asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize(
    ("serializer", "words", "cause"),
    [
        (raises, ["KeyError", "no schema for bad"], KeyError),
        (lambda value: f"<{value}>", ["returned str", "must return bytes or None"], None),
        (lambda value: 5, ["returned int", "must return bytes or None"], None),
        (lambda value: a_future(), ["returned", "async function"], None),
    ],
    ids=["raises", "gives str", "gives int", "gives a future"],
)
async def test_serializers_that_fail(
    cluster: FakeCluster, field: str, serializer: Any, words: list[str], cause: type[Exception] | None
) -> None:
    def sometimes(value: Any) -> Any:
        return serializer(value) if value == "bad" else value

    async with Producer(
        cluster.bootstrap_servers, **dict[str, Any]({f"{field}_serializer": sometimes})
    ) as producer:
        for _ in range(2):
            bad: dict[str, Any] = {field: "bad"}
            with pytest.raises(SerializationError) as caught:
                await producer.send("t", **bad)
            assert caught.value.field == field
            for word in (field, "'t'", *words):
                assert word in str(caught.value)
            assert type(caught.value.__cause__) is (cause or type(None))
            with pytest.raises(SerializationError):
                producer.try_send("t", **bad)
            await assert_still_works_at(producer, cluster)


async def assert_still_works_at(producer: Producer, cluster: FakeCluster) -> None:
    count = len(cluster.records("t"))
    metadata = await producer.send_and_wait("t", b"good", key=b"good")
    assert len(cluster.records("t")) == count + 1
    assert metadata.offset >= 0
    assert producer.outstanding_bytes == 0


async def test_a_serializer_that_gives_a_coroutine_is_named_async(cluster: FakeCluster) -> None:
    """A plain callable that returns an async function's coroutine passes the configuration's check."""
    made: list[Any] = []

    def hidden(value: object) -> Any:
        made.append(asynchronous(value))
        return made[-1]

    async with Producer(cluster.bootstrap_servers, value_serializer=hidden) as producer:
        with pytest.raises(SerializationError, match=r"returned coroutine.*is it an async function"):
            await producer.send("t", "v")
        made[0].close()
        await producer.send_and_wait("t", None, key=b"k")
    assert values(cluster) == [None]


@pytest.mark.parametrize("serializer", [asynchronous, AsynchronousCall()], ids=["function", "object"])
async def test_an_async_serializer_is_refused_when_configured(serializer: Any) -> None:
    with pytest.raises(ValueError, match="async") as caught:
        Producer("localhost:9092", value_serializer=serializer)
    assert getattr(caught.value, "key", None) == "value.serializer"


async def test_what_a_serializer_raises_beyond_exception_is_not_wrapped(cluster: FakeCluster) -> None:
    class Stop(BaseException):
        pass

    def stops(value: object) -> bytes:
        raise Stop

    async with Producer(cluster.bootstrap_servers, value_serializer=stops) as producer:
        with pytest.raises(Stop):
            await producer.send("t", "v")
        assert producer.outstanding_bytes == 0
        await producer.send_and_wait("t", None)
    assert values(cluster) == [None]


# Too large


async def test_larger_than_the_whole_buffer(cluster: FakeCluster) -> None:
    """Refused at once: no waiting brings the memory."""
    async with Producer(
        cluster.bootstrap_servers,
        buffer_memory=100_000,
        max_request_size=1_000_000,
        batch_size=10_000,
        max_block_ms=FOREVER_MS,
    ) as producer:
        for call in (producer.send("t", b"x" * 100_000), producer.send_and_wait("t", None, b"x" * 100_000)):
            with pytest.raises(RecordTooLargeError) as caught:
                await wait_for(call, PATIENCE)
            assert caught.value.limited_by == "buffer.memory"
            assert caught.value.limit == 100_000
            assert caught.value.size > 100_000
            assert "raise" in str(caught.value)
            assert "buffer.memory" in str(caught.value)
        with pytest.raises(RecordTooLargeError):
            producer.try_send("t", b"x" * 100_000)
        await assert_still_works(producer, cluster)


async def test_the_largest_record_that_is_allowed(cluster: FakeCluster) -> None:
    """PlaintextProducerSend `maxRequestSizeAndHigher`: the limit itself goes, one byte more does not."""
    limit = 10_000
    async with Producer(cluster.bootstrap_servers, max_request_size=limit, batch_size=16_384) as producer:
        size = limit
        while True:
            try:
                await producer.send_and_wait("one", b"x" * size)
            except RecordTooLargeError:
                size -= 1
            else:
                break
        # 61 bytes of batch header, and at most 21 of record: a length of 5, a delta of 10, ...
        assert limit - 100 < size < limit - 61
        with pytest.raises(RecordTooLargeError):
            await producer.send("one", b"x" * (size + 1))
    assert values(cluster, "one") == [b"x" * size]


@pytest.mark.parametrize("acks", [1, "all"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
async def test_one_record_beyond_the_brokers_limit(cluster: FakeCluster, acks: Any, idempotent: bool) -> None:
    """MESSAGE_TOO_LARGE (10) for a record that is alone: there is nothing to split. Its neighbours are sent."""
    cluster.configure_topic("one", max_message_bytes=10_000)
    async with Producer(
        cluster.bootstrap_servers, acks=acks if not idempotent else "all", enable_idempotence=idempotent
    ) as producer:
        deliveries = [await producer.send("one", b"%d" % n) for n in range(3)]
        deliveries.append(await producer.send("one", b"x" * 12_000))
        deliveries += [await producer.send("one", b"%d" % n) for n in range(3, 6)]
        outcomes = await gather(*deliveries, return_exceptions=True)
        error = outcomes[3]
        assert isinstance(error, BrokerRejectedError)
        assert (error.code, error.name) == (10, "MESSAGE_TOO_LARGE")
        assert error.topic_partition == ("one", 0)
        assert (error.possibly_written, error.retriable) == (False, False)
        assert "MESSAGE_TOO_LARGE" in str(error)
        assert "not in the log" in str(error)
        assert not any(isinstance(each, BaseException) for each in outcomes[:3] + outcomes[4:])
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == [b"0", b"1", b"2", b"3", b"4", b"5", b"good"]


async def test_too_large_for_the_broker_with_acks_0_is_lost_silently(cluster: FakeCluster) -> None:
    """acks=0 promises nothing: Kafka closes the connection, and the producer goes on with a new one."""
    cluster.configure_topic("one", max_message_bytes=10_000)
    async with Producer(cluster.bootstrap_servers, acks=0) as producer:
        metadata = await producer.send_and_wait("one", b"x" * 12_000)
        assert metadata.offset == -1
        while not values(cluster, "one"):
            await producer.send_and_wait("one", b"small")
    assert set(values(cluster, "one")) == {b"small"}
