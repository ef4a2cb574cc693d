"""Decodes a broker's frames to typed messages.

Used by `core.cluster.broker_connection`. `correlation_id_of()` identifies the request that a frame answers.
`decode_body()` then reads the rest with that request's API and version.

1. Decoding any bytes gives a message or a ProtocolError and nothing else.
2. The header of an ApiVersions response always has version 0. A broker that does not know the requested
   version answers in version 0 with UNSUPPORTED_VERSION (KIP-511), so that negotiation can always begin.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aioproduce.errors import ProtocolError
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import UNSUPPORTED_VERSION
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
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    TopicMetadata,
)
from aioproduce.wire.produce import plain_answer
from aioproduce.wire.reader import decode_entity, skip_tags
from aioproduce.wire.schema import response_class
from aioproduce.wire.transaction_responses import TRANSACTION_CONVERTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.wire.messages import Message

_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_MILLISECONDS: Final = 1000.0
_PRODUCE_BY_TOPIC_ID: Final = 13
# An attribute of an Enum costs a call.
_PRODUCE_KEY: Final = ApiKey.PRODUCE
_API_VERSIONS: Final = ApiKey.API_VERSIONS
# Brokers before 2.4 send leader epochs that may be old (KAFKA-9212): they must not replace newer ones.
_NOT_TOLD: Final = -0x8000_0000
"""The protocol's value for unknown authorized operations (KIP-430)."""

