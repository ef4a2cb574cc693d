"""Brokers that are not there, do not answer, answer nonsense, or are too old: each cause is named, nothing is lost.

Scenarios of Kafka's own tests: ProducerFailureHandling `wrongBrokerList`; aiokafka#1101 (broker down: send and
close never hang).
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    NoBrokerAvailableError,
    PartialSendError,
    ProducerFatalError,
    UnsupportedVersionError,
)
from aioproduce.testing import FakeCluster
from aioproduce.testing.fake_cluster import model
from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import spawn, within
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    closed_port,
    let_the_sender_rest,
    port_that_says,
    silent_port,
    until,
    values,
)

USED_APIS = [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE]
# Short of the defaults, so that a test sees many attempts.
EAGER: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


# `max.block.ms` where every call is to use it up. The first failure is awaited before, however long it takes:
# this is no bound for a slow machine.
SHORT_MS = 50


async def expect_no_broker(producer: Producer, address: str, *words: str) -> None:
    """Every call that needs a broker gives up in its time, names the address and the cause, and queues nothing."""
    await until(producer._life.sender.connection_errors)
    with pytest.raises(NoBrokerAvailableError) as checked:
        await producer.check(SHORT_MS / 1000)
    assert list(checked.value.causes) == [address]
    for word in (address, *words, "advertised.listeners"):
        assert word in str(checked.value)
    errors: list[BaseException | None] = []
    with pytest.raises(MetadataTimeoutError) as sending:
        await producer.send("t", b"v")
    errors.append(sending.value)
    with pytest.raises(MetadataTimeoutError) as asking:
        await producer.partitions_for("t")
    errors.append(asking.value)
    with pytest.raises(PartialSendError) as sending_many:
        await producer.send_many("t", [b"v"])
    errors.append(sending_many.value.__cause__)
    for error in errors:
        assert isinstance(error, MetadataTimeoutError)
        assert error.topic == "t"
        assert error.waited > 0
        for word in ("'t'", "max.block.ms", *words):
            assert word in str(error)
        assert isinstance(error.__cause__, NoBrokerAvailableError)
    with pytest.raises(MetadataTimeoutError):
        producer.try_send("t", b"v")
    assert producer.outstanding_bytes == 0


# Nobody there


async def test_a_closed_port(nothing_left: None) -> None:
    with closed_port() as address:
        async with Producer(address, max_block_ms=SHORT_MS, **EAGER) as producer:
            await expect_no_broker(producer, address, "refused")
            await producer.flush()


async def test_a_black_hole_that_connects(nothing_left: None) -> None:
    """The kernel completes the handshake, and nobody ever reads: the request time-out gives the cause."""
    with silent_port() as address:
        async with Producer(
            address,
            max_block_ms=SHORT_MS,
            request_timeout_ms=50,
            linger_ms=0,
            delivery_timeout_ms=50,
            **EAGER,
        ) as producer:
            await expect_no_broker(producer, address, "did not answer ApiVersions", "request.timeout.ms")


async def test_a_black_hole_that_does_not_even_connect(nothing_left: None) -> None:
    with silent_port(takes_connections=False) as address:
        async with Producer(
            address,
            max_block_ms=SHORT_MS,
            socket_connection_setup_timeout_ms=50,
            socket_connection_setup_timeout_max_ms=50,
            **EAGER,
        ) as producer:
            await expect_no_broker(producer, address, "socket.connection.setup.timeout.ms")


@pytest.mark.parametrize("takes_connections", [True, False], ids=["connects", "refuses to connect"])
async def test_a_black_hole_within_its_time(nothing_left: None, takes_connections: bool) -> None:
    """`max.block.ms` is over before any of the connection's time-outs: there is no failure yet, but a cause."""
    with silent_port(takes_connections=takes_connections) as address:
        async with Producer(address, max_block_ms=100) as producer:
            with pytest.raises(NoBrokerAvailableError) as checked:
                await producer.check(0.1)
            assert address in str(checked.value)
            with pytest.raises(MetadataTimeoutError, match="no broker answered"):
                await producer.send("t", b"v")
            assert producer.outstanding_bytes == 0


