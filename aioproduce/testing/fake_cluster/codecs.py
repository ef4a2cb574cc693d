"""Decompression of record batches, on the broker's side.

Used by `record_batch` when records are inspected. On purpose it shares no code with `aioproduce.compression`: as
with a real broker, another reader checks what the producer compressed.

Invariants:
1. Any bytes give the decompressed records, or an `InvalidBatchError`.
2. The output never exceeds `MAX_DECOMPRESSED_BYTES`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import cramjam
import lz4.frame
from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.failures import InvalidBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

# A batch has at most message.max.bytes (1 MiB by default) on the wire; no honest one expands beyond this.
MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


def decompress(codec_id: int, compressed: bytes) -> bytes:
    """Decompress the records of one batch.

    Args:
        codec_id: The lowest three bits of the batch's attributes.
        compressed: All bytes after the batch header.

    Returns:
        The records as in an uncompressed batch.

    Raises:
        InvalidBatchError: If the codec is unknown, or if the bytes are not in its format.
    """
    decoder = _DECODERS.get(codec_id)
    if decoder is None:
        raise InvalidBatchError(
            ErrorCode.unsupported_compression_type, f"Unknown compression type id: {codec_id}"
        )
    try:
        return decoder(compressed)
    except (ValueError, RuntimeError, EOFError, MemoryError, zlib.error, cramjam.DecompressionError) as error:
        raise InvalidBatchError(ErrorCode.invalid_record, f"Cannot decompress the batch: {error}") from error


def _none(compressed: bytes) -> bytes:
    return compressed


def _gzip(compressed: bytes) -> bytes:
    # The standard library's reader, with limited output (16 + 15: a gzip header and the largest window).
    reader = zlib.decompressobj(wbits=31)
    records = reader.decompress(compressed, MAX_DECOMPRESSED_BYTES)
    if not reader.eof:
        raise ValueError("the gzip stream is truncated, or larger than the limit")
    return records


def _snappy(compressed: bytes) -> bytes:
    if not compressed.startswith(_XERIAL_MAGIC):
        return _snappy_block(compressed)
    chunks: list[bytes] = []
    total = 0
    position = _XERIAL_HEADER_BYTES
    while position < len(compressed):
        size = int.from_bytes(compressed[position : position + 4], "big")
        position += 4
        if size > len(compressed) - position:
            raise ValueError("a xerial block is longer than the batch")
        chunk = _snappy_block(compressed[position : position + size])
        total += len(chunk)
        if total > MAX_DECOMPRESSED_BYTES:
            raise ValueError("larger than the limit")
        chunks.append(chunk)
        position += size
    return b"".join(chunks)


def _snappy_block(block: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > MAX_DECOMPRESSED_BYTES:
        raise ValueError("larger than the limit")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(compressed: bytes) -> bytes:
    reader = lz4.frame.LZ4FrameDecompressor()
    records = bytes(reader.decompress(compressed, max_length=MAX_DECOMPRESSED_BYTES))
    if not reader.eof:
        raise ValueError("the lz4 frame is truncated, or larger than the limit")
    return records


def _zstd(compressed: bytes) -> bytes:
    # cramjam limits its output only by a given buffer, so a likely size is tried first.
    for size in (64 * 1024 + 16 * len(compressed), MAX_DECOMPRESSED_BYTES):
        output = bytearray(size)
        try:
            written = cramjam.zstd.decompress_into(compressed, output)
        except cramjam.DecompressionError:
            if size == MAX_DECOMPRESSED_BYTES:
                raise
        else:
            return bytes(memoryview(output)[:written])
    raise AssertionError("the last size returns or raises")


_DECODERS: Final[dict[int, Callable[[bytes], bytes]]] = {0: _none, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
