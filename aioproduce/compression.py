"""The codecs of record batches, at Kafka's levels, with output that Kafka's own readers accept.

The producer calls `codec_for()` once, at its start, and `compress()` once per batch, in any thread: a codec has no
state. `core.batching.batch_compression` chooses the thread by `cost()`.
`decompress()` is for the embedded cluster and tests: a producer never decompresses.

Invariants:

1. Kafka's Java code can read every output (tested with Kafka's own DumpLogSegments). snappy has the framing of
   `snappy-java`. lz4 has frames of independent 64 KiB blocks without content size: Kafka's reader refuses linked
   blocks, which rules out cramjam's lz4. gzip and zstd are plain single frames.
2. Levels are Kafka's. The lz4 library counts differently: `_Lz4`'s docstring has the table.
3. `decompress()` returns at most `max_size` bytes for any input, or raises a ProtocolError.
4. `compress()` holds the interpreter lock for its first and last microseconds only. Measured with a second thread
   that yields in a loop, while each codec compressed 16 KiB to 4 MiB (up to 200 ms a call): at every size the
   median gap was the 56 us of a yield on an idle machine, and p99 was below 0.14 ms.
5. `codec_for()` loads the library of its codec, and `decompress()` loads its own. That takes some milliseconds, so
   neither the import of this module nor the first batch does it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from aioproduce.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig

BytesLike: TypeAlias = bytes | bytearray | memoryview

CODECS: Final[dict[str, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Name in `compression.type` -> id in the low three bits of a batch's attributes."""

GZIP_LEVELS: Final = range(1, 10)
"""-1 is valid, too: the library's default, 6."""
LZ4_LEVELS: Final = range(1, 18)
ZSTD_LEVELS: Final = range(-131072, 23)

DEFAULT_GZIP_LEVEL: Final = -1
DEFAULT_LZ4_LEVEL: Final = 9
DEFAULT_ZSTD_LEVEL: Final = 3

# The level that zlib uses for -1. cramjam does not accept negative levels.
_ZLIB_DEFAULT_LEVEL = 6

# LZ4HC_CLEVEL_MIN in lz4.frame, and LZ4HC_CLEVEL_MAX.
_LZ4_LOWEST_HIGH = 3
_LZ4_HIGHEST = 12

# snappy-java's stream: magic, version, lowest compatible version, then length and bytes of each block.
_SNAPPY_JAVA_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = _SNAPPY_JAVA_MAGIC + struct.pack(">ii", 1, 1)
# The default block size of snappy-java's SnappyOutputStream, which Java's producer uses.
_SNAPPY_BLOCK_SIZE = 32 * 1024
_INT32 = struct.Struct(">i")

# `cost()`: seconds per call, and per byte at a level. The libraries set up their state again for each call.
_NANO = 1e-9
_SNAPPY_CALL, _SNAPPY_BYTE = 2e-6, 1.6 * _NANO
_LZ4_CALL, _LZ4_HIGH_CALL, _LZ4_FAST_BYTE = 2e-6, 8e-6, 1.8 * _NANO
_LZ4_HIGH_BYTE: Final = (11.1, 12.7, 13.6, 15.6, 18.4, 22.5, 29.0, 50.9, 82.6, 82.6)
"""Nanoseconds at levels 3 to 12 of `lz4.frame`."""
_GZIP_CALL = 12e-6
_GZIP_BYTE: Final = (6.7, 11.7, 15.2, 19.6, 21.7, 32.0, 41.6, 57.1, 72.1)
"""Nanoseconds at levels 1 to 9."""
_ZSTD_CALL, _ZSTD_FAST_BYTE = 9e-6, 1.9 * _NANO
_ZSTD_BYTE: Final = (
    *(2.2, 2.5, 3.4, 4.4, 8.7, 11.3, 13.7, 15.6, 18.4, 22.4, 32.2),
    *(36.1, 67.4, 115.0, 117.0, 152.0, 163.0, 167.0, 360.0, 360.0, 360.0, 360.0),
)
"""Nanoseconds at levels 1 to 22."""

# The first guess of decompressed size / compressed size.
_ZSTD_FIRST_GUESS = 4


class Codec(Protocol):
    """Compresses the records of a batch."""

    @property
    def id(self) -> int:
        """The codec's id in a batch's attributes."""

    @property
    def name(self) -> str:
        """The codec's name in `compression.type`."""

    def compress(self, data: BytesLike, /) -> bytes:
        """Compress the data in one call, and release the interpreter lock for it. Any thread may call it."""

    def cost(self, size: int, /) -> float:
        """Return an estimate of the CPU seconds of `compress()` for so many bytes.

        Measured on 64 KiB of JSON lines, on one server. There it is right within a factor of 2 from 1 KiB to 1 MiB,
        and up to 10 times too high for bytes that do not compress. Use it only to choose a thread.
        """


