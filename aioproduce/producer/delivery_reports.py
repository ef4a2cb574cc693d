"""Reports of deliveries to users: delivery callbacks, and failures that nobody awaited.

Called by the driver, outside the core's steps. An exception of a callback is logged and never fatal.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, final

from aioproduce.core.bounded_log import BoundedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.delivery import BatchResult

_log = logging.getLogger("aioproduce")


@final
class DeliveryReports:
    """Runs callbacks and reports failures.

    Args:
        on_delivery_error: Called with the error of failed records that nobody awaits, once per batch.

    Attributes:
        unobserved_failures: Number of such records so far.
        is_told: Whether one line has reported all remaining records as lost; no further line follows.
    """

    __slots__ = ("_bounded_log", "_on_delivery_error", "is_told", "unobserved_failures")

    def __init__(self, on_delivery_error: Callable[[Any], object] | None) -> None:
        self._on_delivery_error = on_delivery_error
        self._bounded_log = BoundedLog(_log)
        self.unobserved_failures: int = 0
        self.is_told: bool = False

    def run_callbacks(self, result: BatchResult) -> None:
        """Call the delivery callbacks of a settled batch."""
        for error in result.run_callbacks():
            _log.error("a delivery callback for %s-%d failed", result.topic, result.partition, exc_info=error)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        """Report `count` records of one batch that failed and whose futures were dropped unread."""
        self.unobserved_failures += count
        if not self.is_told:
            self._bounded_log.warning(
                (topic, type(error)),
                time.monotonic(),
                "%d record(s) for %s-%d failed and nobody awaited them: %s",
                count,
                topic,
                partition,
                error,
            )
        if self._on_delivery_error is not None:
            try:
                self._on_delivery_error(error)
            except Exception:
                _log.exception("on_delivery_error failed")
