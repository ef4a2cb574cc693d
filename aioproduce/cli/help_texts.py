"""The layout of help texts: readable lines in a terminal of any width.

Called by `app` before a command runs. Without it typer keeps a docstring's line ends, and makes help as wide as the
terminal.
"""

from __future__ import annotations

import inspect
import shutil
from typing import TYPE_CHECKING, Final

from typer import rich_utils

if TYPE_CHECKING:
    import typer

WIDEST: Final = 100


def lay_out(app: typer.Typer) -> None:
    """Join the lines of each paragraph of all help texts, and limit help to `WIDEST` columns."""
    rich_utils.MAX_WIDTH = min(shutil.get_terminal_size().columns, WIDEST)
    for command in app.registered_commands:
        command.help = _flowing(command.help or inspect.getdoc(command.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            lay_out(group.typer_instance)


def _flowing(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
