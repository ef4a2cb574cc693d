"""Appends to the page `reference/cli` what typer prints of every command: text and options of the code itself."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGE = "reference/cli"
PACKAGE = Path(__file__).parents[2] / "aioproduce" / "cli"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True}


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    if name != PAGE:
        return
    # Sphinx reads the page again when one of these files has changed.
    for module in sorted(PACKAGE.glob("*.py")):
        app.env.note_dependency(str(module))
    command = [sys.executable, "-m", "typer", "aioproduce.cli.app", "utils", "docs", "--name", "aioproduce"]
    done = subprocess.run(command, cwd=PACKAGE.parents[1], capture_output=True, text=True, check=True)
    source[0] += "\n" + _page(done.stdout)


def _page(printed: str) -> str:
    """Typer's page: one level deeper, without its first heading, options in code as they are typed."""
    body = printed.partition("\n")[2]
    body = re.sub(r"^```console\n\$ (.*)\n```", r"```text\n\1\n```", body, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]+`", lambda code: html.unescape(code[0]), body)
