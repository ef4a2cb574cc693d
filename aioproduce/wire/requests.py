"""Encodes requests as frames: length, header and body, ready for the socket.

Used by `core.cluster.broker_connection` (ApiVersions) and by the sender (all others), with the version that
the connection negotiated.

1. All requests use kio's encoder, except for Produce (`wire.produce`).
2. A value that the protocol cannot carry raises ValueError before a byte is sent.
"""

from __future__ import annotations

import re
import struct
from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from aioproduce.wire import schema
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

_SOFTWARE_NAME: Final = "aioproduce"
_INT32_MAX: Final = 2**31 - 1
_STRING_MAX: Final = 2**15 - 1

_HEADER: Final = struct.Struct(">ihhi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"
_NULL_STRING: Final = b"\xff\xff"


def encode_api_versions(version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode a request for the broker's versions, with our name and version (KIP-511).

    Raises:
        ValueError: If the client id is longer than the protocol can carry.
    """
    return encode(
        ApiKey.API_VERSIONS,
        version,
        correlation_id,
        client_id,
        client_software_name=_SOFTWARE_NAME,
        client_software_version=_software_version(),
    )


def encode_metadata(
    version: int,
    correlation_id: int,
    client_id: str,
    topics: Sequence[str] | None,
    *,
    allow_auto_topic_creation: bool,
    include_topic_authorized_operations: bool = False,
) -> bytes:
    """Encode a request for the brokers and for topics.

    Args:
        version: The negotiated version, 1 to 13.
        correlation_id: The id that the answer will repeat.
        client_id: The client's name for itself.
        topics: The topics' names; empty for the brokers alone, `None` for every topic.
        allow_auto_topic_creation: Whether the broker may create missing topics; before v4 it always may.
        include_topic_authorized_operations: Whether to ask what this client may do with each topic (KIP-430);
            v8 and later.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    topic_class = schema.request_module(ApiKey.METADATA, version).MetadataRequestTopic
    return encode(
        ApiKey.METADATA,
        version,
        correlation_id,
        client_id,
        topics=None
        if topics is None
        else tuple(make(topic_class, name=checked_string(name), topic_id=None) for name in topics),
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=include_topic_authorized_operations,
    )


def encode_init_producer_id(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    transactional_id: str | None = None,
    transaction_timeout: float = 60.0,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """Encode a request for a producer id, or for a new epoch of the current one (KIP-360, v3 and later).

    Args:
        version: The negotiated version, 0 to 5.
        correlation_id: The id that the answer will repeat.
        client_id: The client's name for itself.
        transactional_id: `None` for a producer that is idempotent but not transactional.
        transaction_timeout: Seconds after which the broker aborts an idle transaction; ignored without a
            transactional id.
        producer_id: The current id, or -1.
        producer_epoch: The current epoch, or -1.

    Raises:
        ValueError: If a string or the timeout is more than the protocol can carry.
    """
    return encode(
        ApiKey.INIT_PRODUCER_ID,
        version,
        correlation_id,
        client_id,
        transactional_id=None if transactional_id is None else checked_string(transactional_id),
        transaction_timeout=timedelta(milliseconds=milliseconds(transaction_timeout)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode_sasl_handshake(version: int, correlation_id: int, client_id: str, mechanism: str) -> bytes:
    """Encode the question whether the broker accepts logins with this mechanism.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    return encode(
        ApiKey.SASL_HANDSHAKE, version, correlation_id, client_id, mechanism=checked_string(mechanism)
    )


def encode_sasl_authenticate(version: int, correlation_id: int, client_id: str, auth_bytes: bytes) -> bytes:
    """Encode one message of a login in its mechanism's format (KIP-152, KIP-368).

    Raises:
        ValueError: If the client id is longer than the protocol can carry.
    """
    return encode(ApiKey.SASL_AUTHENTICATE, version, correlation_id, client_id, auth_bytes=auth_bytes)


def encode_get_telemetry_subscriptions(
    version: int, correlation_id: int, client_id: str, client_instance_id: UUID | None
) -> bytes:
    """Encode a request for the metrics that the cluster wants from this client (KIP-714).

    Args:
        version: The negotiated version, 0.
        correlation_id: The id that the answer will repeat.
        client_id: The client's name for itself.
        client_instance_id: The id from an earlier answer; `None` in the first request.

    Raises:
        ValueError: If the client id is longer than the protocol can carry.
    """
    return encode(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        version,
        correlation_id,
        client_id,
        client_instance_id=client_instance_id,
    )


def encode_push_telemetry(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    client_instance_id: UUID,
    subscription_id: int,
    terminating: bool,
    compression_type: int,
    metrics: bytes,
) -> bytes:
    """Encode a push of metrics (KIP-714).

    Args:
        version: The negotiated version, 0.
        correlation_id: The id that the answer will repeat.
        client_id: The client's name for itself.
        client_instance_id: The id that the broker assigned.
        subscription_id: The id of the subscriptions that this push answers.
        terminating: Whether this is the last push.
        compression_type: The codec's id.
        metrics: OTLP's MetricsData, compressed.

    Raises:
        ValueError: If the client id is longer than the protocol can carry.
    """
    return encode(
        ApiKey.PUSH_TELEMETRY,
        version,
        correlation_id,
        client_id,
        client_instance_id=client_instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression_type,
        metrics=metrics,
    )


def nullable_string(text: str | None, is_flexible: bool) -> bytes:
    """Return a string or null with its length: a varint in flexible versions, an int16 in others."""
    if text is None:
        return _NO_TAGS if is_flexible else _NULL_STRING
    raw = checked_string(text).encode()
    return (uvarint(len(raw) + 1) if is_flexible else _INT16.pack(len(raw))) + raw


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    raw = bytearray()
    while value >= 0x80:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


def frame_header(api: ApiKey, version: int, correlation_id: int, client_id: str, is_flexible: bool) -> bytes:
    """Return a length of 0, to be filled in later, and the header; its client id is an old-style string."""
    return (
        _HEADER.pack(0, api, version, correlation_id)
        + nullable_string(client_id, False)
        + (_NO_TAGS if is_flexible else b"")
    )


def encode(api: ApiKey, version: int, correlation_id: int, client_id: str, **values: object) -> bytes:
    """Encode a whole frame through kio, from those of the given fields that this version has."""
    cls, write = _writer(api, version)
    buffer = BytesIO()
    buffer.write(frame_header(api, version, correlation_id, client_id, cls.__flexible__))
    write(buffer, make(cls, **values))
    buffer.seek(0)
    buffer.write(_INT32.pack(buffer.getbuffer().nbytes - _INT32.size))
    return buffer.getvalue()


@cache
def _writer(api: ApiKey, version: int) -> tuple[type[Any], Callable[[BytesIO, Any], None]]:
    from kio.serial import entity_writer

    cls = schema.request_class(api, version)
    return cls, entity_writer(cls)


def make(cls: type[Any], **values: object) -> Any:
    """Create one of kio's objects from those of the given fields that its class has."""
    return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


def checked_string(text: str) -> str:
    """Return the text if it is short enough for the protocol; raise ValueError otherwise."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > _STRING_MAX:
        raise ValueError(f"a string of {size} bytes is longer than the protocol can carry ({_STRING_MAX})")
    return text


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds that fit an int32, or raise ValueError."""
    whole = round(seconds * 1000)
    if not 0 <= whole <= _INT32_MAX:
        raise ValueError(f"{seconds} seconds are not 0 to {_INT32_MAX} milliseconds")
    return whole


@cache
def _software_version() -> str:
    """Return our version in the characters that brokers accept, without the `+` of a local version."""
    from importlib import metadata  # slower to import than this whole module, and needed once

    try:
        installed = metadata.version("aioproduce")
    except metadata.PackageNotFoundError:
        return "unknown"
    return re.sub(r"[^a-zA-Z0-9.-]+", "-", installed).strip("-.")
