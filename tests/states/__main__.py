"""Rewrite the page of states."""

from __future__ import annotations

from tests.states.page import PAGE, render

PAGE.write_text(render())
print(f"{PAGE.name} is written")
