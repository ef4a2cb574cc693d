"""What a broker writes and reads, for the tests of the connections: frames by kio, headers by hand.

Nothing of `aioproduce.wire` is used here: kio's encoder and the protocol's own layout are the independent
source of the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from typing import Any, NamedTuple

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22

MODERN: Mapping[int, tuple[int, int]] = {
    PRODUCE: (3, 11),
    METADATA: (0, 12),
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 4),
    4242: (0, 1),
}
"""A broker of today, with one API that nobody knows."""


class RequestHeader(NamedTuple):
    """The fields with which every request begins, whatever its version."""

    api: int
    version: int
    correlation_id: int
    client_id: str


def request_header(buffers: Sequence[bytes | bytearray | memoryview]) -> RequestHeader:
    """Reads the header of a request that was sent; the frame's length must be that of its bytes."""
    frame = b"".join(buffers)
    size, api, version, correlation_id, name_size = struct.unpack_from(">ihhih", frame)
    assert size == len(frame) - 4
    return RequestHeader(api, version, correlation_id, frame[14 : 14 + name_size].decode())


def framed(payload: bytes) -> bytes:
    """A frame: the length, then the payload."""
    return struct.pack(">i", len(payload)) + payload


def response(api: int, version: int, correlation_id: int, **fields: Any) -> bytes:
    """A whole answer; fields that the version lacks are left out."""
    cls = load_response_schema(api, version)
    buffer = BytesIO()
    buffer.write(struct.pack(">i", correlation_id))
    if cls.__header_schema__.__flexible__:
        buffer.write(b"\0")  # no tagged fields
    known = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
    entity_writer(cls)(buffer, cls(**known))
    return framed(buffer.getvalue())


def api_versions_response(
    correlation_id: int,
    *,
    version: int = 4,
    offered: Mapping[int, tuple[int, int]] = MODERN,
    error_code: int = 0,
    throttle: float = 0.0,
) -> bytes:
    """The answer to ApiVersions. A refusal (35) must be encoded with version 0, as brokers do."""
    module = __import__(f"kio.schema.api_versions.v{version}.response", fromlist=["ApiVersion"])
    return response(
        API_VERSIONS,
        version,
        correlation_id,
        error_code=ErrorCode(error_code),
        api_keys=tuple(
            module.ApiVersion(api_key=api, min_version=lowest, max_version=highest)
            for api, (lowest, highest) in offered.items()
        ),
        throttle_time=timedelta(seconds=throttle),
        supported_features=(),
        finalized_features=(),
    )


def init_producer_id_response(
    correlation_id: int, *, version: int = 4, producer_id: int = 1, throttle: float = 0.0
) -> bytes:
    """The answer to InitProducerId: the smallest one, used wherever the content does not matter."""
    return response(
        INIT_PRODUCER_ID,
        version,
        correlation_id,
        throttle_time=timedelta(seconds=throttle),
        error_code=ErrorCode.none,
        producer_id=producer_id,
        producer_epoch=0,
    )


def produce_response(correlation_id: int, *, version: int, throttle: float = 0.0) -> bytes:
    """The answer to a Produce request, without partitions."""
    return response(PRODUCE, version, correlation_id, responses=(), throttle_time=timedelta(seconds=throttle))


def sasl_handshake_response(
    correlation_id: int, *, version: int = 1, error_code: int = 0, mechanisms: Sequence[str] = ("PLAIN",)
) -> bytes:
    """The answer to SaslHandshake."""
    return response(
        17, version, correlation_id, error_code=ErrorCode(error_code), mechanisms=tuple(mechanisms)
    )


def sasl_authenticate_response(
    correlation_id: int,
    auth_bytes: bytes = b"",
    *,
    version: int = 2,
    error_code: int = 0,
    error_message: str | None = None,
    lifetime: float = 0.0,
) -> bytes:
    """The answer to SaslAuthenticate; `lifetime` in seconds, also negative."""
    return response(
        36,
        version,
        correlation_id,
        error_code=ErrorCode(error_code),
        error_message=error_message,
        auth_bytes=auth_bytes,
        session_lifetime=timedelta(seconds=lifetime),
    )
