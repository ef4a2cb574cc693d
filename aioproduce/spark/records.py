"""Converts rows of Spark's Kafka source to those of the lake: pure functions over DataFrames, without Kafka.

Used by `landing`, and by the job `alert` (`with_ids`). The input has the schema of Spark's Kafka source with
`includeHeaders`: key, value, topic, partition, offset, timestamp, timestampType, headers.

Invariants:

1. No row is dropped or created: a bad row gets a `reason`, and keeps its columns.
2. The same record gives the same columns, whenever and however often it is landed: nothing depends on the current
   time.
3. A stamp is the last header with its name, as with Kafka's `lastHeader`. Usually it is the last header of all,
   unless another one was added later, so that is checked first, and the others only if it is not a stamp. No
   expression here is a higher-order function, so Spark compiles the whole pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from aioproduce.audit.stamp import PRODUCER_ID_SIZE, STAMP_HEADER, STAMP_SIZE
from aioproduce.spark.layout import FILE_COLUMNS, PARTITION_COLUMNS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADER: Final = "_stamp_header"
_FIRST: Final = "1970-01-01 00:00:00 UTC"
_LAST: Final = "9999-12-31 23:59:59 UTC"
_DAY: Final = 86_400  # seconds
_HOUR: Final = 3_600


def with_ids(records: DataFrame) -> DataFrame:
    """Add `producer_id`, `sequence`, `checksum` and `reason`.

    The first two are null if a record has no stamp; if `reason` is not null, they are what could be read.
    """
    found = records.withColumn(_HEADER, _stamp_header(F.col("headers")))
    header, stamp = F.col(_HEADER), F.col(_HEADER)["value"]
    is_whole = F.octet_length(stamp) == STAMP_SIZE
    # conv() is unsigned, and a value that does not fit into a signed number becomes null.
    number = F.conv(
        F.hex(F.substring(stamp, PRODUCER_ID_SIZE + 1, STAMP_SIZE - PRODUCER_ID_SIZE)), 16, 10
    ).try_cast("bigint")
    told = found.withColumns(
        {
            "producer_id": F.when(is_whole, F.substring(stamp, 1, PRODUCER_ID_SIZE)),
            "sequence": F.when(is_whole, number),
            # Over key and value: two rows with one id are duplicates only if these are equal.
            "checksum": F.xxhash64("key", "value"),
        }
    )
    reason = (
        F.when(header.isNotNull() & F.col("sequence").isNull(), _stamp_reason(stamp))
        .when(F.col("timestamp").isNull(), F.lit("the record has no timestamp"))
        .when(~_is_in_time(), F.lit("the timestamp is not in the years 1970 to 9999"))
    )
    return told.withColumn("reason", reason).drop(_HEADER)


def _stamp_header(headers: Column) -> Column:
    last = F.get(headers, F.size(headers) - 1)
    names = headers["key"]
    # From the end, because a name may occur twice and the last one counts.
    place = F.array_position(F.reverse(names), STAMP_HEADER)
    return (
        F.when(headers.isNull() | (F.size(headers) == 0), None)
        .when(last["key"] == STAMP_HEADER, last)
        .when(F.array_contains(names, STAMP_HEADER), F.get(headers, F.size(headers) - place.cast("int")))
    )


def _is_in_time() -> Column:
    first, last = (F.lit(moment).cast("timestamp") for moment in (_FIRST, _LAST))
    return (F.col("timestamp") >= first) & (F.col("timestamp") <= last)


def _stamp_reason(stamp: Column) -> Column:
    size = F.octet_length(stamp).cast("string")
    return (
        F.when(stamp.isNull(), F.lit(f"the header {STAMP_HEADER} has no value"))
        .when(
            F.octet_length(stamp) != STAMP_SIZE,
            F.concat(
                F.lit(f"the header {STAMP_HEADER} has "),
                size,
                F.lit(f" bytes instead of {STAMP_SIZE}: not a stamp"),
            ),
        )
        .otherwise(F.lit(f"the number in the header {STAMP_HEADER} is above 2**63 - 1"))
    )


def with_table(records: DataFrame, audit_topic: str | None) -> DataFrame:
    """Add `table`, the table of each row of `with_ids`; without an audit topic there are no marks."""
    table = F.when(F.col("reason").isNotNull(), F.lit(Table.QUARANTINE.value))
    if audit_topic is not None:
        table = table.when(F.col("topic") == audit_topic, F.lit(Table.MARKS.value))
    return records.withColumn("table", table.otherwise(F.lit(Table.DATA.value)))


def with_partitions(records: DataFrame, batch: str) -> DataFrame:
    """Return the rows of `with_table` for the lake: the files' columns, then those that become directories."""
    date, hour = _date_and_hour()
    directories = {
        "table": F.col("table"),
        # Spark's writer copies each row that could have a null here: a twelfth of the landing's work.
        "topic": F.coalesce("topic", F.lit("")),
        "date": date,
        "hour": F.coalesce(hour, F.lit("00")),
        "batch": F.lit(batch),
    }
    renamed = {"timestamp_type": F.col("timestampType")}
    columns = [renamed.get(name, F.col(name)).alias(name) for name, _ in FILE_COLUMNS]
    return records.select(*columns, *(directories[name].alias(name) for name in PARTITION_COLUMNS))


def _date_and_hour() -> tuple[Column, Column]:
    """Return date and hour of the record's timestamp in UTC; out of range, those of the first moment of 1970.

    Computed with whole numbers, because `to_date` and `hour` use the calendar and the time zone for each row.
    """
    seconds = F.when(_is_in_time(), F.unix_seconds("timestamp")).otherwise(F.lit(0).cast("bigint"))
    # `/` would convert to float.
    days, hours = (F.call_function("div", seconds, F.lit(length)) for length in (_DAY, _HOUR))
    # A constant with 24 names is four times as fast as formatting a number.
    names = F.array(*(F.lit(f"{number:02d}") for number in range(24)))
    return F.date_from_unix_date(days.cast("int")), F.get(names, (hours % 24).cast("int"))
