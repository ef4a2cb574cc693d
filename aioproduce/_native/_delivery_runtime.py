"""What the deliveries need of the event loop: types only, so nothing here is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from aioproduce._native.tuple_outcomes import TupleOutcomes


class DeliveryRuntime(Protocol):
    """The driver's side of a delivery.

    Where tasks cannot suspend on a `Watcher`, as asyncio's do, it has a coroutine function `wait(delivery,
    is_quiet)` as well: it gives the outcome of a delivery, or None to who waits for the end only, and is a turn of
    the loop where that is there already.
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


class TellingRuntime(DeliveryRuntime, Protocol):
    """One whose deliveries can give out another library's classes.

    Attributes:
        outcomes: They; None for our own. Batches that are opened later have them.
    """

    outcomes: TupleOutcomes | None
