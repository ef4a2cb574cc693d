"""Maps the columns of a DataFrame to the parts of a record; checked on the driver before any row moves.

Used by `datasource`; the resulting `SinkColumns` are sent to the tasks. Columns and types are those of Spark's own
Kafka sink, plus `timestamp`.

Invariants:

1. A column that would not be sent is refused, never ignored. The only exception is also Spark's: the option `topic`
   overrides the column `topic`.
2. Names are compared exactly, as in Spark's Kafka sink.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from aioproduce.spark.errors import ColumnError
from aioproduce.spark.options import SinkOptions


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The positions of the columns in each Arrow batch; `None` if there is no such column.

    Attributes:
        topic: Also `None` if the option `topic` overrides the column.
        id: The position of the row's id, `id.column`.
        names: The names of all columns, in order.
    """

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    id: int | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: StructType, options: SinkOptions) -> SinkColumns:
        """Return the columns of a DataFrame that is to be written.

        Raises:
            ColumnError: If one is missing, unknown, duplicated, or of a type that cannot be sent.

        Example:
            >>> SinkColumns.of(StructType.fromDDL("key string, value binary"), options).value
            1
        """
        names = schema.fieldNames()
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = field.name
            if name in names[:place]:
                raise ColumnError(
                    f"there are two columns {name!r}: drop or rename one of them before writing", column=name
                )
            if name in _ROLES:
                _check_type(name, field.dataType, _ROLES[name])
                places[name] = place
            elif name == options.id_column:
                _check_type(name, field.dataType, _ID)
                places["id"] = place
            else:
                raise _unknown(name, options)
        _check_present(names, options)
        if options.topic is not None:
            places.pop("topic", None)
        return cls(names=tuple(names), **places)


@final
@dataclass(frozen=True, slots=True)
class _Role:
    """The requirements of a column.

    Attributes:
        fits: Whether a type can be sent.
        types: A description of the types.
        remedy: An expression that converts the column, for `format(name=...)`.
    """

    fits: Callable[[DataType], bool]
    types: str
    remedy: str


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


_BYTES: Final = "CAST({name} AS STRING), CAST({name} AS BINARY), or to_json(struct(...))"
_ROLES: Final = {
    "key": _Role(_is_bytes, "string or binary", _BYTES),
    "value": _Role(_is_bytes, "string or binary", _BYTES),
    "headers": _Role(
        _is_headers,
        "array<struct<key:string,value:binary>>",
        "array(named_struct('key', 'name', 'value', CAST('text' AS BINARY)))",
    ),
    "topic": _Role(lambda kind: isinstance(kind, StringType), "string", "CAST({name} AS STRING)"),
    "partition": _Role(lambda kind: isinstance(kind, IntegerType), "int", "CAST({name} AS INT)"),
    "timestamp": _Role(
        lambda kind: isinstance(kind, TimestampType), "timestamp", "CAST({name} AS TIMESTAMP)"
    ),
}
"""The columns of a record."""

_ID: Final = _Role(
    lambda kind: isinstance(kind, StringType | BinaryType | ByteType | ShortType | IntegerType | LongType),
    "string, binary, bigint or int",
    "CAST({name} AS STRING)",
)


def _check_type(name: str, kind: DataType, role: _Role) -> None:
    if not role.fits(kind):
        raise ColumnError(
            f"column {name!r} is {kind.simpleString()}, but must be {role.types}: select "
            f"{role.remedy.format(name=name)} AS {name}",
            column=name,
        )


def _check_present(names: list[str], options: SinkOptions) -> None:
    if "value" not in names:
        raise ColumnError(
            f"there is no column 'value' among {', '.join(map(repr, names)) or 'none'}: select the record's value, "
            "as in df.selectExpr('to_json(struct(*)) AS value')",
            column="value",
        )
    if options.topic is None and "topic" not in names:
        raise ColumnError(
            "there is no topic: set .option('topic', ...), or add a column 'topic' with the topic of each row",
            column="topic",
        )
    if options.id_column is not None and options.id_column not in names:
        raise ColumnError(
            f"there is no column {options.id_column!r}, which id.column names, among {', '.join(map(repr, names))}",
            column=options.id_column,
        )
    if options.id_column in _ROLES:
        raise ColumnError(
            f"id.column={options.id_column!r} names a column of the record: row ids need a "
            "column of their own",
            column=options.id_column,
        )


def _unknown(name: str, options: SinkOptions) -> ColumnError:
    known = [*_ROLES, *filter(None, [options.id_column])]
    near = difflib.get_close_matches(name[:200].lower(), known, n=1, cutoff=0.7)
    suggestion = near[0] if near else None
    hint = f"did you mean {suggestion!r}? " if suggestion is not None else ""
    return ColumnError(
        f"unknown column {name[:200]!r}: {hint}A record has the columns {', '.join(_ROLES)}; put other "
        "columns into the value, as in df.selectExpr('to_json(struct(*)) AS value'), or drop them",
        column=name,
        suggestion=suggestion,
    )
