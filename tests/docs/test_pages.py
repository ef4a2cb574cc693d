"""README is short, and the commands that pages name are there."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import aioproduce
from aioproduce.cli.app import app
from benchmarks.evidence import results
from benchmarks.evidence.plots import headline_rates
from tests.docs.blocks import ALL, PAGES, ROOT

SPAN = re.compile(r"`([^`\n]+)`")


def test_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_rates_of_readmes_comparison_are_those_of_the_result() -> None:
    kafka = results.read("kafka")
    assert kafka is not None
    rates = headline_rates(kafka)
    expected = [
        f"{rates[client, 'await-each']:,.0f}" for client in ("aioproduce", "aiokafka", "confluent AIO")
    ]
    (row,) = re.findall(
        r"^\| await each, real Kafka, records/s \|(.*)\|$", (ROOT / "README.md").read_text(), re.M
    )
    assert [cell.strip() for cell in row.split("|")] == [*expected, "not measured"]


def test_the_reference_has_every_public_name() -> None:
    api = "".join(page.read_text() for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    documented = set(re.findall(r":: (aioproduce[\w.]*)", api))
    public = {f"aioproduce.{name}" for name in aioproduce.__all__ if name != "__version__"}
    assert public - documented == set()


def commands_of(page: Path) -> list[str]:
    """What a reader could type: spans of code, and lines of the shell."""
    lines = [
        line.strip().removeprefix("$ ")
        for block in ALL
        if block.page == page and block.language in ("sh", "console")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    return SPAN.findall(page.read_text()) + lines


@functools.cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown(command: str) -> str | None:
    """What of a command is not there: a target, a module, a subcommand, an option."""
    words = re.split(r"\s+#|[|;&>]", command)[0].split()
    if words[:1] == ["make"] and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
        return None if words[1] in make_targets() else words[1]
    if words[:2] in (["python", "-m"], [".venv/bin/python", "-m"]) and len(words) > 2:
        name = words[2].rstrip(".,")
        if name.split(".")[0] not in ("aioproduce", "tests", "benchmarks", "examples"):
            return None
        return None if importlib.util.find_spec(name) is not None else name
    if words[:1] == ["aioproduce"] and len(words) > 1:
        return unknown_to_the_cli(words[1:])
    return None


def unknown_to_the_cli(words: list[str]) -> str | None:
    command: Any = get_command(app)
    while words and getattr(command, "commands", None) and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return words[0]
        command = command.commands[words.pop(0)]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for word in words:
        option = word.split("=")[0].rstrip(",.")
        if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in known | {"--help"}:
            return option
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_there(page: Path) -> None:
    wrong = {command: missing for command in commands_of(page) if (missing := unknown(command))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("make docs", None),
        ("make coffee", "coffee"),
        ("python -m aioproduce.config > page.md", None),
        ("python -m aioproduce.nothing", "aioproduce.nothing"),
        ("aioproduce send orders --json", None),
        ("aioproduce send orders --jason", "--jason"),
        ("aioproduce sned orders", "sned"),
        ("aioproduce txn abort --help", None),
        ("pip install aioproduce", None),
    ],
)
def test_a_command_that_is_not_there_is_found(command: str, missing: str | None) -> None:
    assert unknown(command) == missing
