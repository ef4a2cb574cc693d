"""The end of the process, and its forks: what becomes of producers that run then.

Invariants:

1. When the interpreter exits, every producer that still runs is closed, in bounded time, after the threads that
   are no daemons have ended (they may still send) and before those that are stop.
2. In a child nothing of the parent's is touched, and nothing of it is freed: a loop that is freed there would
   take its sockets out of the selector that parent and child share.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from typing import TYPE_CHECKING, Final

# First, so that what closes these producers at the exit runs before what says of open ones that they are lost.
from aioproduce.producer import life as _life  # noqa: F401

if TYPE_CHECKING:
    from aioproduce.blocking.session import Session

_running: Final[dict[int, Session]] = {}
_lock = threading.Lock()


def began(session: Session) -> None:
    """A session runs from now on."""
    _running[id(session)] = session


def ended(session: Session) -> None:
    """It does not any more."""
    _running.pop(id(session), None)


def restarting() -> threading.Lock:
    """Held while a producer is started, or started anew in a child."""
    return _lock


def _exit() -> None:
    for session in list(_running.values()):
        session.close_at_exit()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()
    for session in _running.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
    _running.clear()


# Not `threading._register_atexit()`: it comes before the user's own threads have ended. When `atexit` comes,
# `concurrent.futures` has ended its threads, so `CompressionWorkers` compresses in the loop thread.
atexit.register(_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
