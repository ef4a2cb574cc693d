"""Invariant 6 of DESIGN.md: the decoder answers any bytes with a message or a ProtocolError, never anything else.

And it does so in memory and time that go with the bytes, whatever lengths they claim. Messages to maim are made
by kio; what is maimed is only ever shown to our reader (kio's aborts the process on some of it).
"""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc
from contextlib import suppress
from types import FrameType
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from aioproduce.errors import ProtocolError
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import Message
from aioproduce.wire.reader import Request, decode_request, decode_request_header
from aioproduce.wire.responses import correlation_id_of, decode_body
from tests import wire_oracle as oracle

FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
MESSAGES = get_args(Message)
ANSWERS = [
    (api, version)
    for api, (lowest, highest) in CLIENT_VERSIONS.items()
    for version in range(lowest, highest + 1)
]


def answer_of(api: int, version: int, data: bytes | memoryview) -> Any:
    """Decode; None for a ProtocolError, anything else that is raised fails the test."""
    with suppress(ProtocolError):
        answer = decode_body(api, version, memoryview(data))
        assert isinstance(answer, MESSAGES)
        return answer
    return None


@pytest.mark.parametrize(("api", "version"), ANSWERS)
@given(data=st.binary(max_size=200), body=st.binary(max_size=200))
@FEW
def test_arbitrary_bytes_as_an_answer(api: int, version: int, data: bytes, body: bytes) -> None:
    answer_of(api, version, data)
    answer_of(api, version, b"\0\0\0\7\0" + body)


@given(data=st.binary(max_size=200), api=st.sampled_from(list(ApiKey)), version=st.integers(0, 18))
@settings(FEW, max_examples=300)
def test_arbitrary_bytes_as_a_request(data: bytes, api: ApiKey, version: int) -> None:
    for frame in (data, struct.pack(">hhi", api, version, 7) + b"\xff\xff\0" + data):
        with suppress(ProtocolError):
            assert isinstance(decode_request(memoryview(frame)), Request)
        with suppress(ProtocolError):
            decode_request_header(memoryview(frame))


@given(st.lists(st.binary(max_size=50), max_size=10))
@settings(FEW, max_examples=200)
def test_arbitrary_bytes_as_a_stream(chunks: list[bytes]) -> None:
    reader = FrameReader(64)
    for chunk in chunks:
        with suppress(ProtocolError):
            for frame in reader.feed(chunk):
                assert len(frame) <= 64
                with suppress(ProtocolError):
                    correlation_id_of(frame)
        assert reader.buffered <= 68


