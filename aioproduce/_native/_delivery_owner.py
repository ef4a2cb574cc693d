"""What the deliveries of threads need of the producer that made them: types only, so nothing here is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from aioproduce._native.blocking_delivery import BlockingDelivery


class DeliveryOwner(Protocol):
    """Who runs the loop thread."""

    def is_forked(self) -> bool:
        """Whether this process is a child, which `fork()` gave a copy without the loop thread."""

    def raise_forked(self) -> NoReturn:
        """Say so: a ForkedProcessError."""

    def check_may_wait(self, what: str) -> None:
        """Refuse to wait in the loop thread: a LoopThreadError."""

    def ask(self, delivery: BlockingDelivery) -> None:
        """Have the loop thread look at a delivery that somebody waits for since its record was accepted."""
