"""Answers made by kio become the same typed values in every version; what a version lacks has its default."""

from __future__ import annotations

import datetime
import importlib
import struct
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from aioproduce.errors import ProtocolError, UnsupportedVersionError
from aioproduce.wire.messages import (
    ApiVersionsResponse,
    BrokerAddress,
    GetTelemetrySubscriptionsResponse,
    InitProducerIdResponse,
    MetadataResponse,
    PartitionMetadata,
    PartitionProduceResponse,
    ProduceResponse,
    PushTelemetryResponse,
    RecordError,
    TopicMetadata,
)
from aioproduce.wire.responses import correlation_id_of, decode_body
from tests import wire_oracle as oracle

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
THROTTLE = datetime.timedelta(milliseconds=1500)
APPENDED_AT = datetime.datetime(2025, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def build(cls: type[Any], **values: object) -> Any:
    """Make kio's message with those of the values that this version has."""
    return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


def nested(cls: type[Any], name: str) -> type[Any]:
    return getattr(importlib.import_module(cls.__module__), name)  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce(version: int) -> None:
    cls = oracle.response_class(0, version)
    errors: tuple[Any, ...] = ()
    leader = endpoints = None
    if version >= 8:
        error = nested(cls, "BatchIndexAndErrorMessage")
        errors = (
            error(batch_index=2, batch_index_error_message="no key"),
            error(batch_index=5, batch_index_error_message=None),
        )
    if version >= 10:
        leader = nested(cls, "LeaderIdAndEpoch")(leader_id=3, leader_epoch=8)
        endpoints = (nested(cls, "NodeEndpoint")(node_id=3, host="three", port=9093, rack="r"),)
    refused = build(
        nested(cls, "PartitionProduceResponse"),
        index=1,
        error_code=ErrorCode.not_leader_or_follower,
        base_offset=-1,
        record_errors=errors,
        error_message="moved",
        current_leader=leader,
    )
    written = build(
        nested(cls, "PartitionProduceResponse"),
        index=0,
        error_code=ErrorCode.none,
        base_offset=2**40,
        log_append_time=APPENDED_AT,
        log_start_offset=17,
        record_errors=(),
    )
    topic = build(
        nested(cls, "TopicProduceResponse"),
        name="orders",
        topic_id=TOPIC_ID,
        partition_responses=(refused, written),
    )
    answer = build(cls, responses=(topic,), throttle_time=THROTTLE, node_endpoints=endpoints)
    name, topic_id = ("orders", None) if version < 13 else (None, TOPIC_ID)
    frame = oracle.response_frame(answer, correlation_id=-77)
    assert correlation_id_of(frame) == -77
    assert decode_body(0, version, frame) == ProduceResponse(
        throttle=1.5,
        partitions=(
            PartitionProduceResponse(
                topic=name,
                topic_id=topic_id,
                partition=1,
                error_code=6,
                base_offset=-1,
                record_errors=(RecordError(2, "no key"), RecordError(5, None)) if version >= 8 else (),
                error_message="moved" if version >= 8 else None,
                leader_id=3 if version >= 10 else -1,
                leader_epoch=8 if version >= 10 else -1,
            ),
            PartitionProduceResponse(
                topic=name,
                topic_id=topic_id,
                partition=0,
                error_code=0,
                base_offset=2**40,
                log_append_time=1_735_787_045_000,
                log_start_offset=17 if version >= 5 else -1,
            ),
        ),
        node_endpoints=(BrokerAddress(3, "three", 9093, "r"),) if version >= 10 else (),
    )


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata(version: int) -> None:
    cls = oracle.response_class(3, version)
    partition = build(
        nested(cls, "MetadataResponsePartition"),
        error_code=ErrorCode.leader_not_available,
        partition_index=4,
        leader_id=-1,
        leader_epoch=9,
        replica_nodes=(1, 2, 3),
        isr_nodes=(3,),
        offline_replicas=(1,),
    )
    topics = (
        build(
            nested(cls, "MetadataResponseTopic"),
            error_code=ErrorCode.none,
            name="orders",
            topic_id=TOPIC_ID,
            is_internal=True,
            partitions=(partition,),
        ),
        build(
            nested(cls, "MetadataResponseTopic"),
            error_code=ErrorCode.unknown_topic_or_partition,
            name=None if version >= 12 else "gone",
            topic_id=None,
            partitions=(),
        ),
    )
    answer = build(
        cls,
        throttle_time=THROTTLE,
        brokers=(build(nested(cls, "MetadataResponseBroker"), node_id=1, host="::1", port=65535, rack="r"),),
        cluster_id="cluster",
        controller_id=2,
        topics=topics,
        error_code=ErrorCode.rebootstrap_required,
    )
    assert decode_body(3, version, oracle.response_frame(answer)) == MetadataResponse(
        throttle=1.5 if version >= 3 else 0.0,
        error_code=129 if version >= 13 else 0,
        brokers=(BrokerAddress(1, "::1", 65535, "r"),),
        cluster_id="cluster" if version >= 2 else None,
        controller_id=2,
        topics=(
            TopicMetadata(
                name="orders",
                topic_id=TOPIC_ID if version >= 10 else None,
                error_code=0,
                is_internal=True,
                # Versions 7 and 8 have epochs that may lag behind (KAFKA-9212).
                partitions=(PartitionMetadata(4, 5, -1, 9 if version >= 9 else -1, (1, 2, 3), (3,)),),
            ),
            TopicMetadata(name=None if version >= 12 else "gone", topic_id=None, error_code=3),
        ),
    )


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(version: int) -> None:
    cls = oracle.response_class(22, version)
    answer = cls(throttle_time=THROTTLE, error_code=ErrorCode.none, producer_id=2**50, producer_epoch=3)
    assert decode_body(22, version, oracle.response_frame(answer)) == InitProducerIdResponse(1.5, 0, 2**50, 3)


def test_get_telemetry_subscriptions() -> None:
    answer = oracle.response_class(71, 0)(
        throttle_time=THROTTLE,
        error_code=ErrorCode.none,
        client_instance_id=TOPIC_ID,
        subscription_id=-77,
        accepted_compression_types=(4, 3, 1, 2),
        push_interval=datetime.timedelta(milliseconds=300_001),
        telemetry_max_bytes=2**20,
        delta_temporality=True,
        requested_metrics=("org.apache.kafka.producer.", "größe"),
    )
    assert decode_body(71, 0, oracle.response_frame(answer)) == GetTelemetrySubscriptionsResponse(
        1.5, 0, TOPIC_ID, -77, (4, 3, 1, 2), 300.001, 2**20, True, ("org.apache.kafka.producer.", "größe")
    )


def test_nothing_is_subscribed_to_and_no_id_is_given() -> None:
    answer = oracle.response_class(71, 0)(
        throttle_time=datetime.timedelta(),
        error_code=ErrorCode.throttling_quota_exceeded,
        client_instance_id=None,
        subscription_id=0,
        push_interval=datetime.timedelta(),
        telemetry_max_bytes=0,
        delta_temporality=False,
    )
    assert decode_body(71, 0, oracle.response_frame(answer)) == GetTelemetrySubscriptionsResponse(
        0.0, 89, None, 0, (), 0.0, 0, False, ()
    )


@pytest.mark.parametrize("code", [0, 117, 118])
def test_push_telemetry(code: int) -> None:
    answer = oracle.response_class(72, 0)(throttle_time=THROTTLE, error_code=ErrorCode(code))
    assert decode_body(72, 0, oracle.response_frame(answer)) == PushTelemetryResponse(1.5, code)


@pytest.mark.parametrize("version", range(5))
def test_api_versions(version: int) -> None:
    cls = oracle.response_class(18, version)
    api = nested(cls, "ApiVersion")
    answer = build(
        cls,
        error_code=ErrorCode.none,
        api_keys=(
            api(api_key=0, min_version=0, max_version=13),
            api(api_key=9999, min_version=1, max_version=2),
        ),
        throttle_time=THROTTLE,
    )
    frame = oracle.response_frame(answer)
    assert decode_body(18, version, frame) == ApiVersionsResponse(
        0, {0: (0, 13), 9999: (1, 2)}, 1.5 if version >= 1 else 0.0
    )


@pytest.mark.parametrize("asked", range(5))
def test_an_unsupported_api_versions_version_is_answered_in_version_0(asked: int) -> None:
    # KIP-511: correlation id, error 35, and the range of ApiVersions itself.
    frame = memoryview(struct.pack(">ihihhh", 7, 35, 1, 18, 0, 3))
    assert decode_body(18, asked, frame) == ApiVersionsResponse(35, {18: (0, 3)})
    # Brokers before 2.4 send no range.
    frame = memoryview(struct.pack(">ihi", 7, 35, 0))
    assert decode_body(18, asked, frame) == ApiVersionsResponse(35, {})


@pytest.mark.parametrize("asked", range(1, 5))
def test_a_broker_that_refuses_in_the_version_asked_is_understood_too(asked: int) -> None:
    answer = build(
        oracle.response_class(18, asked),
        error_code=ErrorCode.unsupported_version,
        api_keys=(),
        throttle_time=datetime.timedelta(0),
    )
    assert decode_body(18, asked, oracle.response_frame(answer)) == ApiVersionsResponse(35, {})

    # What librdkafka 2.16's mock cluster answers: its list counts 1 where a compact one counts 2.
    frame = memoryview(bytes.fromhex("0000000700230100120000000200000000"))
    assert decode_body(18, asked, frame) == ApiVersionsResponse(35, {})


def test_an_unknown_error_code_is_kept() -> None:
    frame = memoryview(struct.pack(">iihqh", 7, 0, 999, -1, -1))
    assert decode_body(22, 0, frame) == InitProducerIdResponse(0.0, 999, -1, -1)


def test_bytes_after_an_answer_are_passed_over() -> None:
    # librdkafka's mock ends each Metadata answer from v9 on with one byte too many; Java does not mind.
    frame = memoryview(struct.pack(">iihqhB", 7, 0, 0, 4711, 3, 0))
    assert decode_body(22, 0, frame) == InitProducerIdResponse(0.0, 0, 4711, 3)


def test_a_negative_throttle_is_none() -> None:
    frame = memoryview(struct.pack(">iihqh", 7, -5, 0, 1, 0))
    assert decode_body(22, 0, frame) == InitProducerIdResponse(0.0, 0, 1, 0)


def test_unknown_tagged_fields_are_passed_over_at_every_level() -> None:
    unknown = b"\x02\x05\x03abc\x63\x00"  # two: tag 5 with 3 bytes, tag 99 with none
    frame = (
        b"\0\0\0\7" + unknown  # header v1
        + b"\x02" + TOPIC_ID.bytes + b"\x02"
        + struct.pack(">ihqqq", 4, 0, 100, -1, 0) + b"\x01\x00"
        # The new leader (tag 0) with an unknown tag inside, before an unknown tag of the partition.
        + b"\x02\x00\x10" + struct.pack(">ii", 2, 11) + unknown + b"\x7f\x01z"
        + unknown  # topic
        + struct.pack(">i", 0)
        + unknown  # response
    )  # fmt: skip
    assert decode_body(0, 13, memoryview(frame)) == ProduceResponse(
        0.0,
        (PartitionProduceResponse(None, TOPIC_ID, 4, 0, 100, -1, 0, leader_id=2, leader_epoch=11),),
    )


def test_too_short_for_a_correlation_id() -> None:
    for size in range(4):
        with pytest.raises(ProtocolError, match="too short"):
            correlation_id_of(memoryview(bytes(size)))


def test_apis_and_versions_that_are_not_ours() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_body(0, 14, memoryview(bytes(40)))
    with pytest.raises(ProtocolError, match="not used by a producer"):
        decode_body(1, 12, memoryview(bytes(40)))
    with pytest.raises(ProtocolError, match="31999"):
        decode_body(31999, 0, memoryview(bytes(40)))
