"""The outcome of a record that is on disk: what `SpooledProducer.send()` returns.

Invariants:

1. A delivery that nobody holds costs nothing: the log's batches have a group each, and only deliveries keep it
   alive.
2. A group is settled once, when the forwarder has settled its batch, or at close.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, final, overload
from weakref import WeakValueDictionary

from aioproduce._native.stored_send import SpooledDelivery as SpooledDelivery  # the group's other half
from aioproduce.portable_error import copy_of

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.drivers.base import Waiter
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.records import RecordMetadata


class Outcomes(Protocol):
    """The deliveries of a batch's records by the cluster."""

    def __getitem__(self, index: int, /) -> DeliveryFuture:
        """Return the delivery of a record; it has ended."""


@final
class SpooledGroup:
    """The outcome of one batch of a log, shared by the deliveries of its records.

    Args:
        topic: The topic.
        base_offset: The offset of its first record in the log.
        end_offset: The offset behind its last.
        make_waiter: Makes a waiter of the loop.
    """

    __slots__ = (
        "__weakref__",
        "_deliveries",
        "_error",
        "_errors",
        "_first",
        "_make_waiter",
        "_waiters",
        "base_offset",
        "end_offset",
        "topic",
    )

    def __init__(
        self, topic: str, base_offset: int, end_offset: int, make_waiter: Callable[[], Waiter]
    ) -> None:
        self.topic: str = topic
        self.base_offset: int = base_offset
        self.end_offset: int = end_offset
        self._make_waiter = make_waiter
        self._deliveries: Outcomes | None = None
        self._first = 0
        self._errors: dict[int, BaseException] = {}
        self._error: BaseException | None = None
        self._waiters: list[Waiter] = []

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._deliveries is not None or self._error is not None

    def settle(self, deliveries: Outcomes, first: int, errors: dict[int, BaseException]) -> None:
        """Settle.

        Args:
            deliveries: The records' deliveries by the cluster.
            first: The index of the first of them.
            errors: The errors of records that were not acknowledged, by their index.
        """
        self._deliveries = deliveries
        self._first = first
        self._errors = errors
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Settle: all records have this outcome."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.notify()

    async def wait(self) -> None:
        """Wait until the outcome is known."""
        while not self.is_settled:
            waiter = self._make_waiter()
            self._waiters.append(waiter)
            try:
                await waiter.wait(inf)
            finally:  # a caller that gives up, and asks again and again, leaves nothing behind
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def outcome(self, index: int) -> RecordMetadata:
        """Return the metadata of a record; the group is settled.

        Raises:
            DeliveryError: if the record was not acknowledged.
        """
        error = self._error or self._errors.get(index)
        if error is not None:
            raise copy_of(error)  # the traceback of a raised error holds its caller's frames
        assert self._deliveries is not None
        return self._deliveries[index - self._first].result()


class Groups(WeakValueDictionary[int, SpooledGroup]):
    """The groups of one log that somebody holds, by base offset."""


@final
class SpooledDeliveries(Sequence[SpooledDelivery]):
    """The outcomes of records that were put on disk together, in their order: what `send_many()` returns.

    Args:
        stored: The records' deliveries by the disk.
        groups: The groups of their batches, in order.
    """

    __slots__ = ("_groups", "_stored")

    def __init__(self, stored: Deliveries, groups: list[SpooledGroup]) -> None:
        self._stored = stored
        self._groups = groups

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, index: int) -> SpooledDelivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[SpooledDelivery]: ...

    def __getitem__(self, index: int | slice) -> SpooledDelivery | list[SpooledDelivery]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        offset = self._stored[index].result().offset
        place = bisect_right(self._groups, offset, key=lambda group: group.base_offset) - 1
        group = self._groups[place]
        return SpooledDelivery(group, offset - group.base_offset)

    async def wait(self) -> None:
        """Wait until each record has an outcome; read none."""
        for group in self._groups:
            await group.wait()

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        yield from self.wait().__await__()
        return [each.result() for each in self]

    def __repr__(self) -> str:
        settled = sum(group.is_settled for group in self._groups)
        return f"<SpooledDeliveries {len(self)} records in {len(self._groups)} batches, {settled} settled>"
