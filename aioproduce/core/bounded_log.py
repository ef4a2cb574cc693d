"""Log lines at a bounded rate: an outage logs one line per cause and interval, not one per record.

Called by the core and the driver. `now` is an argument, as everywhere in the core.
"""

from __future__ import annotations

from logging import INFO, WARNING
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable

_MAX_KEYS: Final = 1000
"""How many causes are remembered; beyond that the oldest is forgotten, and may be logged again too early."""


@final
class BoundedLog:
    """A log of the first event of each cause. It counts further events and reports the count in the next line.

    Args:
        logger: The logger of the lines.
        interval: Seconds between two lines of one cause.
    """

    __slots__ = ("_interval", "_logger", "_seen")

    def __init__(self, logger: logging.Logger, interval: float = 10.0) -> None:
        self._logger = logger
        self._interval = interval
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def warning(self, cause: Hashable, now: float, message: str, *args: object) -> None:
        """Log a warning, unless this cause was logged within the interval."""
        self._log(WARNING, cause, now, message, args)

    def info(self, cause: Hashable, now: float, message: str, *args: object) -> None:
        """Log an info line, unless this cause was logged within the interval."""
        self._log(INFO, cause, now, message, args)

    def _log(self, level: int, cause: Hashable, now: float, message: str, args: tuple[object, ...]) -> None:
        seen = self._seen.get(cause)
        if seen is not None and now < seen[0]:
            self._seen[cause] = (seen[0], seen[1] + 1)
            return
        suppressed = 0 if seen is None else seen[1]
        if seen is None and len(self._seen) >= _MAX_KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen[cause] = (now + self._interval, 0)
        if suppressed:
            message += f" ({suppressed} more like this since the last line)"
        self._logger.log(level, message, *args)
