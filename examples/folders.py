"""The folders of the examples that leave files: an earlier run's is emptied, and nobody else's.

Used by `lake` and `outage`.
"""

from __future__ import annotations

import shutil
from pathlib import Path


class FolderError(Exception):
    """The given folder must not be emptied."""


def room_for(folder: Path, sign: str) -> Path:
    """Empty the folder, or make it, and return it.

    Args:
        folder: The folder.
        sign: The name of a file in it. Only a folder with that file may be emptied.

    Raises:
        FolderError: if it has files that are not of this example.
    """
    marker = folder / sign
    if folder.exists():
        if any(folder.iterdir()) and not marker.exists():
            raise FolderError(
                f"{folder} has files that are not of this example, and would be emptied: name another, or remove it"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    marker.touch()
    return folder
