"""Creates the headers of an Arrow batch: each row's stamp, the static ones, and those of the DataFrame.

Used by `task` in the thread that reads Spark's iterator, once per Arrow batch. If the DataFrame has no headers of
its own, all rows' headers have the same size and are encoded here in a record's format: numpy writes the numbers,
and the code that appends the rows copies the rest (20 ns per row; 140 as an Arrow list of names and values). With
headers of its own, they are one Arrow array.

Invariants:

1. A stamp is `aioproduce.audit.stamp.pack_stamp(producer_id, row)` for each row, byte for byte.
2. No row costs an object, except rows with headers of their own or with ids from a column.
3. A row with its own header `ap.id` is refused: with two stamps its id would be ambiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aioproduce._native.record_batch import encode_headers
from aioproduce.audit.stamp import STAMP_HEADER, STAMP_SIZE
from aioproduce.spark.errors import StampHeaderError
from aioproduce.spark.ids import TASK_ID_SIZE, record_id

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEQUENCE_TYPE: Final = np.dtype(">u8")


def stamps_of_column(ids: Any, scope: str) -> np.ndarray[Any, Any]:
    """Return the stamps of rows that a column identifies.

    Binary values of 24 bytes are already stamps and are used unchanged. All others are hashed into the first 16
    bytes, with 0 for the number: such a record is the only one with its id, so there are no gaps.

    Args:
        ids: An Arrow array of binary, string or integers without a null.
        scope: The scope in which values are unique: see `ids.record_id()`.
    """
    if pa.types.is_integer(ids.type):
        return _joined([_hashed(scope, str(each).encode()) for each in ids.to_pylist()])
    values = ids.cast(pa.binary()).to_pylist()
    if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        return _joined([_hashed(scope, each) for each in values])
    return _joined([each if len(each) == STAMP_SIZE else _hashed(scope, each) for each in values])


def _hashed(scope: str, value: bytes) -> bytes:
    return record_id(scope, value) + bytes(STAMP_SIZE - TASK_ID_SIZE)


def _joined(stamps: list[bytes]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(stamps), dtype=np.uint8).reshape(len(stamps), STAMP_SIZE)


@final
class HeaderMaker:
    """Creates the headers of Arrow batches.

    Args:
        static: Headers of every row, before its stamp.
    """

    def __init__(self, static: Sequence[tuple[str, bytes]] = ()) -> None:
        self._static = list(static)

    def numbered(self, producer_id: bytes, first_row: int, count: int) -> np.ndarray[Any, Any]:
        """Return the encoded headers of consecutive rows; a row's stamp is its last 24 bytes.

        Args:
            producer_id: 16 bytes.
            first_row: The number of the first row.
            count: The number of rows.

        Returns:
            This many rows of bytes, all of the same size.
        """
        content = self._rows(producer_id + bytes(_SEQUENCE_TYPE.itemsize), count)
        content[:, -_SEQUENCE_TYPE.itemsize :].view(_SEQUENCE_TYPE)[:, 0] = np.arange(
            first_row, first_row + count, dtype=np.uint64
        )
        return content

    def stamped(self, stamps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the headers of rows with these stamps, as `numbered()` does."""
        content = self._rows(bytes(STAMP_SIZE), len(stamps))
        content[:, -STAMP_SIZE:] = stamps
        return content

    def _rows(self, stamp: bytes, count: int) -> np.ndarray[Any, Any]:
        """Return this many rows of headers with this stamp."""
        row = np.frombuffer(encode_headers([*self._static, (STAMP_HEADER, stamp)]), dtype=np.uint8)
        # Broadcasting takes a quarter of the time of `bytes * count`, which writes twice.
        content: np.ndarray[Any, Any] = np.empty((count, len(row)), dtype=np.uint8)
        content[:] = row
        return content

    def joined(self, own: Any, stamps: np.ndarray[Any, Any] | None) -> Any:
        """Return the DataFrame's own headers followed by the static ones and the stamps.

        Args:
            own: An Arrow list of structs of key and value.
            stamps: A row of 24 bytes for each, or None for none.

        Returns:
            An Arrow array of lists of structs.

        Raises:
            StampHeaderError: If a row has its own header `ap.id`, and gets a stamp.
        """
        if stamps is not None:
            _check_names(own)
        elif not self._static:
            return own
        return _joined_lists(own, self._added(stamps, len(own)))

    def _added(self, stamps: np.ndarray[Any, Any] | None, count: int) -> Any:
        names = [name.encode() for name, _ in self._static]
        sizes = [len(value) for _, value in self._static]
        constant = b"".join(value for _, value in self._static)
        content = np.frombuffer(bytearray(constant * count), dtype=np.uint8).reshape(count, len(constant))
        if stamps is not None:
            names.append(STAMP_HEADER.encode())
            sizes.append(STAMP_SIZE)
            content = np.hstack([content, stamps])
        each = len(names) * count
        keys = pa.Array.from_buffers(
            pa.string(),
            each,
            [None, _offsets([len(name) for name in names], count), pa.py_buffer(b"".join(names) * count)],
        )
        values = pa.Array.from_buffers(
            pa.binary(), each, [None, _offsets(sizes, count), pa.py_buffer(np.ascontiguousarray(content))]
        )
        pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        starts = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(names)))
        return pa.Array.from_buffers(pa.list_(pairs.type), count, [None, starts], children=[pairs])


def _offsets(sizes: list[int], count: int) -> Any:
    offsets = np.zeros(len(sizes) * count + 1, dtype=np.int32)
    np.cumsum(np.tile(np.array(sizes, dtype=np.int32), count), out=offsets[1:])
    return pa.py_buffer(offsets)


def _check_names(own: Any) -> None:
    names = own.flatten().field("key")
    if pc.index(names, pa.scalar(STAMP_HEADER, names.type)).as_py() >= 0:
        raise StampHeaderError(
            f"column 'headers' has a header {STAMP_HEADER!r}, but the sink adds its own: remove it from "
            "the column, or keep it with option 'stamp' = 'off', or use ids from a column with option 'id.column'"
        )


def _joined_lists(own: Any, added: Any) -> Any:
    """Return each row's own headers, followed by those added to it."""
    count = len(own)
    lengths = pc.fill_null(pc.list_value_length(own), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = own.flatten()  # without the values under null rows
    more = added.flatten()
    each = len(more) // count if count else 0
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(lengths + each, out=offsets[1:])
    total = int(offsets[-1])
    is_added = np.zeros(total, dtype=bool)
    for step in range(each):
        is_added[offsets[1:] - 1 - step] = True
    places = np.empty(total, dtype=np.int64)
    places[~is_added] = np.arange(len(pairs))
    places[is_added] = len(pairs) + np.arange(len(more))
    both = pa.concat_arrays([_plain(pairs), more])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), both.take(pa.array(places)))


def _plain(pairs: Any) -> Any:
    """Return pairs of name and value with the types and names of `_added()`, so that both fit into one array."""
    names, values = pairs.flatten()
    return pa.StructArray.from_arrays(
        [names.cast(pa.string()), values.cast(pa.binary())], names=["key", "value"]
    )
