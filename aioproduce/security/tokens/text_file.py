"""Reading the small text files that settings name: tokens, assertions, keys, templates.

They are read anew whenever a token is fetched, once in minutes: one that is replaced is in use without a restart.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import Final

from aioproduce.security.tokens.trouble import Trouble

_log = logging.getLogger("aioproduce")

# Kilobytes in practice. A device, or a log taken for a key, must not fill the memory.
_MAX_SIZE: Final = 1024 * 1024


def read_text(path: str, setting: str) -> str | Trouble:
    """What a file holds, in UTF-8, without blanks around it.

    Args:
        path: Where it is.
        setting: Which setting names it.
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
        return Trouble(f"{path} is larger than {_MAX_SIZE} bytes: is it the file that is meant?", setting)
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        return Trouble(f"{path} is not a text in UTF-8: is it the file that is meant?", setting)


def _open_at_once(path: str, flags: int) -> int:
    """Open it without waiting for somebody who writes, as a named pipe would have it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def warn_if_world_readable(path: str, setting: str) -> None:
    """Say in the log that everybody on this machine can read a private key, if that is so."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # whoever reads it says so
    if mode & stat.S_IROTH:
        _log.warning("%s can be read by every user of this machine (%s): chmod 600 it", path, setting)
