"""The decoder of requests, which the embedded broker reads clients with.

1. Any bytes give a Request or a ProtocolError (an UnsupportedVersionError is one). The header alone does so, too.
2. Where the request is read, so is its header, and they agree.
3. Memory, at its peak, is in proportion to the bytes.
4. One byte more behind a request is an error.

The input: the API and the version (or whatever else they are), then what follows the header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aioproduce.errors import ProtocolError
from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS
from aioproduce.wire.api import ApiKey
from aioproduce.wire.reader import Request, decode_request, decode_request_header
from tests.fuzz import peer
from tests.fuzz.target import MemoryBound, Target

APIS = tuple(ApiKey)
FACTOR = 140


def decode(frame: bytes) -> Request | None:
    try:
        return decode_request(memoryview(frame))
    except ProtocolError:
        return None


def frame_of(data: bytes) -> bytes:
    """A frame whose first byte stands for an API of ours, unless it is the highest."""
    if len(data) < 2 or data[0] == 0xFF:
        return data[1:]
    return struct.pack(">hhi", APIS[data[0] % len(APIS)], data[1] - 1, 7) + data[2:]


def run(data: bytes) -> None:
    frame = frame_of(data)
    request = decode(frame)  # the first of a version loads kio's classes and compiles a reader
    with MemoryBound(len(frame), factor=FACTOR):
        assert decode(frame) == request
    try:
        header = decode_request_header(memoryview(frame))
    except ProtocolError:
        assert request is None
        return
    if request is not None:
        assert (header.api_key, header.api_version) == (request.api_key, request.api_version)
        assert (header.correlation_id, header.client_id) == (request.correlation_id, request.client_id)
        assert decode(frame + b"\0") is None


def seeds() -> Iterator[bytes]:
    for api, (lowest, highest) in BROKER_VERSIONS.items():
        for version in {lowest, (lowest + highest) // 2, highest}:
            tags = b"\0" if peer.has_request_tags(api, version) else b""
            for body in peer.request_bodies(api, version):
                yield bytes([APIS.index(ApiKey(api)), version + 1]) + b"\0\2me" + tags + body
    yield b"\xff" + struct.pack(">hhih", 0, 3, 1, -1)


TARGETS = {"requests": Target(run, seeds)}
