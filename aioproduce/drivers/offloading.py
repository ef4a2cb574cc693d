"""Threads that do what a login cannot do on the event loop: a costly hash, a token endpoint, Kerberos.

Made by a driver for each `Offload` effect that blocks.

Invariants:

1. A thread each, and a daemon: what hangs holds up neither the other logins, nor compression, nor the exit of the
   process. They are few: one fetch of credentials at a time, and one step of a login for a connection.
2. Nobody is told once the loop is closed.
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
    """Have it done elsewhere.

    Args:
        work: What blocks.
        ended: Called in the loop with the result, or with the exception that was raised.
        call_in_loop: Has a callable called in the loop's thread; raises RuntimeError if the loop is closed.
        executor: What runs it where there are no threads: in a simulated loop.
    """
    job = partial(_run, work, ended, call_in_loop)
    if executor is not None:
        executor.submit(job)
    else:
        try:
            Thread(target=job, name=f"aioproduce {work.what}", daemon=True).start()
        except (
            RuntimeError
        ) as error:  # the system gives no more threads: that login fails, and the producer goes on
            call_in_loop(partial(ended, without_frames(error)))


def _run(
    work: Work, ended: Callable[[object], None], call_in_loop: Callable[[Callable[[], None]], object]
) -> None:
    outcome = outcome_of(work)
    with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        call_in_loop(partial(ended, outcome))


def outcome_of(work: Work) -> object:
    """The result of what blocks, or the exception that it raised, without the frames: they may hold a secret."""
    try:
        return work.run()
    except BaseException as error:
        return without_frames(error)


def without_frames(error: BaseException) -> BaseException:
    """The same without its traceback."""
    return error.with_traceback(None)
