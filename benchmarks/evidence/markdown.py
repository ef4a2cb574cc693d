"""Markdown of results: a table, and the line below it with the origin of its figures. Used by `tables`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from benchmarks.evidence.entries import ENTRIES
from benchmarks.evidence.results import Document

UNKNOWN = "an unknown number of"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return a table; the first columns are texts, the others are numbers, aligned right.

    Args:
        headings: The headings of the columns.
        rows: The cells of each row.
        texts: The number of columns with texts.
    """
    rule = ["---"] * texts + ["---:"] * (len(headings) - texts)
    lines = [headings, rule, *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )


def count(number: float) -> str:
    """Return a number with commas."""
    return f"{number:,.0f}"


def told(document: Document, later: int | None) -> str:
    """Return the origin of figures: command, date, commit, machine, load, versions, and age.

    Args:
        document: The result.
        later: The number of later commits that changed `aioproduce/`; None if that is not known.
    """
    machine, versions = document["machine"], document["versions"]
    entry = ENTRIES[document["name"].partition("@")[0]]
    names = ["CPython", "uvloop", *entry.libraries, *(["Kafka", "Java"] if entry.has_kafka else [])]
    with_versions = ", ".join(f"{name} {versions[name]}" for name in names if versions.get(name))
    began = datetime.fromisoformat(document["began_at"])
    variables = [f"{name}={value}" for name, value in document["environment"].items()]
    command = " ".join([*variables, *map(shlex.quote, document["command"])])
    command = command.replace("'{json}'", "FILE").replace("'{junit}'", "FILE")
    how_many = UNKNOWN if later is None else f"{later:,}"
    dirty = "" if document["is_clean"] else " **with changes that were not committed**"
    before, after = document["load_before"][0], document["load_after"][0]
    return (
        f"`{command}`, {began.day} {began:%B %Y} at {document['commit'][:7]}{dirty}, {document['seconds']:,.0f} s"
        f"{_exit_code(document, entry.exit_code)}: {machine['processors']} x {machine['processor']}, "
        f"{machine['kernel']}, load {before:.1f} before and {after:.1f} after; {with_versions}. "
        f"Since then {how_many} commits changed `aioproduce/`.\n"
    )


def _exit_code(document: Document, expected: int) -> str:
    code = document["exit_code"]
    return "" if code == expected else f", **exit code {code}**"
