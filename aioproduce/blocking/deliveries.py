"""The result of `BlockingProducer.send_many()`: one handle for many deliveries, for threads.

It wraps the `Deliveries` of the Producer. They are awaited in the loop thread. After that has ended, the caller's
thread reads them: all are then settled, and nothing waits.
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
    """The deliveries of records that were sent together, in order.

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
        """Add further accepted records (for the producer)."""
        if len(part):
            self._parts.append(part)
            self._length += len(part)

    def __len__(self) -> int:
        return self._length

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait until every record is acknowledged or failed.

        Args:
            timeout: Maximum seconds to wait.

        Returns:
            The metadata of all records.

        Raises:
            DeliveryError: If a record failed; this is the error of the first one that did.
            TimeoutError: If not all have an outcome in time; they are still being sent.
            LoopThreadError: If it is called in the loop thread.
        """
        found: list[RecordMetadata] = []
        for outcome in self.outcomes(timeout):
            if isinstance(outcome, DeliveryError):
                raise outcome
            found.append(outcome)
        return found

    def outcomes(self, timeout: float | None = None) -> list[RecordMetadata | DeliveryError]:
        """Wait as `wait()` does; return each record's metadata or error, and raise only for the waiting itself."""
        return [outcome for part in self._ask(timeout, Deliveries.outcomes) for outcome in part]

    def failed(self, timeout: float | None = None) -> dict[int, DeliveryError]:
        """Wait as `wait()` does; return the errors by the records' index."""
        found: dict[int, DeliveryError] = {}
        first = 0
        for part, failed in zip(self._parts, self._ask(timeout, Deliveries.failed), strict=True):
            found |= {first + index: error for index, error in failed.items()}
            first += len(part)
        return found

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every record is acknowledged or failed, without returning metadata.

        Raises:
            DeliveryError: If a record failed; this is the error of the first one. `failed()` returns all of them.
            TimeoutError: If not all have an outcome in time; they are still being sent.
            LoopThreadError: If it is called in the loop thread.
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
