"""What `BlockingProducer.send_many()` returns: one handle for many deliveries, for threads.

Around the `Deliveries` of the Producer. Those are asked in the loop thread, and where the caller is once that has
ended: then each is settled, and nothing waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar, final

from aioproduce.errors import DeliveryError
from aioproduce.producer.deliveries import Deliveries

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce.blocking.session import Session
    from aioproduce.records import RecordMetadata

_T = TypeVar("_T")


@final
class BlockingDeliveries:
    """The deliveries of records sent together, in their order.

    Example:
        >>> deliveries = producer.send_many("orders", [b"1", b"2"])
        >>> [metadata.offset for metadata in deliveries.result()]
        [7, 8]
    """

    __slots__ = ("_length", "_parts", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parts: list[Deliveries] = []
        self._length = 0

    def _add(self, part: Deliveries) -> None:
        """More records were accepted (for the producer)."""
        if len(part):
            self._parts.append(part)
            self._length += len(part)

    def __len__(self) -> int:
        return self._length

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait until every record is settled.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            The metadata of all.

        Raises:
            DeliveryError: a record failed; this is the error of the first that did.
            TimeoutError: not all were settled in time; they go on.
            LoopThreadError: called in the loop thread.
        """
        found: list[RecordMetadata] = []
        for outcome in self.outcomes(timeout):
            if isinstance(outcome, DeliveryError):
                raise outcome
            found.append(outcome)
        return found

    def outcomes(self, timeout: float | None = None) -> list[RecordMetadata | DeliveryError]:
        """Wait until every record is settled; gives each record's metadata or error. Raises as `wait()`."""
        return [outcome for part in self._ask(timeout, Deliveries.outcomes) for outcome in part]

    def failed(self, timeout: float | None = None) -> dict[int, DeliveryError]:
        """Wait until every record is settled; gives the errors by the records' index. Raises as `wait()`."""
        found: dict[int, DeliveryError] = {}
        first = 0
        for part, failed in zip(self._parts, self._ask(timeout, Deliveries.failed), strict=True):
            found |= {first + index: error for index, error in failed.items()}
            first += len(part)
        return found

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every record is settled, without the metadata of any.

        Raises:
            DeliveryError: a record failed; this is the error of the first that did. `failed()` has them all.
            TimeoutError: not all were settled in time; they go on.
            LoopThreadError: called in the loop thread.
        """
        failed = self.failed(timeout)
        if failed:
            raise failed[min(failed)]

    def _ask(self, timeout: float | None, ask: Callable[[Deliveries], Coroutine[Any, Any, _T]]) -> list[_T]:
        deadline = None if timeout is None else time.monotonic() + timeout
        found = []
        for part in self._parts:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            found.append(self._session.settle(ask, part, left))
        return found

    def __repr__(self) -> str:
        return f"<BlockingDeliveries of {self._length} records>"
