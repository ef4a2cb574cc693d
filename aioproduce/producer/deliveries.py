"""The handle for many deliveries that the bulk calls of the Producer return.

`producer.bulk` makes it and adds the accepted records: as a `RecordSpan` (many records without an object each), or
as a future that exists already. A future for a record of a span is made on the first access.

Invariants:

1. A record has one future here at a time. The future knows whether it was read, so a failure is observed once.
2. In an acknowledged batch, waiting for all records and reading all outcomes costs nothing per record, except the
   metadata that is returned.
3. Cancelling one record's future does not change the outcome of the whole.
"""

from __future__ import annotations

import types
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, final, overload

from aioproduce._native.delivery import PENDING
from aioproduce._native.record_span import RecordSpan
from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import RecordMetadata


@final
class Deliveries(Sequence["DeliveryFuture"]):
    """The deliveries of records sent together, in their order.

    `await deliveries` waits until every record is settled. It returns the metadata of all records, or raises the
    error of the first record that failed. `wait()` does the same without the metadata, and costs nothing per
    record. `outcomes()` and `failed()` never raise a DeliveryError: they return each record's metadata or error, or
    the errors alone. An index returns that record's own future, made on the first access.

    Example:
        >>> deliveries = await producer.send_many("orders", [b"1", b"2"])
        >>> [metadata.offset for metadata in await deliveries]
        [7, 8]
    """

    __slots__ = ("_futures", "_length", "_parts", "_starts")

    def __init__(self, futures: Iterable[DeliveryFuture] = ()) -> None:
        self._length = 0
        self._starts: list[int] = []
        # A span, or a list of futures.
        self._parts: list[RecordSpan | list[DeliveryFuture]] = []
        # Futures of span records that were accessed, by index.
        self._futures: dict[int, DeliveryFuture] = {}
        for future in futures:
            self._add_future(future)

    # -- for `aioproduce.producer.bulk` ---

    def _add_future(self, future: DeliveryFuture) -> None:
        """Add one accepted record by its future (for the producer)."""
        part = self._parts[-1] if self._parts else None
        if isinstance(part, list):
            part.append(future)
        else:
            self._starts.append(self._length)
            self._parts.append([future])
        self._length += 1

    def _add_span(self, span: RecordSpan) -> None:
        """Add records that were accepted together (for the producer)."""
        if len(span):
            self._starts.append(self._length)
            self._parts.append(span)
            self._length += len(span)

    # -- a sequence of futures ---

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> DeliveryFuture: ...

    @overload
    def __getitem__(self, index: slice) -> list[DeliveryFuture]: ...

    def __getitem__(self, index: int | slice) -> DeliveryFuture | list[DeliveryFuture]:
        if isinstance(index, slice):
            return [self._future(each) for each in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"there are {self._length} deliveries")
        return self._future(index)

    def __iter__(self) -> Iterator[DeliveryFuture]:
        return map(self._future, range(self._length))

    def _future(self, index: int) -> DeliveryFuture:
        place = bisect_right(self._starts, index) - 1
        part = self._parts[place]
        if isinstance(part, list):
            return part[index - self._starts[place]]
        future = self._futures.get(index)
        if future is None:
            future = self._futures[index] = part.future(index - self._starts[place])
        return future

    # -- all of them ---

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._all().__await__()

    async def _all(self) -> list[RecordMetadata]:
        outcomes = await self.outcomes()
        for outcome in outcomes:
            if isinstance(outcome, DeliveryError):
                try:
                    raise outcome
                finally:
                    del outcome, outcomes  # the traceback holds this frame: no cycle for the collector
        return cast("list[RecordMetadata]", outcomes)

    async def outcomes(self) -> list[RecordMetadata | DeliveryError]:
        """Wait until every record is settled.

        Returns:
            Each record's metadata or error, in order.
        """
        await self._settled()
        outcomes: list[RecordMetadata | DeliveryError] = []
        for start, part in zip(self._starts, self._parts, strict=True):
            if isinstance(part, RecordSpan) and part.is_acknowledged:
                outcomes += part.metadata()
            else:
                outcomes += [_outcome(self._asked(index)) for index in range(start, start + len(part))]
        return outcomes

    async def wait(self) -> None:
        """Wait until every record is settled, without the metadata of any.

        Raises:
            DeliveryError: if a record failed; this is the first record's error. `failed()` returns all errors.

        Example:
            >>> deliveries = await producer.send_many("orders", lines)
            >>> await deliveries.wait()
        """
        failed = await self.failed()
        if failed:
            first = failed[min(failed)]
            try:
                raise first
            finally:
                del first, failed  # as above

    async def failed(self) -> dict[int, DeliveryError]:
        """Wait until every record is settled.

        Returns:
            The errors of the records that were not acknowledged, by their index; empty if none failed.
        """
        await self._settled()
        failed: dict[int, DeliveryError] = {}
        for start, part in zip(self._starts, self._parts, strict=True):
            if isinstance(part, RecordSpan) and part.is_acknowledged:
                continue
            for index in range(start, start + len(part)):
                outcome = _outcome(self._asked(index))
                if isinstance(outcome, DeliveryError):
                    failed[index] = outcome
        return failed

    async def _settled(self) -> None:
        """Wait until every record is settled; read no outcome."""
        for start, part in zip(self._starts, self._parts, strict=True):
            if isinstance(part, RecordSpan):
                for result in part.results:
                    if result.status == PENDING:
                        await _done(part.probe(result))
                if all(result.is_done for result in part.results):
                    continue
                # A batch was split: its records are in other batches now, and their futures find them.
            for index in range(start, start + len(part)):
                while not (future := self._asked(index)).done():
                    await _done(future)  # again if that future is cancelled: the record goes on

    def _asked(self, index: int) -> DeliveryFuture:
        """Return the future of a record; replace a cancelled one, which cannot report the outcome."""
        future = self._future(index)
        if future.cancelled():
            future = future._again()
            place = bisect_right(self._starts, index) - 1
            part = self._parts[place]
            if isinstance(part, list):
                part[index - self._starts[place]] = future
            else:
                self._futures[index] = future
        return future

    def __repr__(self) -> str:
        settled = sum(
            part.settled() if isinstance(part, RecordSpan) else sum(future.done() for future in part)
            for part in self._parts
        )
        return f"<Deliveries {settled} of {self._length} settled>"


@types.coroutine
def _done(future: DeliveryFuture) -> Generator[Any, None, None]:
    yield from future._wait_done()


def _outcome(future: DeliveryFuture) -> RecordMetadata | DeliveryError:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, DeliveryError):
        raise error
    return error
