"""State tables: what they allow, what they say of a wrong event, and what they draw."""

from __future__ import annotations

import re
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest

import aioproduce
from aioproduce.core.state_table import StateTable
from tests.states import page
from tests.states.page import PAGE, TABLES, render, rows


class Door(Enum):
    OPEN = auto()
    SHUT = auto()
    WALLED_UP = auto()


DOORS: StateTable[Door, str] = StateTable(
    "the door",
    {
        Door.OPEN: {"push": Door.SHUT, "wind": Door.SHUT},
        Door.SHUT: {"pull": Door.OPEN, "mason": Door.WALLED_UP},
        Door.WALLED_UP: {},
    },
)


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (Door.OPEN, "push", Door.SHUT),
        (Door.OPEN, "wind", Door.SHUT),
        (Door.SHUT, "pull", Door.OPEN),
        (Door.SHUT, "mason", Door.WALLED_UP),
    ],
)
def test_an_event_leads_on(state: Door, event: str, after: Door) -> None:
    assert DOORS.after(state, event) is after


@pytest.mark.parametrize("event", ["pull", "mason", "flood"])
def test_an_event_that_is_not_expected_raises(event: str) -> None:
    with pytest.raises(
        RuntimeError, match=f"^the door is open: '{event}' cannot happen to it now$"
    ) as caught:
        DOORS.after(Door.OPEN, event)
    assert caught.value.__cause__ is None


def test_the_error_names_which_one_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^the door \(of room 7\) is walled up: 'pull' cannot"):
        DOORS.after(Door.WALLED_UP, "pull", "of room 7")


def test_a_table_as_markdown() -> None:
    assert DOORS.start is Door.OPEN
    assert rows(DOORS).splitlines() == [
        "| state | event | next state |",
        "|---|---|---|",
        "| OPEN (first) | push, wind | SHUT |",
        "| SHUT | pull | OPEN |",
        "| SHUT | mason | WALLED_UP |",
        "| WALLED_UP | none: it is final | |",
    ]


def test_a_table_cannot_be_changed() -> None:
    moves: Any = DOORS.moves
    with pytest.raises(TypeError):
        moves[Door.WALLED_UP] = {"pull": Door.OPEN}


def test_the_page_shows_the_tables_that_run() -> None:
    assert PAGE.read_text() == render(), "python -m tests.states"


def test_the_page_has_every_table() -> None:
    """Every module that makes a table is imported by the page, under the name that the table has."""
    made = {
        name
        for path in Path(aioproduce.__file__).parent.rglob("*.py")
        for name in re.findall(r"^(\w+): .*= StateTable\($", path.read_text(), re.MULTILINE)
    }
    assert len(made) == len(TABLES)
    assert all(hasattr(page, name) for name in made)


@pytest.mark.parametrize("table", [table for _, _, table in TABLES], ids=lambda table: table.subject)
def test_every_state_of_a_table_can_be_reached_and_has_a_row(table: StateTable[Any, Any]) -> None:
    states = set(type(table.start).__members__.values())
    reached, todo = {table.start}, [table.start]
    while todo:
        fresh = set(table.moves[todo.pop()].values()) - reached
        reached |= fresh
        todo += fresh
    assert set(table.moves) == states
    assert reached == states
