"""The embedded cluster's server and its clock, which is the loop's with what that lacks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aioproduce.testing.fake_cluster.server import ClusterServer


class CoarseLoop:
    """A loop whose timers come a hair before their time, as uvloop's do: its clock counts milliseconds."""

    def __init__(self) -> None:
        self.now = 10.0
        self.planned: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> asyncio.Handle:
        self.planned.append((at, callback))
        return asyncio.TimerHandle(at, callback, (), asyncio.get_running_loop())


class Model:
    """Wants to be called at 10.02, and notes when it was told what."""

    wake: Callable[[], None]

    def __init__(self) -> None:
        self.effects: deque[Any] = deque()
        self.timer: float | None = 10.02
        self.told: list[tuple[str, float]] = []

    def next_timer(self) -> float | None:
        return self.timer

    def handle_timer(self, now: float) -> None:
        self.told.append(("timer", now))
        if self.timer is not None and self.timer <= now:
            self.timer = None

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        self.told.append((f"data {connection_id}", now))


async def test_what_comes_after_a_timer_that_came_early_is_not_before_it() -> None:
    # A broker that ends a throttle at 10.02 and is then told of bytes at 10.0199 would leave them for a timer that
    # has come already.
    model, loop = Model(), CoarseLoop()
    server = ClusterServer(model, "localhost", {})  # type: ignore[arg-type]
    server._loop = loop  # type: ignore[assignment]
    server.tick()
    [(at, fire)] = loop.planned
    loop.now = 10.0199
    fire()
    server.received(7, b"")
    loop.now = 10.03
    server.received(8, b"")
    assert at == 10.02
    assert model.told == [("timer", 10.0), ("timer", 10.02), ("data 7", 10.02), ("data 8", 10.03)]