@final
@dataclass(frozen=True, slots=True)
class _Gzip:
    """Deflate in one gzip member; -1 is zlib's default."""

    cramjam: Any
    level: int
    id: int = CODECS["gzip"]
    name: str = "gzip"

    @property
    def library_level(self) -> int:
        """The level for zlib."""
        return _ZLIB_DEFAULT_LEVEL if self.level == DEFAULT_GZIP_LEVEL else self.level

    def compress(self, data: BytesLike, /) -> bytes:
        return bytes(self.cramjam.gzip.compress(data, level=self.library_level))

    def cost(self, size: int, /) -> float:
        return _GZIP_CALL + size * _GZIP_BYTE[self.library_level - 1] * _NANO


@final
@dataclass(frozen=True, slots=True)
class _Snappy:
    """Snappy in snappy-java's framing; it has no levels."""

    cramjam: Any
    id: int = CODECS["snappy"]
    name: str = "snappy"

    def compress(self, data: BytesLike, /) -> bytes:
        view = memoryview(data)
        parts = [_SNAPPY_JAVA_HEADER]
        for start in range(0, len(view), _SNAPPY_BLOCK_SIZE):
            block = bytes(self.cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_SIZE]))
            parts.append(_INT32.pack(len(block)))
            parts.append(block)
        return b"".join(parts)

    def cost(self, size: int, /) -> float:
        return _SNAPPY_CALL + size * _SNAPPY_BYTE


