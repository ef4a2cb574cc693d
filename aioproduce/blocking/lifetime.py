"""What happens to running producers at the end of the process and in forks.

Invariants:

1. When the interpreter exits, every running producer is closed in bounded time: after the non-daemon threads have
   ended, which may still send, and before daemon threads stop.
2. A forked child neither uses nor frees objects of the parent: a loop that is freed there would remove its sockets
   from the selector that parent and child share.
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
    from aioproduce.blocking.spooled import SpooledSession

_running: Final[dict[int, Session | SpooledSession]] = {}
_lock = threading.Lock()


def began(session: Session | SpooledSession) -> None:
    """Register a running session."""
    _running[id(session)] = session


def ended(session: Session | SpooledSession) -> None:
    """Remove a session that has ended."""
    _running.pop(id(session), None)


def restarting() -> threading.Lock:
    """Return the lock that is held while a producer is started, or restarted in a child."""
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


# Not `threading._register_atexit()`, which is called before the user's own threads have ended. When `atexit`
# handlers run, `concurrent.futures` has ended its threads, so `CompressionWorkers` compresses in the loop thread.
atexit.register(_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
