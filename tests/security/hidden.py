"""All that could tell a secret when something goes wrong: an error, its causes, its traceback with locals."""

from __future__ import annotations

import traceback

import aioproduce


def everything_told(error: BaseException, *, ours_only: bool = False) -> str:
    """What a log shows of this error where its traceback has all local variables.

    Args:
        error: It, with its causes and contexts, suppressed ones as well.
        ours_only: Show the frames of `aioproduce` alone, where a test's own locals have the secret.
    """
    folder = aioproduce.__path__[0]
    told = []
    frames = 0
    link: BaseException | None = error
    while link is not None:
        found = traceback.TracebackException.from_exception(link, capture_locals=True)
        if ours_only:
            found.stack[:] = [frame for frame in found.stack if frame.filename.startswith(folder)]
        frames += len(found.stack)
        told += [repr(link), str(link), repr(link.args), repr(getattr(link, "__dict__", {}))]
        told += found.format(chain=False)
        link = link.__cause__ or link.__context__
    assert frames, "no frame of ours: what was to be shown?"
    return "\n".join(told)
