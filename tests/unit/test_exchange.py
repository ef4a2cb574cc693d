"""The shape of exchanges: what one that needs nothing does, and that the Sender asks nothing of a kind."""

from __future__ import annotations

import ast
from math import inf
from pathlib import Path
from typing import Any

import pytest

import aioproduce
from aioproduce.core.exchanges.exchange import Exchange
from tests.unit.sender_harness import SenderHarness

SENDER = ast.parse((Path(aioproduce.__file__).parent / "core" / "sender.py").read_text())


class Counting(Exchange):
    """Counts what it is asked, waits for 5 s, and takes three steps to finish."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.timer_at = now + 5.0
        self.asked: list[str] = []
        self.steps_left = 3

    def advance(self, now: float) -> None:
        self.asked.append("advance")

    def handle_timer(self, now: float) -> None:
        if self.timer_at <= now:
            self.asked.append("timer")
        super().handle_timer(now)

    def begin_close(self, now: float) -> None:
        self.asked.append("begin_close")

    def finish(self, now: float) -> bool:
        self.steps_left -= 1
        self.timer_at = now + 1.0
        return self.steps_left == 0

    def wake_all(self) -> None:
        self.asked.append("wake_all")


def test_one_that_needs_nothing() -> None:
    exchange = Exchange()
    exchange.advance(1.0)
    exchange.begin_close(1.0)
    exchange.wake_all()
    assert not exchange.awaits_connection
    assert exchange.finish(1.0)
    assert exchange.timer_at == inf
    # It asks nothing: an answer cannot be its.
    nothing: Any = None
    with pytest.raises(NotImplementedError, match="Exchange sends no requests itself"):
        exchange.answered(nothing, 1.0)
    with pytest.raises(NotImplementedError, match="Exchange sends no requests itself"):
        exchange.lost(nothing, 1.0)


def test_its_timer_is_over_when_its_time_has_come() -> None:
    exchange = Exchange()
    exchange.timer_at = 5.0
    exchange.handle_timer(4.9)
    assert exchange.timer_at == 5.0
    exchange.handle_timer(5.0)
    assert exchange.timer_at == inf


def test_a_new_kind_takes_part_in_steps_time_and_the_end() -> None:
    h = SenderHarness()
    mine = Counting(h.now)
    h.sender._exchanges.append(mine)

    h.send_acknowledged()
    assert mine.asked.count("advance") >= 1
    mine.asked.clear()
    h.advance(5.0)
    assert "timer" in mine.asked

    h.sender.begin_close(h.now)
    h.run()
    assert "begin_close" in mine.asked
    assert not h.sender.is_closed, "it has steps left"
    h.advance(3.0)
    assert mine.steps_left == 0
    assert h.sender.is_closed


def test_everybody_is_woken_when_the_sender_dies() -> None:
    h = SenderHarness()
    mine = Counting(h.now)
    h.sender._exchanges.append(mine)
    h.sender.die(RuntimeError("a bug"), "it died of a bug", h.now)
    assert mine.asked[-1] == "wake_all"


def test_the_sender_does_not_ask_for_types() -> None:
    """No isinstance(), no match, no comparison with a class of messages: a new kind changes no dispatch."""
    names = {
        node.func.id
        for node in ast.walk(SENDER)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not names & {"isinstance", "type", "issubclass"}
    assert not [node for node in ast.walk(SENDER) if isinstance(node, ast.Match)]
    assert not [
        node
        for node in ast.walk(SENDER)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aioproduce.wire")
    ]
