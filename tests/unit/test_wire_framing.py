"""FrameReader: any pieces give the same frames, no needless copies, hostile lengths end the stream."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from aioproduce.errors import ProtocolError
from aioproduce.wire.framing import FrameReader


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


PAYLOADS = [b"one", b"", b"three" * 100, b"\0\0\0\0", b"x"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 64, 503, 10_000])
def test_any_slicing_gives_the_same_frames(size: int) -> None:
    stream = framed(*PAYLOADS)
    reader = FrameReader(1000)
    frames = [
        bytes(frame) for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])
    ]
    assert frames == PAYLOADS
    assert reader.buffered == 0


def test_every_split_in_two_gives_the_same_frames() -> None:
    stream = framed(*PAYLOADS)
    for at in range(len(stream) + 1):
        reader = FrameReader(1000)
        assert [bytes(f) for f in reader.feed(stream[:at]) + reader.feed(stream[at:])] == PAYLOADS


def test_a_whole_frame_is_a_view_of_its_chunk() -> None:
    chunk = framed(b"first", b"second")
    frames = FrameReader(100).feed(chunk)
    assert [frame.obj is chunk for frame in frames] == [True, True]


def test_a_frame_that_spans_chunks_outlives_the_next() -> None:
    reader = FrameReader(100)
    stream = framed(b"first", b"second")
    assert reader.feed(stream[:6]) == []
    (first,) = reader.feed(stream[6:11])
    (second,) = reader.feed(stream[11:])
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_the_longest_frame_is_taken_and_one_byte_more_is_not() -> None:
    assert [len(frame) for frame in FrameReader(8).feed(framed(b"8" * 8))] == [8]
    with pytest.raises(ProtocolError, match="9 bytes, but the limit is 8"):
        FrameReader(8).feed(struct.pack(">i", 9))


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1001])
@pytest.mark.parametrize("size", [1, 4])
def test_hostile_length(length: int, size: int) -> None:
    reader = FrameReader(1000)
    header = struct.pack(">i", length)
    for at in range(0, 4 - size, size):
        assert reader.feed(header[at : at + size]) == []
    with pytest.raises(ProtocolError, match=str(length)):
        reader.feed(header[4 - size :])
    with pytest.raises(ProtocolError, match=str(length)):
        reader.feed(framed(b"fine"))
    assert reader.buffered == 0


def test_frames_before_a_hostile_length_are_handed_out() -> None:
    reader = FrameReader(1000)
    assert [bytes(f) for f in reader.feed(framed(b"fine", b"too") + b"\xff\xff\xff\xff")] == [b"fine", b"too"]
    assert reader.error is not None
    with pytest.raises(ProtocolError, match="-1 bytes"):
        reader.feed(b"")


def test_a_hostile_length_after_a_frame_that_spans_chunks() -> None:
    reader = FrameReader(1000)
    assert reader.feed(framed(b"fine")[:5]) == []
    assert [bytes(f) for f in reader.feed(b"ine\xff\xff\xff\xff")] == [b"fine"]
    with pytest.raises(ProtocolError):
        reader.feed(b"")


def test_a_long_length_alone_allocates_nothing() -> None:
    reader = FrameReader(2**31 - 1)
    tracemalloc.start()
    try:
        assert reader.feed(struct.pack(">i", 2**31 - 1) + b"x") == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_bytes_that_came_not_with_their_square() -> None:
    # 200,000 slices of one byte: were each copied together with what came before it, 20 GB would be moved.
    payload = bytes(200_000)
    reader = FrameReader(len(payload))
    reader.feed(struct.pack(">i", len(payload)))
    frames: list[memoryview] = []
    addresses = set()
    for _ in payload:
        frames += reader.feed(b"\0")
        addresses.add(id(reader._partial))
    assert [bytes(frame) for frame in frames] == [payload]
    # One buffer grew in place (and a fresh one follows it).
    assert len(addresses) == 2


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH", "bootstrap.servers"),
    ],
)
def test_the_error_guesses_what_answers_there(answer: bytes, hint: str) -> None:
    with pytest.raises(ProtocolError, match=hint):
        FrameReader(100_000_000).feed(answer)
