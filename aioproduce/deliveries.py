"""What `Producer.send_many()` returns: one handle for many deliveries."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final, overload

from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import RecordMetadata


@final
class Deliveries(Sequence["DeliveryFuture"]):
    """The deliveries of records sent together, in their order.

    Awaiting it gives the metadata of all, or raises the error of the first record that failed, once every
    record is settled. `outcomes()` never raises a DeliveryError: it gives each record's metadata or error. Each
    record's own future is there by its index.

    Example:
        >>> deliveries = await producer.send_many("orders", [b"1", b"2"])  # doctest: +SKIP
        >>> [metadata.offset for metadata in await deliveries]  # doctest: +SKIP
        [7, 8]
    """

    __slots__ = ("_futures",)

    def __init__(self, futures: list[DeliveryFuture]) -> None:
        self._futures = futures

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, index: int) -> DeliveryFuture: ...

    @overload
    def __getitem__(self, index: slice) -> list[DeliveryFuture]: ...

    def __getitem__(self, index: int | slice) -> DeliveryFuture | list[DeliveryFuture]:
        return self._futures[index]

    def __iter__(self) -> Iterator[DeliveryFuture]:
        return iter(self._futures)

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._all().__await__()

    async def _all(self) -> list[RecordMetadata]:
        outcomes = await self.outcomes()
        metadata: list[RecordMetadata] = []
        for outcome in outcomes:
            if isinstance(outcome, DeliveryError):
                try:
                    raise outcome
                finally:
                    del outcome, outcomes  # the traceback holds this frame: no cycle for the collector
            metadata.append(outcome)
        return metadata

    async def outcomes(self) -> list[RecordMetadata | DeliveryError]:
        """Wait until every record is settled.

        Returns:
            Each record's metadata or error, in order.
        """
        outcomes: list[RecordMetadata | DeliveryError] = []
        for future in self._futures:
            try:
                outcomes.append(await future)
            except DeliveryError as error:
                outcomes.append(error.with_traceback(None))  # likewise
        return outcomes

    def __repr__(self) -> str:
        settled = sum(future.done() for future in self._futures)
        return f"<Deliveries {settled} of {len(self._futures)} settled>"
