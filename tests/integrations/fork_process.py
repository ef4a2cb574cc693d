"""A fork() while a log thread is in the C library, as a process of its own: run by `test_log_forks`.

python -m tests.integrations.fork_process CASE

The C library's lock is played by one of Python's that nobody renews in a child.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from aioproduce.integrations import log_thread

if TYPE_CHECKING:
    from collections.abc import Callable

# As long as a pytest run at most, and as long as is enough for a fork() that nothing holds up.
_FOREVER = 300.0
_A_WHILE = 0.2

resolver = threading.Lock()
is_inside = threading.Event()
is_about_to_fork = threading.Event()
has_forked = threading.Event()


def fork() -> int:
    is_inside.wait(_FOREVER)
    return os.fork()


def while_in_resolver(seconds: float) -> Callable[[], bool]:
    """Holds the lock until the fork() is over, or for that long after it was called; says whether it is over."""

    def resolve() -> bool:
        with resolver:
            is_inside.set()
            is_about_to_fork.wait(_FOREVER)
            return has_forked.wait(seconds)

    return resolve


def start(resolve: Callable[[], bool]) -> tuple[threading.Thread, list[bool]]:
    said: list[bool] = []
    executor = log_thread._InThisThread()
    thread = threading.Thread(target=lambda: said.append(executor.submit(resolve).result()))
    thread.start()
    return thread, said


def end_child(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"the child ended with {status}"


def waits() -> None:
    """The child finds the lock free."""
    log_thread._FORK_PATIENCE = _FOREVER  # type: ignore[misc]
    thread, said = start(while_in_resolver(_A_WHILE))
    child = fork()
    if child == 0:
        os._exit(0 if resolver.acquire(blocking=False) else 1)
    thread.join()
    assert said == [False], "fork() did not wait"
    end_child(child)


def for_a_moment() -> None:
    """Who resolves is held up elsewhere: fork() goes on, and so do the child's own threads and forks."""
    log_thread._FORK_PATIENCE = 0.01  # type: ignore[misc]
    thread, said = start(while_in_resolver(_FOREVER))
    child = fork()
    if child == 0:
        log_thread._FORK_PATIENCE = _FOREVER  # type: ignore[misc]
        own = log_thread._InThisThread().submit(lambda: "resolved")
        grandchild = os.fork()  # nobody is inside here
        if grandchild:
            end_child(grandchild)
        os._exit(0 if own.result() == "resolved" else 1)
    thread.join()
    assert said == [True]
    end_child(child)


def main() -> None:
    # Called the other way round: this one before the gate's.
    os.register_at_fork(before=is_about_to_fork.set, after_in_parent=has_forked.set)
    {"waits": waits, "for a moment": for_a_moment}[sys.argv[1]]()


if __name__ == "__main__":
    main()
