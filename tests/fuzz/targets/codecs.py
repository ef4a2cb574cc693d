"""Both readers of compressed records: the producer's own, and the embedded cluster's, which shares no code with it.

1. Any bytes give at most so many bytes as are allowed, or a ProtocolError (there: an InvalidBatchError).
2. What ours takes, the other takes as well, and they read the same; what was compressed is read back by both.

The input: the codec; how much is allowed; the compressed bytes. With the highest bit of the codec it is what is to
be compressed, and read back.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from aioproduce.compression import CODECS, codec_for, decompress
from aioproduce.errors import ProtocolError
from aioproduce.testing.fake_cluster import codecs
from aioproduce.testing.fake_cluster.failures import InvalidBatchError
from tests.fuzz.target import Source, Target

MOST = 1 << 20
NAMES = {number: name for name, number in CODECS.items()}


def ours(codec_id: int, data: bytes, allowed: int) -> bytes | None:
    try:
        found = decompress(codec_id, data, max_size=allowed)
    except ProtocolError:
        return None
    assert len(found) <= allowed
    return found


def theirs(codec_id: int, data: bytes) -> bytes | None:
    # Its own limit of 256 MiB would have each broken zstd frame ask for that much.
    with mock.patch.object(codecs, "MAX_DECOMPRESSED_BYTES", MOST):
        try:
            found = codecs.decompress(codec_id, data)
        except InvalidBatchError:
            return None
    assert codec_id == 0 or len(found) <= MOST
    return found


def run(data: bytes) -> None:
    source = Source(data)
    kind = source.byte()
    codec_id = (kind & 0x7F) % 6
    allowed = (0, 1, 100, 4096, 70_000)[source.below(5)]
    content = source.rest()
    if kind & 0x80 and 1 <= codec_id <= 4:
        content = content * (1 + allowed // max(1, len(content)))
        codec = codec_for(NAMES[codec_id])
        assert codec is not None
        compressed = codec.compress(content)
        assert ours(codec_id, compressed, len(content)) == content
        assert theirs(codec_id, compressed) == content
        assert not content or ours(codec_id, compressed, len(content) - 1) is None
        return
    found = ours(codec_id, content, allowed)
    other = theirs(codec_id, content)
    if found is not None:
        assert other == found


def seeds() -> Iterator[bytes]:
    for codec_id, name in NAMES.items():
        codec = codec_for(name)
        for content in (b"", b"record" * 8, bytes(3000)):
            if codec is not None:
                yield bytes([codec_id, 4]) + codec.compress(content)
        yield bytes([0x80 | codec_id, 3]) + b"records"
    yield b"\5\0any"


TARGETS = {"codecs": Target(run, seeds)}
