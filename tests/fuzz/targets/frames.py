"""`FrameReader`: any bytes, in any slices, give the frames that lie in them, or the error.

1. The frames are those that a reader finds which has the whole stream before it: the slices make no difference.
2. A length that is negative or above the limit is an error as soon as its four bytes are there: the frames before
   it are handed out, and from then on each call raises that same error.
3. What is held is never more than one frame and its length.

The input: the limit, how many slices, the size of each (then from the first again), the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import cycle

from aioproduce.errors import ProtocolError
from aioproduce.wire.framing import FrameReader
from tests.fuzz.target import Source, Target


def whole(stream: bytes, limit: int) -> tuple[list[bytes], bool, int]:
    """What lies in a stream: its frames, whether an error ends it, and how much of a frame is left over."""
    frames: list[bytes] = []
    while len(stream) >= 4:
        (length,) = struct.unpack(">i", stream[:4])
        if length < 0 or length > limit:
            return frames, True, 0
        if len(stream) < 4 + length:
            break
        frames.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return frames, False, len(stream)


def run(data: bytes) -> None:
    source = Source(data)
    limit = source.below(80)
    sizes = [1 + source.byte() for _ in range(1 + source.below(6))]
    stream = source.rest()
    reader = FrameReader(limit)
    found: list[bytes] = []
    raised: list[ProtocolError] = []
    at = 0
    for size in cycle(sizes):
        if at >= len(stream):
            break
        had_error = reader.error
        frames = None
        try:
            frames = reader.feed(stream[at : at + size])
        except ProtocolError as error:
            raised.append(error)
        if frames is None:
            assert reader.error is raised[-1]
            assert had_error in (None, raised[-1])
        else:
            assert had_error is None
            found += map(bytes, frames)
        at += size
        assert reader.buffered <= 4 + limit
    expected, is_broken, left = whole(stream, limit)
    assert found == expected
    assert (reader.error is not None) == is_broken
    assert reader.buffered == left
    assert len(set(map(id, raised))) <= 1


def seeds() -> Iterator[bytes]:
    frames = b"".join(struct.pack(">i", size) + b"f" * size for size in (3, 0, 70, 1))
    for sizes in (b"\x00\xfe", b"\x00\x00", b"\x02\x00\x03\x45", b"\x01\x06\x4a"):
        yield b"\x4f" + sizes + frames
        yield b"\x4f" + sizes + frames + b"\xff\xff\xff\xff" + frames
    for start in (b"HTTP/1.1", b"\x15\x03\x01\0\2", b"\0\0\0\x50"):
        yield b"\x4f\x00\x02" + frames + start


TARGETS = {"frames": Target(run, seeds)}
