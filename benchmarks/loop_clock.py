"""A kernel timer that an event loop sees as a readable file: open-loop schedules and stalls of the loop.

Called by the latency measures and, at full speed, by `LoopWatch`. asyncio's timers are no substitute: uvloop's tick
in whole milliseconds, and a timer that is armed again when it fires hides the time during which the loop was late.

1. Tick k is due at ``began + k * interval`` whatever the loop does: ticks that are served late count as late, not
   as missing (no coordinated omission).
2. Instants are `time.perf_counter()`'s, which on Linux is the kernel's CLOCK_MONOTONIC.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from typing import Self

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("first_seconds", ctypes.c_long),
        ("first_nanoseconds", ctypes.c_long),
    )


class Ticks:
    """Ticks at a fixed rate, from ``began`` on, on the running event loop."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.began = 0.0
        self.expired = 0
        self._waiter: asyncio.Future[None] | None = None
        self._file = -1

    def __enter__(self) -> Self:
        self._file = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self.began = time.perf_counter() + 0.01
        each, first = divmod(round(self.interval * 1e9), 10**9), divmod(round(self.began * 1e9), 10**9)
        spec = _TimerSpec(*each, *first)
        if _libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        asyncio.get_running_loop().add_reader(self._file, self._on_readable)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)

    def due(self, tick: int) -> float:
        """Return when a tick (from 0) is due."""
        return self.began + tick * self.interval

    async def wait(self, tick: int) -> None:
        """Wait for a tick; return at once if it is past."""
        while self.expired <= tick:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _on_readable(self) -> None:
        try:
            self.expired += int.from_bytes(os.read(self._file, 8), "little")
        except BlockingIOError:
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LoopWatch(Ticks):
    """The lateness of the loop in serving a tick each millisecond."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.late: list[float] = []

    def _on_readable(self) -> None:
        before = self.expired
        super()._on_readable()
        now = time.perf_counter()
        self.late.extend(now - self.due(tick) for tick in range(before, self.expired))

    def figures(self) -> dict[str, float]:
        """Milliseconds."""
        return percentiles("stall", self.late)


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Return percentiles by nearest rank, in milliseconds; an empty mapping without values."""
    ranked = sorted(seconds)
    if not ranked:
        return {}
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    # Rounded before it is rounded up: 0.999 * 1000 is a little more than 999.
    ranks = {label: max(1, math.ceil(round(share * len(ranked), 6))) for label, share in shares.items()}
    return {f"{name}_{label}_ms": ranked[rank - 1] * 1e3 for label, rank in ranks.items()}