async def test_one_of_several_is_enough(cluster: FakeCluster) -> None:
    with closed_port() as closed, silent_port() as silent:
        servers = f"{closed},{silent},{cluster.bootstrap_servers}"
        async with Producer(
            servers, socket_connection_setup_timeout_ms=100, request_timeout_ms=1000, **EAGER
        ) as producer:
            await assert_still_works(producer, cluster)


async def test_brokers_that_come_up_later(cluster: FakeCluster) -> None:
    for broker in range(3):
        await cluster.stop_broker(broker)
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        with pytest.raises(NoBrokerAvailableError):
            await producer.check(0.1)
        waiting = spawn(producer.send("t", b"v"))
        await until(lambda: not producer._life.sender.has_work)
        for broker in range(3):
            await cluster.start_broker(broker)
        await (await waiting)
        assert (await producer.check(PATIENCE)).brokers.keys() == {0, 1, 2}
        await assert_still_works(producer, cluster)


async def test_a_broker_that_reads_nothing_for_a_while(cluster: FakeCluster) -> None:
    """What the system does not take at once is written as soon as it does."""
    async with Producer(
        cluster.bootstrap_servers,
        linger_ms=0,
        batch_size=4_000_000,
        max_request_size=8_000_000,
        send_buffer_bytes=65_536,
    ) as producer:
        await producer.send_and_wait("one", b"before")
        leader = cluster.leader("one", 0)
        cluster.faults.stall(leader)
        deliveries = [await producer.send("one", bytes([n]) * 900_000) for n in range(4)]
        await let_the_sender_rest()
        assert not any(delivery.done() for delivery in deliveries)
        cluster.faults.resume(leader)
        async with within(PATIENCE):
            for delivery in deliveries:
                await delivery
    assert values(cluster, "one")[1:] == [bytes([n]) * 900_000 for n in range(4)]


async def test_all_brokers_down_with_records_accepted(cluster: FakeCluster) -> None:
    """aiokafka#1101: send, flush and close end in their time, and the record's error names the cause."""
    async with Producer(
        cluster.bootstrap_servers,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=500,
        max_block_ms=2_000,
        **EAGER,
    ) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        for broker in range(3):
            await cluster.stop_broker(broker)
        delivery = await producer.send("t", b"lost", partition=0)
        await producer.flush()
        with pytest.raises(DeliveryTimeoutError) as caught:
            await delivery
        assert caught.value.topic_partition == ("t", 0)
        assert caught.value.retriable
        assert "delivery.timeout.ms" in str(caught.value)
        with pytest.raises(NoBrokerAvailableError) as checked:
            await producer.check(0.2)
        assert "refused" in str(checked.value)
        again = await producer.send("t", b"lost too", partition=0)
    assert again.done()
    assert isinstance(again.exception(), DeliveryTimeoutError)
    assert values(cluster) == [b"first"]


# Nonsense


@pytest.mark.parametrize(
    ("api", "idempotent"),
    [
        pytest.param(api, idempotent, id=f"{api.name}-{'idempotent' if idempotent else 'plain'}")
        for api in USED_APIS
        for idempotent in (True, False)
        if idempotent or api is not ApiKey.INIT_PRODUCER_ID
    ],
)
@pytest.mark.parametrize("fault", ["garbage", "empty", "2 GiB", "negative", "cut", "correlation id"])
async def test_a_broker_that_answers_nonsense_once(
    cluster: FakeCluster, api: ApiKey, idempotent: bool, fault: str
) -> None:
    faults = cluster.faults
    made = {
        "garbage": lambda: faults.garble_answers(api=api),
        "empty": lambda: faults.garble_answers(api=api, body=b""),
        "2 GiB": lambda: faults.announce_hostile_length(api=api),
        "negative": lambda: faults.announce_hostile_length(-1, api=api),
        "cut": lambda: faults.cut_answers(api=api),
        "correlation id": lambda: faults.change_correlation_ids(api=api),
    }[fault]()
    async with Producer(cluster.bootstrap_servers, enable_idempotence=idempotent, **EAGER) as producer:
        async with within(PATIENCE):
            metadata = await producer.send_and_wait("one", b"v")
            assert made.hits == 1
            await producer.flush()
        if idempotent or api is not ApiKey.PRODUCE:
            assert metadata.offset == 0
            assert values(cluster, "one") == [b"v"]
        else:
            # Without idempotence an answer that was lost is a duplicate: at least once.
            assert values(cluster, "one") == [b"v", b"v"]
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ["HTTP", "bootstrap.servers"]),
        (struct.pack(">i", 2**31 - 1), ["2147483647"]),
        (struct.pack(">i", -5), ["-5"]),
        (struct.pack(">ii", 4, 77), ["77"]),
        (b"", []),
    ],
    ids=["an HTTP server", "2 GiB", "negative", "another correlation id", "closes"],
)
async def test_a_port_that_is_no_broker(nothing_left: None, answer: bytes, words: list[str]) -> None:
    async with (
        port_that_says(answer) as address,
        Producer(
            address,
            max_block_ms=SHORT_MS,
            request_timeout_ms=100,
            linger_ms=0,
            delivery_timeout_ms=100,
            reconnect_backoff_ms=FOREVER_MS,
            reconnect_backoff_max_ms=FOREVER_MS,
        ) as producer,
    ):
        await expect_no_broker(producer, address, *words)


