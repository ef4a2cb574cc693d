"""The headers of an Arrow batch: the stamp of each row, the static ones, and those of the DataFrame.

Called by `task` in the thread that reads Spark's iterator, once an Arrow batch. What comes out is one Arrow array,
which `send_arrow()` reads at native speed; numpy writes the stamps, so no row costs an object.

Invariants:

1. A stamp is `aioproduce.audit.stamp.pack_stamp(producer_id, row)` for each row, byte for byte.
2. What does not depend on the rows (names, offsets) is made once for the largest Arrow batch so far, and sliced.
3. A row that has a header `ap.id` of its own is refused: two stamps would make its id a matter of taste.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aioproduce.audit.stamp import STAMP_HEADER, STAMP_SIZE
from aioproduce.spark.errors import StampHeaderError
from aioproduce.spark.ids import TASK_ID_SIZE, record_id

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEQUENCE_TYPE: Final = np.dtype(">u8")
_NAME: Final = STAMP_HEADER.encode()


def stamps_of_rows(producer_id: bytes, first_row: int, count: int) -> np.ndarray[Any, Any]:
    """The stamps of rows that follow each other: an array of `count` times 24 bytes."""
    stamps = np.empty((count, STAMP_SIZE), dtype=np.uint8)
    stamps[:, :TASK_ID_SIZE] = np.frombuffer(producer_id, dtype=np.uint8)
    numbers = np.arange(first_row, first_row + count, dtype=_SEQUENCE_TYPE)
    stamps[:, TASK_ID_SIZE:] = numbers.view(np.uint8).reshape(count, STAMP_SIZE - TASK_ID_SIZE)
    return stamps


def stamps_of_column(ids: Any, scope: str) -> np.ndarray[Any, Any]:
    """The stamps of rows that a column tells apart.

    Binary values of 24 bytes are stamps already and are taken as they are; all others are hashed into the first 16
    bytes, with 0 for the number: such a record is the only one of its id, and no gap is seen where there is none.

    Args:
        ids: An Arrow array of binary, string or integers without a null.
        scope: What the values are unique in: see `ids.record_id()`.
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
    """Makes the headers of Arrow batches.

    Args:
        static: Headers of every row, before its stamp.
    """

    __slots__ = ("_capacity", "_name_offsets", "_names", "_row_offsets", "_static", "_value_offsets")

    def __init__(self, static: Sequence[tuple[str, bytes]] = ()) -> None:
        self._static = [(name.encode(), value) for name, value in static]
        self._capacity = 0

    def headers(self, own: Any, stamps: np.ndarray[Any, Any] | None, count: int) -> Any:
        """The headers of some rows.

        Args:
            own: The DataFrame's, an Arrow list of structs of key and value; or None.
            stamps: As `stamps_of_rows()`, or None for none.
            count: How many rows.

        Returns:
            An Arrow array of lists of structs; None where no row has a header.

        Raises:
            StampHeaderError: a row has a header `ap.id` of its own, and gets a stamp.
        """
        if stamps is None and not self._static:
            return own
        added = self._added(stamps, count)
        if own is None:
            return added
        if stamps is not None:
            _check_names(own)
        return _joined_lists(own, added)

    def _added(self, stamps: np.ndarray[Any, Any] | None, count: int) -> Any:
        names = [name for name, _ in self._static]
        sizes = [len(value) for _, value in self._static]
        if stamps is not None:
            names.append(_NAME)
            sizes.append(STAMP_SIZE)
        if count > self._capacity:
            self._grow(count, names, sizes)
        constant = b"".join(value for _, value in self._static)
        content = stamps
        if constant or stamps is None:
            content = np.empty((count, sum(sizes)), dtype=np.uint8)
            content[:, : len(constant)] = np.frombuffer(constant, dtype=np.uint8)
            if stamps is not None:
                content[:, len(constant) :] = stamps
        each = len(names) * count
        keys = pa.Array.from_buffers(pa.string(), each, [None, self._name_offsets, self._names])
        values = pa.Array.from_buffers(pa.binary(), each, [None, self._value_offsets, pa.py_buffer(content)])
        pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        return pa.Array.from_buffers(pa.list_(pairs.type), count, [None, self._row_offsets], children=[pairs])

    def _grow(self, count: int, names: list[bytes], sizes: list[int]) -> None:
        self._capacity = count
        self._names = pa.py_buffer(b"".join(names) * count)
        self._name_offsets = _offsets([len(name) for name in names], count)
        self._value_offsets = _offsets(sizes, count)
        self._row_offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(names)))


def _offsets(sizes: list[int], count: int) -> Any:
    offsets = np.zeros(len(sizes) * count + 1, dtype=np.int32)
    np.cumsum(np.tile(np.array(sizes, dtype=np.int32), count), out=offsets[1:])
    return pa.py_buffer(offsets)


def _check_names(own: Any) -> None:
    pairs = own.flatten()
    names = pairs.field(0)
    found = pc.index(names, pa.scalar(STAMP_HEADER, names.type)).as_py()
    if found >= 0:
        raise StampHeaderError(
            f"column 'headers' holds a header {STAMP_HEADER!r}, and the sink adds one of its own: take it out of "
            "the column, or keep it with option 'stamp' = 'off', or give the ids by option 'id.column'"
        )


def _joined_lists(own: Any, added: Any) -> Any:
    """Each row's own headers, then what is added to each."""
    count = len(own)
    lengths = pc.fill_null(pc.list_value_length(own), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = own.flatten()  # without what is under null rows
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
    """Pairs of name and value with the types and names of `_added()`, so that both can be one array."""
    names, values = pairs.flatten()
    return pa.StructArray.from_arrays(
        [names.cast(pa.string()), values.cast(pa.binary())], names=["key", "value"]
    )
