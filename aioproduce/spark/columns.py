"""Which column of a DataFrame is what of a record: checked by the schema on the driver, before any row moves.

Called by `datasource`; the `SinkColumns` that come out travel to the tasks. Columns and types are those of Spark's
own Kafka sink, and `timestamp` besides.

Invariants:

1. A column that nothing would be sent of is refused: none is ever ignored. The one exception is Spark's own: the
   option `topic` goes before the column `topic`.
2. Names are compared as they are, as Spark's Kafka sink does.
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
    """The places of the columns in each Arrow batch; `None` where there is none.

    Attributes:
        topic: `None` too where the option `topic` goes before the column.
        id: Where the row's id is, `id.column`.
        names: All columns' names, in order.
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
        """The columns of a DataFrame that is to be written.

        Raises:
            ColumnError: one is missing, unknown, twice there, or of a type that cannot be sent.

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
    """What a column may be.

    Attributes:
        fits: Whether a type can be sent.
        types: The types in words.
        remedy: An expression that makes one of the column, as `format(name=...)` takes it.
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
"""The columns that a record is made of."""

_ID: Final = _Role(
    lambda kind: isinstance(kind, StringType | BinaryType | ByteType | ShortType | IntegerType | LongType),
    "string, binary, bigint or int",
    "CAST({name} AS STRING)",
)


def _check_type(name: str, kind: DataType, role: _Role) -> None:
    if not role.fits(kind):
        raise ColumnError(
            f"column {name!r} is {kind.simpleString()}, and must be {role.types}: "
            f"select {role.remedy.format(name=name)} AS {name}",
            column=name,
        )


def _check_present(names: list[str], options: SinkOptions) -> None:
    if "value" not in names:
        raise ColumnError(
            f"there is no column 'value' among {', '.join(map(repr, names)) or 'none'}: select what the record "
            "holds, as in df.selectExpr('to_json(struct(*)) AS value')",
            column="value",
        )
    if options.topic is None and "topic" not in names:
        raise ColumnError(
            "no topic is given: set .option('topic', ...), or add a column 'topic' that tells it for each row",
            column="topic",
        )
    if options.id_column is not None and options.id_column not in names:
        raise ColumnError(
            f"there is no column {options.id_column!r}, which id.column names, among {', '.join(map(repr, names))}",
            column=options.id_column,
        )
    if options.id_column in _ROLES:
        raise ColumnError(
            f"id.column={options.id_column!r} names a column that the record is made of: ids of rows need a "
            "column of their own",
            column=options.id_column,
        )


def _unknown(name: str, options: SinkOptions) -> ColumnError:
    known = [*_ROLES, *filter(None, [options.id_column])]
    near = difflib.get_close_matches(name[:200].lower(), known, n=1, cutoff=0.7)
    suggestion = near[0] if near else None
    hint = f"did you mean {suggestion!r}? " if suggestion is not None else ""
    return ColumnError(
        f"unknown column {name[:200]!r}: {hint}A record is made of {', '.join(_ROLES)}; put other columns into the "
        "value, as in df.selectExpr('to_json(struct(*)) AS value'), or drop them",
        column=name,
        suggestion=suggestion,
    )