async def test_a_broker_that_only_talks_nonsense(cluster: FakeCluster) -> None:
    cluster.faults.garble_answers(times=None, api=ApiKey.METADATA)
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        await until(producer._life.sender.connection_errors)
        with pytest.raises(MetadataTimeoutError) as caught:
            await producer.send("t", b"v", timeout=SHORT_MS / 1000)
        assert "Metadata" in str(caught.value)
        with pytest.raises(NoBrokerAvailableError, match="Metadata"):
            await producer.check(SHORT_MS / 1000)
        cluster.faults.clear()
        await assert_still_works(producer, cluster)


async def test_unknown_tagged_fields_everywhere(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future broker may put tagged fields into any header and message; an old client skips them (KIP-482)."""
    tagged: set[int] = set()
    encode = encode_response
    # One tag, number 99, three bytes; and number 300 with none.
    extra = b"\x02\x63\x03abc\xac\x02\x00"

    def encode_with_tags(api_key: int, api_version: int, correlation_id: int, body: Any) -> bytes:
        if api_key == ApiKey.API_VERSIONS:  # the tagged fields that clients know
            body = {name: value for name, value in body.items() if "_features" not in name}
        frame = encode(api_key, api_version, correlation_id, body)
        is_flexible = api_version >= {0: 9, 3: 9, 18: 3, 22: 2}[api_key]
        if not is_flexible:
            return frame
        assert frame.endswith(b"\x00"), "the count of the message's own tagged fields"
        tagged.add(api_key)
        frame = frame[:-1] + extra
        if api_key != ApiKey.API_VERSIONS:
            assert frame[4] == 0, "the count of the header's tagged fields"
            frame = frame[:4] + extra + frame[5:]
        return frame

    monkeypatch.setattr(model, "encode_response", encode_with_tags)
    async with Producer(cluster.bootstrap_servers) as producer:
        await assert_still_works(producer, cluster)
    assert tagged == set(USED_APIS)


# Error codes


@pytest.mark.parametrize("code", [999, -2, 32_767])
async def test_an_unknown_error_code_for_a_batch(cluster: FakeCluster, code: int) -> None:
    cluster.faults.fail_produce(code, message="from the future")
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(BrokerRejectedError) as caught:
            await producer.send_and_wait("one", b"v")
        assert (caught.value.code, caught.value.name) == (code, f"UNKNOWN_CODE_{code}")
        assert caught.value.topic_partition == ("one", 0)
        assert caught.value.possibly_written, "what an unknown code means for the record is not known"
        assert caught.value.attempts == 1
        assert "from the future" in str(caught.value)
        await assert_still_works(producer, cluster, "one")


async def test_an_unknown_error_code_for_a_topic(cluster: FakeCluster) -> None:
    fault = cluster.faults.fail_metadata(999, times=None, topic="t")
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        await producer.check(PATIENCE)
        with pytest.raises(MetadataTimeoutError, match="UNKNOWN_CODE_999"):
            await producer.send("t", b"v", timeout=0.25)
        await assert_still_works(producer, cluster, "one")
        fault.cancel()
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
async def test_an_unknown_error_code_for_a_whole_answer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, api: ApiKey
) -> None:
    fault = cluster.faults.fail(api, 999)
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        if api == ApiKey.INIT_PRODUCER_ID:
            # Asked for while the producer starts; a record that waited for it would be told of the error.
            await until(lambda: "no producer id" in caplog.text)
        await assert_still_works(producer, cluster)
        assert fault.is_spent


@pytest.mark.parametrize("code", [31, 53, 999])
async def test_no_producer_id_for_who_may_not_write(cluster: FakeCluster, code: int) -> None:
    """KafkaProducerTest `clusterAuthorizationFailure`, without the transaction: told, and gone with the cause."""
    error_names = {
        31: "CLUSTER_AUTHORIZATION_FAILED",
        53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        999: "_999",
    }
    fault = cluster.faults.fail(ApiKey.INIT_PRODUCER_ID, code, times=None)
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        with pytest.raises(ProducerFatalError) as caught:
            await producer.send_and_wait("t", b"v")
        assert caught.value.code == code
        assert not caught.value.possibly_written
        assert caught.value.attempts == 0
        for word in ("enable.idempotence", "IdempotentWrite", error_names[code]):
            assert word in str(caught.value)
        assert values(cluster) == []
        fault.cancel()
        await assert_still_works(producer, cluster)


# Too old


async def test_brokers_before_record_batch_v2(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.PRODUCE: (0, 2)})
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        for call in (
            lambda: producer.check(PATIENCE),
            lambda: producer.send("t", b"v"),
            lambda: producer.partitions_for("t"),
        ):
            with pytest.raises(UnsupportedVersionError) as caught:
                await call()
            assert caught.value.api == "Produce"
            assert caught.value.broker_versions == (0, 2)
            assert caught.value.client_versions == (3, 13)
            for word in ("0.11", "v0 to v2", "v3 to v13", "upgrade"):
                assert word in str(caught.value)
        assert producer.outstanding_bytes == 0
        # Upgraded meanwhile.
        cluster.set_api_versions({ApiKey.PRODUCE: (3, 13)})
        await until(lambda: producer._life.sender.metadata.version > 0)
        await assert_still_works(producer, cluster)
        await producer.check()


async def test_start_that_requires_a_broker_names_one_that_is_too_old(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.PRODUCE: (0, 2)})
    producer = Producer(cluster.bootstrap_servers)
    with pytest.raises(UnsupportedVersionError, match=r"0\.11"):
        await producer.start(require_broker=True)


@pytest.mark.parametrize(
    "versions",
    [
        {ApiKey.PRODUCE: (3, 3), ApiKey.METADATA: (0, 1), ApiKey.INIT_PRODUCER_ID: (0, 0)},
        {ApiKey.API_VERSIONS: (0, 2)},
        {ApiKey.API_VERSIONS: (0, 0), ApiKey.PRODUCE: (3, 8)},
        {ApiKey.PRODUCE: (3, 12)},
        {ApiKey.PRODUCE: (9, 40), ApiKey.METADATA: (9, 40), 1234: (0, 1)},
    ],
    ids=["0.11", "ApiVersions 2", "ApiVersions 0", "before topic ids", "the future"],
)
async def test_versions_that_are_shared_are_used(cluster: FakeCluster, versions: dict[int, Any]) -> None:
    cluster.set_api_versions(versions)
    async with Producer(cluster.bootstrap_servers) as producer:
        await assert_still_works(producer, cluster)
    [lowest, highest] = versions.get(ApiKey.PRODUCE, (3, 13))
    for request in cluster.requests.entries(ApiKey.PRODUCE):
        assert request.api_version == min(highest, 13) >= lowest


async def test_an_idempotent_producer_and_brokers_without_producer_ids(cluster: FakeCluster) -> None:
    cluster.set_api_versions({ApiKey.INIT_PRODUCER_ID: None})
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        with pytest.raises((UnsupportedVersionError, ProducerFatalError)) as caught:
            await producer.send_and_wait("t", b"v")
        assert "idempoten" in str(caught.value).lower()
    assert values(cluster) == []
