"""Requests as kio's decoder reads them, field by field, and the values that the protocol cannot carry."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioproduce.wire import requests
from aioproduce.wire.produce import encode_produce
from aioproduce.wire.requests import (
    encode_api_versions,
    encode_get_telemetry_subscriptions,
    encode_init_producer_id,
    encode_metadata,
    encode_push_telemetry,
)
from tests import wire_oracle as oracle

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Batch:
    topic: str = "orders"
    topic_id: UUID | None = TOPIC_ID
    partition: int = 0
    buffers: Sequence[bytes | bytearray | memoryview] = (b"records",)

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))


@pytest.mark.parametrize("version", range(5))
def test_api_versions(version: int) -> None:
    cls = oracle.request_class(18, version)
    header, body = oracle.decoded_request(cls, encode_api_versions(version, 42, "client"))
    assert (header.request_api_key, header.request_api_version) == (18, version)
    assert (header.correlation_id, header.client_id) == (42, "client")
    if version >= 3:
        assert body.client_software_name == "aioproduce"
        # The only characters that brokers take (KIP-511).
        assert re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", body.client_software_version)


@pytest.mark.parametrize(
    ("installed", "sent"),
    [("0.1.0", "0.1.0"), ("1.2.dev3+g12ab.d2025", "1.2.dev3-g12ab.d2025"), ("1.0+", "1.0")],
)
def test_our_version_in_the_characters_that_brokers_take(
    installed: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: installed)
    assert requests._software_version.__wrapped__() == sent


@pytest.mark.parametrize("version", range(1, 14))
@pytest.mark.parametrize("topics", [None, [], ["orders", "größe"]])
@pytest.mark.parametrize("allow", [True, False])
def test_metadata(version: int, topics: list[str] | None, allow: bool) -> None:
    frame = encode_metadata(version, 7, "client", topics, allow_auto_topic_creation=allow)
    header, body = oracle.decoded_request(oracle.request_class(3, version), frame)
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (7, "client")
    names = None if body.topics is None else [topic.name for topic in body.topics]
    assert names == topics
    if version >= 4:
        assert body.allow_auto_topic_creation is allow
    if version >= 8:
        assert body.include_topic_authorized_operations is False
    if 8 <= version <= 10:
        assert body.include_cluster_authorized_operations is False
    if version >= 10:
        assert all(topic.topic_id is None for topic in body.topics or ())


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("transactional_id", [None, "", "payments-1"])
def test_init_producer_id(version: int, transactional_id: str | None) -> None:
    frame = encode_init_producer_id(
        version,
        7,
        "client",
        transactional_id=transactional_id,
        transaction_timeout=1.5,
        producer_id=9_000_000_000,
        producer_epoch=12,
    )
    _, body = oracle.decoded_request(oracle.request_class(22, version), frame)
    assert body.transactional_id == transactional_id
    assert body.transaction_timeout == datetime.timedelta(milliseconds=1500)
    if version >= 3:
        assert (body.producer_id, body.producer_epoch) == (9_000_000_000, 12)


@pytest.mark.parametrize("client_instance_id", [None, TOPIC_ID])
def test_get_telemetry_subscriptions(client_instance_id: UUID | None) -> None:
    frame = encode_get_telemetry_subscriptions(0, 7, "client", client_instance_id)
    header, body = oracle.decoded_request(oracle.request_class(71, 0), frame)
    assert (header.request_api_key, header.request_api_version) == (71, 0)
    assert (header.correlation_id, header.client_id) == (7, "client")
    assert body.client_instance_id == client_instance_id


@pytest.mark.parametrize("terminating", [True, False])
@pytest.mark.parametrize("metrics", [b"", b"otlp" * 5000], ids=["none", "20,000 bytes"])
def test_push_telemetry(terminating: bool, metrics: bytes) -> None:
    frame = encode_push_telemetry(
        0,
        7,
        "client",
        client_instance_id=TOPIC_ID,
        subscription_id=-3,
        terminating=terminating,
        compression_type=4,
        metrics=metrics,
    )
    header, body = oracle.decoded_request(oracle.request_class(72, 0), frame)
    assert (header.request_api_key, header.correlation_id) == (72, 7)
    assert (body.client_instance_id, body.subscription_id) == (TOPIC_ID, -3)
    assert (body.terminating, body.compression_type, body.metrics) == (terminating, 4, metrics)


def test_produce_v13_byte_by_byte() -> None:
    # Written down from the protocol's own description (KIP-482 encodings, KIP-516 topic ids).
    pieces = encode_produce(
        13, 5, "c", acks=-1, timeout=30.0, batches=[Batch(partition=3, buffers=[b"ab", b"c"])]
    )
    expected = (
        b"\x00\x00\x00\x30"  # 48 bytes follow
        b"\x00\x00\x00\x0d\x00\x00\x00\x05\x00\x01c\x00"  # header v2
        b"\x00\xff\xff\x00\x00\x75\x30"  # no transactional id, acks -1, 30,000 ms
        b"\x02" + TOPIC_ID.bytes + b"\x02"  # one topic, one partition
        b"\x00\x00\x00\x03\x04"  # partition 3, 3 bytes of records
        b"abc"
        b"\x00\x00\x00"  # no tags: of the partition, the topic, the request
    )
    assert b"".join(pieces) == expected


def test_produce_v3_byte_by_byte() -> None:
    pieces = encode_produce(
        3, 5, "c", acks=1, timeout=1.0, batches=[Batch(topic="t", partition=3)], transactional_id="x"
    )
    expected = (
        b"\x00\x00\x00\x2e"  # 46 bytes follow
        b"\x00\x00\x00\x03\x00\x00\x00\x05\x00\x01c"  # header v1
        b"\x00\x01x\x00\x01\x00\x00\x03\xe8"
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
        b"\x00\x00\x00\x03\x00\x00\x00\x07records"
    )
    assert b"".join(pieces) == expected


def test_a_topic_comes_once_and_its_batches_keep_their_order() -> None:
    batches = [Batch("a", partition=4), Batch("b", partition=1), Batch("a", partition=2)]
    frame = b"".join(encode_produce(9, 1, "c", acks=1, timeout=1.0, batches=batches))
    _, body = oracle.decoded_request(oracle.request_class(0, 9), frame)
    assert [(t.name, [p.index for p in t.partition_data]) for t in body.topic_data] == [
        ("a", [4, 2]),
        ("b", [1]),
    ]


def test_a_topic_that_was_created_again_is_another_topic_by_id() -> None:
    other = UUID(int=1)
    batches = [Batch(partition=0), Batch(partition=1, topic_id=other)]
    frame = b"".join(encode_produce(13, 1, "c", acks=1, timeout=1.0, batches=batches))
    _, body = oracle.decoded_request(oracle.request_class(0, 13), frame)
    assert [topic.topic_id for topic in body.topic_data] == [TOPIC_ID, other]


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_records_of_large_batches_are_passed_on_not_copied(version: int) -> None:
    large = Batch(buffers=[memoryview(bytearray(b"x" * 4097))])
    small = Batch(buffers=[memoryview(bytearray(b"x" * 4096))], partition=1)
    pieces = encode_produce(version, 1, "c", acks=1, timeout=1.0, batches=[large, small, large])
    assert [piece for piece in pieces if piece is large.buffers[0]] == [large.buffers[0]] * 2
    others = [piece for piece in pieces if piece is not large.buffers[0]]
    # The end of each partition is its tags, which the versions before 9 do not have.
    assert len(others) == (3 if version >= 9 else 2)
    assert {type(piece) for piece in others} == {bytes}


@pytest.mark.parametrize("size", [0, 126, 127, 16382, 16383, 2_097_151, 2_097_152])
def test_sizes_about_the_steps_of_a_varint(size: int) -> None:
    frame = b"".join(encode_produce(9, 1, "c", acks=1, timeout=1.0, batches=[Batch(buffers=[bytes(size)])]))
    _, body = oracle.decoded_request(oracle.request_class(0, 9), frame)
    assert len(body.topic_data[0].partition_data[0].records) == size


@pytest.mark.parametrize("version", [3, 9])
def test_a_frame_that_is_too_long(version: int) -> None:
    class Huge(Batch):
        @property
        def size(self) -> int:
            return 2**30

    with pytest.raises(ValueError, match="longer than a frame"):
        encode_produce(version, 1, "c", acks=1, timeout=1.0, batches=[Huge(), Huge(partition=1)])


def test_what_the_protocol_cannot_carry_is_refused_before_a_byte_is_made() -> None:
    with pytest.raises(ValueError, match="needs a batch"):
        encode_produce(9, 1, "c", acks=1, timeout=1.0, batches=[])
    with pytest.raises(ValueError, match="'orders' is not known"):
        encode_produce(13, 1, "c", acks=1, timeout=1.0, batches=[Batch(topic_id=None)])
    with pytest.raises(ValueError, match="milliseconds"):
        encode_produce(9, 1, "c", acks=1, timeout=2_147_484.0, batches=[Batch()])
    with pytest.raises(ValueError, match="milliseconds"):
        encode_init_producer_id(5, 1, "c", transaction_timeout=-1.0)
    for too_long in ("x" * 32768, "ß" * 16384):
        with pytest.raises(ValueError, match="32768 bytes"):
            encode_api_versions(4, 1, too_long)
        with pytest.raises(ValueError, match="32768 bytes"):
            encode_metadata(13, 1, "c", [too_long], allow_auto_topic_creation=True)
        with pytest.raises(ValueError, match="32768 bytes"):
            encode_init_producer_id(5, 1, "c", transactional_id=too_long)
        with pytest.raises(ValueError, match="32768 bytes"):
            encode_produce(9, 1, "c", acks=1, timeout=1.0, batches=[Batch(topic=too_long)])