@final
@dataclass(frozen=True, slots=True)
class _Lz4:
    """LZ4 frames.

    | Kafka's level | Java's producer                  | here, in `lz4.frame`                               |
    |---------------|----------------------------------|----------------------------------------------------|
    | 9, default    | the fast compressor, not level 9 | 0, the fast compressor                             |
    | 1, 2          | the high compressor's lowest     | 3; below that `lz4.frame` uses the fast compressor |
    | 3-8, 10-12    | the high compressor              | the same level                                     |
    | 13-17         | the high compressor, same as 12  | 12; liblz4 knows no higher one                     |
    """

    frame: Any
    level: int
    id: int = CODECS["lz4"]
    name: str = "lz4"

    @property
    def library_level(self) -> int:
        """The level for `lz4.frame`."""
        if self.level == DEFAULT_LZ4_LEVEL:
            return 0
        return min(max(self.level, _LZ4_LOWEST_HIGH), _LZ4_HIGHEST)

    def compress(self, data: BytesLike, /) -> bytes:
        compressed: bytes = self.frame.compress(
            data,
            compression_level=self.library_level,
            block_size=self.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
        return compressed

    def cost(self, size: int, /) -> float:
        level = self.library_level
        if level == 0:
            return _LZ4_CALL + size * _LZ4_FAST_BYTE
        return _LZ4_HIGH_CALL + size * _LZ4_HIGH_BYTE[level - _LZ4_LOWEST_HIGH] * _NANO


@final
@dataclass(frozen=True, slots=True)
class _Zstd:
    """Zstandard; negative levels are its fast modes, 0 is its default."""

    cramjam: Any
    level: int
    id: int = CODECS["zstd"]
    name: str = "zstd"

    def compress(self, data: BytesLike, /) -> bytes:
        return bytes(self.cramjam.zstd.compress(data, level=self.level))

    def cost(self, size: int, /) -> float:
        level = self.level or DEFAULT_ZSTD_LEVEL
        return _ZSTD_CALL + size * (_ZSTD_FAST_BYTE if level < 0 else _ZSTD_BYTE[level - 1] * _NANO)


def codec_for(
    name: str,
    *,
    gzip_level: int = DEFAULT_GZIP_LEVEL,
    lz4_level: int = DEFAULT_LZ4_LEVEL,
    zstd_level: int = DEFAULT_ZSTD_LEVEL,
) -> Codec | None:
    """Load the codec of a `compression.type` and its library; return None for `none`.

    Args:
        name: A key of `CODECS`.
        gzip_level: `compression.gzip.level`, for gzip only.
        lz4_level: `compression.lz4.level`, for lz4 only.
        zstd_level: `compression.zstd.level`, for zstd only.

    Raises:
        ConfigError: if there is no such codec, or the codec has no such level.

    Example:
        >>> codec = codec_for("zstd", zstd_level=1)
        >>> decompress(codec.id, codec.compress(b"records"))
        b'records'
    """
    match name:
        case "none":
            return None
        case "gzip":
            if gzip_level != DEFAULT_GZIP_LEVEL and gzip_level not in GZIP_LEVELS:
                raise _no_such_level("gzip", gzip_level, "1 to 9, or -1 for the default")
            return _Gzip(_cramjam(), gzip_level)
        case "snappy":
            return _Snappy(_cramjam())
        case "lz4":
            if lz4_level not in LZ4_LEVELS:
                raise _no_such_level("lz4", lz4_level, "1 to 17")
            from lz4 import frame

            return _Lz4(frame, lz4_level)
        case "zstd":
            if zstd_level not in ZSTD_LEVELS:
                raise _no_such_level("zstd", zstd_level, "-131072 to 22")
            return _Zstd(_cramjam(), zstd_level)
    raise ConfigError(
        f"compression.type must be one of {', '.join(CODECS)}, not {name!r}", key="compression.type"
    )


def _cramjam() -> Any:
    import cramjam

    return cramjam


def _no_such_level(codec: str, level: int, levels: str) -> ConfigError:
    key = f"compression.{codec}.level"
    return ConfigError(f"{key} must be {levels}, not {level}", key=key)


def decompress(codec_id: int, data: BytesLike, *, max_size: int = 128 * 1024 * 1024) -> bytes:
    """Decompress the records of a batch from any client.

    Args:
        codec_id: The low three bits of the batch's attributes; 0 returns the data as they are.
        data: The compressed records.
        max_size: The most bytes to return; a larger result is refused before it is made.

    Raises:
        ProtocolError: if the codec is unknown, if the data are not the codec's, end early or have trailing bytes,
            or if the result would be larger than `max_size`.
    """
    import cramjam

    try:
        match codec_id:
            case 0:
                decompressed = bytes(data)
            case 1:
                decompressed = _read_whole(zlib.decompressobj(wbits=31), "gzip", data, max_size)
            case 2:
                decompressed = _unsnap(memoryview(data), max_size)
            case 3:
                from lz4 import frame

                decompressed = _read_whole(frame.LZ4FrameDecompressor(), "lz4", data, max_size)
            case 4:
                decompressed = _unzstd(data, max_size)
            case _:
                raise ProtocolError(f"unknown compression codec {codec_id}")
    except (zlib.error, cramjam.DecompressionError, RuntimeError, ValueError, EOFError) as error:
        # lz4.frame raises RuntimeError for every fault of a frame.
        raise ProtocolError(f"records cannot be decompressed (codec {codec_id}): {error}") from error
    if len(decompressed) > max_size:
        raise _too_large(max_size)
    return decompressed


def _too_large(max_size: int) -> ProtocolError:
    return ProtocolError(f"compressed records would take more than {max_size} bytes")


def _read_whole(reader: Any, codec: str, data: BytesLike, max_size: int) -> bytes:
    """Decompress data that must be exactly one stream."""
    decompressed: bytes = reader.decompress(data, max_size + 1)
    if len(decompressed) > max_size:
        raise _too_large(max_size)
    if not reader.eof or reader.unused_data:
        raise ProtocolError(f"{codec} data does not end where the batch ends")
    return decompressed


def _unsnap(data: memoryview, max_size: int) -> bytes:
    if bytes(data[: len(_SNAPPY_JAVA_MAGIC)]) != _SNAPPY_JAVA_MAGIC:
        # One bare block, from a client without snappy-java's framing.
        return _unsnap_block(data, max_size, max_size)
    if len(data) < len(_SNAPPY_JAVA_HEADER):
        raise ProtocolError("snappy data ends within its header")
    blocks = []
    room = max_size
    position = len(_SNAPPY_JAVA_HEADER)
    while position < len(data):
        if position + _INT32.size > len(data):
            raise ProtocolError("snappy data ends within a block's length")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 <= size <= len(data) - position:
            raise ProtocolError(f"a snappy block of {size} bytes with {len(data) - position} left")
        block = _unsnap_block(data[position : position + size], room, max_size)
        room -= len(block)
        blocks.append(block)
        position += size
    return b"".join(blocks)


def _unsnap_block(block: memoryview, room: int, max_size: int) -> bytes:
    import cramjam

    # The library allocates the length that the block claims, so it is checked first.
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise _too_large(max_size)
    return bytes(cramjam.snappy.decompress_raw(block))


def _unzstd(data: BytesLike, max_size: int) -> bytes:
    import cramjam

    # cramjam decompresses without a bound, or into a buffer that must be large enough. So the buffer grows.
    room = min(max_size, max(_ZSTD_FIRST_GUESS * len(data), 64 * 1024))
    while True:
        target = bytearray(room)
        try:
            size = cramjam.zstd.decompress_into(data, target)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if room == max_size:
                raise _too_large(max_size) from error
            room = min(max_size, 4 * room)
        else:
            del target[size:]
            return bytes(target)


def codec_of(config: ProducerConfig) -> Codec | None:
    """Return the codec of a producer's settings; `None` without compression."""
    return codec_for(
        config.compression_type,
        gzip_level=config.compression_gzip_level,
        lz4_level=config.compression_lz4_level,
        zstd_level=config.compression_zstd_level,
    )