@pytest.mark.parametrize(("api", "version"), ANSWERS)
@given(data=st.data())
@settings(FEW, max_examples=4)
def test_cut_off_at_every_byte(api: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(oracle.entities(oracle.response_class(api, version)))
    # Of a refusal to speak ApiVersions in that version the code is all that counts, however it goes on.
    assume(getattr(entity, "error_code", None) != ErrorCode.unsupported_version)
    frame = oracle.response_frame(entity)
    answer = answer_of(api, version, frame)
    if len(getattr(entity, "coordinators", (1,))) != 1:  # we ask for one
        assert answer is None
        return
    assert answer is not None
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_body(api, version, frame[:size])
    longer = memoryview(bytes(frame) + b"\0")
    if api == ApiKey.API_VERSIONS:
        with pytest.raises(ProtocolError, match="1 bytes are left"):
            decode_body(api, version, longer)
    else:
        assert decode_body(api, version, longer) == answer


@pytest.mark.parametrize("api", list(ApiKey))
@given(data=st.data())
@settings(FEW, max_examples=4)
def test_a_request_cut_off_at_every_byte(api: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(oracle.versions_of(api)))
    entity = data.draw(oracle.entities(oracle.request_class(api, version)))
    frame = memoryview(oracle.request_frame(entity)[4:])
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_request(frame[:size])
    with pytest.raises(ProtocolError):
        decode_request(memoryview(bytes(frame) + b"\0"))


@pytest.mark.parametrize(("api", "version"), ANSWERS)
@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(FEW, max_examples=8)
def test_any_bytes_overwritten(api: int, version: int, data: st.DataObject, seed: int) -> None:
    entity = data.draw(oracle.entities(oracle.response_class(api, version)))
    frame = bytes(oracle.response_frame(entity))
    source = random.Random(seed)
    for _ in range(40):
        maimed = bytearray(frame)
        for _ in range(source.randint(1, 3)):
            maimed[source.randrange(len(maimed))] = source.choice(
                (0, 1, 0x7F, 0x80, 0xFF, source.randrange(256))
            )
        answer_of(api, version, bytes(maimed))


COMPACT_LENGTHS = {
    "the longest that 32 bits hold": b"\xff\xff\xff\xff\x0f",
    "33 bits": b"\xff\xff\xff\xff\x1f",
    "six bytes": b"\xff\xff\xff\xff\xff\x01",
    "ten bytes": b"\xff" * 9 + b"\x01",
    "without an end": b"\xff" * 40,
    "2 GiB": b"\x80\x80\x80\x80\x08",
    "a million": b"\xc1\x84\x3d",
    "more than is left by one": b"\x09",
}
LEGACY_LENGTHS = {"2 GiB": 2**31 - 1, "a million": 10**6, "null": -1, "minus two": -2, "lowest": -(2**31)}

PARTITION_V13 = struct.pack(">ihqqq", 0, 0, 0, -1, 0)
TOPIC_V13 = b"\0\0\0\7\0\x02" + UUID(int=1).bytes
COMPACT_PLACES: dict[str, tuple[int, int, bytes]] = {
    "Produce responses": (0, 13, b"\0\0\0\7\0"),
    "Produce partitions": (0, 13, TOPIC_V13),
    "Produce record errors": (0, 13, TOPIC_V13 + b"\x02" + PARTITION_V13),
    "Produce error message": (0, 13, TOPIC_V13 + b"\x02" + PARTITION_V13 + b"\x01"),
    "Produce partition tags": (0, 13, TOPIC_V13 + b"\x02" + PARTITION_V13 + b"\x01\x00"),
    "Produce tag number": (0, 13, TOPIC_V13 + b"\x02" + PARTITION_V13 + b"\x01\x00\x01"),
    "Produce tag size": (0, 13, TOPIC_V13 + b"\x02" + PARTITION_V13 + b"\x01\x00\x01\x00"),
    "Produce node endpoints": (0, 13, b"\0\0\0\7\0\x01\0\0\0\0\x01\x00\x08"),
    "Metadata brokers": (3, 13, b"\0\0\0\7\0\0\0\0\0"),
    "Metadata host": (3, 13, b"\0\0\0\7\0\0\0\0\0\x02\0\0\0\1"),
    "Metadata cluster id": (3, 13, b"\0\0\0\7\0\0\0\0\0\x01"),
    "ApiVersions keys": (18, 4, b"\0\0\0\7\0\0"),
    "header tags": (0, 13, b"\0\0\0\7"),
}
LEGACY_PLACES: dict[str, tuple[int, int, bytes]] = {
    "Produce responses": (0, 3, b"\0\0\0\7"),
    "Produce partitions": (0, 8, b"\0\0\0\7\0\0\0\1\0\1t"),
    "Metadata brokers": (3, 5, b"\0\0\0\7\0\0\0\0"),
    "ApiVersions keys": (18, 0, b"\0\0\0\7\0\0"),
}


def refused_without_memory(api: int, version: int, frame: bytes) -> None:
    answer_of(api, version, frame)  # compiled before memory is measured
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode_body(api, version, memoryview(frame))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", COMPACT_LENGTHS)
@pytest.mark.parametrize("place", COMPACT_PLACES)
def test_hostile_compact_lengths(place: str, length: str) -> None:
    api, version, start = COMPACT_PLACES[place]
    refused_without_memory(api, version, start + COMPACT_LENGTHS[length] + b"\xff" * 7)


@pytest.mark.parametrize("length", LEGACY_LENGTHS)
@pytest.mark.parametrize("place", LEGACY_PLACES)
def test_hostile_legacy_lengths(place: str, length: str) -> None:
    api, version, start = LEGACY_PLACES[place]
    refused_without_memory(api, version, start + struct.pack(">i", LEGACY_LENGTHS[length]) + bytes(20))


@pytest.mark.parametrize("length", [-1, -2, -32768, 32767])
def test_hostile_string_lengths(length: int) -> None:
    # A Metadata v1 broker's host may not be null.
    refused_without_memory(3, 1, b"\0\0\0\7\0\0\0\1\0\0\0\0" + struct.pack(">h", length) + bytes(20))


def test_a_null_where_none_is_allowed() -> None:
    with pytest.raises(ProtocolError, match="null where the protocol does not allow"):
        decode_body(0, 13, memoryview(b"\0\0\0\7\0\x00\0\0\0\0\0"))


def test_text_that_is_not_utf8() -> None:
    frame = b"\0\0\0\7\0\0\0\1\0\0\0\0\0\2\xff\xfe" + struct.pack(">ih", 9092, -1)
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode_body(3, 1, memoryview(frame + bytes(8)))


def test_a_known_tag_may_not_reach_past_its_size_nor_fall_short() -> None:
    start = TOPIC_V13 + b"\x02" + PARTITION_V13 + b"\x01\x00\x01\x00"
    leader = struct.pack(">ii", 2, 11) + b"\x00"
    end = b"\x00\0\0\0\0\x00"
    assert answer_of(0, 13, start + b"\x09" + leader + end).partitions[0].leader_id == 2
    with pytest.raises(ProtocolError, match="the bytes end within"):
        decode_body(0, 13, memoryview(start + b"\x08" + leader + end))
    with pytest.raises(ProtocolError, match="has 10 bytes, but 9 were read"):
        decode_body(0, 13, memoryview(start + b"\x0a" + leader + b"\x00" + end))


def test_many_unknown_tags_and_many_elements_take_memory_in_proportion() -> None:
    count = 20_000
    tags = b"\xa0\x9c\x01" + b"\x63\x00" * count
    frame = b"\0\0\0\7\0\x01\0\0\0\0" + tags
    tracemalloc.start()
    try:
        assert answer_of(0, 13, frame) is not None
        assert tracemalloc.get_traced_memory()[1] < 200_000  # nothing is kept of them
        tracemalloc.reset_peak()
        partitions = struct.pack(">i", count) + struct.pack(">ihqq", 0, 0, 0, -1) * count
        assert answer_of(0, 3, b"\0\0\0\7\0\0\0\1\0\1t" + partitions + bytes(4)) is not None
        assert tracemalloc.get_traced_memory()[1] < 50 * len(partitions)
    finally:
        tracemalloc.stop()


def test_no_depth_of_nesting_comes_from_the_bytes() -> None:
    # The reader's depth is the schema's: with hardly any stack left beyond it, hostile bytes change nothing.
    limit = sys.getrecursionlimit()
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += 1
        frame = frame.f_back
    answer_of(0, 13, bytes(10))
    sys.setrecursionlimit(depth + 40)
    try:
        for fill in (b"\x02", b"\x01", b"\x00", b"\xff"):
            answer_of(0, 13, b"\0\0\0\7\0" + fill * 10_000)
    finally:
        sys.setrecursionlimit(limit)


def test_a_request_header_is_readable_whatever_follows() -> None:
    # What a broker needs to answer an ApiVersions request of a version to come.
    frame = struct.pack(">hhi", 18, 99, -7) + b"\x00\x02me" + b"\xff" * 9
    header = decode_request_header(memoryview(frame))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 99, -7, "me")
    with pytest.raises(ProtocolError, match="version 99"):
        decode_request(memoryview(frame))
