"""What the deliveries need of the event loop: types only, so nothing here is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce._native.tuple_outcomes import TupleOutcomes


class DeliveryRuntime(Protocol):
    """The driver's side of a delivery.

    One whose tasks cannot suspend on a `Watcher`, as asyncio's do, is a `WaitingRuntime`; others have no
    `wait`, or None.
    """

    def get_loop(self) -> Any:
        """The event loop, as `asyncio.Future.get_loop()` answers it."""

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Call back in the loop's next turn."""

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """A done-callback raised; what the loop does with its own callbacks' errors."""

    def cancelled_error(self, message: object) -> BaseException:
        """The exception that says "cancelled" under this loop."""

    def invalid_state_error(self, message: str) -> BaseException:
        """The exception for asking a pending future for its result."""

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """`count` records of a batch failed and nobody ever asked for them; may come from the collector."""


class WaitingRuntime(DeliveryRuntime, Protocol):
    """The same of a loop that has its own way to suspend a task."""

    def wait(self, delivery: DeliveryFuture, is_quiet: bool) -> Coroutine[Any, Any, Any]:
        """Wait for a delivery, and give its outcome if that is asked for.

        Args:
            delivery: Where it is done already, this is to give the loop a turn.
            is_quiet: Whether only the end is waited for: no outcome is given or raised, and none counts as
                observed.
        """


class TellingRuntime(DeliveryRuntime, Protocol):
    """One whose deliveries can give out another library's classes.

    Attributes:
        outcomes: They; None for our own. Batches that are opened later have them.
    """

    outcomes: TupleOutcomes | None
