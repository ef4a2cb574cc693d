"""Threads for the blocking work of a login: a costly hash, a token endpoint, Kerberos.

Made by a driver for each `Offload` effect that blocks.

Invariants:

1. Each piece of work has a daemon thread of its own: one that hangs delays neither other logins, nor compression,
   nor the exit of the process. There are few: one fetch of credentials at a time, and one login step for each
   connection.
2. No callback runs once the loop is closed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from aioproduce.security.mechanism import Work


def run_in_thread(
    work: Work,
    ended: Callable[[object], None],
    call_in_loop: Callable[[Callable[[], None]], object],
    executor: Executor | None = None,
) -> None:
    """Run blocking work in a thread.

    Args:
        work: The blocking work.
        ended: Called in the loop with the result, or with the raised exception.
        call_in_loop: Calls a callable in the loop's thread; raises RuntimeError if the loop is closed.
        executor: Runs the work in a simulated loop, which has no threads.
    """
    job = partial(_run, work, ended, call_in_loop)
    if executor is not None:
        executor.submit(job)
    else:
        try:
            Thread(target=job, name=f"aioproduce {work.what}", daemon=True).start()
        except (
            RuntimeError
        ) as error:  # the system starts no more threads: this login fails, and the producer continues
            call_in_loop(partial(ended, without_frames(error)))


def _run(
    work: Work, ended: Callable[[object], None], call_in_loop: Callable[[Callable[[], None]], object]
) -> None:
    outcome = outcome_of(work)
    with suppress(RuntimeError):  # the loop is closed: nobody is left to notify
        call_in_loop(partial(ended, outcome))


def outcome_of(work: Work) -> object:
    """Return the result, or the raised exception without its frames, which may hold a secret."""
    try:
        return work.run()
    except BaseException as error:
        return without_frames(error)


def without_frames(error: BaseException) -> BaseException:
    """Return the error without its traceback."""
    return error.with_traceback(None)
