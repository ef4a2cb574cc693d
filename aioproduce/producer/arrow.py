"""Conversion of Arrow data to the columns of the bulk calls, without a copy where the type allows it.

Called by `producer.bulk` for `Producer.send_arrow()`. `pyarrow` is imported on first use: it is the extra
`aioproduce[arrow]`.

Invariants:

1. A column whose type cannot be sent is refused before any row is read.
2. Binary and string columns are read in place. Other types are converted some thousand rows at a time, so that a
   large table neither stalls the loop nor exists twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias, final

from aioproduce._native.columns import ByteColumn, HeaderColumn, LongColumn
from aioproduce.errors import ArrowColumnError, MissingExtraError

# Converting so many rows takes a few hundred microseconds at most.
_ROWS: Final = 8192

_ACCEPTED: Final = {
    "value": "binary, large_binary, string, large_string, binary_view, string_view, fixed_size_binary or null, or "
    "a dictionary of these",
    "headers": "map<string, binary>, or list or large_list of struct<name or key: string, value: binary>, with "
    "binary and string of any kind",
    "partition": "integers",
    "timestamp": "timestamp of any unit, or integers: milliseconds since the epoch",
    "topic": "string, large_string or string_view, or a dictionary of these",
}
_ACCEPTED["key"] = _ACCEPTED["value"]

TopicRun: TypeAlias = tuple[str | None, int, int]
"""A topic and a range of rows for it: the first row, and the row after the last."""


@final
class Columns:
    """Rows to be sent.

    Attributes:
        values: The value of each row.
        keys: The key of each row, or None.
        headers: The headers of each row, or None.
        partitions: The partition of each row, or None.
        timestamps: The timestamp of each row, or None.
    """

    __slots__ = ("headers", "keys", "partitions", "timestamps", "values")

    def __init__(
        self,
        values: ByteColumn,
        keys: ByteColumn | None = None,
        headers: HeaderColumn | None = None,
        partitions: LongColumn | None = None,
        timestamps: LongColumn | None = None,
    ) -> None:
        self.values: ByteColumn = values
        self.keys: ByteColumn | None = keys
        self.headers: HeaderColumn | None = headers
        self.partitions: LongColumn | None = partitions
        self.timestamps: LongColumn | None = timestamps

    def __len__(self) -> int:
        return len(self.values)


@final
class ReadyRows:
    """Arrow data that was converted beforehand, e.g. in another thread, for `send_arrow()`.

    Args:
        batch: A `pyarrow.RecordBatch` with the default column names.
        has_topic: Whether the call of `send_arrow()` names the topic.
        encoded: The headers of all rows in the format of `record_batch.encode_headers()`, with the same width for
            each row: that width, and the concatenated rows. The batch then has no column of headers.

    Raises:
        ArrowColumnError: if a column is missing or cannot be sent.
        MissingExtraError: if pyarrow is not installed.
    """

    __slots__ = ("pieces",)

    def __init__(self, batch: Any, *, has_topic: bool, encoded: tuple[int, Any] | None = None) -> None:
        self.pieces: list[tuple[Columns, list[TopicRun] | None]] = list(
            arrow_pieces(batch, {}, has_topic=has_topic)
        )
        if encoded is None:
            return
        width, rows = encoded
        view = memoryview(rows).cast("B")
        start = 0
        for columns, _ in self.pieces:
            stop = start + len(columns)
            columns.headers = HeaderColumn.of_encoded(stop - start, width, view[start * width : stop * width])
            start = stop


def arrow_pieces(
    data: object, names: Mapping[str, str], *, has_topic: bool
) -> Iterator[tuple[Columns, list[TopicRun] | None]]:
    """Return Arrow data in pieces of some thousand rows.

    Args:
        data: A RecordBatch, Table, RecordBatchReader, or an object with the Arrow C interface.
        names: Column names that differ from the default, by role.
        has_topic: Whether the call names the topic, so that no column is needed for it.

    Returns:
        Columns, and their topics by rows if a column has the topic.

    Raises:
        ArrowColumnError: if a column is missing or cannot be sent.
        TypeError: if `data` is not Arrow data.
        ValueError: if `names` has an unknown role.
        MissingExtraError: if pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("send_arrow()", extra="arrow", name="pyarrow") from error
    schema, batches = _batches(pyarrow, data)
    return _Reading(pyarrow, schema, names, has_topic=has_topic).pieces(batches)


