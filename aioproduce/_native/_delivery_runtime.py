"""The functions of the event loop that deliveries need: types only, so nothing here is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from aioproduce._native.tuple_outcomes import TupleOutcomes


class DeliveryRuntime(Protocol):
    """The driver's side of a delivery.

    If tasks cannot suspend on a `Watcher`, as asyncio's can, it also has a coroutine function `wait(delivery,
    is_quiet)`. This returns the outcome of a delivery; a quiet wait returns None. If the outcome is known
    already, it takes a turn of the loop.
    """

    def get_loop(self) -> Any:
        """Return the event loop, as `asyncio.Future.get_loop()` does."""

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Context | None) -> None:
        """Call back in the loop's next turn."""

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:
        """Handle the error of a done-callback as the loop handles errors of its own callbacks."""

    def cancelled_error(self, message: object) -> BaseException:
        """Return this loop's exception for a cancelled future."""

    def invalid_state_error(self, message: str) -> BaseException:
        """Return this loop's exception for reading the result of a pending future."""

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Report `count` failures of a batch that nobody observed; the collector may call it."""


class TellingRuntime(DeliveryRuntime, Protocol):
    """A runtime whose deliveries can return another library's classes.

    Attributes:
        outcomes: Makes those classes; None for our own. It holds for batches that are opened later.
    """

    outcomes: TupleOutcomes | None
