"""The codecs: Java's output is read, and ours is what other readers take; levels are Kafka's.

What Kafka's own tools say of our output is tests/integration/test_record_format_dump.py.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
from typing import Any

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.compression import CODECS, Codec, codec_for, decompress
from aioproduce.errors import ConfigError, ProtocolError
from tests.vectors import java_batch

OVERHEAD = 61
COMPRESSING = ["gzip", "snappy", "lz4", "zstd"]


def some_records(size: int) -> bytes:
    """Text as logs have it: compressible, but not one run of a byte."""
    source = random.Random(7)
    lines = []
    length = 0
    while length < size:
        line = json.dumps({"id": source.randrange(10**9), "user": f"user-{source.randrange(1000)}"}).encode()
        lines.append(line)
        length += len(line)
    return b"".join(lines)[:size]


def codec(name: str, **levels: int) -> Codec:
    found = codec_for(name, **levels)
    assert found is not None
    return found


def read_by_others(name: str, data: bytes) -> bytes:
    """What readers that are not ours make of it."""
    readers: dict[str, Any] = {
        "gzip": gzip.decompress,
        "snappy": aiokafka_codec.snappy_decode,
        "lz4": aiokafka_codec.lz4_decode,
        "zstd": aiokafka_codec.zstd_decode,
    }
    return bytes(readers[name](data))


def test_ids_are_those_of_the_protocol() -> None:
    # KIP-98 (compression type, bits 0 to 2 of the attributes), zstd from KIP-110.
    assert CODECS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    for name in COMPRESSING:
        assert (codec(name).id, codec(name).name) == (CODECS[name], name)
    assert codec_for("none") is None


@pytest.mark.parametrize("name", COMPRESSING)
def test_what_java_compressed_is_read(name: str) -> None:
    assert decompress(CODECS[name], java_batch(name)[OVERHEAD:]) == java_batch("plain")[OVERHEAD:]


@pytest.mark.parametrize("name", COMPRESSING)
@pytest.mark.parametrize("size", [1, 1000, 32 * 1024, 32 * 1024 + 1, 64 * 1024 + 1, 1_000_000])
def test_what_we_compress_is_read_by_others_and_back(name: str, size: int) -> None:
    data = some_records(size)
    compressed = codec(name).compress(memoryview(bytearray(data)))
    assert type(compressed) is bytes
    assert compressed == codec(name).compress(data)
    assert read_by_others(name, compressed) == data
    assert decompress(CODECS[name], compressed) == data
    if size > 1000:
        assert len(compressed) < size * 0.7


def test_snappy_is_framed_as_snappy_java_does_it() -> None:
    data = some_records(70_000)
    compressed = codec("snappy").compress(data)
    # The same first bytes as Java's: magic, version 1, compatible with 1.
    assert compressed[:16] == java_batch("snappy")[OVERHEAD : OVERHEAD + 16]
    position, blocks = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert [len(block) for block in blocks] == [32 * 1024, 32 * 1024, 70_000 - 64 * 1024]
    assert b"".join(blocks) == data


def test_bare_snappy_of_other_clients_is_read() -> None:
    data = some_records(5000)
    assert decompress(CODECS["snappy"], bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize("level", range(1, 18))
def test_lz4_frames_have_what_kafkas_reader_demands(level: int) -> None:
    data = some_records(200_000)
    compressed = codec("lz4", lz4_level=level).compress(data)
    # Magic, flags and block descriptor byte for byte as Java's producer writes them.
    assert compressed[:7] == java_batch("lz4")[OVERHEAD : OVERHEAD + 7]
    info = lz4.frame.get_frame_info(compressed)
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024
    assert (info["content_size"], info["content_checksum"], info["block_checksum"]) == (0, False, False)
    assert read_by_others("lz4", compressed) == data


def test_lz4_levels_are_kafkas() -> None:
    data = some_records(200_000)
    size = {level: len(codec("lz4", lz4_level=level).compress(data)) for level in range(1, 18)}
    # 9 is the fast compressor in Java's producer; all others are the high one, better the higher, up to 12.
    assert size[9] > size[1] == size[2] == size[3] > size[6] > size[12]
    assert {size[level] for level in range(12, 18)} == {size[12]}
    assert codec("lz4").compress(data) == codec("lz4", lz4_level=9).compress(data)


def test_gzip_levels_are_kafkas() -> None:
    data = some_records(200_000)
    size = {level: len(codec("gzip", gzip_level=level).compress(data)) for level in (-1, *range(1, 10))}
    assert size[-1] == size[6]
    assert size[1] > size[6] >= size[9]
    assert codec("gzip").compress(data) == codec("gzip", gzip_level=-1).compress(data)


def test_zstd_levels_are_kafkas() -> None:
    data = some_records(200_000)
    levels = (-131072, -100, -1, 0, 1, 3, 12, 22)
    size = {level: len(codec("zstd", zstd_level=level).compress(data)) for level in levels}
    assert size[-131072] > size[-100] > size[-1] > size[1] > size[22]
    assert size[0] == size[3]
    assert codec("zstd").compress(data) == codec("zstd", zstd_level=3).compress(data)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("gzip", -2),
        ("gzip", 0),
        ("gzip", 10),
        ("lz4", 0),
        ("lz4", 18),
        ("zstd", -131073),
        ("zstd", 23),
    ],
)
def test_levels_that_kafka_does_not_have_are_refused(name: str, level: int) -> None:
    with pytest.raises(ConfigError, match=str(level)) as caught:
        codec_for(name, **{f"{name}_level": level})
    assert caught.value.key == f"compression.{name}.level"


def test_a_level_counts_for_its_own_codec_only() -> None:
    assert codec_for("snappy", gzip_level=99, lz4_level=99, zstd_level=99) == codec_for("snappy")


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"none, gzip, snappy, lz4, zstd.*'brotli'") as caught:
        codec_for("brotli")
    assert caught.value.key == "compression.type"
    with pytest.raises(ProtocolError, match="codec 5"):
        decompress(5, b"")


@pytest.mark.parametrize("name", ["none", *COMPRESSING])
def test_decompression_is_bounded(name: str) -> None:
    data = bytes(3_000_000)
    found = codec_for(name)
    compressed = found.compress(data) if found else data
    assert decompress(CODECS[name], compressed, max_size=len(data)) == data
    with pytest.raises(ProtocolError, match="more than 2999999 bytes"):
        decompress(CODECS[name], compressed, max_size=len(data) - 1)


@pytest.mark.parametrize("name", COMPRESSING)
def test_data_that_ends_early_or_late_is_a_protocol_error(name: str) -> None:
    compressed = codec(name).compress(some_records(100_000))
    for cut in (0, 1, 3, 10, 18, len(compressed) // 2, len(compressed) - 1):
        with pytest.raises(ProtocolError):
            decompress(CODECS[name], compressed[:cut])
    with pytest.raises(ProtocolError):
        decompress(CODECS[name], compressed + b"\x01\x02\x03")


def test_a_hostile_snappy_length_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ProtocolError, match="more than"):
        decompress(CODECS["snappy"], b"\xff\xff\xff\xff\x0fabc")
    header = java_batch("snappy")[OVERHEAD : OVERHEAD + 16]
    for size in (-1, 2**31 - 1):
        with pytest.raises(ProtocolError, match="block of"):
            decompress(CODECS["snappy"], header + struct.pack(">i", size) + b"abc")


def test_snappy_blocks_are_bounded_together() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(600_000)))
    header = java_batch("snappy")[OVERHEAD : OVERHEAD + 16]
    framed = struct.pack(">i", len(block)) + block
    # The broken block at the end is never reached: the second is refused before it is decompressed.
    hostile = header + framed + framed + struct.pack(">i", 4) + b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="more than 1000000 bytes"):
        decompress(CODECS["snappy"], hostile, max_size=1_000_000)


@settings(max_examples=300)
@given(
    codec_id=st.sampled_from([1, 2, 3, 4]),
    noise=st.binary(max_size=200),
    position=st.integers(0, 400),
    prefix=st.integers(0, 400),
)
def test_any_bytes_give_bounded_bytes_or_a_protocol_error(
    codec_id: int, noise: bytes, position: int, prefix: int
) -> None:
    name = next(name for name, found in CODECS.items() if found == codec_id)
    sound = codec(name).compress(some_records(2000))
    for hostile in (noise, sound[:prefix] + noise, sound[:position] + noise + sound[position + len(noise) :]):
        try:
            decompressed = decompress(codec_id, hostile, max_size=5000)
        except ProtocolError:
            continue
        assert len(decompressed) <= 5000


@pytest.mark.parametrize(
    ("name", "key", "levels"),
    [
        ("gzip", "gzip_level", [-1, 1, 9]),
        ("snappy", "gzip_level", [-1]),
        ("lz4", "lz4_level", [1, 3, 9, 10, 12, 17]),
        ("zstd", "zstd_level", [-131072, -1, 0, 1, 22]),
    ],
)
def test_every_level_has_a_cost_that_grows_with_size(name: str, key: str, levels: list[int]) -> None:
    for level in levels:
        found = codec(name, **{key: level})
        assert 0 < found.cost(0) < found.cost(1000) < found.cost(10**6)


def test_what_takes_longer_costs_more() -> None:
    """As measured; the order is the libraries' own promise, too."""
    for name, key, ascending in (
        ("gzip", "gzip_level", [1, -1, 9]),
        ("lz4", "lz4_level", [9, 3, 8, 10]),
        ("zstd", "zstd_level", [-5, 1, 3, 9, 19]),
    ):
        costs = [codec(name, **{key: level}).cost(65536) for level in ascending]
        assert costs == sorted(set(costs))
    assert codec("gzip").cost(65536) == codec("gzip", gzip_level=6).cost(65536)
    assert codec("zstd", zstd_level=0).cost(65536) == codec("zstd", zstd_level=3).cost(65536)
