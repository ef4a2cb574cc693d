"""Reads the small text files that settings name: tokens, assertions, keys, templates.

They are read on each fetch of a token, every few minutes, so a replaced file is used without a restart.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import Final

from aioproduce.security.tokens.trouble import Trouble

_log = logging.getLogger("aioproduce")

# Such files have kilobytes. A device, or a log in place of a key, must not fill the memory.
_MAX_SIZE: Final = 1024 * 1024


def read_text(path: str, setting: str) -> str | Trouble:
    """Return the content of a UTF-8 file, without surrounding whitespace.

    Args:
        path: The file's path.
        setting: The setting that names it.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Trouble(f"{path} is not a file", setting)
            content = file.read(_MAX_SIZE + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a path"
        return Trouble(
            f"{path} cannot be read ({why}): check the path, and that this process may read it", setting
        )
    if len(content) > _MAX_SIZE:
        return Trouble(f"{path} is larger than {_MAX_SIZE} bytes: is it the right file?", setting)
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        return Trouble(f"{path} is not a text in UTF-8: is it the right file?", setting)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, which a named pipe would do."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def warn_if_world_readable(path: str, setting: str) -> None:
    """Log a warning if every user of this machine can read a private key."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # reading the file reports it
    if mode & stat.S_IROTH:
        _log.warning("%s can be read by every user of this machine (%s): chmod 600 it", path, setting)
