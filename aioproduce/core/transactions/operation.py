"""What a transactional producer was asked for: init, offsets, prepare, commit, abort.

Made by the transaction manager; whoever asked waits on it, and may stop waiting: the operation goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.errors import TransactionError, TransactionOutcome

Kind: TypeAlias = Literal["init", "send_offsets", "prepare", "commit", "abort", "outcome"]
"""What is asked for."""


@final
class Operation:
    """One of them, from the call to its end.

    Attributes:
        kind: Which.
        is_done: Whether it has ended.
        error: Why it failed; `None` while it goes on, and where it succeeded.
        outcome: What became of the transaction, where this ended one.
        is_told: Whether a caller has heard how it ended; until then the same call again asks for this one.
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
        """Call this at the end; at once, where that has come."""
        if self.is_done:
            notify()
        else:
            self._waiting.append(notify)

    def forget(self, notify: Callable[[], None]) -> None:
        """Whoever waited does not wait any more."""
        if notify in self._waiting:
            self._waiting.remove(notify)

    def end(self, error: TransactionError | None = None, outcome: TransactionOutcome | None = None) -> None:
        """It has ended. Nothing happens where it had before."""
        if self.is_done:
            return
        self.is_done, self.error, self.outcome = True, error, outcome
        self.wake()

    def wake(self) -> None:
        """Tell those who wait: of the end, or of something graver than what they wait for."""
        waiting, self._waiting = self._waiting, []
        for notify in waiting:
            notify()


@final
class CurrentOperation:
    """The one that goes on, if one does; one at a time.

    Attributes:
        operation: It, or `None`.
    """

    __slots__ = ("operation",)

    def __init__(self) -> None:
        self.operation: Operation | None = None

    def of(self, kind: Kind) -> Operation | None:
        """It, where it is of that kind: the same call again waits for it."""
        operation = self.operation
        return operation if operation is not None and operation.kind == kind else None

    def start(self, kind: Kind) -> Operation:
        """Another one goes on from now on."""
        self.operation = Operation(kind)
        return self.operation

    def take(self) -> Operation | None:
        """None goes on from now on; who takes it ends it."""
        operation, self.operation = self.operation, None
        return operation

    def end(self, error: TransactionError | None = None, outcome: TransactionOutcome | None = None) -> None:
        """It has ended."""
        operation = self.take()
        if operation is not None:
            operation.end(error, outcome)

    def wake(self) -> None:
        """As `Operation.wake()`."""
        if self.operation is not None:
            self.operation.wake()
