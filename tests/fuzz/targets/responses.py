"""The decoders of answers, one target for each API, whose first byte chooses the version.

1. Any bytes give one of `wire.messages`, or a ProtocolError.
2. Memory, at its peak, is in proportion to the bytes.
3. The same bytes give an equal message again; bytes behind a message change nothing (but in an ApiVersions answer,
   whose end tells its version).
4. Durations are never negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

from aioproduce.errors import ProtocolError
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey
from aioproduce.wire.messages import Message
from aioproduce.wire.responses import decode_body
from tests.fuzz import peer
from tests.fuzz.target import MemoryBound, Target

MESSAGES = get_args(Message)
FACTOR = 140
"""An ApiVersions key of 7 bytes becomes a dict on the way (232 bytes), and a number with a tuple of two in another
dict; a refused record of Produce, 6 bytes, a dict of two and a RecordError."""


def decode(api: ApiKey, version: int, frame: bytes) -> Any:
    """The message; None for a ProtocolError."""
    try:
        return decode_body(api, version, memoryview(frame))
    except ProtocolError:
        return None


def run(api: ApiKey, data: bytes) -> None:
    lowest, highest = CLIENT_VERSIONS[api]
    version = lowest + (data[0] if data else 0) % (highest - lowest + 1)
    frame = data[1:]
    message = decode(api, version, frame)  # the first of a version loads kio's classes and compiles a reader
    with MemoryBound(len(frame), factor=FACTOR):
        assert decode(api, version, frame) == message
    if message is None:
        return
    assert isinstance(message, MESSAGES)
    assert message.throttle >= 0
    if api is not ApiKey.API_VERSIONS:
        assert decode(api, version, frame + b"\x07") == message


def seeds(api: ApiKey) -> Iterator[bytes]:
    lowest, highest = CLIENT_VERSIONS[api]
    for version in range(lowest, highest + 1):
        header = b"\0\0\0\7" + (b"\0" if peer.has_response_tags(api, version) else b"")
        for body in peer.response_bodies(api, version):
            yield bytes([version - lowest]) + header + body


TARGETS = {
    f"{api.name.lower()}_response": Target(partial(run, api), partial(seeds, api)) for api in CLIENT_VERSIONS
}