_FIRST_METADATA_WITH_RELIABLE_EPOCHS: Final = 9


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id at the start of the frame.

    Args:
        frame: The frame without its length.

    Raises:
        ProtocolError: If the frame is too short to have one.
    """
    if len(frame) < _INT32.size:
        raise ProtocolError(f"a response of {len(frame)} bytes is too short to have a correlation id")
    correlation_id: int = _INT32.unpack_from(frame)[0]
    return correlation_id


def decode_body(api_key: int, api_version: int, frame: memoryview) -> Message:
    """Decode the answer to a request of this API and version.

    Args:
        api_key: The request's API; one of `wire.api.CLIENT_VERSIONS`.
        api_version: The request's version.
        frame: The frame without its length, correlation id included.

    Raises:
        ProtocolError: If the bytes are not such an answer.
    """
    if api_key == _API_VERSIONS and api_version > 0 and _is_refused_version(frame):
        # Not every broker follows KIP-511: an answer that is invalid in version 0 may be valid in the requested
        # one.
        for version in (0, api_version):
            with suppress(ProtocolError):
                return _decode(api_key, version, frame)
        # librdkafka's mock sends a list that is valid in neither. It is enough to know that the broker refused.
        return ApiVersionsResponse(UNSUPPORTED_VERSION, {})
    return _decode(api_key, api_version, frame)


def _is_refused_version(frame: memoryview) -> bool:
    return (
        len(frame) >= _INT32.size + _INT16.size
        and _INT16.unpack_from(frame, _INT32.size)[0] == UNSUPPORTED_VERSION
    )


def _decode(api_key: int, api_version: int, frame: memoryview) -> Message:
    if api_key == _PRODUCE_KEY and api_version == _PRODUCE_BY_TOPIC_ID:
        plain = plain_answer(frame)
        if plain is not None:
            return plain
    cls, has_header_tags, convert = _decoder(api_key, api_version)
    at = skip_tags(frame, _INT32.size) if has_header_tags else _INT32.size
    # The end of an ApiVersions answer shows its version. Other answers may have bytes after them, as in Java.
    return convert(decode_entity(cls, frame, at, may_go_on=api_key != _API_VERSIONS))


@cache
def _decoder(
    api_key: int, api_version: int
) -> tuple[type[Any], bool, Callable[[Mapping[str, Any]], Message]]:
    cls = response_class(api_key, api_version)
    convert = _CONVERTERS.get(api_key)
    if api_key == ApiKey.METADATA and api_version < _FIRST_METADATA_WITH_RELIABLE_EPOCHS:
        convert = _metadata_without_epochs
    if convert is None:
        raise ProtocolError(f"responses of API key {api_key} are not used by a producer")
    return cls, cls.__header_schema__.__flexible__, convert


def _throttle(body: Mapping[str, Any]) -> float:
    milliseconds: int = body.get("throttle_time", 0)
    return max(0, milliseconds) / _MILLISECONDS


def _api_versions(body: Mapping[str, Any]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=body["error_code"],
        versions={api["api_key"]: (api["min_version"], api["max_version"]) for api in body["api_keys"]},
        throttle=_throttle(body),
        finalized_features={
            feature["name"]: (feature["min_version_level"], feature["max_version_level"])
            for feature in body.get("finalized_features", ())
        },
        finalized_features_epoch=body.get("finalized_features_epoch", -1),
    )


def _metadata(body: Mapping[str, Any]) -> MetadataResponse:
    return MetadataResponse(
        throttle=_throttle(body),
        error_code=body.get("error_code", 0),
        brokers=tuple(map(_broker, body["brokers"])),
        cluster_id=body.get("cluster_id"),
        controller_id=body.get("controller_id", -1),
        topics=tuple(map(_topic_metadata, body["topics"])),
    )


def _metadata_without_epochs(body: Mapping[str, Any]) -> MetadataResponse:
    for topic in body["topics"]:
        for partition in topic["partitions"]:
            partition.pop("leader_epoch", None)
    return _metadata(body)


def _broker(broker: Mapping[str, Any]) -> BrokerAddress:
    return BrokerAddress(broker["node_id"], broker["host"], broker["port"], broker.get("rack"))


def _topic_metadata(topic: Mapping[str, Any]) -> TopicMetadata:
    operations = topic.get("topic_authorized_operations", _NOT_TOLD)
    return TopicMetadata(
        name=topic["name"],
        topic_id=topic.get("topic_id"),
        error_code=topic["error_code"],
        is_internal=topic.get("is_internal", False),
        partitions=tuple(map(_partition_metadata, topic["partitions"])),
        authorized_operations=None if operations == _NOT_TOLD else operations,
    )


def _partition_metadata(partition: Mapping[str, Any]) -> PartitionMetadata:
    return PartitionMetadata(
        partition=partition["partition_index"],
        error_code=partition["error_code"],
        leader_id=partition["leader_id"],
        leader_epoch=partition.get("leader_epoch", -1),
        replicas=tuple(partition["replica_nodes"]),
        isr=tuple(partition["isr_nodes"]),
    )


def _init_producer_id(body: Mapping[str, Any]) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle=_throttle(body),
        error_code=body["error_code"],
        producer_id=body["producer_id"],
        producer_epoch=body["producer_epoch"],
    )


def _telemetry_subscriptions(body: Mapping[str, Any]) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        throttle=_throttle(body),
        error_code=body["error_code"],
        client_instance_id=body["client_instance_id"],
        subscription_id=body["subscription_id"],
        accepted_compression_types=tuple(body["accepted_compression_types"]),
        push_interval=body["push_interval"] / _MILLISECONDS,
        telemetry_max_bytes=body["telemetry_max_bytes"],
        delta_temporality=body["delta_temporality"],
        requested_metrics=tuple(body["requested_metrics"]),
    )


def _push_telemetry(body: Mapping[str, Any]) -> PushTelemetryResponse:
    return PushTelemetryResponse(_throttle(body), body["error_code"])


def _sasl_handshake(body: Mapping[str, Any]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(body["error_code"], tuple(body["mechanisms"]))


def _sasl_authenticate(body: Mapping[str, Any]) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        body["error_code"],
        body["error_message"],
        bytes(body["auth_bytes"]),
        body.get("session_lifetime", 0) / _MILLISECONDS,
    )


def _produce(body: Mapping[str, Any]) -> ProduceResponse:
    partitions = []
    for topic in body["responses"]:
        name = topic.get("name")
        topic_id = topic.get("topic_id")
        partitions += [_batch(name, topic_id, partition) for partition in topic["partition_responses"]]
    return ProduceResponse(
        _throttle(body), tuple(partitions), tuple(map(_broker, body.get("node_endpoints", ())))
    )


def _batch(name: str | None, topic_id: Any, partition: Mapping[str, Any]) -> PartitionProduceResponse:
    """Convert one batch's result, with positional arguments because it runs for every batch."""
    errors = partition.get("record_errors")
    leader = partition.get("current_leader")
    return PartitionProduceResponse(
        name,
        topic_id,
        partition["index"],
        partition["error_code"],
        partition["base_offset"],
        partition["log_append_time"],
        partition.get("log_start_offset", -1),
        tuple(map(_record_error, errors)) if errors else (),
        partition.get("error_message"),
        -1 if leader is None else leader["leader_id"],
        -1 if leader is None else leader["leader_epoch"],
    )


def _record_error(error: Mapping[str, Any]) -> RecordError:
    return RecordError(error["batch_index"], error["batch_index_error_message"])


_CONVERTERS: Final[Mapping[int, Callable[[Mapping[str, Any]], Message]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.METADATA: _metadata,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: _push_telemetry,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    **TRANSACTION_CONVERTERS,
}
