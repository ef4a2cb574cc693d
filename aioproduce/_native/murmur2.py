# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hash of record keys, equal to Java's `Utils.murmur2`: a key goes to one partition from any client.

Called by the core for every record with a key and no partition. Compiled by Cython (pure Python mode), or
interpreted: one source, the same numbers.

1. All arithmetic is modulo 2**32. Compiled, that is what an unsigned int does; interpreted, the masks do it.
2. `partition_for_key()` drops the sign bit as Java's `Utils.toPositive` does; it takes no absolute value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyBytes_AS_STRING,
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def hash_bytes(key: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
    """The hash of `size` bytes at an address: for the other compiled modules (`murmur2.pxd`)."""
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


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hash_of(key: bytes) -> cython.uint:
    if cython.compiled:
        return hash_bytes(cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)), len(key))
    else:
        return hash_bytes(key, len(key))  # type: ignore[arg-type]


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's default partitioner, unsigned (Java's int, modulo 2**32).

    Example:
        >>> murmur2(b"foobar") - 2**32
        -790332482
    """
    return _hash_of(data)


@cython.ccall
@cython.exceptval(-1)
def partition_for_key(key: bytes, count: cython.longlong) -> cython.longlong:
    """The partition of a key in a topic of `count` partitions, as Java's producer chooses it.

    Raises:
        ValueError: `count` is not positive.
    """
    positive: cython.longlong
    if count <= 0:
        raise ValueError(f"a topic has at least one partition, not {count}")
    positive = _hash_of(key) & 0x7FFFFFFF
    return positive % count
