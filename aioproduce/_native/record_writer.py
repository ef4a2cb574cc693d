# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""One record of message format v2, from addresses and sizes into a batch's bytes (KIP-98; headers: KIP-82).

Called in C by `bulk_append`, and by `columns` for headers (`record_writer.pxd`); a size of -1 stands for null.

1. A record is written whole, or nothing is.
2. `record_batch` has varints and the delta of its own, the same lines: a C function of another module is not
   inlined, which made an append 6 to 8 ns dearer, one with headers 40; and one module for both fits no head.

One source, two builds: compiled by Cython as it stands (pure Python mode), or interpreted.
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
    from cython.cimports.libc.string import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        memcpy,
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def unsigned_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_unsigned(
    target: cython.p_uchar, position: cython.Py_ssize_t, value: cython.ulonglong
) -> cython.Py_ssize_t:
    while value >= 0x80:
        target[position] = (value & 0x7F) | 0x80
        position += 1
        value >>= 7
    target[position] = value
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag_delta(value: cython.longlong, base: cython.longlong) -> cython.ulonglong:
    mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    minuend: cython.ulonglong = value
    subtrahend: cython.ulonglong = base
    delta: cython.ulonglong = (minuend - subtrahend) & mask
    doubled: cython.ulonglong = (delta << 1) & mask
    return doubled ^ mask if delta >> 63 else doubled


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def part_size(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    # A length and the bytes; null is a length alone.
    length: cython.ulonglong
    if size < 0:
        return 1
    length = size
    return unsigned_size(length << 1) + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_bytes(
    target: cython.p_uchar, position: cython.Py_ssize_t, source: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if size > 0:
        if cython.compiled:
            memcpy(cython.address(target[position]), source, size)
        else:
            target[position : position + size] = source
    return position + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_part(
    target: cython.p_uchar, position: cython.Py_ssize_t, source: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    length: cython.ulonglong
    if size < 0:
        target[position] = 1
        return position + 1
    length = size
    return _put_bytes(target, put_unsigned(target, position, length << 1), source, size)


@cython.cfunc
@cython.exceptval(check=False)
def write_record(
    data: cython.p_uchar,
    position: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    timestamp: cython.longlong,
    base_timestamp: cython.longlong,
    index: cython.Py_ssize_t,
    key: cython.p_uchar,
    key_size: cython.Py_ssize_t,
    value: cython.p_uchar,
    value_size: cython.Py_ssize_t,
    headers: cython.p_uchar,
    headers_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a record at a position; its headers come encoded, and no bytes of them are none.

    Returns:
        The position behind it, or -1 if that would be beyond the limit.
    """
    delta: cython.ulonglong = _zigzag_delta(timestamp, base_timestamp)
    offset: cython.ulonglong = index
    length: cython.ulonglong
    body: cython.Py_ssize_t
    offset <<= 1
    body = 1 + unsigned_size(delta) + unsigned_size(offset)
    body += part_size(key_size) + part_size(value_size) + (headers_size if headers_size else 1)
    length = body
    if position + unsigned_size(length << 1) + body > limit:
        return -1
    position = put_unsigned(data, position, length << 1)
    data[position] = 0
    position = put_unsigned(data, position + 1, delta)
    position = put_unsigned(data, position, offset)
    position = put_part(data, position, key, key_size)
    position = put_part(data, position, value, value_size)
    if headers_size:
        return _put_bytes(data, position, headers, headers_size)
    data[position] = 0
    return position + 1