def _batches(pyarrow: Any, data: Any) -> tuple[Any, Iterable[Any]]:
    """Return the schema and the record batches."""
    if isinstance(data, pyarrow.Table):
        return data.schema, data.to_batches()
    if not isinstance(data, pyarrow.RecordBatch | pyarrow.RecordBatchReader):
        if hasattr(data, "__arrow_c_stream__"):
            data = pyarrow.RecordBatchReader.from_stream(data)
        elif hasattr(data, "__arrow_c_array__"):
            data = pyarrow.record_batch(data)
        else:
            raise TypeError(
                "send_arrow() takes a pyarrow RecordBatch, Table or RecordBatchReader, or an object with "
                f"__arrow_c_stream__ or __arrow_c_array__, not {type(data).__name__}"
            )
    if isinstance(data, pyarrow.RecordBatch):
        return data.schema, [data]
    return data.schema, data


@final
class _Reading:
    """One reading of Arrow data: the role of each column, and its conversion."""

    __slots__ = ("_names", "_pa", "_places", "_types")

    def __init__(self, pyarrow: Any, schema: Any, names: Mapping[str, str], *, has_topic: bool) -> None:
        self._pa = pyarrow
        self._types = pyarrow.types
        unknown = sorted(set(names) - set(_ACCEPTED))
        if unknown:
            raise ValueError(
                f"columns= names {', '.join(_ACCEPTED)}; there is no {', '.join(map(repr, unknown))}"
            )
        self._names = {role: names.get(role, role) for role in _ACCEPTED}
        self._places: dict[str, int] = {}
        checks = {
            "value": self._is_bytes,
            "key": self._is_bytes,
            "headers": self._is_headers,
            "partition": self._types.is_integer,
            "timestamp": lambda kind: self._types.is_timestamp(kind) or self._types.is_integer(kind),
            "topic": self._is_text,
        }
        for role, check in checks.items():
            if role == "topic" and has_topic and role not in names:
                continue  # a column of that name has another meaning
            name = self._names[role]
            places = schema.get_all_field_indices(name)
            if len(places) > 1:
                raise ArrowColumnError(f"there are {len(places)} columns {name!r}", column=name)
            if places:
                kind = schema.field(places[0]).type
                if not check(kind):
                    raise ArrowColumnError(
                        f"column {name!r} is {kind}; the {role} column accepts {_ACCEPTED[role]}", column=name
                    )
                self._places[role] = places[0]
            elif role in names or role == "value" or role == "topic":
                raise ArrowColumnError(
                    f"there is no column {name!r} for the {role}, only {', '.join(map(repr, schema.names))}: name "
                    f"another by columns={{{role!r}: ...}}"
                    + (", or give the topic" if role == "topic" else ""),
                    column=name,
                )

    # -- types ---

    def _is_bytes(self, kind: Any) -> bool:
        types = self._types
        if types.is_dictionary(kind):
            return self._is_bytes(kind.value_type)
        return (
            self._is_text(kind)
            or types.is_binary(kind)
            or types.is_large_binary(kind)
            or types.is_fixed_size_binary(kind)
            or types.is_binary_view(kind)
            or types.is_null(kind)
        )

    def _is_text(self, kind: Any) -> bool:
        types = self._types
        if types.is_dictionary(kind):
            return self._is_text(kind.value_type)
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    def _is_headers(self, kind: Any) -> bool:
        types = self._types
        if types.is_map(kind):
            return self._is_bytes(kind.key_type) and self._is_bytes(kind.item_type)
        if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
            return False
        fields = {field.name: field.type for field in kind.value_type}
        if len(fields) != 2 or kind.value_type.num_fields != 2:
            return False
        name = fields.get("name", fields.get("key"))
        return bool(
            name is not None
            and "value" in fields
            and self._is_bytes(name)
            and self._is_bytes(fields["value"])
        )

    # -- rows ---

    def pieces(self, batches: Iterable[Any]) -> Iterator[tuple[Columns, list[TopicRun] | None]]:
        """Yield columns of some rows each, in order."""
        for batch in batches:
            arrays = {role: batch.column(place) for role, place in self._places.items()}
            headers = self._convert("headers", self._headers, arrays.get("headers"))
            for start in range(0, batch.num_rows, _ROWS):
                rows = {
                    role: array.slice(start, _ROWS) for role, array in arrays.items() if role != "headers"
                }
                values = self._convert("value", self._bytes, rows["value"])
                columns = Columns(
                    values,
                    self._convert("key", self._bytes, rows.get("key")),
                    None if headers is None else headers(start, len(values)),
                    self._convert("partition", self._longs, rows.get("partition")),
                    self._convert("timestamp", self._milliseconds, rows.get("timestamp")),
                )
                yield columns, self._topics(rows.get("topic"))

    def _convert(self, role: str, convert: Any, array: Any) -> Any:
        if array is None:
            return None
        try:
            return convert(array)
        except (self._pa.ArrowException, ValueError) as error:
            name = self._names[role]
            raise ArrowColumnError(f"column {name!r} cannot be read: {error}", column=name) from error

    def _bytes(self, array: Any) -> ByteColumn:
        types = self._types
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if types.is_binary_view(array.type) or types.is_string_view(array.type):
            array = array.cast(self._pa.large_binary())
        elif types.is_fixed_size_binary(array.type) or types.is_null(array.type):
            array = array.cast(self._pa.binary())
        is_large = types.is_large_binary(array.type) or types.is_large_string(array.type)
        validity, offsets, content = array.buffers()
        return ByteColumn.of_arrow(len(array), array.offset, validity, offsets, content, is_large=is_large)

    def _longs(self, array: Any) -> LongColumn:
        if array.type != self._pa.int64():
            array = array.cast(self._pa.int64())
        validity, numbers = array.buffers()
        return LongColumn(len(array), array.offset, validity, numbers)

    def _milliseconds(self, array: Any) -> LongColumn:
        if self._types.is_timestamp(array.type) and array.type.unit != "ms":
            import pyarrow.compute

            # A finer unit is truncated to milliseconds; a value out of range is an error.
            array = pyarrow.compute.cast(
                array,
                options=pyarrow.compute.CastOptions(
                    self._pa.timestamp("ms", array.type.tz), allow_time_truncate=True
                ),
            )
        return self._longs(array)

    def _headers(self, array: Any) -> Any:
        """Return a function that makes the headers of some rows; their shared arrays are converted once."""
        types = self._types
        if types.is_large_list(array.type):
            array = array.cast(self._pa.list_(array.type.value_field))
        if types.is_map(array.type):
            names, values = array.keys, array.items
        else:
            # flatten() applies the nulls of the structs: a null header gets a null name, which is refused.
            first, second = array.values.flatten()
            swapped = array.type.value_type.field(0).name == "value"
            names, values = (second, first) if swapped else (first, second)
        if not self._is_text(names.type):
            names = names.cast(self._pa.string())  # the cast checks that it is UTF-8
        name_column, value_column = self._bytes(names), self._bytes(values)
        validity, offsets = array.buffers()[:2]
        row = array.offset

        def of_rows(start: int, count: int) -> HeaderColumn:
            return HeaderColumn(count, row + start, validity, offsets, name_column, value_column)

        return of_rows

    def _topics(self, array: Any) -> list[TopicRun] | None:
        if array is None:
            return None
        runs: list[TopicRun] = []
        start = 0
        for topic, rows in groupby(array.to_pylist()):
            stop = start + sum(1 for _ in rows)
            runs.append((topic, start, stop))
            start = stop
        return runs
