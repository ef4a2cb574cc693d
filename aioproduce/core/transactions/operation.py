"""The operations of a transactional producer: init, offsets, prepare, commit, abort.

The transaction manager makes them. The caller waits on one, and may stop waiting: the operation continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.errors import TransactionError, TransactionOutcome

Kind: TypeAlias = Literal["init", "send_offsets", "prepare", "commit", "abort", "outcome"]
"""The kind of an operation."""


@final
class Operation:
    """An operation, from the call to its end.

    Attributes:
        kind: Its kind.
        is_done: Whether it has ended.
        error: Why it failed; `None` while it continues, and if it succeeded.
        outcome: The outcome of the transaction that it ended, or `None`.
        is_told: Whether a caller received its outcome; until then the same call returns this operation.
    """

    __slots__ = ("_waiting", "error", "is_done", "is_told", "kind", "outcome")

    is_done: bool
    is_told: bool

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.is_done = self.is_told = False
        self.error: TransactionError | None = None
        self.outcome: TransactionOutcome | None = None
        self._waiting: list[Callable[[], None]] = []

    def when_done(self, notify: Callable[[], None]) -> None:
        """Call `notify` at the end; at once if it has ended."""
        if self.is_done:
            notify()
        else:
            self._waiting.append(notify)

    def forget(self, notify: Callable[[], None]) -> None:
        """Remove a waiter."""
        if notify in self._waiting:
            self._waiting.remove(notify)

    def end(self, error: TransactionError | None = None, outcome: TransactionOutcome | None = None) -> None:
        """End the operation, once; later calls do nothing."""
        if self.is_done:
            return
        self.is_done, self.error, self.outcome = True, error, outcome
        self.wake()

    def wake(self) -> None:
        """Wake the waiters, because of the end or of a graver event."""
        waiting, self._waiting = self._waiting, []
        for notify in waiting:
            notify()


@final
class CurrentOperation:
    """The current operation, at most one.

    Attributes:
        operation: The operation, or `None`.
    """

    __slots__ = ("operation",)

    def __init__(self) -> None:
        self.operation: Operation | None = None

    def of(self, kind: Kind) -> Operation | None:
        """Return the operation if it has this kind: a repeated call waits for it."""
        operation = self.operation
        return operation if operation is not None and operation.kind == kind else None

    def start(self, kind: Kind) -> Operation:
        """Make a new operation the current one."""
        self.operation = Operation(kind)
        return self.operation

    def take(self) -> Operation | None:
        """Remove and return the current operation; the caller ends it."""
        operation, self.operation = self.operation, None
        return operation

    def end(self, error: TransactionError | None = None, outcome: TransactionOutcome | None = None) -> None:
        """End and remove the current operation."""
        operation = self.take()
        if operation is not None:
            operation.end(error, outcome)

    def wake(self) -> None:
        """Call `Operation.wake()`."""
        if self.operation is not None:
            self.operation.wake()
