# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hashes of record keys: clients with the same hash send a key to the same partition.

The other modules of this folder call it for every record without a partition, with a *key rule*. The rule is one of
the hashes `MURMUR2` (Java's `Utils.murmur2`), `CRC32` and `FNV1A` (librdkafka's `consistent` and `fnv1a`), or
`NO_HASH` if keys choose no partition. With `HASHES_NULL`, a record without a key goes to the partition of the empty
key. With `SKIPS_EMPTY`, an empty key counts as no key. `aioproduce.partitioners` has the rule of each partitioner.

1. All arithmetic is modulo 2**32: compiled by the unsigned int, interpreted by masks.
2. murmur2 drops the sign bit, as Java's `Utils.toPositive`. FNV-1a uses the absolute value, as librdkafka and
   Sarama. CRC-32 is unsigned.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import bytes_at

NO_HASH: Final = 0
MURMUR2: Final = 1
CRC32: Final = 2
FNV1A: Final = 3
HASHES: Final = 3
"""The bits of a rule for the hash."""
HASHES_NULL: Final = 4
SKIPS_EMPTY: Final = 8

UNDECIDED: Final = -1
"""The answer if the key rule chooses no partition for a record."""

# The same as C integers (`key_hash.pxd`): a look-up in Python costs a hundred instructions.
_MURMUR2 = MURMUR2
_CRC32 = CRC32
_HASHES = HASHES
_HASHES_NULL = HASHES_NULL
_SKIPS_EMPTY = SKIPS_EMPTY


def _murmur2_at(key: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
    mix: cython.uint = 0x5BD1E995
    mask: cython.uint = 0xFFFFFFFF
    h: cython.uint = 0x9747B28C ^ (size & 0xFFFFFFFF)
    k: cython.uint
    i: cython.Py_ssize_t = 0
    rest: cython.Py_ssize_t = size & 3
    while i < size - rest:
        k = key[i + 3]
        k = (k << 8) | key[i + 2]
        k = (k << 8) | key[i + 1]
        k = (k << 8) | key[i]
        k = (k * mix) & mask
        k ^= k >> 24
        k = (k * mix) & mask
        h = ((h * mix) & mask) ^ k
        i += 4
    if rest:
        k = 0
        while rest:
            rest -= 1
            k = (k << 8) | key[i + rest]
        h = ((h ^ k) * mix) & mask
    h ^= h >> 13
    h = (h * mix) & mask
    return h ^ (h >> 15)


def _fnv1a_at(key: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
    h: cython.uint = 0x811C9DC5
    prime: cython.uint = 0x01000193
    mask: cython.uint = 0xFFFFFFFF
    i: cython.Py_ssize_t
    for i in range(size):
        h = ((h ^ key[i]) * prime) & mask
    return h


def _crc32_at(key: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
    if cython.compiled:
        # Bit by bit: for the few bytes of a key this is as fast as a call of zlib.
        crc: cython.uint = 0xFFFFFFFF
        i: cython.Py_ssize_t
        for i in range(size):
            crc ^= key[i]
            for _ in range(8):
                crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF
    else:
        # Without a key, bulk calls leave the bytes of an earlier one here.
        return zlib.crc32(key[:size])


def partition_at(
    rule: cython.int, key: cython.p_uchar, size: cython.Py_ssize_t, count: cython.longlong
) -> cython.longlong:
    """Return the partition for a key of `size` bytes at an address (-1: no key), for other compiled modules."""
    hashing: cython.int = rule & _HASHES
    hashed: cython.uint
    if hashing == 0 or count <= 0:
        return -1
    if size < 0:
        if not rule & _HASHES_NULL:
            return -1
        size = 0
    elif size == 0 and rule & _SKIPS_EMPTY:
        return -1
    if hashing == _MURMUR2:
        hashed = _murmur2_at(key, size) & 0x7FFFFFFF
    elif hashing == _CRC32:
        hashed = _crc32_at(key, size)
    else:
        hashed = _fnv1a_at(key, size)
        if hashed & 0x80000000:
            hashed = (0xFFFFFFFF - hashed + 1) & 0xFFFFFFFF
    return hashed % count


def partition_of(rule: cython.int, key: bytes | None, count: cython.longlong) -> cython.longlong:
    """Return a key's partition out of `count` by a rule; `UNDECIDED` if the rule has none, or none is known yet."""
    return partition_at(rule, bytes_at(b"" if key is None else key), -1 if key is None else len(key), count)


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Kafka's default partitioner, unsigned (Java's int, modulo 2**32).

    Example:
        >>> murmur2(b"foobar") - 2**32
        -790332482
    """
    return _murmur2_at(bytes_at(data), len(data))


def partition_for_key(key: bytes, count: int) -> int:
    """Return the partition of a key in a topic of `count` partitions, as Java's producer chooses it.

    Raises:
        ValueError: if `count` is not positive.
    """
    if count <= 0:
        raise ValueError(f"a topic has at least one partition, not {count}")
    return partition_of(MURMUR2, key, count)
