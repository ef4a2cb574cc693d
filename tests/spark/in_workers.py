"""What tests let Spark's workers run. They import this module, and with it none of a test or of another client.

1. What breaks once says by a file that it has: its process may be another one the next time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

import aioproduce
from aioproduce.spark.datasource import AioproduceDataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOO_LARGE = 2 << 20
HOLD_INTERVAL = 0.02


class PlannedError(Exception):
    """Raised on purpose."""


def too_large_once(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; the first attempt of the task that gets there first has one more, too large to be sent."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last = None
        for batch in batches:
            yield batch
            last = batch
        if last is not None and is_first(marker):
            yield pa.RecordBatch.from_pydict({"value": ["x" * TOO_LARGE]}, schema=last.schema)

    return rows


def is_first(marker: str) -> bool:
    """Whether nobody asked before, of whatever process."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class CommitRaisesOnce(DataSource):
    """The sink, but for a `commit()` that raises the first time; the option `marker` names the file that tells."""

    @classmethod
    def name(cls) -> str:
        return "aioproduce_commit_raises"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        given = dict(self.options)
        marker = given.pop("marker")
        return _CommitRaisesOnceWriter(AioproduceDataSource(given).streamWriter(schema, overwrite), marker)


class _CommitRaisesOnceWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, marker: str) -> None:
        self._writer = writer
        self._marker = marker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        if is_first(self._marker):
            raise PlannedError("commit() of the sink")
        self._writer.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        self._writer.abort(messages, batchId)


class Held(DataSource):
    """The sink, which stops for good at the place that the option `hold` names; it touches the file `marker` there.

    The place `write` is before the first row of a task; `commit` is after the sink's commit and before Spark's. It
    stops nowhere where `hold` is empty.
    """

    @classmethod
    def name(cls) -> str:
        return "aioproduce_held"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        given = dict(self.options)
        place, marker = given.pop("hold"), given.pop("marker")
        return _HeldWriter(AioproduceDataSource(given).streamWriter(schema, overwrite), place, marker)


class _HeldWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, place: str, marker: str) -> None:
        self._writer = writer
        self._place = place
        self._marker = marker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._place == "write":
            hold(self._marker)
        return self._writer.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        self._writer.commit(messages, batchId)
        if self._place == "commit":
            hold(self._marker)

    def abort(self, messages: Any, batchId: int) -> None:
        self._writer.abort(messages, batchId)


def hold(marker: str) -> None:
    """Touch the file, and wait until this process is killed; raises if only the one that started it was."""
    parent = os.getppid()
    is_first(marker)
    while os.getppid() == parent:
        time.sleep(HOLD_INTERVAL)
    raise PlannedError("the process that started this one is gone")


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row about the worker: its Python, and where it imports from."""
    for _ in batches:
        row = {"file": aioproduce.__file__, "pyspark": pyspark.__file__, "python": sys.executable}
        yield pa.RecordBatch.from_pylist([row])
